"""The published 2024 analytic model of transformer training (arXiv 2410.00273), exactly.

It is alone, as a baseline and as an oracle: `search` ranks the plans of one job, `evaluate`
times given plans, `study` runs the whole published study, `render` shows a result as text. What the
published code does differently from what it means is kept, named and switchable in `Quirks`.

    records    models, chips and quirks (study.toml has the published ones)
    check      arguments to a question; models and chips of files and of the catalogue
    space      the published candidates
    search     the best of them, and what leaves none
    ops, iteration    seconds and bytes: of ops; of a layer and its messages, and of a step
    study      the whole study
    rows       its rows and best plans, and results as text
"""

from foretell.lab.reference.records import CHIPS, MODELS, STRATEGIES, Quirks, StudyChip, StudyModel
from foretell.lab.reference.search import ReferenceSearch, evaluate, search, why_none
from foretell.lab.reference.study import StudyResult, render, render_study, study

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
