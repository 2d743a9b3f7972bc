"""Traces of real steps: well formed for every schedule, with every rank, stream, counter and flow."""

import copy
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import foretell as package
from foretell.errors import BadInput
from foretell.testing.trace import read_trace, trace_problems
from tests.surfaces.command import foretell

PLANS = {
    "1f1b": "tp4 pp4 dp2 zero1 mbs1",
    "gpipe": "tp4 pp4 dp2 zero0 mbs1 schedule=gpipe",
    "interleaved": "tp4 pp4 vpp2 dp2 zero1 mbs1 schedule=interleaved",
    "zb-h1": "tp4 pp4 dp2 zero1 mbs1 schedule=zb-h1",
    "zb-v": "tp4 pp4 vpp2 dp2 zero1 mbs1 schedule=zb-v",
    "dualpipe": "tp4 pp4 dp2 zero1 mbs1 schedule=dualpipe",
    "fsdp": "dp32 zero3 mbs1 recompute=full framework=torchtitan",
    "context": "tp2 cp2 pp2 dp4 zero2 mbs1",
    "offload": "dp32 zero1 mbs1 offload=optimizer",
}
ASKED: dict[str, Any] = {"system": "h100-sxm", "gpus": 32, "global_batch": 64, "seq_len": 2048}


def asked(plan: str, model: str = "llama-3.1-8b") -> Any:
    return package.estimate(model, **ASKED, plan=plan)


def written(folder: Path, plan: str, detail: str = "auto") -> list[dict[str, Any]]:
    return read_trace(asked(plan).to_chrome_trace(folder / "step.json.gz", detail))


