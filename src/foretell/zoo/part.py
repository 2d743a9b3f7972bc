"""A module made of weights by name, other modules by name, and a function of them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from foretell.zoo.layers import Module

Weights = Mapping[str, tuple[tuple[int, ...], float | str]]
"""Name -> shape and standard deviation (0: zeros), or `orthogonal`."""


class Part(Module):
    """What a block's file needs of torch: `run(part, *inputs)`, where `part[name]` is a weight or a
    module."""

    def __init__(
        self,
        weights: Weights,
        run: Callable[..., Any],
        parts: Mapping[str, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(shape)) for name, (shape, _) in weights.items()}
        )
        for name, (_, spread) in weights.items():
            if spread == "orthogonal":
                nn.init.orthogonal_(self.weights[name])
            elif spread:
                nn.init.normal_(self.weights[name], std=float(spread))
        self.parts = nn.ModuleDict(parts or {})
        self.run = run

    def __getitem__(self, name: str) -> Any:
        """A weight or a module by its name."""
        return self.weights[name] if name in self.weights else self.parts[name]

    def forward(self, *inputs: Any) -> Any:
        """The function of the weights and the inputs."""
        return self.run(self, *inputs)
