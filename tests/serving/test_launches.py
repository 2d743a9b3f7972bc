"""Kernels that steps with prompts launch one by one."""

from dataclasses import replace

import pytest

from foretell.catalog import chip, model, system
from foretell.catalog.engines import profiles
from foretell.serving.formats import narrow_dense
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.launches import SCAN, launches_of
from foretell.serving.memory import memory_of, weight_bytes
from foretell.serving.service_numbers import first_token_s
from foretell.serving.steady import steady
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment, Traffic

H200, GB200 = chip("h200-sxm"), chip("gb200")


def of(name, chips=H200, **words):
    return launches_of(model(name), chips, Deployment(**words))


def test_a_llama_layer_has_nine_kernels():
    """Two norms, four products, rotation, attention, activation; the residuals ride on the norms."""
    assert of("llama-3.1-8b") == 32 * 9
    assert of("llama-3.1-8b", tp=2) == 32 * (9 + 2)
    assert of("llama-3.1-8b", weights="fp8") == 32 * (9 + 4)


def test_mixtures_and_latents_have_more_by_their_operations():
    """Eighteen kernels of a layer of gpt-oss, thirty and more of one of DeepSeek-V3 in blocks of 8 bits."""
    oss = of("gpt-oss-120b", experts="mxfp4", tp=8) / 36
    deep = of("deepseek-v3", weights="fp8-block", experts="fp8-block", tp=8) / 61
    assert 16 <= oss <= 20
    assert 30 <= deep <= 38


def test_recurrences_are_several_kernels():
    linear = of("qwen3.5-27b")
    assert linear > 48 * SCAN


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "qwen3.5-27b"])
def test_narrower_products_never_have_fewer_launches(name):
    plain = of(name)
    for words in ({"weights": "fp8"}, {"weights": "fp8", "experts": "fp8"}, {"tp": 4}):
        assert of(name, **words) >= plain


def test_a_short_prompt_takes_what_its_launches_take():
    """Ten times the time of a launch is ten times the least time of a step with a short prompt."""
    own = replace(profiles()["sglang-0.5-hopper"], prefill_step_s=0.0, host_step_s=0.0)
    load = StepLoad(prefill_tokens=8.0, prompts=1.0)
    found = []
    for launch_s in (5e-4, 5e-3):
        engine = replace(own, launch_s=launch_s)
        times = step_times(model("gpt-oss-120b"), system("h200-sxm"), Deployment(tp=8), engine)
        assert float(times.seconds(load)) == pytest.approx(launch_s * times.launches)
        found.append(float(times.seconds(load)))
    assert found[1] == pytest.approx(10.0 * found[0])


def test_first_use_delays_the_first_wave_alone():
    """A tenth of the requests of ten waves, of mixtures; the others, and medians, are as they were."""
    own = profiles()["sglang-0.5-hopper"]
    traffic = Traffic(isl=1024.0, osl=1024.0, concurrency=16.0, least=0.8)
    for name, more_s in (("gpt-oss-120b", 0.2), ("llama-3.1-70b", 0.0)):
        states = []
        for first_use_s in (0.0, 2.0):
            engine = replace(own, first_use_s=first_use_s)
            place = (model(name), system("h200-sxm"), Deployment(tp=8), engine)
            states.append(steady(step_times(*place), memory_of(*place), traffic))
        before, after = states
        assert float(after.ttft_s - before.ttft_s) == pytest.approx(more_s)
        assert float(after.ttft_steady_s) == float(before.ttft_steady_s)
        middle = [sorted(first_token_s(one, 0.1))[1000] for one in states]
        assert middle[1] == pytest.approx(middle[0], rel=0.1)


def test_later_dense_products_of_deepseek_are_as_narrow_as_its_experts():
    """exclude_modules of nvidia/DeepSeek-V3.1-NVFP4: q_a, q_b, kv_a and kv_b of the attention alone."""
    words = {"weights": "bf16", "experts": "nvfp4", "tp": 8}
    d, deep = Deployment(**words), model("deepseek-v3")
    assert narrow_dense(deep, d)
    assert not narrow_dense(deep, Deployment(tp=8))
    assert not narrow_dense(model("kimi-k2"), d)
    kept = replace(deep, family="another")
    saved = weight_bytes(kept, d) - weight_bytes(deep, d)
    output, shared, first = 61 * 7168 * 128 * 128, 58 * 3 * 7168 * 2048, 3 * 3 * 7168 * 18432
    assert saved == pytest.approx((output + shared + first) / 8 * (2.0 - 0.5625), rel=0.01)
    own = profiles()["trtllm-1-blackwell"]
    load = StepLoad(prefill_tokens=16384.0, prompts=16.0)
    fast, slow = (
        float(step_times(m, system("gb200-nvl72"), d, own).seconds(load)) for m in (deep, kept)
    )
    assert fast < slow
