"""What the modules of transformers run and keep: counts done by hand, and orders between modes."""

from typing import Any

import pytest

from foretell.api.answers import Estimate
from foretell.api.training import estimate
from foretell.errors import BadInput
from foretell.lab.validate.own_runs import tensor_bytes
from foretell.specs.plan import parse_plan

NARROW = "weights=bf16 gradients=bf16 states=bf16"
WIDE = "weights=fp32 gradients=fp32 states=fp32"
TOKENS, HIDDEN, INNER, VOCABULARY = 8192, 4096, 14336, 128256
STATISTIC = 32 * 4.0
"""Bytes a token that fused attention keeps of its 32 heads' rows."""


def told(
    words: str,
    model: str = "llama-3.1-8b",
    *,
    framework: str = "transformers",
    layers: int = 4,
    batch: int = 4,
    seq_len: int = 2048,
    settings: tuple[str, ...] = (),
) -> Estimate:
    """A step on one H200."""
    return estimate(
        model,
        system="h200-sxm",
        gpus=1,
        plan=f"framework={framework} dp1 mbs{batch} precision=bf16 master=none {words}",
        global_batch=batch,
        seq_len=seq_len,
        set=[f"model.num_hidden_layers={layers}", *settings],
    )


def passes_s(name: str, gigabytes_per_s: int) -> float:
    """Seconds of a family of passes over memory, beside a memory of so many GB/s."""
    rate = f"chip.memory_bandwidth_bytes_per_s={gigabytes_per_s} GB/s"
    breakdown = told(f"{NARROW} recompute=none", settings=(rate,)).breakdown
    assert breakdown is not None
    (memory,) = (leaf for leaf in breakdown.children if leaf.name == "memory_bound")
    return next(leaf.value for leaf in memory.children if leaf.name == name)


def layer_bytes(words: str) -> float:
    """What one more layer of Llama 3.1 8B keeps, a token."""
    sizes = []
    for layers in (4, 5):
        memory = told(words, layers=layers).memory
        assert memory is not None
        sizes.append(next(leaf.value for leaf in memory.children if leaf.name == "activations"))
    return (sizes[1] - sizes[0]) / TOKENS


def test_a_layer_keeps_what_its_modules_keep() -> None:
    """Two norms of 4 + 2 and their outputs, q, k, v and result, four tensors between the maps."""
    norms, heads, feed = 2 * (4 + 2 + 2) * HIDDEN, (2 + 0.5 + 0.5 + 2) * HIDDEN, 4 * 2 * INNER
    assert layer_bytes(NARROW) == pytest.approx(norms + heads + feed + STATISTIC, rel=1e-9)


def test_autocast_keeps_casts_of_inputs_and_weights() -> None:
    """Norms of 4 + 4, an input in 16 bits for each of five maps, and the layer's weights in 16 bits."""
    weights = 2.0 * (HIDDEN * HIDDEN * (2 + 2 * 0.25) + 3.0 * HIDDEN * INNER)
    norms, inputs = 2 * 8 * HIDDEN, 5 * 2 * HIDDEN
    rest = 5 * HIDDEN + 4 * 2 * INNER + STATISTIC
    assert layer_bytes(WIDE) == pytest.approx(norms + inputs + rest + weights / TOKENS, rel=1e-9)


def test_adapters_keep_their_inputs_in_their_own_dtype() -> None:
    narrow, wide = (layer_bytes(f"{NARROW} lora=16 {word}") for word in ("autocast=on", ""))
    adapters = 3 * HIDDEN + HIDDEN + 2 * HIDDEN + INNER
    assert wide - narrow == pytest.approx(2.0 * adapters, rel=1e-9)


def test_adapters_of_before_peft_0_12_are_cast_by_nothing() -> None:
    """They take the dtype of the frozen weights; since then 32 bits, which inputs are cast to and back."""
    words = f"{NARROW} lora=64 adapters=all recompute=full"
    old, new = (told(words, framework=f"transformers@{at}") for at in ("2024-01", "2024-07"))
    assert old.step_s < 0.95 * new.step_s


def test_composed_passes_take_their_bytes_time_beside_a_slow_memory() -> None:
    """Norms and rotary positions wait for the cores where the memory is fast: with a sixth of the bandwidth
    they take less than six times as long, and bytes of other passes do not."""
    norms, losses = (passes_s(name, 800) / passes_s(name, 4800) for name in ("norm", "loss"))
    assert norms < 0.8 * losses


@pytest.mark.parametrize("words", [NARROW, WIDE, f"{NARROW} recompute=full"])
@pytest.mark.parametrize("job", [(1, 512), (4, 2048), (1, 4096)])
def test_compiled_steps_are_never_slower(words: str, job: tuple[int, int]) -> None:
    batch, seq_len = job
    eager, compiled = (
        told(f"{words} {form}", batch=batch, seq_len=seq_len) for form in ("", "compile=on")
    )
    assert compiled.step_s < eager.step_s
    assert tensor_bytes(compiled) <= tensor_bytes(eager)


def test_autocast_takes_longer_than_weights_in_16_bits() -> None:
    for model in ("llama-3.1-8b", "qwen3-8b", "gemma-2b", "mistral-7b-v0.3"):
        narrow, wide = told(NARROW, model), told(WIDE, model)
        assert wide.step_s > narrow.step_s, model
        assert tensor_bytes(wide) > tensor_bytes(narrow), model


def test_memory_grows_with_tokens_and_layers() -> None:
    for words in (NARROW, WIDE, f"{NARROW} compile=on", f"{NARROW} lora=16"):
        sizes = [tensor_bytes(told(words, batch=batch)) for batch in (1, 2, 4)]
        assert sizes == sorted(sizes), words
        depths = [tensor_bytes(told(words, layers=layers)) for layers in (1, 2, 4, 8)]
        assert depths == sorted(depths), words
        assert tensor_bytes(told(f"{words} recompute=full", layers=8)) <= depths[-1], words


def test_aliases_are_the_same_software() -> None:
    one = told(NARROW).step_s
    for alias in ("hf-trainer", "accelerate", "trl", "peft", "transformers@5"):
        assert told(NARROW, framework=alias).step_s == one, alias


def test_compile_selects_a_form_and_says_where_there_is_none() -> None:
    assert "compile=on" in str(parse_plan("compile=on"))
    question: dict[str, Any] = {"system": "h200-sxm", "gpus": 1, "global_batch": 4, "seq_len": 2048}
    both = [
        estimate("llama-3.2-1b", plan=f"dp1 mbs4 {words}", **question).step_s
        for words in ("framework=pytorch-compiled", "framework=pytorch compile=on")
    ]
    assert both[0] == both[1]
    with pytest.raises(BadInput, match="no compiled form"):
        estimate("llama-3.2-1b", plan="dp1 framework=megatron-lm compile=on", **question)
