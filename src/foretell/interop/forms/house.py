"""What all scripts of one launch file share while they are read."""

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from foretell.interop.forms.records import LaunchedProcess, Word
from foretell.interop.forms.values import Source, Value
from foretell.records import dataclass

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What all scripts of one file share."""

    open_file: Callable[[str], str | None]
    """The text of a file beside the launch; None where there is none."""
    processes: list[LaunchedProcess] = field(default_factory=list)
    """What was started so far."""
    files: dict[str, str] = field(default_factory=dict)
    """Files that were written so far."""
    sources: dict[str, Value] = field(default_factory=dict)
    """The pieces of those that come from a here-document, by which lines are known."""
    functions: dict[str, tuple["Node", Source]] = field(default_factory=dict)
    """Functions that were defined so far."""
    called: set[str] = field(default_factory=set)
    """Those that were called."""
    missing: dict[str, None] = field(default_factory=dict)
    """Files that were named and are not there."""
    deciders: dict[str, None] = field(default_factory=dict)
    """Variables without a value that decide words of a command."""
    steps: list[int] = field(default_factory=lambda: [0])
    """Statements so far."""
    rays: list[Word] = field(default_factory=list)
    """GPUs that `ray start` is given."""
