"""Mutants that are always tried, since they once survived, and those that change nothing."""

from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import Mutant


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change given by its text, so that it outlives moved lines and files."""

    file: str
    """Name of the file, wherever in the package it is."""
    old: str
    """Text of the file, once in it."""
    new: str
    """What takes its place."""
    why: str
    """What the change breaks, or why it breaks nothing."""


KNOWN = (
    Change(
        file="disaggregation.py",
        old="for tier in links) + state / rate",
        new="for tier in links)",
        why="a recurrent state is sent between instances at no cost",
    ),
    Change(
        file="tensor_exchanges.py",
        old="edge.region is not Region.EXPERTS or shared",
        new="edge.region is not Region.EXPERTS",
        why="a shared expert's exchanges vanish where experts are spread",
    ),
    Change(
        file="prefixes.py",
        old="hit = min(known.tokens, length)",
        new="hit = max(known.tokens, length)",
        why="more of a prompt is in the cache than was ever computed",
    ),
    Change(
        file="collectives.py",
        old="np.where(counts > 1.0, tiers, 0).max(axis=0)",
        new="np.where(counts > 1.0, tiers, 0).min(axis=0)",
        why="groups over nodes are taken for groups in one",
    ),
    Change(
        file="static.py",
        old="np.maximum(1.0 - each, 0.0) * length * 0.5",
        new="np.maximum(1.0 - each, 1.0) * length * 0.5",
        why="whole prompts are taken to have been begun before",
    ),
)
"""Survivors of earlier runs, each with a test since."""

EQUIVALENT: tuple[Change, ...] = (
    Change(
        file="clock.py",
        old="prompts > FEW[k] and k + 1 < len(FEW)",
        new="(k + 1 < len(FEW))",
        why="at a number of prompts that was sampled, the share of the next one is 0",
    ),
    Change(
        file="transfer.py",
        old="np.exp(-(far - far.min()) / NEAR)",
        new="np.exp(-(far - far.max()) / NEAR)",
        why="every weight by the same factor: their shares and the heaviest are the same",
    ),
    Change(
        file="transfer.py",
        old="formula.library and DTYPES[dtype].quantised and same.any()",
        new="(DTYPES[dtype].quantised and same.any())",
        why="where a library sets nothing, nothing is replaced",
    ),
)
"""Mutants that no test can kill, each with the reason."""


def find(package: Path, change: Change) -> Mutant:
    """Return a change as a mutant of the package; an error if its text is gone or no longer unique."""
    places = [
        path
        for path in package.rglob(change.file)
        if change.old in path.read_text(encoding="utf-8")
    ]
    if len(places) != 1 or (text := places[0].read_text(encoding="utf-8")).count(change.old) != 1:
        raise LookupError(
            f"{change.file}: {change.old!r} is not there once: bring known.py up to date"
        )
    before = text.partition(change.old)[0].encode()
    return Mutant(
        file=places[0].relative_to(package).as_posix(),
        line=before.count(b"\n") + 1,
        kind="known",
        start=len(before),
        end=len(before) + len(change.old.encode()),
        text=change.new,
    )


def is_equivalent(package: Path, mutant: Mutant) -> str:
    """Return why a mutant changes nothing, or an empty text."""
    changed = mutant.apply((package / mutant.file).read_bytes())
    for change in EQUIVALENT:
        if Path(mutant.file).name == change.file:
            other = find(package, change)
            if other.apply((package / other.file).read_bytes()) == changed:
                return change.why
    return ""
