"""Layers that stay in 16 bits beside a narrow precision: between all and none, in time, joules and memory."""

import pytest

import foretell
from foretell.api.answers import Estimate
from foretell.errors import BadInput

JOB = {"model": "llama-3.1-8b", "system": "gb200", "gpus": 8, "global_batch": 64, "seq_len": 4096}
LAYERS = 32


def step(words: str) -> Estimate:
    return foretell.estimate(**JOB, plan=f"tp1 pp1 zero2 mbs1 {words}")


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_all_layers_wide_is_the_wide_precision(precision: str) -> None:
    every, wide = step(f"precision={precision} wide_layers={LAYERS}"), step("precision=bf16")
    assert every.step_s == pytest.approx(wide.step_s, rel=1e-12)
    assert every.energy_joules == pytest.approx(wide.energy_joules, rel=1e-12)
    assert every.peak_memory_bytes == pytest.approx(wide.peak_memory_bytes, rel=1e-12)


def test_each_wide_layer_takes_longer() -> None:
    found = [step(f"precision=nvfp4 wide_layers={n}").step_s for n in (0, 1, 5, 16, LAYERS)]
    assert found == sorted(found)
    assert found[0] < found[1]
    # Compute alone is in the mean; the clock under the power limit bends it a little.
    even = found[0] + 16.0 / LAYERS * (found[-1] - found[0])
    assert found[3] == pytest.approx(even, rel=0.03)


def test_wide_layers_are_of_a_narrow_precision_and_of_the_model() -> None:
    with pytest.raises(BadInput, match="wide_layers"):
        step("precision=bf16 wide_layers=2")
    with pytest.raises(BadInput, match="32 layers"):
        step("precision=fp8 wide_layers=33")


def test_megatron_reads_and_writes_them() -> None:
    flags = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --num-layers 32"
        " --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
        " --micro-batch-size 1 --global-batch-size 64 --bf16 --fp4-format e2m1"
    )
    ends = " --first-last-layers-bf16 --num-layers-at-start-in-bf16 2 --num-layers-at-end-in-bf16 3"
    assert "wide_layers=5" in foretell.read_launch(flags + ends).plan
    assert "wide_layers=2" in foretell.read_launch(flags + " --first-last-layers-bf16").plan
    assert "wide_layers" not in foretell.read_launch(flags).plan
    written = foretell.estimate(
        **JOB, plan="tp1 zero1 mbs1 precision=nvfp4 wide_layers=5 framework=megatron-lm"
    ).export("megatron")
    assert "--num-layers-at-start-in-bf16 2 --num-layers-at-end-in-bf16 3" in str(written)
