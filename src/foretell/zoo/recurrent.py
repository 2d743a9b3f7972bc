"""Recurrent mixers in chunked form: Mamba-2 and the gated delta rule.

All heavy work is plain matrix products, so that a FLOP counter sees it; the exceptions are named
where they occur. Chunked and step-by-step forms give the same numbers, which the tests hold.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.specs.mixers import DeltaNet, Mamba2
from foretell.zoo.layers import Carry, Module, Norm, linear


class CausalConvolution(Module):
    """Depthwise convolution over the last positions, then SiLU."""

    def __init__(self, channels: int, kernel: int, bias: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(channels, channels, kernel, groups=channels, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, positions, channels) -> the same."""
        return functional.silu(
            self.conv(functional.pad(x.transpose(1, 2), (self.kernel - 1, 0))).transpose(1, 2)
        )


def chunks(x: Tensor, size: int) -> Tensor:
    """(batch, positions, heads, ...) -> (batch, heads, chunks, size, ...), zeros behind the end."""
    missing = -x.shape[1] % size
    if missing:
        x = torch.cat((x, x.new_zeros(x.shape[0], missing, *x.shape[2:])), dim=1)
    return x.unflatten(1, (-1, size)).movedim(3, 1)


def unchunk(x: Tensor, length: int) -> Tensor:
    """(batch, heads, chunks, size, width) -> (batch, positions, heads, width)."""
    return x.movedim(1, 3).flatten(1, 2)[:, :length]


def decays(cumulative: Tensor) -> Tensor:
    """exp(c_i - c_j) for j <= i, else 0, from cumulative log decays (..., size)."""
    gap = cumulative[..., :, None] - cumulative[..., None, :]
    size = gap.shape[-1]
    lower = torch.ones(size, size, dtype=torch.bool, device=gap.device).tril()
    return gap.masked_fill(~lower, float("-inf")).exp()


