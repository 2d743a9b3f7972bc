"""Conformance checks of a tool's table (interop/tools/NAME.toml).

    from foretell.testing.tool import check_launch, check_table
    check_table("example")
    check_launch("example", "example train --tp 2 --batch 8 ...", words="tp2 mbs8", seq_len=4096)

A table is right in form when these pass: every key has one verdict and none is a wildcard, defaults and
values are of fields that it has, what it writes are keys of its own, a launch is recognised as the tool's,
its values come back with the line that says each, and a key that the tool does not have is named as unknown.
"""

import re
from typing import Any

from foretell.api.launches import read_launch
from foretell.interop.arguments import spell_key
from foretell.interop.rules import conditions
from foretell.interop.tool_tables import table_of
from foretell.specs.plan_words import read_words

PLANTED = "flux_capacitor_rule"
"""A key that no tool has."""


def check_table(name: str) -> None:
    """Raise AssertionError where a table says two things of a key, or something of none."""
    table = table_of(name)
    for one, other in (("read", "bears"), ("read", "quiet"), ("bears", "quiet")):
        both = getattr(table, one) & getattr(table, other)
        assert not both, f"{name}: {sorted(both)[:5]} are in {one} and in {other}"
    assert all("*" not in key for key in table.known), f"{name}: a key is a wildcard"
    assert table.source or table.family == "service", f"{name}: no source"
    known = {*table.fields, *(key for own in table.backends.values() for key in own)}
    texts = " ".join(str(row.get("text", "")) for row in table.written)
    written = {*table.writes, *re.findall(r"--[a-z][\w-]*", texts)}
    written |= {key for row in table.written for key in row.get("set", ())}
    unknown = {key for key in written if table.verdict(spell_key(key)) is None}
    unknown = {key for key in unknown if not key.startswith(table.free or ("-",))}
    assert not unknown, f"{name}: writes {sorted(unknown)}, which it does not have"
    for name, rows in table.rules.items():
        for row in rows:
            conditions(row.get("when", ""))
            wrong = read_words(re.sub(r"\{\w+\}", "1", row.get("words", "")))[1]
            assert not [one for one in wrong if "{" not in row["words"]], f"{name}: {row['words']}"
    lost = {key for key in table.values if key not in known}
    assert not lost, f"{name}: words of {sorted(lost)}, which no key sets"


def check_launch(tool: str, text: str, *, words: str = "", **values: Any) -> None:
    """Raise AssertionError where a launch is not read as its tool's with these values of it."""
    launch = read_launch(text)
    assert launch.tool == tool, f"read as {launch.tool}'s"
    assert not launch.not_understood, launch.not_understood
    assert len(launch.asks) <= 5, launch.asks
    missing = {*words.split()} - {*launch.plan.split()}
    assert not missing, f"{sorted(missing)} not in {launch.plan}"
    told = {
        **dict(launch.table or {}),
        **dict(launch.post_training or {}),
        **{name: getattr(launch, name, None) for name in JOB},
    }
    for name, value in values.items():
        assert told.get(name) == value, f"{name}: {told.get(name)}, not {value}"
    _check_lines(text)


JOB = ("gpus", "global_batch", "seq_len", "named", "prefill_gpus")
"""Values of a launch that are not of its plan."""


def _check_lines(text: str) -> None:
    """The line of every value has its key."""
    lines = text.lower().replace("_", "").replace("-", "").splitlines()
    rows = [row for row in read_launch(text).values if row.line and row.origin == "file"]
    for row in rows:
        last = row.key.split(", ")[0].rpartition(".")[2].lower().replace("_", "")
        assert last in lines[(row.line or 1) - 1], f"{row.key} is not in line {row.line}"
