"""The mutation check itself: mutants are single changes that still parse, chosen by their seed alone."""

import ast
from pathlib import Path

import pytest

from tests.mutation.__main__ import PACKAGE, ROOMS, stages
from tests.mutation.known import EQUIVALENT, KNOWN, find
from tests.mutation.mutants import choose, files_of, mutants_of

SMALL = b'''"""A page says 1 + 1."""
import numpy as np

LIMIT = 3


def f(a: "int" = 1, b: float | None = None) -> float:
    assert a > 0, f"{a + 1}"
    c = np.maximum(a, 2.0) + a / b
    return c if a == 1 or b else -c
'''


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_bytes(SMALL)
    return tmp_path


def test_every_change_of_a_small_file(small: Path) -> None:
    found = {
        (m.kind, m.diff(SMALL).splitlines()[-1][1:].strip()) for m in mutants_of(small, "small.py")
    }
    head = 'def f(a: "int" = {}, b: float | None = None) -> float:'
    assert found == {
        ("off by one", "LIMIT = 4"),
        ("off by one", head.format(2)),
        ("swap operator", "c = (np.maximum(a, 2.0) - a / b)"),
        ("drop term", "c = np.maximum(a, 2.0)"),
        ("drop term", "c = (a / b)"),
        ("maximum -> minimum", "c = np.minimum(a, 2.0) + a / b"),
        ("change constant", "c = np.maximum(a, 4.0) + a / b"),
        ("swap operator", "c = np.maximum(a, 2.0) + (a * b)"),
        ("drop factor", "c = np.maximum(a, 2.0) + a"),
        ("swap branches", "return (-c if a == 1 or b else c)"),
        ("drop or", "return c if b else -c"),
        ("drop or", "return c if (a == 1) else -c"),
        ("turn comparison", "return c if (a != 1) or b else -c"),
        ("off by one", "return c if a == 2 or b else -c"),
        ("drop sign", "return c if a == 1 or b else c"),
    }  # fmt: skip


def test_mutants_of_the_engine_parse_and_differ(root: Path) -> None:
    package = root / PACKAGE
    chosen = choose(package, ROOMS, count=60, seed=1)
    assert len({(m.file, m.start, m.end, m.text) for m in chosen}) == 60
    for mutant in chosen:
        source = (package / mutant.file).read_bytes()
        changed = mutant.apply(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant


def test_a_seed_chooses_the_same_and_every_room_has_its_share(root: Path) -> None:
    package = root / PACKAGE
    chosen = choose(package, ROOMS, count=12, seed=3)
    assert chosen == choose(package, ROOMS, count=12, seed=3)
    assert chosen != choose(package, ROOMS, count=12, seed=4)
    rooms = files_of(package, ROOMS)
    assert {m.file.partition("/")[0] for m in chosen} == set(rooms)


@pytest.mark.parametrize("change", [*KNOWN, *EQUIVALENT], ids=lambda c: f"{c.file}: {c.old}")
def test_changes_given_by_their_text_are_there(root: Path, change: object) -> None:
    mutant = find(root / PACKAGE, change)  # type: ignore[arg-type]
    assert mutant.file.endswith(change.file)  # type: ignore[attr-defined]


def test_a_module_is_tried_with_its_own_tests_first(root: Path) -> None:
    own, room, others, broad = stages(root / PACKAGE, "serving/disaggregation.py")
    assert "tests/serving/test_transfer.py" in own
    assert "tests/serving/test_memory.py" in room
    assert "tests/properties/test_estimate.py" in broad
    assert "tests/serving/test_memory.py" not in others
    assert not set(own) & set(room)
