"""The simulator's clock against the steps that it samples."""

import math

import numpy as np
import pytest

from foretell.inputs.question import ask
from foretell.serving.clock import FEW, SampledClock
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.steps import StepTimes, step_times
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile, Fit

PROFILE = EngineProfile(
    id="plain", engine="vllm", since="", until="", years=(0, 0), architectures=(),
    software=("vllm", "trtllm"), source="a test", fit=Fit(rows=0),
    launch_s=1e-5, prefill_factor=1.2,
)  # fmt: skip


@pytest.fixture(scope="module", params=["llama-3.1-8b", "deepseek-v3"])
def times(request: pytest.FixtureRequest) -> StepTimes:
    scenario = ask(model=request.param, system="h200-sxm", gpus=8)
    return step_times(scenario.model, scenario.system, Deployment(tp=8), PROFILE)


def test_decode_steps_are_read_as_they_were_sampled(times: StepTimes) -> None:
    clock = SampledClock(times, 64)
    rng = np.random.default_rng(5)
    for _ in range(200):
        n = int(rng.integers(1, 65))
        context = float(n * rng.integers(1, 30_000))
        a, b, upto = clock.line(n, context)
        assert context < upto
        want = float(times.seconds(StepLoad(decoding=n, context_tokens=context)))
        assert a + b * context == pytest.approx(want, rel=2e-3)
        if math.isfinite(upto):
            after = clock.line(n, upto)
            assert a + b * upto == pytest.approx(after[0] + after[1] * upto, rel=1e-9)


def test_steps_with_prompts_are_near_to_what_was_sampled(times: StepTimes) -> None:
    clock = SampledClock(times, 64)
    rng = np.random.default_rng(6)
    errors = []
    for _ in range(300):
        n, k = int(rng.integers(0, 65)), int(rng.choice([1, 1, 2, 3, 7]))
        context, new = float(n * rng.integers(1, 8000)), float(rng.integers(k, 8192))
        past = float(rng.choice([0, rng.integers(0, 20_000)]))
        load = StepLoad(
            decoding=n, context_tokens=context, prefill_tokens=new, past_tokens=past, prompts=k
        )
        want = float(times.seconds(load))
        errors.append(abs(clock.mixed(n, context, new, past, k) / want - 1.0))
    assert np.median(errors) < 0.005
    assert max(errors) < 0.12


def test_numbers_of_prompts_between_and_beyond_what_was_sampled(times: StepTimes) -> None:
    clock = SampledClock(times, 64)
    most = clock.mixed(8, 4000.0, 4096.0, 0.0, FEW[-1])
    assert clock.mixed(8, 4000.0, 4096.0, 0.0, 3 * FEW[-1]) == most
    # Halfway between two numbers that were sampled, the mean of both.
    fewer = clock.mixed(8, 4000.0, 4096.0, 0.0, FEW[-2])
    between = clock.mixed(8, 4000.0, 4096.0, 0.0, (FEW[-2] + FEW[-1]) // 2)
    assert most != fewer
    assert between == pytest.approx(0.5 * (fewer + most), rel=1e-12)
