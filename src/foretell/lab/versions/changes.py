"""Which predictions moved between two versions, and by which change.

A snapshot is a file of questions, answers, the system's numbers, and fingerprints of catalogue and code. Each
stored question is asked again. A prediction that moved is explained in this order: another plan or engine was
chosen; numbers of the system that changed, each put back alone to see what it is worth; the parts of the step
that moved, with the files of the catalogue and the code behind them that differ.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import foretell
from foretell import catalog
from foretell.api.serving import serve
from foretell.api.training import estimate
from foretell.catalog.files import read_table
from foretell.errors import BadInput, ForetellError, Problem, bad_input, wrong
from foretell.interop.user_files import user_text
from foretell.records import Answer, JsonRecord, as_json, dataclass, plain
from foretell.specs.questions.flags import asks
from foretell.specs.questions.versions import VersionsQuestion
from foretell.specs.system import System

PACKAGE = Path(foretell.__file__).parent
TRAINING = ("model", "system", "gpus", "global_batch", "seq_len", "target_len", "plan")
"""Fields of an estimate's JSON that are its question."""
SERVING = ("model", "system", "gpus", "isl", "osl", "concurrency", "rate", "plan")
"""The same of a service's JSON."""
TABLES = read_table(Path(__file__).with_name("parts.toml"))
STANDARD: tuple[tuple[str, Mapping[str, Any]], ...] = tuple(
    (one["verb"], {name: value for name, value in one.items() if name != "verb"})
    for one in TABLES["question"]
)
"""Questions of a snapshot where none are given: kinds of models, chips and scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrediction:
    """One question with the answer that some version gave."""

    verb: str
    """estimate or serve."""
    question: Mapping[str, Any]
    """What was asked."""
    answer: Mapping[str, Any]
    """The JSON of the answer."""
    inputs: Mapping[str, float]
    """`--set` path -> number of the system then; empty where it was not kept."""

    @property
    def name(self) -> str:
        """The question in a few words."""
        asked = self.question
        return f"{self.verb} {asked['model']} on {asked['gpus']} x {asked['system']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Predictions of one version."""

    version: str
    """Which; empty where it is not known."""
    fingerprints: Mapping[str, str]
    """Part of the package -> hash of its files; empty where they were not kept."""
    predictions: tuple[StoredPrediction, ...]
    """Questions and answers."""

    def to_dict(self) -> dict[str, Any]:
        """The file's JSON."""
        told = {name: plain(getattr(self, name)) for name in ("fingerprints", "predictions")}
        return {"foretell": self.version, **told}


def take_snapshot(questions: Sequence[tuple[str, Mapping[str, Any]]] = STANDARD) -> Snapshot:
    """What this version predicts for some questions."""
    return Snapshot(
        version=foretell.__version__,
        fingerprints=fingerprints(),
        predictions=tuple(predict(verb, question) for verb, question in questions),
    )


def predict(verb: str, question: Mapping[str, Any]) -> StoredPrediction:
    """One question asked of this version; where the answer is no, the answer is what is wrong."""
    try:
        found: Any = (estimate if verb == "estimate" else serve)(**question)
        answer = found.to_dict()
    except ForetellError as error:
        answer = {"problem": str(error)}
    system = catalog.system(question["system"])
    return StoredPrediction(
        verb=verb, question=dict(question), answer=answer, inputs=system_numbers(system)
    )


def system_numbers(system: System) -> dict[str, float]:
    """`--set` path -> every number of a system's chip and tiers."""
    found = {f"chip.{name}": value for name, value in _numbers(system.chip)}
    for tier in system.network.tiers:
        found |= {f"network.{tier.name}.{name}": value for name, value in _numbers(tier)}
    return found


