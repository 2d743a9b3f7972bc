"""The published 2024 analytic model of transformer training (arXiv 2410.00273), exactly.

It is alone, as a baseline and as an oracle: `search` ranks the plans of one job, `evaluate`
times given plans, `study` runs the whole published study, `render` shows a result as text. What the
published code does differently from what it means is kept, named and switchable in `Quirks`.

    records.py, inputs.py, check.py    models, chips and quirks; those of files; arguments to a question
    space.py, search.py, why_none.py   the published candidates, the best of them, what leaves none
    layer.py, ops.py, comm.py, iteration.py    seconds and bytes: of ops, of a layer, of messages, of a step
    study.py, tables.py, rows.py, findings.py  the whole study, its best plans, its rows, what it concludes
    report.py    a result as text
"""

from foretell.lab.reference.records import CHIPS, MODELS, STRATEGIES, Quirks, StudyChip, StudyModel
from foretell.lab.reference.report import render, render_study
from foretell.lab.reference.search import ReferenceSearch, evaluate, search
from foretell.lab.reference.study import StudyResult, study
from foretell.lab.reference.why_none import why_none

__all__ = [
    "CHIPS",
    "MODELS",
    "STRATEGIES",
    "Quirks",
    "ReferenceSearch",
    "StudyChip",
    "StudyModel",
    "StudyResult",
    "evaluate",
    "render",
    "render_study",
    "search",
    "study",
    "why_none",
]
