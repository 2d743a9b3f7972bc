"""Softmax attention and the indexer of its sparse form."""

import torch
from torch import Tensor

from foretell.specs.block import MapShape
from foretell.specs.mixers import Attention, Indexer
from foretell.specs.model import NormKind
from foretell.zoo.layers import (
    Carry,
    GroupedLinear,
    Module,
    Norm,
    Options,
    attend,
    attention_mask,
    join_heads,
    linear,
    map_module,
    rotate,
    split_heads,
    visible,
)


class IndexerModule(Module):
    """score(t, s) = sum over heads of w_th relu(q_th . k_s); the best top_k keys of each query."""

    def __init__(self, spec: Indexer, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        if spec.ratio != 1:
            raise NotImplementedError("the zoo has no indexer over merged keys")
        if not spec.owns_weights:
            return
        self.q = linear(spec.query_inputs, spec.heads * spec.head_dim)
        self.k = linear(hidden, spec.head_dim)
        self.k_norm = Norm(spec.key_norm, spec.head_dim)
        self.weights = linear(hidden, spec.heads) if spec.head_weights else None

    def forward(self, hidden: Tensor, queries: Tensor, carry: Carry) -> Tensor:
        """True where a query keeps a key, (batch, 1, positions, positions)."""
        if not self.spec.owns_weights:
            assert carry.choice is not None, "no earlier layer has chosen keys"
            return carry.choice
        q = rotate(split_heads(self.q(queries), self.spec.heads))
        k = rotate(self.k_norm(self.k(hidden))[:, None])
        # One key is shared by all heads: expanded here, so that each head is one product.
        per_head = torch.relu(q @ k.expand(-1, self.spec.heads, -1, -1).transpose(-2, -1))
        if self.weights is not None:
            per_head = per_head * self.weights(hidden).transpose(1, 2)[..., None]
        scores = per_head.sum(dim=1)
        length = scores.shape[-1]
        seen = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
        carry.index_scores.append(scores)
        kept = scores.masked_fill(~seen, float("-inf")).topk(min(self.spec.top_k, length)).indices
        carry.choice = (torch.zeros_like(scores).scatter(-1, kept, 1.0).bool() & seen)[:, None]
        return carry.choice


class SoftmaxAttention(Module):
    """Multi-head, multi-query or grouped-query attention with all options of its record."""

    def __init__(self, spec: Attention, hidden: int, options: Options) -> None:
        super().__init__()
        if spec.compress_ratio is not None:
            raise NotImplementedError("the zoo has no attention over merged keys")
        self.spec, self.options = spec, options
        value_dim = spec.value_dim or spec.head_dim
        q_width, out_width = spec.heads * spec.head_dim, spec.heads * value_dim
        source = spec.cross_inputs or hidden
        inputs = spec.q_rank or hidden
        if spec.q_rank:
            self.q_down = linear(hidden, spec.q_rank)
            self.q_norm = Norm("rms", spec.q_rank)
        self.q = self._map(inputs, q_width, spec.q_bias)
        if spec.output_gate == "element":
            self.gate = linear(inputs, q_width)
        elif spec.output_gate == "head":
            self.gate = linear(hidden, spec.heads)
        if spec.owns_kv:
            self.k = self._map(source, spec.kv_heads * spec.head_dim, spec.k_bias)
            if not spec.value_is_key:
                self.v = self._map(source, spec.kv_heads * value_dim, spec.v_bias)
        self._make_norms()
        if spec.o_rank:
            ranks = spec.o_groups * spec.o_rank
            self.o_down = GroupedLinear(spec.o_groups, out_width, ranks)
            out_width = ranks
        self.o = linear(out_width, hidden, spec.o_bias)
        if spec.indexer is not None:
            self.indexer = IndexerModule(spec.indexer, hidden)

    def _map(self, inputs: int, outputs: int, bias: bool) -> Module:
        """A map before the scores, dense or by its factors."""
        shape = MapShape(name="map", inputs=inputs, outputs=outputs, bias=bias)
        made: Module = map_module(shape, self.spec.factor)
        return made

    def _make_norms(self) -> None:
        spec = self.spec
        if spec.qk_norm == "none":
            return
        kind: NormKind = "layer" if spec.qk_norm_bias else "rms"
        head = spec.qk_norm == "head"
        self.queries_norm = Norm(kind, spec.head_dim * (1 if head else spec.heads))
        if spec.owns_kv:
            self.keys_norm = Norm(kind, spec.head_dim * (1 if head else spec.kv_heads))

    def _heads(self, x: Tensor, heads: int, norm: Module | None) -> Tensor:
        """Heads of a projection, with its norm over the whole width or over each head."""
        if norm is not None and self.spec.qk_norm == "whole":
            x = norm(x)
        x = split_heads(x, heads)
        return norm(x) if norm is not None and self.spec.qk_norm == "head" else x

    def _keys_values(self, source: Tensor, carry: Carry) -> tuple[Tensor, Tensor]:
        spec = self.spec
        if not spec.owns_kv:
            assert carry.kv is not None, "no earlier layer has made keys and values"
            return carry.kv
        keys = self.k(source)
        values = keys if spec.value_is_key else self.v(source)
        k = self._heads(keys, spec.kv_heads, getattr(self, "keys_norm", None))
        if self.options.rotary and not spec.cross:
            k = rotate(k)
        carry.kv = (k, split_heads(values, spec.kv_heads))
        return carry.kv

    def _mix(
        self, x: Tensor, inputs: Tensor, qkv: tuple[Tensor, Tensor, Tensor], carry: Carry
    ) -> Tensor:
        """The core, over all keys, those of the mask, or those of the indexer."""
        spec, fused = self.spec, self.options.fused
        if spec.indexer is not None:
            return attend(*qkv, self.indexer(x, inputs, carry), fused)
        if spec.cross or spec.window is None:
            mask, causal = attention_mask(x, carry, causal=spec.causal, cross=spec.cross)
            return attend(*qkv, mask, fused, causal)
        mask = visible(
            x.shape[1], x.device, causal=spec.causal, window=spec.window, chunked=spec.chunked
        )
        return attend(*qkv, mask, fused)

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Attention of x over itself, or over the encoder's states."""
        spec = self.spec
        source = carry.states if spec.cross else x
        assert source is not None, "cross-attention needs an encoder"
        inputs = self.q_norm(self.q_down(x)) if spec.q_rank else x
        q = self._heads(self.q(inputs), spec.heads, getattr(self, "queries_norm", None))
        if self.options.rotary and not spec.cross:
            q = rotate(q)
        k, v = self._keys_values(source, carry)
        out = join_heads(self._mix(x, inputs, (q, k, v), carry))
        if spec.output_gate == "element":
            out = out * torch.sigmoid(self.gate(inputs))
        elif spec.output_gate == "head":
            gates = torch.sigmoid(self.gate(x))[..., None]
            out = (out.unflatten(-1, (spec.heads, -1)) * gates).flatten(-2)
        return self.o(self.o_down(out) if spec.o_rank else out)
