"""`foretell characterize trace`: our own traces give the simulation back, predictions beside, bad input."""

from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.lab.characterize.traces.breakdown import PARTS
from foretell.lab.characterize.traces.run import characterize_trace
from tests.lab.characterize.kineto import (
    ADD,
    GEMM,
    collective,
    kernel,
    launch,
    note,
    op,
    trace,
    written,
)
from tests.surfaces.command import foretell as command

MODEL = "gpt3-350m"
JOB: dict[str, Any] = {"system": "polaris-ss10", "gpus": 8, "global_batch": 32}
FLAGS = ("--model", MODEL, "--system", "polaris-ss10", "--gpus", "8", "--global-batch", "32")


@pytest.mark.parametrize(
    "plan",
    [
        "dp8 zero0 mbs2 recompute=full",
        "dp8 zero1",
        "dp8 zero2 mbs4",
        "dp8 zero3",
        "pp4 dp2 zero0",
        "pp2 dp4 zero1 mbs2",
        "dp8 zero1 offload=optimizer",
    ],
)
def test_our_own_trace_is_the_simulation(tmp_path: Path, plan: str) -> None:
    """Every share of the played step comes back, to the nanoseconds that slices are written in."""
    path = tmp_path / "step.json.gz"
    played = foretell.simulate(MODEL, plan=plan, trace=path, detail="ops", **JOB)
    found = characterize_trace(path)
    assert [s.rank for s in found.steps] == [s.rank for s in played.stages]
    for step, spent in zip(found.steps, played.played.spent, strict=True):
        waited = ("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel")
        exposed_s = sum(spent[n] for n in waited)
        expected = {
            "step_s": played.step_s,
            "compute_s": sum(spent[n] for n in ("compute", "host", "contention", "optimizer")),
            "copy_s": spent["offload"],
            "host_s": spent["fixed"],
        }
        assert {n: getattr(step, n) for n in expected} == pytest.approx(expected, abs=4e-6)
        # While a stage waits for another, messages may be under way.
        waits_s = step.exposed_communication_s + step.idle_s
        assert waits_s == pytest.approx(exposed_s + spent["bubble"], abs=4e-6)
        assert step.idle_s <= spent["bubble"] + 4e-6
        if len(found.steps) == 1:
            assert step.exposed_communication_s == pytest.approx(exposed_s, abs=4e-6)
        assert sum(getattr(step, part) for part in PARTS) == pytest.approx(step.step_s, rel=1e-9)
        families = {f.family for f in step.compute}
        assert {"gemm", "attention", "norm", "optimizer"} <= families


def test_tensor_parallel_exchanges_come_back(tmp_path: Path) -> None:
    """Where passes are held up, their exchanges are shown held up too: the sum is the simulation's."""
    path = tmp_path / "step.json"
    played = foretell.simulate(MODEL, plan="tp4 dp2 zero1 mbs2", trace=path, detail="ops", **JOB)
    (step,) = characterize_trace(path).steps
    assert step.idle_s == 0.0
    assert step.compute_s + step.exposed_communication_s == pytest.approx(
        played.step_s - played.played.spent[0]["fixed"], abs=1e-6
    )


def test_our_own_trace_brings_its_job(tmp_path: Path) -> None:
    """The prediction beside it is the closed form's, and close to what was played."""
    path = tmp_path / "step.json.gz"
    foretell.simulate(MODEL, plan="dp8 zero1 mbs4", trace=path, detail="ops", **JOB)
    found = characterize_trace(path)
    told = foretell.estimate(MODEL, plan="dp8 zero1 mbs4", **JOB)
    assert found.predicted is not None
    assert found.predicted.estimate.step_s == told.step_s
    parts = found.predicted.compute_s + found.predicted.exposed_s + found.predicted.host_s
    assert parts + found.predicted.bubble_s == pytest.approx(told.step_s, rel=1e-9)
    rows = {(r.level, r.name, r.phase): r for r in found.rows}
    for name in ("gemm", "attention", "norm", "elementwise"):
        for phase in ("forward", "backward"):
            row = rows["family", name, phase]
            assert row.predicted_s == pytest.approx(row.measured_s, rel=0.03)
    assert rows["op", "ffn.up", "forward"].predicted_s == pytest.approx(
        rows["op", "ffn.up", "forward"].measured_s, rel=0.03
    )
    for level in ("step", "family", "op"):
        sizes = [abs(r.difference_s) for r in found.rows if r.level == level]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    "plan",
    ["dp8", "dp8 recompute=full", "dp8 recompute=selective no-flash", "tp2 pp2 dp2", "dp8 zero3"],
)
def test_the_prediction_is_whole(plan: str) -> None:
    """Families, exposed communication, host and bubble are the estimate's step."""
    from foretell.lab.characterize.traces.share_rows import step_prediction

    told = step_prediction(foretell.estimate(MODEL, plan=plan, **JOB))
    whole = told.compute_s + told.exposed_s + told.host_s + told.bubble_s
    assert whole == pytest.approx(told.estimate.step_s, rel=1e-9)


