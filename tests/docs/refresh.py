"""Put what the blocks of a page print into the page: `python -m tests.docs.refresh README.md ...`.

A command without output in the page keeps none, and so does Python without an `output` block behind it.
Output that ends with `...` keeps its number of lines.
What differs from run to run (times, rates) becomes `...`.
"""

import re
import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import Block, run_python, run_text, workspace

VARIES = (
    (re.compile(r"in [\d.,]+ s \([\d,]+ per second\)"), "in ... s (... per second)"),
    (re.compile(r"enumerated in [\d.]+ m?s"), "enumerated in ..."),
)
"""What no two runs print alike."""


def refreshed(page: str, folder: Path) -> str:
    """The page with fresh output under every block that shows any."""
    lines = page.splitlines()
    result: list[str] = []
    inside, index = False, 0
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
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
            else:
                result += _kept(body, [text.rstrip() for text in printed.rstrip().splitlines()])
            result.append("```")
            index = end + 1
        elif line.startswith("```"):
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
    """As many lines as the page showed, where it showed but the first of them."""
    if old and old[-1] == "...":
        return [*new[: len(old) - 1], "..."] if len(new) >= len(old) else new
    return new


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            workspace(Path(place))
            path = Path(name)
            path.write_text(refreshed(path.read_text(), Path(place)))
