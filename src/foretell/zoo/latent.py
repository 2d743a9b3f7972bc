"""Multi-head latent attention, expanded or absorbed: two orders of the same products."""

import torch
from torch import Tensor

from foretell.specs.mixers import LatentAttention
from foretell.zoo.attention import IndexerModule
from foretell.zoo.layers import (
    Carry,
    Module,
    Norm,
    Options,
    attend,
    join_heads,
    linear,
    rotate,
    split_heads,
    visible,
)


class MultiHeadLatent(Module):
    """Keys and values of all heads from one low rank per token."""

    def __init__(self, spec: LatentAttention, hidden: int, options: Options) -> None:
        super().__init__()
        self.spec, self.options = spec, options
        # Sparse kernels are published in the absorbed form alone.
        self.absorbed = spec.indexer is not None
        if spec.q_rank is not None:
            self.q_down = linear(hidden, spec.q_rank, spec.bias)
            self.q_norm = Norm("rms", spec.q_rank)
        self.q = linear(spec.q_rank or hidden, spec.heads * (spec.nope_dim + spec.rope_dim))
        self.kv_down = linear(hidden, spec.kv_rank + spec.rope_dim, spec.bias)
        self.kv_norm = Norm("rms", spec.kv_rank)
        self.kv_up = linear(spec.kv_rank, spec.heads * (spec.nope_dim + spec.value_dim))
        if spec.output_gate != "none":
            per_head = spec.value_dim if spec.output_gate == "element" else 1
            self.gate = linear(hidden, spec.heads * per_head)
        self.o = linear(spec.heads * spec.value_dim, hidden, spec.bias)
        if spec.indexer is not None:
            self.indexer = IndexerModule(spec.indexer, hidden)

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Causal attention of x over itself."""
        spec = self.spec
        inputs = x if spec.q_rank is None else self.q_norm(self.q_down(x))
        q = split_heads(self.q(inputs), spec.heads)
        q_nope, q_rope = q.split((spec.nope_dim, spec.rope_dim), dim=-1)
        latent, k_rope = self.kv_down(x).split((spec.kv_rank, spec.rope_dim), dim=-1)
        latent, k_rope = self.kv_norm(latent), rotate(k_rope[:, None])
        if spec.indexer is not None:
            mask = self.indexer(x, inputs, carry)
        else:
            mask = visible(x.shape[1], x.device, causal=True, window=None, chunked=False)
        core = self._absorbed if self.absorbed else self._expanded
        out = join_heads(core(q_nope, rotate(q_rope), latent, k_rope, mask))
        if spec.output_gate != "none":
            gates = torch.sigmoid(self.gate(x)).unflatten(-1, (spec.heads, -1))
            out = (out.unflatten(-1, (spec.heads, -1)) * gates).flatten(-2)
        return self.o(out)

    def _expanded(
        self, q_nope: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, mask: Tensor
    ) -> Tensor:
        """Every head has keys and values of its own; the rotary key is copied to all."""
        spec = self.spec
        kv = split_heads(self.kv_up(latent), spec.heads)
        k_nope, v = kv.split((spec.nope_dim, spec.value_dim), dim=-1)
        k = torch.cat((k_nope, k_rope.expand(-1, spec.heads, -1, -1)), dim=-1)
        return attend(torch.cat((q_nope, q_rope), dim=-1), k, v, mask, self.options.fused)

    def _absorbed(
        self, q_nope: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, mask: Tensor
    ) -> Tensor:
        """Queries in the latent's rank, one key and value for all heads, values out of the rank."""
        spec = self.spec
        up = self.kv_up.weight.unflatten(0, (spec.heads, -1))
        into, out = up.split((spec.nope_dim, spec.value_dim), dim=1)
        q = torch.cat((_per_head(q_nope, into), q_rope), dim=-1)
        k = torch.cat((latent[:, None], k_rope), dim=-1)
        # attend scales by its own width; the model's scale is that of the expanded keys.
        q = q * (q.shape[-1] / (spec.nope_dim + spec.rope_dim)) ** 0.5
        mixed = attend(q, k, latent[:, None], mask, self.options.fused)
        return _per_head(mixed, out.transpose(1, 2))


def _per_head(x: Tensor, weight: Tensor) -> Tensor:
    """(batch, heads, positions, i) x (heads, i, o), one product per head over all tokens."""
    batch, heads, length, _ = x.shape
    rows = x.transpose(0, 1).reshape(heads, batch * length, -1)
    return torch.bmm(rows, weight).reshape(heads, batch, length, -1).transpose(0, 1)
