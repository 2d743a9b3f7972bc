"""`foretell.scaling`: strategies over numbers of chips, for any models on any system.

Numbers of chips and strategies may be texts: `1..512`, `zero1,zero3,tp4 zero1`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from foretell.errors import BadInput, Infeasible, Problem, bad_input, wrong
from foretell.inputs.job import LARGEST
from foretell.inputs.question import Settings, as_texts, ask, collect, plan_of
from foretell.inputs.software import checked_plan
from foretell.search.search import search_plans
from foretell.specs.plan import named_fields, parse_plan
from foretell.specs.questions.studies import ScalingQuestion
from foretell.specs.scenario import Scenario
from foretell.studies.scaling.evaluate import StrategyCase, points_of
from foretell.studies.scaling.records import Curve, Mode, Scaling, ScalingPoint
from foretell.training.answer import assumptions_of
from foretell.uncertainty.evidence import EXCHANGES

_RANGE = re.compile(r"([0-9]{1,10})\s*\.\.\s*([0-9]{1,10})")
_COMMA = re.compile(r",(?!\s*(?:tp|cp|dp|pp)\s*(?:,|$|\s))")
"""Commas between strategies; those of an order of placement, order=tp,cp,dp,pp, are before a bare name."""
MOST_COUNTS = 64
"""Numbers of chips of one study."""
MOST_STRATEGIES = 24
"""Strategies of one study."""
GPUS_ALLOWED = "1..512 (powers of two times the first), or a list such as 8,16,24"


def gpu_counts(given: int | str | Sequence[int]) -> tuple[int, ...]:
    """Numbers of chips, ascending: `1..512` doubles from its low end to its high one."""
    found: list[int]
    number: object = given
    if isinstance(given, int):
        found = [given]
    elif isinstance(number, float):
        raise BadInput([_bad_gpus(given)])
    elif isinstance(given, str):
        found = [count for word in given.split(",") for count in _counts(word.strip(), given)]
    else:
        found = list(given)
    wrong = [c for c in found if type(c) is not int or not 1 <= c <= LARGEST]
    if wrong or not found or len(found) > MOST_COUNTS:
        raise BadInput([_bad_gpus(wrong[0] if wrong else given)])
    return tuple(sorted(set(found)))


def _counts(word: str, whole: str) -> list[int]:
    if word.isascii() and word.isdecimal():
        return [int(word)]
    match = _RANGE.fullmatch(word)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise BadInput([_bad_gpus(whole)])
    low, high = int(match[1]), int(match[2])
    return [low * 2**k for k in range(int(math.log2(high / low) + 1e-9) + 1)]


def _bad_gpus(value: object) -> Problem:
    return wrong("gpus", value, "not a usable list of numbers of chips", GPUS_ALLOWED)


def strategy_texts(given: str | Sequence[str]) -> tuple[str, ...]:
    """Strategies, each the words of a plan: `zero1,zero3,tp4 zero1`."""
    words = _COMMA.split(given) if isinstance(given, str) else list(given)
    found = tuple(dict.fromkeys(" ".join(str(w).split()) for w in words if str(w).strip()))
    if not 1 <= len(found) <= MOST_STRATEGIES:
        allowed = f"1 to {MOST_STRATEGIES} plans, such as zero1,zero2,zero3"
        raise bad_input("strategies", given, "no strategies", allowed)
    return found


def plan_texts(strategies: Sequence[str], words: str, micro_batch: int | None) -> tuple[str, ...]:
    """Every strategy with the words that all share; mbs where neither names one."""
    problems: list[Problem] = []
    found = []
    for strategy in strategies:
        text = f"{words} {strategy}".strip()
        try:
            checked_plan(text)
        except BadInput as error:
            problems += error.problems
        named = "micro_batch" in named_fields(text)
        if named and micro_batch is not None:
            problems.append(wrong("micro_batch", micro_batch, "is also in the words of a plan"))
        found.append(text if named else f"{text} mbs{micro_batch or 1}")
    if problems:
        raise BadInput(problems)
    return tuple(found)


def common_batch(texts: Sequence[str]) -> int:
    """Sequences of a chip and step that every strategy's micro-batch divides."""
    return math.lcm(*(parse_plan(text).micro_batch for text in texts))


if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven, SystemGiven

LITTLE = 1e-3
"""A growth below this share of a step is none."""
MODES: tuple[Mode, ...] = ("weak", "strong")
MOST_MODELS = 32
"""Models of one study."""


