"""Search of the published space: memory filter first, then times, then the fastest few."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

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
from foretell.lab.reference.space import ReferencePlans, ReferenceSpace, enumerate_space, expand
from foretell.records import as_json, dataclass

CHUNK_ROWS = 1 << 19
"""Plans expanded and timed at once: enough to find nearly every repeated layer, small enough for
memory."""

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
    space = enumerate_space(
        question.model, question.strategy, asked.gpus, question.fast_domain, question.global_batch
    )
    return replace(search_space(question, space, [asked.gpus], asked.top)[0], notes=asked.notes)


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
