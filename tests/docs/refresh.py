"""Put what the blocks of a page print into the page: `python -m tests.docs.refresh README.md ...`.

A command without output in the page keeps none, and so does Python without an `output` block behind it.
Output with lines of `...` keeps as many lines between them, those most like what the page had.
What differs from run to run (times, rates) becomes `...`.
"""

import re
import sys
import tempfile
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path

from tests.docs.blocks import Block, run_python, run_text, workspace

VARIES = (
    (re.compile(r"in [\d.,]+ s \([\d,]+ per second\)"), "in ... s (... per second)"),
    (re.compile(r"enumerated in [\d.]+ m?s"), "enumerated in ..."),
)
"""What no two runs print alike."""
SKIPS = "..."
"""Stands for any lines, or for any part of one."""


def refreshed(page: str, folder: Path) -> str:
    """The page with fresh output under every block that shows any."""
    lines = page.splitlines()
    result: list[str] = []
    inside, index = False, 0
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = ""
    while index < len(lines):
        line = lines[index]
        result.append(line)
        index += 1
        if not inside and line.split() in (["```python"], ["```output"]):
            end = lines.index("```", index)
            body = lines[index:end]
            if line.startswith("```python"):
                block = Block(line=index, language="python", full=False, lines=tuple(body))
                printed = run_python(block, names, folder)
                result += body
            elif printed is None:
                result += body
            else:
                result += _kept(body, [text.rstrip() for text in printed.rstrip().splitlines()])
            result.append("```")
            index = end + 1
        elif line.startswith("```"):
            printed = None if line.startswith("```python") else printed  # a long one is not run
            inside = line.startswith("```console") if not inside else False
        elif inside and line.startswith("$ "):
            start = index
            while not lines[index].startswith(("$ ", "```")):
                index += 1
            result += _output(line[2:], lines[start:index], folder)
    return "\n".join(result) + "\n"


def _output(command: str, old: list[str], folder: Path) -> list[str]:
    if not old:
        return []
    new = [line.rstrip() for line in run_text(command, folder).stdout.rstrip().splitlines()]
    for pattern, instead in VARIES:
        new = [pattern.sub(instead, line) for line in new]
    return _kept(old, new)


def _kept(old: list[str], new: list[str]) -> list[str]:
    """What the page showed of it: between lines of `...` the lines that are most like those it had."""
    if SKIPS not in old:
        alike = len(old) == len(new)
        return [_line(*lines) for lines in zip(old, new, strict=True)] if alike else new
    result: list[str] = []
    at = 0
    for skips, group in groupby(old, key=lambda line: line == SKIPS):
        some = list(group)
        if skips:
            result.append(SKIPS)
            continue
        starts = range(at, max(len(new) - len(some), at) + 1)
        # What the page begins with it shows from the beginning.
        first = at if not result else max(starts, key=lambda i: _alike(some, new[i:]))
        at = first + len(some)
        result += [_line(before, now) for before, now in zip(some, new[first:at], strict=False)]
    return result


def _alike(old: list[str], new: list[str]) -> float:
    """How like lines are, on the mean."""
    pairs = zip(old, new, strict=False)
    return sum(SequenceMatcher(None, a, b).ratio() for a, b in pairs) / len(old)


def _line(old: str, new: str) -> str:
    """The new line, or the old one where that leaves out what differs."""
    pattern = ".*".join(re.escape(piece) for piece in old.split(SKIPS))
    return old if SKIPS in old and re.fullmatch(pattern, new) else new


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            workspace(Path(place))
            path = Path(name)
            path.write_text(refreshed(path.read_text(), Path(place)))
