"""Formats of checkpoints, and of the kernels that run them."""

import pytest

from foretell.catalog import chip, model
from foretell.serving.formats import kernel_format, stored_formats


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
