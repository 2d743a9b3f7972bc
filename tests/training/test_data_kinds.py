"""Which collectives the replicas of plans send, by their ZeRO stages."""

import numpy as np
import pytest

from foretell.training.rank_links import data_kinds

SHARED = ("reduce-scatter", "all-gather")


@pytest.mark.parametrize(
    ("stages", "kinds"),
    [((0,), ("all-reduce",)), ((1,), SHARED), ((3, 1), SHARED), ((0, 2), (*SHARED, "all-reduce"))],
)
def test_what_a_stage_sends(stages: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    assert data_kinds(np.array(stages, float)) == kinds
