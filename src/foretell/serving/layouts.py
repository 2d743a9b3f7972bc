"""The layouts that a number of chips allows, and the best of them for a load."""

from collections.abc import Iterator
from dataclasses import replace

from foretell.errors import Infeasible
from foretell.serving.serve import ServeQuestion, serve_one
from foretell.specs.deployment import Deployment
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Model
from foretell.specs.served import Served

MOST_RANKS = 16
"""Tensor-parallel ranks tried at most."""


def layouts(model: Model, gpus: int, base: Deployment, domain: int) -> Iterator[Deployment]:
    """Tensor parallel inside a node; experts cut, spread, or spread with attention of each rank's own."""
    mixture = any(isinstance(layer.ffn, Experts) for layer in model.stack.layers)
    heads = query_heads(model)
    for ranks in range(1, gpus + 1):
        if gpus % ranks:
            continue
        tp = min(ranks, domain, MOST_RANKS)
        if ranks % tp:
            continue
        if heads % tp == 0 and ranks == tp:
            yield replace(base, tp=tp, pp=1, dp=1, ep=1)
            if mixture and ranks > 1 and experts_of(model) % ranks == 0:
                yield replace(base, tp=tp, pp=1, dp=1, ep=ranks)
        if ranks > tp and heads % tp == 0:
            yield replace(base, tp=tp, pp=ranks // tp, dp=1, ep=1)
        if mixture and ranks > 1 and experts_of(model) % ranks == 0:
            yield replace(base, tp=1, pp=1, dp=ranks, ep=ranks)


def query_heads(model: Model) -> int:
    """Query heads that tensor parallelism must divide; those of the first layer that has any."""
    for layer in model.stack.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention | LatentAttention):
                return mixer.heads
    return 2**20


def experts_of(model: Model) -> int:
    """Routed experts of the first layer that has any."""
    found = (layer.ffn.experts for layer in model.stack.layers if isinstance(layer.ffn, Experts))
    return next(found, 1)


def best_layout(question: ServeQuestion, domain: int) -> Served:
    """The layout with most output tokens a second; the last refusal where none fits."""
    best: Served | None = None
    refused: Infeasible | None = None
    tried = 0
    for layout in layouts(question.model, question.gpus, question.deployment, domain):
        tried += 1
        try:
            found = serve_one(replace(question, deployment=layout, plan_chosen=True))
        except Infeasible as error:
            refused = error
            continue
        if best is None or merit(found) > merit(best):
            best = found
    if best is None:
        assert refused is not None
        raise refused
    said = f"layout chosen: the best of {tried} by output tokens/s"
    return replace(best, assumptions=(*best.assumptions, said))


def merit(found: Served) -> tuple[float, float]:
    """More tokens a second first; under a rate that all meet, the sooner answer."""
    return round(found.output_tokens_per_s, 3), -found.e2e_ms.mean
