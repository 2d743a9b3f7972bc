"""What measured runs show: software on chips, models, formats, layouts, fabrics, sizes (sightings.toml).

A sighting is a group of runs of one source that agree in all but their sizes. Runs on one named machine are
one world, however many tables they fill: worlds are what is counted.
"""

from collections.abc import Iterable
from functools import lru_cache

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

FILE = ROOT / "sightings.toml"
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
    table = read_table(FILE).get(kind, {})
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
