"""Every published config at hand, and one of each family, all the way to an answer."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import foretell as package
from foretell.catalog.model_names import FOLDER
from foretell.errors import BadInput
from foretell.interop.huggingface import read_model
from foretell.interop.huggingface.registry import FAMILIES
from tests.surfaces.command import TOY, foretell

HERE = Path(__file__).parent
STORED = {"NVFP4": "nvfp4", "FP8": "fp8"}
"""What a file's name says of the weights."""


def held(model: Any) -> package.Model:
    """The model, once it has been laid over chips and asked for its memory."""
    record = read_model(model) if isinstance(model, (Path, dict)) else model
    length = min(128, record.max_positions)
    target = {"target_len": length} if record.kind == "encoder-decoder" else {}
    found = package.memory(
        record,
        system="b200-sxm",
        gpus=8,
        seq_len=length,
        global_batch=8,
        plan="dp8 zero3",
        **target,
    )
    assert found.estimate.peak_memory_bytes > 0
    assert found.estimate.step_s > 0
    return record


def test_every_published_config_is_estimated(data_dir: Path) -> None:
    files = [
        path
        for path in sorted((data_dir / "hf_configs").glob("*_config.json"))
        if "hf_quant" not in path.name
    ]
    assert len(files) >= 40
    for path in files:
        held(path)


def test_every_quantisation_file_says_the_stored_format(data_dir: Path, tmp_path: Path) -> None:
    files = sorted((data_dir / "hf_configs").glob("*_hf_quant_config.json"))
    assert len(files) >= 10
    for path in files:
        name = path.name.removesuffix("_hf_quant_config.json")
        (tmp_path / f"{name}_config.json").write_text(json.dumps(TOY))
        (tmp_path / path.name).write_text(path.read_text())
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(TOY))
        (tmp_path / name / "hf_quant_config.json").write_text(path.read_text())
        wanted = next(dtype for word, dtype in STORED.items() if name.upper().endswith(word))
        assert read_model(tmp_path / f"{name}_config.json").dtype == wanted, name
        assert read_model(tmp_path / name).dtype == wanted, name


def configs() -> dict[str, dict[str, Any]]:
    """A config for each model_type: of the tables of counts, and of the catalogue."""
    tables = (
        tomllib.loads((HERE / f"{name}_counts.toml").read_text("utf-8"))
        for name in ("oracle", "modern")
    )
    rows = [row for table in tables for row in (*table.get("case", ()), *table.get("model", ()))]
    texts = [row["config"] for row in rows if "config" in row]
    texts += [path.read_text() for path in sorted(FOLDER.glob("*.json"))]
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        config = json.loads(text)
        found.setdefault(str(config.get("model_type", "")), config)
    return found


def test_every_family_has_a_config_that_is_estimated() -> None:
    known = configs()
    tried = [kind for kind in FAMILIES if kind in known]
    assert set(FAMILIES.values()) == {FAMILIES[kind] for kind in tried}, "a reader without a config"
    for kind in tried:
        held(known[kind])


def test_an_unknown_family_is_estimated_and_says_what_it_took(tmp_path: Path) -> None:
    config = {**TOY, "model_type": "zorblax", "architectures": ["ZorblaxForCausalLM"]}
    for key in ("head_dim", "tie_word_embeddings", "attention_bias"):
        del config[key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    outcome = foretell("estimate", str(tmp_path), "--gpus", "8xH100")
    assert outcome.code == 0
    printed = " ".join(outcome.out.split())
    assert "model_type zorblax is not known here: read as a Llama-like decoder" in printed
    assert "absent keys taken at values assumed for an unknown family" in printed
    known = package.estimate(read_model(TOY), system="h100-sxm", gpus=8)
    told = package.estimate(tmp_path, system="h100-sxm", gpus=8)
    assert told.step_s == pytest.approx(known.step_s)


def test_an_unknown_family_without_the_generic_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "zorblax", "widgets": 3}')
    with pytest.raises(BadInput, match="model_type"):
        package.estimate(tmp_path, system="h100-sxm", gpus=8)
