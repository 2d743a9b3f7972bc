"""From what is typed to a scenario: lengths that a model has by itself, and numbers as people write them."""

import json
from pathlib import Path
from typing import Any

import pytest

from foretell import units
from foretell.errors import BadInput
from foretell.inputs.question import ask
from tests.surfaces.command import foretell


def test_an_encoder_of_frames_has_the_frames_that_it_was_made_for() -> None:
    job = ask(model="whisper-large-v3", gpus="8xH100").job
    assert (job.seq_len, job.target_len) == (1500, 448)
    job = ask(model="whisper-large-v3", gpus="8xH100", seq_len=300).job
    assert (job.seq_len, job.target_len) == (300, 300)
    job = ask(model="t5-11b", gpus="8xH100").job
    assert (job.seq_len, job.target_len) == (512, 512)


def test_frames_and_tokens_beyond_a_stored_table_are_errors() -> None:
    with pytest.raises(BadInput) as error:
        ask(model="whisper-large-v3", gpus="8xH100", seq_len=1501, target_len=449)
    told = [(p.path, p.allowed) for p in error.value.problems]
    assert told == [("seq_len", "at most 1500"), ("target_len", "at most 448")]


@pytest.mark.parametrize(("text", "meant"), [
    ("4k", "4096 or 4000"), ("128K", "131072 or 128000"), ("1M", "1000000"), ("100,000", "100000"),
    ("1_024", "1024"), ("2B", "2000000000"), ("4.5", None), ("1,0000", None), ("k", None),
    ("many", None), (None, None), (4096, None),
])  # fmt: skip
def test_a_number_as_people_write_it_is_told_in_digits(text: object, meant: str | None) -> None:
    assert units.plain_number(text) == meant


@pytest.mark.parametrize(("flags", "meant"), [
    (("--gpus", "8xH100", "--global-batch", "4k"), "did you mean 4096 or 4000?"),
    (("--gpus", "100,000", "--system", "h100-sxm"), "did you mean 100000?"),
    (("--gpus", "H100:8"), "did you mean 8xH100?"),
    (("--gpus", "h100-sxm x 8"), "did you mean 8xh100-sxm?"),
])  # fmt: skip
def test_the_command_line_tells_it_too(flags: tuple[str, ...], meant: str) -> None:
    found = foretell("estimate", "llama-3.1-8b", *flags)
    assert (found.code, found.out) == (2, "")
    assert meant in found.err


def test_a_path_with_a_config_is_its_folder_though_the_catalogue_knows_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "llama-3.1-8b"
    folder.mkdir(parents=True)
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
             "num_attention_heads": 4, "vocab_size": 1000, "model_type": "llama"}  # fmt: skip
    asked = ("catalog", "show", "models/llama-3.1-8b", "--json")
    known = foretell(*asked).json["parameters"]
    (folder / "config.json").write_text(json.dumps(shape))
    own = foretell(*asked).json["parameters"]
    assert own < 2e6 < known
    plan = ("--plan", "zero1", "--gpus", "8xH100", "--json")
    small = foretell("estimate", "models/llama-3.1-8b", *plan).json
    assert small["peak_memory_bytes"] < 8e9


@pytest.mark.parametrize(("words", "meant"), [
    ("tp8_pp1_dp1_mbs1", "tp8 pp1 dp1 mbs1"), ("tp8,zero1", "tp8 zero1"), ("tp=8", "tp8"),
])  # fmt: skip
def test_words_as_other_tools_join_them_are_told_apart(words: str, meant: str) -> None:
    with pytest.raises(BadInput) as error:
        ask(model="llama-3.1-8b", gpus="8xH100", plan=words)
    assert error.value.problems[0].nearest == meant


def test_the_beginning_of_a_name_says_which_models_are_meant() -> None:
    with pytest.raises(BadInput, match="did you mean llama-4-maverick or llama-4-scout"):
        ask(model="llama-4", gpus="8xH100")


@pytest.mark.parametrize(("text", "tokens"), [("8k", 8192), ("128K", 131_072), ("32 k", 32_768)])
def test_a_length_in_thousands_is_read_as_names_of_models_count(text: str, tokens: int) -> None:
    asked: Any = {"seq_len": text}
    scenario = ask(model="llama-3.1-8b", gpus="8xH100", **asked)
    assert scenario.job.seq_len == tokens
    assert any(f"x 1024 = {tokens} tokens" in said for said in scenario.assumptions)


@pytest.mark.parametrize(
    ("flags", "word"),
    [(("--tensor-parallel-size=2",), "--tp 2"), (("--zero-stage", "3"), "--zero 3"),
     (("--sp",), "--plan sp"), (("--recompute-granularity", "full"), "--recompute full")],
)  # fmt: skip
def test_flags_of_other_tools_are_answered_with_ours(flags: tuple[str, ...], word: str) -> None:
    done = foretell("estimate", "llama-3.1-8b", "--gpus", "8xH100", *flags)
    assert (done.code, done.out) == (2, "")
    assert f"did you mean {word}?" in done.err


@pytest.mark.parametrize("price", ["1e-308", "1e300"])
def test_numbers_of_nothing_in_this_world_are_refused(price: str) -> None:
    asked = ("run", "gpt2", "--system", "h100-sxm", "--gpus", "8", "--tokens", "1B")
    told = foretell("cost", *asked, "--price", price)
    assert told.code == 2
    assert "price: not a usable number" in told.err
