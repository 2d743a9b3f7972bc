"""Studies are read with all that is wrong with them at once, and their points are numbered once each."""

import contextlib
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.inputs.question import ask, plan_of
from foretell.search.space import enumerate_plans
from foretell.specs.plan import parse_plan
from foretell.specs.study import Study
from foretell.studies.axes import FLAGS, columns, point_count, spaced_values
from foretell.studies.plan_words import plan_texts, word_of
from foretell.studies.study_file import read_study, text_of
from foretell.studies.sweep.run import trial_problems

TRAINING: dict[str, Any] = {
    "study": {"kind": "training"},
    "base": {"model": "llama-3.1-8b", "system": "h100-sxm"},
    "vary": {"gpus": [8, 16]},
}


def changed(**tables: Any) -> dict[str, Any]:
    """The study with some tables replaced or added to."""
    merged = {name: dict(table) for name, table in TRAINING.items()}
    for name, table in tables.items():
        merged[name] = {**merged.get(name, {}), **table} if isinstance(table, dict) else table
    return merged


def problems(**tables: Any) -> str:
    """What is said of a study that is wrong."""
    with pytest.raises(BadInput) as error:
        read_study(changed(**tables))
    return str(error.value)


def test_a_study_is_read() -> None:
    study = read_study(
        changed(
            base={"chip.tdp_watts": 500, "set": ["network.node.latency_s=2us"]},
            vary={"chip.memory_bandwidth_bytes_per_s": ["2 TB/s", 4e12], "plan.tp": [1, 2]},
            objectives={"step_s": "min"},
            limits={"peak_memory_bytes": 8e10},
        )
    )
    assert (study.verb, study.plan, study.mode) == ("estimate", "best", "product")
    assert study.settings == ("chip.tdp_watts=500", "network.node.latency_s=2us")
    assert study.axes[1].values == (2e12, 4e12)
    assert point_count(study) == 8


def test_a_name_of_the_catalogue_is_that_whatever_files_stand_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("llama-3.1-8b", "h100-sxm", "mine", "mine.toml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert read_study(TRAINING).base == TRAINING["base"]
    for name in ("mine", "mine.toml"):
        assert read_study(changed(base={"system": name})).base["system"] == str(tmp_path / name)


def test_what_a_file_has_may_stand_in_the_study() -> None:
    tables = {"model": {"model_type": "gpt2"}, "system": {"chip": "h100-sxm"}}
    study = read_study(changed(base=tables, workload=[tables]))
    assert {name: study.base[name] for name in tables} == tables
    assert read_study(study.table) == study
    assert "base.seq_len: has one value here" in problems(base={"seq_len": {}})
    assert "vary.system: not a plain value" in problems(vary={"system": [{"chip": "h100-sxm"}]})


ODD = (math.nan, 10**400, None, True, 5, [], [1], [[]], {}, {"a": []})


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:8])
def test_whatever_a_flag_is_given_is_read_or_said_to_be_wrong(odd: Any) -> None:
    for name in (*dict.fromkeys(flag for flags in FLAGS.values() for flag in flags), "plan.order"):
        base = {n: v for n, v in TRAINING["base"].items() if n != name}
        apart = {"vary": {"gpus" if name != "gpus" else "seq_len": [8]}}
        tables = [
            {**apart, "base": {**base, name: odd}},
            {**apart, "workload": [{name: odd}]},
            {"base": base, "vary": {name: [odd]}},
            {"base": base, "vary": {name: odd}},
        ]
        for kind in ("training", "serving", "cost"):
            for table in tables:
                with contextlib.suppress(BadInput):
                    study = read_study({"base": base, "study": {"kind": kind}, **table})
                    trial_problems(study)


def test_what_a_folder_keeps_of_it_reads_back() -> None:
    study = read_study(changed(workload=[{"seq_len": 2048}, {"seq_len": 4096, "weight": 2}]))
    assert read_study(study.table) == study


def test_files_beside_the_study_are_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "study.toml").write_text(
        '[study]\nkind = "training"\n[base]\nmodel = "config.json"\n[vary]\ngpus = [8]\n'
    )
    assert read_study(tmp_path / "study.toml").base["model"] == str(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"studdy": {}}, "did you mean study?"),
        ({"study": {"kindd": 1}}, "did you mean kind?"),
        ({"study": {"kind": "trainin"}}, "did you mean training?"),
        ({"study": {"mode": "random"}}, "product, list, sample"),
        ({"base": {"seqlen": 4096}}, "did you mean seq_len?"),
        ({"vary": {"seqlen": [1]}}, "did you mean seq_len?"),
        ({"vary": {"chp.tdp_watts": [1]}}, "did you mean chip?"),
        ({"vary": {"seq_len": []}}, "an empty list: there are no points"),
        ({"vary": {"seq_len": [1, 1]}}, "a value is given twice"),
        ({"vary": {"seq_len": 4096}}, "neither a list nor ends"),
        ({"vary": {"seq_len": {"low": 1, "high": 2, "stepps": 3}}}, "did you mean steps?"),
        ({"vary": {"seq_len": {"low": 1, "high": 2}}}, "vary.seq_len.steps: missing"),
        ({"vary": {"seq_len": {"low": 3, "high": 2, "steps": 2}}}, "low is above high"),
        ({"vary": {"seq_len": {"low": 0, "high": 2, "steps": 2, "scale": "log"}}}, "no logarithm"),
        ({"vary": {"chip.tdp_watts": ["5 GB"]}}, "vary.chip.tdp_watts"),
        ({"vary": {"system": ["h100-sxm"]}}, "is fixed in [base] too"),
        ({"vary": {"plan.tp": [0]}}, "vary.plan.tp: out of range"),
        ({"vary": {"plan.recompute": ["ful"]}}, "did you mean full?"),
        ({"study": {"plan": "tp8"}, "vary": {"plan.tp": [1]}}, "fixes tp too"),
        ({"study": {"plan": "tp8"}, "vary": {"plan": ["tp1"]}}, "is fixed in [study] too"),
        ({"study": {"plan": "tp8 qq"}}, "study.plan: unknown word"),
        ({"study": {"plan": "tp8"}, "base": {"plan": "tp4"}}, "contradicts study.plan"),
        ({"study": {"mode": "list"}, "vary": {"seq_len": [1, 2, 3]}}, "unequal length"),
        ({"study": {"mode": "sample"}}, "study.samples"),
        ({"study": {"samples": 10}}, "has no effect in mode product"),
        ({"study": {"seed": -1}}, "study.seed"),
        ({"base": {"seq_len": [1, 2]}}, "has one value here"),
        ({"objectives": {"step_s": "least"}}, "min, max"),
        ({"limits": {"step_s": "much"}}, "not a number"),
        ({"workload": [{"weight": 0}]}, "above 0"),
        ({"workload": [{"name": "a"}, {"name": "a"}]}, "two workloads have this name"),
        ({"workload": [{"gpus": 8}]}, "is fixed in [workload 0] too"),
    ],
)
def test_what_is_wrong_is_said(tables: dict[str, Any], said: str) -> None:
    assert said in problems(**tables)


