"""Formats of checkpoints, and of the kernels that run them."""

import pytest

import foretell
from foretell.catalog import chip, model
from foretell.serving.formats import cache_format, kernel_format, stored_formats


@pytest.mark.parametrize(
    ("name", "precision", "wanted"),
    [
        ("deepseek-v3", "nvfp4", ("bf16", "nvfp4")),
        ("qwen3-235b-a22b", "nvfp4", ("bf16", "nvfp4")),
        ("llama-4-scout", "nvfp4", ("bf16", "nvfp4")),
        ("llama-4-maverick", "fp8", ("bf16", "fp8")),
        ("llama-3.1-70b", "nvfp4", ("nvfp4", "nvfp4")),
        ("llama-3.1-405b", "mxfp4", ("mxfp4", "mxfp4")),
        ("gpt-oss-120b", "", ("bf16", "mxfp4")),
        ("mixtral-8x7b", "fp8", ("fp8", "fp8")),
        # config.json: quant_method fp8, expert_dtype fp4, scale_fmt ue8m0
        ("deepseek-v4-pro", "", ("fp8-block", "mxfp4")),
        ("deepseek-v4-flash", "", ("fp8-block", "mxfp4")),
        ("qwen3-30b-a3b", "fp8", ("fp8-block", "fp8-block")),
        ("MiniMaxAI/MiniMax-M2.7", "fp8", ("fp8-block", "fp8-block")),
        ("llama-3.1-8b", "", ("bf16", "bf16")),
    ],
)
def test_what_a_precision_means_in_a_checkpoint(name, precision, wanted):
    """Mixtures in 4 bits keep in 16 what is not routed experts."""
    assert stored_formats(model(name), precision) == wanted


def test_only_experts_in_mxfp4_meet_wider_activations():
    new, old = chip("b200-sxm"), chip("h100-sxm")
    assert kernel_format("mxfp4", new, experts=True) == "w4a8-mxfp4"
    assert kernel_format("mxfp4", new) == "mxfp4"
    assert kernel_format("mxfp4", old) == "w4a16-mxfp4"


@pytest.mark.parametrize(
    ("weights", "engine", "card", "wanted"),
    [
        ("fp8", "trtllm", "h200-sxm", "fp8"),
        ("fp8", "vllm", "h200-sxm", "bf16"),
        ("nvfp4", "vllm", "b200-sxm", "fp8"),
        ("mxfp4", "trtllm", "b200-sxm", "fp8"),
        ("mxfp4", "trtllm", "h200-sxm", "bf16"),
        ("mxfp4", "vllm", "b200-sxm", "bf16"),
        ("bf16", "trtllm", "b200-sxm", "bf16"),
        ("fp8", "trtllm", "a100-sxm-80gb", "bf16"),
    ],
)
def test_the_cache_is_narrow_beside_narrow_weights(weights, engine, card, wanted):
    """kv_cache_quant_algo of NVIDIA's checkpoints, --kv-cache-dtype of public recipes on Blackwell."""
    assert cache_format(weights, weights, engine, chip(card)) == wanted


def test_a_typed_precision_is_that_of_a_checkpoint():
    place = {"system": "b200-sxm", "gpus": 8}
    found = foretell.serve("deepseek-v3", **place, plan="tp8 weights=nvfp4")
    assert "weights=bf16 experts=nvfp4 kv=fp8" in found.plan
    both = foretell.serve("deepseek-v3", **place, plan="tp8 weights=nvfp4 experts=nvfp4 kv=bf16")
    assert "weights=nvfp4 kv=bf16" in both.plan
    assert any("cache in fp8" in text for text in found.assumptions)
