"""Text logs of DeepSpeed and Megatron as steps: compute, communication and idle.

DeepSpeed prints, with `wall_clock_breakdown`, lines such as `time (ms) | fwd: 26.6 | bwd: 64.4 | bwd_inner:
45.5 | bwd_allreduce: 18.6 | step: 5.3` and `time (ms) | optimizer_allgather: 1606 | ...`; Megatron `elapsed
time per iteration (ms): 10154.0 | ...` and `time (ms) | forward-compute: 1395 | ...`. Compute are the passes
and the update, communication is what the log times of collectives, idle is the rest of the step, as scaling
studies split it. Collectives that a log does not time (sums of tensor parallelism inside the passes) are in
compute, and a note says so.
"""

import gzip
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import Infeasible, bad_input
from foretell.interop.step_series import line_timers, timed_parts
from foretell.interop.user_files import check_regular
from foretell.records import JsonRecord, as_json, dataclass

MARKS = ("time (ms)", "elapsed time per iteration (ms)")
"""What lines of such logs have."""
ELAPSED = re.compile(
    r"elapsed time per iteration \(ms\)\s{0,9}:\s{0,9}([0-9]{1,30}(?:\.[0-9]{1,30})?)"
)
"""The time of a whole iteration."""
STEP = "iteration"
LONGEST = 4000
"""Characters of a line that are read."""
PARTS = ("compute_s", "communication_s", "idle_s")
"""What a step is split into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSplit:
    """One step of a log, or of a prediction."""

    step: str
    """Which, from 1; or predicted."""
    step_s: float
    """Time of the step."""
    compute_s: float
    """Passes and update."""
    communication_s: float
    """Collectives that are waited for."""
    idle_s: float
    """The rest."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport(JsonRecord):
    """The steps of a log beside the prediction of the same job."""

    file: str
    """The log."""
    steps: tuple[StepSplit, ...]
    """Every step."""
    mean: StepSplit
    """Their mean, the first left out where there are more than two."""
    predicted: StepSplit | None
    """The same split predicted; None where no job is given."""
    interval_s: tuple[float, float] | None
    """90 % interval of the predicted step."""
    notes: tuple[str, ...]
    """What the log leaves open."""

    to_dict = as_json()


def is_log(path: object) -> bool:
    """Whether a file is such a log: text with one of the marks near its beginning."""
    try:
        text = _text(Path(str(path)))[: 1 << 20]
    except (OSError, ValueError, EOFError):
        return False
    return not text.lstrip().startswith(("{", "[{")) and any(mark in text for mark in MARKS)


def _text(path: Path) -> str:
    check_regular(path)
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    return raw.decode("utf-8", "replace")


def read_log(path: Path) -> list[StepSplit]:
    """The steps of a log; BadInput where it times none."""
    lines = [_timers(line) for line in _text(path).splitlines()]
    lines = [line for line in lines if line]
    whole = [line for line in lines if not any(name.endswith("_microstep") for name in line)]
    if all(_split("", line) is None for line in whole):
        whole = [{k.removesuffix("_microstep"): v for k, v in line.items()} for line in lines]
    steps: list[dict[str, float]] = []
    for line in whole:
        if not steps or steps[-1].keys() & line.keys():
            steps.append({})
        steps[-1] |= line
    found = [_split(str(i), step) for i, step in enumerate(steps, 1)]
    kept = [step for step in found if step is not None]
    if not kept:
        message = "times no step: neither a forward pass nor an iteration"
        allowed = "a log of DeepSpeed with wall_clock_breakdown, or of Megatron with timing"
        raise bad_input("files", str(path), message, allowed)
    return kept


def _timers(line: str) -> dict[str, float]:
    """Timers of a line, and the iteration's time; seconds."""
    match = ELAPSED.search(line[:LONGEST])
    return {**line_timers(line[:LONGEST]), **({STEP: float(match[1]) / 1e3} if match else {})}


def _split(name: str, step: Mapping[str, float]) -> StepSplit | None:
    """One step's lines together."""
    parts, _ = timed_parts([{k: v for k, v in step.items() if k != STEP}])
    passes = parts.get("passes", 0.0) + parts.get("forward_backward", 0.0)
    compute = passes + parts.get("optimizer_step", 0.0)
    sent = parts.get("gradient_sync", 0.0) + parts.get("pipeline_waits", 0.0)
    total = step.get(STEP, compute + sent)
    if total <= 0.0 or not (passes or STEP in step):
        return None
    if not passes:  # an iteration without its parts
        compute, sent = total, 0.0
    return StepSplit(
        step=name,
        step_s=total,
        compute_s=compute,
        communication_s=sent,
        idle_s=max(total - compute - sent, 0.0),
    )


def mean_split(steps: Sequence[StepSplit]) -> StepSplit:
    """The mean step; the first, which warms up, is left out where there are more than two."""
    some = steps[1:] if len(steps) > 2 else steps
    sums = {
        name: sum(float(getattr(s, name)) for s in some) / len(some) for name in ("step_s", *PARTS)
    }
    return StepSplit(step="mean", **sums)


def predicted_split(answer: Mapping[str, Any]) -> StepSplit:
    """The same split of an estimate's tree."""
    sums = dict.fromkeys(PARTS, 0.0)
    for leaf in answer["breakdown"]["children"]:
        name = str(leaf["name"])
        part = "idle_s"
        if name in ("compute", "memory_bound", "recompute", "gradient_sums", "optimizer"):
            part = "compute_s"
        elif name.endswith("_parallel"):
            part = "communication_s"
        sums[part] += float(leaf["value"])
    return StepSplit(step="predicted", step_s=float(answer["step_s"]), **sums)


def characterize_log(path: str | Path, model: Any = None, **job: Any) -> LogReport:
    """A log's steps, with a model and a system (as of `foretell.estimate`) beside their prediction."""
    from foretell.api.training import estimate

    steps = read_log(Path(path))
    ours, interval = None, None
    if model is not None:
        try:
            answer = estimate(model, **job).to_dict()
        except Infeasible as error:
            kept: Any = error.answer
            if kept is None:
                raise
            answer = kept.to_dict()
        ours = predicted_split(answer)
        low, high = (answer.get("interval") or {}).get("p90") or (ours.step_s, ours.step_s)
        interval = (float(low), float(high))
    note = "collectives that the log does not time, such as sums of tensor parallelism, count as compute"
    if not any(step.communication_s for step in steps):
        note = "the log times no collective: communication inside the passes counts as compute"
    return LogReport(
        file=str(path),
        steps=tuple(steps),
        mean=mean_split(steps),
        predicted=ours,
        interval_s=interval,
        notes=(note,),
    )
