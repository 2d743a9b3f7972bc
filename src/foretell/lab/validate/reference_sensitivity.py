"""The published study's sensitivities, by its own model and by ours on the same systems.

The study (arXiv 2410.00273) asks how many days a GPT with 10^12 parameters and a ViT over 64,800 patches
take on B200 in fast domains of eight, as chips or links get better: capacity and bandwidth of the memory,
FLOP/s, NVLink and InfiniBand. Every cell is a search of its own, so that the plan is chosen anew. Its
strategies are the ones whose numbers are known (docs/reference.md): 1d tensor parallelism for the GPT,
sequence-split 2d for the ViT. Ours searches everything it has, on a DGX B200 whose numbers are set to the
study's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from foretell.inputs.question import ask, plan_of
from foretell.lab.reference.iteration import ReferenceQuestion
from foretell.lab.reference.records import CHIPS, MODELS, Quirks, Strategy, StudyChip
from foretell.lab.reference.report import days as published_days
from foretell.lab.reference.search import search_space
from foretell.lab.reference.space import enumerate_space, join
from foretell.records import as_json
from foretell.search.search import rank
from foretell.search.space import enumerate_plans
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.training.feasibility import verdict_codes
from foretell.training.step import evaluate_plans

FAST_DOMAIN, BATCH = 8, 4096
"""GPUs of a fast domain and samples of an iteration, as the study has them."""
GPUS = (512, 1024, 2048, 4096, 8192, 16384)
"""GPU counts."""
GRID_GPUS = 8192
"""GPUs of the maps over capacity and bandwidth, as in the study's own sweeps."""
CAPACITIES = tuple(1e9 * value for value in (80, 120, 192, 288, 448, 704, 1000))
"""Bytes of memory of the maps."""
BANDWIDTHS = tuple(1e12 * value for value in (0.5, 1, 2, 4, 8, 16))
"""Bytes/s of memory of the maps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyWorkload:
    """One of the study's two models."""

    name: str
    """As the study spells it."""
    ours: str
    """As our catalogue spells it."""
    strategy: Strategy
    """How the study splits it."""


WORKLOADS = (
    StudyWorkload(name="gpt3_1T", ours="gpt3-1t", strategy="1d"),
    StudyWorkload(name="vit_era5", ours="vit-era5", strategy="2d-seqp"),
)
CHANGES: Mapping[str, tuple[str, ...]] = {
    "memory capacity": ("hbm_bytes",),
    "memory bandwidth": ("hbm_bytes_per_s",),
    "FLOP/s": ("matrix_flop_per_s", "vector_flop_per_s"),
    "NVLink": ("fast_bytes_per_s",),
    "InfiniBand": ("slow_bytes_per_s",),
}
"""What is doubled, and the study's fields of it."""
POWER = "FLOP/s and power"
"""Ours alone: with the limit of a chip's power where it is, twice the FLOP/s are not twice as fast."""
FACTOR = 2.0
"""How much better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One search."""

    model: str
    """As the study spells it."""
    side: str
    """reference or ours."""
    gpus: int
    """GPUs."""
    change: str
    """What was doubled; empty: nothing."""
    memory_bytes: float
    """Memory of a chip."""
    memory_bandwidth_bytes_per_s: float
    """Its bandwidth."""
    days: float | None
    """Of the whole training, by the fastest plan; none where nothing fits."""
    plan: str
    """That plan."""

    to_dict = as_json()


Progress = Callable[[int, int], None]


def sensitivity_cells(
    gpus: Sequence[int] = GPUS, *, grid: bool = True, progress: Progress | None = None
) -> list[Cell]:
    """Every change at every GPU count, and the maps, on both sides."""
    found: list[Cell] = []
    total = len(WORKLOADS) * (len(gpus) + int(grid)) * 2
    done = 0
    for workload in WORKLOADS:
        for count in (*gpus, *([None] if grid else [])):
            for side in (_reference, _ours):
                found += list(side(workload, count))
                done += 1
                if progress is not None:
                    progress(done, total)
    return found


def _reference(workload: StudyWorkload, count: int | None) -> Iterator[Cell]:
    """The published model, at one GPU count or (None) over the map."""
    gpus = count or GRID_GPUS
    model, base = MODELS[workload.name], CHIPS["B200"]
    space = join([enumerate_space(model, workload.strategy, gpus, FAST_DOMAIN, BATCH)])

    def cell(chip: StudyChip, change: str) -> Cell:
        question = ReferenceQuestion(
            model=model,
            strategy=workload.strategy,
            chip=chip,
            fast_domain=FAST_DOMAIN,
            global_batch=BATCH,
            quirks=Quirks(),
        )
        [result] = search_space(question, space, [gpus], 1)
        best = result.plans[0] if result.plans else None
        names = [name for name in PLAN_COLUMNS if best and best.get(name)]
        return Cell(
            model=workload.name,
            side="reference",
            gpus=gpus,
            change=change,
            memory_bytes=chip.hbm_bytes,
            memory_bandwidth_bytes_per_s=chip.hbm_bytes_per_s,
            days=published_days(best) if best else None,
            plan=" ".join(f"{name}{best[name]}" for name in names) if best else "",
        )

    if count is None:
        for held in CAPACITIES:
            for rate in BANDWIDTHS:
                yield cell(replace(base, hbm_bytes=held, hbm_bytes_per_s=rate), "")
        return
    yield cell(base, "")
    for change, parts in CHANGES.items():
        better = {part: FACTOR * getattr(base, part) for part in parts}
        yield cell(replace(base, **better), change)


