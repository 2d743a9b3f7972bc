"""Readers of the classic families: counts against the library's own modules."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from foretell.catalog.model_names import model_entries
from foretell.catalog.models import model
from foretell.interop.huggingface import read_model
from foretell.interop.huggingface.registry import FAMILIES, load
from foretell.interop.huggingface.rows import rules_of
from foretell.workload.parameters import count

TABLE = tomllib.loads(Path(__file__).with_name("oracle_counts.toml").read_text("utf-8"))
CASES = [(json.loads(row["config"]), row["count"]) for row in TABLE["case"]]
OWN_CODE = {
    "Yi", "exaone", "internlm", "internlm2", "internlm3", "baichuan", "xverse", "orion", "qwen",
    "chatglm", "RefinedWeb", "RefinedWebModel", "grok-1", "mamba_ssm",
}  # fmt: skip
"""Families that the library has no module for: their code came with their weights."""
CLASSIC = frozenset(
    """
    llama Yi mistral ministral ministral3 granite smollm3 olmo olmo2 olmo3 exaone exaone4 starcoder2
    seed_oss hunyuan_v1_dense arcee ernie4_5 helium apertus nemotron internlm internlm2 internlm3
    baichuan xverse orion cohere cohere2 gemma gemma2 gemma3_text stablelm qwen qwen2 qwen3 mixtral
    phimoe olmoe phi phi3 grok-1 hunyuan_v1_moe hunyuan qwen2_moe qwen3_moe glm glm4 chatglm
    glm4_moe deepseek_v2 deepseek_v3 gpt2 gpt_bigcode opt bloom falcon RefinedWeb RefinedWebModel
    gpt_neox gpt_neo gptj codegen mpt dbrx bert roberta xlm-roberta distilbert electra esm vit deit
    dinov2 t5 mt5 umt5 bart mbart marian pegasus whisper mamba2 mamba_ssm bamba falcon_h1
    """.split()
)
"""Families that this table covers."""


def _name(value: Any) -> str | None:
    return value["model_type"] if isinstance(value, dict) else None


@pytest.mark.parametrize(("config", "expected"), CASES, ids=_name)
def test_counts_equal_the_library_s(config: dict[str, Any], expected: int) -> None:
    found = count(read_model(config))
    assert found.total == expected
    assert found.active <= found.text == found.total


@pytest.mark.parametrize("row", TABLE["catalogue"], ids=lambda row: row["id"])
def test_counts_at_full_size_equal_the_library_s(row: dict[str, Any]) -> None:
    made = model(row["id"])
    towers = sum(tower.parameters for tower in made.towers)
    assert count(made).text + towers == row["count"]


def test_the_table_says_where_its_counts_come_from() -> None:
    assert TABLE["source"].startswith("transformers ")


def test_every_classic_family_of_the_library_has_a_case() -> None:
    seen = {config["model_type"] for config, _ in CASES}
    later = {"hunyuan", "hunyuan_v1_moe"}  # read by the same table, and held to counts of 2025
    assert set(FAMILIES) >= CLASSIC
    classic = CLASSIC - later
    assert classic - OWN_CODE - seen == set()


@pytest.mark.parametrize("module", sorted(set(FAMILIES.values())))
def test_every_module_of_the_registry_reads(module: str) -> None:
    assert callable(load(module).read)


def test_rows_are_complete() -> None:
    for name in FAMILIES:
        row = rules_of(name)
        assert "class" in row or "why" in row, name
        assert "text" not in row or row["text"]["default"] in FAMILIES, name


def test_a_reading_imports_one_family_only(root: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys; from foretell.interop.huggingface import read_model; "
        f"read_model({CASES[0][0]!r}); "
        "print([m for m in sys.modules if m.endswith(('.bert', '.whisper', '.deepseek', '.gpt2'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        cwd=root / "src",
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_published_counts_of_recalled_families() -> None:
    qwen = {
        "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 151936,
    }  # fmt: skip
    assert count(read_model(qwen)).total == 7_721_324_544  # Qwen-7B, as its safetensors say
    assert len(model_entries()) > 150


def test_a_language_model_of_bert_has_the_head_of_masked_tokens() -> None:
    config = next(config for config, _ in CASES if config["model_type"] == "bert")
    masked = count(read_model({**config, "architectures": ["BertForMaskedLM"]}))
    assert count(read_model({**config, "architectures": ["BertLMHeadModel"]})) == masked


def test_a_reranker_scores_a_text_and_not_its_tokens() -> None:
    config = {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"],
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 250002, "max_position_embeddings": 8194,
        "type_vocab_size": 1, "id2label": {"0": "LABEL_0"},
    }  # fmt: skip
    made = read_model(config)
    assert count(made).total == 567_755_777  # module of transformers 5.22.2
    assert made.head.outputs == 0
    assert not made.head.every_position
    assert made.max_positions == 8192  # two rows are the padding's and the one before
    two = {**config, "id2label": {"0": "no", "1": "yes"}}
    assert count(read_model(two)).total == 567_755_777 + 1025
