"""A transformer as a stack of layers, each made of mixers and a feed-forward part.

Everything that has weights is named here once; `workload` turns it into operations, and the parameter
count is the sum of the weights of these operations. No field is guessed: readers put what they had to
assume into `Model.assumptions`.
"""

from typing import Literal

from foretell.records import dataclass
from foretell.specs.block import EmbeddingBlock, FeedForwardBlock, MapBlock
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Mixer

NormKind = Literal["rms", "layer", "layer-nobias", "none"]
"""rms: one weight per width; layer: weight and bias; layer-nobias: weight alone; none: no weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One more linear map on every token of a layer or a head, for what the common records lack."""

    name: str
    """What it is for."""
    inputs: int
    """Width read."""
    outputs: int
    """Width written."""
    bias: bool = False
    """Whether a bias of `outputs` weights is added."""
    groups: int = 1
    """Independent blocks: each maps inputs/groups to outputs/groups (block-diagonal)."""
    split: Literal["none", "col", "row"] = "none"
    """How tensor parallelism divides it: not at all, by its outputs, by its inputs."""
    part: Literal["listed", "layer", "attention", "mixer", "indexer"] = "listed"
    """What it belongs to: listed, to what lists it (layer, embedding, head); layer, to the layer at large
    wherever it is listed; attention, mixer, indexer, to this part of the layer."""
    qkv: bool = False
    """Whether its outputs are queries, keys and values side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: normalisations, token mixers (attention, state space, ...), feed-forward part."""

    mixers: tuple[Mixer, ...] = ()
    """Token mixers in order: self-attention, then cross-attention where there is one."""
    ffn: Dense | Experts | FeedForwardBlock | None = None
    """The feed-forward part; none in attention-only and Mamba layers of some hybrids."""
    dense_beside: Dense | None = None
    """A dense feed-forward part that runs beside the experts and is added to them."""
    norms: int = 2
    """Normalisations over the hidden width in this layer."""
    norm_kind: NormKind = "rms"
    """What those normalisations hold."""
    post_norm: bool = False
    """Whether each norm follows the sum of a part and its skip (the 2017 layer) instead of preceding
    the part; the same work either way."""
    parallel: bool = False
    """Whether mixer and feed-forward read the same normalised input (parallel block)."""
    projections: tuple[Projection, ...] = ()
    """Further linear maps of this layer."""
    extra_parameters: int = 0
    """Weights that no operation above reads in bulk (sinks, scales, relative-position tables)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Layers in order, over one hidden width, with the normalisation after the last."""

    hidden: int
    """Width of the residual stream."""
    layers: tuple[Layer, ...]
    """All layers in order; equal layers are one kind."""
    final_norm: NormKind = "rms"
    """Normalisation after the last layer."""
    extra_parameters: int = 0
    """Weights of the stack outside its layers (relative-position tables, extra norms)."""

    def __hash__(self) -> int:
        """A few fields tell stacks apart; hashing every layer would cost more than its use."""
        return hash((self.hidden, len(self.layers), self.final_norm, self.extra_parameters))


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """What turns the input into the first hidden state."""

    vocab: int = 0
    """Rows of the token table; 0 where the input is not tokens."""
    width: int | None = None
    """Width of the token table where it differs from the hidden width (then a projection follows)."""
    positions: int = 0
    """Rows of a learned (or stored) position table."""
    fixed_positions: bool = False
    """Whether sines of the position are added to the scaled table (no weights)."""
    token_types: int = 0
    """Rows of a segment table (BERT)."""
    norm: NormKind = "none"
    """Normalisation of the embedding."""
    patch_inputs: int = 0
    """Values in one input patch or frame that a linear map (a strided convolution) reads; 0: none."""
    patch_bias: bool = True
    """Whether that map has a bias."""
    projections: tuple[Projection, ...] = ()
    """Linear maps between the tables and the hidden state, on every token."""
    extra_parameters: int = 0
    """Weights beside these (class token, mask token, per-layer tables)."""
    factor: MapBlock | None = None
    """What replaces the token table where it is factorised."""
    block: EmbeddingBlock | None = None
    """What makes the hidden states of the token ids in the place of the table and all the above but
    `vocab`."""

    @property
    def rotary(self) -> bool:
        """Whether positions are left to attention, which rotates its queries and keys."""
        return not (self.positions or self.fixed_positions or self.block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What turns the last hidden state into scores."""

    outputs: int
    """Scores per position (vocabulary, classes); 0 where the model ends with its hidden state."""
    tied: bool = False
    """Whether the scoring matrix is the token table (then it is counted once)."""
    bias: bool = False
    """Whether the scores have a bias."""
    every_position: bool = True
    """Whether every position is scored (language model) or one per sequence (classifier)."""
    projections: tuple[Projection, ...] = ()
    """Linear maps before the scores (BERT and ESM transform, OPT-350m's projection)."""
    extra_parameters: int = 0
    """Weights beside these (the transform's norm, a contact head)."""
    factor: MapBlock | None = None
    """What replaces the scoring matrix where it is factorised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrediction:
    """A block that predicts a further token from the last hidden state and the next embedding."""

    layers: tuple[Layer, ...]
    """The layers of one block."""
    repeats: int = 1
    """How many blocks with weights of their own."""
    norms: int = 3
    """Normalisations outside its layers (two inputs, one output)."""
    norm_kind: NormKind = "rms"
    """What those hold."""
    projections: tuple[Projection, ...] = ()
    """Linear maps of one block, such as the joint of hidden state and embedding."""
    own_tables: int = 0
    """Weights of embedding and head copies stored with one block (0: it shares the model's)."""
    extra_parameters: int = 0
    """Weights beside these, per block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A vision or audio tower with its projector: timed where sequences have images or audio."""

    name: str
    """What it reads: vision, audio."""
    parameters: int
    """All its weights, projector included."""
    patch: int = 0
    """Pixels of a patch's side; 0: not known, or not of images."""
    merge: int = 1
    """Patches along each side, or frames of audio, that become one token."""
    stack: Stack | None = None
    """Its layers; none: not known, so that it is counted and cannot be timed."""
    image_side: int = 0
    """Pixels of the side that images, or their tiles, are scaled to; 0: images keep their sizes."""
    most_tiles: int = 1
    """Tiles that an image is cut into at most; where it is cut, one of the whole image comes beside them."""
    most_tokens: int = 0
    """Tokens of one image at most, larger ones are scaled down; 0: no limit."""
    budget: int = 0
    """Tokens that an image, or a stretch of audio, becomes whatever its size; 0: as many as its size has."""
    turned: bool = False
    """Whether a convolution leaves its states channel by channel, which plain modules then keep."""
    frames_per_s: float = 0.0
    """Positions of a second of audio; 0: not of audio."""
    stretch_s: float = 0.0
    """Seconds of audio that are read together, the last filled with silence; 0: as long as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderLoad:
    """How the images or the audio of one request go through their tower."""

    tower: Tower
    """The tower."""
    sequences: float
    """Images, tiles, or stretches of audio that do not attend to one another."""
    length: float
    """Patches or frames of each."""
    tokens: float
    """Tokens of the prompt that all of them become."""
    prompt: float = 1.0
    """Tokens of the whole prompt, over which the tower's work is spread."""
    frozen: bool = False
    """Of training: whether the tower and its projector are frozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model: embedding, one or two stacks, head, and what hangs on them."""

    id: str
    """The catalogue id, or the file's name."""
    family: str
    """Hugging Face `model_type`, or the family's name."""
    kind: Literal["decoder", "encoder", "encoder-decoder"]
    """decoder: causal; encoder: every position sees every other; or both, joined by cross-attention."""
    stack: Stack
    """The main stack: the decoder where there is one."""
    encoder: Stack | None = None
    """The encoder of an encoder-decoder."""
    embedding: Embedding
    """What feeds the main stack (and the encoder, where `encoder_embedding` is none)."""
    encoder_embedding: Embedding | None = None
    """What feeds the encoder where it is not the shared table (audio frames; own positions)."""
    head: Head
    """The scoring head."""
    prediction: TokenPrediction | None = None
    """Multi-token-prediction blocks."""
    towers: tuple[Tower, ...] = ()
    """Vision and audio towers."""
    reads: tuple[EncoderLoad, ...] = ()
    """Images and audio of each training sequence; their tokens are some of the sequence's."""
    extra_parameters: int = 0
    """Weights that belong to no part above."""
    max_positions: int
    """Longest sequence the model is made for."""
    dtype: str = "bf16"
    """Weights as published: bf16, fp16, fp32, fp8, mxfp4, ..."""
    assumptions: tuple[str, ...] = ()
    """Every default or guess that the reader made, as a sentence each."""

    def __hash__(self) -> int:
        """A few fields tell models apart; hashing every layer would cost more than an estimate's op."""
        return hash((self.id, self.family, self.max_positions, len(self.stack.layers)))
