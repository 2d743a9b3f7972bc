"""Notebooks: cells of Python with their lines, and shell commands of `!` and `%%bash`."""

import json
import re
from typing import Any

from foretell.interop.forms.records import LaunchContents
from foretell.interop.forms.script import read_script
from foretell.interop.forms.trees import bad

_MAGIC = re.compile(r"\s*[%?]")


def is_notebook(value: Any) -> bool:
    """Whether a JSON document is a notebook."""
    return isinstance(value, dict) and isinstance(value.get("cells"), list) and "nbformat" in value


def read_notebook(text: str) -> LaunchContents:
    """The Python of a notebook, as one text whose lines are those of the file, and what its shell starts.

    A source line of a notebook is on a line of its own in the file, so that its number is known.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise bad("is no notebook: not JSON") from None
    rows = text.splitlines()
    python = [""] * (len(rows) + 1)
    shell = [""] * (len(rows) + 1)
    files: dict[str, str] = {}
    at = 0
    for cell in value["cells"]:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source")
        lines = source if isinstance(source, list) else str(source or "").splitlines(keepends=True)
        first = str(lines[0]).strip() if lines else ""
        if first.startswith("%%writefile"):
            files[first.split()[-1]] = "".join(map(str, lines[1:]))
            continue
        whole = first.startswith(("%%bash", "%%sh", "!%%"))
        going = False
        for line in lines:
            spelt = json.dumps(str(line), ensure_ascii=False)[1:-1]
            other = json.dumps(str(line))[1:-1]
            found = (i for i in range(at, len(rows)) if spelt in rows[i] or other in rows[i])
            place = next(found, at) if spelt else at
            at = place if place >= at else at
            plain = str(line).rstrip("\n")
            if whole or going or plain.lstrip().startswith("!"):
                shell[at] += plain.lstrip().removeprefix("!") + "\n"
                going = plain.endswith("\\")
            elif not _MAGIC.match(plain):
                python[at] += plain + "\n" if python[at] else plain
    script = "\n".join(one.rstrip("\n") for one in shell)
    inner = read_script(script) if script.strip() else LaunchContents(form="notebook")
    return LaunchContents(
        form="notebook",
        python="\n".join(python),
        processes=inner.processes,
        files={**inner.files, **files},
    )
