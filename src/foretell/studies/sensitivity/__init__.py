"""Records in, records out: `foretell.sensitivities`, how an answer moves with each number that it stands on.

Of a training step: time, money and energy; of a service: latencies, throughput, money and energy. Each has
its elasticity, d ln(result) / d ln(number), and finite what-ifs, a number better or worse by a factor, with
the plan held or chosen anew (search/what_if.py).
"""

from typing import TYPE_CHECKING

from foretell.errors import BadInput, Problem
from foretell.specs.questions.flags import asks
from foretell.specs.questions.studies import SensitivityQuestion

if TYPE_CHECKING:
    from foretell.studies.sensitivity.records import Sensitivities

LOAD = ("isl", "osl", "concurrency", "rate", "engine", "spread")
"""What a service is asked with, and training is not."""
OF_TRAINING = ("global_batch", "seq_len", "target_len", "rent", "years", "utilisation")
"""What training is asked with, and a service is not."""


@asks(SensitivityQuestion)
def sensitivities(question: SensitivityQuestion) -> "Sensitivities":
    """How a training step answers to every number, or, with a load, how a service does."""
    if any(getattr(question, name) is not None for name in LOAD):
        from foretell.studies.sensitivity.serving import of_serving

        wrong = [name for name in OF_TRAINING if getattr(question, name) is not None]
        if wrong:
            message = "is of training, and a service is asked about"
            raise BadInput(
                Problem(path=name, value=getattr(question, name), message=message) for name in wrong
            )
        return of_serving(question)
    from foretell.studies.sensitivity.training import of_training

    return of_training(question)
