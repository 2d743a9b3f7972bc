"""Rows of measured tables beside their predictions, as the model of log error is fitted to them.

A row that was predicted before anyone had looked at its source has that prediction's error, for ever; every
other one that of a prediction without its source.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.conditioning import step_run
from foretell.catalog.error_models import QuestionFacts
from foretell.catalog.files import read_table
from foretell.lab.calibrate.serving_cases import (
    ServingCase,
    in_their_unit,
    measured_figures,
    row_figures,
)
from foretell.lab.calibrate.serving_fit import left_out_profile_of
from foretell.lab.calibrate.serving_rows import read_rows as read_serving
from foretell.lab.first_contact.ledger import first_contacts
from foretell.lab.validate.held_out import LeftOut
from foretell.lab.validate.post_training import cells_facts, figure_kind, predictions_of, read_cells
from foretell.lab.validate.serving import case_features, read_case
from foretell.lab.validate.training import prediction_of
from foretell.lab.validate.training_rows import read_rows
from foretell.posttraining import evidence as loops
from foretell.records import dataclass
from foretell.serving import evidence as services
from foretell.specs.arrays import Array
from foretell.specs.corrections import POST_TRAINING, SERVING, TRAINING
from foretell.uncertainty.novelty import training_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadGroup:
    """Mechanisms whose factors are as far spread."""

    mechanisms: tuple[str, ...]
    """Their names."""
    start: float
    """Spread to begin with, and to stay near where few sources tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """One kind of question."""

    name: str
    """training, serving or post-training."""
    mechanisms: tuple[str, ...]
    """What slopes are of."""
    groups: tuple[SpreadGroup, ...]
    """Mechanisms by their spread."""
    novelty: Mapping[str, float]
    """What may be new, and which figure it is -> usual weight."""
    distance: Mapping[str, float]
    """Feature -> by how much a step in it makes two runs less alike; judged."""
    alike: float = 0.06
    """Spread of what runs that are alike have in common, to begin with."""
    own: float = 0.07
    """Spread of what is a run's own, to begin with: that of rows within sources."""
    bend: float = 0.4
    """Distance from its source's median from which a row counts no more, and twice that of a source from
    0: a row that far off is of another world, or misread."""
    after: float = 1.0
    """Factor on the spread of the next run after others were measured; judged by sources left out."""
    pull: float = 0.35
    """How firmly spreads are held where they begin, in logarithm."""
    novelty_pull: float = 0.2
    """The same of the weights of what is new."""
    centred: bool = False
    """Whether errors have no mean and no skew: those of some sources are not the next one's, and keep a
    measured run from being believed (services of wave B given one run: 6.5 % with them, 5.0 without)."""
    still: tuple[str, ...] = ()
    """Names of `novelty` whose weight stays where it begins, since one source or two are all that show it."""
    again: bool = False
    """Whether predictions of today, without the row's source, count as much as first contacts, which a much
    poorer version made; widths are then set midway between what nine in ten rows of either need."""


MECHANISMS = {"training": TRAINING, "serving": SERVING, "post-training": POST_TRAINING}
"""What slopes are of."""


def _kind(name: str, table: Mapping[str, Any]) -> ErrorKind:
    """A kind as error_kinds.toml has it."""
    groups = tuple(
        SpreadGroup(mechanisms=tuple(one["mechanisms"]), start=one["start"])
        for one in table["groups"]
    )
    still = tuple(table.get("still", ()))
    told = {**table, "name": name, "mechanisms": MECHANISMS[name], "groups": groups, "still": still}
    return ErrorKind(**told)


KINDS = {
    name: _kind(name, table)
    for name, table in read_table(Path(__file__).with_name("error_kinds.toml")).items()
}
"""By name."""


