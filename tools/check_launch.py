"""Does a launch still fit, and how much slower is this change?

`python tools/check_launch.py LAUNCH --base REF` reads a launch script or config of another tool as it is now
and as it was at a Git ref, predicts both and prints a table in Markdown. In a GitHub Action (action.yml) the
table goes into the summary of the job and the numbers into its outputs. Exits 0 where it fits and is not too
much slower, 1 where not, 2 where the launch cannot be read.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.api.launches import read_launch, read_question
from foretell.errors import BadInput, Infeasible, ProblemsError

ROWS = {
    "training": (
        ("GPUs", "gpus", ""),
        ("Step time", "step_s", "s"),
        ("Tokens/s", "tokens_per_s", ""),
        ("Tokens/s per GPU", "tokens_per_s_per_gpu", ""),
        ("MFU", "mfu", "%"),
        ("Peak memory", "peak_memory_bytes", "GiB"),
    ),
    "serving": (
        ("Output tokens/s per GPU", "output_tokens_per_s_per_gpu", ""),
        ("TPOT, median", "tpot_ms.p50", "ms"),
        ("TTFT, median", "ttft_ms.p50", "ms"),
        ("KV cache", "kv_bytes", "GiB"),
    ),
}
"""What is shown of each kind of launch."""
SCALE = {"%": 100.0, "GiB": 2.0**-30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One launch and its answer."""

    kind: str
    """training or serving."""
    answer: dict[str, Any]
    """The JSON of the answer."""
    problems: tuple[str, ...] = ()
    """Why it does not fit."""

    @property
    def fits(self) -> str:
        """yes, no or too_close; a service that is answered fits."""
        return "no" if self.problems else str(self.answer.get("fits", "yes"))

    def value(self, path: str) -> float | None:
        """A number of the answer by its dotted path; None where there is none."""
        held: Any = self.answer
        for name in path.split("."):
            held = held.get(name) if isinstance(held, dict) else None
        return None if held is None else float(held)

    @property
    def seconds(self) -> float | None:
        """What is compared, since batches and GPUs may differ: seconds per token of the whole job."""
        name = "tokens_per_s" if self.kind == "training" else "output_tokens_per_s"
        rate = self.value(name)
        return 1.0 / rate if rate else None


def predict(text: str, beside: dict[str, Any], accept_unknown: bool) -> Prediction:
    """The prediction of a launch's text; BadInput where it cannot be read."""
    serving = read_launch(text, files=False).serves
    question = read_question(
        text, beside, serving=serving, accept_unknown=accept_unknown, files=False
    )
    kind = "serving" if serving else "training"
    try:
        if serving:
            from foretell import serve as ask
        else:
            from foretell import estimate as ask
        return Prediction(kind=kind, answer=ask(**question.arguments).to_dict())
    except Infeasible as error:
        from foretell.report.refusal import no_as_dict

        told = tuple(str(problem) for problem in error.problems)
        return Prediction(kind=kind, answer=no_as_dict(error.problems, error.answer), problems=told)


def text_at(ref: str, path: Path) -> str | None:
    """The file as it was at a Git ref; None where it was not there."""
    command = ["git", "show", f"{ref}:./{path.name}"]
    done = subprocess.run(
        command, cwd=path.resolve().parent, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def slowdown_of(now: Prediction, before: Prediction | None) -> float | None:
    """How much longer the same work takes; None where one of the two has no time."""
    if before is None or now.seconds is None or before.seconds is None:
        return None
    if now.kind != before.kind:
        return None
    return now.seconds / before.seconds - 1.0


def verdict(slowdown: float | None) -> str:
    """The sentence above the table."""
    if slowdown is None:
        return "No earlier version to compare with."
    if abs(slowdown) < 0.0005:
        return "This change is as fast as before."
    if slowdown > 0:
        return f"This change takes {slowdown:.1%} longer per token."
    return f"This change takes {-slowdown:.1%} less time per token."


def table(now: Prediction, before: Prediction | None, slowdown: float | None) -> str:
    """Both predictions in Markdown."""
    lines = ["| | before | now | change |", "|---|---|---|---|"]
    for words, path, unit in ROWS[now.kind]:
        new = now.value(path)
        old = before.value(path) if before and before.kind == now.kind else None
        change = f"{new / old - 1.0:+.1%}" if new is not None and old else ""
        lines.append(f"| {words} | {_shown(old, unit)} | {_shown(new, unit)} | {change} |")
    lines.append(f"| Fits | {before.fits if before else ''} | {now.fits} | |")
    said = verdict(slowdown)
    interval = (now.answer.get("interval") or {}).get("p90")
    if now.kind == "training" and interval:
        said += f" 90 % interval of the step: {interval[0]:.3g} to {interval[1]:.3g} s."
    return "\n".join(["### Foretell", "", said, "", *lines, "", *(f"- {p}" for p in now.problems)])


def numbers(found: Prediction) -> dict[str, Any]:
    """The answer without its trees and lists."""
    kept = {n: v for n, v in found.answer.items() if not isinstance(v, dict | list)}
    return {**kept, "fits": found.fits, "interval": found.answer.get("interval")}


def _shown(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value * SCALE.get(unit, 1.0):.4g} {unit}".strip()


def tell(name: str, text: str) -> None:
    """Append to a file that a GitHub Action names, where there is one."""
    if place := os.environ.get(name):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def main() -> int:
    """Predict, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("launch", type=Path)
    parser.add_argument("--base", default="", help="Git ref to compare with")
    parser.add_argument("--base-file", type=Path, help="a file to compare with, instead")
    parser.add_argument("--system")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--max-slowdown", type=float, default=0.05)
    parser.add_argument("--accept-unknown", action="store_true")
    given = parser.parse_args()
    beside = {
        name: value for name in ("system", "gpus") if (value := getattr(given, name)) is not None
    }
    try:
        now = predict(given.launch.read_text(encoding="utf-8"), beside, given.accept_unknown)
    except (BadInput, OSError) as error:
        print(f"{given.launch}: {error}", file=sys.stderr)
        return 2
    before = None
    old = given.base_file.read_text(encoding="utf-8") if given.base_file else None
    if old is None and given.base:
        old = text_at(given.base, given.launch)
    if old is not None:
        try:
            before = predict(old, beside, True)
        except ProblemsError as error:
            print(f"the earlier version cannot be read: {error}", file=sys.stderr)
    slowdown = slowdown_of(now, before)
    text = table(now, before, slowdown)
    print(text)
    tell("GITHUB_STEP_SUMMARY", text)
    report = {"now": numbers(now), "before": numbers(before) if before else None}
    tell("GITHUB_OUTPUT", f"fits={now.fits}")
    tell("GITHUB_OUTPUT", f"slowdown={'' if slowdown is None else f'{slowdown:.6g}'}")
    tell("GITHUB_OUTPUT", f"report={json.dumps(report, default=str)}")
    return int(now.fits == "no" or (slowdown or 0.0) > given.max_slowdown)


if __name__ == "__main__":
    sys.exit(main())
