"""What the profile of tests/conftest.py says of examples: they are the same in every run."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[int, float, str]]:
    """All examples of one property."""
    found = []

    @settings(max_examples=300)
    @given(st.integers(), st.floats(allow_nan=False), st.text())
    def keeps(whole: int, number: float, text: str) -> None:
        found.append((whole, number, text))

    keeps()
    return found


def test_they_do_not_depend_on_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not settings.default.derandomize:
        pytest.skip("new examples are looked for")
    before = drawn()
    assert len(set(map(repr, before))) > 100
    path = tmp_path / "numbers_and_words.py"
    chance = random.Random(1)
    lines = [f"X{i} = ({chance.randrange(10**9)}, {chance.random()}, 'w{i}')" for i in range(200)]
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, path.stem, module)
    assert repr(drawn()) == repr(before)


def test_a_loaded_machine_is_no_defect() -> None:
    assert settings.default.deadline is None
