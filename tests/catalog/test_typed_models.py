"""Models typed as a text."""

import pytest

from foretell.catalog import model, model_table
from foretell.catalog.typed_models import typed_words
from foretell.errors import BadInput
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.workload.parameters import count
from tests.surfaces.command import foretell

EIGHT = "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256"


def test_a_llama_is_the_catalogues() -> None:
    typed, known = model(EIGHT), model("llama-3.1-8b")
    assert typed.id == EIGHT
    assert typed.stack.layers[0].mixers == known.stack.layers[0].mixers
    assert typed.stack.layers[0].ffn == known.stack.layers[0].ffn
    assert count(typed).total == count(known).total


def test_a_gpt_has_positions_and_biases() -> None:
    typed = model("gpt:layers=12,hidden=768,heads=12,vocab=50257,name=small")
    ffn = typed.stack.layers[0].ffn
    assert isinstance(ffn, Dense)
    assert (typed.id, typed.embedding.positions, ffn.gated, ffn.width) == (
        "small",
        1024,
        False,
        3072,
    )
    assert typed.head.tied
    assert count(typed).total == pytest.approx(124e6, rel=0.01)
    assert any("four times" in text for text in typed.assumptions)


def test_the_weights_in_print_tell_and_words_overrule_them() -> None:
    assert not model(f"{EIGHT},params=8.03").head.tied
    assert model(f"{EIGHT},params=7.5").head.tied
    assert model(f"{EIGHT},params=8.03,tied=yes").head.tied
    ffn = model(f"{EIGHT},params=8.03,gated=no").stack.layers[0].ffn
    assert isinstance(ffn, Dense)
    assert not ffn.gated


def test_experts_and_latent_attention() -> None:
    text = "llama:layers=4,hidden=1024,heads=8,ffn=512,experts=8,top_k=2,shared=1,latent=yes,dense_layers=1"
    layers = model(text).stack.layers
    assert [isinstance(layer.ffn, Experts) for layer in layers] == [False, True, True, True]
    assert isinstance(layers[1].ffn, Experts)
    assert (layers[1].ffn.experts, layers[1].ffn.top_k, layers[1].ffn.shared_width) == (8, 2, 512)
    assert isinstance(layers[0].mixers[0], LatentAttention)
    wide = model("llama:layers=4,hidden=1024,heads=8,head_dim=64").stack.layers[0].mixers[0]
    assert isinstance(wide, Attention)
    assert wide.head_dim == 64


def test_a_model_of_the_catalogue_is_cut() -> None:
    cut = model("deepseek-v3:layers=12")
    assert (cut.id, len(cut.stack.layers), cut.prediction) == ("deepseek-v3-l12", 12, None)
    assert model("deepseek-v3").prediction is not None
    assert model("deepseek-v3:prediction=no").prediction is None
    assert len(model("deepseek-v3:prediction=no").stack.layers) == 61
    four = model("deepseek-v3:layers=4,dense_layers=1").stack.layers
    assert [isinstance(layer.ffn, Experts) for layer in four] == [False, True, True, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llama:layrs=4", ["did you mean layers", "layers is missing", "hidden is missing"]),
        ("llama:layers=0,hidden=8,heads=1", ["no number in range"]),
        ("llama:layers=99999999,hidden=8,heads=1", ["no number in range"]),
        ("llama:layers=4,layers=5,hidden=8,heads=1", ["given twice"]),
        ("gpt:layers=4,hidden=8,heads=3,kv_heads=2", ["evenly"]),
        ("gpt:layers=4,hidden=8,heads=2,experts=2,top_k=4", ["top_k 4 of 2"]),
        ("gpt:layers=4,hidden=8,heads=2,tied=maybe", ["not a switch"]),
        ("deepseek-v3:layers=200", ["has 61"]),
        ("deepseek-v3:dense_layers=9", ["has 3", "0 to 3"]),
        ("llama-3.1-8b:dense_layers=1", ["dense_layers"]),
        ("llama-3.1-8b:towers=yes", ["has none"]),
        ("nothing-like-it:layers=2", ["neither a model"]),
    ],
)
def test_every_problem_is_said(text: str, words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        model(text)
    for word in words:
        assert word in str(caught.value)


def test_a_typed_model_has_no_keys_of_a_file() -> None:
    assert model_table(EIGHT) == {}
    assert typed_words("meta-llama/Llama-3.1-8B") is None
    assert foretell("estimate", EIGHT, "--gpus", "8xH100", "--set", "model.num_layers=4").code == 2
