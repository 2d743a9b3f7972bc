"""Models of transformers by their configs: classes, inputs, experts, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.api.traced_models import trace_question
from foretell.errors import BadInput
from foretell.specs.questions.tracing import TraceModuleQuestion
from foretell.trace.graph import TracedModel

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 500,
}  # fmt: skip
EXPERTS = {**SMALL, "model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 4}
STACKS = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 500,
}  # fmt: skip
VISION = {k: v for k, v in SMALL.items() if k != "vocab_size"}
CONFIGS: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": {**SMALL, "model_type": "bert"},
    "BertForSequenceClassification": {**SMALL, "model_type": "bert"},
    "BertForQuestionAnswering": {**SMALL, "model_type": "bert"},
    "GPTNeoXForCausalLM": {**SMALL, "model_type": "gpt_neox"},
    "BartForConditionalGeneration": {**STACKS, "model_type": "bart"},
    "WhisperForConditionalGeneration": {
        **STACKS, "model_type": "whisper", "pad_token_id": 0, "decoder_start_token_id": 1,
        "bos_token_id": 2, "eos_token_id": 3, "max_source_positions": 100,
    },
    "ViTForImageClassification": {**VISION, "model_type": "vit", "image_size": 64},
    "VideoMAEForVideoClassification": {**VISION, "model_type": "videomae", "image_size": 64},
    "CLIPModel": {
        "model_type": "clip", "text_config": {**SMALL, "max_position_embeddings": 77},
        "vision_config": {**VISION, "image_size": 64},
    },
    "SegformerForSemanticSegmentation": {
        "model_type": "segformer", "depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 64, 128],
        "decoder_hidden_size": 64, "image_size": 64,
    },
    "Wav2Vec2ForCTC": {**SMALL, "model_type": "wav2vec2", "conv_dim": [32] * 7, "vocab_size": 32},
    "Mamba2ForCausalLM": {
        "model_type": "mamba2", "hidden_size": 64, "num_heads": 8, "head_dim": 16, "n_groups": 2,
        "num_hidden_layers": 2, "vocab_size": 500,
    },
}  # fmt: skip


def written(folder: Path, config: dict[str, Any], architecture: str | None = None) -> str:
    table = {**config, "architectures": [architecture]} if architecture else config
    file = folder / "config.json"
    file.write_text(json.dumps(table), encoding="utf-8")
    return str(file)


def traced(place: str, **given: Any) -> TracedModel:
    return trace_question(TraceModuleQuestion(module=place, **given))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_class_that_a_config_names_trains(name: str, tmp_path: Path) -> None:
    import transformers

    found = traced(written(tmp_path, CONFIGS[name], name), batch=2)
    given = CONFIGS[name]
    config = transformers.AutoConfig.for_model(**given)
    with torch.device("meta"):
        module = getattr(transformers, name)(config)
    parameters = {id(one): one.numel() for one in module.parameters()}
    assert found.summary()["parameters"] == sum(parameters.values())
    assert found.batch == 2
    graph = found.graphs["as-is"]
    assert graph.gradient.any()
    assert not any("no loss" in note for note in graph.notes)
    path = found.save(tmp_path / "model.foretell.json")
    assert foretell.estimate(str(path), gpus="1xH200").step_s > 0.0


def test_a_config_without_a_class_is_a_language_model(tmp_path: Path) -> None:
    config = {**SMALL, "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16}
    written(tmp_path, config)
    found = traced(str(tmp_path), seq_len=128)
    assert found.tokens == 128
    head = [op for op in found.graphs["as-is"].ops if (op.sizes or {}).get("n") == 500.0]
    assert head


def test_grouped_products_have_the_work_of_the_rows_that_are_routed(tmp_path: Path) -> None:
    found = traced(written(tmp_path, EXPERTS, "MixtralForCausalLM"), seq_len=128)
    for form in ("as-is", "autocast", "cast"):
        graph = found.graphs[form]
        grouped = [graph.ops[n] for n in graph.op if graph.ops[n].name == "aten._grouped_mm"]
        # Two layers, two products each, thrice; every token to two of four experts.
        assert len(grouped) == 2 * 2 * 3
        assert all(op.sizes is not None and op.sizes["batch"] == 4.0 for op in grouped)
        rows = 2.0 * 128
        forward = 2.0 * rows * (64 * 256 + 128 * 64)
        assert sum(op.flops for op in grouped) == pytest.approx(2 * 3 * forward)
        width = 4.0 if form == "as-is" else None
        sums = graph.storage_bytes[graph.gradient].sum()
        if width:
            assert sums == pytest.approx(width * found.summary()["trained_parameters"], rel=0.05)


def test_what_no_config_is_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="no model_type 'never-heard'"):
        traced(written(tmp_path, {"model_type": "never-heard"}))
    with pytest.raises(BadInput, match="its own code"):
        traced(written(tmp_path, {"model_type": "never-heard", "auto_map": {"AutoModel": "x"}}))
    with pytest.raises(BadInput, match="no config of transformers"):
        traced(written(tmp_path, {"hidden_size": 8}))
    with pytest.raises(BadInput, match="is traced already"):
        traced(written(tmp_path, {"format": "foretell-trace"}))
    with pytest.raises(BadInput, match="--hub"):
        traced("nobody-at-all/nothing-like-it")
    with pytest.raises(BadInput, match="belongs to a config"):
        traced("model.py:build", seq_len=128)
    place = written(tmp_path, EXPERTS)
    with pytest.raises(BadInput, match="no functions"):
        traced(place, loss="mine", inputs="input_ids:int64[1,8]")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(BadInput, match="pip install transformers"):
        traced(place)


def test_a_repository_of_the_local_cache_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    file = written(tmp_path, {**SMALL, "model_type": "gpt_neox"}, "GPTNeoXForCausalLM")
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda repository, name: file)
    found = traced("someone/small", inputs="input_ids:int64[3,64]", loss="sum")
    assert (found.id, found.batch, found.tokens) == ("someone/small", 3, 64)
