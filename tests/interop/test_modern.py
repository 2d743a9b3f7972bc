"""Readers of recent families: counts against the library's modules and published totals."""

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import BadInput
from foretell.interop.huggingface import read_model
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, DeltaNet, LatentAttention, Mamba2
from foretell.specs.model import Model
from foretell.workload.parameters import count

TABLE = tomllib.loads(Path(__file__).with_name("modern_counts.toml").read_text("utf-8"))["model"]
OWN = [row for row in TABLE if "config" in row]
FILES = [row for row in TABLE if "file" in row]


def _check(model: Model, row: dict[str, Any]) -> None:
    found = count(model)
    towers = sum(tower.parameters for tower in model.towers)
    assert (found.text, towers) == (row["text"], row["towers"])
    assert found.total - found.text - towers == row["prediction"]
    assert found.total == row["total"]
    assert 0 < found.active <= found.text


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_parts_of_the_table_sum_to_its_totals(row: dict[str, Any]) -> None:
    assert row["text"] + row["towers"] + row["prediction"] == row["total"]
    assert row["source"]


@pytest.mark.parametrize("row", OWN, ids=lambda row: row["name"])
def test_counts_of_known_configs(row: dict[str, Any]) -> None:
    _check(read_model(json.loads(row["config"])), row)


@pytest.mark.parametrize("row", FILES, ids=lambda row: row["name"])
def test_counts_of_published_files(row: dict[str, Any], data_dir: Path) -> None:
    _check(read_model(data_dir / "hf_configs" / row["file"]), row)


def test_every_published_config_is_in_the_table(data_dir: Path) -> None:
    files = {path.name for path in (data_dir / "hf_configs").glob("*_config.json")}
    shaped = {name for name in files if not name.endswith("hf_quant_config.json")}
    assert shaped == {row["file"] for row in FILES}


@pytest.mark.parametrize("row", OWN, ids=lambda row: row["name"])
def test_prediction_and_towers_leave_the_text_model_alone(row: dict[str, Any]) -> None:
    config = json.loads(row["config"])
    for level in (config, config.get("text_config", {})):
        for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"):
            level.pop(key, None)
        if len(level.get("layer_types", ())) > level.get("num_hidden_layers", 0):
            del level["layer_types"][level["num_hidden_layers"] :]  # those of the blocks left out
    config.pop("vision_config", None)
    config.pop("audio_config", None)
    found = count(read_model(config))
    assert found.total == found.text == row["text"]


# ---- structure: what decides time, layer by layer --------------------------------------------------


def _known(name: str) -> Model:
    (row,) = (row for row in OWN if row["name"] == name)
    return read_model(json.loads(row["config"]))


def _published(data_dir: Path, name: str) -> Model:
    return read_model(data_dir / "hf_configs" / f"{name}_config.json")


def _mixers(model: Model) -> list[Any]:
    return [layer.mixers[0] if layer.mixers else None for layer in model.stack.layers]


def test_v4_layers(data_dir: Path) -> None:
    model = _published(data_dir, "deepseek-ai--DeepSeek-V4-Flash")
    mixers = _mixers(model)
    assert Counter(m.compress_ratio for m in mixers) == {None: 2, 4: 21, 128: 20}
    assert all((m.indexer is not None) == (m.compress_ratio == 4) for m in mixers)
    assert {(m.heads, m.kv_heads, m.head_dim, m.window) for m in mixers} == {(64, 1, 512, 128)}
    assert all(m.value_is_key and m.o_groups == 8 for m in mixers)
    assert {m.indexer.top_k for m in mixers if m.indexer} == {512}
    # Three layers are routed by a table; they have a router and no balance bias.
    assert [layer.ffn.router_bias for layer in model.stack.layers[:4]] == [False] * 3 + [True]
    assert model.prediction is not None
    assert model.prediction.layers[0].mixers[0].compress_ratio is None


def test_glm_5_2_shares_indexers(data_dir: Path) -> None:
    mixers = _mixers(_published(data_dir, "zai-org--GLM-5.2"))
    own = [i for i, m in enumerate(mixers) if m.indexer.owns_weights]
    assert own == [0, 1, 2, *range(6, 78, 4)]
    assert {m.indexer.top_k for m in mixers} == {2048}
    older = _mixers(_published(data_dir, "zai-org--GLM-5-FP8"))
    assert all(m.indexer.owns_weights for m in older)


def test_glm_5_2_pattern_from_its_frequency_is_the_listed_one(data_dir: Path) -> None:
    path = data_dir / "hf_configs" / "zai-org--GLM-5.2_config.json"
    config = json.loads(path.read_text("utf-8"))
    del config["indexer_types"]
    assert read_model(config, id="x").stack == read_model(path, id="x").stack


def test_k3_alternates_delta_and_latent_attention(data_dir: Path) -> None:
    model = _published(data_dir, "moonshotai--Kimi-K3")
    kinds = [type(m) for m in _mixers(model)]
    latent = [i for i, kind in enumerate(kinds) if kind is LatentAttention]
    assert latent == [*range(3, 93, 4), 92]
    assert kinds.count(DeltaNet) == 69
    assert _mixers(model)[3].output_gate == "element"
    assert [layer.ffn.latent for layer in model.stack.layers[1:]] == [3584] * 92
    # Cached per token: 24 layers of 512 + 64 values.
    cached = sum(m.kv_rank + m.rope_dim for m in _mixers(model) if isinstance(m, LatentAttention))
    assert cached == 24 * 576


