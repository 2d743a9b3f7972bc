"""Launchers as rows: which of their options take no value, or which do; and commands that launch nothing."""

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How the own options of a launcher are distinguished from the command behind them."""

    switches: frozenset[str] = frozenset()
    """Options without a value, where every other one has a value."""
    values: frozenset[str] | None = None
    """Options with a value, where every other one has none."""
    verbs: tuple[str, ...] = ()
    """Words that follow its name when it launches something: `accelerate launch`."""
    skips: int = 0
    """Words behind the options that are its own: a host, a duration, an image."""
    image: bool = False
    """Whether the word that is skipped is an image."""
    joins: bool = False
    """Whether the words behind it are joined and read as a script: ssh."""
    script: bool = False
    """Whether the word behind its options is a file with a script: bash, sbatch."""
    python: bool = False
    """Whether the program is of Python: a file, or a module behind -m."""
    dashes: bool = False
    """Whether the command is what is behind `--`."""
    command: str = ""
    """The option that holds a whole command as one word: `--command`."""
    options: frozenset[str] = frozenset()
    """All of its long options without their dashes, where these are listed."""
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes, GPUs or processes, and the options that state them."""


_TABLE = packaged_table(Path(__file__).with_name("launchers.toml"))
PYTHON_SWITCHES = _set(_TABLE["python_switches"])
"""Options of an interpreter without a value."""
OUTER = _set(_TABLE["outer"])
"""Programs that run an image and whose `-e` sets a variable."""
UTILITIES = _set(_TABLE["utilities"])
"""Commands that prepare, look or tidy up, and launch nothing."""


def _launcher(row: Mapping[str, Any]) -> Launcher:
    """A row of the table; one that is like another is that."""
    told = dict(_TABLE["launchers"][row["like"]] if "like" in row else row)
    told |= {name: _set(told[name]) for name in ("switches", "values", "options") if name in told}
    states = {name: tuple(options.split()) for name, options in told.get("states", {}).items()}
    return Launcher(**told | {"verbs": tuple(told.get("verbs", ())), "states": states})


LAUNCHERS = {name: _launcher(row) for name, row in _TABLE["launchers"].items()}
"""Launchers by name."""
EXTRAS = re.compile(
    r"@|\*|\w*(?:ARGS|OPTS|OPTIONS|FLAGS|PARAMS|ARGUMENTS|OVERRIDES)\d*|(?:\w+_)?EXTRAS?",
    re.IGNORECASE,
)
"""Names of variables that hold further words of a command rather than one value."""