Blind = Mapping[tuple[str, str], float]
"""Row and metric -> ln(measured / predicted) of a first contact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactRow:
    """One measured number beside its prediction."""

    id: str
    """The row."""
    source: str
    """What is left out together."""
    world: str
    """The machine where it has a name, else the source."""
    group: str
    """Source, and figure where a row has several: what has an error in common."""
    first: bool
    """Whether it was predicted before anyone had looked."""
    log_error: float
    """ln(measured / predicted)."""
    slopes: Array
    """To the mechanisms of its kind."""
    features: Mapping[str, float | str]
    """What makes two rows alike."""
    facts: QuestionFacts
    """What is known of it before it is run."""
    figure: tuple[str, ...] = ()
    """Which figure it is, where its kind has several."""
    unseen: tuple[str, ...] | None = None
    """Sources that nobody had looked at when it was predicted; None: its own."""


def contacts_of(kind: str, tables: Sequence[Path]) -> list[ContactRow]:
    """Every row of some tables that can be predicted."""
    read: dict[str, Callable[[Path, Blind], Iterator[ContactRow]]] = {
        "training": training_contacts,
        "serving": serving_contacts,
        "post-training": post_training_contacts,
    }
    blind = blind_errors(kind)
    return [row for table in tables for row in read[kind](table, blind)]


def blind_errors(kind: str) -> Blind:
    """The errors of every first contact in the ledger with a source that no version had seen."""
    return {(one.id, one.metric): one.log_error for one in first_contacts(kind)}


def training_contacts(path: Path, blind: Blind) -> Iterator[ContactRow]:
    """Steps of a table of training runs."""
    for row in read_rows(path):
        if row.quality == "C" or not (row.step_s or row.rate):
            continue
        told = prediction_of(row, LeftOut(sources=(row.source,)))
        if isinstance(told, str) or not told.measured_s:
            continue
        error = blind.get((row.id, "step_s"))
        run, system = step_run(told.answer), told.scenario.system
        named = system.id.removesuffix("-roce") != system.chip.id
        yield ContactRow(
            id=row.id,
            source=row.source,
            world=system.id.removesuffix("-roce") if named else row.source,
            group=row.source,
            first=error is not None,
            log_error=math.log(told.measured_s / told.answer.step_s) if error is None else error,
            slopes=run.slopes,
            features=run.features,
            facts=training_facts(told.scenario, told.plan),
        )


def serving_contacts(path: Path, blind: Blind) -> Iterator[ContactRow]:
    """Figures of a table of services; what is left out together is a model, a chip and an engine."""
    profile_of = left_out_profile_of()
    for row in read_serving(path):
        case = read_case(row)
        if isinstance(case, str):
            continue
        figures = row_figures(case, profile_of(case))
        if isinstance(figures, str):
            continue
        ours, theirs = in_their_unit(case, figures), measured_figures(case.row)
        for metric, measured in theirs.items():
            predicted, error = ours.get(metric, 0.0), blind.get((case.row.id, metric))
            if not (np.isfinite(predicted) and predicted > 0.0 and measured > 0.0):
                continue
            yield service_contact(case, metric, math.log(measured / predicted), error)


def service_contact(
    case: ServingCase, metric: str, held_out: float, blind: float | None
) -> ContactRow:
    """One figure of a service."""
    source = f"{case.group}{' apart' if case.prefill is not None else ''}"
    return ContactRow(
        id=case.row.id,
        source=source,
        world=source,
        group=f"{source} {metric}",
        first=blind is not None,
        log_error=held_out if blind is None else blind,
        slopes=services.usual_slopes(metric),
        features=case_features(case, metric),
        facts=services.facts_of(case.question),
        figure=(metric.partition("_")[0],),
    )


def post_training_contacts(path: Path, blind: Blind) -> Iterator[ContactRow]:
    """Figures of a table of post-training steps: as they are predicted today without their source, which the
    formulas know, and as they were before anyone had looked at any source of their wave."""
    rows = read_cells(path)
    met = {row for row, _ in blind}
    wave = tuple(sorted({cells["source_id"] for cells in rows if cells["id"] in met}))
    for cells in rows:
        told = predictions_of(cells)
        if isinstance(told, str):
            continue
        facts = cells_facts(cells)
        for one in told:
            figure = figure_kind(one.kind, one.metric)
            now = ContactRow(
                id=one.id,
                source=one.source,
                world=one.source,
                group=f"{one.source} {figure}",
                first=False,
                log_error=math.log(one.measured / one.predicted),
                slopes=loops.usual_slopes(figure),
                features=loops.row_features(facts, cells["model"]),
                facts=facts,
                figure=(loops.GROUPS.get(figure, "step"), figure),
                unseen=(),
            )
            yield now
            error = blind.get((one.id, one.metric))
            if error is not None:
                group = f"{now.group}, first"
                yield replace(now, group=group, first=True, log_error=error, unseen=wave)
