"""A question: a model, a system and a job, with everything that was assumed to make them."""

from collections.abc import Mapping
from dataclasses import field

from foretell.records import dataclass
from foretell.specs.model import Model
from foretell.specs.software import Software
from foretell.specs.system import System


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is asked, before any plan."""

    model: Model
    """What is trained."""
    system: System
    """What it is trained on."""
    job: Job
    """How much of it."""
    software: Software
    """The training framework that runs it."""
    assumptions: tuple[str, ...] = ()
    """Every default or guess made on the way."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Fields set by hand."""
    doubts: Mapping[str, object] = field(default_factory=dict)
    """Fields of the plan that recipes of the software set, and what they are where a run does not follow
    these: intervals leave room for it."""
