"""The question about serving: a deployment under a load."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
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
from foretell.specs.questions.flags import Flag, Surface, decimal, flag, switch, whole
from foretell.specs.questions.plan_flags import DegreeFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import LayoutGiven

PLAYED: Mapping[Surface, str] = {"study": CLOSED_FORM}
"""Where requests are not simulated."""
played, played_count = partial(flag, without=PLAYED), partial(whole, without=PLAYED)
"""Flags of that: texts, and whole numbers."""
PromptLength = Annotated[float, decimal("Tokens of a prompt.", most=MOST_LENGTH)]
AnswerLength = Annotated[float, decimal("Tokens of an answer.", most=2**17)]
SERVED_PROMPT, SERVED_ANSWER = (
    decimal(f"Of a service: tokens of {what}.", most=most)
    for what, most in (("a prompt", MOST_LENGTH), ("an answer", 2**17))
)
CONCURRENCY, RATE = (
    decimal("Concurrent requests, all instances together.", most=2**16),
    decimal("Requests per second, in the place of --concurrency.", "R", most=1e5),
)
Spread = Annotated[
    float, decimal("Lengths are spread evenly from this share to the whole; 1: all alike.", "X")
]
Rent = Annotated[
    float | None, flag("Rent of a chip-hour (default: the catalogue's).", "USD", "price")
]


Speculative = Annotated[
    str | None,
    flag("Drafter and tokens drafted a step: mtp:3, eagle3:5, ngram:4; no: none.", "METHOD[:N]"),
]


Tuned = Annotated[
    bool,
    switch("With the options that the engine's public recipes set; without it, with its defaults."),
]

PrefixHit = Annotated[
    float,
    decimal("Share of a prompt's tokens that the prefix cache has already (default: 0).", "SHARE"),
]


Adapters = Annotated[
    int | None,
    whole(
        "LoRA adapters that requests choose among, each as likely as the others (default: none).",
        most=1e6,
    ),
]
AdapterRank = Annotated[int | None, whole("Rank of the adapters (default: 16).", "R", most=2**14)]
AdapterSlots = Annotated[
    int | None,
    whole(
        "Adapters on the chips at once (vLLM's max_loras), others wait (default: all).", most=1e6
    ),
]


Images = Annotated[
    str | None,
    flag(
        "Images of every request: 1024x1024, or 2x1280x720; their tokens come on top of --isl.",
        "[N]xWxH",
    ),
]
Audio = Annotated[
    float | None,
    decimal("Seconds of audio of every request; its tokens come on top of --isl.", "S", most=1e5),
]


Warmup = Annotated[
    int | None,
    played_count(
        "Of a benchmark's requests, the first N that are not counted (default 0).", most=20_000
    ),
]
BatchTokens = Annotated[
    str | float | None,
    flag(
        "Output tokens of an offline batch such as 1B, in the place of --rate.", "N", without=PLAYED
    ),
]
BatchDeadline = Annotated[
    str | float | None, flag("When the batch must be done: 12h, 2d.", "TIME", without=PLAYED)
]


@dataclass(frozen=True, slots=False, kw_only=True)
class LoadQuestion(DegreeFlags):
    """A deployment of a model under a load."""

    model: ModelName = field(kw_only=False)
    system: SystemName = None
    gpus: Annotated[
        int | str | None, chip_count("Chips of all instances; 8xH100 names the system too.")
    ] = None
    isl: PromptLength = 1024
    osl: AnswerLength = 1024
    concurrency: Annotated[float | None, CONCURRENCY] = None
    rate: Annotated[float | None, RATE] = None
    plan: Annotated[
        "LayoutGiven | None",
        flag(
            'Words such as "tp4 weights=fp8 kv=fp8" (docs/serving.md); without, the best.',
            "WORDS",
            "words",
        ),
    ] = None
    engine: Engine = None


@dataclass(frozen=True, slots=False, kw_only=True)
class RequestSource:
    """Which requests are simulated: how they come, what they have in common, where they go."""

    arrivals: Annotated[
        str | None,
        played(
            "Simulated: closed, poisson, gamma, burst, or a .csv or .jsonl trace.",
            "KIND|FILE",
            names_file="maybe",
        ),
    ] = None
    seed: Annotated[
        int | None, played_count("Simulated: seed of all random draws (default 0).")
    ] = None
    prefixes: Annotated[
        int | None, played_count("Simulated: number of distinct shared prefixes.", most=20_000)
    ] = None
    prefix_tokens: Annotated[
        int | None, played_count("Simulated: tokens of a shared prefix, on top of --isl.")
    ] = None
    routing: Annotated[
        str | None,
        played("Simulated: round-robin (default), least-loaded, prefix-aware or sticky.", "RULE"),
    ] = None
    trace_unit: Annotated[
        str | None,
        played(
            "Simulated: unit of a trace's timestamps: s, ms, us or ns (default: its format's).",
            "UNIT",
        ),
    ] = None
    block_tokens: Annotated[
        int | None,
        played_count(
            "Simulated: tokens of one hash id of a trace (default 512 or 16, whichever fits)."
        ),
    ] = None
    sessions: Annotated[
        str | None,
        played(
            'Simulated: requests as turns of sessions, e.g. "turns=8 pause=5 new=500".', "WORDS"
        ),
    ] = None
    kv_tiers: Annotated[
        str | None,
        played(
            'Simulated: KV tiers behind the GPUs, e.g. "host:1TB@50GB/s ssd:8TB@6GB/s".', "TIERS"
        ),
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class RequestOptions(RequestSource):
    """Whether requests are simulated, and what is known of them (serving/simulation_options.py)."""

    simulate: Annotated[
        bool | Mapping[str, Any],
        switch("Simulate request by request instead of the closed form.", without=PLAYED),
    ] = False
    lengths: Annotated[
        str | None,
        played(
            f"With --simulate: {SHAPES_HELP}; default fixed, or uniform with --spread.",
            "SHAPE|FILE",
            names_file="maybe",
        ),
    ] = None
    autoscale: Annotated[
        str | None,
        played('With --simulate: autoscaling, e.g. "min=1 max=16 start=120 target=0.7".', "WORDS"),
    ] = None
    queue_limit: Annotated[
        int | None,
        played_count(
            "With --simulate: requests that may wait at an instance; one more is refused."
        ),
    ] = None
    urgent: Annotated[
        float | None,
        decimal(
            "With --simulate: share of the requests that go before others that wait.",
            "SHARE",
            without=PLAYED,
        ),
    ] = None
    fail_at: Annotated[
        str | None,
        played(
            "With --simulate: when one of the instances fails, as in 60s; others do its work anew.",
            "TIME",
        ),
    ] = None
    preemption: Annotated[
        str | None,
        played("With --simulate: recompute (default) or swap, when the KV cache is full.", "RULE"),
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
        decimal(
            "Longest time to the first token that is good service: goodput counts requests within.",
            "MS",
        ),
    ] = None
    tpot: Annotated[
        float | None, decimal("Longest time per output token that is good service, likewise.", "MS")
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
        flag(
            "Layout and engine options of these (default: that of --plan where it fits).",
            "WORDS",
            "words",
        ),
    ] = None
    set: SettingsGiven = ()
    warnings: Annotated[
        Sequence[str], flag("What of an imported command is not in the answer.", kind="function")
    ] = ()


@dataclass(frozen=True, slots=False, kw_only=True)
class ServingQuestion(RequestOptions, ServiceQuestion):
    """One deployment under one load: `foretell serve`."""

    requests: Annotated[
        int | None,
        played_count(
            "Requests of a benchmark (default: 10 for each concurrent one), or of --simulate (2000).",
            most=20_000,
        ),
    ] = None
    warmup: Warmup = None
    batching: Annotated[
        Batching,
        played(
            "continuous; static: one batch of --concurrency requests; offline: an endless queue."
        ),
    ] = "continuous"
    tokens: BatchTokens = None
    within: BatchDeadline = None
    steps: Annotated[
        int | None,
        whole("Of a traced diffusion model: steps of a sample (default: 1).", most=2**24),
    ] = None
    passes: Annotated[
        int | None, whole("Its passes in a step, one after the other (default: 1).", most=100)
    ] = None
    rows: Annotated[
        int | None,
        whole(
            "Rows of its traced batch for a sample: 2 where guidance has both in one pass (default: 1).",
            most=100,
        ),
    ] = None
    once: Annotated[
        str | Sequence[str],
        flag(
            "Traces that run once for a sample: text encoders, the decoder of latents.",
            "FILE",
            "texts",
            names_file="always",
        ),
    ] = ()
    images_per_s: Annotated[
        float | None,
        decimal("Samples a second that are wanted: says how many GPUs give them.", "R", most=1e9),
    ] = None
    fit: Annotated[
        bool,
        switch(
            "Also the longest context, the most sequences and the largest model that fit, by engine."
        ),
    ] = False
    measured: MeasuredRuns = ()
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, *IMPORTS, EXPORT_ENGINE, LAUNCHER, JSONL, JSON)
