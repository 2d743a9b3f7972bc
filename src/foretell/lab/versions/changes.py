"""Which predictions moved between two versions, and by which change.

Each stored question is asked again. A prediction that moved is explained in this order: another plan or
engine was chosen; numbers of the system that changed, each put back alone to see what it is worth; the parts
of the step that moved, with the files of the catalogue and the code behind them that differ.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import foretell
from foretell.errors import ForetellError, bad_input
from foretell.lab.versions.snapshot import (
    Snapshot,
    StoredPrediction,
    fingerprints,
    predict,
    read_snapshot,
)
from foretell.records import Answer, JsonRecord, as_json, dataclass
from foretell.specs.questions.flags import asks
from foretell.specs.questions.versions import VersionsQuestion

METRICS = {
    "estimate": ("step_s", "peak_memory_bytes", "energy_joules"),
    "serve": ("ttft_ms", "tpot_ms", "output_tokens_per_s"),
}
"""Numbers of each verb that are compared."""
BEHIND: Mapping[str, tuple[str, ...]] = {
    "compute": ("catalog/kernels", "catalog/chips", "kernels", "workload"),
    "memory_bound": ("catalog/kernels", "catalog/chips", "kernels", "workload"),
    "recompute": ("catalog/kernels", "kernels", "sharding"),
    "tensor_parallel": ("catalog/fabrics", "catalog/systems", "network", "sharding"),
    "context_parallel": ("catalog/fabrics", "catalog/systems", "network", "sharding"),
    "expert_parallel": ("catalog/fabrics", "catalog/dispatch.toml", "network", "sharding"),
    "data_parallel": ("catalog/fabrics", "catalog/systems", "network", "training"),
    "pipeline_parallel": ("catalog/fabrics", "network", "schedules"),
    "bubble": ("schedules", "training"),
    "optimizer": ("catalog/software", "kernels", "training"),
    "gradient_sums": ("catalog/software", "kernels", "training"),
    "fixed": ("catalog/software", "training"),
    "host": ("catalog/software", "training"),
    "peak_memory_bytes": ("catalog/software", "training", "kernels"),
    "energy_joules": ("catalog/kernels", "catalog/chips", "kernels"),
    "serve": ("catalog/engines.toml", "catalog/kernels", "serving", "kernels"),
}
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

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        names = ("name", "metric", "before", "after", "change", "cause")
        told = {name: getattr(self, name) for name in names}
        return {**told, "parts": dict(self.parts), "inputs": dict(self.inputs)}


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
        said = []
        if data:
            said.append(f"Catalogue files that differ: {', '.join(data)}")
        if code:
            said.append(f"Code that differs: {', '.join(code)}")
        return said

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