def test_qwen3_5_has_attention_on_every_fourth_layer(data_dir: Path) -> None:
    model = _published(data_dir, "Qwen--Qwen3.5-397B-A17B")
    mixers = _mixers(model)
    assert [i for i, m in enumerate(mixers) if isinstance(m, Attention)] == list(range(3, 60, 4))
    assert (mixers[3].heads, mixers[3].kv_heads, mixers[3].head_dim) == (32, 2, 256)
    assert mixers[3].output_gate == "element"
    assert isinstance(mixers[0], DeltaNet)
    assert (mixers[0].key_heads, mixers[0].value_heads) == (16, 64)
    assert model.prediction is not None
    assert isinstance(model.prediction.layers[0].mixers[0], Attention)


def test_llama4_chunks_three_layers_of_four() -> None:
    scout, maverick = _known("Llama-4-Scout"), _known("Llama-4-Maverick")
    for model in (scout, maverick):
        marks = [(m.window, m.chunked) for m in _mixers(model)]
        assert marks == ([(8192, True)] * 3 + [(None, False)]) * 12
    experts = [type(layer.ffn).__name__ for layer in maverick.stack.layers]
    assert experts == ["Dense", "Experts"] * 24


def test_gemma4_global_layers_have_a_shape_of_their_own(data_dir: Path) -> None:
    mixers = _mixers(_published(data_dir, "google--gemma-4-26B-A4B"))
    wide = [i for i, m in enumerate(mixers) if m.window is None]
    assert wide == list(range(5, 30, 6))
    assert {(m.head_dim, m.kv_heads, m.value_is_key) for m in mixers if m.window is None} == {
        (512, 2, True)
    }
    assert {(m.head_dim, m.kv_heads, m.window) for m in mixers if m.window} == {(256, 8, 1024)}


def test_gemma4_small_models_share_keys_and_values() -> None:
    mixers = _mixers(_known("gemma-4-E2B-like"))
    assert [m.owns_kv for m in mixers] == [True] * 15 + [False] * 20


def test_nemotron_patterns(data_dir: Path) -> None:
    nano = _published(data_dir, "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
    kinds = Counter(
        type(layer.mixers[0] if layer.mixers else layer.ffn).__name__ for layer in nano.stack.layers
    )
    assert kinds == {"Mamba2": 23, "Experts": 23, "Attention": 6}
    assert isinstance(_mixers(nano)[0], Mamba2)
    # The list of names (Ultra) and the string of letters (Super) say the same things.
    ultra = _published(data_dir, "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16")
    assert len(ultra.stack.layers) == 108
    assert ultra.prediction is not None
    assert len(ultra.prediction.layers) == 2


def test_nas_layers_differ_one_by_one(data_dir: Path) -> None:
    model = _published(data_dir, "nvidia--Llama-3_3-Nemotron-Super-49B-v1")
    without = [layer for layer in model.stack.layers if not layer.mixers]
    assert len(model.stack.layers) == 80
    assert len(without) == 31
    assert {layer.norms for layer in without} == {1}
    assert {m.kv_heads for m in _mixers(model) if isinstance(m, Attention)} == {8}


def test_mimo_windowed_layers_have_more_kv_heads(data_dir: Path) -> None:
    mixers = _mixers(_published(data_dir, "XiaomiMiMo--MiMo-V2-Flash"))
    assert {(m.window, m.kv_heads) for m in mixers} == {(None, 4), (128, 8)}
    assert sum(m.window is None for m in mixers) == 9
    assert {(m.head_dim, m.value_dim) for m in mixers} == {(192, 128)}


def test_step_windowed_layers_have_more_heads() -> None:
    mixers = _mixers(_known("Step-3.5-Flash"))
    assert {(m.window, m.heads, m.output_gate) for m in mixers} == {
        (None, 64, "head"),
        (512, 96, "head"),
    }


def test_gpt_oss_windows_alternate() -> None:
    model = _known("gpt-oss-20b")
    assert [m.window for m in _mixers(model)] == [128, None] * 12


def test_what_is_missing_or_uncertain_is_said(data_dir: Path) -> None:
    scout = _published(data_dir, "meta-llama--Llama-4-Scout-17B-16E-Instruct")
    assert any("no vision tower is counted" in line for line in scout.assumptions)
    minimax = _published(data_dir, "MiniMaxAI--MiniMax-M2.7")
    assert any("published checkpoints leave them out" in line for line in minimax.assumptions)
    assert minimax.prediction is not None
    assert minimax.prediction.repeats == 3


def test_a_layer_may_differ_by_an_entry_of_its_own() -> None:
    """Releases of the library from 5 on write such layers as per_layer_config."""
    config: dict[str, Any] = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "vocab_size": 100,
    }  # fmt: skip
    whole = count(read_model(config)).total
    own = config | {"per_layer_config": {"1": {"intermediate_size": 64}}}
    assert count(read_model(own)).total == whole - 3 * 64 * 64
    with pytest.raises(BadInput, match="names layers beyond 3"):
        read_model(config | {"per_layer_config": {"3": {"intermediate_size": 64}}})
    with pytest.raises(BadInput, match=r"per_layer_config\.1\.intermediate_size"):
        read_model(config | {"per_layer_config": {"1": {"intermediate_size": "x"}}})


def test_which_layers_have_experts_is_read_as_new_releases_write_it() -> None:
    row = next(row for row in OWN if row["name"].startswith("glm4_moe_lite"))
    config = json.loads(row["config"])
    assert "first_k_dense_replace" not in config
    kinds = [isinstance(layer.ffn, Experts) for layer in read_model(config).stack.layers]
    assert kinds == [kind == "sparse" for kind in config["mlp_layer_types"]]
