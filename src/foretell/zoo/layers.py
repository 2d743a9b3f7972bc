"""What all modules share: the base class, norms, maps, masks, rotation, and what layers hand on."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.specs.block import MapBlock, MapShape
from foretell.specs.model import NormKind, Projection


class Module(nn.Module):  # type: ignore[misc]  # torch is optional: its classes are Any here
    """A torch module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Choices that are not in the model's record."""

    fused: bool = False
    """torch's fused attention instead of separate products."""
    rotary: bool = True
    """Rotated queries and keys: for models without a table of positions."""
    dropout: float = 0.0
    """Share of the numbers that is set to zero in training, behind embeddings and each part."""


@dataclass(slots=True, kw_only=True)
class Carry:
    """What one forward pass hands from layer to layer beside the hidden state."""

    states: Tensor | None = None
    """The encoder's output."""
    present: Tensor | None = None
    """True where this stack's own input has a token, (batch, positions); none: everywhere."""
    states_present: Tensor | None = None
    """The same of the encoder's output."""
    kv: tuple[Tensor, Tensor] | None = None
    """Keys and values of the last layer that made its own."""
    choice: Tensor | None = None
    """Keys that the last indexer chose, as a mask."""
    index_scores: list[Tensor] = field(default_factory=list)
    """Scores of all indexers: the choice has no gradient, so they are trained on these."""


class Norm(Module):
    """Root-mean-square or layer norm, with the weights of its kind."""

    def __init__(self, kind: NormKind, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.kind, self.eps = kind, eps
        self.weight = nn.Parameter(torch.ones(width)) if kind != "none" else None
        self.bias = nn.Parameter(torch.zeros(width)) if kind == "layer" else None

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dim."""
        if self.kind == "none":
            return x
        if self.kind == "rms":
            return functional.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
        return functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


class GroupedLinear(Module):
    """Independent maps of equal blocks of the last dim (block-diagonal)."""

    def __init__(self, groups: int, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__()
        scale = (inputs // groups) ** -0.5
        self.groups = groups
        self.weight = nn.Parameter(scale * torch.randn(groups, inputs // groups, outputs // groups))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """One product per group."""
        blocks = x.reshape(-1, self.groups, x.shape[-1] // self.groups).transpose(0, 1)
        out = torch.bmm(blocks, self.weight).transpose(0, 1).reshape(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A plain map; no bias unless asked for."""
    return nn.Linear(inputs, outputs, bias=bias)


def map_module(shape: MapShape, factor: MapBlock | None = None) -> nn.Module:
    """The map of a shape: dense, or by its factors."""
    if factor is not None:
        made: nn.Module = factor.module(shape)
        return made
    return linear(shape.inputs, shape.outputs, shape.bias)


def table_module(shape: MapShape, factor: MapBlock | None = None) -> nn.Module:
    """A token table that is scaled by the root of its width: whole, or by its factors."""
    if factor is not None:
        made: nn.Module = factor.table_module(shape)
        return made
    whole = nn.Embedding(shape.inputs, shape.outputs)
    nn.init.normal_(whole.weight, std=shape.outputs**-0.5)
    return whole


def sines(x: Tensor) -> Tensor:
    """Fixed positions of (batch, positions, width): sines in the first half, cosines in the second."""
    length, width = x.shape[-2:]
    half = (width + 1) // 2
    rates = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(length, device=x.device, dtype=torch.float32)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=-1)[:, :width].to(x.dtype)


def projection(record: Projection) -> nn.Module:
    """The map that a record describes."""
    if record.groups > 1:
        return GroupedLinear(record.groups, record.inputs, record.outputs, record.bias)
    return linear(record.inputs, record.outputs, record.bias)


def neighbours(x: Tensor, width: int) -> Tensor:
    """Each position with those around it, as many as make up `width` (a convolution's taps)."""
    taps = width // x.shape[-1]
    if taps <= 1:
        return x
    shifts = range(-(taps // 2), taps - taps // 2)
    return torch.cat([x.roll(-shift, dims=1) for shift in shifts], dim=-1)


def spare(count: int) -> nn.Parameter | None:
    """Weights that no operation reads."""
    return nn.Parameter(torch.zeros(count)) if count else None


def visible(
    length: int, device: torch.device, *, causal: bool, window: int | None, chunked: bool
) -> Tensor | None:
    """True where a query (row) sees a key (column) of the same sequence. None: everywhere.

    A window of w keys: causal, the last w; both ways, floor(w/2) before, the rest around and after;
    chunked, the aligned chunk of w that holds the query.
    """
    if not causal and window is None:
        return None
    q = torch.arange(length, device=device)[:, None]
    k = torch.arange(length, device=device)[None, :]
    mask = k <= q if causal else (k >= 0).expand(length, length)
    if window is not None and chunked:
        return mask & (q // window == k // window)
    if window is not None:
        before = window - 1 if causal else window // 2
        return mask & (q - k <= before) & (k - q <= window - 1 - window // 2)
    return mask


def attention_mask(
    x: Tensor, carry: Carry, *, causal: bool, cross: bool
) -> tuple[Tensor | None, bool]:
    """(mask, causal) of a whole attention: which keys are tokens, and whether order decides alone.

    Padding is behind the tokens, so that a causal attention's own never sees it.
    """
    present = carry.states_present if cross else None if causal else carry.present
    return (None if present is None else present[:, None, None, :]), causal and not cross


def rotate(x: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary positions over the last dim of (batch, heads, positions, width)."""
    half = x.shape[-1] // 2
    rates = base ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * rates
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, positions, heads width) -> (batch, heads, positions, width)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(batch, heads, positions, width) -> (batch, positions, heads width)."""
    return x.transpose(1, 2).flatten(-2)


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """torch's fused attention, with a mask or plainly causal, which more kernels know."""
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped
    )


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, fused: bool, causal: bool = False
) -> Tensor:
    """softmax(q k^T / sqrt(d)) v over (batch, heads, positions, width); keys may have fewer
    heads. `causal` stands for a mask of its own."""
    if fused:
        return fused_attention(q, k, v, mask, causal)
    if causal:
        mask = visible(q.shape[-2], q.device, causal=True, window=None, chunked=False)
    repeats = q.shape[1] // k.shape[1]
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1) @ v
