"""Layers, stacks and whole models."""

import torch
from torch import Tensor, nn

from foretell.records import dataclass
from foretell.specs.block import FeedForwardBlock, MapShape, MixerBlock
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import (
    Attention,
    DeltaNet,
    LatentAttention,
    Mamba2,
    Mixer,
    Replacement,
)
from foretell.specs.model import Embedding, Head, Layer, Model, Stack, TokenPrediction
from foretell.zoo.attention import SoftmaxAttention
from foretell.zoo.feedforward import DenseFeedForward, MixtureOfExperts
from foretell.zoo.latent import MultiHeadLatent
from foretell.zoo.layers import (
    Carry,
    Module,
    Norm,
    Options,
    linear,
    map_module,
    neighbours,
    projection,
    sines,
    spare,
    table_module,
)
from foretell.zoo.recurrent import DeltaNetMixer, Mamba2Mixer


class Linear(Module):
    """A map in the place of a mixer."""

    def __init__(self, spec: Replacement, hidden: int) -> None:
        super().__init__()
        self.map = linear(hidden, hidden, spec.bias)

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """On every token."""
        del carry
        return self.map(x)


def mixer_module(spec: Mixer, hidden: int, options: Options) -> Module:
    """The module of a token mixer; its forward takes (x, carry)."""
    match spec:
        case Attention():
            return SoftmaxAttention(spec, hidden, options)
        case LatentAttention():
            return MultiHeadLatent(spec, hidden, options)
        case Mamba2():
            return Mamba2Mixer(spec, hidden)
        case DeltaNet():
            return DeltaNetMixer(spec, hidden)
        case Replacement():
            return Linear(spec, hidden)
        case MixerBlock():
            made: Module = spec.module(hidden, options)
            return made


def feedforward_module(spec: Dense | Experts | FeedForwardBlock, hidden: int) -> Module:
    """The module of a feed-forward part."""
    if isinstance(spec, FeedForwardBlock):
        made: Module = spec.module(hidden)
        return made
    if isinstance(spec, Experts):
        return MixtureOfExperts(spec, hidden)
    return DenseFeedForward(spec, hidden)


