"""What a calibration found: as one record for JSON, as text, and as the file of the chip.

`--system FILE` takes that file in every verb: a `[chip]` that starts from one of the catalogue or has every
fact with its status, the `[[surface]]` tables of its kernels, and what they come from. A new chip whose
collectives were measured has the `[network.node]` that they tell of; else it names no network: a known chip
takes its reference system's, a new one the usual (catalog/systems.py); a user adds `[network.node]`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from foretell.catalog.files import toml_value
from foretell.lab.calibrate.fit import Calibration, FittedSurface, SustainedRuns
from foretell.lab.calibrate.measured_facts import node_tier
from foretell.lab.calibrate.surfaces import surfaces_toml
from foretell.specs.arrays import Array

LARGE_FLOP = 1e11
"""Operations from which a product counts as large, in what long runs say of each pass."""
LAUNCHES: Mapping[tuple[str, str], str] = {
    ("host", "eager"): "host, one kernel launched",
    ("device", "eager"): "device, kernels launched one by one",
    ("device", "graph"): "device, kernels of a graph",
    ("linear-host", "eager"): "host, a linear layer's call",
    ("backward-host", "eager"): "host, a linear layer's call and its backward",
    ("round-trip", "eager"): "launch one and wait",
    ("graph-replay-host", "eager"): "replay a graph and wait, per kernel",
}
"""(Form, launch) of the launch points -> words."""


def to_dict(found: Calibration) -> dict[str, Any]:
    """As JSON: unknown is null."""
    environment = found.measured.environment
    return {
        "file": found.measured.name,
        "chip": found.facts.chip.id,
        "new_chip": found.facts.new,
        "device": environment.get("chip"),
        "software": environment.get("software"),
        "points": len(found.measured.points),
        "failed": found.measured.failed,
        "facts": facts_dict(found),
        "surfaces": [surface_dict(each) for each in found.fits],
        "passes": [row for each in found.fits for row in pass_rows(each)],
        "sustained": [row for each in found.long for row in long_rows(each)],
        "launch": list(launch_rows(found)),
        "network": node_tier(found.measured) if found.facts.new else {},
        "skipped": [
            {"what": what, "points": points, "reason": why} for what, points, why in found.skipped
        ],
        "notes": list(found.facts.notes),
    }


def facts_dict(found: Calibration) -> dict[str, Any]:
    """Facts of a new chip by name; of a catalogue chip, its base."""
    flat: dict[str, Any] = {}
    for key, value in found.facts.table.items():
        if isinstance(value, Mapping) and "value" not in value:
            flat |= {f"{key}.{name}": fact for name, fact in value.items()}
        else:
            flat[key] = value
    return flat


def surface_dict(each: FittedSurface) -> dict[str, Any]:
    """A surface with which of its coefficients the points determine."""
    s = each.surface
    names = (
        *("family", "dtype", "software", "version", "points", "median_ape", "p90_ape"),
        *("left_out_median_ape", "left_out_p90_ape"),
    )
    return {
        **{name: getattr(s, name) for name in names},
        "residuals": list(s.residuals),
        "coefficients": dict(s.coefficients),
        "moved": list(each.moved),
    }


def pass_rows(each: FittedSurface) -> Iterator[dict[str, Any]]:
    """Errors of one surface by pass."""
    rows = each.group.rows
    for name in dict.fromkeys(str(line["pass"]) for line in each.group.lines):
        mine = each.group.where("pass", name)
        measured = rows.measured_s[mine]
        yield {
            "family": rows.family,
            "dtype": rows.dtype,
            "software": rows.software,
            "pass": name,
            "points": int(mine.sum()),
            **_errors("", each.inside_s[mine] / measured),
            **_errors("left_out_", each.blind_s[mine] / measured),
        }


def _errors(prefix: str, ratio: Array) -> dict[str, float | None]:
    """Median and 90th percentile of |ratio - 1|, and the median of ratio - 1."""
    gap = ratio[np.isfinite(ratio)] - 1.0
    names = ("median_ape", "p90_ape", "bias")
    if not len(gap):
        return {f"{prefix}{name}": None for name in names}
    values = (np.median(np.abs(gap)), np.quantile(np.abs(gap), 0.9), np.median(gap))
    return {
        f"{prefix}{name}": round(float(value), 4) for name, value in zip(names, values, strict=True)
    }


def long_rows(each: SustainedRuns) -> Iterator[dict[str, Any]]:
    """Runs of seconds by pass: how much slower than a burst, and what the power limit's pass says."""
    rows = each.group.rows
    for name in dict.fromkeys(str(line["pass"]) for line in each.group.lines):
        mine = each.group.where("pass", name)
        flop = np.array([float(line.get("flop", 0.0)) for line in each.group.lines])
        large = mine & (flop >= LARGE_FLOP)
        some = large if large.any() else mine
        clocks = [line.get("sm_clock_hz") for line in each.group.lines]
        told = [float(c) for c, keep in zip(clocks, some, strict=True) if keep and c]
        yield {
            "family": rows.family,
            "dtype": rows.dtype,
            "software": rows.software,
            "pass": name,
            "points": int(mine.sum()),
            "over_burst": _middle(rows.measured_s[some] / each.burst_s[some]),
            "over_burst_predicted": _middle(each.predicted_s[some] / each.burst_s[some]),
            "clock_hz": _middle(np.array(told)) if told else None,
            **_errors("", each.predicted_s[mine] / rows.measured_s[mine]),
        }


