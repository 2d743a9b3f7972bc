"""Steps of an engine: what they must satisfy, and published single steps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.catalog import model, system
from foretell.catalog.engines import profiles
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment

ENGINE = profiles()["vllm-0.18-hopper"]
SYSTEM = system("h200-sxm")
FAMILIES = {
    "llama-3.1-8b": Deployment(),
    "mixtral-8x7b": Deployment(tp=2),
    "gpt-oss-120b": Deployment(tp=4, ep=4, experts="mxfp4"),
    "deepseek-v3": Deployment(dp=8, ep=8, weights="fp8-block", experts="fp8-block"),
    "nvidia/Nemotron-H-56B-Base-8K": Deployment(tp=4),
    "google/gemma-3-27b-pt-text": Deployment(tp=2),
    "t5-large": Deployment(),
    "bert-large-uncased": Deployment(),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": Deployment(tp=2),
}
"""One of each family, in a layout of its own."""


def times_of(name, deployment=None, engine=ENGINE, chips=SYSTEM):
    return step_times(model(name), chips, deployment or FAMILIES.get(name, Deployment()), engine)


def device_s(times, load):
    """Seconds of the kernels and exchanges of a step."""
    return float(sum(times.parts_s(load).values()))


def test_kernels_that_share_fewer_keys_among_heads_read_more_and_at_most_each_heads_own():
    """Grouped queries with a part of their sharing used: between one read a group and one a head."""
    load = StepLoad(decoding=64.0, context_tokens=64.0 * 8000.0)
    found = [
        device_s(times_of("llama-3.1-8b", engine=replace(ENGINE, shared_heads=part)), load)
        for part in (1.0, 0.7, 0.3, 0.0)
    ]
    assert found == sorted(found)
    assert 2.0 * found[0] < found[-1]


def test_exchanges_of_prompts_take_longer_than_their_benchmarks_and_no_others_do():
    """A factor on exchanges is in steps with prompts alone: none in decoding, none on one chip."""
    reading = StepLoad(prefill_tokens=8000.0, prompts=1.0)
    decoding = StepLoad(decoding=8.0, context_tokens=8000.0)
    for tp in (1, 8):
        plain, slow = (
            times_of(
                "llama-3.1-70b",
                Deployment(tp=tp, weights="fp8"),
                replace(ENGINE, prefill_exchange_factor=factor),
            )
            for factor in (1.0, 1.5)
        )
        more = float(slow.seconds(reading) - plain.seconds(reading))
        share = 0.5 * ENGINE.prefill_factor * float(plain.parts_s(reading)["exchanges"])
        assert more == pytest.approx(share, abs=1e-12)
        assert (more > 0.0) == (tp > 1)
        assert float(slow.seconds(decoding)) == float(plain.seconds(decoding))


def test_ranks_that_share_experts_wait_for_the_last_one_in_decode_steps():
    """Not where experts are none or ranks share the attention; more with more ranks, to eight."""
    load = StepLoad(decoding=64.0, context_tokens=64e3)
    slow, plain = (replace(ENGINE, lockstep_factor=factor) for factor in (1.2, 1.0))

    def longer(name, d):
        parts = times_of(name, d, slow), times_of(name, d, plain)
        return float(parts[0].seconds(load) - parts[1].seconds(load)) / device_s(parts[1], load)

    shared = [longer("mixtral-8x7b", Deployment(dp=dp, ep=dp)) for dp in (1, 2, 8)]
    assert shared == pytest.approx([0.0, 0.2 / 3.0, 0.2])
    assert longer("llama-3.1-8b", Deployment(dp=8)) == 0.0
    assert longer("mixtral-8x7b", Deployment(tp=8, ep=8)) == 0.0


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_finite_steps(name):
    times = times_of(name)
    loads = [
        StepLoad(decoding=8.0, context_tokens=8000.0),
        StepLoad(prefill_tokens=2000.0, prompts=2.0),
        StepLoad(decoding=8.0, context_tokens=8000.0, prefill_tokens=500.0, prompts=1.0),
    ]
    for load in loads:
        seconds = float(times.seconds(load))
        assert 1e-5 < seconds < 10.0
        assert float(times.joules(load)) > 0.0
    assert times.seconds(StepLoad()) == 0.0


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_takes_longer_with_more_of_anything(name):
    times = times_of(name)
    context = np.array([64.0, 1000.0, 8000.0, 60_000.0])
    decode = times.seconds(StepLoad(decoding=16.0, context_tokens=16.0 * context))
    assert (np.diff(decode) >= -1e-12).all()
    batch = np.array([1.0, 8.0, 64.0, 512.0])
    grown = times.seconds(StepLoad(decoding=batch, context_tokens=2000.0 * batch))
    assert (np.diff(grown) > 0.0).all()
    tokens = np.array([128.0, 1024.0, 8192.0, 65_536.0])
    prompts = times.seconds(StepLoad(prefill_tokens=tokens, prompts=1.0))
    assert (np.diff(prompts) >= 0.0).all()
    past = times.seconds(
        StepLoad(prefill_tokens=1024.0, past_tokens=np.array([0.0, 4e3, 4e4]), prompts=1.0)
    )
    assert (np.diff(past) >= -1e-12).all()


def test_wider_formats_of_weights_and_cache_take_longer_to_decode():
    load = StepLoad(decoding=64.0, context_tokens=64 * 8000.0)
    cache = [
        float(times_of("llama-3.1-8b", Deployment(kv=kv)).seconds(load)) for kv in ("fp8", "bf16")
    ]
    assert cache[0] < cache[1]
    one = StepLoad(decoding=1.0, context_tokens=100.0)
    weights = [
        float(times_of("llama-3.1-70b", Deployment(weights=w)).seconds(one))
        for w in ("int4", "fp8", "bf16")
    ]
    assert weights == sorted(weights)


def test_one_rank_exchanges_nothing():
    for name in ("llama-3.1-8b", "mixtral-8x7b"):
        times = times_of(name, Deployment())
        assert not times.tables.exchange_s.any()
        assert not times.tables.gather_s.any()
    assert times_of("llama-3.1-8b", Deployment(tp=2)).tables.exchange_s.all()


def test_a_decode_step_is_not_faster_than_reading_weights_and_cache():
    from foretell.serving.memory import kv_bytes, weight_bytes

    llama = model("llama-3.1-70b")
    for tp in (1, 4, 8):
        d = Deployment(tp=tp)
        n, context = 32.0, 4000.0
        read = weight_bytes(llama, d) + n * float(kv_bytes(llama, d, context))
        read -= 2.0 * llama.embedding.vocab * llama.stack.hidden / tp  # rows are looked up
        least = read / SYSTEM.chip.memory_bandwidth_bytes_per_s
        load = StepLoad(decoding=n, context_tokens=n * context)
        assert device_s(times_of("llama-3.1-70b", d), load) > least


@given(
    n=st.lists(st.floats(1.0, 900.0), min_size=1, max_size=5),
    context=st.floats(1.0, 1e5),
    new=st.floats(0.0, 2e4),
)
@settings(max_examples=25)
def test_a_batch_of_loads_is_each_of_them(n, context, new):
    times = times_of("mixtral-8x7b")
    many = np.array(n)
    load = StepLoad(decoding=many, context_tokens=many * context, prefill_tokens=new, prompts=1.0)
    together = times.seconds(load)
    for i, one in enumerate(n):
        alone = replace(load, decoding=one, context_tokens=one * context)
        assert together[i] == pytest.approx(float(times.seconds(alone)), rel=1e-12)


def test_prompts_of_two_ranks_take_no_longer_than_one_rank_with_both():
    both = StepLoad(prefill_tokens=8192.0, prompts=2.0)
    one = Deployment(weights="fp8-block", experts="fp8-block", dp=8, ep=8)
    times = times_of("deepseek-v3", one)
    alone = StepLoad(prefill_tokens=4096.0, prompts=1.0)
    assert float(times.seconds(both)) < 1.9 * float(times.seconds(alone))


def test_context_parallel_ranks_shorten_a_long_prompt():
    long = StepLoad(prefill_tokens=100_000.0, prompts=1.0)
    seconds = [float(times_of("llama-3.1-8b", Deployment(cp=cp)).seconds(long)) for cp in (1, 2, 8)]
    assert seconds[0] > 1.7 * seconds[1] > 1.7 * seconds[2]


def test_stages_pass_micro_batches_on():
    """With stages a token takes all layers at a part of the batch, and the sends between them."""
    load = StepLoad(decoding=64.0, context_tokens=64 * 2000.0)
    part = StepLoad(decoding=16.0, context_tokens=16 * 2000.0)
    staged, whole = times_of("llama-3.1-8b", Deployment(pp=4)), times_of("llama-3.1-8b")
    assert device_s(staged, load) > device_s(whole, part)
    assert device_s(staged, load) < 1.2 * device_s(whole, part)


def test_kernels_launched_one_by_one_wait_for_the_host():
    load = StepLoad(decoding=1.0, context_tokens=100.0)
    fast = float(times_of("llama-3.2-1b").seconds(load))
    slow = float(times_of("llama-3.2-1b", Deployment(graph=False)).seconds(load))
    assert slow > fast
    eager = replace(ENGINE, graph=False, eager_layer_s=5e-4)
    assert float(times_of("llama-3.2-1b", engine=eager).seconds(load)) > 16 * 5e-4


def test_short_prompts_are_replayed_from_a_graph_where_an_engine_has_one():
    """No launching shows up to the tokens of the largest graph; beyond it does, and without graphs."""
    floor = 5e-3
    slow = replace(ENGINE, launch_s=floor / 9.0, graph_tokens=512)  # nine kernels a layer
    times = times_of("llama-3.1-8b", engine=slow)
    short, long = (
        float(times.seconds(StepLoad(prefill_tokens=n, prompts=1.0))) for n in (400.0, 600.0)
    )
    assert short < 32 * floor < long
    plain = times_of("llama-3.1-8b", Deployment(graph=False), engine=slow)
    assert float(plain.seconds(StepLoad(prefill_tokens=400.0, prompts=1.0))) > 32 * floor


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_one_sequence_passes_every_stage(stages):
    """Stages share many sequences; a single one is no faster for them."""
    one, cut = (times_of("llama-3.1-8b", Deployment(pp=pp)) for pp in (1, stages))
    for n in (0.5, 1.0):
        load = StepLoad(decoding=n, context_tokens=1000.0 * n)
        assert float(cut.seconds(load)) >= float(one.seconds(load))


def test_an_engine_that_was_not_seen_is_wider_and_it_is_said():
    asked = {"gpus": 1, "isl": 500, "osl": 100, "concurrency": 4, "plan": "tp1"}
    dense = foretell.serve("llama-3.1-8b", system="h100-sxm", **asked)
    far = foretell.serve("llama-3.1-8b", system="h100-sxm", engine="tgi", **asked)
    assert (dense.evidence, far.evidence) == ("fitted", "transferred")
    assert any("mixture models, not on a dense one" in text for text in dense.assumptions)
    assert "no run of tgi" in far.interval_reason

    def width(found):
        low, high = found.interval["tpot_ms"]["p90"]
        return high / low

    assert width(dense) < width(far)


@pytest.mark.parametrize("chips", ["b200-sxm", "h200-sxm", "mi355x"])
def test_attention_that_selects_its_keys_grows_less_with_context_than_attention_to_all(chips):
    layout = Deployment(tp=8, weights="fp8-block", experts="fp8-block")
    grown = {}
    for name in ("deepseek-v3", "deepseek-v3.2"):
        times = times_of(name, layout, chips=system(chips))
        near, far = (
            times.parts_s(StepLoad(decoding=64.0, context_tokens=64.0 * tokens))["attention"]
            for tokens in (4096.0, 65536.0)
        )
        grown[name] = float(far - near)
    assert grown["deepseek-v3.2"] < 0.5 * grown["deepseek-v3"]


@pytest.mark.parametrize("engine", ["llamacpp-2025", "mlx"])
def test_experts_of_one_token_take_what_reading_them_takes(engine):
    layout = Deployment(weights="int4", experts="int4")
    chips = system("apple-m4-max")
    times = times_of("qwen3-30b-a3b", layout, profiles()[engine], chips)
    experts_s = float(times.parts_s(StepLoad(decoding=1.0, context_tokens=512.0))["experts"])
    read_s = 48 * 8 * 3 * 2048 * 768 * 0.5 / float(chips.chip.memory_bandwidth_bytes_per_s)
    assert read_s < experts_s < 3.0 * read_s
