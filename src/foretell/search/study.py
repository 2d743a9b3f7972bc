"""From a study's file to a study: every problem of every table is reported at once.

The file has `[study]` (kind, plan, mode, samples, seed), `[base]` (the verb's flags in snake case, and
`--set` paths in quotes), `[vary]` (a flag or path = a list of values, or ends and steps),
`[objectives]`, `[limits]` and any number of `[[workload]]` (docs/sweep.md).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from foretell import units
from foretell.catalog.files import read_table
from foretell.catalog.models import find_model
from foretell.catalog.names import exists
from foretell.errors import BadInput, Problem, nearest_name
from foretell.overrides import ROOTS
from foretell.search.flags import FLAGS, PRICED, TEXTS, is_whole, verb_of
from foretell.search.plan_words import word_of
from foretell.specs.plan import named_fields, parse_plan
from foretell.specs.study import (
    BEST,
    Axis,
    Direction,
    Mode,
    Study,
    StudyKind,
    Verb,
    Workload,
)

KEYS = ("kind", "plan", "mode", "samples", "seed", "what")
TABLES = ("study", "base", "vary", "objectives", "limits", "workload")
RANGE = ("low", "high", "steps", "scale")
BY_CONTENT = ("model", "system")
"""Flags for which what a file has may stand as a table."""
WORDS = (*BY_CONTENT, *TEXTS, "plan", "plan.order")
"""What varies over texts alone."""
MOST_STEPS = 100_000
"""Steps of one range; more are a typing error."""


def read_study(given: str | Path | Mapping[str, Any], *, drawn: bool = False) -> Study:
    """A study from its file or its table; BadInput with all that is wrong.

    `drawn`: points are chosen one by one, so that a range needs no steps.
    """
    folder = Path.cwd()
    if not isinstance(given, Mapping):
        path = Path(given)
        folder, given = path.absolute().parent, read_table(path)
    table = {name: given[name] for name in given}
    problems = [
        _unknown(name, table[name], TABLES, "no such table") for name in table if name not in TABLES
    ]
    problems += [
        Problem(path=name, value=table[name], message="not a table")
        for name in TABLES
        if not isinstance(table.get(name, {}), Mapping) and name != "workload"
    ]
    if problems:
        raise BadInput(problems)
    return _Reader(table, folder, problems, drawn).study()


class _Reader:
    """One reading: the tables, and what is wrong with them so far."""

    def __init__(
        self, table: Mapping[str, Any], folder: Path, problems: list[Problem], drawn: bool
    ) -> None:
        self.folder, self.problems, self.drawn = folder, problems, drawn
        self.head, self.vary = dict(table.get("study", {})), dict(table.get("vary", {}))
        self.base = self._with_paths(dict(table.get("base", {})))
        self.mix: Any = table.get("workload", [])
        self.objectives = dict(table.get("objectives", {}))
        self.limits = dict(table.get("limits", {}))

    def study(self) -> Study:
        """The study, or BadInput."""
        for name in self.head:
            if name not in KEYS:
                self.problems.append(
                    _unknown(f"study.{name}", self.head[name], KEYS, "no such key")
                )
        kind = self._choice("kind", get_args(StudyKind), None)
        mode = self._choice("mode", get_args(Mode), "product")
        mix = self._workloads()
        what = self.head.get("what")
        if what is not None and (kind != "cost" or what not in PRICED):
            self._bad("study.what", what, "not a choice", f"{', '.join(PRICED)}; for kind cost")
        verb = verb_of(kind, what, {*self.base, *self.vary, *(n for w in mix for n in w.base)})
        verbs = list(dict.fromkeys(w.verb for w in mix)) or ([] if verb is None else [verb])
        if verbs:
            self._check_flags(verbs, mix)
        plan, axes = self._plan(verbs), self._axes(mode)
        self._contradictions(mode, plan, axes, mix)
        self._wishes()
        if self.problems or not verbs:
            raise BadInput(self.problems)
        return Study(
            kind=kind,
            verb=verbs[0],
            plan=plan,
            mode=mode,
            samples=self.head.get("samples", 0),
            seed=self.head.get("seed", 0),
            base={n: v for n, v in self.base.items() if "." not in n and n not in ("set", "plan")},
            settings=settings_of(self.base),
            axes=axes,
            objectives=self.objectives,
            limits={name: float(value) for name, value in self.limits.items()},
            workloads=mix,
            table=self._table(mix),
        )

    def _table(self, mix: Sequence[Workload]) -> dict[str, Any]:
        whole = {
            "study": self.head,
            "base": self.base,
            "vary": self.vary,
            "objectives": self.objectives,
            "limits": self.limits,
            "workload": [
                {
                    "name": w.name,
                    "weight": w.weight,
                    **({"kind": w.kind} if w.kind else {}),
                    **w.base,
                }
                for w in mix
            ],
        }
        return {name: value for name, value in whole.items() if value}

    def _with_paths(self, flags: dict[str, Any]) -> dict[str, Any]:
        """Flags with files that stand beside the study under their full names."""
        for name in BY_CONTENT:
            text = flags.get(name)
            # A name of the catalogue is that, whatever files stand about, as for every other verb.
            if isinstance(text, str) and not _is_known(text) and _is_there(self.folder, text):
                flags[name] = str((self.folder / text).resolve())
        return flags

    def _bad(self, path: str, value: object, message: str, allowed: str | None = None) -> None:
        self.problems.append(Problem(path=path, value=value, message=message, allowed=allowed))

    def _choice(self, name: str, choices: Sequence[str], default: str | None) -> Any:
        value = self.head.get(name, default)
        if value not in choices:
            message = "missing" if value is None else "not a choice"
            self.problems.append(
                Problem(
                    path=f"study.{name}",
                    value=value,
                    message=message,
                    allowed=", ".join(choices),
                    nearest=None if value is None else nearest_name(str(value), choices),
                )
            )
        return value

    def _workloads(self) -> tuple[Workload, ...]:
        if not isinstance(self.mix, list) or not all(isinstance(w, Mapping) for w in self.mix):
            self._bad("workload", self.mix, "not a list of tables", "[[workload]]")
            return ()
        found = []
        for place, given in enumerate(self.mix):
            rest = {k: v for k, v in given.items() if k not in ("weight", "name", "kind")}
            kind = given.get("kind", "")
            if kind and kind not in get_args(StudyKind)[:2]:
                self._bad(f"workload.{place}.kind", kind, "not a choice", "training, serving")
            own = {*self.base, *self.vary, *rest}
            verb = verb_of(kind or self.head.get("kind"), self.head.get("what"), own)
            weight = given.get("weight", 1.0)
            if not _is_number(weight) or not 0.0 < weight < math.inf:
                self._bad(f"workload.{place}.weight", weight, "not a usable number", "above 0")
                weight = 1.0
            found.append(
                Workload(
                    name=str(given.get("name", place)),
                    weight=float(weight),
                    base=self._with_paths(rest),
                    kind=str(kind),
                    verb=verb or "estimate",
                )
            )
        names = [w.name for w in found]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self._bad("workload.name", name, "two workloads have this name")
        return tuple(found)

    def _check_flags(self, verbs: Sequence[Verb], mix: Sequence[Workload]) -> None:
        """Names that are no flag of any verb asked and no path."""
        tables: list[tuple[str, Mapping[str, Any], Sequence[Verb]]] = [
            ("base", self.base, verbs),
            ("vary", self.vary, verbs),
            *((f"workload.{i}", w.base, (w.verb,)) for i, w in enumerate(mix)),
        ]
        for where, table, asked in tables:
            known = list(dict.fromkeys(flag for verb in asked for flag in FLAGS[verb]))
            if where == "vary":
                known.remove("set")
            for name, value in table.items():
                self._check_flag(where, name, value, known, " and ".join(asked))

    def _check_flag(
        self, where: str, name: str, value: Any, known: Sequence[str], verbs: str
    ) -> None:
        root = name.split(".", 1)[0]
        if "." in name and root in ROOTS:
            return
        if name in known:
            if where != "vary" and not (isinstance(value, dict) and name in BY_CONTENT):
                self._check_value(f"{where}.{name}", name, value)
            return
        is_path = "." in name
        names = ROOTS if is_path else known
        self.problems.append(
            Problem(
                path=f"{where}.{name}",
                value=value,
                message="no such record" if is_path else f"no flag of `{verbs}`",
                allowed=f"{', '.join(names)}; or a --set path",
                nearest=nearest_name(root if is_path else name, names),
            )
        )

    def _check_value(self, path: str, name: str, value: Any) -> None:
        """What a flag is given: settings, one plain value, or a word."""
        if name == "set":
            many = list(value.values()) if isinstance(value, Mapping) else value
            texts = [many] if isinstance(many, str) else many
            if not isinstance(texts, list) or any(isinstance(t, list | dict) for t in texts):
                self._bad(path, value, "not a list of settings", '["path=value"]')
        elif isinstance(value, list | dict):
            self._bad(path, value, "has one value here", "lists: in [vary]")
        elif value is None:
            self._bad(path, value, "missing")
        elif name in TEXTS and not isinstance(value, str):
            self._bad(path, value, "not a text")

    def _plan(self, verbs: Sequence[Verb]) -> str:
        """The plan of all points: of [study], or the flag of [base]."""
        given = [t["plan"] for t in (self.head, self.base) if "plan" in t]
        if len(given) == 2 and given[0] != given[1]:
            self._bad("base.plan", given[1], f"contradicts study.plan, {given[0]!r}")
        plan = given[0] if given else BEST
        if not isinstance(plan, str):
            self._bad("study.plan", plan, "not a text", 'best, or words such as "tp8 pp4"')
            return BEST
        if verbs == ["estimate"] and plan != BEST:
            self._collect("study.plan", lambda: parse_plan(plan))
        return plan

    def _collect(self, path: str, make: Any) -> None:
        try:
            make()
        except BadInput as error:
            self.problems += [
                Problem(
                    path=path,
                    value=p.value,
                    message=p.message,
                    allowed=p.allowed,
                    nearest=p.nearest,
                )
                for p in error.problems
            ]

    def _axes(self, mode: str) -> tuple[Axis, ...]:
        if not self.vary:
            self._bad("vary", None, "nothing varies", "a flag or --set path = a list of values")
        return tuple(a for n, v in self.vary.items() if (a := self._axis(n, v, mode)) is not None)

    def _axis(self, name: str, given: Any, mode: str) -> Axis | None:
        """One line of [vary]."""
        path, last = f"vary.{name}", name.rsplit(".", 1)[-1]
        whole = is_whole(name)
        unit = unit_of(name)
        if isinstance(given, Mapping):
            return self._range(name, given, mode, whole)
        if not isinstance(given, list):
            self._bad(path, given, "neither a list nor ends", "[1, 2] or {low, high, steps}")
            return None
        if not given:
            self._bad(path, given, "an empty list: there are no points", "at least one value")
            return None
        before = len(self.problems)
        values: list[Any] = []
        for value in given:
            if isinstance(value, Mapping) or (isinstance(value, list) and last != "order"):
                self._bad(path, value, "not a plain value")
            elif isinstance(value, float) and not math.isfinite(value):
                self._bad(path, value, "not a finite number")
            elif value is None or (not isinstance(value, str | list) and name in WORDS):
                self._bad(path, value, "not a text" if value is not None else "missing")
            elif isinstance(value, str) and unit:
                self._collect(path, lambda text=value: values.append(units.parse(text, unit)))
            else:
                values.append(",".join(map(str, value)) if isinstance(value, list) else value)
        doubled = {repr(v) for v in values if values.count(v) > 1}
        if doubled and mode == "product":
            self._bad(path, ", ".join(sorted(doubled)), "a value stands twice", "each value once")
        if name.startswith("plan.") and len(self.problems) == before and not self._of_serving():
            for value in values:
                self._collect(path, lambda value=value: parse_plan(word_of(last, value)))
        return Axis(path=name, values=tuple(values), whole=whole) if values else None

    def _of_serving(self) -> bool:
        return self.head.get("kind") != "training"

    def _range(self, name: str, given: Mapping[str, Any], mode: str, whole: bool) -> Axis | None:
        """Two ends, and the steps between them or none."""
        path, before = f"vary.{name}", len(self.problems)
        for key in given:
            if key not in RANGE:
                self.problems.append(_unknown(f"{path}.{key}", given[key], RANGE, "no such key"))
        ends: list[float] = []
        for key in ("low", "high"):
            value: Any = given.get(key)
            if isinstance(value, str):
                self._collect(
                    f"{path}.{key}", lambda v=value: ends.append(units.parse(v, unit_of(name)))
                )
            elif _is_number(value) and math.isfinite(value):
                ends.append(float(value))
            else:
                self._bad(f"{path}.{key}", value, "not a number" if key in given else "missing")
        scale, steps = given.get("scale", "linear"), given.get("steps")
        if scale not in ("linear", "log"):
            self._bad(f"{path}.scale", scale, "not a choice", "linear, log")
        if len(ends) == 2 and ends[0] > ends[1]:
            self._bad(path, ends, "low is above high")
        if scale == "log" and ends and min(ends) <= 0.0:
            self._bad(f"{path}.low", min(ends), "no logarithm", "above 0")
        if steps is None and mode != "sample" and not self.drawn:
            self._bad(f"{path}.steps", None, "missing", "a whole number from 1")
        elif steps is not None and (type(steps) is not int or not 1 <= steps <= MOST_STEPS):
            self._bad(
                f"{path}.steps", steps, "not usable", f"a whole number from 1 to {MOST_STEPS}"
            )
        if len(self.problems) > before:
            return None
        low, high, log = ends[0], ends[1], scale == "log"
        values = () if steps is None else spaced(low, high, steps, log=log, whole=whole)
        return Axis(path=name, values=values, low=low, high=high, log=log, whole=whole)

    def _contradictions(
        self, mode: str, plan: str, axes: Sequence[Axis], mix: Sequence[Workload]
    ) -> None:
        """What is said twice, or cannot be together."""
        fixed = {s.partition("=")[0]: "base.set" for s in settings_of(self.base)}
        fixed |= dict.fromkeys(self.base, "base")
        fixed |= {name: f"workload {w.name}" for w in mix for name in w.base}
        if "plan" in self.head:
            fixed["plan"] = "study"
        for axis in axes:
            if axis.path in fixed:
                self._bad(f"vary.{axis.path}", None, f"is fixed in [{fixed[axis.path]}] too")
        varied = {axis.path for axis in axes}
        named = named_fields(plan) if plan != BEST and isinstance(plan, str) else ()
        for name in named:
            if f"plan.{name}" in varied:
                self._bad(f"vary.plan.{name}", None, f"the plan {plan!r} fixes {name} too")
        if "plan" in varied and any(p.startswith("plan.") for p in varied):
            self._bad("vary.plan", None, "varies beside fields of the plan", "one of the two")
        if mode == "list" and len({len(a.values) for a in axes if a.values}) > 1:
            lengths = ", ".join(f"{a.path} {len(a.values)}" for a in axes)
            self._bad("vary", lengths, "lists of unequal length in mode list")
        samples = self.head.get("samples")
        if mode == "sample" and (type(samples) is not int or samples < 1):
            self._bad("study.samples", samples, "not usable", "a whole number from 1")
        if mode != "sample" and samples is not None:
            self._bad("study.samples", samples, f"has no effect in mode {mode}", 'mode = "sample"')
        seed = self.head.get("seed", 0)
        if type(seed) is not int or seed < 0:
            self._bad("study.seed", seed, "not usable", "a whole number from 0")

    def _wishes(self) -> None:
        """Objectives and limits; that their columns exist is looked at where columns are known."""
        for name, value in self.objectives.items():
            if value not in get_args(Direction):
                self._bad(f"objectives.{name}", value, "not a choice", "min, max")
        for name, value in self.limits.items():
            if not _is_number(value):
                self._bad(f"limits.{name}", value, "not a number", "the largest value")


def _is_known(name: str) -> bool:
    """Whether the catalogue has a chip, a system or a model of this name; what ends as a file is a path."""
    if name.lower().endswith((".json", ".toml")):
        return False
    try:
        return exists(name) or find_model(name) is not None
    except BadInput:  # it means more than one model
        return True


def _is_there(folder: Path, name: str) -> bool:
    """Whether a file of this name is in the folder; False for what no file can be called."""
    try:
        return (folder / name).exists()
    except (OSError, ValueError):
        return False


def spaced(low: float, high: float, steps: int, *, log: bool, whole: bool) -> tuple[Any, ...]:
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


def settings_of(base: Mapping[str, Any]) -> tuple[str, ...]:
    """The `--set` texts of a table: its paths, and what stands under `set`."""
    texts = [f"{name}={text_of(value)}" for name, value in base.items() if "." in name]
    given = base.get("set", ())
    if isinstance(given, Mapping):
        return (*texts, *(f"{name}={text_of(value)}" for name, value in given.items()))
    if not isinstance(given, list | tuple):
        given = [given] if isinstance(given, str) else []  # what is neither is refused elsewhere
    return (*texts, *map(str, given))


def text_of(value: Any) -> str:
    """A value as `--set` takes it: numbers with all their digits, switches in small letters."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)


def _unknown(path: str, value: object, names: Sequence[str], message: str) -> Problem:
    near = nearest_name(path.rsplit(".", 1)[-1], names)
    allowed = ", ".join(names)
    return Problem(path=path, value=value, message=message, allowed=allowed, nearest=near)


def _is_number(value: object) -> bool:
    """Whether a value is a number that a float can hold; NaN and infinities are left to the caller."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 1e300
