"""What the allocator ends a step with: passing over micro-batches that repeat changes nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.schedules import schedule_named
from foretell.schedules.base import Task
from foretell.simulation import reservation as reserved
from foretell.simulation.memory import LayerTensors, RankTensors, Tensor

SIZES = st.integers(512, 200 * 2**20).map(float)
LAYERS = st.builds(
    lambda kept, passing: LayerTensors(
        kept={Tensor("kept", "tensor", i): size for i, size in enumerate(kept)},
        passing_bytes=passing,
    ),
    st.lists(SIZES, min_size=1, max_size=4),
    SIZES,
)
RANKS = st.builds(
    lambda always, layers, head: RankTensors(
        always={"weights": always}, chunks=(tuple(layers),), head_bytes=(head,)
    ),
    SIZES,
    st.lists(LAYERS, min_size=1, max_size=4),
    st.just(0.0) | SIZES,
)


def played(tasks: list[Task], tensors: RankTensors) -> float:
    """Every task, none passed over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reserved, "_again", lambda tasks, before, now: 0)
        return reserved.reserved_bytes(tasks, tensors)


@settings(max_examples=60)
@given(RANKS, st.sampled_from(("1f1b", "gpipe", "zb-h1")), st.integers(1, 3), st.integers(3, 12))
def test_passing_over_what_repeats_changes_nothing(
    tensors: RankTensors, name: str, pp: int, many: int
) -> None:
    for rank in range(pp):
        tasks = schedule_named(name).tasks(rank, pp, 1, many)
        assert reserved.reserved_bytes(tasks, tensors) == played(tasks, tensors)


def test_a_thousand_micro_batches_are_played_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    run = reserved._Device.run
    monkeypatch.setattr(
        reserved._Device, "run", lambda self, task: (found.append(task), run(self, task))
    )
    kept = {Tensor("kept", "a", 0): 30e6, Tensor("kept", "b", 1): 5e6}
    layer = LayerTensors(kept=kept, passing_bytes=50e6)
    tensors = RankTensors(always={"weights": 1e9}, chunks=((layer,) * 5,), head_bytes=(9e6,))
    reserved.reserved_bytes(schedule_named("1f1b").tasks(0, 1, 1, 1000), tensors)
    assert len(found) < 20
