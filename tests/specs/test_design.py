"""Records of designs and technology: plain values, every field explained, nothing left to chance."""

import ast
import dataclasses
import inspect
from typing import Any

import pytest

from foretell.specs import design
from foretell.specs.check import problems_of
from foretell.specs.design import (
    BuiltChip,
    ChipDesign,
    LinkKind,
    MemoryKind,
    Node,
    Rules,
    Technology,
)

RECORDS = [ChipDesign, BuiltChip, Node, MemoryKind, LinkKind, Rules, Technology]


def test_only_the_node_must_be_given() -> None:
    needed = [f.name for f in dataclasses.fields(ChipDesign) if _required(f)]
    assert needed == ["node"]
    assert problems_of(ChipDesign(node="N3"), "design") == []


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@pytest.mark.parametrize("record", RECORDS)
def test_records_are_frozen_and_take_names_only(record: type) -> None:
    assert record.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert all(field.kw_only for field in dataclasses.fields(record))
    assert "__slots__" in vars(record)


@pytest.mark.parametrize("module", [design])
def test_every_field_has_a_sentence(module: Any) -> None:
    for held in ast.parse(inspect.getsource(module)).body:
        if not isinstance(held, ast.ClassDef):
            continue
        for line, after in zip(held.body, [*held.body[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign):
                said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                assert said, f"{held.name}.{ast.unparse(line.target)}"


@pytest.mark.parametrize(
    ("name", "value"), [("die_area_mm2", -1.0), ("compute_dies", 0.0), ("clock_hz", float("nan"))]
)
def test_what_a_field_may_not_hold(name: str, value: float) -> None:
    wrong = dataclasses.replace(ChipDesign(node="N3"), **{name: value})
    assert [problem.path for problem in problems_of(wrong, "design")] == [f"design.{name}"]
