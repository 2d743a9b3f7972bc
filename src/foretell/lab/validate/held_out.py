"""What is left out when a published run is predicted as if it had never been seen: `--leave-one-out`.

    source      the run's source: values of software that were chosen with no other runs in sight fall back to
                what is known without them
    framework   every source that has runs of the run's family of frameworks
    chip        every source whose runs are on that chip alone, and the chip's own kernels and watts, in whose
                place those of its kin are

`[seen]` of a family's file names the runs that were in sight of each value (catalog/software). Residuals of
what is left out count for no interval either (catalog/error_models.py). What is not left out: formulas, which
were found with all runs in sight, and coefficients of collectives, which rest on more than one chip each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from foretell.catalog.error_models import sightings
from foretell.catalog.software import family_of
from foretell.errors import ProblemsError
from foretell.lab.validate.scores import UnsupportedRun
from foretell.lab.validate.training_question import PublishedQuestion, question_of, system_record
from foretell.lab.validate.training_rows import TrainingRow
from foretell.records import dataclass
from foretell.specs.scenario import Scenario

HeldOut = Literal["source", "framework", "chip"]
"""What can be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What a prediction must not rest on."""

    sources: tuple[str, ...] = ()
    """Sources of published runs."""
    chips: tuple[str, ...] = ()
    """Chips."""

    def without_chip(self, scenario: Scenario) -> Scenario:
        """The scenario with a chip that rests on no measurement of those left out."""
        if not self.chips:
            return scenario
        chip = replace(scenario.system.chip, left_out=self.chips)
        return replace(scenario, system=replace(scenario.system, chip=chip))


NOTHING = LeftOut()
"""Nothing is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareSeen:
    """A family of frameworks on a chip, seen in the runs of a source."""

    source: str
    """Where the runs are published."""
    framework: str
    """The family."""
    chip: str
    """The chip."""


def sightings_of(rows: Iterable[TrainingRow]) -> frozenset[SoftwareSeen]:
    """What the rows of a table show, and what the catalogue's residuals rest on."""
    known = {
        SoftwareSeen(source=s.source, framework=s.facts.software, chip=s.facts.chip)
        for s in sightings("training")
    }
    return frozenset(known | {found for row in rows if (found := _sighting(row)) is not None})


def left_out_of(
    row: TrainingRow, held_out: HeldOut | None, seen: frozenset[SoftwareSeen]
) -> LeftOut:
    """What is left out for a row."""
    if held_out is None:
        return NOTHING
    if held_out == "source":
        return LeftOut(sources=(row.source,))
    mine = _sighting(row)
    if mine is None:
        return NOTHING
    if held_out == "framework":
        return LeftOut(sources=_sorted(s.source for s in seen if s.framework == mine.framework))
    elsewhere = {s.source for s in seen if s.chip != mine.chip}
    here = (s.source for s in seen if s.chip == mine.chip and s.source not in elsewhere)
    return LeftOut(sources=_sorted(here), chips=(mine.chip,))


def unnamed(asked: PublishedQuestion) -> PublishedQuestion:
    """A run's question without its framework: what a user types who does not know it."""
    plan = asked.plan and " ".join(w for w in asked.plan.split() if not w.startswith("framework="))
    rest = tuple(s for s in asked.settings if not s.startswith("plan.framework="))
    return replace(asked, plan=plan, settings=rest)


def _sorted(sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(sources)))


@lru_cache(maxsize=8192)
def _sighting(row: TrainingRow) -> SoftwareSeen | None:
    """What a row shows; None where it cannot be asked."""
    try:
        asked = question_of(row)
        word = _framework(asked)
        chip = system_record(asked.system, _of_system(asked.settings)).chip.id
        return SoftwareSeen(source=row.source, framework=family_of(word)[0], chip=chip)
    except (UnsupportedRun, ProblemsError):
        return None


def _framework(asked: PublishedQuestion) -> str:
    """The word for a question's framework."""
    words = (asked.plan or "").split()
    told = [w for w in (*words, *asked.settings) if "framework=" in w]
    return told[-1].partition("=")[2] if told else "generic"


def _of_system(settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(s for s in settings if not s.startswith("plan."))