@pytest.mark.parametrize("name", sorted(PLANS))
def test_every_schedule_makes_a_sound_trace(name: str, tmp_path: Path) -> None:
    events = written(tmp_path, PLANS[name], "layers")
    assert trace_problems(events) == []
    plan = asked(PLANS[name]).plan
    ranks = {e["pid"] for e in events if e["ph"] == "X"}
    assert ranks == {stage * 32 // plan.pp for stage in range(plan.pp)}
    names = Counter(e["args"]["name"] for e in events if e["name"] == "thread_name")
    streams = "compute tp-comm cp-comm ep-comm pp-comm dp-comm copy".split()
    assert all(names[stream] == plan.pp for stream in streams)
    used = {e["cat"] for e in events if e["ph"] == "X"}
    assert {"compute", "dp-comm"} <= used
    assert ("tp-comm" in used) == (plan.tp > 1)
    assert ("cp-comm" in used) == (plan.cp > 1)
    assert ("pp-comm" in used) == (plan.pp > 1)
    assert ("copy" in used) == (plan.offload != "none")
    for counter in ("memory", "power"):
        assert {e["pid"] for e in events if e["ph"] == "C" and e["name"] == counter} == ranks
    flows = Counter(e["ph"] for e in events if e["ph"] in "sf")
    assert flows["s"] == flows["f"]
    assert (flows["s"] > 0) == (plan.pp > 1)


@pytest.mark.parametrize("detail", ["tasks", "layers", "ops"])
def test_every_detail_tells_the_same_step(detail: str, tmp_path: Path) -> None:
    """As much compute and as much waiting, in more and more pieces."""
    result = package.simulate("llama-3.1-8b", **ASKED, plan=PLANS["1f1b"])
    events = read_trace(result.to_chrome_trace(tmp_path / "step.json", detail))
    assert trace_problems(events) == []
    slices = [e for e in events if e["ph"] == "X"]
    end = max(e["ts"] + e["dur"] for e in slices)
    assert end == pytest.approx(result.step_s * 1e6, rel=1e-6)
    for rank, spent in enumerate(result.played.spent):
        mine = [e for e in slices if e["pid"] == result.stages[rank].rank]
        tensor = sum(e["dur"] for e in mine if e["cat"] == "tp-comm")
        assert tensor == pytest.approx(1e6 * spent["tensor_parallel"], rel=0.02)
        busy = sum(e["dur"] for e in mine if e["cat"] == "compute")
        work = spent["compute"] + spent["host"] + spent["optimizer"]
        assert busy == pytest.approx(1e6 * (work + spent["contention"]), rel=0.02)


def test_experts_and_multi_token_prediction_are_on_their_streams(tmp_path: Path) -> None:
    """DeepSeek-V3: dispatches on ep-comm, the prediction's layer with the head on the last stage."""
    plan = "pp8 ep32 dp32 zero2 mbs1 recompute=full reduce=micro-batch layout=8,8,8,8,8,7,7,7"
    more = {**ASKED, "gpus": 256, "global_batch": 1024}
    whole = package.simulate("deepseek-v3", **more, plan=plan)
    without = package.simulate(
        "deepseek-v3", **more, plan=plan, set={"model.num_nextn_predict_layers": 0}
    )
    events = read_trace(whole.to_chrome_trace(tmp_path / "step.json.gz", "layers"))
    assert trace_problems(events) == []
    assert any(e["ph"] == "X" and e["cat"] == "ep-comm" for e in events)
    assert whole.stages[-1].busy_s > without.stages[-1].busy_s
    assert whole.stages[1].busy_s == pytest.approx(without.stages[1].busy_s, rel=0.01)


def test_memory_and_power_are_those_of_the_estimate(tmp_path: Path) -> None:
    answer = asked(PLANS["1f1b"])
    events = written(tmp_path, PLANS["1f1b"], "tasks")
    peak = max(e["args"]["GiB"] for e in events if e["name"] == "memory")
    assert peak == pytest.approx(answer.peak_memory_bytes / 2**30, rel=1e-3)
    watts = [e["args"]["W"] for e in events if e["name"] == "power"]
    assert 50.0 < min(watts) < max(watts) < 1500.0


def test_equal_steps_make_equal_files(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        asked(PLANS["1f1b"]).to_chrome_trace(tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    record = json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert record["displayTimeUnit"] == "ms"
    assert record["otherData"]["plan"].startswith("tp4 pp4 dp2")


def test_the_checks_find_what_is_wrong(tmp_path: Path) -> None:
    """Each defect of a sound trace is told."""
    events = written(tmp_path, PLANS["1f1b"], "tasks")
    first = next(i for i, e in enumerate(events) if e["ph"] == "X")
    flow = next(i for i, e in enumerate(events) if e["ph"] == "f")
    named = next(i for i, e in enumerate(events) if e["name"] == "thread_name")

    def told(change: Any) -> str:
        broken = copy.deepcopy(events)
        change(broken)
        return " ".join(trace_problems(broken))

    stream = {"pid": events[first]["pid"], "tid": events[first]["tid"]}
    assert "overlap" in told(lambda e: e[first].update(dur=1e9))
    assert "no time" in told(lambda e: e[first].update(ts=-1.0))
    assert "no time" in told(lambda e: e[first].update(dur=float("nan")))
    assert "finishes" in told(lambda e: e.pop(flow))
    assert "before it starts" in told(lambda e: e[flow].update(ts=0.0))
    assert "no slice" in told(lambda e: e[flow].update(ts=1e15))
    assert "has no name" in told(lambda e: e.pop(named))
    assert "never ends" in told(lambda e: e.append({"ph": "B", "name": "x", "ts": 1e12, **stream}))
    assert "without a begin" in told(
        lambda e: e.append({"ph": "E", "name": "x", "ts": 1e12, **stream})
    )
    assert "without values" in told(
        lambda e: e.append({"ph": "C", "name": "c", "ts": 1.0, "pid": 0, "args": {}})
    )
    assert "unknown phase" in told(lambda e: e.append({"ph": "?", "name": "x", "pid": 0}))


SIMULATE = (
    "simulate",
    "llama-3.1-8b",
    "--system",
    "h100-sxm",
    "--gpus",
    "32",
    "--global-batch",
    "64",
)


def test_the_command_line(tmp_path: Path) -> None:
    path = str(tmp_path / "step.json.gz")
    plan = ("--plan", PLANS["1f1b"])
    told = foretell(
        *SIMULATE, *plan, "--trace", path, "--jitter", "0.02", "--repeats", "8", "--json"
    )
    assert (told.code, told.err) == (0, "")
    record = told.json
    assert record["trace"] == path
    assert trace_problems(read_trace(path)) == []
    assert record["difference"] == pytest.approx(record["step_s"] / record["closed_step_s"] - 1.0)
    assert sum(s["simulated_s"] for s in record["shares"]) == pytest.approx(record["step_s"])
    assert len(record["stages"]) == 4
    spread = record["step_percentiles_s"]
    assert record["step_s"] < spread["p10"] < spread["p50"] < spread["p90"] < spread["p99"]
    again = foretell(*SIMULATE, *plan, "--jitter", "0.02", "--repeats", "8", "--json").json
    assert again["step_percentiles_s"] == spread
    other = foretell(
        *SIMULATE, *plan, "--jitter", "0.02", "--repeats", "8", "--seed", "1", "--json"
    )
    assert other.json["step_percentiles_s"] != spread
    text = foretell(*SIMULATE, *plan, "--stragglers", "0.01", "--repeats", "4").out
    assert "closed form" in text
    assert "bubble" in text
    assert "Step of the whole job" in text


def test_python_is_the_command_line() -> None:
    plan = PLANS["1f1b"]
    found = package.simulate("llama-3.1-8b", system="h100-sxm", gpus=32, global_batch=64, plan=plan)
    told = foretell(*SIMULATE, "--plan", plan, "--json").json
    assert told.pop("trace") is None
    assert json.loads(json.dumps(found.to_dict())) == told


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    wrong = ("--jitter", "-1", "--repeats", "x", "--detail", "all", "--seed", "-5")
    told = foretell(*SIMULATE, "--plan", PLANS["1f1b"], *wrong)
    assert (told.code, told.out) == (2, "")
    assert all(name in told.err for name in ("jitter", "repeats", "detail", "seed"))
    nowhere = foretell(
        *SIMULATE, "--plan", PLANS["1f1b"], "--trace", str(tmp_path / "no" / "x.json")
    )
    assert (nowhere.code, nowhere.out) == (2, "")
    large = foretell(
        "simulate", "llama-3.1-405b", "--system", "h100-sxm", "--gpus", "8", "--plan", "mbs1"
    )
    assert large.code == 1
    with pytest.raises(BadInput, match="detail"):
        asked(PLANS["1f1b"]).to_chrome_trace(tmp_path / "x.json", "everything")


def test_a_trace_that_no_viewer_opens_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of millions of passes is simulated, but not written out."""
    monkeypatch.setattr("foretell.simulation.trace.MOST_TASKS", 3)
    file = tmp_path / "step.json.gz"
    with pytest.raises(BadInput, match="at most 3 passes"):
        asked(PLANS["1f1b"]).to_chrome_trace(file)
    assert not file.exists()
