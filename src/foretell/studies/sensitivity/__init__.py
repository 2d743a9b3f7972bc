"""`foretell.sensitivity`: how an answer moves with each number that it depends on.

Of a training step: time, money and energy; of a service: latencies, throughput, money and energy. Each has
its elasticity, d ln(result) / d ln(number), and finite what-ifs, a number better or worse by a factor, with
the plan held or chosen anew (search/what_if.py).
"""

from typing import TYPE_CHECKING, Any, overload

from foretell.errors import BadInput, bad_input, wrong
from foretell.specs.questions.flags import asks
from foretell.specs.questions.studies import SensitivityQuestion
from foretell.specs.result import StepEstimate

if TYPE_CHECKING:
    from foretell.api.answers import Estimate
    from foretell.search.sensitivity import Sensitivity
    from foretell.specs.questions.common import ModelGiven
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

        given = {name: getattr(question, name) for name in OF_TRAINING}
        message = "is of training, and a service is asked about"
        if problems := [wrong(n, v, message) for n, v in given.items() if v is not None]:
            raise BadInput(problems)
        return of_serving(question)
    from foretell.studies.sensitivity.training import of_training

    return of_training(question)


@overload
def sensitivity(about: "Estimate", of: str = "step_s") -> "Sensitivity": ...
@overload
def sensitivity(about: "ModelGiven", **question: Any) -> "Sensitivities": ...
def sensitivity(about: Any, of: str = "step_s", **question: Any) -> "Sensitivity | Sensitivities":
    """Which hardware numbers move a result, and by how much: d ln(result) / d ln(number).

    Of an estimate: elasticities of one result (`of`: step_s, energy_joules, ...) with its plan fixed. Of a
    model: the question as of `estimate`, or with a load (`isl`, `concurrency`, ...) as of `serve`; then time,
    money and energy together, with what-ifs by `factor` and, with `replan=True`, the best plan of each.
    """
    if not isinstance(about, StepEstimate):
        if of != "step_s":
            raise bad_input("of", of, "belongs to an estimate; a question answers for every result")
        return sensitivities(about, **question)
    if question:
        message = "an estimate carries its own question"
        raise BadInput(wrong(name, value, message) for name, value in question.items())
    from foretell.api.training import sensitivity as of_estimate

    return of_estimate(about, of)  # type: ignore[arg-type]
