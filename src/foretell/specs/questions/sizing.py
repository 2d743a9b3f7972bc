"""Questions about how many chips a service takes, and several of them on one fleet."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import (
    EXPORT_ENGINE,
    JSON,
    JSONL,
    LAUNCHER,
    MOST_CHIPS,
    ONE_ROW,
    PLOT,
    SHAPES_HELP,
    Engine,
    MeasuredRuns,
    ModelName,
    PriceList,
    Progressing,
    SettingsGiven,
    SystemName,
    chip_count,
)
from foretell.specs.questions.flags import Flag
from foretell.specs.questions.plan_flags import DegreeFlags
from foretell.specs.questions.serving import (
    PLAYED,
    RATE,
    AdapterRank,
    Adapters,
    AdapterSlots,
    AnswerLength,
    Audio,
    Images,
    PrefixHit,
    PromptLength,
    Rent,
    RequestSource,
    Speculative,
    Tuned,
)

PARETO = Flag(
    help="Also show the Pareto front: tokens/s of a user against tokens/s of a GPU.",
    kind="switch",
    names=("pareto",),
    without={"web": "every answer has the front"},
)
Percentile = Annotated[
    str,
    Flag(help="For how many requests both hold: mean, p50, p90, p95 or p99.", metavar="P"),
]
Headroom = Annotated[
    float, Flag(help="Reserve over the rate, as a share of it.", kind="decimal", metavar="X")
]
LargestInstance = Annotated[
    int | str | None,
    chip_count("Most chips of one instance (default: 64)."),
]
Simulated = Annotated[
    bool,
    Flag(
        help="Simulate the best options request by request (default), or trust the closed form.",
        kind="switch",
    ),
]


@dataclass(frozen=True, slots=False, kw_only=True)
class TargetsQuestion(DegreeFlags):
    """A service, its load and its latency targets."""

    model: ModelName = field(kw_only=False)
    rate: Annotated[
        float | None,
        Flag(
            help="Requests per second to be answered; a trace is scaled to it.",
            kind="decimal",
            metavar="R",
            most=RATE.most,
        ),
    ] = None
    system: SystemName = None
    measured: MeasuredRuns = ()
    isl: PromptLength = 1024
    osl: AnswerLength = 1024
    ttft: Annotated[
        float, Flag(help="Longest time to the first token.", kind="decimal", metavar="MS")
    ] = 2000
    tpot: Annotated[
        float,
        Flag(
            help="Longest time per output token, the first excluded.", kind="decimal", metavar="MS"
        ),
    ] = 50
    tokens: Annotated[
        str | float | None,
        Flag(
            help="Output tokens of an offline batch such as 1B, in the place of --rate; no targets.",
            metavar="N",
        ),
    ] = None
    within: Annotated[
        str | float | None,
        Flag(help="When the batch must be done: 12h, 2d.", metavar="TIME"),
    ] = None
    percentile: Percentile = "p90"
    headroom: Headroom = 0.2
    gpus: LargestInstance = None
    plan: Annotated[
        str | None,
        Flag(
            help='Words that are fixed, such as "weights=fp8 kv=fp8" (docs/serving.md).',
            kind="words",
            metavar="WORDS",
        ),
    ] = None
    engine: Engine = "vllm"
    speculative: Speculative = None
    tuned: Tuned = False
    adapters: Adapters = None
    adapter_rank: AdapterRank = None
    adapter_slots: AdapterSlots = None
    prefix_hit: PrefixHit = 0.0
    images: Images = None
    audio: Audio = None
    price: Rent = None
    prefill_gpus: Annotated[
        int | str | None,
        chip_count(
            "Prefill apart, on these chips: 8xB200 are instances of at most 8; a number: same chips."
        ),
    ] = None
    prefill_plan: Annotated[
        str | None,
        Flag(
            help='Degrees of the prefill instances that are fixed, such as "tp4".',
            kind="words",
            metavar="WORDS",
        ),
    ] = None
    top: Annotated[
        int,
        Flag(
            help="How many options to show.",
            kind="whole",
            metavar="N",
            most=1000,
            without={"study": ONE_ROW},
        ),
    ] = 10
    lengths: Annotated[
        str | None,
        Flag(
            help=f"Simulated: {SHAPES_HELP} (default: fixed).",
            metavar="SHAPE|FILE",
            names_file="maybe",
        ),
    ] = None
    simulate: Simulated = True


@dataclass(frozen=True, slots=False, kw_only=True)
class SizeQuestion(RequestSource, TargetsQuestion):
    """How many chips a service takes: `foretell size`."""

    requests: Annotated[
        int | None,
        Flag(
            help="Simulated: requests drawn, or the first of a trace (default: ten minutes of them, or all).",
            kind="whole",
            metavar="N",
            most=20_000,
            without=PLAYED,
        ),
    ] = None
    prices: PriceList = ""
    set: SettingsGiven = ()
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (
        PARETO, EXPORT_ENGINE, LAUNCHER, PLOT, JSONL, JSON,
    )  # fmt: skip


@dataclass(frozen=True, slots=False, kw_only=True)
class FleetQuestion:
    """Several models on one fleet: `foretell fleet`."""

    fleet: Annotated[
        str | Path | Mapping[str, Any],
        Flag(
            help="The fleet's file: a [[model]] table for each, with the flags of size (docs/load.md).",
            kind="table",
            metavar="FLEET.toml",
            names_file="always",
            inline="A fleet as an object: model, a list of tables with the fields of size (docs/load.md).",
        ),
    ] = field(kw_only=False)
    system: SystemName = None
    available: Annotated[
        int | None,
        Flag(
            help="Chips that there are (default: as many as it takes).",
            kind="whole",
            metavar="N",
            most=MOST_CHIPS,
        ),
    ] = None
    share: Annotated[
        bool,
        Flag(
            help="Also try models on shared chips (default), or keep every model on its own.",
            kind="switch",
        ),
    ] = True
    percentile: Percentile = "p90"
    headroom: Headroom = 0.2
    gpus: LargestInstance = None
    engine: Engine = "vllm"
    price: Rent = None
    simulate: Simulated = True
    prices: PriceList = ""
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (JSON,)