def scaling(
    *models: "ModelGiven",
    system: "SystemGiven | None" = None,
    gpus: int | str | Sequence[int] = ScalingQuestion.gpus,
    strategies: str | Sequence[str] = ScalingQuestion.strategies,
    mode: Mode | None = None,
    plan: str = "",
    micro_batch: int | None = None,
    batch_per_gpu: int | None = None,
    global_batch: int | None = None,
    seq_len: int | None = None,
    target_len: int | None = None,
    floor: float = ScalingQuestion.floor,
    set: Settings = (),
) -> Scaling:
    """Throughput, its parts and its limits for every strategy and number of chips.

    `gpus` is a range that doubles, `1..512`, or a list; `strategies` are plans without dp, joined by commas;
    `plan` are words that all of them share. In weak scaling every chip has `batch_per_gpu` sequences of a
    step (else as many as the micro-batch); in strong scaling all share `global_batch`. Raises BadInput; a
    point that cannot be says why.
    """
    return scaling_of(
        ScalingQuestion(**locals())
    )  # models by their places: no record has such arguments


def scaling_of(q: ScalingQuestion) -> Scaling:
    """The answer to a question."""
    models, global_batch, floor = q.models, q.global_batch, q.floor
    settings, problems = as_texts(q.set), list[Problem]()
    counts = collect(lambda: gpu_counts(q.gpus), problems) or ()
    names = collect(lambda: strategy_texts(q.strategies), problems) or ()
    texts = collect(lambda: plan_texts(names, q.plan, q.micro_batch), problems) or ()
    mode, wrong = _mode(q.mode, q.batch_per_gpu, global_batch)
    problems += wrong + _numbers(q.batch_per_gpu, q.micro_batch, floor) + _models(models)
    per_gpu = q.batch_per_gpu or (common_batch(texts) if texts else 1)
    asked: list[Scenario] = []
    for model in models[:MOST_MODELS]:
        for count in counts or (1,):
            # What is wrong with a model or system is the same on every number of chips.
            if not (problems and asked):
                found = collect(
                    lambda model=model, count=count: ask(  # type: ignore[misc]
                        model=model,
                        system=q.system,
                        gpus=count,
                        global_batch=global_batch if mode == "strong" else per_gpu * count,
                        seq_len=q.seq_len,
                        target_len=q.target_len,
                        plan=texts[0] if texts else None,
                        set=settings,
                    ),
                    problems,
                )
                asked += [found] if found is not None else []
    if problems or not asked:
        raise BadInput(dict.fromkeys(problems))
    curves: list[Curve] = []
    for model in dict.fromkeys(scenario.model for scenario in asked):
        mine = [scenario for scenario in asked if scenario.model is model]
        made = _curves(mine, names, texts, settings, floor)
        usual = q.strategies == ScalingQuestion.strategies and q.micro_batch is None
        if usual and all(curve.fits_from is None for curve in made):
            words = _words_that_fit(mine, q.plan, settings)
            made += _curves(mine, words, words, settings, floor)
        curves += made
    return Scaling(
        system=asked[0].system.id,
        mode=mode,
        seq_len=asked[0].job.seq_len,
        floor=floor,
        curves=tuple(curves),
        assumptions=_assumed(asked, texts, settings),
    )


def _assumed(
    asked: Sequence[Scenario], texts: Sequence[str], settings: Sequence[str]
) -> tuple[str, ...]:
    """Every default or guess, each once."""
    found = [
        said
        for scenario in asked
        for text in texts
        for said in assumptions_of(*plan_of(scenario, text, settings), ())
    ]
    return tuple(dict.fromkeys(found))


def _curves(
    scenarios: Sequence[Scenario],
    names: Sequence[str],
    texts: Sequence[str],
    settings: Sequence[str],
    floor: float,
) -> list[Curve]:
    """Curves of one model."""
    points: dict[str, list[ScalingPoint]] = {name: [] for name in names}
    for scenario in scenarios:
        made = [plan_of(scenario, text, settings) for text in texts]
        asked = [
            StrategyCase(strategy=name, scenario=there, plan=plan)
            for name, (there, plan) in zip(names, made, strict=True)
        ]
        for point in points_of(asked):
            points[point.strategy].append(point)
    first = scenarios[0]
    return [curve_of(first.model.id, first.system.id, points[name], floor) for name in names]


def _words_that_fit(
    scenarios: Sequence[Scenario], words: str, settings: Sequence[str]
) -> tuple[str, ...]:
    """The best plan of the fewest chips that hold the model, without dp; empty where none of them does."""
    for scenario in scenarios:
        there, base = plan_of(scenario, words or None, settings, searched=True)
        try:
            best = search_plans(there, base, top=1).best.plan
        except Infeasible:
            continue
        return (" ".join(word for word in str(best).split() if word != f"dp{best.dp}"),)
    return ()


def curve_of(model: str, system: str, points: Sequence[ScalingPoint], floor: float) -> Curve:
    """Points of one strategy with their efficiencies, and where and why it stops scaling."""
    there = [p for p in points if p.fits != "no"]
    base = there[0] if there else None
    told = tuple(_with_efficiency(p, base) for p in points)
    there = [p for p in told if p.fits != "no"]
    below = next((p for p in there if (p.efficiency or 0.0) < floor), None)
    above = [p for p in there if below is None or p.gpus < below.gpus]
    best = max(there, key=lambda p: p.tokens_per_s or 0.0, default=None)
    end = below or (there[-1] if there else None)
    lost = None if base is None or end is None else _lost_to(base, end)
    return Curve(
        model=model,
        system=system,
        strategy=points[0].strategy,
        points=told,
        fits_from=base.gpus if base else None,
        scales_to=above[-1].gpus if above else None,
        stops_at=below.gpus if below else None,
        best_gpus=best.gpus if best else None,
        lost_to=lost,
        why=_sentence(told, there, below, lost, floor),
    )


