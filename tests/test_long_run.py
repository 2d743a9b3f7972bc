"""A whole run: what it adds to a step, its defaults, and published runs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.specs.result import Run
from foretell.training.long_run import USUAL, Interruptions, best_interval_s, goodput, in_steps

ASKED: dict[str, Any] = {"system": "h100-sxm", "gpus": 512, "plan": "tp8 pp4 zero1 mbs1"}


def run(tokens: Any = "15T", **more: Any) -> Run:
    found = foretell.estimate("llama-3.1-70b", **ASKED, tokens=tokens, **more).run
    assert found is not None
    return found


def test_a_run_is_its_steps_and_what_interrupts_them() -> None:
    result = foretell.estimate("llama-3.1-70b", **ASKED, tokens="15T")
    found = result.run
    assert found is not None
    assert found.steps == pytest.approx(15e12 / (1024 * 4096), abs=1.0)
    assert found.days_without_failures == pytest.approx(found.steps * result.step_s / 86400)
    assert found.days == pytest.approx(found.days_without_failures / found.goodput)
    assert found.gpu_hours == pytest.approx(512 * 24 * found.days)
    shares = found.checkpoint_share * found.rework_share * found.restart_share
    assert found.goodput == pytest.approx(shares)
    assert found.failures == pytest.approx(USUAL["failures_per_gpu_day"] * 512 * found.days)
    assert found.checkpoint_interval_steps == pytest.approx(
        round(found.checkpoint_interval_steps or 0)
    )
    # 2 bytes of weights, 4 of the master copy, 8 of the states.
    assert found.checkpoint_bytes == pytest.approx(14 * 70.554e9, rel=1e-3)
    about = Interruptions(
        failures_per_s=1.0 / (found.mean_time_between_failures_s or 1.0),
        restart_s=found.restart_s,
        wait_s=found.checkpoint_wait_s,
        write_s=found.checkpoint_write_s,
    )
    assert found.goodput == pytest.approx(
        float(goodput(found.checkpoint_interval_s or 0.0, about).goodput)
    )
    low, high = found.interval["p90"] if found.interval else (0.0, 0.0)
    narrow = found.interval["p50"] if found.interval else (0.0, 0.0)
    assert low < narrow[0] < found.days < narrow[1] < high
    assert result.energy_joules is not None
    assert found.energy_joules is not None
    assert found.energy_joules > result.energy_joules * found.steps
    assert any("419" in text for text in result.assumptions)
    assert result.to_dict()["run"]["days"] == found.days


def test_nothing_fails() -> None:
    found = run(failures_per_gpu_day=0)
    assert (found.goodput, found.failures) == (1.0, 0.0)
    assert found.checkpoint_interval_s is None
    assert found.mean_time_between_failures_s is None


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(1e-5, 1e-1), restart=st.floats(1e-3, 5000.0), more=st.floats(1.01, 4.0))
def test_more_failures_and_longer_restarts_take_longer(
    rate: float, restart: float, more: float
) -> None:
    now = run(failures_per_gpu_day=rate, restart_s=restart)
    assert run(failures_per_gpu_day=rate * more, restart_s=restart).days >= now.days
    assert run(failures_per_gpu_day=rate, restart_s=restart * more).days >= now.days
    assert 0.0 < now.goodput <= 1.0


def test_the_chosen_interval_beats_others() -> None:
    best = run()
    assert best.checkpoint_interval_chosen
    for minutes in ("1min", "3min", "30min", "2h", "1d"):
        other = run(checkpoint_interval=minutes)
        assert not other.checkpoint_interval_chosen
        assert other.days >= best.days
    assert run(checkpoint="sync").days > best.days


@given(share=st.floats(0.15, 6.0))
def test_the_best_interval_in_whole_steps_beats_every_other_number_of_them(share: float) -> None:
    """Steps that are long beside the best interval: the next number of them up or down may be better."""
    given = Interruptions(failures_per_s=1e-4, restart_s=60.0, wait_s=2.0, write_s=1.0)
    step_s = share * float(best_interval_s(given))
    every = np.arange(1, 20) * step_s
    assert in_steps(0.0, step_s, given) == every[goodput(every, given).goodput.argmax()]


def test_compute_optimal_and_adapters() -> None:
    found = run("chinchilla")
    assert found.tokens == pytest.approx(20 * 70.554e9, rel=1e-3)
    assert found.tokens_per_parameter == pytest.approx(20.0)
    adapters = foretell.estimate(
        "llama-3.1-70b", system="h100-sxm", gpus=64, plan="tp8 lora=16 mbs1", tokens="1B"
    ).run
    assert adapters is not None
    assert adapters.checkpoint_bytes < 0.01 * found.checkpoint_bytes


def test_llama_3_405b() -> None:
    """15.6 trillion tokens on 16,384 chips took 30.84 million hours of them, over 90 % effective.

    Llama Team, arXiv 2407.21783 (tokens, effective time) and the model card of Llama 3.1 (hours).
    """
    result = foretell.estimate(
        "llama-3.1-405b",
        system="h100-sxm",
        gpus=16384,
        global_batch=2048,
        seq_len=8192,
        plan="tp8 pp16 vpp8 dp64 cp2 zero1 mbs1",
        tokens="15.6T",
    )
    found = result.run
    assert found is not None
    assert found.interval is not None
    assert 0.90 < found.goodput < 0.97
    low, high = (days * 24 * 16384 for days in found.interval["p90"])
    assert low < 30.84e6 < high


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": "15 apples"}, "tokens"),
        ({"tokens": "0"}, "tokens: out of range"),
        ({"tokens": "1T", "failures_per_gpu_day": "-1"}, "failures_per_gpu_day"),
        ({"tokens": "1T", "checkpoint": "asink"}, "did you mean async"),
        ({"tokens": "1T", "checkpoint_interval": "3 GB"}, "checkpoint_interval"),
        ({"tokens": "1T", "storage_bandwidth": "1MB/s", "checkpoint_interval": "60"}, "is written"),
        ({"restart_s": "60"}, "restart_s: has no effect without tokens"),
    ],
)
def test_bad_conditions(given: dict[str, Any], said: str) -> None:
    with pytest.raises(foretell.BadInput, match=said):
        foretell.estimate("llama-3.1-70b", **ASKED, **given)


def test_all_problems_at_once() -> None:
    asked = ASKED | {"gpus": "many"}
    with pytest.raises(foretell.BadInput) as caught:
        foretell.estimate("llama-3.1-70b", **asked, tokens="x", restart_s="y")
    assert {p.path for p in caught.value.problems} == {"gpus", "tokens", "restart_s"}
