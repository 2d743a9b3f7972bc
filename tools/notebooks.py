"""Runs the notebooks of examples/ and stores what their cells print: `python tools/notebooks.py [FILE...]`.

A cell is run as Jupyter runs it: what it prints is one output, the value of its last expression another, as
text and, where the value has `_repr_html_`, as HTML. Nothing but Python is needed; Jupyter opens the files.
A test runs the cells too and holds what is stored to it, numbers aside: those follow the predictions.
"""

import ast
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def notebooks() -> list[Path]:
    """The notebooks of the examples."""
    return sorted(EXAMPLES.glob("*.ipynb"))


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, run from top to bottom in a folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = list(outputs_of("".join(cell["source"]), names, count))
    return notebook


def outputs_of(source: str, names: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """What a cell prints, and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        yield {"output_type": "stream", "name": "stdout", "text": text}
    if value is not None:
        shown = str(value) if hasattr(value, "_repr_pretty_") else repr(value)
        data = {"text/plain": shown.splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        yield {
            "output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data,
        }  # fmt: skip


def main(words: list[str]) -> int:
    """Run each notebook and write it back."""
    os.environ.setdefault("COLUMNS", "110")
    for path in [Path(word).resolve() for word in words] or notebooks():
        notebook = executed(json.loads(path.read_text(encoding="utf-8")), EXAMPLES)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
