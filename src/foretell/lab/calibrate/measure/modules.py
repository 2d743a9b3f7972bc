"""Plain transformer layers and models as people write them, to be timed; torch is imported with this file."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from foretell.records import dataclass

Cache = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchShape:
    """Sizes of a layer."""

    style: Literal["llama", "gpt"]
    """llama: RMS norm, rotary, gated, no biases; gpt: layer norm, GELU, biases."""
    hidden: int
    """Width."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    ffn: int
    """Width of the feed-forward part."""


class BenchRms(nn.Module):  # type: ignore[misc, unused-ignore]
    """RMS norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Over the last dim."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class BenchLayer(nn.Module):  # type: ignore[misc, unused-ignore]
    """One layer: attention and feed-forward part, each behind a norm and beside a skip."""

    def __init__(self, shape: BenchShape) -> None:
        super().__init__()
        self.shape = shape
        self.width = shape.hidden // shape.heads
        llama = shape.style == "llama"
        self.llama = llama
        keys = shape.kv_heads * self.width
        self.qkv = nn.Linear(shape.hidden, shape.hidden + 2 * keys, bias=not llama)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=not llama)
        self.up = nn.Linear(shape.hidden, shape.ffn * (2 if llama else 1), bias=not llama)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=not llama)
        norm = BenchRms if llama else nn.LayerNorm
        self.first, self.second = norm(shape.hidden), norm(shape.hidden)

    def forward(
        self, x: torch.Tensor, angles: Cache, cache: Cache | None = None, at: int = 0
    ) -> torch.Tensor:
        """(batch, tokens, hidden) -> the same; with a cache, its last places are written and all read."""
        x = x + self.out(self.attend(self.qkv(self.first(x)), angles, cache, at))
        inside = self.up(self.second(x))
        if self.llama:
            gate, value = inside.chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * value)
        return x + self.down(functional.gelu(inside))

    def attend(
        self, qkv: torch.Tensor, angles: Cache, cache: Cache | None, at: int
    ) -> torch.Tensor:
        """Attention over the tokens themselves, or over a cache."""
        batch, tokens, _ = qkv.shape
        heads, kv = self.shape.heads, self.shape.kv_heads
        split = qkv.view(batch, tokens, heads + 2 * kv, self.width).transpose(1, 2)
        q, k, v = split.split((heads, kv, kv), dim=1)
        if self.llama:
            q, k = rotate_halves(q, angles), rotate_halves(k, angles)
        if cache is not None:
            cache[0][:, :, at : at + tokens] = k
            cache[1][:, :, at : at + tokens] = v
            k, v = cache
        if cache is not None and tokens == 1 and heads != kv:
            # Heads that share keys become queries of one head: the cache is read once.
            folded = q.reshape(batch, kv, heads // kv, self.width)
            mixed = functional.scaled_dot_product_attention(folded, k, v)
            return mixed.reshape(batch, 1, heads * self.width)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=cache is None, enable_gqa=heads != kv
        )
        return mixed.transpose(1, 2).reshape(batch, tokens, heads * self.width)


def rotate_halves(x: torch.Tensor, angles: Cache) -> torch.Tensor:
    """Rotary position embedding in halves."""
    first, second = x.chunk(2, dim=-1)
    return x * angles[0] + torch.cat((-second, first), dim=-1) * angles[1]


def angles(tokens: int, width: int, start: int, like: torch.Tensor) -> Cache:
    """Cosines and sines of positions."""
    places = torch.arange(start, start + tokens, device=like.device, dtype=torch.float32)
    speeds = 10000.0 ** (-torch.arange(0, width, 2, device=like.device) / width)
    turns = torch.outer(places, speeds).repeat(1, 2)
    return turns.cos().to(like.dtype), turns.sin().to(like.dtype)


class BenchModel(nn.Module):  # type: ignore[misc, unused-ignore]
    """Table, layers, norm, scores."""

    def __init__(self, shape: BenchShape, layers: int, vocab: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, shape.hidden)
        self.blocks = nn.ModuleList(BenchLayer(shape) for _ in range(layers))
        self.norm = BenchRms(shape.hidden) if shape.style == "llama" else nn.LayerNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, vocab, bias=False)

    def forward(
        self, ids: torch.Tensor, turns: Cache, caches: Sequence[Cache] | None = None, at: int = 0
    ) -> torch.Tensor:
        """Hidden states before the head."""
        x = self.table(ids)
        for index, block in enumerate(self.blocks):
            x = block(x, turns, None if caches is None else caches[index], at)
        return self.norm(x)


def loss_of(x: torch.Tensor, head: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the scores, in 32 bits."""
    scores = functional.linear(x, head)
    return functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten())


