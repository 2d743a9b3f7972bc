"""The links inside a node from measured collectives: one tier, with what each kind makes of it.

All-reduce of S bytes in a ring of n: 2 (n-1) hops and 2 (n-1)/n S bytes on the wire. The smallest message
tells the latency, the largest the bandwidth. Other kinds have a rate of their own: gloo's all-gather and
reduce-scatter copy what its all-reduce does not, which is no fact of the links but of the library.
"""

from collections.abc import Mapping, Sequence

from foretell.lab.calibrate.measured_rows import Line, Measurements

PASSES: Mapping[str, float] = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
}
"""Kinds that are fitted -> times that (n-1)/n of the buffer goes over a member's link."""
SHARES = {
    "all_gather": "gather_share",
    "reduce_scatter": "scatter_share",
    "all_to_all": "exchange_share",
}
"""Kinds with a rate of their own -> their field of a tier."""


def node_tier(measured: Measurements) -> dict[str, float]:
    """Fields of the innermost tier, of the largest group on one machine; empty where none was measured."""
    lines = [
        line
        for line in measured.burst(group="collectives")
        if line["family"] in PASSES and line.get("nodes") == 1
    ]
    ranks = max((int(line["dims"]["ranks"]) for line in lines), default=0)
    if ranks < 2:  # a file may say so, though none of ours does
        return {}
    here = [line for line in lines if line["dims"]["ranks"] == ranks]
    rates = {kind: _rate(_of(kind, here), ranks) for kind in PASSES}
    whole = rates["all_reduce"]
    if whole is None:
        return {}
    first_s = min(float(line["seconds"]) for line in _of("all_reduce", here))
    fields = {
        "size": ranks,
        "bandwidth_bytes_per_s": whole,
        "latency_s": first_s / (2.0 * (ranks - 1)),
        "efficiency": 1.0,
    }
    return fields | {
        name: rate / whole for kind, name in SHARES.items() if (rate := rates[kind]) is not None
    }


def unfitted_collectives(measured: Measurements, *, kept: bool) -> list[tuple[str, int, str]]:
    """Collectives that no tier was made of: which, how many points, why; `kept`: a tier is written."""
    lines = measured.burst(group="collectives")
    tier = node_tier(measured) if kept else {}
    most = tier.get("size", 0)
    found: dict[tuple[str, str], int] = {}
    for line in lines:
        kind, variant = str(line["family"]).replace("_", "-"), str(line["variant"])
        if not kept:
            why = "the catalogue's network is kept; write [network.node] into the file for another"
        elif line.get("nodes") != 1:
            why = "between machines: write [network.cluster] into the file"
        elif line["family"] not in PASSES:
            why = "has no rate of its own in a tier; all-reduce tells the links"
        elif not tier:
            why = "one size of message does not tell latency from bandwidth"
        elif line["dims"]["ranks"] != most:
            why = f"fewer ranks than the {most:g} that the tier is fitted to"
        else:
            continue
        found[f"{kind} {variant}", why] = found.get((f"{kind} {variant}", why), 0) + 1
    return [(name, count, why) for (name, why), count in found.items()]


def _of(kind: str, lines: Sequence[Line]) -> list[Line]:
    """Messages of a kind, the smallest first."""
    found = [line for line in lines if line["family"] == kind]
    return sorted(found, key=lambda line: float(line["dims"]["bytes"]))


def _rate(lines: Sequence[Line], ranks: int) -> float | None:
    """Bytes per second on a member's link, from the largest message less the smallest; None: one size.

    Where noise makes the smallest the slower one, the largest message alone tells a rate, which is then a
    low one: a measured link is never replaced by a guess.
    """
    if len(lines) < 2:
        return None
    small, large = lines[0], lines[-1]
    moved = float(large["dims"]["bytes"]) - float(small["dims"]["bytes"])
    seconds = float(large["seconds"]) - float(small["seconds"])
    if not moved > 0.0:
        return None
    if not seconds > 0.0:
        moved, seconds = float(large["dims"]["bytes"]), float(large["seconds"])
    return PASSES[str(large["family"])] * (ranks - 1) / ranks * moved / seconds