def _middle(values: Array) -> float:
    return float(f"{np.median(values):.4g}")


def launch_rows(found: Calibration) -> Iterator[dict[str, Any]]:
    """Seconds of a launch, by how it is made."""
    for line in found.measured.burst("launch"):
        words = LAUNCHES.get((str(line["variant"]), str(line["launch"])))
        kernels = float(line["dims"].get("kernels", 1))
        if words and kernels > 0:
            seconds = float(f"{float(line['seconds']) / kernels:.4g}")
            yield {"what": words, "kernels": int(kernels), "seconds_each": seconds}


def text(found: Calibration) -> str:
    """The tables that `foretell calibrate fit` prints."""
    record = to_dict(found)
    lines = [
        f"{record['device']}, {record['software']}: {record['points']} points as {record['chip']}"
    ]
    lines += [f"  {note}" for note in record["notes"]]
    if record["new_chip"]:
        lines += _fact_lines(record["facts"])
    lines += ["", f"{'surface':44}{'points':>7}{'median':>9}{'p90':>8}{'bias':>8}   held out"]
    for row in record["passes"]:
        name = f"{row['family']} {row['dtype']} {row['software']} {row['pass']}"
        out = f"{_percent(row['left_out_median_ape']):>9}{_percent(row['left_out_p90_ape']):>8}"
        inside = f"{_percent(row['median_ape']):>9}{_percent(row['p90_ape']):>8}"
        lines.append(f"{name:44}{row['points']:>7}{inside}{_signed(row['bias']):>8}  {out}")
    if record["sustained"]:
        lines += ["", "runs of seconds, not fitted (over a burst: measured, predicted; error)"]
        for row in record["sustained"]:
            name = f"{row['family']} {row['dtype']} {row['software']} {row['pass']}"
            ratio = f"{row['over_burst']:>9.3f}{row['over_burst_predicted']:>8.3f}"
            lines.append(f"{name:44}{row['points']:>7}{ratio}{_percent(row['median_ape']):>8}")
    if record["launch"]:
        lines += ["", "launches"]
        for row in record["launch"]:
            name = f"{row['what']} ({row['kernels']})"
            lines.append(f"  {name:58}{row['seconds_each'] * 1e6:>8.2f} us each")
    if record["network"]:
        lines += ["", _network_line(record["network"])]
    if record["skipped"]:
        lines += ["", "not fitted"]
        for why in dict.fromkeys(row["reason"] for row in record["skipped"]):
            own = [row for row in record["skipped"] if row["reason"] == why]
            names = ", ".join(f"{row['what']} ({row['points']})" for row in own)
            lines.append(f"  {names}: {why}")
    return "\n".join(lines)


def _network_line(tier: Mapping[str, float]) -> str:
    """The tier that collectives were measured on."""
    rate, latency = tier["bandwidth_bytes_per_s"] / 1e9, tier["latency_s"] * 1e6
    return (
        f"network: {tier['size']:g} ranks on one machine, {rate:.4g} GB/s, {latency:.3g} us a hop"
    )


def _fact_lines(facts: Mapping[str, Any]) -> list[str]:
    return [
        f"  {name} = {fact['value']:.4g} ({fact['status']}{_note(fact)})"
        for name, fact in facts.items()
        if isinstance(fact, Mapping)
    ]


def _note(fact: Mapping[str, Any]) -> str:
    return f": {fact['note']}" if "note" in fact else ""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _signed(share: float | None) -> str:
    return "-" if share is None else f"{share:+.1%}"


def chip_toml(found: Calibration) -> str:
    """The whole file."""
    facts, when = found.facts, str(found.measured.environment.get("date", ""))[:10]
    lines = [
        "# Written by `foretell calibrate fit`; `--system` takes this file in every verb.",
        f"id = {_text(facts.chip.id)}",
        f"name = {_text(facts.chip.name + ', calibrated')}",
        "",
        "[chip]",
    ]
    tables: dict[str, Mapping[str, Any]] = {}
    for key, value in facts.table.items():
        if isinstance(value, Mapping) and "value" not in value:
            tables[key] = value
        else:
            lines.append(f"{key} = {_value(value)}")
    for key, table in tables.items():
        lines += ["", f"[chip.{key}]"]
        lines += [f"{name} = {_value(value)}" for name, value in table.items()]
    tier = node_tier(found.measured) if facts.new else {}
    if tier:
        lines += ["", "[network.node]", *(f"{name} = {value!r}" for name, value in tier.items())]
    lines += ["", "[sources]", f"measured = {_text(f'{facts.source}, {when}')}"]
    if facts.new:
        guess = "Guessed or carried over by foretell calibrate fit: no point tells it"
        lines.append(f"inferred = {_text(guess)}")
    return "\n".join([*lines, "", surfaces_toml(found.surfaces)])


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    """A TOML text on one line."""
    plain = "".join(ch if ch.isprintable() else " " for ch in text)
    return toml_value(plain)
