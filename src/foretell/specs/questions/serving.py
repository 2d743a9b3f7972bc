"""The question about serving: a deployment under a load."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from foretell.records import dataclass
from foretell.specs.deployment import Batching
from foretell.specs.questions.common import (
    CLOSED_FORM,
    EXPORT_ENGINE,
    IMPORTS,
    JSON,
    JSONL,
    LAUNCHER,
    MOST_LENGTH,
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
from foretell.specs.questions.flags import Flag, Surface
from foretell.specs.questions.plan_flags import DegreeFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import LayoutGiven

PLAYED: Mapping[Surface, str] = {"study": CLOSED_FORM}
"""Where requests are not simulated."""
PromptLength = Annotated[
    float, Flag(help="Tokens of a prompt.", kind="decimal", metavar="N", most=MOST_LENGTH)
]
AnswerLength = Annotated[
    float, Flag(help="Tokens of an answer.", kind="decimal", metavar="N", most=2**17)
]
SERVED_PROMPT, SERVED_ANSWER = (
    Flag(help=f"Of a service: tokens of {what}.", kind="decimal", metavar="N", most=most)
    for what, most in (("a prompt", MOST_LENGTH), ("an answer", 2**17))
)
CONCURRENCY, RATE = (
    Flag(
        help="Concurrent requests, all instances together.",
        kind="decimal",
        metavar="N",
        most=2**16,
    ),
    Flag(
        help="Requests per second, in the place of --concurrency.",
        kind="decimal",
        metavar="R",
        most=1e5,
    ),
)
Spread = Annotated[
    float,
    Flag(
        help="Lengths are spread evenly from this share to the whole; 1: all alike.",
        kind="decimal",
        metavar="X",
    ),
]
Rent = Annotated[
    float | None,
    Flag(help="Rent of a chip-hour (default: the catalogue's).", kind="price", metavar="USD"),
]


Speculative = Annotated[
    str | None,
    Flag(
        help="Drafter and tokens drafted a step: mtp:3, eagle3:5, ngram:4; no: none.",
        metavar="METHOD[:N]",
    ),
]


Tuned = Annotated[
    bool,
    Flag(
        help="With the options that the engine's public recipes set; without it, with its defaults.",
        kind="switch",
    ),
]

PrefixHit = Annotated[
    float,
    Flag(
        help="Share of a prompt's tokens that the prefix cache has already (default: 0).",
        kind="decimal",
        metavar="SHARE",
    ),
]


Adapters = Annotated[
    int | None,
    Flag(
        help="LoRA adapters that requests choose among, each as likely as the others (default: none).",
        kind="whole",
        metavar="N",
        most=1e6,
    ),
]
AdapterRank = Annotated[
    int | None,
    Flag(help="Rank of the adapters (default: 16).", kind="whole", metavar="R", most=2**14),
]
AdapterSlots = Annotated[
    int | None,
    Flag(
        help="Adapters on the chips at once (vLLM's max_loras), others wait (default: all).",
        kind="whole",
        metavar="N",
        most=1e6,
    ),
]


Images = Annotated[
    str | None,
    Flag(
        help="Images of every request: 1024x1024, or 2x1280x720; their tokens come on top of --isl.",
        metavar="[N]xWxH",
    ),
]
Audio = Annotated[
    float | None,
    Flag(
        help="Seconds of audio of every request; its tokens come on top of --isl.",
        kind="decimal",
        metavar="S",
        most=1e5,
    ),
]


@dataclass(frozen=True, slots=False, kw_only=True)
class LoadQuestion(DegreeFlags):
    """A deployment of a model under a load."""

    model: ModelName = field(kw_only=False)
    system: SystemName = None
    gpus: Annotated[
        int | str | None,
        chip_count("Chips of all instances; 8xH100 names the system too."),
    ] = None
    isl: PromptLength = 1024
    osl: AnswerLength = 1024
    concurrency: Annotated[float | None, CONCURRENCY] = None
    rate: Annotated[float | None, RATE] = None
    plan: Annotated[
        "LayoutGiven | None",
        Flag(
            help='Words such as "tp4 weights=fp8 kv=fp8" (docs/serving.md); without, the best.',
            kind="words",
            metavar="WORDS",
        ),
    ] = None
    engine: Engine = None


@dataclass(frozen=True, slots=False, kw_only=True)
class RequestSource:
    """Which requests are simulated: how they come, what they have in common, where they go."""

    arrivals: Annotated[
        str | None,
        Flag(
            help="Simulated: closed, poisson, gamma, burst, or a .csv or .jsonl trace.",
            metavar="KIND|FILE",
            names_file="maybe",
            without=PLAYED,
        ),
    ] = None
    seed: Annotated[
        int | None,
        Flag(
            help="Simulated: seed of all random draws (default 0).",
            kind="whole",
            metavar="N",
            without=PLAYED,
        ),
    ] = None
    prefixes: Annotated[
        int | None,
        Flag(
            help="Simulated: number of distinct shared prefixes.",
            kind="whole",
            metavar="N",
            most=20_000,
            without=PLAYED,
        ),
    ] = None
    prefix_tokens: Annotated[
        int | None,
        Flag(
            help="Simulated: tokens of a shared prefix, on top of --isl.",
            kind="whole",
            metavar="N",
            without=PLAYED,
        ),
    ] = None
    routing: Annotated[
        str | None,
        Flag(
            help="Simulated: round-robin (default), least-loaded, prefix-aware or sticky.",
            metavar="RULE",
            without=PLAYED,
        ),
    ] = None
    trace_unit: Annotated[
        str | None,
        Flag(
            help="Simulated: unit of a trace's timestamps: s, ms, us or ns (default: its format's).",
            metavar="UNIT",
            without=PLAYED,
        ),
    ] = None
    block_tokens: Annotated[
        int | None,
        Flag(
            help="Simulated: tokens of one hash id of a trace (default 512 or 16, whichever fits).",
            kind="whole",
            metavar="N",
            without=PLAYED,
        ),
    ] = None
    sessions: Annotated[
        str | None,
        Flag(
            help='Simulated: requests as turns of sessions, e.g. "turns=8 pause=5 new=500".',
            metavar="WORDS",
            without=PLAYED,
        ),
    ] = None
    kv_tiers: Annotated[
        str | None,
        Flag(
            help='Simulated: KV tiers behind the GPUs, e.g. "host:1TB@50GB/s ssd:8TB@6GB/s".',
            metavar="TIERS",
            without=PLAYED,
        ),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class RequestOptions(RequestSource):
    """Whether requests are simulated, and what is known of them (serving/simulation_options.py)."""

    simulate: Annotated[
        bool | Mapping[str, Any],
        Flag(
            help="Simulate request by request instead of the closed form.",
            kind="switch",
            without=PLAYED,
        ),
    ] = False
    lengths: Annotated[
        str | None,
        Flag(
            help=f"With --simulate: {SHAPES_HELP}; default fixed, or uniform with --spread.",
            metavar="SHAPE|FILE",
            names_file="maybe",
            without=PLAYED,
        ),
    ] = None
    autoscale: Annotated[
        str | None,
        Flag(
            help='With --simulate: autoscaling, e.g. "min=1 max=16 start=120 target=0.7".',
            metavar="WORDS",
            without=PLAYED,
        ),
    ] = None
    queue_limit: Annotated[
        int | None,
        Flag(
            help="With --simulate: requests that may wait at an instance; one more is refused.",
            kind="whole",
            metavar="N",
            without=PLAYED,
        ),
    ] = None
    urgent: Annotated[
        float | None,
        Flag(
            help="With --simulate: share of the requests that go before others that wait.",
            kind="decimal",
            metavar="SHARE",
            without=PLAYED,
        ),
    ] = None
    fail_at: Annotated[
        str | None,
        Flag(
            help="With --simulate: when one of the instances fails, as in 60s; others do its work anew.",
            metavar="TIME",
            without=PLAYED,
        ),
    ] = None
    preemption: Annotated[
        str | None,
        Flag(
            help="With --simulate: recompute (default) or swap, when the KV cache is full.",
            metavar="RULE",
            without=PLAYED,
        ),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class ServiceQuestion(LoadQuestion):
    """A deployment under a load, and what its chips are rented for."""

    price: Rent = None
    prices: PriceList = ""
    spread: Spread = 1.0
    prefix_hit: PrefixHit = 0.0
    speculative: Speculative = None
    tuned: Tuned = False
    adapters: Adapters = None
    adapter_rank: AdapterRank = None
    adapter_slots: AdapterSlots = None
    ttft: Annotated[
        float | None,
        Flag(
            help="Longest time to the first token that is good service: goodput counts requests within.",
            kind="decimal",
            metavar="MS",
        ),
    ] = None
    tpot: Annotated[
        float | None,
        Flag(
            help="Longest time per output token that is good service, likewise.",
            kind="decimal",
            metavar="MS",
        ),
    ] = None
    images: Images = None
    audio: Audio = None
    prefill_gpus: Annotated[
        int | str | None,
        chip_count(
            "Chips that do prefill alone: a number is taken out of --gpus, 8xB200 is added."
        ),
    ] = None
    prefill_plan: Annotated[
        str | None,
        Flag(
            help="Layout and engine options of these (default: that of --plan where it fits).",
            kind="words",
            metavar="WORDS",
        ),
    ] = None
    set: SettingsGiven = ()
    warnings: Annotated[
        Sequence[str],
        Flag(help="What of an imported command is not in the answer.", kind="function"),
    ] = ()


@dataclass(frozen=True, slots=False, kw_only=True)
class ServingQuestion(RequestOptions, ServiceQuestion):
    """One deployment under one load: `foretell serve`."""

    requests: Annotated[
        int | None,
        Flag(
            help="Requests of a benchmark (default: 10 for each concurrent one), or of --simulate (2000).",
            kind="whole",
            metavar="N",
            most=20_000,
            without=PLAYED,
        ),
    ] = None
    warmup: Annotated[
        int | None,
        Flag(
            help="Of a benchmark's requests, the first N that are not counted (default 0).",
            kind="whole",
            metavar="N",
            most=20_000,
            without=PLAYED,
        ),
    ] = None
    batching: Annotated[
        Batching,
        Flag(
            help="continuous; static: one batch of --concurrency requests; offline: an endless queue.",
            without=PLAYED,
        ),
    ] = "continuous"
    steps: Annotated[
        int | None,
        Flag(
            help="Of a traced diffusion model: steps of a sample (default: 1).",
            kind="whole",
            metavar="N",
            most=2**24,
        ),
    ] = None
    passes: Annotated[
        int | None,
        Flag(
            help="Its passes in a step, one after the other (default: 1).",
            kind="whole",
            metavar="N",
            most=100,
        ),
    ] = None
    rows: Annotated[
        int | None,
        Flag(
            help="Rows of its traced batch for a sample: 2 where guidance has both in one pass (default: 1).",
            kind="whole",
            metavar="N",
            most=100,
        ),
    ] = None
    once: Annotated[
        str | Sequence[str],
        Flag(
            help="Traces that run once for a sample: text encoders, the decoder of latents.",
            kind="texts",
            metavar="FILE",
            names_file="always",
        ),
    ] = ()
    images_per_s: Annotated[
        float | None,
        Flag(
            help="Samples a second that are wanted: says how many GPUs give them.",
            kind="decimal",
            metavar="R",
            most=1e9,
        ),
    ] = None
    fit: Annotated[
        bool,
        Flag(
            help="Also the longest context, the most sequences and the largest model that fit, by engine.",
            kind="switch",
        ),
    ] = False
    measured: MeasuredRuns = ()
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, *IMPORTS, EXPORT_ENGINE, LAUNCHER, JSONL, JSON)
