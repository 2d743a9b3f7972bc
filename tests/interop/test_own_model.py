"""Our own TOML form: what is written reads back, and what is wrong is named."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.model_names import model_entries
from foretell.catalog.models import model
from foretell.errors import BadInput
from foretell.interop import own_model
from foretell.interop.huggingface import read_model
from foretell.interop.own_model import read_table, read_toml, write_toml
from foretell.workload.parameters import count
from tests.interop.test_oracle_counts import CASES

SMALL = """
id = "small"
family = "gpt"
kind = "decoder"
max_positions = 128
embedding = { vocab = 100, positions = 128 }
head = { outputs = 100, tied = true }

[stack]
hidden = 64
final_norm = "layer"

[[stack.layers]]
repeat = 3
norm_kind = "layer"
mixers = [{ kind = "attention", heads = 4, kv_heads = 2, head_dim = 16 }]
ffn = { kind = "dense", width = 256, gated = false, activation = "gelu" }
"""


def problems(text: str) -> dict[str, str]:
    with pytest.raises(BadInput) as caught:
        read_table(tomllib.loads(text), id="x", name="x.toml")
    return {problem.path: str(problem) for problem in caught.value.problems}


@pytest.mark.parametrize("config", [config for config, _ in CASES], ids=lambda c: c["model_type"])
def test_a_reading_survives_writing(config: dict[str, Any]) -> None:
    made = read_model(config, id="there and back")
    assert read_table(tomllib.loads(write_toml(made)), id="other") == made


@pytest.mark.parametrize("id", [entry.id for entry in model_entries()])
def test_every_model_of_the_catalogue_survives_writing(id: str) -> None:
    assert read_table(tomllib.loads(write_toml(model(id))), id="other") == model(id)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    made = read_toml(path)
    assert made.id == "small"
    assert len(made.stack.layers) == 3
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 2 * 64 * 256 + 4 * 64
    assert count(made).total == 100 * 64 + 128 * 64 + 3 * layer + 2 * 64


def test_the_example_of_the_manual_reads() -> None:
    example = (own_model.__doc__ or "").partition("in a row:\n")[2].partition("`write_toml`")[0]
    lines = [line.removeprefix("    ") for line in example.splitlines()]
    made = read_table(tomllib.loads("\n".join(lines)), id="x")
    assert made.id == "small"
    assert len(made.stack.layers) == 12


@pytest.mark.parametrize(
    ("old", "new", "path", "says"),
    [
        ("hidden = 64", "", "stack.hidden", "is missing"),
        ("hidden = 64", "hidden = -1", "stack.hidden", "whole number"),
        ("hidden = 64", "hidden = true", "stack.hidden", "whole number"),
        ("hidden = 64", "hiden = 64", "stack.hiden", "did you mean hidden?"),
        ('kind = "decoder"', 'kind = "decode"', "kind", "decoder"),
        ('kind = "attention"', 'kind = "atention"', "stack.layers[0].mixers[0].kind", "attention?"),
        ("repeat = 3", "repeat = 0", "stack.layers[0].repeat", "from 1 to"),
        ("repeat = 3", "repeat = 99999", "stack.layers[0].repeat", "from 1 to"),
        ("gated = false", 'gated = "no"', "stack.layers[0].ffn.gated", "true or false"),
        ("kv_heads = 2", "kv_heads = 3", "stack.layers", "cannot share"),
        ("outputs = 100", "outputs = 99", "head.outputs", "tied to a table of 100 rows"),
        ("vocab = 100", "vocab = 1000000000000000000", "embedding.vocab", "whole number"),
        ('kind = "decoder"', 'kind = "encoder-decoder"', "encoder", "does not go with"),
    ],
)
def test_faults_are_named(old: str, new: str, path: str, says: str) -> None:
    assert old in SMALL
    found = problems(SMALL.replace(old, new, 1))
    assert says in found[f"x.toml: {path}"]


def test_all_faults_come_at_once() -> None:
    text = SMALL.replace("hidden = 64", "hidden = 0").replace("heads = 4", 'heads = "4"', 1)
    assert set(problems(text)) == {
        "x.toml: stack.hidden",
        "x.toml: stack.layers[0].mixers[0].heads",
    }


@pytest.mark.parametrize("content", [b"a = ", b"\xff", b"a = [" * 5000, b"x = " + b"9" * 5000])
def test_files_that_are_no_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        read_toml(path)
    with pytest.raises(BadInput, match="no such file"):
        read_toml(tmp_path / "none.toml")


json_like = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(
    key=st.sampled_from(["id", "kind", "stack", "embedding", "head", "towers", "encoder", "dtype"]),
    value=json_like,
)
def test_any_value_is_read_or_refused(key: str, value: Any) -> None:
    table = tomllib.loads(SMALL) | {key: value}
    try:
        made = read_table(table, id="x")
    except BadInput as error:
        assert error.problems
    else:
        assert json.dumps(write_toml(made))
