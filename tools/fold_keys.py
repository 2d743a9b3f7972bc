"""Writes the lists of keys of src/foretell/interop/tools in their shortest form.

`python tools/fold_keys.py [NAME ...]`, with the project installed. Keys that a table has from one that it
includes, with the same verdict, go; beginnings that keys share are written once (`a.{b c}`), and so are
endings that several beginnings have (`a|b.{c d}`). What a table means stays the same.
"""

import re
import sys
import textwrap
import tomllib
from pathlib import Path

from foretell.interop.tool_tables import expand, table_of

TABLES = Path(__file__).resolve().parents[1] / "src/foretell/interop/tools"

LISTS = ("bears", "quiet")
"""Lists of a table that are written."""
WORTH = 25
"""Characters that sharing endings must save."""


def folded(keys: set[str]) -> list[str]:
    """Words of a list that has these keys."""
    inside: dict[str, set[str]] = {}
    for key in keys:
        head, _, rest = key.partition(".")
        if rest:
            inside.setdefault(head, set()).add(rest)
    groups = [((head,), rests) for head, rests in inside.items()]
    shared = most_shared(groups)
    while shared:
        owners = [group for group in groups if shared <= group[1]]
        names = tuple(sorted(name for group in owners for name in group[0]))
        groups = [
            (own, rests - shared) if shared <= rests else (own, rests) for own, rests in groups
        ]
        groups = [*(group for group in groups if group[1]), (names, shared)]
        shared = most_shared(groups)
    words = sorted(key for key in keys if "." not in key)
    for names, rests in sorted(groups):
        inner = folded(rests)
        if len(inner) == len(names) == 1:
            words.append(f"{names[0]}.{inner[0]}")
        else:
            words += [f"{'|'.join(names)}.{{{inner[0]}", *inner[1:]]
            words[-1] += "}"
    return words


def most_shared(groups: list[tuple[tuple[str, ...], set[str]]]) -> set[str]:
    """The endings of two beginnings or more that are worth writing once; empty where none are."""
    pairs = [(one & other) for at, (_, one) in enumerate(groups) for _, other in groups[:at]]
    best = max(pairs, key=lambda rests: sum(len(rest) + 1 for rest in rests), default=set())
    return best if sum(len(rest) + 1 for rest in best) > WORTH else set()


def written(name: str, keys: set[str]) -> str:
    """A list as the table has it."""
    lines = textwrap.wrap(
        " ".join(folded(keys)), 150, break_long_words=False, break_on_hyphens=False
    )
    if not lines:
        return ""
    if len(lines) == 1 and len(lines[0]) < 120:
        return f'{name} = "{lines[0]}"\n'
    return "\n".join([f'{name} = """', *lines, '"""', ""])


def included(raw: dict[str, list[dict[str, str]]], kind: str) -> set[str]:
    """Keys that the tables which this one includes give a verdict of a kind."""
    found: set[str] = set()
    for one in raw.get("include", ()):
        table = table_of(one["table"])
        own = table.quiet if kind == "quiet" else table.bears
        own |= table.read if kind == "bears" and one.get("unread") else frozenset()
        found |= {under + key for under in one.get("under", "").split() or [""] for key in own}
    return found


def main() -> None:
    """Write the lists of some tables, or of all."""
    for path in sorted(TABLES.glob("[!_]*.toml")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        text, table = path.read_text(encoding="utf-8"), table_of(path.stem)
        raw = tomllib.loads(text)
        for kind in LISTS:
            keys = set(expand(raw.get(kind, ""))) - included(raw, kind) - table.read
            keys -= table.bears if kind == "quiet" else frozenset()
            pattern = rf'^{kind} = (?:"""\n.*?"""|".*?")\n'
            text = re.sub(
                pattern,
                lambda _, k=kind, own=keys: written(k, own),
                text,
                count=1,
                flags=re.DOTALL | re.MULTILINE,
            )
        path.write_text(text, encoding="utf-8")


main()
