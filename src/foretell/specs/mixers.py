"""Token mixers: what moves information between positions."""

from typing import Literal

from foretell.records import dataclass
from foretell.specs.block import MapBlock, MixerBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """A small attention that picks the keys the large one reads (DeepSeek sparse attention)."""

    heads: int
    """Query heads of the indexer."""
    head_dim: int
    """Width of each; one key of this width is kept per token."""
    top_k: int
    """Keys that each query keeps."""
    query_inputs: int
    """Width from which its queries are made (the query's low rank, or the hidden width)."""
    key_norm: Literal["layer", "rms", "none"] = "layer"
    """Normalisation of its keys."""
    owns_weights: bool = True
    """False where a layer uses the choice of an earlier one: no weights, no work."""
    head_weights: bool = True
    """Whether a learned weight per head and token scales its scores."""
    ratio: int = 1
    """Positions behind one of its keys (attention over merged keys); 1: every position has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention: multi-head, multi-query or grouped-query, whole or windowed, self or cross."""

    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int
    """Width of a query and a key."""
    value_dim: int | None = None
    """Width of a value where it differs."""
    causal: bool = True
    """Whether a position sees only those up to itself."""
    window: int | None = None
    """Keys that a query sees at most; none: all."""
    chunked: bool = False
    """Whether the window is an aligned chunk rather than a sliding one."""
    cross: bool = False
    """Whether keys and values come from the encoder."""
    cross_inputs: int | None = None
    """Width of the encoder's states where it differs from the hidden width."""
    q_bias: bool = False
    """Bias of the query projection."""
    k_bias: bool = False
    """Bias of the key projection."""
    v_bias: bool = False
    """Bias of the value projection."""
    o_bias: bool = False
    """Bias of the output projection."""
    scaled_rotary: bool = False
    """Whether rotary positions carry a scale beside the angles (YaRN without one of its own)."""
    qk_norm: Literal["none", "head", "whole"] = "none"
    """Normalised queries and keys: one weight per head width, or one per whole width."""
    qk_norm_bias: bool = False
    """Whether that normalisation has a bias too."""
    value_is_key: bool = False
    """Whether values are the keys themselves (no value projection)."""
    owns_kv: bool = True
    """False where the layer reads keys and values of an earlier one (no projections for them)."""
    output_gate: Literal["none", "element", "head"] = "none"
    """A learned gate on the attention's output: none, one per value, one per head."""
    q_rank: int | None = None
    """Queries through a low rank (with a norm of that width): hidden -> rank -> heads."""
    o_rank: int | None = None
    """Output through a low rank per group: heads -> o_groups x rank -> hidden."""
    o_groups: int = 1
    """Groups of the low-rank output."""
    indexer: Indexer | None = None
    """Sparse choice of keys."""
    compress_ratio: int | None = None
    """Positions merged into one further key, seen beside the window (all of them, or those that the
    indexer keeps); none: no such keys. The maps that merge are in `Layer.projections`."""
    factor: MapBlock | None = None
    """What stands for each of the maps before the scores where they are factorised (tensor chains)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: keys and values from one low rank per token."""

    heads: int
    """Query heads."""
    q_rank: int | None
    """Rank of the queries; none: projected directly."""
    kv_rank: int
    """Rank that is cached for keys and values."""
    nope_dim: int
    """Width of a key without rotary part."""
    rope_dim: int
    """Width of the shared rotary key."""
    value_dim: int
    """Width of a value."""
    bias: bool = False
    """Biases on the down and output projections."""
    output_gate: Literal["none", "element", "head"] = "none"
    """A learned gate on the attention's output."""
    indexer: Indexer | None = None
    """Sparse choice of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """A Mamba-2 state-space mixer."""

    heads: int
    """Heads."""
    head_dim: int
    """Width of a head; heads x head_dim is the inner width."""
    state: int
    """State size per channel."""
    groups: int
    """Groups that share B and C."""
    conv_kernel: int
    """Taps of the causal convolution."""
    conv_bias: bool = True
    """Bias of the convolution."""
    proj_bias: bool = False
    """Bias of the input and output projections."""
    gated_norm: bool = True
    """Whether a norm of the inner width precedes the output projection."""
    chunk: int = 256
    """Positions in one chunk of the chunked scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """Gated linear attention with a delta-rule state (gated DeltaNet; Kimi delta attention)."""

    key_heads: int
    """Heads of queries and keys."""
    value_heads: int
    """Heads of values."""
    key_dim: int
    """Width of a query and a key."""
    value_dim: int
    """Width of a value."""
    conv_kernel: int
    """Taps of the causal convolutions."""
    conv_bias: bool = False
    """Bias of the convolutions."""
    decay: Literal["head", "channel"] = "head"
    """Forgetting: one rate per value head, or one per channel of the key (Kimi delta attention)."""
    decay_rank: int | None = None
    """Low rank through which a per-channel decay is made; none: one map from the hidden width."""
    gate_rank: int | None = None
    """Low rank of the output gate; none: a full map of the value width."""
    chunk: int = 64
    """Positions in one chunk of the chunked form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A linear map in the place of a mixer (NAS-pruned models)."""

    bias: bool = False
    """Whether it has a bias."""


Mixer = Attention | LatentAttention | Mamba2 | DeltaNet | Replacement | MixerBlock
