"""Post-training steps given measured ones: phases of a log move their groups, and the step with them."""

from pathlib import Path

import pytest

import foretell
from foretell.api.post_training import PostTraining
from foretell.errors import BadInput

ASKED = {
    "model": "qwen2.5-7b", "gpus": "8xH100", "prompts": 256, "samples": 4, "osl": 200, "max_osl": 1024,
    "framework": "verl", "rollout_plan": "tp1", "plan": "zero3 mbs1 recompute=full",
}  # fmt: skip


@pytest.fixture(scope="module")
def before() -> PostTraining:
    return foretell.post_train(**ASKED)


def verl_log(before: PostTraining, slower: float) -> str:
    """Five steps of a verl log in which generation takes so many times what is predicted."""
    seconds = {phase.name: phase.seconds for phase in before.phases}
    gen = sum(seconds[name] for name in ("wake", "generate", "sleep", "weight_sync")) * slower
    rest = seconds["old_logprob"] + seconds["ref_logprob"] + seconds["update_actor"]
    told = (
        f"timing_s/gen:{gen} - timing_s/old_log_prob:{seconds['old_logprob']} - timing_s/ref:"
        f"{seconds['ref_logprob']} - timing_s/update_actor:{seconds['update_actor']} - timing_s/step:"
        f"{gen + rest} - response_length/mean:200.0 - timing_s/dinner:1.5"
    )
    return "\n".join(f"step:{i} - {told}" for i in range(5))


def test_a_slow_generation_moves_generation_alone(before: PostTraining, tmp_path: Path) -> None:
    path = tmp_path / "verl.log"
    path.write_text(verl_log(before, 2.0))
    found = foretell.post_train(**ASKED, measured=[path])
    old = {phase.name: phase.seconds for phase in before.phases}
    new = {phase.name: phase.seconds for phase in found.phases}
    assert new["generate"] > 1.3 * old["generate"]
    assert new["update_actor"] == pytest.approx(old["update_actor"], rel=0.15)
    assert found.step_s == pytest.approx(sum(new.values()))
    assert found.prior is not None
    assert found.prior["step_s"] == pytest.approx(before.step_s)
    assert found.posterior_factors is not None
    assert found.posterior_factors["generation"]["factor"] > 1.2
    low, high = found.interval["p90"]
    assert low < found.step_s < high
    assert high / low < before.interval["p90"][1] / before.interval["p90"][0]
    assert any("warm-up skipped: the first 2 steps" in said for said in found.assumptions)
    assert any("timing_s/dinner" in said for said in found.assumptions)


def test_words_and_rows_are_read(before: PostTraining) -> None:
    seconds = {phase.name: phase.seconds for phase in before.phases}
    slow = 1.5 * seconds["update_actor"]
    told = [
        foretell.post_train(**ASKED, measured=[one]).step_s
        for one in (f"zero3: update_actor {slow} s", {"update_actor_s": slow, "plan": "zero3"})
    ]
    assert told[0] == pytest.approx(told[1])
    assert told[0] > before.step_s


def test_a_step_that_has_no_such_phase_is_refused() -> None:
    with pytest.raises(BadInput, match="no phase that this step has"):
        foretell.post_train(**ASKED, measured=["zero3: update_critic 3 s"])


def test_training_refuses_a_step_of_post_training() -> None:
    with pytest.raises(BadInput, match="post-training"):
        foretell.estimate(
            "llama-3.1-8b", gpus="64xH100", plan="tp4", measured=["tp4: gen 3 s, 9 s"]
        )