class LayerModule(Module):
    """One layer. Norms go before the parts first, then behind them, then to the end of the
    layer; or, one for each part, behind its sum with the skip."""

    def __init__(self, layer: Layer, hidden: int, options: Options) -> None:
        super().__init__()
        self.parallel, self.post_norm = layer.parallel, layer.post_norm
        self.mixers = nn.ModuleList(mixer_module(m, hidden, options) for m in layer.mixers)
        feeds = (layer.ffn, layer.dense_beside)
        self.feeds = nn.ModuleList(feedforward_module(f, hidden) for f in feeds if f is not None)
        eps = 1e-6 if layer.post_norm else 1e-5
        self.norms = nn.ModuleList(Norm(layer.norm_kind, hidden, eps) for _ in range(layer.norms))
        self.drop = nn.Dropout(options.dropout) if options.dropout else nn.Identity()
        self.maps = nn.ModuleList(projection(p) for p in layer.projections)
        widths = [hidden, *(p.outputs for p in layer.projections)]
        self.chained = [p.inputs for p in layer.projections] + [hidden] == widths
        self.spare = spare(layer.extra_parameters)

    def _norm(self, index: int, x: Tensor) -> Tensor:
        return self.norms[index](x) if index < len(self.norms) else x

    def _mix(self, x: Tensor, carry: Carry) -> Tensor:
        return sum(mixer(x, carry) for mixer in self.mixers)

    def _feed(self, x: Tensor) -> Tensor:
        return sum(feed(x) for feed in self.feeds)

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, positions, hidden) -> the same."""
        if not self.chained:
            raise NotImplementedError("the zoo counts these further maps but cannot run them")
        if self.parallel:
            first = self._norm(0, x)
            second = self._norm(1, x) if len(self.norms) > 1 else first
            return x + self._mix(first, carry) + self._feed(second)
        blocks = len(self.mixers) + (1 if len(self.feeds) else 0)
        for i in range(blocks):
            inside = x if self.post_norm else self._norm(i, x)
            mixing = i < len(self.mixers)
            part = self.drop(self.mixers[i](inside, carry) if mixing else self._feed(inside))
            if self.post_norm:
                x = self._norm(i, x + part)
            else:
                x = x + self._norm(blocks + i, part)
        for i in range(2 * blocks, len(self.norms)):
            x = self.norms[i](x)
        more = x
        for mapping in self.maps:
            more = mapping(more)
        return x + more if len(self.maps) else x


class Layers(Module):
    """All layers of a stack and the norm behind them."""

    def __init__(self, stack: Stack, options: Options) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            LayerModule(layer, stack.hidden, options) for layer in stack.layers
        )
        self.norm = Norm(stack.final_norm, stack.hidden)
        self.spare = spare(stack.extra_parameters)

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """The hidden state before the last norm."""
        for block in self.blocks:
            x = block(x, carry)
        return x


class Inputs(Module):
    """Tables, patches, maps and norm in front of a stack."""

    def __init__(self, spec: Embedding, hidden: int) -> None:
        super().__init__()
        width = spec.width or hidden
        self.block = spec.block.module(spec.vocab, hidden) if spec.block is not None else None
        # A table that is scaled, or factorised, starts smaller; others as torch's.
        self.scale = width**0.5 if spec.fixed_positions else None
        shape = MapShape(name="tokens", inputs=spec.vocab, outputs=width)
        self.tokens = None
        if spec.vocab and self.block is None:
            small = spec.fixed_positions or spec.factor is not None
            self.tokens = (
                table_module(shape, spec.factor) if small else nn.Embedding(spec.vocab, width)
            )
        inputs = spec.patch_inputs
        self.patches = linear(inputs, hidden, spec.patch_bias) if inputs else None
        self.positions = nn.Embedding(spec.positions, hidden) if spec.positions else None
        self.types = nn.Embedding(spec.token_types, hidden) if spec.token_types else None
        self.records = spec.projections
        self.maps = nn.ModuleList(projection(p) for p in spec.projections)
        self.norm = Norm(spec.norm, hidden)
        self.spare = spare(spec.extra_parameters)

    def forward(self, x: Tensor, tokens: nn.Embedding | None = None) -> Tensor:
        """Token ids (batch, positions), or patches, frames or states (batch, positions, values)."""
        if self.block is not None:
            return self.block(x)
        table = self.tokens if self.tokens is not None else tokens
        if self.patches is not None:
            x = self.patches(x)
        elif table is not None and not x.is_floating_point():
            x = table(x)
            if self.scale is not None:
                x = self.scale * x
                x = x + sines(x)
        for record, mapping in zip(self.records, self.maps, strict=True):
            x = mapping(neighbours(x, record.inputs))
        if self.positions is not None:
            x = x + self.positions(torch.arange(x.shape[1], device=x.device))
        if self.types is not None:
            x = x + self.types.weight[0]
        return self.norm(x)


class ScoresHead(Module):
    """Maps before the scores, and the scores; their matrix may be the token table."""

    def __init__(self, spec: Head, width: int, table: nn.Embedding | None) -> None:
        super().__init__()
        self.spec = spec
        self.maps = nn.ModuleList(projection(p) for p in spec.projections)
        if spec.outputs:
            shape = MapShape(name="scores", inputs=width, outputs=spec.outputs, bias=spec.bias)
            self.scores = map_module(shape, None if spec.tied else spec.factor)
            if spec.tied:
                assert table is not None, "a tied head needs a token table"
                self.scores.weight = table.weight
        self.spare = spare(spec.extra_parameters)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of every position, or of the first."""
        if not self.spec.every_position:
            x = x[:, 0]
        for mapping in self.maps:
            x = mapping(x)
        return self.scores(x) if self.spec.outputs else x


