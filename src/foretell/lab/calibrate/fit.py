"""From a file of measurements to a chip's surfaces, with what they miss.

`foretell calibrate fit` is the door.

What is fitted is the clock of short bursts: what slows long kernels in the forms (`fade`, `warm`) is held at
their least, since the power limit is a pass of its own (kernels/power.py). Runs of seconds are not fitted but
predicted with that pass, and distinguished. Few points move few coefficients: those that change a time most,
one for three points; the others stay where they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import bad_input
from foretell.kernels.families import backward, prefill
from foretell.kernels.families.base import Engine, Family, engine_of
from foretell.kernels.families.choose import family_named
from foretell.kernels.power import BITS, OpLoad, chip_power, clock_share, sustain_ops
from foretell.lab.calibrate.measured_facts import Facts, facts_of, unfitted_collectives
from foretell.lab.calibrate.measured_rows import Group, Line, Measurements, groups_of, read
from foretell.lab.calibrate.surfaces import (
    KernelRows,
    fit,
    left_out,
    surface_with_errors,
)
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.chip import Surface

LEAST_POINTS = 4
"""Fewer points tell nothing of a surface."""
POINTS_EACH, LEAST_MOVED = 3, 2
"""Points that a coefficient needs before it may move, but for so many."""
FEW = 40
"""Points under which a group begins where a larger one of its family ended."""
KIN_WEIGHT = 0.1
"""Weight of the points of a group that begins where another ended: it leaves that place with reason."""
FELT = 0.001
"""Least change of the times, for a quarter more or less of a coefficient, that counts as known."""
HELD: Mapping[str, tuple[str, ...]] = {
    "gemm": ("fade",),
    "prefill": ("warm",),
    "prefill-backward": ("warm",),
    "decode": ("cached",),
    "pointwise": (),
}
"""Coefficients that bursts on cold buffers know to be next to nothing: they are held at their least."""
WIDER: Mapping[str, tuple[float, float]] = {
    "launch_s": (3e-7, 1e-3),
    "plain_launch_s": (3e-7, 1e-3),
    "rate": (0.02, 1.0),
    "softmax_flop": (4.0, 400.0),
}
"""Bounds beside or in place of the families' own: hosts that are slow to launch, several sizes of heads."""
ROUNDS, DISTURBED = 6, 0.7
"""Rounds of leaving out what is slower than the others, in logarithms of the time, on a host."""
KERNELS = ("gemm", "attention", "pointwise", "copies")
FITTED = (*KERNELS, "launch", "collectives")
"""Groups of points that surfaces are fitted to, and all that a fit reads."""
QUANTISED = ("quantise", "row_s")
"""Coefficients of the quantisation pass, which operands in fp8 already leave untold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSurface:
    """One surface with what it was fitted to."""

    group: Group
    """The rows."""
    surface: Surface
    """The surface."""
    moved: tuple[str, ...]
    """Coefficients that the points could tell."""
    inside_s: Array
    """Seconds predicted of the rows fitted."""
    blind_s: Array
    """Seconds predicted of each row by a fit without its site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedRuns:
    """Runs of seconds of one surface beside what the surface and the power limit say."""

    group: Group
    """The rows."""
    burst_s: Array
    """Seconds predicted at the clock of short bursts."""
    predicted_s: Array
    """Seconds predicted under the power limit."""
    clock: Array
    """Clock predicted, over that of bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything that a file states."""

    measured: Measurements
    """The file."""
    facts: Facts
    """The chip."""
    fits: tuple[FittedSurface, ...]
    """Surfaces."""
    long: tuple[SustainedRuns, ...]
    """Runs of seconds."""
    skipped: tuple[tuple[str, int, str], ...]
    """What was not fitted: which, how many points, why."""

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        """The surfaces, in the order of the file."""
        return tuple(each.surface for each in self.fits)