def ssd(x: Tensor, log_decay: Tensor, b: Tensor, c: Tensor, size: int) -> Tensor:
    """h_t = exp(log_decay_t) h_(t-1) + b_t x_t^T, y_t = c_t h_t, in chunks (arXiv 2405.21060, sec.
    6).

    x (batch, positions, heads, P), log_decay (batch, positions, heads), b and c (batch, positions,
    groups, N). The pass of states from chunk to chunk is element-wise.
    """
    length, heads, groups = x.shape[1], x.shape[2], b.shape[2]
    x, b, c = (chunks(t, size) for t in (x, b, c))
    total = chunks(log_decay, size).cumsum(dim=-1)
    square = (c @ b.transpose(-2, -1)).repeat_interleave(heads // groups, dim=1)
    inside = (square * decays(total)) @ x
    b, c = (t.repeat_interleave(heads // groups, dim=1) for t in (b, c))
    to_end = (total[..., -1:] - total).exp()[..., None]
    made = b.transpose(-2, -1) @ (to_end * x)
    state = torch.zeros_like(made[:, :, 0])
    before = []
    for i in range(made.shape[2]):
        before.append(state)
        state = total[:, :, i, -1].exp()[..., None, None] * state + made[:, :, i]
    across = (c * total.exp()[..., None]) @ torch.stack(before, dim=2)
    return unchunk(inside + across, length)


class Mamba2Mixer(Module):
    """Projection, convolution, state-space scan with skip, gated norm, projection."""

    def __init__(self, spec: Mamba2, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        self.inner = spec.heads * spec.head_dim
        self.shared = spec.groups * spec.state
        width = 2 * self.inner + 2 * self.shared + spec.heads
        self.into = linear(hidden, width, spec.proj_bias)
        self.conv = CausalConvolution(
            self.inner + 2 * self.shared, spec.conv_kernel, spec.conv_bias
        )
        self.rate = nn.Parameter(torch.linspace(0.0, 2.0, spec.heads))
        self.skip = nn.Parameter(torch.ones(spec.heads))
        self.step_bias = nn.Parameter(torch.zeros(spec.heads))
        self.norm = Norm("rms" if spec.gated_norm else "none", self.inner)
        self.out = linear(self.inner, hidden, spec.proj_bias)

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Over (batch, positions, hidden)."""
        del carry
        spec = self.spec
        z, mixed, step = self.into(x).split(
            (self.inner, self.inner + 2 * self.shared, spec.heads), dim=-1
        )
        values, b, c = self.conv(mixed).split((self.inner, self.shared, self.shared), dim=-1)
        step = functional.softplus(step + self.step_bias)
        values = values.unflatten(-1, (spec.heads, -1))
        b, c = (t.unflatten(-1, (spec.groups, -1)) for t in (b, c))
        size = min(spec.chunk, x.shape[1])
        y = ssd(values * step[..., None], -step * self.rate.exp(), b, c, size)
        y = (y + values * self.skip[:, None]).flatten(-2)
        return self.out(self.norm(y * functional.silu(z)))


class _UnitInverse(torch.autograd.Function):  # type: ignore[misc]  # see parts.Module
    """(I + A)^-1 of a strictly lower triangular A.

    Forward is a triangular solve, which torch's FLOP counter does not count; the gradient is the
    two products -T^T dT T^T.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, a: Tensor) -> Tensor:
        eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        inverse = torch.linalg.solve_triangular(a + eye, eye, upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        turned = inverse.transpose(-2, -1)
        return (-(turned @ gradient @ turned)).tril(-1)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, size: int
) -> Tensor:
    """S_t = D_t S_(t-1) + beta_t k_t (v_t - (D_t S_(t-1))^T k_t)^T, o_t = S_t^T q_t, in chunks.

    All have (batch, positions, heads, ...); log_decay has a last dim of 1 (D a number) or of the
    key's width (D diagonal: Kimi delta attention). The UT transform of arXiv 2412.06464, section
    3.3. Per-channel decays are taken relative to the middle of the chunk, which keeps both factors
    in range for chunks of usual size.
    """
    length, channels = q.shape[1], log_decay.shape[-1] > 1
    q, k, v, beta = (chunks(t, size) for t in (q, k, v, beta[..., None]))
    total = chunks(log_decay, size).cumsum(dim=-2)
    middle = total[..., size // 2 : size // 2 + 1, :]
    if channels:
        rows, columns, fade = (total - middle).exp(), (middle - total).exp(), 1.0
    else:
        rows, columns, fade = 1.0, 1.0, decays(total[..., 0])
    kb = k * beta
    inverse = _UnitInverse.apply((((kb * rows) @ (k * columns).transpose(-2, -1)) * fade).tril(-1))
    new_v, new_k = inverse @ (v * beta), inverse @ (kb * total.exp())
    inside = (((q * rows) @ (k * columns).transpose(-2, -1)) * fade).tril()
    last = total[..., -1:, :]
    k_end, q_start = k * (last - total).exp(), q * total.exp()
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    out = []
    for i in range(q.shape[2]):
        fresh = new_v[:, :, i] - new_k[:, :, i] @ state
        out.append(q_start[:, :, i] @ state + inside[:, :, i] @ fresh)
        state = state * last[:, :, i].exp().transpose(-2, -1)
        state = state + k_end[:, :, i].transpose(-2, -1) @ fresh
    return unchunk(torch.stack(out, dim=2), length)


class DeltaNetMixer(Module):
    """Projections, convolution over q, k and v, gated delta rule, gated norm, projection."""

    def __init__(self, spec: DeltaNet, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        self.keys = spec.key_heads * spec.key_dim
        self.values = spec.value_heads * spec.value_dim
        rates = spec.key_dim if spec.decay == "channel" else 1
        self.into = linear(hidden, 2 * self.keys + self.values)
        self.beta = linear(hidden, spec.value_heads)
        decay_rank = spec.decay_rank if spec.decay == "channel" else None
        self.decay = _map(hidden, decay_rank, spec.value_heads * rates)
        self.gate = _map(hidden, spec.gate_rank, self.values)
        self.conv = CausalConvolution(2 * self.keys + self.values, spec.conv_kernel, spec.conv_bias)
        self.rate = nn.Parameter(torch.linspace(-2.0, 0.0, spec.value_heads))
        self.step_bias = nn.Parameter(torch.zeros(spec.value_heads * rates))
        self.norm = Norm("rms", spec.value_dim)
        self.out = linear(self.values, hidden)

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Over (batch, positions, hidden)."""
        del carry
        spec = self.spec
        q, k, v = self.conv(self.into(x)).split((self.keys, self.keys, self.values), dim=-1)
        repeats = spec.value_heads // spec.key_heads
        q, k = (
            functional.normalize(t.unflatten(-1, (spec.key_heads, -1)), dim=-1).repeat_interleave(
                repeats, dim=2
            )
            for t in (q, k)
        )
        step = functional.softplus(self.decay(x) + self.step_bias).unflatten(
            -1, (spec.value_heads, -1)
        )
        y = delta_rule(
            q * spec.key_dim**-0.5,
            k,
            v.unflatten(-1, (spec.value_heads, -1)),
            torch.sigmoid(self.beta(x)),
            -step * self.rate.exp()[:, None],
            min(spec.chunk, x.shape[1]),
        )
        gates = functional.silu(self.gate(x)).unflatten(-1, (spec.value_heads, -1))
        return self.out((self.norm(y) * gates).flatten(-2))


def _map(inputs: int, rank: int | None, outputs: int) -> nn.Module:
    """A map, directly or through a low rank."""
    if rank is None:
        return linear(inputs, outputs)
    return nn.Sequential(linear(inputs, rank), linear(rank, outputs))
