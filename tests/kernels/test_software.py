"""What frameworks hold beside the tensors that the arithmetic asks for."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.catalog.software import software, software_names
from foretell.inputs.software import with_software
from foretell.kernels.stack_passes import narrow_loss, spared_loss_bytes
from foretell.specs.plan import batch_of, parse_plan
from foretell.training.ledger import Ledger
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from tests.builders import make_scenario


def rows(words: str, model: str = "dense") -> Ledger:
    scenario = with_software(make_scenario(model, gpus=16, batch=64), words)
    plans = batch_of([parse_plan(words, 16)])
    return evaluate_rows(scenario, plans, tables_of(scenario, plans))


def bytes_of(words: str, what: str, model: str = "dense") -> float:
    return float(getattr(rows(words, model).memory, what)[0].max())


def test_a_fused_loss_holds_a_third() -> None:
    """12 bytes a score, 4 where the loss is fused; torchtitan's is not where the vocabulary is cut; a kernel
    of its own is there in plain runs too."""
    fused_plan, plain_plan = parse_plan("dp1 fused"), parse_plan("dp1 no-fused")
    assert spared_loss_bytes(fused_plan, software("torchtitan")) == (8.0, 0.0)
    assert spared_loss_bytes(plain_plan, software("torchtitan")) == (0.0, 0.0)
    assert spared_loss_bytes(fused_plan, software("torchtitan-2024")) == (0.0, 0.0)
    assert spared_loss_bytes(plain_plan, software("fsdp")) == (8.0, 8.0)
    scores = 2048 * 32000
    plain = bytes_of("tp1 pp1 mbs1 loss=plain framework=pytorch-compiled", "buffers")
    fused = bytes_of("tp1 pp1 mbs1 framework=pytorch-compiled", "buffers")
    assert plain - fused == pytest.approx(8.0 * scores)


@pytest.mark.parametrize("name", software_names())
def test_time_and_memory_agree_on_the_loss(name: str) -> None:
    """What the catalogue calls a kernel of its own holds little; what it calls plain does not."""
    told = software(name)
    spared = [
        spared_loss_bytes(parse_plan(f"dp1 {form}"), told)[0] for form in ("no-fused", "fused")
    ]
    held = {
        "plain": (0.0, 0.0),
        "compiled": (0.0, 8.0),
        "kernel": (8.0, 8.0),
        "chunked": (11.5, 11.5),
        "pieces": (9.5, 9.5),
    }
    held |= {"compiled": (0.0, 6.0)} if told.modules else {}
    assert tuple(spared) == held[told.loss]


def test_what_one_trainer_of_fsdp_2_copies() -> None:
    """Gradients of the largest part in 16 and in 32 bits, and results of experts weighed in 32."""
    words = "pp1 zero3 mbs1 recompute=full loss=chunked framework="
    own, plain = (
        rows(f"{words}{name}", "moe").memory for name in ("prime-rl", "transformers-fsdp2")
    )
    assert own.buffers.max() > plain.buffers.max()
    adapted = [
        bytes_of(f"{words}{name} lora=8", "buffers") for name in ("transformers", "prime-rl")
    ]
    assert adapted[0] > adapted[1]  # inputs' gradients wait under FSDP 1 alone


def test_stored_maps_of_early_bitsandbytes_keep_their_inputs() -> None:
    kept = [
        bytes_of(f"pp1 lora=8 adapters=qv weights={stored} framework=litgpt", "activations")
        for stored in ("bf16", "nf4")
    ]
    assert kept[1] > kept[0]


def test_one_copy_of_the_weights_with_fsdp() -> None:
    assert bytes_of("pp1 zero3 framework=fsdp", "weights") == 0.0
    assert bytes_of("pp1 zero3 framework=generic", "weights") > 0.0
    assert bytes_of("pp1 zero3 no-reshard framework=fsdp", "weights") > 0.0
    assert bytes_of("pp1 zero2 framework=fsdp", "weights") > 0.0


def test_buckets_and_gathered_weights_of_nanotron() -> None:
    """Bytes a weight, first without replicas: 18; 20 with; 10 + 14 / z with ZeRO 1 after an update, of which
    2 + 2 / z are not there while activations are."""

    def held(words: str, seq_len: int = 2048) -> float:
        scenario, plan = make_scenario(gpus=16, batch=64, seq_len=seq_len), f"{words} mbs1"
        scenario = with_software(scenario, "framework=nanotron")
        plans = batch_of([parse_plan(f"{plan} no-fused framework=nanotron", 16)])
        found = evaluate_rows(scenario, plans, tables_of(scenario, plans)).memory
        parameters = float(rows(f"{words} framework=generic").memory.weights[0, 0]) / 2.0
        sums = [found.weights[0, 0], found.gradients[0, 0], found.states[0, 0]]
        return float(np.sum(sums)) / parameters

    assert held("tp16 pp1 dp1 zero0") == pytest.approx(18.0)
    assert held("tp1 pp1 dp16 zero0") == pytest.approx(20.0)
    assert held("tp1 pp1 dp16 zero1") == pytest.approx(8.0 + 12.0 / 16.0)
    assert held("tp1 pp1 dp16 zero1", seq_len=16) == pytest.approx(10.0 + 14.0 / 16.0)


def test_placeholders_are_one_layer_and_the_head() -> None:
    """Empty gradients in 16 bits of the linear maps of one layer, whatever the depth."""
    plain = rows("tp1 pp4 mbs1 recompute=full framework=jax").memory.buffers[0]
    with_them = rows("tp1 pp4 mbs1 recompute=full framework=megatron-core").memory.buffers[0]
    hidden, width, kv = 1024, 2816, 256
    layer = hidden * (hidden + 2 * kv) + hidden * hidden + 3 * hidden * width
    assert with_them[0] - plain[0] == pytest.approx(2.0 * layer)
    assert with_them[-1] - plain[-1] == pytest.approx(2.0 * (layer + hidden * 32000))
    lora = rows("tp1 pp4 lora=8 framework=megatron-core").memory.buffers[0]
    assert lora[0] == pytest.approx(rows("tp1 pp4 lora=8 framework=jax").memory.buffers[0][0])


def test_narrow_copies_of_the_weights() -> None:
    """Two copies of the linear maps in fp8 beside 16 bits, none in torchao's recipe."""
    half = rows("tp1 pp1 mbs1").memory
    narrow = rows("tp1 pp1 mbs1 precision=fp8").memory
    linear = 24 * (1024 * (1024 + 512) + 1024 * 1024 + 3 * 1024 * 2816)
    assert narrow.weights[0, 0] - half.weights[0, 0] == pytest.approx(2.0 * linear)
    assert narrow.activations[0, 0] < half.activations[0, 0]
    titan = [rows(f"tp1 pp1 framework=torchtitan {p}").memory for p in ("", "precision=fp8")]
    assert titan[0].total == pytest.approx(titan[1].total)


