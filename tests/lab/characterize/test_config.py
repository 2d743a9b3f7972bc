"""A matrix from its file: every combination, every problem at once."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.characterize.config import JobPoint, RunnerSettings, read_config
from foretell.lab.characterize.models import RUNS, DecoderSizes, plan_of, sizes_of, spec_of
from foretell.specs.plan import Plan
from foretell.workload.parameters import count as parameter_count

TINY = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 64}


def table(**more: Any) -> dict[str, Any]:
    base = {"model": "tiny", "seq_len": 16}
    return {"base": base, "model": {"tiny": TINY}, **more}


def paths(given: dict[str, Any]) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_config(given)
    return [problem.path for problem in caught.value.problems]


def test_every_combination_and_single_points_none_twice() -> None:
    vary = {"plan": ["zero0", "zero1"], "processes": [2, 4], "micro_batch": [1, 2]}
    more = [{"plan": "zero1", "processes": 4, "micro_batch": 2}, {"seq_len": 32}]
    found = read_config(table(vary=vary, point=more)).points
    assert len(found) == 2 * 2 * 2 + 1
    assert {p.plan.dp for p in found} == {1, 2, 4}
    assert found[-1].seq_len == 32
    assert found[0].tokens == 2 * 1 * 16


def test_the_runner_is_plain_pytorch_unless_told() -> None:
    (point,) = read_config(table()).points
    assert (point.plan.framework, point.plan.fused) == ("pytorch-eager", False)
    assert point.plan.attention == "fa2"
    assert plan_of("attention=cudnn", 1, None).attention == "cudnn"
    for weights in ("bf16", "fp16", "fp32"):  # products follow the weights where no word says else
        assert plan_of(f"weights={weights}", 1, None).precision == weights
    assert plan_of("weights=fp32 precision=bf16", 1, None).precision == "bf16"


@given(
    st.builds(
        DecoderSizes,
        hidden=st.just(64),
        layers=st.integers(1, 9),
        heads=st.just(4),
        kv_heads=st.sampled_from((1, 2, 4)),
        ffn=st.integers(1, 500),
        vocab=st.integers(1, 500),
    ),
    st.integers(1, 8),
    st.integers(0, 3),
    st.sampled_from(("none", "full")),
)
def test_a_point_survives_its_text_form(
    sizes: DecoderSizes, dp: int, zero: int, again: str
) -> None:
    plan = plan_of(f"zero{zero} recompute={again} mbs3", dp, None)
    point = JobPoint(
        model="m", sizes=sizes, plan=plan, processes=dp, nodes=1, micro_batches=2, seq_len=16
    )
    back = JobPoint.of_dict(point.to_dict())
    assert back == point
    settings = RunnerSettings()
    assert back.key(settings) == point.key(settings)
    assert point.key(settings) != point.key(replace(settings, steps=settings.steps + 1))
    assert point.key(settings) == point.key(replace(settings, timeout_s=1.0, system="h100-sxm"))


@pytest.mark.parametrize(
    ("name", "style"), [("llama-3.1-8b", "llama"), ("llama-2-7b", "llama"), ("gpt2", None)]
)
def test_models_of_the_catalogue(name: str, style: str | None) -> None:
    from foretell.catalog import model

    found = sizes_of(model(name))
    assert (found.style if found else None) == style  # gpt2's head is its table
    if found is not None:
        whole = parameter_count(model(name)).total
        assert parameter_count(spec_of(found, name)).total == whole


def test_every_problem_at_once() -> None:
    wrong = {
        "run": {"steps": 0, "device": "tpu", "stepz": 1, "timeout_s": -1.0, "profile": 1},
        "base": {"seq_len": 16, "model": "tiny"},
        "vary": {"plan": "zero1", "processes": []},
        "point": [{"plan": "zero1 cp2", "processes": 2}, {"processez": 2}, 3],
        "model": {"tiny": TINY, "odd": {"hidden": 30, "heads": 4, "width": 1}},
    }
    found = paths(wrong)
    for path in (
        "run.steps", "run.device", "run.stepz", "run.timeout_s", "run.profile", "vary.plan",
        "vary.processes", "point[0].plan.cp", "point[1].processez", "point[2]", "model.odd.width",
        "model.odd.layers",
    ):  # fmt: skip
        assert path in found, path


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"plan": "tp4"}, "vary.plan"),
        ({"plan": "tp4", "processes": 4}, "vary.plan.tp"),
        ({"plan": "pp4", "processes": 4}, "vary.plan.pp"),
        ({"plan": "tp2", "processes": 2, "seq_len": 15}, "vary.plan.tp"),
        ({"plan": "mbs2", "micro_batch": 2}, "micro_batch"),
        ({"plan": "optimizer=sgd"}, "vary.plan.optimizer"),
        ({"plan": "states=bf16"}, "vary.plan.states"),
        ({"plan": "master=none"}, "vary.plan.master"),
        ({"plan": "precision=fp32 weights=bf16"}, "vary.plan.precision"),
        ({"plan": "precision=bf16 weights=fp16"}, "vary.plan.precision"),
        ({"plan": "precision=tf32 weights=fp16"}, "vary.plan.precision"),
        ({"plan": "zero9"}, "plan.zero"),
        ({"processes": 3, "nodes": 2}, "vary.nodes"),
        ({"model": "no-such-model"}, "model"),
        ({"seq_len": 0}, "vary.seq_len"),
    ],
)
def test_what_cannot_be_run(change: dict[str, Any], path: str) -> None:
    given = table()
    given["base"] = {**given["base"], **change}
    assert path in paths(given)


def test_files_that_are_none(tmp_path: Path) -> None:
    for name, text in (("a.toml", b"[run"), ("b.toml", b"\xff\xfe"), ("c.toml", None)):
        if text is not None:
            (tmp_path / name).write_bytes(text)
        with pytest.raises(BadInput) as caught:
            read_config(tmp_path / name)
        assert caught.value.problems[0].path == "config"
    with pytest.raises(BadInput):
        read_config({"run": {"steps": 1}})
    with pytest.raises(BadInput):
        read_config({"runn": {}})


def test_words_that_the_runner_lacks_are_words_of_a_plan() -> None:
    assert set(RUNS) <= {field.name for field in fields(Plan)}
