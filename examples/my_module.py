"""A module of one's own, for `foretell trace examples/my_module.py:build`: no weights, no GPU."""

import torch
from torch import nn


class Decoder(nn.Module):
    """Twelve transformer blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32000, 1024)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True)
            for _ in range(12)
        )
        self.head = nn.Linear(1024, 32000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.head(hidden)
        return logits


def build() -> nn.Module:
    """What is traced."""
    return Decoder()
