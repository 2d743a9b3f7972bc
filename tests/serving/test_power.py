"""The power limit in serving, and what idle chips draw."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.catalog import chip, model, system
from foretell.catalog.engines import profiles
from foretell.kernels.power import chip_power
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment

LLAMA, SYSTEM = model("llama-3.1-8b"), system("h100-sxm")
ENGINE = replace(profiles()["trtllm-1-hopper"], launch_s=0.0)


def under(watts):
    chips = replace(SYSTEM, chip=replace(SYSTEM.chip, tdp_watts=float(watts)))
    return step_times(LLAMA, chips, Deployment(), ENGINE)


def seconds(watts, **load):
    return float(under(watts).seconds(StepLoad(**load)))


@given(watts=st.floats(250.0, 1200.0), tokens=st.sampled_from([64.0, 1024.0, 8192.0]))
@settings(max_examples=12)
def test_more_watts_never_take_longer(watts, tokens):
    less, more = (seconds(w, prefill_tokens=tokens, prompts=1.0) for w in (watts, 1.2 * watts))
    assert more <= less * (1.0 + 1e-9)


def test_the_usual_limit_changes_nothing():
    """Kernels were measured under it: what is predicted at it is what their tables tell."""
    load = StepLoad(prefill_tokens=4096.0, prompts=1.0)
    usual = float(chip("h100-sxm").tdp_watts)
    assert under(usual).seconds(load) == step_times(LLAMA, SYSTEM, Deployment(), ENGINE).seconds(
        load
    )


def test_a_lower_limit_slows_prompts_and_hardly_a_token():
    """Prompts are bound by arithmetic, single tokens by memory, whose joules no clock saves."""
    prompt = seconds(400, prefill_tokens=8192.0, prompts=1.0)
    token = seconds(400, decoding=8.0, context_tokens=8000.0)
    assert prompt > 1.1 * seconds(700, prefill_tokens=8192.0, prompts=1.0)
    assert token < 1.03 * seconds(700, decoding=8.0, context_tokens=8000.0)


def test_watts_stay_under_the_limit():
    for watts in (350.0, 500.0):
        times = under(watts)
        load = StepLoad(prefill_tokens=np.array([2048.0, 16384.0]), prompts=1.0)
        assert (times.joules(load) / times.seconds(load) <= 1.02 * watts).all()


def test_the_flag_is_heeded():
    found = [
        foretell.serve(
            "llama-3.1-8b", system="h100-sxm", gpus=1, isl=4096, osl=64, concurrency=16, plan="tp1",
            set=(f"chip.tdp_watts={watts}",),
        )
        for watts in (700, 400)
    ]  # fmt: skip
    assert found[1].ttft_ms.mean > 1.1 * found[0].ttft_ms.mean
    assert found[1].output_tokens_per_s < 0.95 * found[0].output_tokens_per_s


def test_idle_instances_are_paid_for_in_joules():
    """One request on eight chips of one instance each: seven draw their idle watts all the time."""
    one, many = (
        foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=n, concurrency=1, plan="tp1")
        for n in (1, 8)
    )
    idle = 7.0 * float(chip_power(chip("h100-sxm")).idle_watts) / one.output_tokens_per_s
    assert many.joules_per_token == pytest.approx(one.joules_per_token + idle)
    parts = many.joules_per_input_token * many.isl + many.joules_per_output_token * many.osl
    assert parts / many.osl == pytest.approx(many.joules_per_token)


def test_a_seldom_used_service_spends_more_on_a_token():
    spent = [
        foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=1, rate=rate, plan="tp1")
        for rate in (0.001, 0.01, 0.1)
    ]
    each = [one.joules_per_token for one in spent]
    assert each[0] > each[1] > each[2]
    idle = float(chip_power(chip("h100-sxm")).idle_watts) / 0.001 / 1024
    assert each[0] == pytest.approx(idle, rel=0.2)


@pytest.mark.parametrize(
    ("name", "chips", "gpus", "plan"),
    [
        ("deepseek-r1", "h100-sxm", 72, "dp72 ep72"),
        ("deepseek-r1", "h200-sxm", 16, "dp16 ep16"),
        ("deepseek-r1", "h200-sxm", 8, "dp8 ep8"),
        ("deepseek-r1", "h200-sxm", 16, "tp4 pp4"),
        ("deepseek-r1", "mi300x", 8, "tp8"),
        ("deepseek-r1", "h20-sxm", 16, "dp16 ep16"),
        ("llama-3.1-70b", "h100-sxm", 8, "tp2 pp4"),
    ],
)
@pytest.mark.parametrize("each", [1, 128])
def test_joules_are_watts_of_the_chips_over_time(name, chips, gpus, plan, each):
    """Between what a waiting chip draws and its limit, however attention, experts and stages are spread."""
    load = {"isl": 2000, "osl": 400, "concurrency": each * gpus, "plan": plan, "engine": "sglang"}
    found = foretell.serve(name, system=chips, gpus=gpus, **load)
    watts = found.joules_per_token * found.output_tokens_per_s / gpus
    one = system(chips).chip
    assert chip_power(one).base_watts <= watts <= 1.05 * float(one.tdp_watts)


def test_a_copy_of_the_attention_spends_as_much_as_one_alone():
    """Eight ranks with sequences of their own: dense parts of each are those of one rank."""
    dense = model("llama-3.1-8b")
    one, many = (
        step_times(dense, SYSTEM, Deployment(dp=dp), ENGINE).joules(
            StepLoad(decoding=64.0 * dp, context_tokens=64e3 * dp)
        )
        for dp in (1, 8)
    )
    assert float(many) == pytest.approx(8.0 * float(one), rel=0.03)
