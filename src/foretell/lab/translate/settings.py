"""What a training run is asked, and the ranges of its numbers."""

import math
from dataclasses import field
from typing import Literal

from foretell.errors import BadInput, Problem
from foretell.lab.translate.models import TranslationSizes
from foretell.records import dataclass

LATER = ("epochs", "steps", "patience", "checkpoint_every", "evaluate_every", "device")
"""Settings that a run may go on with changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationSettings:
    """What to train, on what, how; the numbers are the published ones."""

    source: str
    """File of source lines."""
    target: str
    """File of target lines."""
    model: str = "anthe"
    """Catalogue id or file of an encoder-decoder."""
    sizes: TranslationSizes = field(default_factory=lambda: TranslationSizes(vocab=32_000))
    """Other sizes than the model's own."""
    form: Literal["auto", "build", "contract"] = "auto"
    """Form of its tensor chains."""
    batch: int = 64
    """Pairs in a step."""
    rate: float = 3.16e-5
    """Learning rate."""
    dropout: float = 0.1
    """Share set to zero behind embeddings and parts."""
    max_source: int = 100
    """Longest source in tokens, its end counted."""
    max_target: int = 101
    """Longest target in tokens, its end counted."""
    held_out: float = 0.1
    """Share of the pairs to measure on."""
    epochs: int = 1000
    """Passes over the text at most."""
    steps: int | None = None
    """Steps at most."""
    evaluate_every: int | None = None
    """Steps between evaluations; none: one at the end of each epoch."""
    patience: int = 10
    """Evaluations without a better loss after which to stop."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""
    seed: int = 0
    """Of the split, the weights, the order and the dropout."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of the products; weights stay in 32 bits."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""


def check(s: TranslationSettings) -> None:
    """Every number in range, all problems at once."""
    problems: list[Problem] = []

    def need(name: str, good: bool, allowed: str) -> None:
        value = getattr(s, name)
        if not good:
            problems.append(
                Problem(path=name, value=value, message="is out of range", allowed=allowed)
            )

    for name in ("batch", "epochs", "patience", "checkpoint_every"):
        need(name, getattr(s, name) >= 1, "1 or more")
    for name in ("steps", "evaluate_every"):
        need(name, getattr(s, name) is None or getattr(s, name) >= 1, "1 or more")
    for name in ("max_source", "max_target"):
        need(name, getattr(s, name) >= 2, "2 or more")
    need("rate", 0.0 < s.rate < math.inf, "above 0")
    need("dropout", 0.0 <= s.dropout < 1.0, "from 0 to below 1")
    need("held_out", 0.0 < s.held_out < 1.0, "between 0 and 1")
    for path in ("width", "layers", "heads", "ffn", "vocab"):
        value = getattr(s.sizes, path)
        if value is not None and value < 1:
            problems.append(
                Problem(path=path, value=value, message="is out of range", allowed="1 or more")
            )
    if problems:
        raise BadInput(problems)
