"""Kernels of layers as Hugging Face writes them, and what launching them takes `generate`."""

import pytest

import foretell
from foretell.catalog import model
from foretell.serving.launches import layer_kernels

ALONE = {"system": "h200-sxm", "gpus": 1, "plan": "tp1", "isl": 512, "osl": 100, "concurrency": 1}


@pytest.mark.parametrize(
    ("name", "kernels"),
    [("llama-3.1-8b", 39), ("mistral-7b", 39), ("gpt2-xl", 20), ("qwen3-8b", 53)],
)
def test_kernels_are_those_of_the_modeling_files(name, kernels):
    found = model(name)
    assert layer_kernels(found.stack.layers[0], found) == kernels


@pytest.mark.parametrize(
    ("name", "layer_ms", "within"), [("llama-3.1-8b", 0.64, 0.03), ("gpt2-xl", 0.38, 0.2)]
)
def test_a_step_takes_as_long_as_its_launches(name, layer_ms, within):
    """Measured on one H200 with its host on one core (tests/bench/measure_generate.py)."""
    found = foretell.serve(name, **ALONE, engine="transformers")
    each = found.tpot_ms.mean / len(model(name).stack.layers)
    assert each == pytest.approx(layer_ms, rel=within)
