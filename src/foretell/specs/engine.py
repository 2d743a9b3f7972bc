"""A serving engine of one generation: what of a step, of the memory and of the waiting is its own."""

from typing import Literal

from foretell.records import dataclass
from foretell.specs.model import EncoderLoad

GraphMemory = Literal["after", "before"]
"""When the memory of captured graphs is taken: after the cache was sized (it comes out of the share that the
engine leaves free), or before (the cache is what is left)."""
ShareRule = Literal["fixed", "by-ranks", "reserved"]
"""How the default share of the memory is found: a number; by tensor-parallel ranks (SGLang 0.3 and 0.4); what
a reserve for activations and graphs leaves (SGLang from 0.4.8 on)."""
TokenReport = Literal["blocks", "concurrency"]
"""What the log calls the tokens of the cache: blocks x tokens of a block over the groups of layers, or
the largest concurrency x the longest request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRelease:
    """What the code of one release does."""

    engine: str
    """vllm, sglang, trtllm, llamacpp or another engine of the profiles."""
    release: str
    """First version that does so; empty: any."""
    released: str
    """Its month, as 2026-04."""
    source: str
    """Files and tables that it was read from."""
    share: ShareRule = "fixed"
    """How the share of the memory is found where none is given."""
    memory_fraction: float = 0.9
    """The default share, where it is a number."""
    library_bytes: float = 0.5 * 2**30
    """What one process holds outside of PyTorch and the engine counts: context, modules, handles."""
    communicator_bytes: float = 0.0
    """The same of NCCL and of all-reduce kernels where ranks exchange."""
    nvls_bytes: float = 0.0
    """What communicators hold besides on Hopper and newer, where they use multicast over NVLink."""
    sampler_copies: float = 0.0
    """Scores of all sequences that are there at once in the profiled step, in copies of fp32."""
    sampler_rows: int = 0
    """Rows of a buffer that the sampler keeps besides, one for each of so many thread blocks."""
    whole_prompts: bool = False
    """Whether a step is profiled with one prompt of the longest request, not with the tokens of a chunk."""
    graph_memory: GraphMemory = "after"
    """When the memory of graphs is taken."""
    block_tokens: int = 16
    """Tokens of a block of the cache."""
    token_report: TokenReport = "blocks"
    """What the log calls the tokens of the cache."""
    rotary_bytes: float = 0.0
    """Bytes of an element of the table of rotary angles, which has a row for every position of the model."""
    padded_experts: bool = False
    """Whether experts in mxfp4 are padded to multiples of 128 and 256."""
    connector: str = ""
    """What hands caches over between prefill and decode; empty: the release cannot have them apart."""
    prefill_stages: bool = False
    """Whether prefill instances that hand over their cache may have pipeline stages."""
    decode_stages: bool = False
    """Whether decode instances that receive it may have stages."""
    moved_states: bool = True
    """Whether the states of recurrences are handed over too."""
    staged_ranks: bool = False
    """Whether attention may be data parallel on pipeline stages."""
    staged_experts: bool = True
    """Whether experts may be spread over the ranks of pipeline stages."""
    staged_drafts: bool = False
    """Whether drafts run on pipeline stages."""
    cut_ranks: bool = True
    """Whether ranks with sequences of their own may cut their heads too (tp and dp both above 1)."""
    uneven_experts: bool = False
    """Whether ranks may hold different numbers of experts."""
    unspread_formats: tuple[str, ...] = ()
    """Formats of experts that cannot be spread over ranks."""
    vendors: tuple[str, ...] = ()
    """Whose chips it runs on; empty: of any vendor."""


MemoryRule = Literal["vllm", "trtllm", "sglang", "none"]
"""Whose rule says how much memory the cache gets; none: a loop without an engine takes what is left."""
Policy = Literal["mixed", "prefill-first"]
"""mixed: prompts join the decode step; prefill-first: they have a step of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a profile was fitted to, and how well; errors are medians of |predicted / measured - 1|."""

    rows: int
    """Rows of measurements."""
    tpot_ape: float | None = None
    """Of the time per output token; None where none was measured."""
    ttft_ape: float | None = None
    """Of the time to the first token."""
    throughput_ape: float | None = None
    """Of the throughput."""
    left_out_tpot_ape: float | None = None
    """Of the time per output token, with the row's group (model x chip x engine) left out of the fit."""
    left_out_ttft_ape: float | None = None
    """The same of the time to the first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One generation of an engine on one generation of chips."""

    id: str
    """Its name: `--engine NAME`."""
    engine: str
    """vllm, trtllm, sglang, transformers, tgi, llamacpp, mlx, torch, nemo."""
    since: str
    """First version or year it stands for; empty: any."""
    until: str
    """Last version or year; empty: any."""
    years: tuple[int, int]
    """First and last year it stands for, where a version is stated as a date; 0: to this day."""
    architectures: tuple[str, ...]
    """Chip generations it was fitted on; empty: any."""
    software: tuple[str, ...]
    """Whose kernel tables it runs by, the nearest first."""
    source: str
    """What the numbers were read from."""
    experts_software: tuple[str, ...] = ()
    """Whose tables its fused experts run by before those, where their kernels are another library's."""
    experts_others: tuple[str, ...] = ()
    """Whose tables they run by instead where those are faster: the engine has several kernels for a layer."""
    gathers_narrow: bool = False
    """Whether ranks with tokens of their own cast them to the experts' format before they gather them."""
    fit: Fit
    """How well they hold."""
    families: tuple[str, ...] = ()
    """Kinds of models that its overheads were fitted on: dense, mixture; empty: any."""
    layouts: tuple[str, ...] = ()
    """Kinds of layouts that they were fitted on: tensor, experts, attention-dp, wide, stages; empty: any."""
    overlapped: bool = True
    """Whether the next step is scheduled while one runs, so that little of the host shows."""
    custom_all_reduce: bool = True
    """Whether the engine has all-reduce kernels of its own inside a node; else NCCL's."""
    exchange_s: float = 0.0
    """What each all-reduce takes longer for each doubling of its ranks: ranks that are not in step."""
    graph: bool = True
    """Whether decode steps are replayed from a graph."""
    host_step_s: float = 4e-4
    """Scheduler, sampling and detokenisation that a decode step waits for."""
    host_sequence_s: float = 0.0
    """The same for each decoding sequence."""
    eager_layer_s: float = 0.0
    """Host time of one layer where kernels are launched one by one; the longer of host and device shows."""
    eager_kernel_s: float = 0.0
    """In the place of that, host time of each kernel of a layer's modules as Hugging Face writes them
    (serving/launches.py)."""
    eager_sequence_s: float = 0.0
    """Host time of one sequence in such a step."""
    layer_s: float = 0.0
    """Gaps on the device between the kernels of a layer, in every step."""
    gap_s: float = 0.0
    """The same after each kernel (serving/launches.py counts them)."""
    launches_ahead: bool = False
    """Whether a kernel begins while the last one ends, so that there is no gap (programmatic dependent
    launch: TensorRT-LLM's TRTLLM_ENABLE_PDL on Blackwell)."""
    cast_s: float = 0.0
    """What each product of activations that are cast to a narrow format takes beyond its kernel, in every
    step: the cast as a kernel of its own, and products that nobody tuned for few rows."""
    lockstep_factor: float = 1.14
    """Device time of a decode step over what its kernels tell where 8 ranks or more have attention of their
    own and share experts: they meet in every layer, and the last one counts."""
    prefill_factor: float = 1.0
    """Device time of a step with prompt tokens over what its kernels tell."""
    prefill_exchange_factor: float = 1.0
    """Time of tensor parallelism's all-reduces in such a step over what their benchmarks tell: ranks come to
    them at different times. Kernels that dispatch tokens to experts are as measured."""
    launch_s: float = 0.0
    """Host time of each kernel of such a step: it launches them one by one (serving/launches.py)."""
    prefill_step_s: float = 0.0
    """What such a step takes besides."""
    latency_s: float = 0.013
    """What a request meets before and after the engine: HTTP, tokeniser, queue."""
    latency_s_per_token: float = 0.0
    """The same for each prompt token."""
    encoders: tuple[EncoderLoad, ...] = ()
    """Images and audio that every prompt comes with; the question's, no engine's own."""
    first_use_s: float = 0.0
    """What the first wave of a mixture of experts waits for kernels that are compiled on first use."""
    late_steps: float = 1.0
    """Decode steps after its own that a first token waits for (asynchronous scheduling)."""
    handover_s: float = 0.0
    """What passing a request from a prefill to a decode instance takes beside its cache: routers, queues and
    polling. Under NVIDIA Dynamo first tokens of short prompts come 0.1 to 0.17 s later by it with SGLang and
    vLLM, not with TensorRT-LLM, and not with SGLang's own router on MI355X (InferenceX)."""
    wait_steps: float = 0.0
    """Decode steps that new prompts wait for to come together."""
    dp_wait_steps: float = 0.0
    """Those under data-parallel attention: at most, until there is a prompt for every rank."""
    wide_wait_steps: float = 0.0
    """Those with experts over many ranks (ep16 and wider), where the engine has it as an option
    (SGLang's prefill delayer, TensorRT-LLM's attention_dp_config)."""
    policy: Policy = "mixed"
    """How prompts and decoding share steps."""
    max_batch: int = 1024
    """Sequences at once."""
    max_tokens: int = 8192
    """Tokens of a step."""
    limits_by_card: bool = False
    """Whether these two go with the card's memory (vLLM's second engine, SGLang)."""
    shared_tokens: bool = False
    """Whether ranks with attention of their own share the tokens of a step (SGLang divides
    chunked_prefill_size by them)."""
    graph_batch: int = 0
    """Sequences up to which decode steps are replayed from graphs; 0: all."""
    graph_tokens: int = 0
    """Tokens up to which steps with prompts are replayed from graphs too, so that no launching shows."""
    memory_rule: MemoryRule = "vllm"
    """Whose rule."""
    memory_fraction: float | None = None
    """Share of the memory by that rule, as the fitted servers had it; None: the release's default."""
    release: str = ""
    """The version or date that was asked for; empty: the last that the profile stands for."""
    whole_admission: bool = False
    """Whether a request is let in only where its longest possible answer fits too."""
    window_saved: bool = True
    """Whether layers with a window keep no more than the window."""
    window_used: bool = True
    """Whether attention reads no more than the window."""
    shared_heads: float = 1.0
    """Part of the sharing of keys among query heads that kernels use: 1 all; 0: each head reads its own."""
    fused: bool = True
    """Whether passes over memory are fused kernels; else plain ones follow each other."""
    passes_apart: bool = False
    """Whether, on cards with their own memory, narrow weights are widened and activations cast in passes of
    their own before a product of many tokens, and attention of prompts writes its scores (llama.cpp of
    2024)."""
    vector_tokens: float = 0.0
    """Tokens up to which products are of a matrix with single vectors, those of experts too; 0: none are."""
    core_bytes_per_clock: float = 0.0
    """Bytes of weights that a core meets with one token's activations in a clock; 0: memory alone limits."""
    expert_factor: float = 1.0
    """Time of the experts' kernels over what their tables tell."""
