"""Structural choices that a search multiplies its batches by: each is tried where it changes something.

A batch shares its structural choices (specs/plan.py), so every combination of them is a batch of its own. A
combination keeps the plans on which each of its choices has an effect; the rest are in another batch already.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from foretell.errors import BadInput, Problem, nearest_name
from foretell.records import dataclass
from foretell.sharding.rules import cuts_of
from foretell.specs.arrays import Mask
from foretell.specs.plan import Plan, Plans
from foretell.specs.scenario import Scenario
from foretell.specs.schedule_words import BY_CHUNKS, schedule_modules

ALL = "all"
"""Every choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoice:
    """One structural field of a plan."""

    name: str
    """The field."""
    values: Callable[[Scenario, Plan], Sequence[object]]
    """What is tried beside the base's own."""
    matters: Callable[[Plans], Mask]
    """The plans on which it changes something."""


def _near_ranks(scenario: Scenario, base: Plan) -> tuple[int, ...]:
    """The chips of one unit of the innermost tier, where the job has more."""
    node = int(scenario.system.network.tiers[0].size)
    return (node,) if 1 < node < scenario.job.gpus else ()


def _overlaps(scenario: Scenario, base: Plan) -> tuple[str, ...]:
    """Pieces, unless the framework has them anyway."""
    own = scenario.software.in_pieces(scenario.system.chip.architecture)
    return () if own else ("on",)


def _tensor_modes(scenario: Scenario, base: Plan) -> tuple[str, ...]:
    return () if cuts_of(scenario.model).gridless else ("summa",)


def _offloads(scenario: Scenario, base: Plan) -> tuple[str, ...]:
    return ("optimizer", "activations") if scenario.system.chip.host_bytes_per_s else ()


CHOICES: tuple[PlanChoice, ...] = (
    PlanChoice(name="tp_mode", values=_tensor_modes, matters=lambda p: p.tp > 1),
    PlanChoice(
        name="tp_overlap",
        values=_overlaps,
        matters=lambda p: (p.tp > 1) & (p.sp > 0) & (p.base.tp_mode == "1d"),
    ),
    PlanChoice(
        name="cp_mode",
        values=lambda s, b: ("ring", "allgather", "ulysses"),
        matters=lambda p: p.cp > 1,
    ),
    PlanChoice(
        name="schedule",
        values=lambda s, b: tuple(w for w in schedule_modules() if w not in BY_CHUNKS[1:]),
        matters=lambda p: p.pp > 1,
    ),
    PlanChoice(
        name="dispatch", values=lambda s, b: ("alltoall", "dedup"), matters=lambda p: p.ep > 1
    ),
    PlanChoice(name="ep_overlap", values=lambda s, b: ("off", "on"), matters=lambda p: p.ep > 1),
    PlanChoice(name="reshard", values=lambda s, b: (True, False), matters=lambda p: p.zero == 3),
    PlanChoice(
        name="shard",
        values=_near_ranks,
        matters=lambda p: (p.zero >= 1) & (p.dp * p.cp > p.base.shard),
    ),
    PlanChoice(
        name="offload",
        values=_offloads,
        matters=lambda p: p.tp > 0,
    ),
)
"""All that `--over` can name."""
NAMES = tuple(choice.name for choice in CHOICES)
BY_STAGE = ("reshard", "shard")
"""Those that matter to some ZeRO stages alone."""


def over_names(text: str | Sequence[str], fixed: Collection[str] = ()) -> tuple[str, ...]:
    """Names of choices from a text such as `schedule,cp_mode` or `all`, less what a plan fixes."""
    given = text.split(",") if isinstance(text, str) else list(text)
    given = [name.strip() for name in given if name.strip()]
    wrong = [name for name in given if name not in (*NAMES, ALL)]
    if wrong:
        raise BadInput(
            [
                Problem(
                    path="over",
                    value=name,
                    message="is no choice that a search can try",
                    allowed=", ".join((ALL, *NAMES)),
                    nearest=nearest_name(name, (*NAMES, ALL)),
                )
                for name in wrong
            ]
        )
    wanted = NAMES if ALL in given else given
    return tuple(name for name in NAMES if name in wanted and name not in fixed)


def bases_of(
    scenario: Scenario, base: Plan, over: Sequence[str]
) -> Iterator[tuple[Plan, list[str]]]:
    """Every combination of the choices as a base, and those of its fields that are not the first's."""
    chosen = [choice for choice in CHOICES if choice.name in over]
    tried = [_own_first(getattr(base, c.name), c.values(scenario, base)) for c in chosen]
    for values in product(*tried):
        changed = [
            c.name for c, v in zip(chosen, values, strict=True) if v != getattr(base, c.name)
        ]
        fields = {c.name: v for c, v in zip(chosen, values, strict=True)}
        if fields.get("tp_mode") == "summa" and not _grid_alone(base, changed):
            continue
        yield replace(base, **fields), changed  # type: ignore[arg-type]


def _own_first(own: object, values: Sequence[object]) -> list[object]:
    return [own, *(value for value in values if value != own)]


def _grid_alone(base: Plan, changed: Sequence[str]) -> bool:
    """A grid cuts tokens itself and hides its own panels."""
    return not {"tp_overlap", "cp_mode", "dispatch", "ep_overlap"} & {*changed}


def worth_trying(plans: Plans, changed: Sequence[str]) -> Mask:
    """Plans on which every changed choice has an effect."""
    masks = [choice.matters(plans) for choice in CHOICES if choice.name in changed]
    return np.asarray(np.logical_and.reduce([np.ones(len(plans), dtype=bool), *masks]))
