"""Memory of a long step from a short play: every number of the full replay."""

import numpy as np
import pytest

import foretell
from foretell.schedules import schedule_named
from foretell.simulation import memory_timeline
from foretell.simulation.answer import MemoryAnswer
from foretell.simulation.memory import few_micro_batches

PLANS = (
    "tp8 pp1 dp1 zero0 mbs1",
    "tp2 pp4 dp1 mbs1",
    "tp2 pp4 vpp2 dp1 mbs1 recompute=selective",
    "tp2 pp4 dp1 mbs1 schedule=zb-h1",
    "tp2 pp4 vpp2 dp1 mbs1 schedule=zb-v",
    "tp2 pp4 dp1 mbs1 schedule=dualpipe",
    "tp2 pp4 vpp4 dp1 mbs1 offload=activations",
)


def memory(plan: str, many: int) -> MemoryAnswer:
    return foretell.memory(
        "llama-3.1-8b", system="h100-sxm", gpus=8, global_batch=many, seq_len=2048, plan=plan
    )


@pytest.mark.parametrize("plan", PLANS)
def test_short_play_has_the_peak_of_the_whole(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    many = 96
    short = memory(plan, many)
    monkeypatch.setattr(memory_timeline, "few_micro_batches", lambda *sizes: sizes[-1])
    whole = memory(plan, many)
    for one, other in zip(short.step.stages, whole.step.stages, strict=True):
        assert len(one.line.moments_s) < len(other.line.moments_s)
        assert one.line.peak == pytest.approx(other.line.peak, rel=1e-6)
        assert one.kept_at_peak == pytest.approx(dict(other.kept_at_peak), rel=1e-6)
        assert np.all(np.diff(one.line.moments_s) >= 0.0)
        assert one.line.moments_s[-1] == pytest.approx(other.line.moments_s[-1], rel=1e-9)
        # In the middle, which is not played, it holds the most that the whole play holds there.
        half = 0.5 * one.line.moments_s[-1]
        near = np.abs(other.line.moments_s - half) < 0.05 * half
        most = other.line.allocated_bytes[near].max()
        index = int(np.searchsorted(one.line.moments_s, half))
        assert one.line.allocated_bytes[index] == pytest.approx(most, rel=1e-6)


def test_all_are_played_where_all_are_held() -> None:
    assert few_micro_batches(schedule_named("gpipe"), 4, 1, 1000) == 1000
    assert few_micro_batches(schedule_named("1f1b"), 4, 1, 1000) < 30
    assert few_micro_batches(schedule_named("1f1b"), 4, 1, 12) == 12
    few = few_micro_batches(schedule_named("interleaved"), 4, 2, 1024)
    assert few % 4 == 0
    assert few < 30
