"""What a study can give and vary: flags of each verb, the lines of `[vary]` as axes, and the points they
span.

A point is a number: which values it has of each axis follows from it, without a list of all points.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from math import log, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell import units
from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.inputs.software import checked_plan
from foretell.specs.questions.cost import (
    PackageQuestion,
    Payment,
    RunQuestion,
    SystemQuestion,
    TokenQuestion,
)
from foretell.specs.questions.flags import QuestionField, fields_of
from foretell.specs.questions.serving import ServingQuestion
from foretell.specs.questions.sizing import SizeQuestion
from foretell.specs.questions.training import RunConditions, TrainingQuestion
from foretell.specs.study import Axis, Study, Verb
from foretell.studies.plan_words import word_of

RECORDS: Mapping[Verb, tuple[type, ...]] = {
    "estimate": (TrainingQuestion, Payment),
    "serve": (ServingQuestion, Payment),
    "size": (SizeQuestion,),
    "cost chip": (PackageQuestion,),
    "cost package": (PackageQuestion,),
    "cost system": (SystemQuestion,),
    "cost run": (RunQuestion,),
    "cost token": (TokenQuestion,),
}
"""The questions of each verb; of work that is paid for, its money, energy and carbon are columns."""


def study_fields(*records: type) -> dict[str, QuestionField]:
    """The fields of questions that a study can give, by their names there."""
    return {
        field.called: field
        for record in reversed(records)
        for field in fields_of(record)
        if field.on("study")
    }


FLAGS: Mapping[Verb, tuple[str, ...]] = {
    verb: tuple(dict.fromkeys(name for one in records for name in study_fields(one)))
    for verb, records in RECORDS.items()
}
"""Flags of each verb that a study can give."""
FIELDS: Mapping[str, QuestionField] = {
    name: field for records in RECORDS.values() for name, field in study_fields(*records).items()
}
"""Every such flag."""
RUN = tuple(study_fields(RunConditions))
"""Flags of a whole run."""
PAID = tuple(name for name in study_fields(Payment) if name not in ("price", "set"))
"""Flags that say how work is paid for; with one of them, its money, energy and carbon are columns."""
LEVELS = tuple(
    name
    for name, field in study_fields(SizeQuestion).items()
    if name not in FLAGS["serve"] and field.flag.kind != "switch"
)
"""Flags of `size` that make a question of serving one of size."""
TARGETS = ("ttft", "tpot")
"""Latency targets: of a service to be sized, unless its concurrency is given."""
TEXTS = tuple(name for name, field in FIELDS.items() if field.flag.kind == "text")
"""Flags that are words."""
COUNTS = ("compute_dies", "cores", "cores_built", "memory_stacks", "io_dies", "size")
"""Fields of a design or a tier that count things."""
DEGREES = ("tp", "pp", "vpp", "dp", "cp", "ep", "etp", "zero", "micro_batch", "shard", "lora")
"""Fields of a plan that are whole numbers."""
PRICED = ("chip", "package", "system", "run", "token")
"""What a study of costs may be about."""


def verb_of(kind: object, what: object, given: Iterable[str]) -> Verb | None:
    """The verb that a kind, what it is about and the names given come to; none for what is no kind."""
    names = {*given}
    match kind:
        case "training":
            return "estimate"
        case "serving":
            sized = names & {*LEVELS, *TARGETS} and "concurrency" not in names
            return "size" if sized else "serve"
        case "cost" if what in ("chip", "run", "token"):
            return "cost chip" if what == "chip" else "cost run" if what == "run" else "cost token"
        case "cost" if what == "package" or (what is None and "system" not in names):
            return "cost package"
        case "cost":
            return "cost system"
        case _:
            return None


def is_whole(path: str) -> bool:
    """Whether a flag or path takes whole numbers alone."""
    root, _, last = path.rpartition(".")
    if not root:
        return path in FIELDS and FIELDS[path].flag.kind in ("whole", "count")
    return last in (DEGREES if root == "plan" else COUNTS)


RANGE = ("low", "high", "steps", "scale")
BY_CONTENT = ("model", "system")
"""Flags whose file may be given as a table."""
WORDS = (*BY_CONTENT, *TEXTS, "plan", "plan.order")
"""What varies over texts alone."""
MOST_STEPS = 100_000
"""Steps of one range; more are a typing error."""


class Faults:
    """What is wrong with a file so far."""

    def __init__(self, problems: list[Problem]) -> None:
        """Problems are added to the list that is given."""
        self.problems = problems

    def bad(self, path: str, value: object, message: str, allowed: str | None = None) -> None:
        """One more."""
        self.problems.append(wrong(path, value, message, allowed))

    def collect(self, path: str, make: Any) -> None:
        """What making something finds wrong, under a path of the file."""
        try:
            make()
        except BadInput as error:
            self.problems += [
                wrong(path, p.value, p.message, p.allowed, p.nearest) for p in error.problems
            ]


class Axes(Faults):
    """The reading of `[vary]`."""

    def __init__(self, problems: list[Problem], *, mode: str, drawn: bool, trains: bool) -> None:
        """`drawn`: points are chosen one by one; `trains`: fields of a plan are those of training."""
        super().__init__(problems)
        self.mode, self.drawn, self.trains = mode, drawn, trains

    def read(self, vary: Mapping[str, Any]) -> tuple[Axis, ...]:
        """Every line that is right."""
        if not vary:
            self.bad("vary", None, "nothing varies", "a flag or --set path = a list of values")
        return tuple(axis for n, v in vary.items() if (axis := self._axis(n, v)) is not None)

    def _axis(self, name: str, given: Any) -> Axis | None:
        """One line of [vary]."""
        path, last = f"vary.{name}", name.rsplit(".", 1)[-1]
        whole = is_whole(name)
        unit = unit_of(name)
        if isinstance(given, Mapping):
            return self._range(name, given, whole)
        if not isinstance(given, list):
            self.bad(path, given, "neither a list nor ends", "[1, 2] or {low, high, steps}")
            return None
        if not given:
            self.bad(path, given, "an empty list: there are no points", "at least one value")
            return None
        before = len(self.problems)
        values: list[Any] = []
        for value in given:
            if isinstance(value, Mapping) or (isinstance(value, list) and last != "order"):
                self.bad(path, value, "not a plain value")
            elif isinstance(value, float) and not math.isfinite(value):
                self.bad(path, value, "not a finite number")
            elif value is None or (not isinstance(value, str | list) and name in WORDS):
                self.bad(path, value, "not a text" if value is not None else "missing")
            elif isinstance(value, str) and unit:
                self.collect(path, lambda text=value: values.append(units.parse(text, unit)))
            else:
                values.append(",".join(map(str, value)) if isinstance(value, list) else value)
        doubled = {repr(v) for v in values if values.count(v) > 1}
        if doubled and self.mode == "product":
            self.bad(path, ", ".join(sorted(doubled)), "a value is given twice", "each value once")
        if name.startswith("plan.") and len(self.problems) == before and self.trains:
            for value in values:
                self.collect(path, lambda value=value: checked_plan(word_of(last, value)))
        return Axis(path=name, values=tuple(values), whole=whole) if values else None

    def _range(self, name: str, given: Mapping[str, Any], whole: bool) -> Axis | None:
        """Two ends, and the steps between them or none."""
        path, before = f"vary.{name}", len(self.problems)
        for key in given:
            if key not in RANGE:
                self.problems.append(unknown_key(f"{path}.{key}", given[key], RANGE, "no such key"))
        ends: list[float] = []
        for key in ("low", "high"):
            value: Any = given.get(key)
            if isinstance(value, str):
                self.collect(
                    f"{path}.{key}", lambda v=value: ends.append(units.parse(v, unit_of(name)))
                )
            elif is_number(value) and math.isfinite(value):
                ends.append(float(value))
            else:
                self.bad(f"{path}.{key}", value, "not a number" if key in given else "missing")
        scale, steps = given.get("scale", "linear"), given.get("steps")
        if scale not in ("linear", "log"):
            self.bad(f"{path}.scale", scale, "not a choice", "linear, log")
        if len(ends) == 2 and ends[0] > ends[1]:
            self.bad(path, ends, "low is above high")
        if scale == "log" and ends and min(ends) <= 0.0:
            self.bad(f"{path}.low", min(ends), "no logarithm", "above 0")
        if steps is None and self.mode != "sample" and not self.drawn:
            self.bad(f"{path}.steps", None, "missing", "a whole number from 1")
        elif steps is not None and (type(steps) is not int or not 1 <= steps <= MOST_STEPS):
            self.bad(f"{path}.steps", steps, "not usable", f"a whole number from 1 to {MOST_STEPS}")
        if len(self.problems) > before:
            return None
        low, high, log = ends[0], ends[1], scale == "log"
        values = () if steps is None else spaced_values(low, high, steps, log=log, whole=whole)
        return Axis(path=name, values=values, low=low, high=high, log=log, whole=whole)


def spaced_values(
    low: float, high: float, steps: int, *, log: bool, whole: bool
) -> tuple[Any, ...]:
    """Values from low to high, ends included; whole numbers once each."""
    made = np.geomspace(low, high, steps) if log else np.linspace(low, high, steps)
    # Twelve digits: 8, 16, 32 rather than 15.999999999999998.
    found = [float(f"{value:.12g}") for value in made]
    if whole:
        return tuple(dict.fromkeys(round(value) for value in found))
    return tuple(dict.fromkeys(found))


def unit_of(path: str) -> str:
    """The unit in a path's last name, or in the one before (`chip.matrix_flop_per_s.bf16`); "" if none."""
    if "." not in path:
        return ""
    names = path.split(".")[1:]
    found = [units.field_unit(name) for name in names[-2:]]
    return next((unit for unit in reversed(found) if unit), "")