def _with_efficiency(point: ScalingPoint, base: ScalingPoint | None) -> ScalingPoint:
    """Against the fewest chips that fit: as they are, and were nothing waited for there.

    The second is what the fewest chips would do with free links; on one chip the two are the same. Where a
    strategy first fits on many nodes, the first alone would call a step good that waits most of its time.
    """
    if point.fits == "no" or base is None:
        return point
    scaled = (point.tokens_per_s_per_gpu or 0.0) / (base.tokens_per_s_per_gpu or 1.0)
    waited_s = (base.exposed_communication_s or 0.0) + (base.bubble_s or 0.0)
    busy = 1.0 - waited_s / (base.step_s or 1.0)
    return replace(point, efficiency=scaled * busy, scaling_efficiency=scaled)


def _lost_to(base: ScalingPoint, end: ScalingPoint) -> str | None:
    """The share of the step whose chip-seconds for a sequence grew most, from the fewest chips with free
    links; None where none grew."""
    free = dict.fromkeys((*EXCHANGES, "bubble"), 0.0)
    before = {**base.shares, **free}
    growth = {
        name: value * end.gpus / end.global_batch
        - before.get(name, 0.0) * base.gpus / base.global_batch
        for name, value in end.shares.items()
    }
    name = max(growth, key=lambda n: growth[n])
    whole = (end.step_s or 0.0) * end.gpus / end.global_batch
    return name if growth[name] > LITTLE * whole else None


def _sentence(
    points: Sequence[ScalingPoint],
    there: Sequence[ScalingPoint],
    below: ScalingPoint | None,
    lost: str | None,
    floor: float,
) -> str:
    """Where a curve stops, and why."""
    if not there:
        return f"fits on none of these: {points[-1].reason}"
    first, last = there[0], there[-1]
    said = "" if first is points[0] else f"fits from {first.gpus} chips; "
    if below is None:
        said += f"efficiency {last.efficiency:.0%} on {last.gpus} chips, never below {floor:.0%}"
    else:
        said += f"below {floor:.0%} from {below.gpus} chips on ({below.efficiency:.0%})"
    end = below or last
    if lost is not None and (end.efficiency or 1.0) < 0.99:
        said += f"; the largest loss is {lost.replace('_', ' ')}"
        said += f", and the step follows the {end.follows}" if end.follows else ""
        if end.follows:
            said += f" (twice as good: {1.0 - min(end.twice.values()):.0%} shorter)"
    if last is not points[-1]:
        said += f"; not on {points[-1].gpus}: {points[-1].reason}"
    return said


def _mode(
    mode: Mode | None, batch_per_gpu: int | None, global_batch: int | None
) -> tuple[Mode, list[Problem]]:
    """Strong where a global batch is given, else weak; contradictions are problems."""
    found: Mode = mode or ("weak" if global_batch is None else "strong")
    if found not in MODES:
        return "weak", [wrong("mode", mode, "not a choice", ", ".join(MODES))]
    if found == "strong" and global_batch is None:
        message = "strong scaling holds the global batch: say which"
        return found, [wrong("global_batch", None, message)]
    if found == "weak" and global_batch is not None:
        message = "the batch grows with the chips in weak scaling"
        allowed = "batch_per_gpu in its place, or mode strong"
        return found, [wrong("global_batch", global_batch, message, allowed)]
    if found == "strong" and batch_per_gpu is not None:
        return found, [wrong("batch_per_gpu", batch_per_gpu, "the batch is held in strong scaling")]
    return found, []


def _numbers(batch_per_gpu: int | None, micro_batch: int | None, floor: float) -> list[Problem]:
    """Numbers that are none, or out of their range."""
    problems = [
        wrong(name, value, "not a usable number", f"a whole number from 1 to {LARGEST}")
        for name, value in (("batch_per_gpu", batch_per_gpu), ("micro_batch", micro_batch))
        if value is not None and (type(value) is not int or not 1 <= value <= LARGEST)
    ]
    usable: object = floor  # a text, where it comes from a flag
    if not (isinstance(usable, int | float) and 0.0 < usable <= 1.0):
        problems.append(wrong("floor", floor, "no efficiency", "a number above 0, at most 1"))
    return problems


def _models(models: Sequence[object]) -> list[Problem]:
    if 1 <= len(models) <= MOST_MODELS:
        return []
    message = "missing" if not models else f"{len(models)} are too many"
    allowed = f"1 to {MOST_MODELS} models"
    return [wrong("models", None, message, allowed)]