def calibrate(path: Path, chip: str) -> Calibration:
    """Fit every surface that a file has points for."""
    measured = read(path)
    facts = facts_of(measured, chip)
    known = groups_of(measured, facts.chip.id)
    groups = [quiet_points(group, facts) if measured.on_cpu else group for group in known]
    lost = [
        (_name(a.rows), len(a.lines) - len(b.lines)) for a, b in zip(known, groups, strict=True)
    ]
    enough = [group for group in groups if len(group.lines) >= LEAST_POINTS]
    if not enough:
        counts = ", ".join(f"{len(g.lines)} of {g.rows.family}" for g in groups) or "none"
        what = f"too few points to fit: {counts}, and {LEAST_POINTS} of one family are needed"
        again = f"foretell calibrate measure --only gemm,attention,pointwise --out {path}"
        raise bad_input(str(path), None, what, again)
    fits: dict[int, FittedSurface] = {}
    # Large groups first: small ones of the same family begin where these end.
    for i in sorted(range(len(enough)), key=lambda i: -len(enough[i].lines)):
        fits[i] = fit_group(enough[i], facts, tuple(fits.values()))
    ordered = tuple(fits[i] for i in range(len(enough)))
    few = [group for group in groups if len(group.lines) < LEAST_POINTS]
    skipped = [(_name(group.rows), len(group.lines), "too few points") for group in few]
    skipped += [(name, count, "disturbed by others on the host") for name, count in lost if count]
    return Calibration(
        measured=measured,
        facts=facts,
        fits=ordered,
        long=tuple(_long_runs(measured, facts, ordered)),
        skipped=(
            *skipped,
            *_untold(measured, known),
            *unfitted_collectives(measured, kept=facts.new),
            *_unfitted_groups(measured),
        ),
    )


def _name(rows: KernelRows) -> str:
    return f"{rows.family} {rows.dtype} {rows.software}"


def _untold(measured: Measurements, known: Sequence[Group]) -> list[tuple[str, int, str]]:
    """Bursts that are of no group, by family."""
    used = {line["place"] for group in known for line in group.lines}
    rest = [li for li in measured.burst() if li["place"] not in used and li["group"] in KERNELS]
    names = dict.fromkeys(f"{line['family']} {line['variant']}".strip() for line in rest)
    found = []
    for name in names:
        some = [li for li in rest if f"{li['family']} {li['variant']}".strip() == name]
        found.append((name, len(some), "no form of one kernel, or launched one by one"))
    return found


def _unfitted_groups(measured: Measurements) -> list[tuple[str, int, str]]:
    """Groups of older files that no surface comes from, and points that failed."""
    rest = [line["group"] for line in measured.burst() if line["group"] not in FITTED]
    found = [(name, rest.count(name), "no surface is fitted to them") for name in sorted({*rest})]
    if measured.failed:
        found.append(("points that failed", measured.failed, "calibrate measure --retry-failed"))
    return found


