"""Search of the published space: memory filter first, then times, then the fastest few."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.errors import Problem, wrong
from foretell.lab.reference.check import check_plans, check_search
from foretell.lab.reference.iteration import (
    ReferenceMemory,
    ReferenceQuestion,
    Times,
    memory_of,
    times_of,
)
from foretell.lab.reference.records import Ints, Quirks, StudyChip, StudyModel
from foretell.lab.reference.rows import Cell, Row, rows_of, take
from foretell.lab.reference.space import (
    ReferencePlans,
    ReferenceSpace,
    divisors,
    enumerate_space,
    expand,
    splits_of,
)
from foretell.records import as_json, dataclass

CHUNK_ROWS = 1 << 19
"""Plans expanded and timed at once: enough to find nearly every repeated layer, small enough for memory."""

Outcome = tuple[ReferencePlans, ReferenceMemory, Times]
"""Plans with what they need and take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSearch:
    """The fastest plans that fit, and how many were looked at."""

    model: str
    """Model, as the published tables spell it."""
    strategy: str
    """Strategy, as the published tables spell it."""
    chip: str
    """Chip, as the published tables spell it."""
    fast_domain: int
    """GPUs of one fast domain."""
    gpus: int
    """GPUs of the job."""
    global_batch: int
    """Samples of one iteration."""
    candidates: int
    """Plans of the published space, before the memory filter."""
    feasible: int
    """Candidates that fit in memory."""
    plans: list[Row]
    """Fastest first, with the columns of the published tables."""
    notes: tuple[str, ...] = ()
    """What the solver's records leave out of a model or chip that is not the study's."""

    to_dict = as_json()


def search(
    *,
    model: str | StudyModel,
    strategy: str,
    chip: str | StudyChip,
    fast_domain: int,
    gpus: int,
    global_batch: int = 4096,
    top: int = 10,
    quirks: Quirks | None = None,
    seq_len: int | None = None,
) -> ReferenceSearch:
    """The `top` fastest plans of the published search; BadInput names everything that is wrong at
    once.

    A model and a chip may be a name of the study, an id of the catalogue, or a file (inputs.py);
    `seq_len` are tokens of a sample in the place of the model's.
    """
    asked = check_search(
        model=model,
        strategy=strategy,
        chip=chip,
        fast_domain=fast_domain,
        gpus=gpus,
        global_batch=global_batch,
        top=top,
        quirks=quirks,
        seq_len=seq_len,
    )
    question = asked.question
    space = space_of(question, asked.gpus)
    return replace(search_space(question, space, [asked.gpus], asked.top)[0], notes=asked.notes)


def space_of(question: ReferenceQuestion, gpus: int) -> ReferenceSpace:
    """Every candidate of a question for one GPU count."""
    return enumerate_space(
        question.model, question.strategy, gpus, question.fast_domain, question.global_batch
    )


def evaluate(
    rows: Sequence[Mapping[str, Cell]],
    *,
    model: str | StudyModel,
    strategy: str,
    chip: str | StudyChip,
    fast_domain: int,
    global_batch: int = 4096,
    quirks: Quirks | None = None,
) -> list[Row]:
    """The given plans timed anew, in the order given, whether they fit or not.

    A row gives dp, tp (1d) or tp1 and tp2, pp, mbs, nb (2d) and the nv_ columns; other columns are
    ignored and one left out is 1. Degrees must divide what they split, but need not be in the
    published search space, so that real training runs can be put to the same equations.
    """
    question = check_search(
        model=model,
        strategy=strategy,
        chip=chip,
        fast_domain=fast_domain,
        global_batch=global_batch,
        quirks=quirks,
    ).question
    plans = check_plans(question, rows)
    memory = memory_of(question, plans)
    return rows_of(question, plans, memory, times_of(question, plans, memory))


def search_space(
    question: ReferenceQuestion, space: ReferenceSpace, gpus: Sequence[int], top: int
) -> list[ReferenceSearch]:
    """One result per GPU count, ascending; counts of one space share their layers.

    The space does not depend on the chip, so one can serve several questions.
    """
    fits = memory_of(question, space).total_bytes <= question.chip.hbm_bytes
    fitting = np.nonzero(fits)[0]
    best = [_fastest(question, expand(space, bases), top) for bases in _chunks(space, fitting)]
    per_base = space.candidates_per_base
    results = []
    for count in sorted(gpus):
        here = space.gpus == count
        parts = [chunk[count] for chunk in best if count in chunk]
        results.append(
            ReferenceSearch(
                model=question.model.name,
                strategy=question.strategy,
                chip=question.chip.name,
                fast_domain=question.fast_domain,
                gpus=count,
                global_batch=question.global_batch,
                candidates=int(per_base[here].sum()),
                feasible=int(per_base[here & fits].sum()),
                plans=_merged(question, parts, top),
            )
        )
    return results


def _chunks(space: ReferenceSpace, bases: Ints) -> list[Ints]:
    """The bases cut where their candidates pass a multiple of the chunk size."""
    ends = np.cumsum(space.candidates_per_base[bases])
    cuts = np.nonzero(np.diff(ends // CHUNK_ROWS))[0] + 1
    return np.split(bases, cuts) if len(bases) else []


def _fastest(question: ReferenceQuestion, plans: ReferencePlans, top: int) -> dict[int, Outcome]:
    """The fastest plans of one chunk for each GPU count in it."""
    memory = memory_of(question, plans)
    times = times_of(question, plans, memory)
    gpus = plans.gpus
    best = {}
    for count in np.unique(gpus).tolist():
        index = np.nonzero(gpus == count)[0]
        order = index[np.argsort(times.total_s[index], kind="stable")[:top]]
        best[count] = (take(plans, order), take(memory, order), take(times, order))
    return best


def _merged(question: ReferenceQuestion, parts: list[Outcome], top: int) -> list[Row]:
    """Rows of the fastest over all chunks; the first enumerated wins a tie."""
    rows = [row for part in parts for row in rows_of(question, *part)]
    fastest = sorted(rows, key=_seconds)[:top]
    return [{**row, "rank": place} for place, row in enumerate(fastest, start=1)]


def _seconds(row: Row) -> float:
    """Iteration time of a row."""
    seconds = row["t"]
    assert isinstance(seconds, float)  # every row that rows_of writes has it
    return seconds


MOST_TRIED = 400
"""Neighbouring GPU counts that are tried for one that works."""


def why_none(**asked: Any) -> Problem:
    """Why `reference.search` with these arguments has no candidate."""
    checked = check_search(**asked)
    return no_candidate(checked.question, checked.gpus)


def no_candidate(question: ReferenceQuestion, gpus: int) -> Problem:
    """The rule that leaves no plan, and the nearest number of GPUs with one."""
    near = _nearest(question, gpus)
    message = f"no plan of the published space: {_rule(question, gpus)}"
    allowed = (
        "numbers of GPUs whose factors the model's heads, width and layers and the batch can take"
    )
    return wrong("gpus", gpus, message, allowed, None if near is None else str(near))


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
            if int(space_of(question, count).candidates_per_base.sum()):
                return count
    return None
