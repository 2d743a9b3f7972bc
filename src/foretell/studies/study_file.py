"""From a study's file to a study: every problem of every table is reported at once.

The file has `[study]` (kind, plan, mode, samples, seed), `[base]` (the verb's flags in snake case, and
`--set` paths in quotes), `[vary]` (a flag or path = a list of values, or ends and steps),
`[objectives]`, `[limits]` and any number of `[[workload]]` (docs/sweep.md).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from foretell.catalog.files import read_table
from foretell.catalog.model_names import find_model
from foretell.catalog.names import exists
from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.inputs.overrides import ROOTS
from foretell.inputs.software import checked_plan
from foretell.interop.user_files import is_there, user_file
from foretell.specs.plan import named_fields
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
from foretell.studies.axes import (
    BY_CONTENT,
    FLAGS,
    PRICED,
    TEXTS,
    Axes,
    Faults,
    is_number,
    unknown_key,
    verb_of,
)

KEYS = ("kind", "plan", "mode", "samples", "seed", "what")
TABLES = ("study", "base", "vary", "objectives", "limits", "workload")


def read_study(given: str | Path | Mapping[str, Any], *, drawn: bool = False) -> Study:
    """A study from its file or its table; BadInput with all that is wrong.

    `drawn`: points are chosen one by one, so that a range needs no steps.
    """
    folder = Path.cwd()
    if not isinstance(given, Mapping):
        path = user_file(given, "study", "a table")
        folder, given = path.absolute().parent, read_table(path)
    table = {name: given[name] for name in given}
    problems = [
        unknown_key(name, table[name], TABLES, "no such table")
        for name in table
        if name not in TABLES
    ]
    problems += [
        wrong(name, table[name], "not a table")
        for name in TABLES
        if not isinstance(table.get(name, {}), Mapping) and name != "workload"
    ]
    if problems:
        raise BadInput(problems)
    return _StudyReader(table, folder, problems, drawn).study()


class _StudyReader(Faults):
    """One reading: the tables, and what is wrong with them so far."""

    def __init__(
        self, table: Mapping[str, Any], folder: Path, problems: list[Problem], drawn: bool
    ) -> None:
        super().__init__(problems)
        self.folder, self.drawn = folder, drawn
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
                    unknown_key(f"study.{name}", self.head[name], KEYS, "no such key")
                )
        kind = self._choice("kind", get_args(StudyKind), None)
        mode = self._choice("mode", get_args(Mode), "product")
        mix = self._workloads()
        what = self.head.get("what")
        if what is not None and (kind != "cost" or what not in PRICED):
            self.bad("study.what", what, "not a choice", f"{', '.join(PRICED)}; for kind cost")
        verb = verb_of(kind, what, {*self.base, *self.vary, *(n for w in mix for n in w.base)})
        verbs = list(dict.fromkeys(w.verb for w in mix)) or ([] if verb is None else [verb])
        if verbs:
            self._check_flags(verbs, mix)
        plan, axes = self._plan(verbs), self._axes(mode, kind)
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
        """Flags with files that are beside the study under their full names."""
        for name in BY_CONTENT:
            text = flags.get(name)
            # A name of the catalogue is that, whatever files stand about, as for every other verb.
            if isinstance(text, str) and not _is_known(text) and is_there(self.folder / text):
                flags[name] = str((self.folder / text).resolve())
        return flags

    def _choice(self, name: str, choices: Sequence[str], default: str | None) -> Any:
        value = self.head.get(name, default)
        if value not in choices:
            self.problems.append(
                wrong(
                    f"study.{name}",
                    value,
                    "missing" if value is None else "not a choice",
                    ", ".join(choices),
                    None if value is None else nearest_name(str(value), choices),
                )
            )
        return value

    def _workloads(self) -> tuple[Workload, ...]:
        if not isinstance(self.mix, list) or not all(isinstance(w, Mapping) for w in self.mix):
            self.bad("workload", self.mix, "not a list of tables", "[[workload]]")
            return ()
        found = []
        for place, given in enumerate(self.mix):
            rest = {k: v for k, v in given.items() if k not in ("weight", "name", "kind")}
            kind = given.get("kind", "")
            if kind and kind not in get_args(StudyKind)[:2]:
                self.bad(f"workload.{place}.kind", kind, "not a choice", "training, serving")
            own = {*self.base, *self.vary, *rest}
            verb = verb_of(kind or self.head.get("kind"), self.head.get("what"), own)
            weight = given.get("weight", 1.0)
            if not is_number(weight) or not 0.0 < weight < math.inf:
                self.bad(f"workload.{place}.weight", weight, "not a usable number", "above 0")
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
            self.bad("workload.name", name, "two workloads have this name")
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
            wrong(
                f"{where}.{name}",
                value,
                "no such record" if is_path else f"no flag of `{verbs}`",
                f"{', '.join(names)}; or a --set path",
                nearest_name(root if is_path else name, names),
            )
        )

    def _check_value(self, path: str, name: str, value: Any) -> None:
        """What a flag is given: settings, one plain value, or a word."""
        if name == "set":
            many = list(value.values()) if isinstance(value, Mapping) else value
            texts = [many] if isinstance(many, str) else many
            if not isinstance(texts, list) or any(isinstance(t, list | dict) for t in texts):
                self.bad(path, value, "not a list of settings", '["path=value"]')
        elif isinstance(value, list | dict):
            self.bad(path, value, "has one value here", "lists: in [vary]")
        elif value is None:
            self.bad(path, value, "missing")
        elif name in TEXTS and not isinstance(value, str):
            self.bad(path, value, "not a text")

    def _plan(self, verbs: Sequence[Verb]) -> str:
        """The plan of all points: of [study], or the flag of [base]."""
        given = [t["plan"] for t in (self.head, self.base) if "plan" in t]
        if len(given) == 2 and given[0] != given[1]:
            self.bad("base.plan", given[1], f"contradicts study.plan, {given[0]!r}")
        plan = given[0] if given else BEST
        if not isinstance(plan, str):
            self.bad("study.plan", plan, "not a text", 'best, or words such as "tp8 pp4"')
            return BEST
        if verbs == ["estimate"] and plan != BEST:
            self.collect("study.plan", lambda: checked_plan(plan))
        return plan

    def _axes(self, mode: str, kind: str) -> tuple[Axis, ...]:
        reader = Axes(self.problems, mode=mode, drawn=self.drawn, trains=kind == "training")
        return reader.read(self.vary)

    def _contradictions(
        self, mode: str, plan: str, axes: Sequence[Axis], mix: Sequence[Workload]
    ) -> None:
        """What is stated twice, or cannot be together."""
        fixed = {s.partition("=")[0]: "base.set" for s in settings_of(self.base)}
        fixed |= dict.fromkeys(self.base, "base")
        fixed |= {name: f"workload {w.name}" for w in mix for name in w.base}
        if "plan" in self.head:
            fixed["plan"] = "study"
        for axis in axes:
            if axis.path in fixed:
                self.bad(f"vary.{axis.path}", None, f"is fixed in [{fixed[axis.path]}] too")
        varied = {axis.path for axis in axes}
        named = named_fields(plan) if plan != BEST and isinstance(plan, str) else ()
        for name in named:
            if f"plan.{name}" in varied:
                self.bad(f"vary.plan.{name}", None, f"the plan {plan!r} fixes {name} too")
        if "plan" in varied and any(p.startswith("plan.") for p in varied):
            self.bad("vary.plan", None, "varies beside fields of the plan", "one of the two")
        if mode == "list" and len({len(a.values) for a in axes if a.values}) > 1:
            lengths = ", ".join(f"{a.path} {len(a.values)}" for a in axes)
            self.bad("vary", lengths, "lists of unequal length in mode list")
        samples = self.head.get("samples")
        if mode == "sample" and (type(samples) is not int or samples < 1):
            self.bad("study.samples", samples, "not usable", "a whole number from 1")
        if mode != "sample" and samples is not None:
            self.bad("study.samples", samples, f"has no effect in mode {mode}", 'mode = "sample"')
        seed = self.head.get("seed", 0)
        if type(seed) is not int or seed < 0:
            self.bad("study.seed", seed, "not usable", "a whole number from 0")

    def _wishes(self) -> None:
        """Objectives and limits; that their columns exist is looked at where columns are known."""
        for name, value in self.objectives.items():
            if value not in get_args(Direction):
                self.bad(f"objectives.{name}", value, "not a choice", "min, max")
        for name, value in self.limits.items():
            if not is_number(value):
                self.bad(f"limits.{name}", value, "not a number", "the largest value")


def _is_known(name: str) -> bool:
    """Whether the catalogue has a chip, a system or a model of this name; what ends as a file is a path."""
    if name.lower().endswith((".json", ".toml")):
        return False
    try:
        return exists(name) or find_model(name) is not None
    except BadInput:  # it means more than one model
        return True


def settings_of(base: Mapping[str, Any]) -> tuple[str, ...]:
    """The `--set` texts of a table: its paths, and what is under `set`."""
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
