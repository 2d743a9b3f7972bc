"""What is to be done: a training step (serving jobs come with part 6 of the product)."""

from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One optimizer step over a global batch."""

    gpus: int
    """Accelerators used."""
    global_batch: int
    """Sequences per step."""
    seq_len: int
    """Tokens per sequence (an encoder-decoder's source)."""
    target_len: int | None = None
    """Tokens per target sequence of an encoder-decoder."""

    @property
    def tokens_per_step(self) -> float:
        """Tokens of the global batch: source and target for an encoder-decoder."""
        return float(self.global_batch) * (self.seq_len + (self.target_len or 0))
