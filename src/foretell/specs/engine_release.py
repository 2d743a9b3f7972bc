"""One release of a serving engine: how it sizes its cache at start, and which layouts it launches."""

from typing import Literal

from foretell.records import dataclass

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
