"""What an instance holds: hand formulas of the cache, the rules of each engine, what fits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog import model, system
from foretell.catalog.engines import profiles
from foretell.serving.memory import (
    cache_bytes,
    kv_bytes,
    longest_context,
    memory_of,
    mixer_bytes,
    sequences_that_fit,
    weight_bytes,
)
from foretell.specs.deployment import Deployment
from foretell.workload.parameters import count
from tests.workload.models import INDEXER, LATENT


def test_cache_of_multi_head_attention_is_two_heads_times_layers():
    assert kv_bytes(model("llama-2-7b"), Deployment(), 1000.0) == 2 * 32 * 32 * 128 * 2 * 1000


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (4, 2), (8, 1), (16, 1)])
def test_cache_of_grouped_queries_is_cut_down_to_one_head(tp, heads):
    one = kv_bytes(model("llama-3.1-70b"), Deployment(tp=tp, kv="fp8"), 10.0)
    assert one == 2 * 80 * heads * 128 * 1 * 10


def test_cache_of_latent_attention_is_rank_and_rotary_key_whole_on_every_rank():
    deepseek = model("deepseek-v3")
    for tp in (1, 8):
        assert kv_bytes(deepseek, Deployment(tp=tp), 7.0) == 61 * (512 + 64) * 2 * 7


def test_an_indexer_keeps_a_byte_an_element_and_a_scale_for_each_of_its_keys():
    """DeepSeek sparse attention; a layer that uses the choice of an earlier one keeps none of its own."""
    latent, indexer = LATENT, INDEXER
    plain = mixer_bytes(replace(latent, indexer=None), Deployment(), 60.0, windows=True, cross=0.0)
    for ratio, own, expected in ((1, True, 60), (4, True, 15), (1, False, 0)):
        chosen = replace(indexer, ratio=ratio, owns_weights=own)
        found = mixer_bytes(
            replace(latent, indexer=chosen), Deployment(), 60.0, windows=True, cross=0.0
        )
        assert found - plain == (indexer.head_dim + 4) * expected


def test_windows_keep_no_more_than_the_window():
    oss = model("gpt-oss-120b")
    per_layer = 2 * 8 * 64 * 2
    assert kv_bytes(oss, Deployment(), 5000.0) == 18 * per_layer * (128 + 5000)
    assert kv_bytes(oss, Deployment(), 5000.0, windows=False) == 36 * per_layer * 5000


def test_recurrences_keep_a_state_whatever_the_context():
    hybrid = model("nvidia/Nemotron-H-56B-Base-8K")
    step = kv_bytes(hybrid, Deployment(), 2000.0) - kv_bytes(hybrid, Deployment(), 1000.0)
    attention = [m for layer in hybrid.stack.layers for m in layer.mixers if hasattr(m, "kv_heads")]
    assert step == sum(2 * m.kv_heads * m.head_dim * 2 * 1000 for m in attention)
    states = [m for layer in hybrid.stack.layers for m in layer.mixers if hasattr(m, "state")]
    least = sum(m.heads * m.head_dim * m.state * 2 for m in states)
    assert kv_bytes(hybrid, Deployment(), 0.0) > least > 0


@given(
    fraction=st.floats(0.5, 0.99),
    weights=st.floats(1e9, 60e9),
    step=st.floats(0.0, 6e9),
    reserve=st.floats(0.0, 4e9),
)
def test_each_engine_has_its_own_rule(fraction, weights, step, reserve):
    """vLLM: of the whole card. TensorRT-LLM: of what is left. SGLang: weights and cache together."""
    card = 80e9

    def cache(rule):
        return cache_bytes(rule, fraction, card=card, weights=weights, step=step, reserve=reserve)

    free = card - weights - step - reserve
    assert cache("vllm") == pytest.approx(fraction * card - weights - step - reserve)
    assert cache("trtllm") == pytest.approx(fraction * free)
    assert cache("sglang") == pytest.approx(fraction * (card - reserve) - weights)
    assert cache("none") == pytest.approx(free)


def test_one_fraction_means_three_things():
    chips, llama = system("h100-sxm"), model("llama-3.1-8b")
    plain = profiles()["vllm-0.18-hopper"]
    kept = {
        rule: memory_of(llama, chips, Deployment(), replace(plain, memory_rule=rule)).kv_bytes
        for rule in ("vllm", "trtllm", "sglang")
    }
    assert len({round(value) for value in kept.values()}) == 3


@pytest.mark.parametrize("name", ["llama-3.1-70b", "mixtral-8x7b", "gpt-oss-120b", "deepseek-v3"])
def test_weights_of_one_chip_are_all_parameters(name):
    one = model(name)
    bf16 = Deployment(weights="bf16", experts="bf16")
    # Multi-token prediction is stored with some models, and not loaded where it is not used.
    spare = 0.03 if one.prediction is not None else 0.002
    assert weight_bytes(one, bf16) == pytest.approx(2.0 * count(one).text, rel=spare)


def test_weights_are_shared_by_ranks_and_narrower_in_narrow_formats():
    llama = model("llama-3.1-70b")
    whole = weight_bytes(llama, Deployment())
    assert weight_bytes(llama, Deployment(tp=8)) == pytest.approx(whole / 8, rel=0.02)
    assert weight_bytes(llama, Deployment(pp=4)) == pytest.approx(whole / 4, rel=0.05)
    narrow = [weight_bytes(llama, Deployment(weights=w)) for w in ("bf16", "fp8", "nvfp4", "mxfp4")]
    assert narrow == sorted(narrow, reverse=True)
    deepseek = model("deepseek-v3")
    spread = [weight_bytes(deepseek, Deployment(dp=8, ep=ep)) for ep in (1, 8)]
    assert spread[0] == pytest.approx(spread[1])


def test_longest_context_is_the_last_that_fits():
    llama, chips = model("llama-3.1-8b"), system("h100-sxm")
    memory = memory_of(llama, chips, Deployment(), profiles()["vllm-0.18-hopper"])
    longest = longest_context(memory, llama, Deployment())
    assert kv_bytes(llama, Deployment(), float(longest)) <= memory.kv_bytes
    assert kv_bytes(llama, Deployment(), float(longest + 1)) > memory.kv_bytes
    assert longest_context(memory, llama, Deployment(), batch=4) == pytest.approx(
        longest / 4, abs=2
    )


def test_fewer_fit_the_longer_they_are():
    llama, chips = model("llama-3.1-8b"), system("h100-sxm")
    profile = profiles()["vllm-0.18-hopper"]
    memory = memory_of(llama, chips, Deployment(), profile)
    fit = sequences_that_fit(memory, llama, Deployment(), profile, np.array([100.0, 1e3, 1e4, 1e5]))
    assert (np.diff(fit) < 0).all()


def test_a_model_that_is_too_large_leaves_no_cache():
    profile = profiles()["vllm-0.18-hopper"]
    memory = memory_of(model("llama-3.1-405b"), system("h100-sxm"), Deployment(tp=2), profile)
    assert not memory.fits
