"""Dense feed-forward parts and mixtures of experts."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.specs.block import MapShape
from foretell.specs.ffn import Dense, Experts
from foretell.zoo.layers import Module, Norm, linear, map_module, spare


def activate(name: str, x: Tensor, gated: bool) -> Tensor:
    """The activation by its name (SiLU where it is unknown), times the gate's other half."""
    if gated:
        first, second = x.chunk(2, dim=-1)
        return activate(name, first, gated=False) * second
    if name == "relu2":
        return torch.relu(x).square()
    if name == "relu":
        return torch.relu(x)
    return functional.gelu(x) if name.startswith("gelu") else functional.silu(x)


class DenseFeedForward(Module):
    """up, activation, down; or one map."""

    def __init__(self, spec: Dense, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        if spec.linear:
            self.map = linear(hidden, hidden, spec.up_bias)
            return
        if spec.factor is not None:
            up = MapShape(name="up", inputs=hidden, outputs=spec.width, bias=spec.up_bias)
            down = MapShape(name="down", inputs=spec.width, outputs=hidden, bias=spec.down_bias)
            self.ups = nn.ModuleList(
                map_module(up, spec.factor) for _ in range(2 if spec.gated else 1)
            )
            self.down = map_module(down, spec.factor)
            return
        self.up = linear(hidden, spec.width * (2 if spec.gated else 1), spec.up_bias)
        self.down = linear(spec.width, hidden, spec.down_bias)

    def forward(self, x: Tensor) -> Tensor:
        """On every token."""
        if self.spec.linear:
            return self.map(x)
        if self.spec.factor is not None:
            inner = activate(self.spec.activation, self.ups[0](x), gated=False)
            return self.down(inner * self.ups[1](x) if self.spec.gated else inner)
        return self.down(activate(self.spec.activation, self.up(x), self.spec.gated))


class MixtureOfExperts(Module):
    """Router, routed experts without capacity limit, shared experts; a loop over the experts."""

    def __init__(self, spec: Experts, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        inner, ups = spec.latent or hidden, spec.width * (2 if spec.gated else 1)
        if spec.has_router:
            self.router = linear(hidden, spec.experts)
        self.bias = nn.Parameter(torch.zeros(spec.experts)) if spec.router_bias else None
        self.up = nn.Parameter(torch.randn(spec.experts, ups, inner) * inner**-0.5)
        self.down = nn.Parameter(torch.randn(spec.experts, inner, spec.width) * spec.width**-0.5)
        biased = spec.expert_bias
        self.up_bias = nn.Parameter(torch.zeros(spec.experts, ups)) if biased else None
        self.down_bias = nn.Parameter(torch.zeros(spec.experts, inner)) if biased else None
        if spec.latent:
            self.latent_down, self.latent_up = linear(hidden, inner), linear(inner, hidden)
            self.latent_norm = Norm("rms" if spec.latent_norm else "none", inner)
        if spec.shared_width:
            shared = Dense(width=spec.shared_width, gated=spec.gated, activation=spec.activation)
            self.shared = DenseFeedForward(shared, hidden)
            if spec.shared_gate:
                self.shared_gate = linear(hidden, 1)
        self.spare = spare(spec.extra_parameters)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(weights, experts) of each token; without a router, by its place."""
        spec = self.spec
        if not spec.has_router:
            place = torch.arange(x.shape[0], device=x.device)[:, None]
            chosen = (place + torch.arange(spec.top_k, device=x.device)) % spec.experts
            return x.new_full(chosen.shape, 1.0 / spec.top_k), chosen
        scores = self.router(x)
        if self.bias is not None:
            scores = scores + self.bias
        best, chosen = scores.topk(spec.top_k, dim=-1)
        return best.softmax(dim=-1), chosen

    def forward(self, x: Tensor) -> Tensor:
        """On every token."""
        spec, shape = self.spec, x.shape
        x = x.reshape(-1, shape[-1])
        weights, chosen = self.route(x)
        tokens = self.latent_norm(self.latent_down(x)) if spec.latent else x
        out = torch.zeros_like(tokens)
        for i in range(spec.experts):
            rows, rank = torch.where(chosen == i)
            up_bias = None if self.up_bias is None else self.up_bias[i]
            down_bias = None if self.down_bias is None else self.down_bias[i]
            inner = activate(
                spec.activation, functional.linear(tokens[rows], self.up[i], up_bias), spec.gated
            )
            result = functional.linear(inner, self.down[i], down_bias) * weights[rows, rank, None]
            out = out.index_add(0, rows, result)
        if spec.latent:
            out = self.latent_up(out)
        if spec.shared_width:
            shared = self.shared(x)
            if spec.shared_gate:
                shared = shared * torch.sigmoid(self.shared_gate(x))
            out = out + shared
        return out.reshape(shape)
