"""Models that answer with a vector or a score: requests end with their prompt."""

import pytest

import foretell
from foretell.errors import BadInput
from foretell.report.presentation.verbs import presentation


def test_an_encoder_answers_with_its_prompt_whatever_length_is_usual():
    plain = foretell.serve("bert-large-uncased", gpus="1xl4", isl=512, rate=20)
    asked = foretell.serve("bert-large-uncased", gpus="1xl4", isl=512, osl=1, rate=20)
    assert plain.osl == 1.0
    assert plain.ttft_ms.mean == asked.ttft_ms.mean
    assert any("writes no answers" in line for line in plain.assumptions)


def test_a_sized_encoder_has_the_rate_of_its_prompts():
    found = foretell.size(
        "bert-large-uncased", system="l4", isl=512, rate=500, ttft=100, tpot=50, simulate=False
    )
    assert found.wanted.osl == 1.0
    assert found.choices[0].option.requests_per_s >= 500.0


def test_a_repository_that_states_its_size_has_the_model_of_its_shape():
    given = foretell.serve("Qwen/Qwen3-Embedding-8B", gpus="1xh100-sxm", isl=512, osl=1, rate=20)
    base = foretell.serve("qwen3-8b", gpus="1xh100-sxm", isl=512, osl=1, rate=20)
    assert given.ttft_ms.mean == base.ttft_ms.mean
    assert any("Qwen3-Embedding-8B is not in the catalogue" in line for line in given.assumptions)


@pytest.mark.parametrize("name", ["qwen3-embedding-8b", "microsoft/Phi-4-mini-instruct"])
def test_a_name_that_may_be_a_typing_error_or_states_no_size_is_refused(name):
    with pytest.raises(BadInput, match="neither a model"):
        foretell.serve(name, gpus="1xh100-sxm", isl=512)


def test_prompts_beyond_an_encoder_s_positions_are_named():
    place = {"system": "h100-sxm", "gpus": 1, "concurrency": 4}
    fits = foretell.serve("bge-m3", **place, isl=8192)
    beyond = foretell.serve("bge-m3", **place, isl=8193)
    assert not any("are beyond" in said for said in fits.assumptions)
    assert any("8193 tokens are beyond" in said for said in beyond.assumptions)


@pytest.mark.parametrize(("chip", "many"), [("mi355x", 1), ("b200-sxm", 0)])
def test_an_engine_of_another_vendor_s_chips_is_named(chip, many):
    place = {"system": chip, "gpus": 1, "concurrency": 4, "engine": "trtllm"}
    assert len(foretell.serve("llama-3.1-8b", **place).warnings) == many


def test_a_request_that_ends_with_its_prompt_has_no_numbers_of_answers() -> None:
    found = foretell.serve("bge-m3", gpus="1xL4", rate=50, isl=256)
    card = presentation("serve", found.to_dict())
    assert "TPOT" not in card.title
    assert "a request, 50 requests/s" in card.title
    assert "tpot_ms" not in {fact.name for fact in card.facts}
