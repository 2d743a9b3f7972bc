"""How far predictions were from measured runs, and what those runs show of software, chips and models.

An ErrorModel is one model of ln(measured / predicted) a kind of question. A source's runs err together by
a factor that all of its work shares and by factors of single mechanisms, both with heavy tails; what is
left is a run's own. The scale of what a source shares grows with what is new about a question
(uncertainty/novelty.py). Intervals, evidence and the posterior of measured runs are its three uses.
error_models.toml has the numbers, fitted to first contacts by lab/validate/error_fit.py; of each source
among them also what the others give without it, so that it can be scored as if it had not been seen.
memory_errors.toml has the errors of peaks of memory.

A Sighting (sightings.toml) is a group of runs of one source that agree in all but their sizes. Runs on one
named machine are one world, however many tables they fill: worlds are what is counted.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

FILE = ROOT / "error_models.toml"
"""Written by lab/validate/error_fit.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorModel:
    """The model of one kind of question; all spreads are standard deviations of logarithms."""

    mean: float
    """Median log error of everything."""
    skew: float
    """How far the centre of a far-off source lies above the median, in its own spreads."""
    common: float
    """Spread of the factor that all work of a source shares."""
    mechanisms: Mapping[str, float]
    """Mechanism -> spread of its own factor from one source to another."""
    alike: float
    """Spread of what runs of a source have in common as far as they are alike."""
    own: float
    """Spread of what is a run's own."""
    own_kinds: tuple[tuple[float, float], ...]
    """Factors on it, and the share of runs that have each: usual ones first, then the few that differ from
    their source."""
    tails: tuple[float, ...]
    """Factors on the variance of what a source shares, equally likely: a Student's t by its quantiles."""
    novelty: Mapping[str, float]
    """What is new -> logarithm of the factor on all spreads where it is wholly new."""
    distance: Mapping[str, float]
    """Feature -> by how much a step in it makes two runs less alike."""
    after: float = 1.0
    """Factor on the spread of the next run after others were measured, so that sources which were left out
    lie in its interval as often as promised."""

    def __hash__(self) -> int:
        return id(self)


@lru_cache(maxsize=256)
def error_model(kind: str, left_out: str = "") -> ErrorModel:
    """The model of `training`, `memory`, `serving` or `post-training`; of all sources but one, where that one
    was among them."""
    table = dict(_tables()[kind])
    without: Mapping[str, Mapping[str, Any]] = table.pop("without", {})
    for name, value in without.get(left_out, {}).items():
        table[name] = {**table[name], **value} if isinstance(value, Mapping) else value
    kinds = tuple((factor, share) for factor, share in table["own_kinds"])
    return ErrorModel(**{**table, "tails": tuple(table["tails"]), "own_kinds": kinds})


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Any]:
    return read_table(FILE)


MEMORY_FILE = ROOT / "memory_errors.toml"
"""Written by lab/validate/memory_errors.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogError:
    """ln(measured / predicted) of one number: a source's part and a row's, Student's t with 4 degrees."""

    source_scale: float
    """Scale of what all runs of a source have in common."""
    row_scale: float
    """Scale of what a run has beside it."""
    room_shift: float = 0.0
    """What is added to the logarithm for a chip that is all free."""
    room_scale: float = 0.0
    """Share by which the scales grow for a chip that is all free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryErrors:
    """Of both numbers of a step's memory."""

    allocated: LogError
    """What tensors take."""
    held: LogError
    """What the allocator reserves, and the process holds."""


@lru_cache(maxsize=64)
def memory_errors(software: str, gpus: int, weights: str) -> MemoryErrors:
    """The errors of a release of software on so many chips with weights of a dtype: measured by this project,
    or as of other sources."""
    level = "measured" if is_measured(software, gpus, weights) else "other"
    return _errors(read_table(MEMORY_FILE)["software"][level])


def is_measured(software: str, gpus: int, weights: str) -> bool:
    """Whether this project has measured a release of software on so many chips with weights of a dtype."""
    measured = read_table(MEMORY_FILE)["measured"]
    known = software in measured["software"] and weights in measured["weights"]
    return known and gpus <= measured["gpus"]


def _errors(entry: dict[str, Any]) -> MemoryErrors:
    return MemoryErrors(allocated=LogError(**entry["allocated"]), held=LogError(**entry["held"]))


SIGHTINGS_FILE = ROOT / "sightings.toml"
"""Written by lab/validate/error_fit.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFacts:
    """What is known of a question before it is run."""

    software: str = ""
    """Family of the framework, engine or loop; empty where none is named."""
    chip: str = ""
    """Chip."""
    generation: str = ""
    """Generation of the chip: its architecture."""
    model: str = "dense"
    """Kind of model: dense, mixture, hybrid, or encoder."""
    precision: str = "wide"
    """Format of matrix multiplications: wide (16 bits and more), or its name."""
    layout: str = ""
    """Kind of layout: which kinds of parallelism it has."""
    fabric: str = ""
    """System whose links between nodes are used; empty inside a node."""
    size: float = 1.0
    """GPUs of a training step; sequences a GPU of a service."""
    length: float = 1.0
    """Tokens of a sequence, or of a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Runs of one source that agree in all but their sizes."""

    source: str
    """Where they are published."""
    world: str
    """The machine where it has a name, else the source."""
    facts: QuestionFacts
    """What they agree in, with their largest sizes."""
    least_length: float
    """Their shortest length."""


@lru_cache(maxsize=8)
def sightings(kind: str) -> tuple[Sighting, ...]:
    """All sightings of a kind of question."""
    table = read_table(SIGHTINGS_FILE).get(kind, {})
    sources: list[str] = table.get("sources", [])
    return tuple(
        Sighting(
            source=sources[number],
            world=world or sources[number],
            facts=QuestionFacts(
                software=software, chip=chip, generation=generation, model=model,
                precision=precision, layout=layout, fabric=fabric, size=size, length=length,
            ),
            least_length=least,
        )
        for (number, world, software, chip, generation, model, precision, layout, fabric, size,
             least, length) in table.get("seen", ())
    )  # fmt: skip


@lru_cache(maxsize=64)
def sightings_without(
    kind: str, sources: tuple[str, ...] = (), chips: tuple[str, ...] = ()
) -> tuple[Sighting, ...]:
    """The sightings of a kind that are left without some sources and chips."""
    return tuple(
        one for one in sightings(kind) if one.source not in sources and one.facts.chip not in chips
    )


def worlds(some: Iterable[Sighting]) -> int:
    """How many worlds some sightings are of."""
    return len({one.world for one in some})
