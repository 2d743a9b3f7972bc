"""What a launch gains, as a record: both predictions, the flags between them, the better launch."""

from typing import Any

from foretell.api.answers import Estimate
from foretell.api.launches import LaunchQuestion
from foretell.api.service_answers import ServeAnswer
from foretell.interop.launch import ReadValue, ToolArguments
from foretell.records import Answer, JsonRecord, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagChange:
    """One flag that differs between a launch and the better one."""

    flag: str
    """The tool's name for it."""
    before: str | None
    """Its value in the launch; none: not given."""
    after: str | None
    """Its value in the better one; none: leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement(JsonRecord, Answer):
    """What a launch gains."""

    verb = "improve"

    tool: str
    """Whose launch it is."""
    model: str
    """Model id."""
    system: str
    """System id."""
    gpus: int
    """Chips."""
    metric: str
    """What is to be more: tokens_per_s of training, output_tokens_per_s of a service."""
    before: float | None
    """Of the launch as it is; none where it does not run at all."""
    after: float
    """Of the better one."""
    plan_before: str
    """The launch's plan."""
    plan_after: str
    """The better plan."""
    fits_before: str
    """Whether the launch fits in memory."""
    memory_before: float | None
    """Bytes that a GPU holds at the peak of a training step, as it is."""
    memory_after: float | None
    """The same of the better one."""
    gain: float | None
    """after / before - 1."""
    gain_interval: dict[str, tuple[float, float]] | None
    """Of the gain: p50 and p90, each (low, high)."""
    certain: bool
    """Whether nine in ten cases have a gain."""
    load: dict[str, float] | None
    """Of a service: isl, osl and concurrency that both are predicted at."""
    latency_before: dict[str, float] | None
    """Of a service that runs: means of ttft_ms and tpot_ms as it is."""
    latency_after: dict[str, float] | None
    """Of a service: the same of the better one."""
    changes: tuple[FlagChange, ...]
    """Flags to change."""
    export: str
    """The improved launch; empty where no file is written for its tool, and the changes are all."""
    export_tool: str
    """The tool and release it is written for."""
    export_notes: tuple[str, ...]
    """What that text does not say."""
    launchable_with: tuple[str, ...]
    """Frameworks that can run the better plan."""
    read_back: tuple[ReadValue, ...]
    """Every value of the launch, and where it comes from."""
    conclusions: tuple[str, ...]
    """The same in sentences."""
    assumptions: tuple[str, ...]
    """Every default or guess."""
    answer: Estimate | ServeAnswer
    """The better plan, with everything that is known of it."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON, the better plan without its trees."""
        names = [
            f for f in self.__dataclass_fields__ if f not in ("answer", "changes", "read_back")
        ]
        trees = ("breakdown", "memory", "memory_by_stage", "assumptions")
        told = {name: value for name, value in self.answer.to_dict().items() if name not in trees}
        return {
            **{name: getattr(self, name) for name in names},
            "changes": [
                {"flag": c.flag, "before": c.before, "after": c.after} for c in self.changes
            ],
            "read_back": [row.to_dict() for row in self.read_back],
            "answer": told,
        }


def improvement_of(
    asked: LaunchQuestion,
    before: Estimate | ServeAnswer | None,
    best: Estimate | ServeAnswer,
    written: ToolArguments,
    *,
    metric: str,
    **rest: Any,
) -> Improvement:
    """The answer from the two predictions: `metric` names the rate that is to grow."""
    return Improvement(
        tool=asked.launch.tool,
        model=best.model,
        system=best.system,
        gpus=best.gpus,
        metric=metric,
        before=None if before is None else getattr(before, metric),
        after=getattr(best, metric),
        plan_before=str(asked.arguments["plan"] if before is None else before.plan),
        plan_after=str(best.plan),
        export=written.text,
        export_tool=written.called,
        export_notes=written.notes,
        read_back=asked.rows,
        assumptions=tuple(best.assumptions),
        answer=best,
        load=_load(best),
        memory_before=getattr(before, "peak_memory_bytes", None),
        memory_after=getattr(best, "peak_memory_bytes", None),
        latency_before=_latency(before),
        latency_after=_latency(best),
        **rest,
    )


def _load(found: Estimate | ServeAnswer) -> dict[str, float] | None:
    if not isinstance(found, ServeAnswer):
        return None
    told = {name: getattr(found, name) for name in ("isl", "osl", "concurrency")}
    return {name: float(value) for name, value in told.items() if value is not None}


def _latency(found: Estimate | ServeAnswer | None) -> dict[str, float] | None:
    if not isinstance(found, ServeAnswer):
        return None
    return {"ttft_ms": float(found.ttft_ms.mean), "tpot_ms": float(found.tpot_ms.mean)}
