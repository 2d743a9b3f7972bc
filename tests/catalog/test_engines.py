"""Engine profiles: which one is taken, and that each says what it stands on."""

from dataclasses import replace

import pytest

import foretell
from foretell.catalog import chip
from foretell.catalog.engines import (
    IN_TURN_S,
    USUAL,
    engine_named,
    engine_releases,
    knows_kind,
    profile,
    profiles,
    release_named,
    release_of_profile,
)
from foretell.errors import BadInput
from foretell.serving.memory import cache_bytes


def test_there_are_a_few_profiles_each_with_its_fit_and_source():
    known = profiles()
    assert 6 <= len(known) <= 30
    for name, one in known.items():
        assert one.id == name
        errors = (one.fit.tpot_ape, one.fit.ttft_ape, one.fit.throughput_ape)
        # An engine without rows has its documented defaults, and claims no error of its own.
        assert any(error is not None for error in errors) == (one.fit.rows > 0)
        assert len(one.source) > 20
        share = one.memory_fraction or release_of_profile(one).memory_fraction
        assert (
            cache_bytes(one.memory_rule, share, card=80e9, weights=20e9, step=3e9, reserve=2e9) > 0
        )


@pytest.mark.parametrize(
    ("engine", "version", "on", "wanted"),
    [
        ("vllm", "0.18.0", "h200-sxm", "vllm-0.18-hopper"),
        ("vllm", "", "b200-sxm", "vllm-0.18-blackwell"),
        ("vLLM (2023, Splitwise)", "2023", "a100-sxm-80gb", "vllm-2023"),
        ("TensorRT-LLM", "0.6.1", "h100-sxm", "trtllm-0.5"),
        ("TensorRT-LLM (C++ engine)", "0.17", "a100-sxm-80gb", "trtllm-0.17"),
        ("trtllm", "1.1.0rc2", "h200-sxm", "trtllm-1-hopper"),
        ("trtllm", "", "gb200", "trtllm-1.2-blackwell"),
        ("sglang", "", "b200-sxm", "sglang-0.5-blackwell"),
        ("sglang", "", "mi325x", "sglang-0.5-cdna3"),
        ("sglang", "", "mi355x", "sglang-0.5-cdna4"),
        ("dynamo-trt", "0.5.1", "gb200", "trtllm-1-blackwell"),
        ("dynamo-trt", "0.8.1.post2", "gb200", "trtllm-1.2-blackwell"),
        ("dynamo-trt", "1.1.0-dev.2", "gb200", "trtllm-1.2-blackwell"),
        ("llama.cpp", "2024-05", "rtx3090", "llamacpp-2024"),
        ("llama.cpp", "", "rtx3090", "llamacpp-2025"),
        ("vllm-2023", "", "h200-sxm", "vllm-2023"),
        ("vllm", "", "a100-sxm-80gb", "vllm-0.18-hopper"),
        ("vllm", "0.6.3", "a100-sxm-80gb", "vllm-0.6"),
        ("vllm", "0.2.0", "a100-sxm-80gb", "vllm-2023"),
        ("NVIDIA NIM", "", "h100-sxm", "trtllm-1-hopper"),
        ("vllm", "0.2.7", "a100-sxm-80gb", "vllm-0.6"),
        ("vllm", "0.3.3", "a10g", "vllm-0.6"),
        ("vLLM", "2024-12 (latest then)", "h100-sxm", "vllm-0.6"),
        ("vllm", "0.10.2", "h100-sxm", "vllm-0.11-blackwell"),
        ("vllm", "", "v100-sxm-32gb", "vllm-0.18-hopper"),
        ("trtllm", "", "a100-sxm-80gb", "trtllm-1-hopper"),
        ("nemo", "", "h100-sxm", "nemo-2023"),
        ("vllm-0.2", "", "h100-sxm", "vllm-2023"),
        ("vllm 0.11.1", "", "h100-sxm", "vllm-0.11-blackwell"),
    ],
)
def test_engine_version_and_chip_choose_the_profile(engine, version, on, wanted):
    assert profile(engine, chip(on), version).id == wanted


def test_an_unknown_engine_is_bad_input_with_the_nearest():
    with pytest.raises(BadInput) as caught:
        profile("vlm", chip("h200-sxm"))
    assert caught.value.problems[0].nearest == "vllm"
    assert engine_named("TensorRT-LLM") == "trtllm"


def test_an_engine_of_today_is_meant_on_old_chips_too():
    on_a100 = profile("vllm", chip("a100-sxm-80gb"))
    assert on_a100.graph
    assert on_a100.years[1] == 0
    assert profile("vllm-2023", chip("a100-sxm-80gb")).graph is False


def test_small_cards_and_a100s_have_the_limits_that_vllm_sets_there():
    large, small = profile("vllm", chip("h100-sxm")), profile("vllm", chip("l40s"))
    assert (small.max_batch, small.max_tokens) == (256, 2048)
    assert large.max_tokens == 8192
    assert profile("vllm", chip("a100-sxm-80gb")).max_tokens == 2048
    assert profile("vllm", chip("mi300x")).max_tokens == 8192
    assert large.max_batch == 1024


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("l4", 2048), ("l40s", 4096), ("h100-sxm", 8192), ("h200-sxm", 8192), ("b200-sxm", 16384),
     ("mi300x", 16384)],
)  # fmt: skip
def test_sglang_cuts_prompts_by_the_cards_memory(name: str, tokens: int):
    """chunked_prefill_size by memory: sglang v0.5.9, server_args.py, _handle_gpu_memory_settings."""
    assert profile("sglang", chip(name)).max_tokens == tokens


