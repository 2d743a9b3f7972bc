"""Rows of conditions: the first that holds counts, and a word is from the fields of the row that held."""

from typing import Any

import pytest

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys
from foretell.interop.rules import conditions, decide, rows_that_hold
from foretell.interop.tool_tables import table_of
from foretell.specs.plan import parse_plan


def keys(**pairs: Any) -> Keys:
    return Keys(ArgumentTable(words=(), pairs=tuple(pairs.items()), variables={}), tool="example")


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("on", True), ("!on", False), ("off", False), ("off?", True), ("absent?", False), ("!absent?", True),
        ("word=Some|some", True), ("word=other", False), ("word~^so", True), ("many>3", True),
        ("many>4", False), ("@many", True), ("on many=4 !off", True), ("left?", False), ("given=8", True),
        ("", True),
    ],
)  # fmt: skip
def test_conditions(when: str, holds: bool) -> None:
    told = keys(on=True, off=False, word="Some", many=4, left="auto")
    rules = {"it": ({"when": when, "is": "yes"},)}
    assert ("it" in decide(told, rules, {"given": 8}).known) == holds


def test_the_first_row_counts_and_its_fields_are_the_source() -> None:
    rules = {
        "kind": ({"when": "recipe~^block-(\\d+)", "is": "{match}"}, {"is": "none"}),
        "precision": (
            {"when": "fp8 kind=128", "words": "precision=fp8 scaling=block"},
            {"when": "fp8", "words": "precision=fp8"},
            {"words": "precision=bf16", "note": "nothing is said of {recipe}"},
        ),
    }
    found = decide(keys(fp8=True, recipe="block-128", tp=2), rules, {})
    assert found.words == {"precision": "fp8", "scaling": "block"}
    assert found.sources["scaling"] == ("fp8", "recipe")
    plain = keys(recipe="row")
    assert decide(plain, rules, {}).words == {"precision": "bf16"}
    assert plain.notes == ["nothing is said of row"]


def test_a_variable_that_is_not_set_is_asked_for() -> None:
    told = keys(recipe="$RECIPE")
    decide(told, {"it": ({"when": "recipe=full", "words": "recompute=full"},)}, {})
    assert told.unset == {"recipe"}
    assert "RECIPE is not set in the file" in told.asks[0]


def test_what_is_no_condition_is_refused() -> None:
    with pytest.raises(ValueError, match="is no condition"):
        conditions("<3")


def test_rows_of_a_writer() -> None:
    plan = parse_plan("tp2 pp1 mbs1", 2)
    rows = rows_that_hold(
        ({"when": "tp>1", "text": "a"}, {"when": "pp>1", "text": "b"}, {"text": "c"}),
        {"tp": plan.tp, "pp": plan.pp},
    )
    assert [row["text"] for row in rows] == ["a", "c"]
    assert table_of("megatron").written
