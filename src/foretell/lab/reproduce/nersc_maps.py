"""Days over two properties of a chip by the published model: every cell searches all three strategies."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.lab.reference.iteration import ReferenceQuestion, memory_of, times_of
from foretell.lab.reference.records import CHIPS, MODELS, STRATEGIES, Floats, Quirks, StudyChip
from foretell.lab.reference.space import ReferencePlans, enumerate_space, expand
from foretell.lab.reference.study import STUDY_GLOBAL_BATCH
from foretell.lab.reproduce.nersc_ours import Property, days_of, map_rows
from foretell.lab.reproduce.records import described

MAP_GPUS = 8192
"""GPUs of the study's own sweeps."""
MAP_DOMAIN = 8
"""GPUs of a fast domain there."""
CAPACITY, BANDWIDTH, FLOPS = (
    Property(
        name=name,
        title=told["title"],
        values=tuple(float(v) for v in np.geomspace(*told["range"])),
        unit=told["unit"],
    )
    for name, told in described("nersc-2024")["property"].items()
)
"""What the study's maps vary."""
COARSE_CAPACITY = replace(CAPACITY, values=CAPACITY.values[::2] + CAPACITY.values[-1:])
COARSE_BANDWIDTH = replace(BANDWIDTH, values=BANDWIDTH.values[::2] + BANDWIDTH.values[-1:])
MAPS = {
    "capacity-bandwidth": (CAPACITY, BANDWIDTH),
    "flops-capacity": (FLOPS, COARSE_CAPACITY),
    "flops-bandwidth": (FLOPS, COARSE_BANDWIDTH),
}
"""Maps of the study: what lies across and what lies up."""


def changed_chip(chip: StudyChip, name: str, value: float) -> StudyChip:
    """The chip with one property changed; vector arithmetic grows with matrix arithmetic."""
    if name == "capacity_gb":
        return replace(chip, hbm_bytes=value)
    if name == "bandwidth_tb_per_s":
        return replace(chip, hbm_bytes_per_s=value)
    factor = value / chip.matrix_flop_per_s
    return replace(chip, matrix_flop_per_s=value, vector_flop_per_s=factor * chip.vector_flop_per_s)


def published_map(model: str, gpus: int, x: Property, y: Property) -> Iterator[dict[str, Any]]:
    """One cell for each pair of values: days of the fastest plan of any strategy, and that strategy."""
    most = max((p.values[-1] for p in (x, y) if p.name == CAPACITY.name), default=None)
    spaces = [_candidates(model, name, gpus, most) for name in STRATEGIES]

    @lru_cache(maxsize=16)
    def seconds_at(chip: StudyChip) -> list[Floats]:
        return [_seconds(model, chip, *found) for found in spaces]

    def best(values: Mapping[str, float]) -> tuple[float | None, str]:
        chip = CHIPS["B200"]
        for name, value in values.items():
            chip = changed_chip(chip, name, value)
        # Times do not depend on the capacity.
        every = seconds_at(replace(chip, hbm_bytes=CHIPS["B200"].hbm_bytes))
        fitting = [
            (float(np.where(held <= chip.hbm_bytes, seconds, np.inf).min()), name)
            for (name, _, held), seconds in zip(spaces, every, strict=True)
            if len(seconds)
        ]
        least, strategy = min(fitting, default=(np.inf, ""))
        return (days_of(model, least), strategy) if np.isfinite(least) else (None, "")

    yield from map_rows(model, "published", gpus, x, y, best)


def question_of(model: str, strategy: Any, chip: StudyChip, domain: int) -> ReferenceQuestion:
    """A question of the published model with its quirks."""
    return ReferenceQuestion(
        model=MODELS[model],
        strategy=strategy,
        chip=chip,
        fast_domain=domain,
        global_batch=STUDY_GLOBAL_BATCH,
        quirks=Quirks(),
    )


def _candidates(
    model: str, strategy: Any, gpus: int, most_bytes: float | None
) -> tuple[str, ReferencePlans, Floats]:
    """Plans that fit the largest memory of a map, and the bytes of each."""
    space = enumerate_space(MODELS[model], strategy, gpus, MAP_DOMAIN, STUDY_GLOBAL_BATCH)
    question = question_of(model, strategy, CHIPS["B200"], MAP_DOMAIN)
    limit = most_bytes or CHIPS["B200"].hbm_bytes
    bases = np.nonzero(memory_of(question, space).total_bytes <= limit)[0]
    plans = expand(space, bases)
    return strategy, plans, memory_of(question, plans).total_bytes


def _seconds(
    model: str, chip: StudyChip, strategy: Any, plans: ReferencePlans, held: Floats
) -> Floats:
    question = question_of(model, strategy, chip, MAP_DOMAIN)
    return times_of(question, plans, memory_of(question, plans)).total_s