def _numbers(record: Any) -> list[tuple[str, float]]:
    values = ((field.name, getattr(record, field.name)) for field in fields(record))
    return [
        (name, float(value))
        for name, value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


@lru_cache(maxsize=1)
def fingerprints() -> dict[str, str]:
    """Part of the package (catalog/kernels, training, ...) -> hash of its files, in a fixed order."""
    hashes: dict[str, Any] = {}
    for path in sorted(PACKAGE.rglob("*")):
        inside = path.relative_to(PACKAGE).parts
        if not path.is_file() or "__pycache__" in inside:
            continue
        part = "/".join(inside[:2]) if inside[0] == "catalog" else inside[0]
        one = hashes.setdefault(part, hashlib.sha256())
        one.update("/".join(inside).encode() + b"\0" + path.read_bytes())
    return {part: one.hexdigest()[:16] for part, one in hashes.items()}


def read_snapshot(path: str | Path) -> Snapshot:
    """A snapshot's file, or one with the JSON of saved answers of estimate, search or serve."""
    text = user_text(Path(path), "file")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        try:
            told = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            message = "is not JSON"
            allowed = "a file of `changed --save`, or of a verb with --json"
            raise bad_input(str(path), None, message, allowed) from None
    if isinstance(told, Mapping) and "predictions" in told:
        return _own_snapshot(told, path)
    answers = told if isinstance(told, list) else [told]
    return Snapshot(
        version="", fingerprints={}, predictions=tuple(_saved(one, path) for one in answers)
    )


def _own_snapshot(told: Mapping[str, Any], path: str | Path) -> Snapshot:
    try:
        names = ("question", "answer")
        predictions = tuple(
            StoredPrediction(
                verb=str(one["verb"]), inputs=one.get("inputs", {}), **{n: one[n] for n in names}
            )
            for one in told["predictions"]
        )
        version, prints = str(told.get("foretell", "")), dict(told.get("fingerprints", {}))
        return Snapshot(version=version, fingerprints=prints, predictions=predictions)
    except (KeyError, TypeError, ValueError):
        raise BadInput([_no_answer(path)]) from None


def _saved(answer: Any, path: str | Path) -> StoredPrediction:
    """An answer that was saved with --json; of a search, its best plan."""
    if isinstance(answer, Mapping) and answer.get("plans"):
        answer = answer["plans"][0]
    if not isinstance(answer, Mapping) or not {"model", "system", "gpus"} <= set(answer):
        raise BadInput([_no_answer(path)])
    verb = "estimate" if "step_s" in answer else "serve"
    names = TRAINING if verb == "estimate" else SERVING
    question = {name: answer[name] for name in names if answer.get(name) is not None}
    if answer.get("overrides"):
        question["set"] = [f"{path}={value}" for path, value in answer["overrides"].items()]
    if verb == "serve" and answer.get("profile"):
        # The engine of today: a profile named by its release is another question.
        question["engine"] = str(answer["profile"]).partition("-")[0]
    return StoredPrediction(verb=verb, question=question, answer=answer, inputs={})


def _no_answer(path: str | Path) -> Problem:
    message = "has no answer that can be asked again"
    allowed = "a file of `changed --save`, or of estimate, search or serve with --json"
    return wrong(str(path), None, message, allowed)


METRICS: Mapping[str, Sequence[str]] = TABLES["metrics"]
"""Numbers of each verb that are compared."""
BEHIND: Mapping[str, Sequence[str]] = TABLES["behind"]
"""Part of a step, or a number -> parts of the package that it is computed with."""
MOST_PARTS = 3
"""Parts and inputs that a cause names."""
SMALL = 1e-12
"""Relative differences below this are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPrediction:
    """One number that is not what it was."""

    name: str
    """The question."""
    metric: str
    """Which number."""
    before: float | None
    """What it was; None where there was no answer."""
    after: float | None
    """What it is; None where there is no answer now."""
    change: float | None
    """after / before - 1."""
    cause: str
    """The change behind it, as far as it can be seen."""
    parts: Mapping[str, float]
    """Part of the step -> seconds that it moved by, the largest first."""
    inputs: Mapping[str, float]
    """`--set` path of a changed number -> what it alone moves the result by (a share)."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChanges(JsonRecord, Answer):
    """What moved between a stored snapshot and this version."""

    verb = "changed"

    from_version: str
    """The snapshot's version; empty where it was not kept."""
    to_version: str
    """This version."""
    predictions: int
    """Numbers that were compared."""
    moved: tuple[MovedPrediction, ...]
    """Those that moved, the largest change first."""
    files_changed: tuple[str, ...]
    """Parts of the package whose files differ; empty where no fingerprints were kept."""

    @property
    def title(self) -> str:
        """The verdict in a line."""
        of = f"{self.from_version or 'the saved answers'} to {self.to_version}"
        return f"{len(self.moved)} of {self.predictions} predictions moved from {of}"

    @property
    def conclusions(self) -> list[str]:
        """What changed of the package, in sentences."""
        data = [part for part in self.files_changed if part.startswith("catalog/")]
        code = [part for part in self.files_changed if not part.startswith("catalog")]
        said = {"Catalogue files that differ": data, "Code that differs": code}
        return [f"{words}: {', '.join(parts)}" for words, parts in said.items() if parts]

    to_dict = as_json(
        "title",
        "from_version",
        "to_version",
        "predictions",
        "moved",
        "conclusions",
        "files_changed",
    )


@asks(VersionsQuestion)
def version_changes(question: VersionsQuestion) -> VersionChanges:
    """Which predictions of a saved snapshot, or of answers saved with --json, this version gives otherwise.

    `over` is the smallest relative change that counts.
    """
    if not question.files:
        message, allowed = "names no file", "a file of `changed --save`, or of a verb with --json"
        raise bad_input("files", None, message, allowed)
    given = [question.files] if isinstance(question.files, str | Path) else question.files
    found = [changes_of(read_snapshot(path), float(question.over)) for path in given]
    moved = sorted(
        (one for each in found for one in each.moved),
        key=lambda one: -abs(one.change if one.change is not None else float("inf")),
    )
    return VersionChanges(
        from_version=", ".join(dict.fromkeys(one.from_version for one in found)),
        to_version=foretell.__version__,
        predictions=sum(one.predictions for one in found),
        moved=tuple(moved),
        files_changed=tuple(dict.fromkeys(p for one in found for p in one.files_changed)),
    )


def changes_of(old: Snapshot, over: float = 1e-3) -> VersionChanges:
    """A snapshot's questions asked again."""
    now = fingerprints()
    differ = tuple(
        part for part in {**old.fingerprints, **now} if old.fingerprints.get(part) != now.get(part)
    ) if old.fingerprints else ()  # fmt: skip
    moved: list[MovedPrediction] = []
    compared = 0
    for stored in old.predictions:
        again = predict(stored.verb, stored.question)
        for metric in METRICS[stored.verb]:
            compared += 1
            if (one := _moved(stored, again, metric, over, differ)) is not None:
                moved.append(one)
    return VersionChanges(
        from_version=old.version, to_version=foretell.__version__, predictions=compared,
        moved=tuple(moved), files_changed=differ,
    )  # fmt: skip


def number_of(answer: Mapping[str, Any], metric: str) -> float | None:
    """A number of an answer; of a latency its mean."""
    value = answer.get(metric)
    value = value.get("mean") if isinstance(value, Mapping) else value
    return None if value is None else float(value)


def _moved(
    old: StoredPrediction, new: StoredPrediction, metric: str, over: float, differ: Sequence[str]
) -> MovedPrediction | None:
    """How one number moved; None where it did not."""
    before, after = number_of(old.answer, metric), number_of(new.answer, metric)
    if before is None and after is None:
        return None
    change = None
    if before is not None and after is not None:
        change = (after - before) / max(abs(before), SMALL)
        if abs(change) <= max(over, SMALL):
            return None
    parts = _parts(old.answer, new.answer) if metric == "step_s" else {}
    inputs = {} if change is None else _inputs(old, new, metric)
    return MovedPrediction(
        name=old.name, metric=metric, before=before, after=after, change=change,
        cause=_cause(old, new, metric, parts, inputs, differ), parts=parts, inputs=inputs,
    )  # fmt: skip


def _cause(
    old: StoredPrediction,
    new: StoredPrediction,
    metric: str,
    parts: Mapping[str, float],
    inputs: Mapping[str, float],
    differ: Sequence[str],
) -> str:
    """The change behind a moved number, in words."""
    if "problem" in new.answer:
        return f"no answer now: {new.answer['problem']}"
    if "problem" in old.answer:
        return f"had no answer: {old.answer['problem']}"
    said = []
    for field, words in (("plan", "plan"), ("profile", "engine profile"), ("fits", "fits")):
        if old.answer.get(field) != new.answer.get(field):
            said.append(f"{words} {old.answer.get(field)} -> {new.answer.get(field)}")
    for path, worth in list(inputs.items())[:MOST_PARTS]:
        said.append(f"{path} {old.inputs[path]:.6g} -> {new.inputs[path]:.6g} ({worth:+.1%})")
    moved = list(parts.items())[:MOST_PARTS]
    said += [f"{name} {seconds * 1e3:+,.3g} ms" for name, seconds in moved]
    keys = [name.split(".")[0] for name, _ in moved] or [metric if metric in BEHIND else new.verb]
    behind = dict.fromkeys(part for key in keys for part in BEHIND.get(key, ()))
    if files := [part for part in behind if part in differ]:
        said.append(f"files: {', '.join(files)}")
    return "; ".join(said) or "cannot be seen from the saved answer; save with `changed --save`"


def _parts(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, float]:
    """Leaf of the step's breakdown -> seconds that it moved by, the largest first."""
    before, after = _leaves(old.get("breakdown")), _leaves(new.get("breakdown"))
    moved = {n: after.get(n, 0.0) - before.get(n, 0.0) for n in dict.fromkeys((*before, *after))}
    whole = max(sum(before.values()), SMALL)
    ordered = sorted(moved.items(), key=lambda one: -abs(one[1]))
    return {name: by for name, by in ordered if abs(by) > 1e-4 * whole}


def _leaves(tree: Mapping[str, Any] | None, above: str = "") -> dict[str, float]:
    """Dotted name -> value of a tree's leaves."""
    found: dict[str, float] = {}
    for child in (tree or {}).get("children") or ():
        name = f"{above}{child['name']}"
        inner = _leaves(child, f"{name}.")
        found |= inner or {name: float(child["value"])}
    return found


def _inputs(old: StoredPrediction, new: StoredPrediction, metric: str) -> dict[str, float]:
    """Changed number of the system -> what it alone moves the result by: it is put back, and asked again."""
    after = number_of(new.answer, metric)
    paths = [p for p, v in old.inputs.items() if p in new.inputs and new.inputs[p] != v]
    worth: dict[str, float] = {}
    for path in paths:
        given = new.question.get("set", ())
        settings = [*given, f"{path}={old.inputs[path]!r}"]
        try:
            put_back = predict(new.verb, {**new.question, "set": settings})
        except ForetellError:
            continue
        before = number_of(put_back.answer, metric)
        if before and after is not None and abs(after / before - 1.0) > SMALL:
            worth[path] = after / before - 1.0
    return dict(sorted(worth.items(), key=lambda one: -abs(one[1])))
