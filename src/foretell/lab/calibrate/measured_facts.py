"""What measurements tell of the chip itself and of the links inside a node.

A chip that the catalogue knows keeps the catalogue's facts. A new one takes its peaks from the best point of
each kind: the highest rate of a matrix product in each format, the most bytes a second that any kernel moved
out of the cache's reach. What no point tells is guessed, and says so.

Links are one tier. All-reduce of S bytes in a ring of n: 2 (n-1) hops and 2 (n-1)/n S bytes on the wire. The
smallest message tells the latency, the largest the bandwidth. Other kinds have a rate of their own: gloo's
all-gather and reduce-scatter copy what its all-reduce does not, which is a fact of the library.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.catalog.chips import catalogue_chip, chip_from_table
from foretell.catalog.names import exists, find
from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.kernels.families.pointwise import COPY_SHARE
from foretell.lab.calibrate.measured_rows import Line, Measurements
from foretell.records import dataclass
from foretell.specs.chip import Chip

ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
"""What a new chip may be called."""
ARCHITECTURES: Mapping[str, str] = {
    "7.0": "volta", "7.5": "turing", "8.0": "ampere", "8.6": "ampere", "8.9": "ada", "9.0": "hopper",
    "10.0": "blackwell", "10.1": "blackwell", "10.3": "blackwell-ultra", "12.0": "blackwell",
    "12.1": "blackwell", "gfx908": "cdna", "gfx90a": "cdna2", "gfx942": "cdna3", "gfx950": "cdna4",
}  # fmt: skip
"""Compute capability, or AMD's name of the instruction set -> architecture."""
LANES: Mapping[str, float] = {"volta": 64.0, "turing": 64.0, "cdna2": 128.0}
"""Multiply-adds of a core in fp32 each clock; 128 elsewhere, and 64 on the GA100 (capability 8.0)."""
OUT_OF_CACHE = 2.0
"""Caches' worth of buffers from which a point counts for the memory's bandwidth."""
CACHE_BYTES = 32e6
"""A cache where its size is unknown."""
CPU_WATTS, CARD_WATTS = 200.0, 400.0
"""Power limits where none is stated: guesses."""
CPU_MEMORY_BYTES = 64 * 2.0**30
"""Memory of a host that tells none: a guess."""
PEAKS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
"""Formats that a product's rate may stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The chip that was measured."""

    chip: Chip
    """As formulas see it."""
    table: Mapping[str, Any]
    """Its table in a file: a base of the catalogue, or every fact with its status."""
    new: bool
    """Whether the catalogue does not know it."""
    limited: bool
    """Whether its power limit is known, so that long runs can be held against it."""
    source: str
    """What was measured on, and with what, in a sentence's part."""
    notes: tuple[str, ...]
    """What else there is to say."""


def facts_of(measured: Measurements, chip: str) -> Facts:
    """The chip of an id: the catalogue's where it has it, else one with measured peaks."""
    seen = str(measured.environment.get("chip", ""))
    if exists(chip):
        found = find(chip, ("chip", "system"), "chip")
        if found.kind != "chip":
            raise bad_input("chip", chip, "is a system of the catalogue, not a chip", "a chip's id")
        known = catalogue_chip(found.id)
        notes = []
        if exists(seen) and find(seen, ("chip",), "chip").id != known.id:
            notes.append(f"the file was measured on {seen}, which is not {known.id}")
        return Facts(
            chip=known,
            table={"base": known.id},
            new=False,
            limited=True,
            source=source_of(measured, f"{known.vendor} {_plain(known.name)}"),
            notes=tuple(notes),
        )
    if not ID.fullmatch(chip):
        what, allowed = "cannot be a new chip's id", "a-z, 0-9 and - . _, as in my-gpu"
        raise bad_input("chip", chip, what, allowed)
    return _new(measured, chip, seen)


