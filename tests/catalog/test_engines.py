"""Engine profiles: which one is taken, and that each says what it stands on."""

import pytest

from foretell.catalog import chip
from foretell.catalog.engines import engine_named, profile, profiles
from foretell.errors import BadInput
from foretell.serving.memory import cache_bytes


def test_there_are_a_few_profiles_each_with_its_fit_and_source():
    known = profiles()
    assert 6 <= len(known) <= 10
    for name, one in known.items():
        assert one.id == name
        assert one.fit.rows > 0
        errors = (one.fit.tpot_ape, one.fit.ttft_ape, one.fit.throughput_ape)
        assert any(error is not None for error in errors)
        assert len(one.source) > 20
        assert cache_bytes(one.memory_rule, one.memory_fraction, 80e9, 20e9, 5e9) > 0


@pytest.mark.parametrize(
    ("engine", "version", "on", "wanted"),
    [
        ("vllm", "0.18.0", "h200-sxm", "vllm-0.18-hopper"),
        ("vllm", "", "b200-sxm", "vllm-0.11-blackwell"),
        ("vLLM (2023, Splitwise)", "2023", "a100-sxm-80gb", "vllm-2023"),
        ("TensorRT-LLM", "0.6.1", "h100-sxm", "trtllm-0.5"),
        ("TensorRT-LLM (C++ engine)", "0.17", "a100-sxm-80gb", "trtllm-0.17"),
        ("trtllm", "1.1.0rc2", "h200-sxm", "trtllm-1-hopper"),
        ("trtllm", "", "gb200", "trtllm-1-blackwell"),
        ("sglang", "", "b200-sxm", "sglang-0.5-hopper"),
        ("vllm-2023", "", "h200-sxm", "vllm-2023"),
        ("vllm", "", "a100-sxm-80gb", "vllm-0.18-hopper"),
        ("vllm", "", "v100-sxm-32gb", "vllm-0.18-hopper"),
        ("trtllm", "", "a100-sxm-80gb", "trtllm-0.17"),
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
