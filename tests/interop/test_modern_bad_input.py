"""Recent families, spoilt: a config is read, or every fault is said; nothing else is raised."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.interop.huggingface import read_model
from foretell.workload.parameters import count

TABLE = tomllib.loads(Path(__file__).with_name("modern_counts.toml").read_text("utf-8"))["model"]
CONFIGS = {row["name"]: row["config"] for row in TABLE if "config" in row}
JUNK: list[Any] = [
    None, -1, 0, 1, 3, 2.5, float("nan"), float("inf"), 10**13, 10**400, True, "", "x", "auto",
    [], [1, 2], ["x"], [None], {}, {"x": 1},
]  # fmt: skip


def _paths(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in table.items():
        found.append((*prefix, key))
        if isinstance(value, dict):
            found += _paths(value, (*prefix, key))
    return found


def _spoil(config: dict[str, Any], path: tuple[str, ...], value: Any, remove: bool) -> None:
    level = config
    for key in path[:-1]:
        level = level.get(key, {})
        if not isinstance(level, dict):
            return
    if remove:
        level.pop(path[-1], None)
    else:
        level[path[-1]] = value


@st.composite
def spoilt(draw: st.DrawFn) -> dict[str, Any]:
    """A known config with one to three keys removed or replaced."""
    config = json.loads(CONFIGS[draw(st.sampled_from(sorted(CONFIGS)))])
    paths = _paths(config)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths))
        _spoil(config, path, draw(st.sampled_from(JUNK)), draw(st.booleans()))
    return config


def _holds(config: dict[str, Any]) -> None:
    try:
        model = read_model(config)
    except BadInput as error:
        assert error.problems
        assert all("\n" not in str(problem) for problem in error.problems)
        return
    found = count(model)
    assert 0 < found.active <= found.text <= found.total


@given(spoilt())
@settings(max_examples=600)
def test_a_spoilt_config_is_read_or_refused(config: dict[str, Any]) -> None:
    _holds(config)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_key_of_every_config_can_be_spoilt(name: str) -> None:
    for path in _paths(json.loads(CONFIGS[name])):
        for remove, value in ((True, None), *((False, junk) for junk in JUNK)):
            config = json.loads(CONFIGS[name])
            _spoil(config, path, value, remove)
            _holds(config)


@pytest.mark.parametrize(
    ("name", "path", "value", "said"),
    [
        ("Llama-4-Scout", ("text_config", "hidden_size"), None, "text_config.hidden_size"),
        ("Kimi-Linear-48B-A3B", ("linear_attn_config", "num_heads"), "x", "num_heads"),
        ("Nemotron-Nano-9B-v2", ("hybrid_override_pattern",), "MX", "hybrid_override_pattern"),
        ("gpt-oss-20b", ("num_experts_per_tok",), 33, "num_experts_per_tok"),
        ("Step-3.5-Flash", ("moe_layers_enum",), "3,x", "moe_layers_enum"),
        ("llava-1.5-7b", ("vision_config", "model_type"), "clop", "vision_config.model_type"),
        ("Hunyuan-A13B", ("moe_topk",), [8] * 31, "moe_topk"),
    ],
)
def test_the_fault_is_named(name: str, path: tuple[str, ...], value: Any, said: str) -> None:
    config = json.loads(CONFIGS[name])
    _spoil(config, path, value, remove=value is None)
    with pytest.raises(BadInput) as caught:
        read_model(config)
    assert any(said in problem.path for problem in caught.value.problems)
