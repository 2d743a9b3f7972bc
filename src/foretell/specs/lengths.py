"""Lengths of requests: a shape around a mean, or the lengths of a file."""

from typing import Literal, get_args

from foretell.records import dataclass

LengthShape = Literal["lognormal", "fixed", "uniform", "exponential"]
SHAPES: tuple[LengthShape, ...] = get_args(LengthShape)
"""How lengths may spread around their mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthForm:
    """How the lengths of requests spread."""

    shape: LengthShape = "fixed"
    """Around the mean that is given beside it, where there are no samples."""
    answers: tuple[float, ...] = ()
    """Answer tokens of the requests of a file; empty: a shape was named."""
    prompts: tuple[float, ...] = ()
    """Prompt tokens of the same requests; empty: the file has none."""

    @property
    def answer_mean(self) -> float:
        """Mean answer of the samples."""
        return sum(self.answers) / len(self.answers)

    @property
    def prompt_mean(self) -> float:
        """Mean prompt of the samples."""
        return sum(self.prompts) / len(self.prompts)
