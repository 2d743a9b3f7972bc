"""How a model is served: its layout on chips, its formats, its limits; and what is asked of it."""

from typing import Literal

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.service import LengthForm

Format = Literal["bf16", "fp16", "fp8", "fp8-block", "int8", "int4", "mxfp4", "nvfp4"]
"""Number formats of weights and of the cache."""
FORMATS: tuple[Format, ...] = (
    "bf16", "fp16", "fp8", "fp8-block", "int8", "int4", "mxfp4", "nvfp4",
)  # fmt: skip
"""All of them."""
Drafter = Literal["mtp", "eagle3", "dspark", "ngram", "model"]
"""Who drafts tokens: the model's own prediction block, a trained head, earlier text, a smaller model."""
DRAFTERS: tuple[Drafter, ...] = ("mtp", "eagle3", "dspark", "ngram", "model")
"""All of them."""
WIDE = 16
"""Ranks with experts of their own from which a deployment counts as wide."""
KV_BYTES: dict[str, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0,
    "int8": 1.0,
    "int4": 0.5625,
    "mxfp4": 0.53125,
    "nvfp4": 0.5625,
}
"""Bytes of one element of the cache with its share of the scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One instance of an engine: tp x pp x dp x cp chips that hold one copy of the model.

    The tp x dp x cp chips of a stage share the experts: ep of them hold different ones, and each expert is
    cut over the tp dp cp / ep others.
    """

    tp: int = 1
    """Ranks that cut attention heads and matrices."""
    pp: int = 1
    """Stages."""
    dp: int = 1
    """Ranks that have attention and dense parts for sequences of their own (attention data parallel)."""
    ep: int = 1
    """Ranks that hold different experts."""
    cp: int = 1
    """Ranks that share the tokens of a long prompt."""
    weights: Format = "bf16"
    """Format of the dense matrices; head, table and router stay in 16 bits."""
    experts: Format = "bf16"
    """Format of the routed experts."""
    kv: Format = "bf16"
    """Format of the cache."""
    graph: bool = True
    """Whether decode steps are replayed from a captured graph; else the host launches every kernel."""
    max_batch: int | None = None
    """Sequences at once of one data-parallel rank; None: the engine's own limit."""
    max_tokens: int | None = None
    """Tokens of a step of one data-parallel rank; None: the engine's own limit."""
    memory_fraction: float | None = None
    """Share of the memory by the engine's own rule; None: the engine's default."""
    cache_gb: float | None = None
    """Gigabytes of a chip's cache, in the place of what a fraction leaves (vLLM's kv_cache_memory_bytes)."""
    cache_tokens: int | None = None
    """Most tokens that the cache of one data-parallel rank holds (SGLang's max_total_tokens, TensorRT-LLM's
    kv_cache_config.max_tokens, vLLM's num_gpu_blocks_override x block_size); None: as the memory allows."""
    max_context: int | None = None
    """Longest request that the engine is started for (vLLM's max_model_len); None: the model's own limit, or
    what the cache holds where that is less."""
    wait_steps: float | None = None
    """Decode steps that new prompts wait for to come together (TensorRT-LLM's batch_wait_timeout_iters);
    None: the engine's own."""
    stream_interval: int = 1
    """Tokens that are sent to the client together; the first one is sent at once."""
    receive_steps: int = 1
    """Decode steps between two looks for new requests (SGLang's scheduler_recv_interval)."""
    decode_steps: int = 1
    """Decode steps before the scheduler runs again (SGLang's num_continuous_decode_steps)."""
    overlap: bool | None = None
    """Whether the host schedules beside the running step (asynchronous, overlap); None: the engine's own."""
    chunked: bool | None = None
    """Whether long prompts are cut over several steps; None: they are."""
    mixed: bool | None = None
    """Whether prompts join the decode step, else they have steps of their own; None: the engine's own."""
    graph_batch: int | None = None
    """Sequences of a rank up to which decode steps are replayed from captured graphs; None: all."""
    adapters: int = 0
    """Low-rank adapters (LoRA) that requests choose among; 0: none."""
    adapter_rank: int = 16
    """Their rank."""
    adapter_slots: int | None = None
    """Adapters that are on the chips at once (vLLM's max_loras, SGLang's max_loras_per_batch); None: all."""
    offload_gb: float = 0.0
    """Gigabytes of a chip's weights that stay on the host."""
    dispatch: str = "auto"
    """Kernels that bring tokens to experts on other ranks: a family of catalog/dispatch.toml, `gather` (all
    ranks get all tokens), or auto: the engine's own inside a node, a family made for it beyond one."""
    eplb: bool | None = None
    """Whether experts are placed, and the liked ones copied, by measured loads; None: where ep is wide."""
    redundant_experts: int | None = None
    """Copies of experts beside one of each; None: 32 where experts are balanced, or what their ranks need."""
    balance: float | None = None
    """Mean over largest load of the ranks that hold experts; None: what balancing, or the router, leaves."""
    tbo: bool | None = None
    """Whether a step's two halves compute and communicate by turns; None: where that is faster between
    nodes."""
    draft_tokens: int = 0
    """Tokens that multi-token prediction or a draft proposes for each step; 0: none."""
    accepted: float = 0.0
    """Of these, how many are kept on the mean."""
    drafter: Drafter = "mtp"
    """Who proposes them."""

    @property
    def gpus(self) -> int:
        """Chips of one instance."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def stage(self) -> int:
        """Chips of one stage, which share the experts."""
        return self.tp * self.dp * self.cp

    @property
    def is_wide(self) -> bool:
        """Whether experts are spread over many ranks with sequences of their own."""
        return self.ep >= WIDE and self.dp > 1


Batching = Literal["continuous", "static", "offline"]
"""continuous: requests come and go; static: one batch, its prompts together and no new ones until its last
answer; offline: an endless queue, of which as many run as fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What is asked of an instance; lengths in tokens."""

    isl: Num
    """Prompt."""
    osl: Num
    """Answer."""
    concurrency: Num
    """Requests in flight: each answered one is followed by the next."""
    least: float = 1.0
    """Lengths are drawn evenly between this share of isl and osl and the whole of them."""
    waves: float = 10.0
    """Requests over concurrency: all of the first wave are sent at once."""
    cached: float = 0.0
    """Share of a prompt's tokens that a prefix cache has already."""
    lengths: LengthForm | None = None
    """How lengths spread where requests are simulated; None: as isl, osl and `least` say."""
