"""Attention in large blocks on chips with few wide cores: what a causal mask saves of it."""

import pytest

import foretell

MODEL = "llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=128256"


def attention_s(system: str, seq_len: int) -> float:
    """Seconds of attention for as many tokens."""
    found = foretell.estimate(
        MODEL,
        system=system,
        gpus=256,
        global_batch=(1 << 21) // seq_len,
        seq_len=seq_len,
        plan=f"tp1 cp{max(seq_len * 256 >> 21, 1)} zero3 mbs1 recompute=full cp_mode=allgather",
    )
    assert found.breakdown is not None
    (compute,) = (leaf for leaf in found.breakdown.children if leaf.name == "compute")
    return next(leaf.value for leaf in compute.children if leaf.name == "attention")


@pytest.mark.parametrize(("system", "least"), [("tpu-v7x", 1.15), ("tpu-v5p", 1.15)])
def test_a_short_causal_sequence_wastes_part_of_its_blocks(system: str, least: float) -> None:
    short, long = attention_s(system, 8192), attention_s(system, 131072)
    # Pairs of as many tokens grow with the length; blocks on the diagonal are whole.
    assert short > least * long / 16.0
    assert short < 1.5 * long / 16.0


def test_heads_below_a_row_of_the_matrix_units_cost_as_much_as_whole_ones() -> None:
    """The kernel pads vectors to 128: twice as many heads of half the size take twice as long."""
    times = []
    for heads in (8, 16):
        found = foretell.estimate(
            f"llama:layers=16,hidden=1024,heads={heads},kv_heads={heads},ffn=4096,vocab=32000",
            system="tpu-v5p",
            gpus=16,
            global_batch=64,
            seq_len=8192,
            plan="zero3 mbs4 recompute=none framework=jax",
        )
        assert found.breakdown is not None
        (compute,) = (leaf for leaf in found.breakdown.children if leaf.name == "compute")
        times.append(next(leaf.value for leaf in compute.children if leaf.name == "attention"))
    assert times[1] == pytest.approx(2.0 * times[0], rel=0.05)


def test_long_sequences_on_a_tpu_as_published() -> None:
    """tpu-recipes, Llama-3.1-70B on 256 TPU v7x: 34.0 s a step at 131,072 tokens, 12.3 s at 8,192."""
    for seq_len, batch, words, measured, error in (
        (131072, 64, "cp4 mbs1", 34.0, 0.20),
        (8192, 1024, "mbs4", 12.3, 0.05),
    ):
        found = foretell.estimate(
            MODEL,
            system="tpu-v7x",
            gpus=256,
            global_batch=batch,
            seq_len=seq_len,
            plan=f"tp1 zero3 {words} recompute=mlp+moe framework=jax",
            set=["chip.memory_bytes=512 GiB"],
        )
        assert found.step_s == pytest.approx(measured, rel=error)