def quiet_points(group: Group, facts: Facts) -> Group:
    """A group without the points that others on the host made much slower; half of it stays at least.

    Others can only slow a point down, by whole slices of the scheduler's time: what lies that far above a
    fit to the rest, again and again, is theirs.
    """
    least = max((len(group.lines) + 1) // 2, LEAST_POINTS)
    for _ in range(ROUNDS):
        if len(group.lines) < LEAST_POINTS:
            break
        engine, start = engine_for(group, facts), begin(group, facts, None)
        family = movable(family_named(group.rows.family), group, engine, start)
        predicted = family.seconds(group.rows.dims, fit(family, group.rows, engine, start), engine)
        gap = np.log(group.rows.measured_s / predicted)
        keep = gap <= np.median(gap) + DISTURBED
        if keep.all() or keep.sum() < least:
            break
        group = group.take(keep)
    return group


def engine_for(group: Group, facts: Facts) -> Engine:
    """The chip as a group's kernels found it: operands quantised already, buffers out of the cache."""
    engine = engine_of(facts.chip, group.rows.dtype)
    if group.bare:
        engine = replace(engine, dtype=replace(engine.dtype, quantised=False))
    return replace(engine, l2_bytes=0.0) if group.rows.family == "pointwise" else engine


def _kin(group: Group, done: Sequence[FittedSurface]) -> FittedSurface | None:
    """A larger group of the same family that a small one begins with, the same software first."""
    kin = [each for each in done if each.surface.family == group.rows.family]
    if len(group.lines) >= FEW or not kin:
        return None
    return min(kin, key=lambda each: each.surface.software != group.rows.software)


def begin(group: Group, facts: Facts, kin: FittedSurface | None) -> Any:
    """Where a fit begins: at its kin, else at the library's tiles or the defaults."""
    rows, family = group.rows, family_named(group.rows.family)
    held = {name: family.bounds[name][0] for name in HELD[rows.family]}
    if kin is not None:
        return family.record(**{**kin.surface.coefficients, **held})
    architecture = facts.chip.architecture
    if rows.family == "prefill":
        name = backward.LIBRARY.get(rows.software, "fa2")
        return replace(prefill.library(name, architecture), **held)
    return replace(family.begin(architecture, rows.software, rows.dtype), **held)


def movable(family: Family, group: Group, engine: Engine, start: Any) -> Family:
    """The family with the coefficients that the points tell of, the most telling first."""
    held = {*HELD[family.name], *(QUANTISED if group.bare else ())}
    bounds = {**family.bounds}
    bounds |= {n: WIDER[n] for n in WIDER if n in family.record.__dataclass_fields__}
    free = [name for name in bounds if name not in held and getattr(start, name) > 0.0]
    felt = {name: _felt(family, group.rows, engine, start, name) for name in free}
    told = sorted((name for name in free if felt[name] > FELT), key=lambda n: -felt[n])
    kept = told[: max(LEAST_MOVED, len(group.lines) // POINTS_EACH)]
    return replace(family, bounds={name: bounds[name] for name in bounds if name in kept})


def _felt(family: Family, rows: KernelRows, engine: Engine, start: Any, name: str) -> float:
    """Root mean square change of the times' logarithms for a quarter more or less."""
    value = getattr(start, name)
    more, less = (
        family.seconds(rows.dims, replace(start, **{name: value * by}), engine)
        for by in (1.25, 0.8)
    )
    return float(np.sqrt(np.mean(np.log(more / less) ** 2)))


def fit_group(group: Group, facts: Facts, done: Sequence[FittedSurface] = ()) -> FittedSurface:
    """A surface fitted to a group, judged on sites left out; where there are few sites, on rows."""
    rows, engine = group.rows, engine_for(group, facts)
    if len(np.unique(rows.site)) < 3:
        rows = replace(rows, site=np.arange(len(rows.ids), dtype=np.intp))
    kin = _kin(group, done)
    start = begin(group, facts, kin)
    family = movable(family_named(rows.family), group, engine, start)

    def fitter(some: KernelRows) -> Any:
        weight = np.full(len(some.ids), KIN_WEIGHT if kin is not None else 1.0)
        return fit(family, some, engine, start, weight)

    record = fitter(rows)
    inside = family.seconds(rows.dims, record, engine)
    blind = left_out(family, rows, engine, fitter=fitter)
    when = str(facts_date(group.lines))
    where = (facts.chip.architecture, facts.source, when)
    return FittedSurface(
        group=group,
        surface=surface_with_errors(rows, record, (inside, blind), where),
        moved=tuple(family.bounds),
        inside_s=inside,
        blind_s=blind,
    )


def facts_date(lines: Sequence[Line]) -> str:
    """The day of the last point."""
    return max((str(line.get("at", "")) for line in lines), default="")[:10]


def _long_runs(
    measured: Measurements, facts: Facts, fits: Sequence[FittedSurface]
) -> list[SustainedRuns]:
    """Runs of seconds by the surfaces that were fitted to bursts."""
    found = []
    for group in groups_of(measured, facts.chip.id, "sustained"):
        kin = [each for each in fits if _name(each.group.rows) == _name(group.rows)]
        if kin:
            found.append(_long(group, facts, kin[0]))
    return found


def _long(group: Group, facts: Facts, kin: FittedSurface) -> SustainedRuns:
    rows, engine = group.rows, engine_for(group, facts)
    family = family_named(rows.family)
    record = family.record(**kin.surface.coefficients)
    burst_s = family.seconds(rows.dims, record, engine)
    flop = np.array([float(line.get("flop", 0.0)) for line in group.lines])
    if rows.family == "gemm":
        arithmetic_s = flop / (engine.flop_per_s * record.compute)
    elif rows.family.startswith("prefill"):
        arithmetic_s = np.maximum(burst_s - record.launch_s, 0.0)
    else:
        arithmetic_s = np.zeros_like(burst_s)
    if not facts.limited:
        return SustainedRuns(
            group=group, burst_s=burst_s, predicted_s=burst_s, clock=np.ones_like(burst_s)
        )
    load = OpLoad(
        seconds=burst_s,
        clock_share=clock_share(arithmetic_s, burst_s),
        matrix_flop=flop,
        bits=BITS[engine.dtype.peak],
        memory_bytes=np.array([float(line.get("bytes", 0.0)) for line in group.lines]),
    )
    held = sustain_ops(load, chip_power(facts.chip), axis=None)
    return SustainedRuns(group=group, burst_s=burst_s, predicted_s=held.seconds, clock=held.clock)