def test_all_problems_come_at_once() -> None:
    told = problems(study={"mode": "lis"}, base={"modle": 1}, vary={"seq_len": []})
    assert len(told.splitlines()) == 3


def test_nothing_varies() -> None:
    with pytest.raises(BadInput, match="nothing varies"):
        read_study({"study": {"kind": "training"}, "base": {"model": "x"}})


def test_ends_are_in_a_range_and_powers_of_two_are_whole() -> None:
    assert spaced_values(8, 1024, 8, log=True, whole=True) == (8, 16, 32, 64, 128, 256, 512, 1024)
    assert spaced_values(1.0, 2.0, 3, log=False, whole=False) == (1.0, 1.5, 2.0)
    assert spaced_values(1, 3, 9, log=False, whole=True) == (1, 2, 3)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_their_digits(value: float) -> None:
    assert float(text_of(value)) == value


def study_of(lengths: list[int], mode: str = "product", samples: int = 0) -> Study:
    names = ("gpus", "global_batch", "seq_len")
    vary = {name: list(range(1, many + 1)) for name, many in zip(names, lengths, strict=False)}
    head: dict[str, Any] = {"kind": "training", "mode": mode}
    head |= {"samples": samples, "seed": 3} if mode == "sample" else {}
    return read_study({**TRAINING, "study": head, "vary": vary})


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.randoms())
def test_a_product_has_every_combination_once(lengths: list[int], random: Any) -> None:
    study = study_of(lengths)
    order = list(range(len(lengths)))
    random.shuffle(order)
    found = columns(study, order, np.arange(point_count(study)))
    assert set(zip(*(c.tolist() for c in found), strict=True)) == set(product(*map(range, lengths)))


@given(st.integers(0, 70_000), st.integers(1, 500))
def test_a_drawn_point_is_the_same_in_any_shard(start: int, many: int) -> None:
    study = study_of([3, 4, 5], "sample", 100_000)
    points = np.arange(start, start + many)
    whole = columns(study, (0, 1, 2), np.arange(0, start + many))
    part = columns(study, (0, 1, 2), points)
    for one, other in zip(whole, part, strict=True):
        assert np.array_equal(one[points], other)


def test_draws_lie_between_the_ends_and_depend_on_the_seed() -> None:
    ends = {"low": 2e12, "high": 8e12, "scale": "log"}
    head = {"kind": "training", "mode": "sample", "samples": 1000}
    vary = {"chip.memory_bandwidth_bytes_per_s": ends}
    drawn = [
        columns(
            read_study({**TRAINING, "study": {**head, "seed": seed}, "vary": vary}),
            (0,),
            np.arange(1000),
        )[0]
        for seed in (0, 0, 1)
    ]
    assert drawn[0].min() >= 2e12
    assert drawn[0].max() <= 8e12
    # Evenly in the logarithm: half of them below the geometric mean.
    assert abs((drawn[0] < 4e12).mean() - 0.5) < 0.05
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    ("model", "plan"), [("llama-3.1-8b", ""), ("mixtral-8x7b", "precision=fp8")]
)
def test_texts_of_a_batch_are_those_of_its_plans(model: str, plan: str) -> None:
    scenario = ask(model=model, system="h100-sxm", gpus=32, global_batch=64)
    plans = enumerate_plans(scenario, plan_of(scenario, plan)[1]).plans
    plans = plans.take(np.arange(0, len(plans), max(len(plans) // 1500, 1)))
    # Texts are kept for equal plans alone: not for some of them, another order, or other shared choices.
    other = replace(plans, base=plan_of(scenario, f"{plan} optimizer=sgd")[1])
    for some in (plans, plans, plans.take(np.arange(len(plans))[::-1]), other, plans.take([0, 1])):
        assert plan_texts(some).to_list() == [str(some.plan(i)) for i in range(len(some))]


@pytest.mark.parametrize(
    ("field", "value"),
    [("tp", 8), ("micro_batch", 4), ("sp", False), ("precision", "fp8"), ("order", "dp,tp,cp,pp")],
)
def test_words_set_their_field(field: str, value: object) -> None:
    found = getattr(parse_plan(word_of(field, value)), field)
    assert (",".join(found) if field == "order" else found) == value
