"""Batches without an engine, on steps whose seconds are a straight line in their load: answers by hand."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import foretell
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.static import offline_tokens_per_s, static_batch
from foretell.serving.tables import UNEVEN

SECONDS = {
    "decoding": 3e-5, "context_tokens": 2e-9, "prefill_tokens": 4e-6, "prompts": 1e-4, "past_tokens": 7e-7,
}  # fmt: skip
"""What each unit of load adds to a step of 1 ms."""


def straight(policy: str = "mixed", budget: int = 2048, dp: int = 1, pp: int = 1) -> Any:
    def seconds(load: StepLoad) -> Any:
        parts = [SECONDS[f.name] * getattr(load, f.name) for f in fields(load) if f.name in SECONDS]
        return 1e-3 + np.asarray(sum(parts), float)

    return SimpleNamespace(
        profile=SimpleNamespace(max_tokens=budget, policy=policy, shared_tokens=False),
        deployment=SimpleNamespace(max_tokens=None, dp=dp, pp=pp, accepted=0.0),
        seconds=seconds,
    )


@pytest.mark.parametrize(("batch", "isl", "osl"), [(1, 100, 1), (16, 1000, 200)])
def test_a_batch_takes_its_prompts_and_then_a_step_for_each_further_token(
    batch: int, isl: int, osl: int
) -> None:
    found = static_batch(straight(), batch, isl, osl)
    ttft = 1e-3 + 4e-6 * batch * isl + 1e-4 * batch
    tpot = 1e-3 + 3e-5 * batch + 2e-9 * batch * (isl + 0.5 * osl)
    assert float(found.ttft_s) == pytest.approx(ttft, rel=1e-12)
    assert float(found.tpot_s) == pytest.approx(tpot, rel=1e-12)
    assert float(found.e2e_s) == pytest.approx(ttft + (osl - 1) * tpot, rel=1e-12)


@pytest.mark.parametrize(
    ("isl", "budget", "dp", "prompts"),
    [
        (100, 1024, 1, 9.92),  # (1024 - 32) / 100 prompts a step
        (100, 1024, 2, 20.16),  # every replica has a budget
        (10, 8192, 1, 32.0),  # no more than there are sequences
        (4000, 1024, 1, 0.25),  # the cap: whole chunks, 4 of them
        (4096, 1024, 1, 0.25),
        (4096, 1024, 4, 1.0),  # a chunk of a prompt of its own on every rank
    ],
)
@pytest.mark.parametrize("policy", ["mixed", "prefill-first"])
def test_an_endless_queue_by_hand(
    isl: int, budget: int, dp: int, prompts: float, policy: str
) -> None:
    """n osl / ((osl - 1) t_d + n t_p): half of a prompt that comes in chunks is in the cache on average."""
    n, osl, pp = 32.0, 50.0, 2
    decode_s = 1e-3 + 3e-5 * n + 2e-9 * n * (isl + UNEVEN * osl)
    cut = max(prompts, float(dp))
    added_s = 4e-6 * prompts * isl + 1e-4 * cut
    if policy == "prefill-first":
        prompt_s = (1e-3 + added_s) / prompts
    else:
        past = max(cut - prompts, 0.0) * isl * 0.5
        prompt_s = (added_s + 7e-7 * past) / prompts
    got = float(offline_tokens_per_s(straight(policy, budget, dp, pp), n, isl, osl))
    assert got == pytest.approx(n * osl / ((osl - 1.0) * decode_s + n * prompt_s / pp), rel=1e-9)


def test_all_22_cells_of_llama_2_are_answered_by_an_engine_of_their_time() -> None:
    """A100 and H100, TP 1 to 8, one sequence of 200 in and 200 out, asked by date alone."""
    found = {}
    for chip in ("a100-sxm-80gb", "h100-sxm"):
        for name, degrees in (
            ("llama-2-7b", (1, 2, 4, 8)),
            ("llama-2-13b", (1, 2, 4, 8)),
            ("llama-2-70b", (2, 4, 8)),
        ):
            for tp in degrees:
                one = foretell.serve(
                    name, system=chip, gpus=tp, isl=200, osl=200, concurrency=1, plan=f"tp{tp}",
                    engine="2023-08",
                )  # fmt: skip
                assert one.profile == "nemo-2023"
                found[chip, name, tp] = one.e2e_ms.mean
    assert len(found) == 22
    for (chip, name, tp), spent in found.items():
        if chip == "a100-sxm-80gb":
            assert found["h100-sxm", name, tp] < spent
        if tp in (2, 4):
            assert found[chip, name, 2 * tp] < 1.1 * spent