def source_of(measured: Measurements, device: str) -> str:
    """Where the numbers come from, for a surface's source."""
    libraries = measured.environment.get("libraries", {})
    card = measured.environment.get("card", {})
    words = [f"foretell calibrate measure on one {device}", f"PyTorch {measured.version}"]
    if libraries.get("cuda"):
        words.append(f"CUDA {libraries['cuda']}")
    if libraries.get("hip"):
        words.append(f"ROCm {libraries['hip']}")
    if card.get("driver"):
        words.append("driver " + ".".join(str(card["driver"]).split(".")[:2]))
    return ", ".join(words)


def _plain(name: str) -> str:
    """A chip's name without the size of its memory."""
    return re.sub(r"\s+\d+\s*GB$", "", name)


def _new(measured: Measurements, chip: str, seen: str) -> Facts:
    card: Mapping[str, Any] = measured.environment.get("card", {})
    rates = _rates(measured)
    if not rates:
        raise BadInput([_missing("no matrix multiplication", "gemm")])
    bandwidth = _bandwidth(measured, float(card.get("l2_bytes", 0.0)))
    if bandwidth <= 0.0:
        raise BadInput([_missing("no copy, and nothing else that moves memory", "copies")])
    table: dict[str, Any] = {
        "id": chip,
        "name": seen or chip,
        "vendor": _vendor(seen),
        "architecture": _architecture(measured),
        "memory_bandwidth_bytes_per_s": fact_entry(bandwidth, "the most that any kernel moved"),
    }
    table |= _sizes(measured, card)
    table["vector_flop_per_s"] = _vector(measured, card, rates, str(table["architecture"]))
    if link := _link(measured):
        note = f"the best copy from pinned memory over {COPY_SHARE:g}, the share that copies reach"
        table["host_bytes_per_s"] = fact_entry(link / COPY_SHARE, note)
    table["matrix_flop_per_s"] = _peaks(rates, measured.on_cpu)
    problems: list[Problem] = []
    made = chip_from_table(table, "chip", problems)
    if made is None:
        raise BadInput(problems)
    note = f"{chip} is not in the catalogue: its peaks are the best that was measured"
    return Facts(
        chip=made,
        table=table,
        new=True,
        limited="power_limit_watts" in card,
        source=source_of(measured, seen or chip),
        notes=(note,),
    )


def fact_entry(value: float, note: str = "", status: str = "measured") -> dict[str, Any]:
    """A fact with where it comes from."""
    fact = {"value": float(f"{value:.5g}"), "source": status, "status": status}
    return {**fact, "note": note} if note else fact


def _missing(what: str, group: str) -> Problem:
    return wrong(
        "file",
        None,
        f"holds {what}, which a new chip's peaks need",
        f"foretell calibrate measure --only {group} --out FILE",
    )


def _rates(measured: Measurements) -> dict[str, float]:
    """The best rate of products in short bursts by format."""
    best: dict[str, float] = {}
    for family in ("gemm", "batched_gemm"):
        for line in measured.burst(family):
            rate = float(line.get("flop", 0.0)) / float(line["seconds"])
            if line["dtype"] in PEAKS and rate > best.get(line["dtype"], 0.0):
                best[line["dtype"]] = rate
    return best


def _peaks(rates: Mapping[str, float], on_cpu: bool) -> dict[str, Any]:
    """Peaks by format; products in 16 bits are what plans run, so that there are always some."""
    found = {name: fact_entry(rate, "the best GEMM measured") for name, rate in rates.items()}
    if not {"bf16", "fp16"} & rates.keys():
        widest = "a CPU's fp32 rate" if on_cpu else "the fp32 rate"
        value = max(rates.values())
        for name in ("bf16", "fp16"):
            found[name] = fact_entry(value, f"not measured: {widest} is taken for it", "inferred")
    return found