def test_plain_modules_lose_more() -> None:
    fused, plain = rows("tp1 pp1").memory, rows("tp1 pp1 no-fused").memory
    assert fused.allocator == pytest.approx(0.05 * fused.allocated)
    assert plain.allocator == pytest.approx(0.10 * plain.allocated)
    assert plain.activations[0, 0] > fused.activations[0, 0]


def test_communicators_take_memory_of_their_own() -> None:
    alone = replace(parse_plan("tp1 pp1 dp1", 1))
    scenario = make_scenario("dense", gpus=1, batch=1)
    plans = batch_of([alone])
    one = evaluate_rows(scenario, plans, tables_of(scenario, plans)).memory.framework[0, 0]
    many = rows("tp2 pp2").memory.framework[0, 0]
    assert many - one == pytest.approx(3 * 0.2 * 2**30)


def test_a_loss_in_16_bits_spares_what_32_bits_take() -> None:
    """Scores, log-softmax and both gradients: 8 bytes; a fused loss spares more, autocast nothing."""
    pure = "dp1 master=none"
    plain = spared_loss_bytes(parse_plan(f"{pure} no-fused"), software("pytorch-eager"))
    fused = spared_loss_bytes(parse_plan(f"{pure} fused"), software("torchtitan"))
    assert (plain, fused) == ((4.0, 4.0), (8.0, 4.0))


@pytest.mark.parametrize(
    ("word", "held"), [("plain", 12.0), ("kernel", 8.0), ("inplace", 4.0), ("chunked", 0.5)]
)
def test_a_loss_that_the_plan_names_holds_so_much(word: str, held: float) -> None:
    found = spared_loss_bytes(parse_plan(f"dp1 no-fused loss={word}"), software("pytorch-eager"))
    assert found[0] == 12.0 - held


def test_a_loss_in_16_bits_is_for_weights_without_a_wide_copy() -> None:
    assert narrow_loss(parse_plan("dp1 master=none"))
    assert not narrow_loss(parse_plan("dp1 master=none weights=fp32"))
    assert not narrow_loss(parse_plan("dp1"))