def make_module(make: Any, device: str, dtype: torch.dtype) -> Any:
    """A module built on its device with random weights: never zeros, which run faster than real ones."""
    with torch.device("meta"):
        module = make()
    module = module.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, 0.02)
            else:
                weight.fill_(1.0).add_(torch.randn_like(weight) * 0.02)
    return module


def routed_layer(
    x: torch.Tensor, router: torch.Tensor, up: torch.Tensor, down: torch.Tensor, chosen: int
) -> torch.Tensor:
    """A dropless layer of gated experts over (tokens, hidden): rows sorted by expert, grouped products."""
    scores = functional.linear(x, router).float().softmax(-1)
    weights, ids = scores.topk(chosen, dim=-1)
    ordered, order = ids.flatten().sort(stable=True)
    every = torch.arange(router.shape[0], device=x.device)
    ends = torch.searchsorted(ordered, every, right=True).to(torch.int32)
    token = order // chosen
    gate, value = _grouped(x[token], up, ends).chunk(2, dim=-1)
    rows = _grouped(functional.silu(gate) * value, down, ends)
    rows = rows * weights.flatten()[order, None].to(rows.dtype)
    return torch.zeros_like(x).index_add(0, token, rows)


def _grouped(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows times the matrix of their expert; on a CPU expert by expert."""
    if rows.device.type == "cpu":
        pieces = rows.tensor_split([int(end) for end in ends[:-1]])
        return torch.cat([piece @ weight for piece, weight in zip(pieces, weights, strict=True)])
    product: Any = getattr(functional, "grouped_mm", None) or torch._grouped_mm
    return product(rows, weights, offs=ends)


def scaled_linear(x: torch.Tensor, weight: torch.Tensor, rows: bool) -> torch.Tensor:
    """x W^T in fp8 with scales found on the way: one a tensor, or one a row and a column."""
    return _ScaledLinear.apply(x, weight, rows)


def _to_fp8(x: torch.Tensor, rows: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The tensor in fp8, rows contiguous, and what it was divided by."""
    form = torch.float8_e4m3fn
    most = x.abs().amax(dim=-1, keepdim=True) if rows else x.abs().amax()
    scale = most.float().clamp(min=1e-12) / torch.finfo(form).max
    return (x.float() / scale).to(form), scale


def _scaled_product(left: torch.Tensor, right: torch.Tensor, rows: bool) -> torch.Tensor:
    """left[m,k] right[n,k]^T, both cast here."""
    (a, scale_a), (b, scale_b) = _to_fp8(left, rows), _to_fp8(right, rows)
    product: Any = torch._scaled_mm
    return product(
        a,
        b.t(),
        scale_a=scale_a,
        scale_b=scale_b.t() if rows else scale_b,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


class _ScaledLinear(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """All three products in fp8."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, rows: bool) -> torch.Tensor:
        """y = x W^T."""
        ctx.save_for_backward(x, weight)
        ctx.rows = rows
        return _scaled_product(x, weight, rows)

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """dx = dy W and dW = dy^T x; fp8 products take rows of both, so both are turned first."""
        x, weight = ctx.saved_tensors
        turned = slope.t().contiguous()
        dx = _scaled_product(slope, weight.t().contiguous(), ctx.rows)
        dw = _scaled_product(turned, x.t().contiguous(), ctx.rows)
        return dx, dw, None
