"""Whether a measured number can be of what was asked: a gate of two sides in front of what learns from it."""

from collections.abc import Mapping

from foretell.errors import BadInput, Problem

FAR_STEP, FAR_SERVICE = 100.0, 300.0
"""How many times more or less than predicted is believed: of a training step, and of a service, whose first
tokens may wait in a queue."""


def check_plausible(
    source: str, figures: Mapping[str, tuple[float, float]], far: float = FAR_STEP
) -> None:
    """BadInput with every figure (measured, predicted) that is too far from its prediction to be of it."""
    problems = []
    for name, (measured, predicted) in figures.items():
        if predicted <= 0.0 or predicted / far <= measured <= predicted * far:
            continue
        message = (
            f"{measured:.4g} is not believed where {predicted:.4g} is predicted; likely it is in "
            "another unit, or of another batch, sequence length, model or number of GPUs"
        )
        allowed = f"{predicted / far:.3g} to {predicted * far:.3g}"
        problems.append(Problem(path=name, value=source, message=message, allowed=allowed))
    if problems:
        raise BadInput(problems)
