"""What a post-training answer prints: words that give the same step, tokens, what fits, what was assumed."""

from typing import Any

import pytest

import foretell

RL: dict[str, Any] = {
    "model": "qwen2.5-7b",
    "gpus": "16xH100",
    "prompts": 256,
    "samples": 8,
    "osl": 1500,
    "max_osl": 8192,
}
TUNING: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "algorithm": "sft",
    "gpus": "8xH100",
    "prompts": 64,
    "isl": 4096,
}


@pytest.mark.parametrize(
    "asked",
    [
        RL,
        {**RL, "micro_tokens": 8192, "framework": "verl"},
        {**RL, "framework": "trl"},
        {**RL, "framework": "slime"},
        {**RL, "plan": "mbs2 zero3"},
        TUNING,
        {**TUNING, "algorithm": "dpo", "isl": 1500},
        {**TUNING, "plan": "mbs2"},
    ],
)
def test_a_printed_plan_gives_its_own_step(asked: dict[str, Any]) -> None:
    found = foretell.post_train(**asked)
    assert ("mbs" in found.plan) == (found.micro_tokens is None)
    printed: dict[str, Any] = {"plan": found.plan, "micro_tokens": found.micro_tokens}
    if found.rollout_plan:
        printed["rollout_plan"] = found.rollout_plan
    again = foretell.post_train(**{**asked, **printed})
    assert again.step_s == pytest.approx(found.step_s, rel=1e-9)
    assert again.plan == found.plan


def test_words_of_a_printed_rl_plan_are_enough() -> None:
    found = foretell.post_train(**RL)
    again = foretell.post_train(**RL, plan=found.plan, rollout_plan=found.rollout_plan)
    assert again.step_s == pytest.approx(found.step_s, rel=1e-9)
