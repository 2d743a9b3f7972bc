"""Questions about training: a step, the search for its plan, its events, two plans, and a whole run."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import (
    EXPORT_PLAN,
    IMPORTS,
    JSON,
    JSONL,
    LAUNCHER,
    ONE_ROW,
    PLOT,
    Batch,
    Chips,
    Given,
    Length,
    MeasuredRuns,
    ModelName,
    Progressing,
    SettingsGiven,
    SystemName,
    TargetLength,
    Workers,
)
from foretell.specs.questions.flags import Flag, decimal, file_flag, flag, whole
from foretell.specs.questions.plan_flags import PlanFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven, PlanGiven

PLAN = flag(
    'Words such as "tp8 pp4 zero1 mbs1" (docs/plan.md); without, the best.', "WORDS", "words"
)


@dataclass(frozen=True, slots=False, kw_only=True)
class ModelQuestion:
    """A model, by its place."""

    model: ModelName = field(kw_only=False)


@dataclass(frozen=True, slots=False, kw_only=True)
class Place:
    """Where a step runs, and on how much."""

    system: SystemName = None
    gpus: Chips = None
    global_batch: Batch = None
    seq_len: Length = None
    target_len: TargetLength = None
    set: SettingsGiven = ()


@dataclass(frozen=True, slots=False, kw_only=True)
class PlaceQuestion(Place, ModelQuestion):
    """A model on a system, whatever the plan."""

    measured: MeasuredRuns = ()


@dataclass(frozen=True, slots=False, kw_only=True)
class EncodedInputs:
    """Images and audio of the sequences that are trained on."""

    images: Annotated[
        str | None,
        flag(
            "Images of every sequence: 1024x1024, or 4x1280x720; their tokens are some of --seq-len.",
            "[N]xWxH",
        ),
    ] = None
    audio: Annotated[
        float | None,
        decimal(
            "Seconds of audio of every sequence; its tokens are some of --seq-len.", "S", most=1e5
        ),
    ] = None
    towers: Annotated[
        str | None,
        flag("Whether encoders of images and audio learn (default: trained).", "trained|frozen"),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class StepQuestion(EncodedInputs, PlanFlags, PlaceQuestion):
    """One training step: `foretell explain`."""

    plan: Annotated["PlanGiven | None", PLAN] = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, *IMPORTS, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class MemoryQuestion(StepQuestion):
    """The memory of one step: `foretell memory`."""

    edges: ClassVar[tuple[Flag, ...]] = (
        file_flag(
            "Write a figure (.svg, .html, .png), or everything as .json.", names=("plot", "out")
        ),
        *IMPORTS,
        JSON,
    )


@dataclass(frozen=True, slots=False, kw_only=True)
class RunConditions:
    """What is asked of a whole run."""

    tokens: Annotated[
        Given | None,
        flag("Tokens of a whole run, such as 15T; chinchilla: compute-optimal.", "N", "amount"),
    ] = None
    failures_per_gpu_day: Annotated[
        Given | None,
        flag("Of a run: unplanned stops for each chip (default: 4.7e-4).", "N", "amount"),
    ] = None
    restart_s: Annotated[
        Given | None,
        flag("Of a run: from a stop to reading the checkpoint (default: 600).", "TIME", "amount"),
    ] = None
    checkpoint: Annotated[
        str | None,
        flag("Of a run: checkpoints written beside the work, or in its place.", "async|sync"),
    ] = None
    checkpoint_interval: Annotated[
        Given | None,
        flag(
            "Of a run: time between checkpoints, as in 30min (default: the best).", "TIME", "amount"
        ),
    ] = None
    checkpoint_wait_s: Annotated[
        Given | None, flag("Of a run: what all chips wait for each checkpoint.", "TIME", "amount")
    ] = None
    storage_bandwidth: Annotated[
        Given | None,
        flag(
            "Of a run: where checkpoints go, as in 200GB/s (default: 81 MB/s a chip).",
            "RATE",
            "amount",
        ),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class TrainingQuestion(RunConditions, StepQuestion):
    """One training step, and with tokens a whole run: `foretell estimate`."""

    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, *IMPORTS, EXPORT_PLAN, LAUNCHER, JSONL, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class SearchQuestion(StepQuestion):
    """Every plan of a step, ranked: `foretell search`."""

    plan: Annotated[str | None, PLAN] = None
    top: Annotated[int, whole("How many plans to keep.", most=1000, without={"study": ONE_ROW})] = (
        10
    )
    over: Annotated[
        str | Sequence[str],
        flag(
            'Structural choices to try too, such as "schedule,cp_mode"; "all": every one.',
            "CHOICES",
        ),
    ] = ""
    workers: Workers = 1
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, *IMPORTS, EXPORT_PLAN, LAUNCHER, JSONL, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class SimulateQuestion(StepQuestion):
    """One step event by event: `foretell simulate`."""

    trace: Annotated[
        str | Path | None,
        file_flag("Write a Chrome trace for ui.perfetto.dev; .gz is gzipped.", "PATH"),
    ] = None
    detail: Annotated[
        str,
        flag("What the trace shows: tasks, layers or ops; auto: the most that opens well.", "WORD"),
    ] = "auto"
    jitter: Annotated[
        float, decimal("Chance: standard deviation of a task's time, as a share: 0.02.", "X")
    ] = 0
    stragglers: Annotated[
        float, decimal("Chance: probability that a chip is slow for the whole step.", "P")
    ] = 0
    slowdown: Annotated[float, decimal("Chance: how many times longer a slow chip takes.", "X")] = (
        1.3
    )
    repeats: Annotated[int, whole("Chance: steps simulated.", most=100)] = 20
    seed: Annotated[int, whole("Chance: seed.")] = 0


@dataclass(frozen=True, slots=False, kw_only=True)
class PlanPair:
    """Two plans by their places."""

    a: Annotated["PlanGiven", flag('Plan A, such as "tp8 pp4 zero1".')] = field(kw_only=False)
    b: Annotated["PlanGiven", flag('Plan B, such as "tp4 pp8 zero1".')] = field(kw_only=False)


@dataclass(frozen=True, slots=False, kw_only=True)
class PlansQuestion(PlaceQuestion, PlanPair):
    """Why one plan beats another: `foretell compare-plans`."""

    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class TraceFiles:
    """Traces, and the model that was trained."""

    files: Annotated[
        str | Path | Sequence[str | Path],
        flag(
            "Traces of the PyTorch profiler, one a rank, or of foretell simulate; .gz too.",
            "FILE...",
            "names",
            names_file="always",
        ),
    ] = field(kw_only=False)
    model: Annotated[
        "ModelGiven | None",
        flag(
            "The model that was trained: lays its prediction beside.",
            "ID|PATH",
            "named",
            names_file="maybe",
        ),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class TraceQuestion(PlanFlags, Place, TraceFiles):
    """Traces of training beside their prediction: `foretell characterize trace`."""

    plan: Annotated["PlanGiven | None", PLAN] = None
    step: Annotated[
        str | int | None, flag("One of the profiler's steps (default: all, and their mean).", "N")
    ] = None
    edges: ClassVar[tuple[Flag, ...]] = (
        file_flag(
            "Write both timelines: .svg, .html, or .png where a browser is.", names=("picture",)
        ),
        JSON,
    )