PLAN_COLUMNS = ("tp", "tp1", "tp2", "pp", "dp", "mbs")
"""Columns of a published plan that say how it splits."""


def _ours(workload: StudyWorkload, count: int | None) -> Iterator[Cell]:
    """Our model on the same system; the memory's size changes which plans fit and nothing else."""
    gpus = count or GRID_GPUS
    scenario = our_scenario(workload, gpus)
    if count is None:
        for rate in BANDWIDTHS:
            yield from _best(workload, _with_chip(scenario, rate=rate), "", CAPACITIES)
        return
    capacity = float(scenario.system.chip.memory_bytes)
    now, larger = _best(workload, scenario, "", (capacity, FACTOR * capacity))
    yield now
    yield replace(larger, change="memory capacity")
    for change in (*list(CHANGES)[1:], POWER):
        yield from _best(workload, our_change(scenario, change), change, (capacity,))


def our_scenario(workload: StudyWorkload, gpus: int) -> Scenario:
    """The question to our model, on a DGX B200 with the study's numbers."""
    chip = CHIPS["B200"]
    return ask(
        model=workload.ours,
        system="dgx-b200",
        gpus=gpus,
        global_batch=BATCH,
        seq_len=MODELS[workload.name].seq_len,
        set=(
            f"chip.matrix_flop_per_s.bf16={chip.matrix_flop_per_s:g}",
            f"chip.memory_bandwidth_bytes_per_s={chip.hbm_bytes_per_s:g}",
            f"chip.memory_bytes={chip.hbm_bytes:g}",
            f"network.node.bandwidth_bytes_per_s={chip.fast_bytes_per_s:g}",
            f"network.cluster.bandwidth_bytes_per_s={chip.slow_bytes_per_s:g}",
        ),
    )


def our_change(scenario: Scenario, change: str) -> Scenario:
    """The same question with one thing doubled."""
    system = scenario.system
    chip = system.chip
    if change in ("FLOP/s", POWER):
        rates = {name: FACTOR * rate for name, rate in chip.matrix_flop_per_s.items()}
        chip = replace(
            chip,
            matrix_flop_per_s=rates,
            vector_flop_per_s=FACTOR * chip.vector_flop_per_s,
            measured_matmul_flop_per_s=FACTOR * chip.measured_matmul_flop_per_s,
            tdp_watts=chip.tdp_watts * (FACTOR if change == POWER else 1.0),
        )
        return replace(scenario, system=replace(system, chip=chip))
    if change == "memory bandwidth":
        return _with_chip(scenario, rate=FACTOR * float(chip.memory_bandwidth_bytes_per_s))
    return replace(scenario, system=_with_link(system, 0 if change == "NVLink" else 1))


def _with_chip(scenario: Scenario, *, rate: float) -> Scenario:
    chip = replace(scenario.system.chip, memory_bandwidth_bytes_per_s=rate)
    return replace(scenario, system=replace(scenario.system, chip=chip))


def _with_link(system: System, place: int) -> System:
    tiers = list(system.network.tiers)
    rate = FACTOR * tiers[place].bandwidth_bytes_per_s
    tiers[place] = replace(tiers[place], bandwidth_bytes_per_s=rate)
    return replace(system, network=replace(system.network, tiers=tuple(tiers)))


def _best(
    workload: StudyWorkload, scenario: Scenario, change: str, capacities: Sequence[float]
) -> Iterator[Cell]:
    """The fastest plan that fits, for each size of the memory: all plans are evaluated once."""
    scenario, base = plan_of(scenario, None, ())
    plans = enumerate_plans(scenario, base).plans
    totals = evaluate_plans(scenario, plans)
    samples = MODELS[workload.name].samples
    for capacity in capacities:
        rows = rank(totals.step_s, verdict_codes(totals.held, capacity), 1, plans.recompute)
        row = int(rows[0]) if len(rows) else None
        yield Cell(
            model=workload.name,
            side="ours",
            gpus=scenario.job.gpus,
            change=change,
            memory_bytes=capacity,
            memory_bandwidth_bytes_per_s=float(scenario.system.chip.memory_bandwidth_bytes_per_s),
            days=None if row is None else float(totals.step_s[row]) * samples / BATCH / 86400.0,
            plan="" if row is None else str(plans.plan(row)),
        )
