"""Why a published search has no candidate: the first rule that leaves nothing, and a count that works."""

from typing import Any

from foretell.errors import Problem
from foretell.lab.reference.check import check_search
from foretell.lab.reference.iteration import ReferenceQuestion
from foretell.lab.reference.space import divisors, enumerate_space, splits_of

MOST_TRIED = 400
"""Neighbouring GPU counts that are tried for one that works."""


def why_none(**asked: Any) -> Problem:
    """Why `reference.search` with these arguments has no candidate."""
    checked = check_search(**asked)
    return no_candidate(checked.question, checked.gpus)


def no_candidate(question: ReferenceQuestion, gpus: int) -> Problem:
    """The rule that leaves no plan, and the nearest number of GPUs with one."""
    near = _nearest(question, gpus)
    return Problem(
        path="gpus",
        value=gpus,
        message=f"no plan of the published space: {_rule(question, gpus)}",
        allowed="numbers of GPUs whose factors the model's heads, width and layers and the batch can take",
        nearest=None if near is None else str(near),
    )


def _rule(question: ReferenceQuestion, gpus: int) -> str:
    model, batch = question.model, question.global_batch
    splits = splits_of(model, question.strategy, gpus)
    n, m1, m2, pp = splits.T
    dp = n // (m1 * m2 * pp)
    if not len(splits):
        return f"no tensor split of {model.heads} heads and a width of {model.embed} leaves shards of 128"
    if not (batch % dp == 0).any():
        least = int(dp.min())
        return (
            f"data parallelism must divide the global batch of {batch}, and every split of {gpus} GPUs into "
            f"tensor ranks (divisors of {model.heads} heads) and stages (divisors of {model.layers} layers) "
            f"leaves a number of replicas that does not ({_factors(gpus)}; the fewest are {least})"
        )
    tokens = {"1d": m1, "2d": m2, "2d-seqp": m1 * m2}[question.strategy]
    return (
        f"no micro-batch that divides {batch} samples over the replicas splits its {model.seq_len} tokens "
        f"evenly over {int(tokens.min())} or more ranks"
    )


def _factors(number: int) -> str:
    """A number as a product of primes."""
    found, rest = [], number
    for prime in [int(d) for d in divisors(number)[1:]]:
        while rest % prime == 0:
            found.append(str(prime))
            rest //= prime
    return f"{number} = {' x '.join(found) or '1'}"


def _nearest(question: ReferenceQuestion, gpus: int) -> int | None:
    """The nearest number of whole domains with a candidate."""
    step = question.fast_domain if gpus > question.fast_domain else 1
    for away in range(1, MOST_TRIED):
        for count in (gpus + away * step, gpus - away * step):
            if count < 1:
                continue
            space = enumerate_space(
                question.model,
                question.strategy,
                count,
                question.fast_domain,
                question.global_batch,
            )
            if int(space.candidates_per_base.sum()):
                return count
    return None