def unknown_key(path: str, value: object, names: Sequence[str], message: str) -> Problem:
    """A name that is none of those known."""
    near = nearest_name(path.rsplit(".", 1)[-1], names)
    return wrong(path, value, message, ", ".join(names), near)


def is_number(value: object) -> bool:
    """Whether a value is a number that a float can hold; NaN and infinities are left to the caller."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 1e300


Index = NDArray[np.int64]
Column = NDArray[np.int64] | NDArray[np.float64]
"""Of one axis: places in its list of values (whole numbers), or the values drawn (floats)."""

BLOCK = 1 << 16
"""Points that are drawn together: any of them can be drawn without those before."""


def point_count(study: Study) -> int:
    """How many points the study has."""
    if study.mode == "sample":
        return study.samples
    lengths = [len(axis.values) for axis in study.axes]
    if study.mode == "list":
        return max(lengths, default=1)
    return prod(lengths)


def columns(study: Study, order: Sequence[int], points: Index) -> list[Column]:
    """Of each axis (in the order of the study), what the points have.

    In a product, the axis that `order` names first changes slowest.
    """
    if study.mode == "list":
        return [points for _ in study.axes]
    if study.mode == "sample":
        return [_drawn(study.seed, place, axis, points) for place, axis in enumerate(study.axes)]
    found: list[Column] = [points for _ in study.axes]
    rest = points
    for place in reversed(order):
        rest, found[place] = np.divmod(rest, len(study.axes[place].values))
    return found


def _drawn(seed: int, place: int, axis: Axis, points: Index) -> Column:
    """What an axis has at some points, drawn block by block so that a point is the same in any shard."""
    blocks = np.arange(points.min() // BLOCK, points.max() // BLOCK + 1)
    draws = np.concatenate(
        [np.random.default_rng([seed, place, int(b)]).random(BLOCK) for b in blocks]
    )
    share = draws[points - blocks[0] * BLOCK]
    if axis.values:
        return np.asarray(np.minimum(share * len(axis.values), len(axis.values) - 1), np.int64)
    if axis.log:
        ends = log(axis.low), log(axis.high)
        found = np.exp(ends[0] + share * (ends[1] - ends[0]))
    else:
        found = axis.low + share * (axis.high - axis.low)
    return np.asarray(np.rint(found) if axis.whole else found, np.float64)
