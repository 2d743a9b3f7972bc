"""`search` of a traced model: every plan of its degrees, ZeRO stages and recomputation, ranked."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from time import perf_counter

from foretell.api.answers import Estimate
from foretell.api.search_answers import Search, search_answer
from foretell.api.traced_models import estimate_traced, place_of
from foretell.errors import BadInput, Infeasible
from foretell.records import dataclass
from foretell.search.search import SearchResult
from foretell.search.space import divisors
from foretell.specs.plan import named_fields, parse_plan
from foretell.specs.questions.flags import given_of
from foretell.specs.questions.training import SearchQuestion, TrainingQuestion
from foretell.trace.graph import TracedModel, load_traced

STAGES = (0, 1, 2, 3)
"""Stages of ZeRO that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What became of the candidates."""

    found: list[Estimate]
    """Those that fit, or may."""
    refused: Counter[str]
    """What others break."""
    large: list[Estimate]
    """Those that do not fit."""


def search_traced(question: SearchQuestion) -> Search:
    """The plans of a traced model, best first; what `plan` names is fixed."""
    start = perf_counter()
    model = load_traced(question.model)  # type: ignore[arg-type]
    place = place_of(question, {}, [])
    batch = question.global_batch or model.batch * place.gpus
    told = {"model", "system", "gpus", "global_batch", "set"}
    given = {name: value for name, value in given_of(question).items() if name in told}
    base = TrainingQuestion(**{**given, "model": model, "global_batch": batch})
    tried = _tried(base, _plans(model, question.plan or "", place.gpus))
    if not tried.found and not tried.large:
        estimate_traced(replace(base, plan=question.plan))  # says what is wrong with all of them
    order = sorted(tried.found, key=lambda one: (one.fits != "yes", one.step_s))
    least = min((*tried.found, *tried.large), key=lambda one: one.peak_memory_bytes)
    said = [] if question.global_batch else [f"global batch {batch}: one micro-batch for each GPU"]
    said += [] if not order else order[0].assumptions
    return search_answer(
        SearchResult(
            plans=tuple(order[: question.top]),
            plans_evaluated=len(tried.found) + len(tried.large),
            plans_feasible=len(tried.found),
            evaluation_seconds=perf_counter() - start,
            rejected=dict(tried.refused),
            assumptions=tuple(said),
            smallest=least.plan,
            smallest_bytes=least.peak_memory_bytes,
            memory_bytes=least.memory_capacity_bytes,
        )
    )


def _tried(base: TrainingQuestion, plans: Iterator[str]) -> _Tried:
    """All plans asked."""
    tried = _Tried(found=[], refused=Counter(), large=[])
    for plan in plans:
        try:
            tried.found.append(estimate_traced(replace(base, plan=plan)))
        except BadInput as error:
            tried.refused.update({problem.path for problem in error.problems})
        except Infeasible as error:
            if isinstance(error.answer, Estimate):
                tried.large.append(error.answer)
    return tried


def _plans(model: TracedModel, words: str, gpus: int) -> Iterator[str]:
    """Candidates: what the given words leave open, each ready to be read."""
    named, fixed = set(named_fields(words)), parse_plan(words)
    again = ("none", "full") if model.layers else ("none",)
    choices = {"tp": divisors(gpus), "pp": divisors(gpus), "zero": STAGES, "recompute": again}
    open_to = {
        name: (getattr(fixed, name),) if name in named else tried for name, tried in choices.items()
    }
    for tp, pp, zero, recompute in product(*open_to.values()):
        dp = gpus // (tp * pp)
        if dp * tp * pp != gpus or pp > max(len(model.layers), 1) or (zero and dp == 1):
            continue
        found = {"tp": f"tp{tp}", "pp": f"pp{pp}", "dp": f"dp{dp}", "zero": f"zero{zero}"}
        found["recompute"] = f"recompute={recompute}"
        yield " ".join([words, *(word for name, word in found.items() if name not in named)])
