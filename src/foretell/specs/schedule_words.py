"""Which pipeline schedules there are, by the names of their files in schedules/orders; none is loaded."""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "schedules" / "orders"
"""One file each."""
BY_CHUNKS = ("1f1b", "interleaved")
"""Those that follow from the chunks on a rank (vpp), first in every list."""


@cache
def schedule_modules() -> dict[str, str]:
    """Word of a plan -> module, 1F1B first."""
    stems = {path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"}
    found = {stem.lstrip("_").replace("_", "-"): stem for stem in sorted(stems)}
    others = {word: stem for word, stem in found.items() if word not in BY_CHUNKS}
    return {**{word: found[word] for word in BY_CHUNKS}, **others}
