"""What mkdocs does besides when it builds the site: pages from outside docs/, links, and the API reference.

Pages of docs/ read well where they lie, in a clone: they link to files beside docs/ and mark blocks for the
tests. On the site such links lead to the repository where FORETELL_REPOSITORY names its address, and are
plain text otherwise.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages beside docs/ -> where they are on the site."""
HOME = {"README.md": "index.md"}
"""Pages whose place on the site is another's."""
ICON = "src/foretell/web/static/icon.svg"
LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(\s*`{3,})(\w+)[ \t]+[^\n`]*$", re.MULTILINE)
"""A block with a word for the tests after its language."""


STYLE = """\
/* Tables without titles have no title row; pages without a contents of their own use the room. */
.md-typeset table:not([class]) thead:not(:has(th:not(:empty))) { display: none; }
.md-typeset table:not([class]) td img { max-width: 100%; min-width: 18rem; }
.md-typeset h1 { color: inherit; font-weight: 600; }
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for name, place in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=moved(text, name, place)))
    files.append(File.generated(config, "python-reference.md", content=api_page()))
    icon = (ROOT / ICON).read_bytes()
    files.append(File.generated(config, "assets/icon.svg", content=icon))
    files.append(File.generated(config, "assets/site.css", content=STYLE))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page with links that stay on the site, and blocks that its highlighter knows."""
    place = page.file.src_uri
    return FENCE.sub(r"\1\2", moved(markdown, f"docs/{place}", place))


def moved(text: str, source: str, place: str) -> str:
    """A text of the repository's file `source` as the site's page `place`: its links led anew."""

    def led(found: re.Match[str]) -> str:
        picture, words, link = found.groups()
        path, _, anchor = link.partition("#")
        if not path or re.match(r"[a-z][a-z+.-]*:", link):
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        inside = OUTSIDE.get(target) or HOME.get(target)
        if inside is None and target.startswith("docs/"):
            inside = target.removeprefix("docs/")
        if inside is not None:
            there = posixpath.relpath(inside, posixpath.dirname(place) or ".")
            return f"{picture}[{words}]({there}{f'#{anchor}' if anchor else ''})"
        repository = os.environ.get("FORETELL_REPOSITORY", "").rstrip("/")
        return f"[{words}]({repository}/blob/main/{target})" if repository else words

    code = re.split(r"(^\s*```.*?^\s*```\s*$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else LINK.sub(led, part) for i, part in enumerate(code))


def api_page() -> str:
    """Every public name of the package, with its signature and docstring."""
    import sys

    sys.path.insert(0, str(ROOT / "src"))
    import foretell

    names = [name for name in foretell.__all__ if not name.startswith("_")]
    functions = [name for name in names if name[0].islower()]
    records = [name for name in names if not name[0].islower()]
    lines = ["# Python API", "", "Every public name of `foretell`, from its docstring."]
    for title, some in (("Functions", functions), ("Records and errors", records)):
        lines += ["", f"## {title}"]
        for name in some:
            thing = getattr(foretell, name)
            asked = getattr(thing, "question", None)
            lines += ["", f"::: {thing.__module__}.{getattr(thing, '__qualname__', name)}"]
            if asked is not None:  # its arguments are the fields of its question
                lines += [
                    "    options:",
                    "      show_signature: false",
                    "",
                    *arguments(name, asked),
                ]
    return "\n".join(lines) + "\n"


def arguments(name: str, question: Any) -> list[str]:
    """How a function is called, and a row for every argument of its question."""
    from dataclasses import MISSING

    from foretell.specs.questions.flags import fields_of

    fields = fields_of(question)
    first = [field.name for field in fields if field.positional]
    needed = [f"{f.name}=..." for f in fields if f.required and not f.positional]
    call = ", ".join([*first, *needed, "..."])
    rows = [
        f"```python\nforetell.{name}({call})\n```",
        "",
        "| argument | default | |",
        "|---|---|---|",
    ]
    for field in fields:
        usual = "" if field.default is MISSING else f"`{field.default!r}`"
        rows.append(f"| `{field.name}` | {usual} | {field.flag.help.replace('|', chr(92) + '|')} |")
    return rows
