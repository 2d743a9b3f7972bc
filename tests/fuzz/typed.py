"""Files that parse, with one value of another type or without a part: what mutated bytes seldom reach."""

import csv
import io
import json
import random
import tomllib
from collections.abc import Callable
from typing import Any

import tomli_w
import yaml

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 0.5, -0.0, 1e308, 1e-308, 10**18, 10**30, 10**400, float("inf"), float("nan"),
    "", "text", "1e5", "9" * 400, "a" * 5000, "\x00", "\u202e", "nan", "-1", "2024-05-01T10:00:00+02:00",
    [], [1], ["a"], [[[]]], {}, {"a": 1}, {"": None}, [None] * 50, [1, "a", None],
)  # fmt: skip
"""What is put where something else stood: each type, and numbers at the end of what counts."""
NESTED = 900
"""Lists inside one another."""


def deep(rng: random.Random) -> Any:
    """A value nested very deeply, as a list or as a table."""
    found: Any = 1
    for _ in range(NESTED):
        found = [found] if rng.random() < 0.5 else {"a": found}
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every value in tables and lists."""
    inside = (
        value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list)
        else ()
    )  # fmt: skip
    found = [path] if path else []
    for key, held in inside:
        found += places(held, (*path, key))
    return found


def change(rng: random.Random, document: Any) -> Any:
    """The document with one value changed, gone, doubled or swapped; or a category of events gone."""
    found = places(document)
    if not found:
        return rng.choice(ODD)
    if rng.random() < 0.1 and (kept := without_category(rng, document)) is not None:
        return kept
    path = rng.choice(found)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    kind = rng.random()
    if kind < 0.65:
        holder[path[-1]] = rng.choice(ODD)
    elif kind < 0.67:
        holder[path[-1]] = deep(rng)
    elif kind < 0.8:
        del holder[path[-1]]
    elif kind < 0.9 and isinstance(holder, dict):
        holder[rng.choice(["", "a" * 5000, "tp", "\x00", "model", "cat"])] = rng.choice(ODD)
    else:
        other = rng.choice(found)
        source = document
        for key in other:
            source = source[key]
        holder[path[-1]] = json.loads(json.dumps(source))
    return document


def without_category(rng: random.Random, document: Any) -> Any:
    """A trace without one whole category of events, or with that alone; None where there are no events."""
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        return None
    names = sorted({str(e.get("cat")) for e in events if isinstance(e, dict)})
    if not names:
        return None
    gone, alone = rng.choice(names), rng.random() < 0.3
    document["traceEvents"] = [
        e for e in events if not isinstance(e, dict) or (str(e.get("cat")) == gone) is alone
    ]
    return document


def of_json(rng: random.Random, content: bytes) -> bytes:
    return json.dumps(change(rng, json.loads(content))).encode()


def of_lines(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = json.dumps(change(rng, json.loads(lines[at]))).encode()
    return b"\n".join(lines)


def of_toml(rng: random.Random, content: bytes) -> bytes:
    return tomli_w.dumps(change(rng, tomllib.loads(content.decode()))).encode()


def of_csv(rng: random.Random, content: bytes) -> bytes:
    rows = list(csv.reader(io.StringIO(content.decode())))
    if len(rows) < 2 or len(rows[0]) < 2:
        raise ValueError("no table")
    row, column = rng.choice(rows), rng.randrange(len(rows[0]))
    if rng.random() < 0.1:
        for row in rows:
            del row[column : column + 1]
    elif column < len(row):
        row[column] = str(rng.choice(ODD))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def of_yaml(rng: random.Random, content: bytes) -> bytes:
    """Documents of a launch file; one that is a mere text, as a script is, is none."""
    documents = list(yaml.safe_load_all(content.decode()))
    if not any(isinstance(one, dict) for one in documents):
        raise ValueError("no table")
    at = rng.randrange(len(documents))
    documents[at] = change(rng, documents[at])
    return yaml.safe_dump_all(documents, allow_unicode=True).encode("utf-8", "surrogateescape")


KINDS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    of_json, of_lines, of_toml, of_yaml, of_csv,
)  # fmt: skip


def typed(seed: int, content: bytes) -> bytes | None:
    """The content with a typed mutation or a few; None where it is of no known kind."""
    rng = random.Random(seed)
    for kind in KINDS:
        try:
            found = kind(rng, content)
            for _ in range(rng.choice((0, 0, 1, 2))):
                found = kind(rng, found)
            return found
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            RecursionError,
            UnicodeError,
            AttributeError,
            yaml.YAMLError,
        ):
            continue
    return None
