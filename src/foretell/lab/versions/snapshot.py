"""Predictions as a file: questions, answers, the system's numbers, and fingerprints of catalogue and code."""

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
from foretell.errors import BadInput, ForetellError, Problem, bad_input
from foretell.interop.user_files import user_text
from foretell.records import dataclass
from foretell.specs.system import System

PACKAGE = Path(foretell.__file__).parent
TRAINING = ("model", "system", "gpus", "global_batch", "seq_len", "target_len", "plan")
"""Fields of an estimate's JSON that are its question."""
SERVING = ("model", "system", "gpus", "isl", "osl", "concurrency", "rate", "plan")
"""The same of a service's JSON."""
STANDARD: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    ("estimate", {"model": model, "system": system, "gpus": gpus, "global_batch": batch,
                  "seq_len": seq_len, "plan": plan})
    for model, system, gpus, batch, seq_len, plan in (
        ("llama-3.1-8b", "h100-sxm", 8, 64, 8192, "zero3 mbs1"),
        ("llama-3.1-70b", "h100-sxm", 512, 1024, 8192, "tp8 pp4 zero1 mbs1"),
        ("llama-3.1-405b", "h100-sxm", 8192, 2048, 8192, "tp8 pp16 zero1 mbs1"),
        ("gpt3-175b", "a100-sxm-80gb", 1024, 1536, 2048, "tp8 pp8 zero1 mbs1 recompute=full"),
        ("mixtral-8x7b", "h100-sxm", 64, 256, 4096, "tp1 pp1 ep8 zero1 mbs1 recompute=full"),
        ("deepseek-v3", "h100-sxm", 2048, 4096, 4096, "tp1 pp16 ep64 zero1 mbs1 recompute=full"),
        ("llama-3.1-8b", "b200-sxm", 8, 64, 8192, "zero3 mbs1"),
        ("llama-3.1-8b", "mi300x", 8, 64, 4096, "zero3 mbs1"),
    )
) + tuple(
    ("serve", {"model": model, "system": system, "gpus": gpus, "isl": isl, "osl": osl,
               "concurrency": concurrency, "plan": plan})
    for model, system, gpus, isl, osl, concurrency, plan in (
        ("llama-3.1-8b", "h100-sxm", 1, 1024, 256, 32, "tp1"),
        ("llama-3.1-70b", "h200-sxm", 8, 4096, 512, 64, "tp8"),
        ("qwen3-32b", "b200-sxm", 4, 2048, 1024, 64, "tp4"),
        ("mixtral-8x7b", "h100-sxm", 4, 1024, 512, 32, "tp4"),
    )
)  # fmt: skip
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
        return {
            "foretell": self.version,
            "fingerprints": dict(self.fingerprints),
            "predictions": [
                {"verb": one.verb, "question": dict(one.question), "answer": dict(one.answer),
                 "inputs": dict(one.inputs)}
                for one in self.predictions
            ],
        }  # fmt: skip


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
        predictions = tuple(
            StoredPrediction(
                verb=str(one["verb"]), question=one["question"], answer=one["answer"],
                inputs=one.get("inputs", {}),
            )
            for one in told["predictions"]
        )  # fmt: skip
        return Snapshot(
            version=str(told.get("foretell", "")),
            fingerprints=dict(told.get("fingerprints", {})),
            predictions=predictions,
        )
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
    return Problem(path=str(path), value=None, message=message, allowed=allowed)
