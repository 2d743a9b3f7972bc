"""The catalogue of models: counts as published, and every spelling of the data."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog import model_names, models
from foretell.catalog.model_names import FOLDER, find_model, model_entries
from foretell.catalog.models import model, show_model
from foretell.errors import BadInput
from foretell.workload.parameters import count
from tests.catalog.tables import rows

ENTRIES = model_entries()
PUBLISHED = [entry for entry in ENTRIES if entry.published is not None]

CUT = "a model cut to fewer layers for the measurement"
SCALE = "a size without a printed shape"
PROXY = "a shape of one study's own"
NOT_PUBLIC = {
    "DeepSeek-V2 236b (cut)": CUT,
    "Llama3 70b (cut)": CUT,
    "deepseekv2 cut to 4 layers": CUT,
    "llama3_405b cut to 4 layers": CUT,
    "llama3_70b cut to 12 layers": CUT,
    **{f"GPT L{depth} h{width}": PROXY for depth in (12, 16, 20, 24) for width in (1024, 2048)},
    **{
        f"MaxText {size}B": SCALE
        for size in (16, 22, 32, 52, 64, 128, 256, 512, 1024, 1160)
    },
    "Mixtral-8x22B-G8T8": "experts of Mixtral split by a study; no weights exist",
    "NeMo Megatron BF16": "a framework's name, not a model's",
    "NeMo Megatron FP8": "a framework's name, not a model's",
    "NeMo Megatron 24.11 BF16": "a framework's name, not a model's",
    "NeMo Megatron 24.11 FP8": "a framework's name, not a model's",
}  # fmt: skip
"""Names in the data that stand for no public model, and why."""


# ---- counts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.id)
def test_published_counts(entry: model_names.ModelEntry) -> None:
    assert entry.published_source
    found = count(model(entry.id)).total
    if entry.check == "match":
        assert found == entry.published
    else:
        assert entry.check == "differs"
        assert found != entry.published
        assert entry.note


@pytest.fixture(scope="module")
def facts(data_dir: Path) -> dict[str, dict[str, str]]:
    return {row["hf_id"]: row for row in rows(data_dir / "hardware" / "models.csv")}


CSV_NAMES = [
    "openai-community/gpt2", "openai-community/gpt2-large", "openai-community/gpt2-xl",
    "GPT-3 Small", "GPT-3 Medium", "GPT-3 Large", "GPT-3 XL", "GPT-3 2.7B", "GPT-3 6.7B",
    "GPT-3 13B", "GPT-3 175B", "facebook/opt-125m", "facebook/opt-1.3b", "facebook/opt-6.7b",
    "facebook/opt-13b", "facebook/opt-66b", "OPT-175B", "facebook/opt-350m",
    "bigscience/bloom-560m", "bigscience/bloom-3b", "bigscience/bloom-7b1", "bigscience/bloom",
    "huggyllama/llama-7b", "huggyllama/llama-13b", "huggyllama/llama-65b",
    "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-13b-hf", "meta-llama/Llama-2-70b-hf",
    "meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-4-Scout-17B-16E",
    "meta-llama/Llama-4-Maverick-17B-128E", "mistralai/Mistral-Nemo-Base-2407",
    "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-3B",
    "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-32B", "Qwen/Qwen2.5-72B",
    "Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B",
    "Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    "google/gemma-2-9b", "google/gemma-2-27b", "google/gemma-3-1b-pt",
    "google/gemma-3-4b-pt (text)", "google/gemma-3-12b-pt (text)", "google/gemma-3-27b-pt (text)",
    "microsoft/phi-2", "microsoft/Phi-3-mini-4k-instruct", "microsoft/phi-4",
    "deepseek-ai/DeepSeek-V2", "deepseek-ai/DeepSeek-V3 (main model)",
    "deepseek-ai/DeepSeek-V3 (main + stored MTP)", "moonshotai/Kimi-K2-Instruct", "zai-org/GLM-5",
    "THUDM/glm-4-9b", "zai-org/GLM-4.5", "zai-org/GLM-4.5-Air", "openai/gpt-oss-20b",
    "nvidia/Nemotron-4-340B-Base", "tiiuae/falcon-40b", "tiiuae/falcon-180B", "PaLM-540B",
    "MT-NLG-530B", "google-t5/t5-11b", "google/vit-large-patch16-224",
    "ViT-H/14 (224, 1000 classes)", "ViT-22B", "openai/whisper-large-v2",
    "facebook/esm2_t33_650M_UR50D", "facebook/esm2_t36_3B_UR50D", "facebook/esm2_t48_15B_UR50D",
    "state-spaces/mamba2-2.7b", "nvidia/Nemotron-H-56B-Base-8K",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "Qwen/Qwen3-Coder-Next (=Qwen3-Next-80B-A3B main)", "GPT3-1T (study)", "ViT-ERA5 (study)",
]  # fmt: skip
"""Every row of the published table of models."""


def test_the_list_of_rows_is_complete(facts: dict[str, dict[str, str]]) -> None:
    assert list(facts) == CSV_NAMES


@pytest.mark.parametrize("name", CSV_NAMES)
def test_counts_of_the_published_table(name: str, facts: dict[str, dict[str, str]]) -> None:
    row, found = facts[name], count(model(name))
    assert found.total == int(row["params_arithmetic"])
    if row["check"] == "match":
        assert found.total == int(row["params_reference"])
    if row["active_params_arithmetic"]:
        assert found.active == int(row["active_params_arithmetic"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deepseek-v3", 671_026_419_200),  # without the prediction block
        ("glm-5", 743_911_218_432),
        ("glm-4.5", 352_797_829_024),
        ("glm-4.5-air", 106_852_251_264),
        ("llama-4-scout", 107_769_861_120),  # without the tower
        ("llama-4-maverick", 400_711_848_960),
        ("qwen3-next-80b-a3b", 79_674_391_296),
    ],
)
def test_counts_of_the_main_text_model(name: str, text: int) -> None:
    found = count(model(name))
    assert found.text == text < found.total


@pytest.mark.parametrize(
    ("name", "text", "active"),
    [("gemma-4-31b", 30.7e9, 30.7e9), ("deepseek-v4-pro", 1.6e12, 49e9)],
)
def test_counts_of_models_from_public_descriptions(name: str, text: float, active: float) -> None:
    """Their cards print rounded numbers; sizes that gave others would be wrong."""
    found = count(model(name))
    assert found.text == pytest.approx(text, rel=0.02)
    assert found.active == pytest.approx(active, rel=0.03)


@pytest.mark.parametrize("name", CSV_NAMES)
def test_shapes_of_the_published_table(name: str, facts: dict[str, dict[str, str]]) -> None:
    row, made = facts[name], model(name)
    depth = row["layers"].partition("+")[0]
    assert len(made.stack.layers) == int(depth)
    assert made.stack.hidden == int(row["hidden"])
    if row["vocab"]:
        assert made.embedding.vocab == int(row["vocab"])
    if row["tied_embeddings"]:
        assert made.head.tied == (row["tied_embeddings"] == "True")
    if row["max_positions"].isdigit():
        assert made.max_positions == int(row["max_positions"])


# ---- names --------------------------------------------------------------------------------------


def _spellings(data_dir: Path) -> Iterator[str]:
    yield from (row["hf_id"] for row in rows(data_dir / "hardware" / "models.csv"))
    for file in ("training/measured_runs.csv.gz", "inference/measured_serving.csv.gz"):
        yield from (row["model"] for row in rows(data_dir / file))
    with (data_dir / "inference" / "llama2_latency_a100.csv").open() as file:
        yield from (row["model"] for row in csv.DictReader(file))
    for path in (data_dir / "hf_configs").glob("*_config.json"):
        if not path.name.endswith("hf_quant_config.json"):
            yield path.name.removesuffix("_config.json").replace("--", "/")


def test_every_spelling_of_the_data_resolves_or_is_known_not_to(data_dir: Path) -> None:
    spellings = set(_spellings(data_dir))
    assert len(spellings) > 200
    lost = {name for name in spellings if find_model(name) is None}
    assert lost == set(NOT_PUBLIC) & spellings
    assert set(NOT_PUBLIC) <= spellings


def test_a_resolved_name_has_the_shape_of_its_rows(data_dir: Path) -> None:
    """Layers and width of the named model are those that the row prints."""
    other = {"GPT 1.7B"}  # three shapes go by this name; the catalogue has Narayanan's
    for row in rows(data_dir / "training" / "measured_runs.csv.gz"):
        if row["model"] in other or not row["layers"] or find_model(row["model"]) is None:
            continue
        made = model(row["model"])
        assert len(made.stack.layers) == int(row["layers"]), row["model"]
        assert made.stack.hidden == int(row["hidden"]), row["model"]


def test_no_name_means_two_models() -> None:
    owner: dict[str, str] = {}
    for entry in ENTRIES:
        for name in (entry.id, *entry.aliases):
            assert owner.setdefault(model_names.name_key(name), entry.id) == entry.id, name


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_every_entry(entry: model_names.ModelEntry) -> None:
    made = model(entry.id)
    assert made.id == entry.id
    assert (FOLDER / entry.file).is_file()
    assert entry.source
    assert entry.status in ("published", "inferred", "recalled")
    for name in entry.aliases:
        assert find_model(name) == entry
    found = count(made)
    assert 0 < found.active <= found.text <= found.total
    assert not any(said.startswith("absent keys") for said in made.assumptions)
    assert not any("is not known here" in said for said in made.assumptions)


def test_files_and_index_agree() -> None:
    stored = {path.name for path in FOLDER.iterdir()} - {"index.toml"}
    assert stored == {entry.file for entry in ENTRIES}
    assert [entry.id for entry in ENTRIES] == sorted(entry.id for entry in ENTRIES)


@given(entry=st.sampled_from(ENTRIES), data=st.data())
def test_case_and_punctuation_are_forgiven(
    entry: model_names.ModelEntry, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from((entry.id, *entry.aliases)))
    mark = data.draw(st.sampled_from("-_ /"))
    spelled = "".join(mark if ch in "-_ /" else ch for ch in name)
    assert find_model(spelled.upper()) == entry


def test_a_point_between_digits_counts() -> None:
    assert [find_model(name).id for name in ("OPT 13B", "opt_1.3b", "opt1.3b")] == [  # type: ignore[union-attr]
        "opt-13b",
        "opt-1.3b",
        "opt-1.3b",
    ]
    assert find_model("llama31 70b").id == "llama-3.1-70b"  # type: ignore[union-attr]


def test_an_unknown_name_is_helped() -> None:
    with pytest.raises(BadInput) as caught:
        model("lama-3.1-70")
    (problem,) = caught.value.problems
    assert problem.path == "model"
    assert "llama-3.1-70b" in (problem.nearest or "")


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("qwen3-coder-480b", "qwen3-coder-480b-a35b"),
        ("Qwen3 235B", "qwen3-235b-a22b"),
        ("qwen3-next", "qwen3-next-80b-a3b"),
        ("mistral-small", "mistral-small-24b"),
        ("nemotron-super", "nemotron-super-49b"),
        ("devstral-small", "mistral-small-24b"),
        ("moonlight", "moonlight-16b-a3b"),
    ],
)
def test_a_size_may_be_left_out_where_one_model_has_the_name(name: str, id: str) -> None:
    found = find_model(name)
    assert found is not None
    assert found.id == id


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gpt-oss", "gpt-oss-120b"),
        ("maverick", "llama-4-maverick"),
        ("llama-405b", "llama-3.1-405b"),
        ("seed-oss-36b", "qwen2.5-32b"),
        ("nemotron-nano", "nemotron-3-nano-30b-a3b"),
    ],
)
def test_a_name_of_several_or_of_none_gives_the_nearest(name: str, near: str) -> None:
    with pytest.raises(BadInput) as caught:
        model(name)
    (problem,) = caught.value.problems
    assert near in (problem.nearest or "").split(" or ")
    assert "catalog models" in (problem.allowed or "")


@pytest.mark.parametrize(
    "name", ["", " ", "-", "\x00", "a" * 300, "🦙" * 90, "~nobody/x", "\ud800.json", "x\x00.toml", ".",
             "no/such", "./none.toml", "none.json"],
)  # fmt: skip
def test_names_that_mean_nothing(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        model(name)
    assert str(caught.value).encode()


def test_stored_precision_by_name() -> None:
    assert model("meta-llama/Llama-3.1-70B").dtype == "bf16"
    eight = model("nvidia/Llama-3.1-70B-Instruct-FP8")
    assert (eight.id, eight.dtype) == ("llama-3.1-70b", "fp8")
    assert any("stored in fp8" in said for said in eight.assumptions)
    assert model("Llama 3.1 70b FP8").dtype == "bf16"  # a run's precision, not the weights'


# ---- files and tables ---------------------------------------------------------------------------


def test_paths_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, Any] = json.loads((FOLDER / "openai-community--gpt2.json").read_text())
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    expected = count(model("gpt2"))
    assert count(model(folder)) == count(model(str(folder / "config.json"))) == expected
    assert count(model(config)) == expected
    monkeypatch.chdir(tmp_path)
    assert model("mine").id == "mine"
    with pytest.raises(BadInput, match="files are not read here"):
        model("mine", files=False)
    table = tmp_path / "own.toml"
    table.write_text((FOLDER / "study--gpt3-1t.toml").read_text())
    assert model(table) == model("gpt3-1t")


def test_show_model_gives_each_value_with_its_source() -> None:
    counts = {"parameters": 1, "parameters_text": 2, "parameters_active": 3}
    shown = show_model("meta-llama/Llama-3.1-70B", counts)
    assert (shown["kind"], shown["id"]) == ("model", "llama-3.1-70b")
    assert "meta-llama/Llama-3.1-70B" in shown["aliases"]
    assert (shown["parameters"], shown["parameters_text"], shown["parameters_active"]) == (1, 2, 3)
    assert shown["values"]["hidden_size"]["value"] == 8192
    for held in shown["values"].values():
        assert set(held) == {"value", "source", "status"}
        assert held["source"]
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


def test_show_model_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text((FOLDER / "openai-community--gpt2.json").read_text())
    shown = show_model(str(path))
    assert shown["values"]["n_embd"] == {
        "value": 768,
        "source": str(path),
        "status": "published",
    }
    assert show_model("gpt3-1t")["values"]["stack.hidden"]["value"] == 25600


def test_show_model_has_no_number_that_json_lacks() -> None:
    config = json.loads((FOLDER / "openai-community--gpt2.json").read_text())
    shown = show_model(config | {"limit": [0.0, float("inf")], "odd": {"x": float("nan")}})
    assert shown["values"]["limit"]["value"] == [0.0, None]
    assert shown["values"]["odd.x"]["value"] is None
    json.dumps(shown, allow_nan=False)


def test_a_question_reads_the_index_and_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    model_names.entries_by_id.cache_clear()
    models.catalogue_model.cache_clear()
    opened: list[str] = []
    real = Path.open

    def spy(self: Path, *args: Any, **kwargs: Any) -> Any:
        opened.append(self.name)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", spy)
    model("mixtral-8x7b")
    assert sorted(set(opened)) == ["index.toml", "mistralai--Mixtral-8x7B-v0.1.json"]


@pytest.mark.parametrize(
    ("name", "wanted", "dtype"),
    [
        ("amd/Llama-3.3-70B-Instruct-FP8-KV", "llama-3.1-70b", "fp8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8"),
        ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-v3", "nvfp4"),
        ("TheBloke/Llama-2-70B-AWQ", "llama-2-70b", "int4"),
        ("mlx-community/Llama-3.1-8B-Instruct-4bit", "llama-3.1-8b", "int4"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b", "int8"),
        ("Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "bf16"),
    ],
)
def test_repacked_models_are_those_that_they_were(name: str, wanted: str, dtype: str) -> None:
    """Who packed the weights, and how, leaves the shape as it is."""
    entry = model_names.find_model(name)
    assert entry is not None
    assert entry.id == wanted
    assert models.model(name).dtype in (dtype, models.catalogue_model(wanted).dtype)
    if dtype != "bf16":
        assert models.model(name).dtype == dtype


@pytest.mark.parametrize("name", ["someone/Llama-9-70B-AWQ", "fp8", "x/instruct", "chat-hf"])
def test_endings_alone_mean_nothing(name: str) -> None:
    assert model_names.find_model(name) is None
