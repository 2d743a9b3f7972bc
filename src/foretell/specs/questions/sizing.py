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
from foretell.specs.questions.flags import Flag, decimal, flag, switch, whole
from foretell.specs.questions.plan_flags import DegreeFlags
from foretell.specs.questions.serving import (
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
    Warmup,
    played_count,
)

PARETO = switch(
    "Also show the Pareto front: tokens/s of a user against tokens/s of a GPU.",
    names=("pareto",),
    without={"web": "every answer has the front"},
)
Percentile = Annotated[
    str, flag("For how many requests both hold: mean, p50, p90, p95 or p99.", "P")
]
Headroom = Annotated[float, decimal("Reserve over the rate, as a share of it.", "X")]
LargestInstance = Annotated[
    int | str | None, chip_count("Most chips of one instance (default: 64).")
]
Simulated = Annotated[
    bool,
    switch("Simulate the best options request by request (default), or trust the closed form."),
]


@dataclass(frozen=True, slots=False, kw_only=True)
class TargetsQuestion(DegreeFlags):
    """A service, its load and its latency targets."""

    model: ModelName = field(kw_only=False)
    rate: Annotated[
        float | None,
        decimal(
            "Requests per second to be answered; a trace is scaled to it.", "R", most=RATE.most
        ),
    ] = None
    system: SystemName = None
    measured: MeasuredRuns = ()
    isl: PromptLength = 1024
    osl: AnswerLength = 1024
    ttft: Annotated[float, decimal("Longest time to the first token.", "MS")] = 2000
    tpot: Annotated[float, decimal("Longest time per output token, the first excluded.", "MS")] = 50
    tokens: Annotated[
        str | float | None,
        flag(
            "Output tokens of an offline batch such as 1B, in the place of --rate; no targets.", "N"
        ),
    ] = None
    within: Annotated[str | float | None, flag("When the batch must be done: 12h, 2d.", "TIME")] = (
        None
    )
    percentile: Percentile = "p90"
    headroom: Headroom = 0.2
    gpus: LargestInstance = None
    plan: Annotated[
        str | None,
        flag(
            'Words that are fixed, such as "weights=fp8 kv=fp8" (docs/serving.md).',
            "WORDS",
            "words",
        ),
    ] = None
    engine: Engine = None
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
        flag('Degrees of the prefill instances that are fixed, such as "tp4".', "WORDS", "words"),
    ] = None
    top: Annotated[
        int, whole("How many options to show.", most=1000, without={"study": ONE_ROW})
    ] = 10
    lengths: Annotated[
        str | None,
        flag(f"Simulated: {SHAPES_HELP} (default: fixed).", "SHAPE|FILE", names_file="maybe"),
    ] = None
    simulate: Simulated = True


@dataclass(frozen=True, slots=False, kw_only=True)
class SizeQuestion(RequestSource, TargetsQuestion):
    """How many chips a service takes: `foretell size`."""

    requests: Annotated[
        int | None,
        played_count(
            "Requests of a benchmark of the best option (default: 10 for each concurrent one); with "
            "--arrivals or --sessions, how many are simulated (default: ten minutes of them, or all).",
            most=20_000,
        ),
    ] = None
    warmup: Warmup = None
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
        flag(
            "The fleet's file: a [[model]] table for each, with the flags of size (docs/load.md).",
            "FLEET.toml",
            "table",
            names_file="always",
            inline="A fleet as an object: model, a list of tables with the fields of size (docs/load.md).",
        ),
    ] = field(kw_only=False)
    system: SystemName = None
    available: Annotated[
        int | None, whole("Chips that there are (default: as many as it takes).", most=MOST_CHIPS)
    ] = None
    share: Annotated[
        bool, switch("Also try models on shared chips (default), or keep every model on its own.")
    ] = True
    percentile: Percentile = "p90"
    headroom: Headroom = 0.2
    gpus: LargestInstance = None
    engine: Engine = None
    price: Rent = None
    simulate: Simulated = True
    prices: PriceList = ""
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (JSON,)
