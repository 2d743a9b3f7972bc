"""A service's numbers: lengths of requests, latencies, rates, memory, cost and energy of one deployment."""

from dataclasses import fields
from typing import Any, Literal, get_args

from foretell.records import dataclass

LengthShape = Literal["lognormal", "fixed", "uniform", "exponential"]
SHAPES: tuple[LengthShape, ...] = get_args(LengthShape)
"""How lengths may spread around their mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthForm:
    """How the lengths of requests spread."""

    shape: LengthShape = "fixed"
    """Around the mean that is given beside it, where there are no samples."""
    answers: tuple[float, ...] = ()
    """Answer tokens of the requests of a file; empty: a shape was named."""
    prompts: tuple[float, ...] = ()
    """Prompt tokens of the same requests; empty: the file has none."""

    @property
    def answer_mean(self) -> float:
        """Mean answer of the samples."""
        return sum(self.answers) / len(self.answers)

    @property
    def prompt_mean(self) -> float:
        """Mean prompt of the samples."""
        return sum(self.prompts) / len(self.prompts)


Interval = dict[str, tuple[float, float]]
"""p50 and p90, each (low, high)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """A latency over requests; milliseconds."""

    mean: float
    """Mean."""
    p50: float
    """Median."""
    p90: float
    """What nine in ten stay below."""
    p95: float
    """What nineteen in twenty stay below."""
    p99: float
    """What ninety-nine in a hundred stay below."""

    def to_dict(self) -> dict[str, float]:
        """The JSON shape."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFigures:
    """A service as a benchmark measures it: a fixed concurrency, all of the first wave sent at once."""

    requests: int
    """Requests sent."""
    warmup: int
    """The first of them, which no figure counts."""
    ttft_ms: Percentiles
    """Time to the first token, the wait of the first wave included."""
    steady_ttft_ms: float
    """Mean time to the first token of the requests behind the first wave."""
    tpot_ms: Percentiles
    """Time per output token, the first excluded."""
    e2e_ms: Percentiles
    """Time of a whole request."""
    output_tokens_per_s: float
    """All output tokens over the whole time, the drain at the end included."""
    duration_s: float
    """From the first request to the last token."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        latencies = {name: found[name].to_dict() for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
        return found | latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEstimate:
    """One deployment under one load."""

    model: str
    """Model id."""
    system: str
    """System id."""
    gpus: int
    """Chips of all instances, those of prefill included."""
    replicas: int
    """Instances; where prefill is apart, those that decode."""
    plan: str
    """The deployment of one instance, as words."""
    plan_chosen: bool
    """Whether Foretell chose it."""
    profile: str
    """The engine profile used."""
    isl: float
    """Tokens of a prompt."""
    osl: float
    """Tokens of an answer."""
    concurrency: float
    """Concurrent requests, all instances together."""
    rate: float | None
    """Requests a second that arrive; None under a fixed concurrency."""
    simulated: bool
    """Whether a simulation gave the latencies rather than the closed form."""
    fits: str
    """yes or no: whether the model and one request fit."""
    ttft_ms: Percentiles
    """Time to the first token, from arrival."""
    tpot_ms: Percentiles
    """Time per output token, the first excluded: (e2e - ttft) / (tokens - 1)."""
    tpot_with_first_ms: Percentiles
    """Time per output token, the first included: e2e / tokens."""
    e2e_ms: Percentiles
    """Time of a whole request."""
    requests_per_s: float
    """Requests answered a second, all instances together."""
    output_tokens_per_s: float
    """Output tokens a second, all instances together."""
    output_tokens_per_s_per_gpu: float
    """The same of one chip."""
    output_tokens_per_s_per_user: float
    """Output tokens a second that one user sees after the first."""
    batch: float
    """Sequences decoding in one instance."""
    max_batch: int
    """Sequences that one instance can hold: by its cache and its limit."""
    max_context: int
    """Longest sequence that the cache of one instance holds."""
    kv_cache_tokens: int
    """Tokens of the cache of one data-parallel rank, as vLLM logs "GPU KV cache size"."""
    max_model_len: int
    """Longest request that the engine is started for: as given, or the model's, or what the cache holds."""
    max_concurrency: float
    """Requests of that length at once, as vLLM logs "Maximum concurrency"."""
    kv_bytes: float
    """Cache of one chip."""
    weight_bytes: float
    """Weights of one chip."""
    memory_bytes: float
    """Memory of one chip."""
    usd_per_million_input_tokens: float | None
    """Rent for the steps that read prompts; None where no rent is known."""
    usd_per_million_output_tokens: float | None
    """Rent for the steps that write answers."""
    usd_per_chip_hour: float | None
    """The rent taken."""
    price_source: str
    """Where it comes from."""
    joules_per_token: float
    """Joules of all chips for each output token, prompts included."""
    joules_per_input_token: float
    """Joules of reading prompts for each of their tokens."""
    joules_per_output_token: float
    """Joules of writing answers for each of their tokens."""
    tokens_per_joule: float
    """Output tokens for each joule of all chips."""
    limited_by: str
    """What a step, or the number of requests, waits for most."""
    step_ms: dict[str, float]
    """A decode step by its parts."""
    interval: dict[str, Interval] | None
    """Of the means of ttft_ms and tpot_ms, from the residuals of the profile."""
    evidence: str
    """Whether the profile was fitted on the chip's generation, or carried over."""
    assumptions: tuple[str, ...]
    """Every default or guess."""
    overrides: dict[str, object]
    """Fields set by hand."""
    usd_per_chip_hour_range: tuple[float, float] | None = None
    """The cheapest and the dearest of the offers that the rent is the median of; None: one price alone."""
    goodput_requests_per_s: float | None = None
    """Requests a second within the latency targets; None where none were given."""
    warnings: tuple[str, ...] = ()
    """What bears on the answer and is not in it, such as options of an imported command."""
    prefill_system: str | None = None
    """System of the prefill instances; None: prompts and answers have the same instances."""
    prefill_gpus: int | None = None
    """Chips of the prefill instances."""
    prefill_replicas: int | None = None
    """How many they are."""
    prefill_plan: str | None = None
    """Their layout, as words."""
    prefill_busy: float | None = None
    """Share of the time that they are in a step."""
    transfer_ms: float | None = None
    """What a prompt's cache takes to a decode instance."""
    fit: tuple[Any, ...] | None = None
    """What each engine fits on the chips of an instance (serving/fit.py); None where it was not asked for."""
    batching: str = "continuous"
    """How requests share steps: continuous, static or offline."""
    offline: dict[str, Any] | None = None
    """When a batch of tokens is done, whether that is in time, and what it costs; None without one."""
    benchmark: BenchmarkFigures | None = None
    """The same service as a benchmark measures it; None under a rate of requests."""
    percentiles_from: str = "closed form"
    """What p90, p95 and p99 are from: simulated requests, or the closed form. Means and medians are the
    closed form's unless `simulated`."""
    simulation: dict[str, Any] | None = None
    """What only a request-level simulation gives: goodput, queues, preemptions, the cache over time."""
    prior: dict[str, Any] | None = None
    """The same numbers before they were conditioned on measured services; None where nothing was measured."""
    interval_reason: str = ""
    """Why the interval of the time per output token is as wide as it is, and what would narrow it."""
    posterior_factors: dict[str, Any] | None = None
    """Mechanism -> what it takes over what was predicted, with its interval; None where nothing was
    measured."""
