"""A mix is its workloads weighed, and a front is what brute force says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.studies.study_file import read_study
from foretell.studies.sweep.codesign import of_frame
from foretell.studies.sweep.frames import shard_frame
from foretell.studies.sweep.mix import (
    MixPoints,
    combine_column,
    is_rate,
    mix_front,
    mix_points,
    shares,
)

COLUMNS = ("usd_per_million_work_tokens", "work_tokens_per_s_per_gpu", "peak_watts")
STUDY = {
    "study": {"kind": "training", "plan": "zero3 recompute=full"},
    "base": {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8, "rent": "own"},
    "vary": {"global_batch": [32, 64]},
    "objectives": {COLUMNS[0]: "min", COLUMNS[1]: "max"},
    "limits": {COLUMNS[2]: 50.0},
}
TRAIN = {"name": "train", "weight": 3, "seq_len": 4096}
CHAT = {"name": "chat", "kind": "serving", "weight": 1, "isl": 512, "osl": 128, "concurrency": 8}


def study(**changes: Any) -> Any:
    """The study with tables changed."""
    return read_study({**STUDY, **changes})


NUMBER = st.one_of(st.floats(1.0, 100.0), st.just(float("nan")), st.integers(1, 4).map(float))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBER, NUMBER, NUMBER, st.booleans()), min_size=1, max_size=40))
def test_the_front_is_what_brute_force_says(rows: list[tuple[float, float, float, bool]]) -> None:
    cost, speed, watts = (np.array([row[i] for row in rows]) for i in range(3))
    possible = np.array([row[3] for row in rows])
    table = MixPoints(
        points=np.arange(len(rows)),
        values={},
        columns=dict(zip(COLUMNS, (cost, speed, watts), strict=True)),
        possible=possible,
        problems=tuple("" if p else "no" for p in possible),
        plans={},
    )
    found = mix_front(study(), table)
    will_do = possible & (watts <= 50.0)
    known = will_do & ~np.isnan(cost) & ~np.isnan(speed)
    for i in range(len(rows)):
        beaten = any(
            known[j]
            and cost[j] <= cost[i]
            and speed[j] >= speed[i]
            and (cost[j] < cost[i] or speed[j] > speed[i])
            for j in range(len(rows))
        )
        assert found.front[i] == (known[i] and not beaten)
    assert (found.within == will_do).all()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 100.0), st.floats(0.1, 1e3)), min_size=1, max_size=5),
    st.floats(0.1, 100.0),
)
def test_weights_are_shares(parts: list[tuple[float, float]], factor: float) -> None:
    weights, values = zip(*parts, strict=True)
    mix = {
        scale: read_study(
            {**STUDY, "workload": [
                {"name": str(i), "weight": w * scale} for i, w in enumerate(weights)
            ]}
        )
        for scale in (1.0, factor)
    }  # fmt: skip
    each = {str(i): np.array([value]) for i, value in enumerate(values)}
    share = shares(mix[1.0])
    assert sum(share.values()) == pytest.approx(1.0)
    assert shares(mix[factor]) == pytest.approx(share)
    for name in COLUMNS[:2]:
        whole = float(combine_column(name, each, share)[0])
        assert min(values) <= whole * (1 + 1e-9)
        assert whole <= max(values) * (1 + 1e-9)
    mean = sum(w * v for w, v in zip(share.values(), values, strict=True))
    slow = 1.0 / sum(w / v for w, v in zip(share.values(), values, strict=True))
    assert combine_column(COLUMNS[0], each, share)[0] == pytest.approx(mean)
    assert combine_column(COLUMNS[1], each, share)[0] == pytest.approx(slow)
    assert combine_column(COLUMNS[2], each, share)[0] == max(values)
    assert [is_rate(name) for name in COLUMNS] == [False, True, False]


def test_one_workload_is_the_study_itself() -> None:
    """Its weight does not matter, and the bare columns are its own."""
    alone = study()
    one = study(workload=[{"name": "it", "weight": 0.3, "seq_len": 4096}])
    a = mix_points(alone, shard_frame(alone, 0))
    b = mix_points(one, shard_frame(one, 0))
    assert a.possible.tolist() == b.possible.tolist() == [True, True]
    for name, column in a.columns.items():
        np.testing.assert_allclose(b.columns[name], column, rtol=1e-12)
        np.testing.assert_allclose(b.columns[f"it.{name}"], column, rtol=1e-12)


def test_a_mix_of_training_and_serving() -> None:
    known = study(workload=[TRAIN, CHAT], limits={})
    found = of_frame(known, shard_frame(known, 0))
    told = found.to_dict()
    assert [(w["verb"], w["share"]) for w in told["workloads"]] == [
        ("estimate", 0.75),
        ("serve", 0.25),
    ]
    for point in told["front"]:
        cost, speed = COLUMNS[:2]
        train, chat = point["workloads"]["train"], point["workloads"]["chat"]
        assert point["mix"][cost] == pytest.approx(0.75 * train[cost] + 0.25 * chat[cost])
        assert point["mix"][speed] == pytest.approx(1 / (0.75 / train[speed] + 0.25 / chat[speed]))
        assert point["mix"]["capital_usd"] == max(train["capital_usd"], chat["capital_usd"])
        # What the same tokens cost by the hour is what they cost by the token.
        for row in (train, chat):
            by_hour = row["usd_per_gpu_hour"] / 3600 / row[speed] * 1e6
            assert row[cost] == pytest.approx(by_hour)
        assert chat[speed] == pytest.approx(chat["requests_per_s"] * (512 + 128) / 8)
        assert train[speed] == pytest.approx(train["tokens_per_s_per_gpu"])
    assert {row["workload"] for row in told["best"]} == {"train", "chat"}