class PredictionBlock(Module):
    """A further token from the hidden state and the embedding of the next one."""

    def __init__(self, spec: TokenPrediction, hidden: int, options: Options) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(spec.norm_kind, hidden) for _ in range(spec.norms))
        self.maps = nn.ModuleList(projection(p) for p in spec.projections)
        self.blocks = nn.ModuleList(LayerModule(layer, hidden, options) for layer in spec.layers)
        self.spare = spare(spec.own_tables + spec.extra_parameters)

    def forward(self, x: Tensor, embedded: Tensor, carry: Carry) -> Tensor:
        """The block's hidden state; its first two norms are those of its two inputs."""
        parts = [x, embedded.roll(-1, dims=1)]
        for i, norm in enumerate(self.norms[:2]):
            parts[i] = norm(parts[i])
        x = torch.cat(parts, dim=-1)
        for mapping in self.maps:
            x = mapping(x)
        for block in self.blocks:
            x = block(x, carry)
        for norm in self.norms[2:]:
            x = norm(x)
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutput:
    """What a forward pass gives."""

    scores: Tensor
    """Scores, or the last hidden state where the model has no head."""
    predicted: tuple[Tensor, ...] = ()
    """Scores of the multi-token-prediction blocks."""
    index_scores: tuple[Tensor, ...] = ()
    """Scores of the indexers, which are trained on their own."""

    def total(self) -> Tensor:
        """A number that depends on every part, to run the backward pass from."""
        parts = (self.scores, *self.predicted, *self.index_scores)
        return sum(part.sum() for part in parts)


class Transformer(Module):
    """A whole model: inputs, stacks, scores, prediction blocks."""

    def __init__(self, model: Model, *, fused: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = model.stack.hidden
        options = Options(fused=fused, rotary=model.embedding.rotary, dropout=dropout)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()
        self.inputs = Inputs(model.embedding, hidden)
        self.layers = Layers(model.stack, options)
        self.encoder = Layers(model.encoder, options) if model.encoder is not None else None
        own = model.encoder_embedding
        self.encoder_inputs = (
            Inputs(own, model.encoder.hidden)
            if model.encoder is not None and own is not None
            else None
        )
        width = model.embedding.width or hidden
        self.scores = ScoresHead(model.head, width, self.inputs.tokens)
        block, repeats = model.prediction, model.prediction.repeats if model.prediction else 0
        self.predictions = nn.ModuleList(
            PredictionBlock(block, hidden, options) for _ in range(repeats) if block is not None
        )
        self.spare = spare(model.extra_parameters)

    def encode(self, source: Tensor, present: Tensor | None = None) -> Carry:
        """The encoder's states, as the main stack reads them; `present`: True where a token is."""
        assert self.encoder is not None, "this model has no encoder"
        if self.encoder_inputs is not None:
            states = self.encoder_inputs(source, self.inputs.tokens)
        else:
            states = self.inputs(source)
        states = self.encoder(self.drop(states), Carry(present=present))
        return Carry(states=self.encoder.norm(states), states_present=present)

    def forward(
        self, x: Tensor, source: Tensor | None = None, present: Tensor | None = None
    ) -> ModelOutput:
        """x: token ids or patches of the main stack; source: those of the encoder, where `present`."""
        carry = Carry()
        if self.encoder is not None:
            assert source is not None, "an encoder-decoder needs a source"
            carry = self.encode(source, present)
        return self.decode(x, carry)

    def decode(self, x: Tensor, carry: Carry) -> ModelOutput:
        """The main stack and the scores, with what `encode` gave where there is an encoder."""
        embedded = self.inputs(x)
        hidden = self.layers(self.drop(embedded), carry)
        predicted = []
        last = hidden
        for block in self.predictions:
            last = block(last, embedded, carry)
            predicted.append(self.scores(last))
        return ModelOutput(
            scores=self.scores(self.layers.norm(hidden)),
            predicted=tuple(predicted),
            index_scores=tuple(carry.index_scores),
        )