def gpu_file(tmp_path: Path) -> Path:
    """A step of the job's first products: 2,048 tokens, width 1,024, feed-forward 4,096."""
    events = [note("ProfilerStep#1", 0.0, 1000.0, on_gpu=True)]
    for i, (rows, inputs, outputs) in enumerate([(2048, 1024, 3072), (2048, 1024, 4096)]):
        dims = [[rows, inputs], [inputs, outputs]]
        events += [
            op("aten::mm", 100.0 * i, 50.0, number=i + 1, dims=dims),
            launch(100.0 * i + 10, 5.0, i + 1),
            kernel(GEMM, 100.0 * i + 20, 70.0, key=i + 1),
        ]
    events += [kernel(ADD, 300.0, 100.0, key=99), launch(280.0, 5.0, 99)]
    events.append(
        collective(
            "_reduce_scatter_base", 350.0, 200.0, elements=8_000_000, out=1_000_000, members=8
        )
    )
    return written(tmp_path / "rank0.json.gz", trace(events, world=8))


def test_products_are_matched_by_shape(tmp_path: Path) -> None:
    found = characterize_trace(gpu_file(tmp_path), model=MODEL, plan="dp8 zero1", **JOB)
    ops = {r.name: r for r in found.rows if r.level == "op" and r.phase == "forward"}
    assert ops["attention.qkv (3072x2048x1024)"].measured_s == pytest.approx(70e-6)
    both = ops["ffn.up + ffn.down (4096x2048x1024)"]
    assert both.measured_s == pytest.approx(70e-6)
    told = found.predicted.ops
    assert both.predicted_s == told["ffn.up", "forward"] + told["ffn.down", "forward"]


def test_the_command(tmp_path: Path) -> None:
    file, picture = gpu_file(tmp_path), tmp_path / "both.svg"
    outcome = command(
        "characterize", "trace", str(file), *FLAGS, "--plan", "dp8 zero1", "--picture", str(picture)
    )
    assert outcome.code == 0
    assert outcome.err == f"written: {picture}\n"
    assert "reduce-scatter" in outcome.out
    assert "predicted ms" in outcome.out
    drawn = picture.read_text()
    assert drawn.startswith("<svg")
    assert "predicted" in drawn
    record = command("characterize", "trace", str(file), "--json").json
    assert set(record) == {"ranks", "steps", "imbalance", "busiest", "predicted", "beside", "notes"}
    assert record["predicted"] is None
    (step,) = record["steps"]
    assert sum(step[part] for part in PARTS) == pytest.approx(step["step_s"], rel=1e-9)
    (sent,) = step["collectives"]
    assert sent["size_bytes"] == 16_000_000
    assert sent["bus_bytes_per_s"] == pytest.approx(7 / 8 * 16e6 / 200e-6)


def test_bad_input(tmp_path: Path) -> None:
    good = str(gpu_file(tmp_path))
    empty, text, half = tmp_path / "empty.json", tmp_path / "notes.txt", tmp_path / "half.json"
    empty.write_text("")
    text.write_text("hello")
    half.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "na')
    nothing = written(tmp_path / "nothing.json", trace([]))
    cases: list[tuple[tuple[str, ...], str]] = [
        ((), "no file is given"),
        ((str(tmp_path / "missing.json"),), "no such file"),
        ((str(tmp_path),), "is a folder"),
        ((str(empty),), "is empty"),
        ((str(text),), "no trace"),
        ((str(half),), "truncated"),
        ((str(nothing),), "nothing was profiled"),
        ((good, good), "rank 0 is in"),
        ((good, "--step", "7"), "no such step"),
        ((good, "--system", "polaris-ss10"), "say the model too"),
        ((good, "--model", "no-such-model", "--system", "polaris-ss10"), "no-such-model"),
        ((good, *FLAGS, "--plan", "dp7"), "plan"),
        ((good, "--picture", "x.bmp"), "picture"),
    ]
    for words, message in cases:
        outcome = command("characterize", "trace", *words)
        assert (outcome.code, outcome.out) == (2, ""), words
        assert message in outcome.err, (words, outcome.err)
    outcome = command(
        "characterize", "trace", str(empty), str(half), "--model", "no-such-model", "--system", "x"
    )
    assert all(word in outcome.err for word in ("empty", "truncated", "no-such-model"))


def test_a_trace_of_an_unknown_job_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    foretell.simulate(MODEL, plan="dp8", trace=path, **JOB)
    path.write_text(path.read_text().replace(f'"model": "{MODEL}"', '"model": "my-own"', 1))
    found = characterize_trace(path)
    assert found.predicted is None
    assert "job is not known" in found.notes[0]
