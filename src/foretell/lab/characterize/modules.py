"""A decoder in pieces, plain or cut by tensor parallelism: table, layers, head with loss.

Linear maps are cut by columns, then by rows, attention by heads, table and head by the vocabulary; entering
and leaving such a region sends what sharding/tensor.py says. Weights that are wider than what products run in
are cast where they are used, and the copy is not kept. torch is imported with this file.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.kernels.stack_passes import narrow_loss
from foretell.lab.characterize.models import DecoderSizes
from foretell.lab.characterize.recorder import RankGroups
from foretell.lab.characterize.shards import computing

Angles = tuple[Tensor, Tensor]
Send = Callable[[Tensor], Tensor]


def rotate_halves(x: Tensor, angles: Angles) -> Tensor:
    """Rotary position embedding in halves."""
    first, second = x.chunk(2, dim=-1)
    return x * angles[0] + torch.cat((-second, first), dim=-1) * angles[1]


def turns_of(sizes: DecoderSizes, seq_len: int, like: Tensor) -> Angles:
    """Cosines and sines of positions."""
    width = sizes.head_dim
    places = torch.arange(seq_len, device=like.device, dtype=torch.float32)
    speeds = 10000.0 ** (-torch.arange(0, width, 2, device=like.device) / width)
    turns = torch.outer(places, speeds).repeat(1, 2)
    return turns.cos().to(like.dtype), turns.sin().to(like.dtype)


class TensorCut:
    """The tensor-parallel ranks as modules see them."""

    def __init__(self, groups: RankGroups) -> None:
        plan = groups.plan
        self.groups, self.parts, self.tokens = groups, plan.tp, plan.sp and plan.tp > 1
        self.rank = groups.at["tp"]

    def reduced(self, x: Tensor, what: str) -> Tensor:
        """Added up over the ranks, in a tensor of its own."""
        x = x.contiguous().clone()
        self.groups.wait(self.groups.all_reduce("tp", what, x))
        return x

    def gathered(self, x: Tensor, what: str) -> Tensor:
        """All tokens of all ranks: (batch, tokens, width)."""
        part = x.transpose(0, 1).contiguous()
        whole = part.new_empty((part.shape[0] * self.parts, *part.shape[1:]))
        self.groups.wait(self.groups.all_gather("tp", what, part, whole))
        return whole.transpose(0, 1)

    def scattered(self, x: Tensor, what: str) -> Tensor:
        """Added up over the ranks, this rank's tokens alone."""
        whole = x.transpose(0, 1).contiguous()
        part = whole.new_empty((whole.shape[0] // self.parts, *whole.shape[1:]))
        self.groups.wait(self.groups.reduce_scatter("tp", what, whole, part))
        return part.transpose(0, 1)


class _Exchange(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The edge of a tensor-parallel region: one exchange on the way forward, another on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Send, back: Send) -> Tensor:
        """Activations."""
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        """Their gradients."""
        return ctx.back(slope), None, None


def _cast(x: Tensor, *weights: Tensor | None) -> list[Tensor | None]:
    """Weights as their product with `x` takes them."""
    return [None if weight is None else weight.to(x.dtype) for weight in weights]


class _Linear(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A linear map whose weights may be wider than its products, the narrow copy made again on the way back;
    with sequence parallelism its gathered input is not kept either, but gathered again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, cut: TensorCut | None
    ) -> Tensor:
        """Gather, cast, multiply."""
        ctx.save_for_backward(x, weight)
        ctx.cut, ctx.biased = cut, bias is not None
        whole = x if cut is None else cut.gathered(x, "activations")
        return functional.linear(whole, *_cast(x, weight, bias))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        """Gradients of weights in the weights' dtype; the input's is scattered."""
        x, weight = ctx.saved_tensors
        whole = x if ctx.cut is None else ctx.cut.gathered(x, "activations again")
        dx = slope @ weight.to(slope.dtype)
        dx = dx if ctx.cut is None else ctx.cut.scattered(dx, "activations back")
        rows = slope.flatten(0, -2)
        dw = (rows.t() @ whole.flatten(0, -2)).to(weight.dtype)
        return dx, dw, rows.sum(0).to(weight.dtype) if ctx.biased else None, None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x times the weight, in the dtype of x."""
    if weight.dtype == x.dtype:
        return functional.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias, None)


def leave(x: Tensor, cut: TensorCut, what: str = "activations") -> Tensor:
    """The end of a region."""
    if cut.parts == 1:
        return x
    if cut.tokens and what == "activations":
        back = partial(cut.gathered, what="activations back")
        return _Exchange.apply(x, partial(cut.scattered, what=what), back)
    return _Exchange.apply(x, partial(cut.reduced, what=what), lambda slope: slope)


class ColumnParallelLinear(nn.Module):  # type: ignore[misc, unused-ignore]
    """A linear map cut by its outputs, at the start of a region."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, cut: TensorCut) -> None:
        super().__init__()
        self.cut = cut
        self.weight = nn.Parameter(torch.empty(outputs // cut.parts, inputs))
        self.bias = nn.Parameter(torch.empty(outputs // cut.parts)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Enter and multiply."""
        if self.cut.tokens:
            return _Linear.apply(x, self.weight, self.bias, self.cut)
        if self.cut.parts > 1:
            back = partial(self.cut.reduced, what="activations back")
            x = _Exchange.apply(x, lambda y: y.view_as(y), back)
        return linear(x, self.weight, self.bias)


class RowParallelLinear(nn.Module):  # type: ignore[misc, unused-ignore]
    """A linear map cut by its inputs, at the end of a region."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, cut: TensorCut) -> None:
        super().__init__()
        self.cut = cut
        self.weight = nn.Parameter(torch.empty(outputs, inputs // cut.parts))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Multiply and leave."""
        if self.cut.parts == 1:
            return linear(x, self.weight, self.bias)
        y = leave(linear(x, self.weight), self.cut)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class _Rms(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """RMS norm that keeps its input and one number a token, as the fused kernel of GPUs does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, least: float) -> Tensor:
        """x / sqrt(mean(x^2)) w."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + least)
        ctx.save_for_backward(x, scale, weight)
        return (wide * scale).to(x.dtype) * weight.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        """n = x s: dw = sum g n, dx = s (g w - n mean(g w n))."""
        x, scale, weight = ctx.saved_tensors
        normed, slope = x.float() * scale, slope.float()
        dw = (slope * normed).flatten(0, -2).sum(0)
        slope = slope * weight
        dx = scale * (slope - normed * (slope * normed).mean(-1, keepdim=True))
        return dx.to(x.dtype), dw.to(weight.dtype), None


class RunnerRms(nn.Module):  # type: ignore[misc, unused-ignore]
    """RMS norm; PyTorch has one kernel for it on GPUs alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dim."""
        if x.is_cuda:
            return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)
        return _Rms.apply(x, self.weight, 1e-5)


class LayerNorm(nn.LayerNorm):  # type: ignore[misc, unused-ignore]
    """PyTorch's, which on GPUs wants weights in the dtype of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dim."""
        weight, bias = _cast(x, self.weight, self.bias)
        return functional.layer_norm(x, self.normalized_shape, weight, bias)


def norm_of(sizes: DecoderSizes) -> nn.Module:
    """The model's normalisation."""
    return RunnerRms(sizes.hidden) if sizes.style == "llama" else LayerNorm(sizes.hidden)


class RunnerLayer(nn.Module):  # type: ignore[misc, unused-ignore]
    """One layer."""

    def __init__(self, sizes: DecoderSizes, cut: TensorCut) -> None:
        super().__init__()
        self.llama = sizes.style == "llama"
        self.heads, self.kv_heads = sizes.heads // cut.parts, sizes.kv_heads // cut.parts
        self.width = sizes.head_dim
        bias, wide = not self.llama, (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
        self.first, self.second = norm_of(sizes), norm_of(sizes)
        self.qkv = ColumnParallelLinear(sizes.hidden, wide, bias=bias, cut=cut)
        self.out = RowParallelLinear(sizes.hidden, sizes.hidden, bias=bias, cut=cut)
        self.up = ColumnParallelLinear(
            sizes.hidden, sizes.ffn * (2 if self.llama else 1), bias=bias, cut=cut
        )
        self.down = RowParallelLinear(sizes.ffn, sizes.hidden, bias=bias, cut=cut)

    def forward(self, x: Tensor, turns: Angles) -> Tensor:
        """(batch, tokens, hidden) -> the same."""
        x = x + self.out(self.attend(self.qkv(self.first(x)), turns))
        inside = self.up(self.second(x))
        if self.llama:
            gate, value = inside.chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * value)
        return x + self.down(functional.gelu(inside, approximate="tanh"))

    def attend(self, qkv: Tensor, turns: Angles) -> Tensor:
        """Causal attention of this rank's heads."""
        batch, tokens, _ = qkv.shape
        heads, kv = self.heads, self.kv_heads
        split = qkv.view(batch, tokens, heads + 2 * kv, self.width).transpose(1, 2)
        q, k, v = split.split((heads, kv, kv), dim=1)
        if self.llama:
            # Rotated queries and keys are new tensors. So are the values: the joint product can go.
            q, k, v = rotate_halves(q, turns), rotate_halves(k, turns), v.contiguous()
        mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=heads != kv
        )
        return mixed.transpose(1, 2).reshape(batch, tokens, heads * self.width)


class TokenTable(nn.Module):  # type: ignore[misc, unused-ignore]
    """Token ids to hidden states."""

    def __init__(self, sizes: DecoderSizes, cut: TensorCut) -> None:
        super().__init__()
        self.cut, self.rows = cut, sizes.vocab // cut.parts
        self.form = computing(cut.groups.plan)
        self.weight = nn.Parameter(torch.empty(self.rows, sizes.hidden))
        some = sizes.positions
        self.positions = nn.Parameter(torch.empty(some, sizes.hidden)) if some else None

    def forward(self, ids: Tensor) -> Tensor:
        """Own rows, then those of the other ranks."""
        cut = self.cut
        if cut.parts == 1:
            x = functional.embedding(ids, self.weight).to(self.form)
        else:
            own = ids - cut.rank * self.rows
            here = (own >= 0) & (own < self.rows)
            x = functional.embedding(own.clamp(0, self.rows - 1), self.weight).to(self.form)
            x = leave(x * here[..., None], cut)
        if self.positions is None:
            return x
        first = cut.rank * x.shape[1] if cut.tokens else 0
        return x + self.positions[first : first + x.shape[1]].to(x.dtype)


class LossHead(nn.Module):  # type: ignore[misc, unused-ignore]
    """Last norm, scores, mean cross-entropy: in 32 bits where weights or a copy are, else as the scores."""

    def __init__(self, sizes: DecoderSizes, cut: TensorCut) -> None:
        super().__init__()
        self.cut, self.rows = cut, sizes.vocab // cut.parts
        self.wide = not narrow_loss(cut.groups.plan)
        self.norm = norm_of(sizes)
        self.scores = ColumnParallelLinear(sizes.hidden, sizes.vocab, bias=False, cut=cut)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """The loss of a micro-batch."""
        scores = self.scores(self.norm(x)).flatten(0, 1)
        scores = scores.float() if self.wide else scores
        if self.cut.parts == 1:
            return functional.cross_entropy(scores, targets.flatten())
        return self._cut_loss(scores, targets.flatten())

    def _cut_loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The loss where every rank has some of the scores: three numbers a token are exchanged."""
        cut = self.cut
        most = scores.detach().amax(-1)
        cut.groups.wait(cut.groups.all_reduce("tp", "loss", most, largest=True))
        scores = scores - most[:, None]
        total = leave(scores.exp().sum(-1), cut, "loss")
        own = targets - cut.rank * self.rows
        here = (own >= 0) & (own < self.rows)
        found = scores.gather(1, own.clamp(0, self.rows - 1)[:, None])[:, 0] * here
        return (total.log() - leave(found, cut, "loss")).mean()