def _bandwidth(measured: Measurements, l2_bytes: float) -> float:
    """The most bytes a second of any kernel whose buffers leave the cache, or of the largest copy."""
    lines = [
        line
        for line in (*measured.burst("copy"), *measured.burst("gemm"))
        if line["variant"] != "copy-cached" and float(line.get("bytes", 0.0)) > 0.0
    ]
    least = OUT_OF_CACHE * (l2_bytes or CACHE_BYTES)
    cold = [line for line in lines if float(line.get("rotated_bytes", 0.0)) >= least]
    if not cold:
        largest = max((float(line["bytes"]) for line in lines), default=0.0)
        cold = [line for line in lines if float(line["bytes"]) >= largest]
    # Other users of the machine only ever make a copy slower.
    return max((_least_speed(line) for line in cold), default=0.0)


def _least_speed(line: Line) -> float:
    return float(line["bytes"]) / float(line.get("least_seconds") or line["seconds"])


def _speed(line: Line) -> float:
    return float(line["bytes"]) / float(line["seconds"])


def _link(measured: Measurements) -> float:
    """The best copy between pinned host memory and the device."""
    lines = [line for line in measured.burst("host_copy") if line["variant"].endswith("pinned")]
    return max((_speed(line) for line in lines), default=0.0)


def _sizes(measured: Measurements, card: Mapping[str, Any]) -> dict[str, Any]:
    """Memory, cores, caches, clock and watts as the environment tells them."""
    found: dict[str, Any] = {}
    for name in ("memory_bytes", "cores", "l2_bytes", "sram_bytes_per_core"):
        if card.get(name):
            found[name] = fact_entry(float(card[name]))
    if card.get("max_sm_clock_hz"):
        found["clock_hz"] = fact_entry(float(card["max_sm_clock_hz"]), "the highest it may take")
    host = measured.environment.get("host", {})
    if measured.on_cpu:
        threads = float(host.get("threads") or host.get("cores") or 1.0)
        found["cores"] = fact_entry(threads, "threads that PyTorch ran")
    if "memory_bytes" not in found:
        memory, note = _host_memory(str(host.get("cpu", "")))
        found["memory_bytes"] = fact_entry(memory, note, "inferred")
    if card.get("power_limit_watts"):
        found["tdp_watts"] = fact_entry(float(card["power_limit_watts"]), "the limit set")
    else:
        guess = CPU_WATTS if measured.on_cpu else CARD_WATTS
        found["tdp_watts"] = fact_entry(guess, "a guess: nothing tells the power limit", "inferred")
    return found


def _host_memory(cpu: str) -> tuple[float, str]:
    """The memory of this machine, where the file is of one with its processor."""
    from foretell.lab.calibrate.measure.bench import cpu_name, free_host_bytes

    if cpu and cpu_name() == cpu:
        return free_host_bytes(), "free memory of the host when this was fitted"
    return CPU_MEMORY_BYTES, "a guess: nothing tells the memory"


def _vector(
    measured: Measurements, card: Mapping[str, Any], rates: Mapping[str, float], architecture: str
) -> dict[str, Any]:
    """Peak of the vector units: the fp32 products of a CPU; on a card lanes x clock, which is a guess."""
    if measured.on_cpu and "fp32" in rates:
        return fact_entry(rates["fp32"], "the best fp32 GEMM: the vector units run it")
    cores, clock = float(card.get("cores", 0.0)), float(card.get("max_sm_clock_hz", 0.0))
    if cores and clock:
        wide = 64.0 if card.get("capability") == "8.0" else LANES.get(architecture, 128.0)
        note = f"a guess: {wide:g} multiply-adds of a core each clock"
        return fact_entry(2.0 * wide * cores * clock, note, "inferred")
    note = "a guess: a twentieth of the best GEMM's rate"
    return fact_entry(max(rates.values()) / 20.0, note, "inferred")


def _vendor(name: str) -> str:
    known = ("NVIDIA", "AMD", "Intel", "Apple", "ARM")
    return next((word for word in known if word.lower() in name.lower()), "")


def _architecture(measured: Measurements) -> str:
    if measured.on_cpu:
        return "cpu"
    card = measured.environment.get("card", {})
    gfx = str(card.get("architecture", "")).split(":")[0]
    name = gfx if gfx.startswith("gfx") else str(card.get("capability", ""))
    return ARCHITECTURES.get(name, "unknown")


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
