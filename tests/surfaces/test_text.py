"""What people read. The golden texts are of records made by hand, so that no formula moves them."""

import io
import re
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from foretell.api.answers import Estimate
from foretell.api.search_answers import Search
from foretell.cli import progress
from foretell.report.catalogue import value_text
from foretell.report.presentation import text
from foretell.report.presentation.text import verb_text
from foretell.report.presentation.verbs import presentation
from foretell.specs.plan import parse_plan
from foretell.specs.result import Leaf
from tests.surfaces.command import foretell

GIB = 2.0**30


def leaf(name: str, value: float, *children: Leaf, unit: str = "s") -> Leaf:
    return Leaf(name=name, value=value, unit=unit, children=children)


def stage(name: str, *values: float) -> Leaf:
    names = ("weights", "gradients", "states", "activations", "buffers", "lost")
    parts = [leaf(n, v * GIB, unit="bytes") for n, v in zip(names, values, strict=True)]
    return leaf(name, sum(values) * GIB, *parts, unit="bytes")


STAGES = (stage("stage 0", 8, 16, 12, 10, 0, 6), stage("stage 1", 8, 16, 12, 5, 0.5, 6))
ESTIMATE = Estimate(
    model="toy-70b",
    system="toy-cluster",
    gpus=64,
    global_batch=1024,
    target_len=None,
    seq_len=4096,
    plan=parse_plan("tp8 pp2 zero1", 64),
    plan_chosen=False,
    fits="yes",
    step_s=56.824,
    tokens_per_s=73812.3,
    tokens_per_s_per_gpu=1153.32,
    tflops_per_gpu=518.1,
    mfu=0.524,
    mfu_causal=0.49,
    hfu=0.531,
    allocated_bytes=48 * GIB,
    reserved_bytes=51 * GIB,
    peak_memory_bytes=52 * GIB,
    memory_capacity_bytes=79.65 * GIB,
    energy_joules=None,
    joules_per_token=None,
    limited_by="compute.gemm",
    interval=None,
    breakdown=leaf(
        "step",
        56.824,
        leaf("bubble", 0.0),
        leaf("tensor_parallel", 15.0),
        leaf("compute", 41.824, leaf("attention", 2.324), leaf("gemm", 39.5)),
    ),
    memory=STAGES[0],
    memory_by_stage=STAGES,
    assumptions=(
        "a toy [bold]of its own[/bold]",
        "sequence length 4096: " + "the model's own " * 12,
    ),
    overrides={"chip.tdp_watts": "700 W"},
)
SEARCH = Search(
    plans=(replace(ESTIMATE, plan_chosen=True), replace(ESTIMATE, fits="too_close", step_s=60.0)),
    plans_evaluated=133306,
    plans_pruned=220000,
    plans_feasible=37729,
    evaluation_seconds=0.2,
    rejected={"heads": 12, "interleaving": 590},
    assumptions=ESTIMATE.assumptions[:1],
)
ENTRY = {
    "kind": "chip",
    "id": "toy",
    "name": "A toy",
    "vendor": "Nobody",
    "aliases": ["t", "TOY-80GB"],
    "notes": ["Not for sale."],
    "reference_system": "toy-cluster",
    "values": {
        "memory_bytes": {"value": 80 * GIB, "source": "a sheet", "status": "datasheet"},
        "matrix_flop_per_s.bf16": {"value": 1e15, "source": "a sheet", "status": "datasheet"},
        "cores": {"value": 132.0, "source": None, "status": None},
        "release_year": {"value": 2022, "source": "a page", "status": "published", "note": "May"},
        "transistors": {"value": 8e10, "source": "a page", "status": "recalled"},
    },
}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_estimate(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    text.show(verb_text("estimate", ESTIMATE.to_dict()))
    assert capsys.readouterr().out == snapshot


def test_search(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    text.show(verb_text("search", SEARCH.to_dict()))
    assert capsys.readouterr().out == snapshot


def test_entry(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    text.show(verb_text("catalog", ENTRY))
    assert capsys.readouterr().out == snapshot


def words(text: str) -> list[str]:
    return sorted("".join(text.split()))


@pytest.mark.parametrize("columns", ["40", "80", "132"])
def test_a_narrow_page_loses_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    for part in (
        verb_text("estimate", ESTIMATE.to_dict()),
        verb_text("search", SEARCH.to_dict()),
        verb_text("catalog", ENTRY),
    ):
        text.show(part)
        wide = capsys.readouterr().out
        with monkeypatch.context() as here:
            here.setenv("COLUMNS", columns)
            text.show(part)
        narrow = capsys.readouterr().out
        assert max(map(len, narrow.splitlines())) <= int(columns)
        assert words(narrow) == words(wide)


def test_numbers_stay_whole_where_words_can_fold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text.show(verb_text("estimate", ESTIMATE.to_dict()))
    lines = capsys.readouterr().out.splitlines()
    numbers = [line.split()[1] for line in lines if line.endswith("datasheet")]
    monkeypatch.setenv("COLUMNS", "40")
    text.show(verb_text("estimate", ESTIMATE.to_dict()))
    narrow = capsys.readouterr().out.split()
    assert len(numbers) > 2
    assert all(number in narrow for number in numbers)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("colour", [True, False])
def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch, colour: bool) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "xterm-256color")
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    text.show(verb_text("estimate", ESTIMATE.to_dict()))
    assert (re.search(r"\x1b\[[0-9;]*[349][0-9]", out.getvalue()) is not None) is colour


def test_the_real_thing_has_every_number() -> None:
    plan = ("--gpus", "64xH100", "--plan", "tp8 pp2 mbs1 zero1")
    text = foretell("estimate", "llama-3.1-70b", *plan)
    told = foretell("estimate", "llama-3.1-70b", *plan, "--json").json
    assert (text.code, text.err) == (0, "")
    for one in presentation("estimate", told).facts:
        assert re.search(rf"^{re.escape(one.label)} +{re.escape(one.text)}", text.out, re.MULTILINE)
    assert all(said in text.out for said in told["assumptions"])
    assert all(
        child["name"] in text.out for child in told["breakdown"]["children"] if child["value"]
    )
    found = foretell("search", "llama-3.1-70b", *plan[:2], "--top", "3")
    assert found.code == 0
    assert len(re.findall(r"^ ?[123][ =]? +tp.* fits ", found.out, re.MULTILINE)) == 3


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("network.node.bandwidth_bytes_per_s", 450e9, "450 GB/s"),
        ("network.node.in_network_reduction", True, "true"),
        ("network.pod.shape", [16, 20, 28], "16, 20, 28"),
        ("chips_per_node", 8.0, "8"),
        ("release_year", 2022, "2022"),
        ("vocab_size", 128256, "128,256"),
        ("rms_norm_eps", 1e-5, "1e-05"),
        ("quantization_config", None, ""),
    ],
)
def test_values(path: str, value: object, shown: str) -> None:
    assert value_text(path, value) == shown


def test_a_bar_comes_late_and_only_where_someone_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress.late_bar("plans") as report:
        assert report is None
    for patience_s, seen in ((60.0, False), (-1.0, True)):
        watched = Terminal()
        monkeypatch.setattr("sys.stderr", watched)
        monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
        with progress.late_bar("plans") as report:
            assert report is not None
            report(5, 10)
            report(10, 10)
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", watched.getvalue())
        assert ("10/10 plans" in shown) is seen
