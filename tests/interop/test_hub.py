"""--hub: a config outside the catalogue is fetched when asked for, kept, and refused where files are."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from foretell.api.launches import read_question
from foretell.errors import BadInput
from foretell.interop.huggingface.hub import fetch_config, is_repository
from foretell.interop.user_files import names_only
from tests.surfaces.command import foretell

CONFIG = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """A hub of one repository; every request to it."""
    asked: list[tuple[str, str, bool]] = []
    folder = tmp_path / "someone--small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))

    def download(repository: str, name: str, local_files_only: bool = False) -> str:
        asked.append((repository, name, local_files_only))
        if repository != "someone/small" or name != "config.json":
            raise OSError("404 Client Error")
        return str(folder / name)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    return asked


def test_a_repository_is_fetched_with_its_config_alone(hub: list[tuple[str, str, bool]]) -> None:
    folder = fetch_config("someone/small")
    assert (folder / "config.json").is_file()
    assert {name for _, name, _ in hub} == {"config.json", "hf_quant_config.json"}


def test_a_launch_names_a_repository_of_the_hub(hub: list[tuple[str, str, bool]]) -> None:
    text = "vllm serve someone/small -tp 2"
    with pytest.raises(BadInput, match="name no model that is known here"):
        read_question(text, {"model": None}, serving=True)
    assert hub == []
    asked = read_question(text, {"model": None}, serving=True, hub=True)
    rows = {row.name: row.value for row in asked.rows}
    assert rows["parameters"].replace(",", "").isdigit()
    done = foretell(
        "estimate", "someone/small", "--gpus", "8xH100", "--plan", "zero1 mbs1", "--hub"
    )
    assert done.code == 0, done.err


def test_what_the_hub_does_not_have_is_bad_input(hub: list[tuple[str, str, bool]]) -> None:
    done = foretell("estimate", "someone/else", "--gpus", "8xH100", "--hub")
    assert (done.code, done.out) == (2, "")
    assert "could not be fetched from the hub: 404" in done.err
    # The cache is looked at first.
    assert [cached for _, name, cached in hub if name == "config.json"] == [True, False]


def test_a_server_fetches_nothing(hub: list[tuple[str, str, bool]]) -> None:
    with names_only(), pytest.raises(BadInput):
        fetch_config("someone/small")
    assert hub == []


@pytest.mark.parametrize(
    ("name", "so"), [("a/b", True), ("a", False), ("a/b/c", False), ("../x", False)]
)
def test_names_of_repositories(name: str, so: bool) -> None:
    assert is_repository(name) is so
