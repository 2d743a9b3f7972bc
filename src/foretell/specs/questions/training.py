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
from foretell.specs.questions.flags import Flag
from foretell.specs.questions.plan_flags import PlanFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven, PlanGiven

PLAN = Flag(
    help='Words such as "tp8 pp4 zero1 mbs1" (docs/plan.md); without, the best.',
    kind="words",
    metavar="WORDS",
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
        Flag(
            help="Images of every sequence: 1024x1024, or 4x1280x720; their tokens are some of --seq-len.",
            metavar="[N]xWxH",
        ),
    ] = None
    audio: Annotated[
        float | None,
        Flag(
            help="Seconds of audio of every sequence; its tokens are some of --seq-len.",
            kind="decimal",
            metavar="S",
            most=1e5,
        ),
    ] = None
    towers: Annotated[
        str | None,
        Flag(
            help="Whether encoders of images and audio learn (default: trained).",
            metavar="trained|frozen",
        ),
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
        Flag(
            help="Write a figure (.svg, .html, .png), or everything as .json.",
            metavar="FILE",
            names=("plot", "out"),
            names_file="always",
        ),
        *IMPORTS,
        JSON,
    )


@dataclass(frozen=True, slots=False, kw_only=True)
class RunConditions:
    """What is asked of a whole run."""

    tokens: Annotated[
        Given | None,
        Flag(
            help="Tokens of a whole run, such as 15T; chinchilla: compute-optimal.",
            kind="amount",
            metavar="N",
        ),
    ] = None
    failures_per_gpu_day: Annotated[
        Given | None,
        Flag(
            help="Of a run: unplanned stops for each chip (default: 4.7e-4).",
            kind="amount",
            metavar="N",
        ),
    ] = None
    restart_s: Annotated[
        Given | None,
        Flag(
            help="Of a run: from a stop to reading the checkpoint (default: 600).",
            kind="amount",
            metavar="TIME",
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        Flag(
            help="Of a run: checkpoints written beside the work, or in its place.",
            metavar="async|sync",
        ),
    ] = None
    checkpoint_interval: Annotated[
        Given | None,
        Flag(
            help="Of a run: time between checkpoints, as in 30min (default: the best).",
            kind="amount",
            metavar="TIME",
        ),
    ] = None
    checkpoint_wait_s: Annotated[
        Given | None,
        Flag(
            help="Of a run: what all chips wait for each checkpoint.", kind="amount", metavar="TIME"
        ),
    ] = None
    storage_bandwidth: Annotated[
        Given | None,
        Flag(
            help="Of a run: where checkpoints go, as in 200GB/s (default: 81 MB/s a chip).",
            kind="amount",
            metavar="RATE",
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
    top: Annotated[
        int,
        Flag(
            help="How many plans to keep.",
            kind="whole",
            metavar="N",
            most=1000,
            without={"study": ONE_ROW},
        ),
    ] = 10
    over: Annotated[
        str | Sequence[str],
        Flag(
            help='Structural choices to try too, such as "schedule,cp_mode"; "all": every one.',
            metavar="CHOICES",
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
        Flag(
            help="Write a Chrome trace for ui.perfetto.dev; .gz is gzipped.",
            metavar="PATH",
            names_file="always",
        ),
    ] = None
    detail: Annotated[
        str,
        Flag(
            help="What the trace shows: tasks, layers or ops; auto: the most that opens well.",
            metavar="WORD",
        ),
    ] = "auto"
    jitter: Annotated[
        float,
        Flag(
            help="Chance: standard deviation of a task's time, as a share: 0.02.",
            kind="decimal",
            metavar="X",
        ),
    ] = 0
    stragglers: Annotated[
        float,
        Flag(
            help="Chance: probability that a chip is slow for the whole step.",
            kind="decimal",
            metavar="P",
        ),
    ] = 0
    slowdown: Annotated[
        float,
        Flag(help="Chance: how many times longer a slow chip takes.", kind="decimal", metavar="X"),
    ] = 1.3
    repeats: Annotated[
        int, Flag(help="Chance: steps simulated.", kind="whole", metavar="N", most=100)
    ] = 20
    seed: Annotated[int, Flag(help="Chance: seed.", kind="whole", metavar="N")] = 0


@dataclass(frozen=True, slots=False, kw_only=True)
class PlanPair:
    """Two plans by their places."""

    a: Annotated["PlanGiven", Flag(help='Plan A, such as "tp8 pp4 zero1".')] = field(kw_only=False)
    b: Annotated["PlanGiven", Flag(help='Plan B, such as "tp4 pp8 zero1".')] = field(kw_only=False)


@dataclass(frozen=True, slots=False, kw_only=True)
class PlansQuestion(PlaceQuestion, PlanPair):
    """Why one plan beats another: `foretell compare-plans`."""

    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class TraceFiles:
    """Traces, and the model that was trained."""

    files: Annotated[
        str | Path | Sequence[str | Path],
        Flag(
            help="Traces of the PyTorch profiler, one a rank, or of foretell simulate; .gz too.",
            kind="names",
            metavar="FILE...",
            names_file="always",
        ),
    ] = field(kw_only=False)
    model: Annotated[
        "ModelGiven | None",
        Flag(
            help="The model that was trained: lays its prediction beside.",
            kind="named",
            metavar="ID|PATH",
            names_file="maybe",
        ),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class TraceQuestion(PlanFlags, Place, TraceFiles):
    """Traces of training beside their prediction: `foretell characterize trace`."""

    plan: Annotated["PlanGiven | None", PLAN] = None
    step: Annotated[
        str | int | None,
        Flag(help="One of the profiler's steps (default: all, and their mean).", metavar="N"),
    ] = None
    edges: ClassVar[tuple[Flag, ...]] = (
        Flag(
            help="Write both timelines: .svg, .html, or .png where a browser is.",
            metavar="FILE",
            names=("picture",),
            names_file="always",
        ),
        JSON,
    )