def test_tensorrt_llm_has_its_own_default_limits():
    """llm_args.py of the 1.x line: max_batch_size 2048, max_num_tokens 8192."""
    for name in ("b200-sxm", "h200-sxm"):
        found = profile("trtllm", chip(name), "1.1")
        assert (found.max_batch, found.max_tokens) == (2048, 8192)


def test_on_another_generation_overheads_are_the_usual_ones_and_rules_stay():
    own, other = (
        profile("trtllm", chip("h200-sxm"), "1.0"),
        profile("sglang", chip("a100-sxm-80gb")),
    )
    assert replace(own, release="") == profiles()["trtllm-1-hopper"]
    assert own.release == "1.0"
    fitted = profiles()["sglang-0.5-hopper"]
    assert {name: getattr(other, name) for name in USUAL} == dict(USUAL)
    assert (other.policy, other.memory_rule) == (fitted.policy, fitted.memory_rule)


def test_engines_that_wait_for_their_host_are_faster_where_hosts_are():
    old, new = (profile("vllm", chip(on), "2023") for on in ("a100-sxm-80gb", "h100-sxm"))
    assert new.eager_layer_s == pytest.approx(old.eager_layer_s / 1.4)
    assert new.eager_sequence_s == pytest.approx(old.eager_sequence_s / 1.4)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_an_engine_leaves_room_on_a_small_card(engine):
    """Llama-3.1-8B is served in 16 bits on cards of 24 GB."""
    found = foretell.serve(
        "llama-3.1-8b",
        system="l4",
        gpus=1,
        isl=256,
        osl=128,
        concurrency=4,
        plan="tp1",
        engine=engine,
    )
    assert 1e9 < found.kv_bytes < 7e9


def test_a_graph_of_neuron_is_no_engine_that_is_known_here() -> None:
    """Its name ends like PyTorch's library of models, whose profile would say too much."""
    assert engine_named("Transformers NeuronX") == "neuron"
    with pytest.raises(BadInput):
        profile("Transformers NeuronX", chip("trainium1"))
    assert engine_named("vLLM on Neuron") == "vllm"


def test_tables_of_an_engine_say_nothing_of_chips_they_do_not_have() -> None:
    early = profile("TensorRT-LLM", chip("b200-sxm"), "0.19")
    assert early.id == "trtllm-0.17"
    assert chip("b200-sxm").architecture not in early.architectures


@pytest.mark.parametrize(
    ("engine", "on", "mixture"),
    [("trtllm", "h200-sxm", False), ("vllm", "h200-sxm", False), ("vllm", "b200-sxm", False)],
)
def test_of_another_kind_of_model_a_profile_keeps_its_host_alone(engine, on, mixture):
    """Steps with prompts of dense models say little of those of mixtures, and the other way round."""
    own, other = (profile(engine, chip(on), mixture=kind) for kind in (not mixture, mixture))
    assert own == profiles()[own.id] or own.limits_by_card
    assert knows_kind(own, mixture=not mixture)
    assert not knows_kind(other, mixture=mixture)
    assert other.host_step_s == own.host_step_s
    assert other.prefill_factor == USUAL["prefill_factor"]
    assert other.launch_s == USUAL["launch_s"]
    assert (other.policy, other.max_tokens, other.memory_rule) == (
        own.policy, own.max_tokens, own.memory_rule,
    )  # fmt: skip


def test_a_profile_named_by_its_id_is_as_it_stands():
    for name, own in profiles().items():
        for kind in (True, False):
            assert profile(name, chip("h100-sxm"), mixture=kind) == own


def test_a_host_that_schedules_in_turn_shows():
    """vLLM before asynchronous scheduling, on a generation that it was not fitted on."""
    before, after = (profile("vllm", chip("h100-sxm"), v) for v in ("0.11.0", "0.18.0"))
    assert not before.overlapped
    assert after.overlapped
    assert before.host_step_s == pytest.approx(USUAL["host_step_s"] + IN_TURN_S)
    assert profiles()["vllm-0.11-blackwell"].host_step_s > USUAL["host_step_s"] + 0.5 * IN_TURN_S


def test_the_first_version_with_the_second_engine_is_of_its_profile():
    assert profile("vllm", chip("b200-sxm"), "0.8.5").id == "vllm-0.11-blackwell"
    assert profile("vllm", chip("h100-sxm"), "0.7.3").id == "vllm-0.6"


@pytest.mark.parametrize(
    "on", ["a100-sxm-80gb", "l40s", "h200-sxm", "b200-sxm", "b300-sxm", "mi300x"]
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_an_engine_without_a_version_is_its_newest_on_every_chip(engine, on):
    found = profile(engine, chip(on))
    assert not found.until
    assert release_of_profile(found) == engine_releases(engine)[-1]


@pytest.mark.parametrize(
    ("version", "first"),
    [("0.6.3", ""), ("0.8.5", "0.8"), ("0.15.1", "0.9"), ("0.19", "0.17"), ("0.20.1", "0.20"),
     ("0.21.0", "0.21"), ("2025-04", "0.8"), ("2023", ""), ("", "0.28"), ("1.5", "0.28")],
)  # fmt: skip
def test_a_version_or_a_date_names_a_release(version, first):
    assert release_named("vllm", version).release == first
