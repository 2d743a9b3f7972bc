"""Records in, records out: `foretell.sensitivities`, how an answer moves with each number that it stands on.

Of a training step: time, money and energy; of a service: latencies, throughput, money and energy. Each has
its elasticity, d ln(result) / d ln(number), and finite what-ifs, a number better or worse by a factor, with
the plan held or chosen anew (search/what_if.py).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.specs.model import Model
    from foretell.studies.sensitivity.records import Sensitivities

LOAD = ("isl", "osl", "concurrency", "rate", "engine", "spread")
"""What a service is asked with, and training is not."""


def sensitivities(model: "str | Path | Model", **question: Any) -> "Sensitivities":
    """How a training step answers to every number (the question as of `estimate`), or, with a load, how a
    service does (as of `serve`). Both take `factor`, `replan` and `price`; training also `rent`, `years` and
    `utilisation`.
    """
    given = {name: value for name, value in question.items() if value is not None}
    if any(name in given for name in LOAD):
        from foretell.studies.sensitivity.serving import of_serving

        return of_serving(model, **given)
    from foretell.studies.sensitivity.training import of_training

    return of_training(model, **given)
