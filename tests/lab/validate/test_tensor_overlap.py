"""Asynchronous tensor parallelism against torchtitan's published pairs: the same runs with and without.

torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md: Llama 3 on H100s of 500 W, TP 8 inside a
node, tokens/s per GPU. What the option saves is a difference of two steps, so that all else cancels.
"""

import pytest

from foretell.inputs.question import ask, plan_of
from foretell.training.answer import answer_of

CASES = [
    ("llama-3.1-70b", 256, 512, "dp32 mbs16 recompute=full", 597.3, 652.4),
    ("llama-3.1-70b", 256, 512, "dp32 mbs16 recompute=full precision=fp8", 809.8, 942.4),
    ("llama-3.1-8b", 64, 96, "dp8 mbs12 recompute=selective", 4378.0, 4809.4),
    ("llama-3.1-8b", 64, 96, "dp8 mbs12 recompute=selective precision=fp8", 5078.1, 5570.1),
]


@pytest.mark.parametrize(("model", "gpus", "batch", "words", "waits", "hides"), CASES)
def test_what_pieces_save(
    model: str, gpus: int, batch: int, words: str, waits: float, hides: float
) -> None:
    """Seconds saved a step: within 30 % of what was measured."""
    scenario = ask(model=model, system="h100-sxm-96gb", gpus=gpus, global_batch=batch, seq_len=8192)
    text = f"tp8 zero3 framework=torchtitan {words}"
    steps = [
        answer_of(*plan_of(scenario, f"{text} tp_overlap={word}"), chosen=False).step_s
        for word in ("off", "on")
    ]
    tokens = batch * 8192 / gpus
    assert steps[0] - steps[1] == pytest.approx(tokens / waits - tokens / hides, rel=0.3)
