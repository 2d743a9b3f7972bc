"""Configs that are wrong, incomplete or unknown: every fault named, nothing assumed in silence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.interop.huggingface import read_model
from foretell.interop.huggingface.config import Config
from foretell.workload.parameters import count
from tests.interop.test_oracle_counts import CASES

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "bfloat16",
}


def problems(config: dict[str, Any]) -> dict[str, str]:
    """Path -> line of each problem of a config that must be refused."""
    with pytest.raises(BadInput) as caught:
        read_model(config)
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_a_complete_config_assumes_nothing() -> None:
    assert read_model(LLAMA).assumptions == ()


@pytest.mark.parametrize(
    "key",
    ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"],
)
def test_a_missing_shape_is_named(key: str) -> None:
    config = {name: value for name, value in LLAMA.items() if name != key}
    assert list(problems(config)) == [f"config.json: {key}"]


def test_all_problems_come_at_once() -> None:
    config = LLAMA | {"hidden_size": -1, "vocab_size": "many", "num_hidden_layers": None}
    assert set(problems(config)) == {
        "config.json: hidden_size",
        "config.json: vocab_size",
        "config.json: num_hidden_layers",
    }


@pytest.mark.parametrize(
    "value", [0, -5, 1.5, float("nan"), float("inf"), True, "8", [8], {}, 10**400, 10**13]
)
@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "vocab_size"])
def test_impossible_values_are_named(key: str, value: object) -> None:
    assert f"config.json: {key}" in problems(LLAMA | {key: value})


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"hidden_size": 257}, "hidden_size, num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_attention_heads, num_key_value_heads"),
        ({"num_key_value_heads": 16}, "num_attention_heads, num_key_value_heads"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"attention_bias": 1}, "attention_bias"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers"),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], path: str) -> None:
    assert list(problems(LLAMA | changes)) == [f"config.json: {path}"]


def test_layer_types_must_fit_the_layers() -> None:
    config = LLAMA | {"model_type": "ministral", "sliding_window": 128}
    windowed = read_model(config | {"layer_types": ["sliding_attention", "full_attention"]})
    assert [layer.mixers[0].window for layer in windowed.stack.layers] == [128, None]  # type: ignore[union-attr]
    assert "config.json: layer_types" in problems(config | {"layer_types": ["full_attention"]})
    wrong = problems(config | {"layer_types": ["sliding_attention", "full_atention"]})
    assert "did you mean full_attention?" in wrong["config.json: layer_types"]
    lone = config | {"layer_types": ["sliding_attention"] * 2, "sliding_window": None}
    assert "config.json: layer_types, sliding_window" in problems(lone)


def test_experts_cannot_be_fewer_than_a_token_uses() -> None:
    config = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}
    assert "config.json: num_experts_per_tok, num_local_experts" in problems(config)


def test_two_names_of_one_thing_must_agree() -> None:
    config = {"model_type": "gpt2", "n_embd": 64, "hidden_size": 128, "n_layer": 2, "n_head": 4,
              "n_positions": 16, "vocab_size": 10}  # fmt: skip
    assert "config.json: n_embd, hidden_size" in problems(config)
    assert read_model(config | {"hidden_size": 64}).stack.hidden == 64


def test_absent_keys_take_the_family_s_default_and_say_so() -> None:
    absent = {k: v for k, v in LLAMA.items() if k not in ("tie_word_embeddings", "mlp_bias")}
    (said,) = read_model(absent).assumptions
    assert "LlamaConfig" in said
    assert "tie_word_embeddings=false" in said
    assert "mlp_bias=false" in said
    gemma = absent | {"model_type": "gemma", "head_dim": 32}
    assert read_model(gemma).head.tied


def test_null_and_absent_windows_differ_where_the_library_says_so() -> None:
    config = LLAMA | {"model_type": "mistral"}
    given_null = read_model(config | {"sliding_window": None})
    absent = read_model(config)
    assert given_null.stack.layers[0].mixers[0].window is None  # type: ignore[union-attr]
    assert absent.stack.layers[0].mixers[0].window == 4096  # type: ignore[union-attr]
    assert any("sliding_window=4096" in said for said in absent.assumptions)


def test_an_unknown_family_is_read_from_generic_keys_and_says_so() -> None:
    known, guessed = read_model(LLAMA), read_model(LLAMA | {"model_type": "lama"})
    assert count(known) == count(guessed)
    assert "model_type lama is not known here" in guessed.assumptions[0]
    assert "nearest known family is llama" in guessed.assumptions[0]


def test_an_unknown_family_with_experts() -> None:
    config = LLAMA | {"model_type": "new_moe", "num_experts": 8, "num_experts_per_tok": 2,
                      "moe_intermediate_size": 64, "first_k_dense_replace": 1}  # fmt: skip
    found = count(read_model(config))
    assert found.active == found.total - 6 * 3 * 256 * 64


def test_an_unknown_family_that_the_keys_do_not_describe_is_refused() -> None:
    wrong = problems({"model_type": "mambo", "d_model": 64, "vocab_size": 100})
    assert "config.json: model_type" in wrong
    assert "config.json: hidden_size" in wrong


def test_an_unknown_multimodal_family_is_read_by_its_text() -> None:
    text = dict(LLAMA)
    found = read_model({"model_type": "seer", "text_config": text, "vision_config": {}})
    assert count(found) == count(read_model(LLAMA))
    assert any("towers are not counted" in said for said in found.assumptions)
    del text["hidden_size"]
    assert "config.json: text_config.hidden_size" in problems(
        {"model_type": "seer", "text_config": text}
    )


def test_architectures_help_where_model_type_does_not() -> None:
    named = {k: v for k, v in LLAMA.items() if k != "model_type"}
    found = read_model(named | {"architectures": ["LlamaForCausalLM"]})
    assert found.family == "llama"
    assert "by architectures" in found.assumptions[0]


@pytest.mark.parametrize(
    ("table", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {
                "a": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}}},
            "mxfp4",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {
                "a": {"weights": {"num_bits": 8, "type": "float"}}}},
            "fp8",
        ),
    ],
)  # fmt: skip
def test_stored_precision(table: dict[str, Any], dtype: str) -> None:
    assert read_model(LLAMA | {"quantization_config": table}).dtype == dtype


def test_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert read_model(folder) == read_model(folder / "config.json")
    assert read_model(folder).id == "my-model"
    assert read_model(folder, id="other").id == "other"
    quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(quant))
    assert read_model(folder).dtype == "fp8"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"[1, 2]", "is not a JSON table"),
        (b"{'a': 1}", "is not JSON"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 10_000 + b"}", "is not JSON"),
        (b'{"a": {"hidden_size": 512, "hidden_size": 1024}}', "hidden_size is given twice"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_model(path)


def test_a_key_may_be_repeated_and_null_is_not_its_own_nearest(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA)[:-1] + f', "hidden_size": {LLAMA["hidden_size"]}}}')
    assert read_model(path, id="x") == read_model(LLAMA, id="x")
    with pytest.raises(BadInput) as caught:
        read_model(LLAMA | {"hidden_size": None})
    assert caught.value.problems[0].path.endswith("hidden_size")
    assert caught.value.problems[0].nearest != "hidden_size"


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path, "holds no config.json"),
        (tmp_path / "none.json", "no such file"),
        (tmp_path / ("x" * 400), "no path of a file"),
    ):
        with pytest.raises(BadInput, match=message):
            read_model(path)


# ---- generated ----------------------------------------------------------------------------------

junk = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(-3, 3), max_size=3)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """A good config with some of its keys spoiled or taken away."""
    config = dict(draw(st.sampled_from(CASES))[0])
    for key in draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        if draw(st.booleans()):
            config.pop(key, None)
        else:
            config[key] = draw(junk)
    return config


@settings(max_examples=400)
@given(config=broken())
def test_a_broken_config_is_read_or_refused_with_paths(config: dict[str, Any]) -> None:
    try:
        model = read_model(config)
    except BadInput as error:
        assert error.problems
        for problem in error.problems:
            assert problem.path.startswith("config.json: ")
            assert "\n" not in str(problem)
    else:
        assert count(model).total >= 0


@given(value=junk, key=st.sampled_from(["a", "b"]))
def test_a_key_is_read_or_named(value: Any, key: str) -> None:
    config = Config({"a": value})
    found = config.need(key)
    assert isinstance(found, int)
    assert not isinstance(found, bool)
    good = (
        key == "a"
        and not isinstance(value, bool)
        and isinstance(value, int | float)
        and 1 <= value <= 10**9
        and value == int(value)
    )
    assert (not config.problems) == good
    if good:
        assert found == value
