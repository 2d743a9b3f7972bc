"""Whole layers of experts on one H200 (PyTorch 2.11, `calibrate measure --only experts`) beside ours.

Milliseconds of a layer that runs without pause; the operations are priced at the clock of short bursts,
which a layer of large products does not hold: predictions may be a fifth too short, never much too long.
"""

import numpy as np
import pytest

from foretell.inputs.question import ask, plan_of
from foretell.training.layer_costs import part_table
from foretell.training.shapes import Shape

MEASURED = (
    (4096, 14336, 8, 2, 4096, 5.41, 15.57, 5.80, 16.66),
    (2048, 768, 128, 8, 8192, 2.72, 5.96, 3.14, 7.17),
    (7168, 2048, 32, 8, 4096, 7.09, 18.05, 7.65, 19.83),
    (2048, 768, 16, 8, 4096, 1.33, 2.66, 1.54, 3.41),
    (2048, 1408, 64, 6, 8192, 2.69, 6.48, 3.08, 7.76),
    (7168, 2048, 32, 8, 1024, 2.28, 6.30, 2.45, 6.59),
    (2048, 768, 128, 8, 32768, 10.00, 20.19, 11.58, 25.63),
)
"""Hidden, width of an expert, experts, experts a token takes, tokens; forward and both passes compiled, then
eager."""


def config(hidden: int, ffn: int, experts: int, chosen: int) -> dict[str, object]:
    """One layer in Hugging Face's form."""
    return {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": hidden,
        "intermediate_size": 8 * ffn, "moe_intermediate_size": ffn, "num_experts": experts,
        "num_experts_per_tok": chosen, "num_hidden_layers": 1, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 1024, "tie_word_embeddings": False,
        "max_position_embeddings": 40960, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "hidden_act": "silu",
    }  # fmt: skip


def passes_ms(sizes: tuple[int, ...], words: str) -> tuple[float, float]:
    """Forward, and both passes, of the experts of a layer."""
    scenario = ask(
        model=config(*sizes[:4]), system="h200-sxm", gpus=1, global_batch=1, seq_len=sizes[4]
    )
    scenario, plan = plan_of(scenario, words)
    parts = part_table(scenario, plan, Shape(micro_batch=1.0, tp=1.0, sp=0.0))
    names = [op.name for part in parts.ops for op in part]
    routed = np.array([name.startswith("moe") for name in names])
    both = parts.times.seconds[:, 0].reshape(2, -1)
    forward, backward = 1e3 * (both * routed).sum(axis=1)
    return forward, forward + backward


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "-".join(map(str, row[:5])))
@pytest.mark.parametrize("compiled", [True, False])
def test_layers_of_experts_take_what_was_measured(row: tuple[float, ...], compiled: bool) -> None:
    sizes = tuple(int(size) for size in row[:5])
    words = "framework=pytorch-compiled" if compiled else "framework=pytorch-eager no-fused"
    theirs = row[5:7] if compiled else row[7:9]
    for ours, measured in zip(passes_ms(sizes, words), theirs, strict=True):
        assert 0.76 < ours / measured < 1.05
