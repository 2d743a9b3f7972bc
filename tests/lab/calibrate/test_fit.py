"""Fitting a chip's file to measurements: what is read, what is recovered, what is written and used."""

import json
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog import system
from foretell.catalog.chips import catalogue_chip
from foretell.errors import BadInput
from foretell.kernels.families.backward import FAMILY as BACKWARD
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.choose import choose, family_named, spread_of
from foretell.kernels.families.gemm import GemmCoefficients
from foretell.kernels.families.gemm import seconds as gemm_seconds
from foretell.kernels.families.pointwise import PointwiseCoefficients, pointwise_seconds
from foretell.lab.calibrate import fit, fit_report, measured_rows
from foretell.report.figure_svg import figure_svg
from foretell.report.figures.lines import fit_figure
from tests.surfaces.command import foretell

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")
pytestmark = pytest.mark.skipif(not find_spec("scipy"), reason="scipy is not installed")

H200 = catalogue_chip("h200-sxm")
TRUE = GemmCoefficients(
    launch_s=4e-6, memory=0.7, store=0.6, compute=0.65, prologue=300.0, overlap=4.0, fade=1e-3
)
"""Far from the defaults in what large, small and thin products tell."""
SITES = ((4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (1280, 8192), (2304, 768))
ROWS = (1, 16, 64, 256, 1024, 4096, 16384)
ENVIRONMENT = {
    "kind": "environment",
    "chip": "a card",
    "software": "torch 2.9.1+cu130",
    "device": "cuda",
    "date": "2026-11-15T06:10:59+00:00",
    "libraries": {"cuda": "13.0"},
    "card": {
        "memory_bytes": 96e9,
        "cores": 132,
        "l2_bytes": 50e6,
        "sram_bytes_per_core": 233472,
        "capability": "9.0",
        "power_limit_watts": 500.0,
        "max_sm_clock_hz": 2e9,
        "driver": "580.159.04",
    },
}


def point(family: str, dims: Mapping[str, int], seconds: float, **more: Any) -> dict[str, Any]:
    """A line as `calibrate measure` writes it."""
    line = {
        "kind": "point",
        "status": "done",
        "group": family,
        "family": family,
        "variant": "",
        "dims": dict(dims),
        "dtype": "bf16",
        "pass": "forward",
        "mode": "burst",
        "launch": "graph",
        "launch_used": "graph",
        "chip": "a card",
        "software": "torch",
        "seconds": seconds,
        "flop": 0.0,
        "bytes": 0.0,
        "rotated_bytes": 1e9,
        "at": "2026-11-15T07:00:00+00:00",
    }
    return {**line, **more}


def product(m: int, n: int, k: int, passed: str = "forward", **more: Any) -> dict[str, Any]:
    """A product that takes what TRUE says."""
    line = point("gemm", {"m": m, "n": n, "k": k}, 1.0, **{"pass": passed, **more})
    sizes = {name: np.asarray(v) for name, v in measured_rows.kernel_sizes(line).items()}
    seconds = float(gemm_seconds(sizes, TRUE, engine_of(H200, "bf16")))
    moved = 2.0 * (m * k + n * k + m * n)
    return {**line, "seconds": seconds, "flop": 2.0 * m * n * k, "bytes": moved}


def streams() -> list[dict[str, Any]]:
    """Copies at 0.8 of the bandwidth behind 3 us."""
    truth = PointwiseCoefficients(launch_s=3e-6, memory_share=0.8)
    engine = replace(engine_of(H200, "bf16"), l2_bytes=0.0)
    lines = []
    for power in range(12, 30, 2):
        moved = 2.0 * 2.0**power
        half = np.asarray(moved / 2.0)
        dims = {"bytes_read": half, "bytes_written": half, "flop": half * 0.0, "kernels": 1.0}
        seconds = float(pointwise_seconds(dims, truth, engine))  # type: ignore[arg-type]
        more = {"variant": "copy", "dtype": "bytes", "group": "copies", "bytes": moved}
        lines.append(point("copy", {"bytes": 2**power}, seconds, **more))
    return lines


def products() -> list[dict[str, Any]]:
    found = [product(m, n, k) for n, k in SITES for m in ROWS]
    found += [
        product(m, n, k, passed)
        for n, k in SITES
        for m in (1024, 4096)
        for passed in ("dgrad", "wgrad")
    ]
    return found


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: Mapping[str, Any], head: Mapping[str, Any] = ENVIRONMENT) -> Path:
        path = tmp_path / "points.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
        return path

    return write


def test_known_coefficients_come_back(written: Callable[..., Path]) -> None:
    found = fit.calibrate(written(*products(), *streams()), "h200-sxm")
    by_family = {each.surface.family: each for each in found.fits}
    assert set(by_family) == {"gemm", "pointwise"}
    gemm = by_family["gemm"].surface
    assert (gemm.chip, gemm.architecture, gemm.version) == ("h200-sxm", "hopper", "2.9.1")
    assert (gemm.date, gemm.points) == ("2026-11-15", len(products()))
    assert gemm.median_ape < 0.01
    assert gemm.left_out_median_ape < 0.02
    for name in ("launch_s", "memory", "compute"):
        assert gemm.coefficients[name] == pytest.approx(getattr(TRUE, name), rel=0.1)
    stream = by_family["pointwise"].surface
    assert stream.coefficients["launch_s"] == pytest.approx(3e-6, rel=0.05)
    assert stream.coefficients["memory_share"] == pytest.approx(0.8, rel=0.03)
    assert {row["pass"] for row in fit_report.pass_rows(by_family["gemm"])} == {
        "forward", "dgrad", "wgrad",
    }  # fmt: skip


def test_passes_are_the_products_they_run() -> None:
    sizes = {
        p: measured_rows.kernel_sizes(product(2, 3, 5, p)) for p in ("forward", "dgrad", "wgrad")
    }
    assert [sizes[p][n] for p in sizes for n in "mnk"] == [2, 3, 5, 2, 5, 3, 3, 5, 2]


@given(st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_pairs_are_what_the_mask_leaves(queries: int, keys: int, causal: bool) -> None:
    dims = {"batch": 1, "heads": 4, "kv_heads": 2, "queries": queries, "keys": keys, "head_dim": 8}
    found = measured_rows.attention_sizes(point("prefill", {**dims, "causal": int(causal)}, 1.0))
    mask = np.tri(queries, keys) if causal else np.ones((queries, keys))
    assert found["pairs"] == mask.sum()


def test_groups_by_format_backend_and_pass(written: Callable[..., Path]) -> None:
    dims = {"batch": 1, "heads": 8, "kv_heads": 8, "queries": 64, "keys": 64, "head_dim": 64}
    attention = {"group": "attention"}
    lines = [
        product(64, 64, 64),
        product(128, 64, 64, dtype="fp8", variant="tensor"),
        product(128, 64, 64, dtype="fp8", variant="row"),
        product(256, 64, 64, launch_used="eager"),
        product(512, 64, 64, mode="sustained"),
        *(point("prefill", dims, 1e-5, variant=v, **attention) for v in ("flash", "cudnn", "math")),
        point("prefill", dims, 1e-5, variant="flash", **attention, **{"pass": "backward"}),
        point("decode", {**dims, "queries": 1}, 1e-5, variant="flash-folded", **attention),
        point("rms_norm", {"rows": 8, "width": 8}, 1e-5, group="pointwise", bytes=256.0),
        point("rope", {"rows": 8, "width": 8}, 1e-5, group="pointwise", bytes=256.0),
    ]
    measured = measured_rows.read(written(*lines))
    groups = measured_rows.groups_of(measured, "h200-sxm")
    assert [(g.rows.family, g.rows.dtype, g.rows.software, len(g.lines)) for g in groups] == [
        ("gemm", "bf16", "torch", 1),
        ("gemm", "fp8", "torch", 1),
        ("gemm", "fp8", "torch-rowwise", 1),
        ("prefill", "bf16", "torch-fa2", 1),
        ("prefill", "bf16", "torch-cudnn", 1),
        ("prefill-backward", "bf16", "torch-fa2", 1),
        ("decode", "bf16", "torch-fa2", 1),
        ("pointwise", "bf16", "torch-rows", 1),
    ]
    assert [g.bare for g in groups[:3]] == [False, True, True]
    (long,) = measured_rows.groups_of(measured, "h200-sxm", "sustained")
    assert long.rows.dims["m"].tolist() == [512.0]


def test_few_points_move_few_coefficients(written: Callable[..., Path]) -> None:
    lines = [product(m, 4096, 4096) for m in (1, 64, 1024, 16384, 32768)]
    (each,) = fit.calibrate(written(*lines), "h200-sxm").fits
    assert 1 <= len(each.moved) <= 2
    begun = replace(GemmCoefficients(), fade=family_named("gemm").bounds["fade"][0])
    for name, value in each.surface.coefficients.items():
        if name not in each.moved:
            assert value == pytest.approx(getattr(begun, name), rel=1e-4)
    assert all(math.isfinite(q) for q in each.surface.residuals)


def test_a_new_chip_has_the_best_that_was_measured(written: Callable[..., Path]) -> None:
    path = written(*products(), *streams())
    found = fit.calibrate(path, "my-gpu")
    chip, lines = found.facts.chip, found.measured.points
    assert found.facts.new
    assert chip.matrix_flop_per_s["bf16"] == pytest.approx(
        max(line["flop"] / line["seconds"] for line in lines), rel=1e-4
    )
    assert chip.memory_bandwidth_bytes_per_s == pytest.approx(
        max(line["bytes"] / line["seconds"] for line in lines), rel=1e-4
    )
    assert (chip.cores, chip.tdp_watts, chip.architecture) == (132.0, 500.0, "hopper")
    assert chip.memory_bytes == pytest.approx(96e9)
    status = {name: fact["status"] for name, fact in found.facts.table.items() if "value" in fact}
    assert status.pop("vector_flop_per_s") == "inferred"
    assert set(status.values()) == {"measured"}
    assert found.surfaces[0].median_ape < 0.05


@pytest.mark.parametrize("chip", ["h200-sxm", "my-gpu"])
def test_a_chips_file_is_a_system(written: Callable[..., Path], chip: str, tmp_path: Path) -> None:
    found = fit.calibrate(written(*products(), *streams()), chip)
    path = tmp_path / "chip.toml"
    path.write_text(fit_report.chip_toml(found))
    made = system(path)
    assert made.chip.kernels == found.surfaces
    assert replace(made.chip, kernels=()) == found.facts.chip
    assert len(made.network.tiers) == 2
    assert any("network" in said or "reference" in said for said in made.assumptions)
    chosen = choose(made.chip, "gemm", "bf16", ("torch", "trtllm"))
    assert (chosen.evidence, chosen.surfaces) == ("measured", (found.surfaces[0],))
    assert spread_of(chosen) == pytest.approx(found.surfaces[0].residuals)
    assert choose(made.chip, "gemm", "fp16").evidence == "transferred"
    assert choose(made.chip, "prefill", "bf16").evidence != "measured"


def test_a_file_by_hand_is_checked() -> None:
    good = fit_report.surfaces_toml(())
    assert good == ""
    table = tomllib.loads(
        'chip = "h200-sxm"\n[[surface]]\nfamily = "gemm"\nresiduals = 3\n[[surface]]\nfamly = "x"\n'
    )
    from foretell.catalog.systems import system_from_table

    with pytest.raises(BadInput) as caught:
        system_from_table(table)
    paths = {problem.path: problem for problem in caught.value.problems}
    assert paths["surface.1.famly"].nearest == "family"
    assert "surface.0.dtype" in paths


def test_the_picture_has_every_point(written: Callable[..., Path]) -> None:
    found = fit.calibrate(written(*products(), *streams()), "h200-sxm")
    made = fit_figure(found)
    points = [trace for trace in made["data"] if trace["mode"] == "markers"]
    many = sum(each.surface.points for each in found.fits)
    assert sum(len(trace["x"]) for trace in points) == many
    root = ElementTree.fromstring(figure_svg(made))
    name = "{http://www.w3.org/2000/svg}"
    assert len(list(root.iter(f"{name}circle"))) >= many
    words = " ".join(text.text or "" for text in root.iter(f"{name}text"))
    assert all(word in words for word in ("measured time", "predicted time", "gemm", "10%"))


def test_what_others_on_a_host_disturbed_is_left_out(written: Callable[..., Path]) -> None:
    calm = products()
    noisy = [{**line, "seconds": line["seconds"] + 8e-3} for line in calm[:6]]
    head = {**ENVIRONMENT, "device": "cpu", "card": {}, "host": {"threads": 4}}
    found = fit.calibrate(written(*noisy, *calm[6:], *streams(), head=head), "h200-sxm")
    assert ("gemm bf16 torch", 6, "disturbed by others on the host") in found.skipped
    assert found.surfaces[0].coefficients["launch_s"] == pytest.approx(TRUE.launch_s, rel=0.1)


def test_backward_of_a_library_is_dearer_than_its_forward() -> None:
    dims = {"batch": 2, "heads": 32, "kv_heads": 8, "queries": 4096, "keys": 4096, "head_dim": 128}
    line = point("prefill", {**dims, "causal": 1}, 1.0)
    sizes = {k: np.asarray(v) for k, v in measured_rows.attention_sizes(line).items()}
    engine = engine_of(H200, "bf16")
    for software in ("torch-fa2", "torch-cudnn", "trtllm"):
        backward = BACKWARD.seconds(sizes, BACKWARD.begin("hopper", software, "bf16"), engine)
        half = 0.5 * 4 * 2 * 32 * 4096**2 * 128
        assert float(backward) > 2.5 * half / float(engine.flop_per_s)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (None, "no such file; allowed: foretell calibrate measure --out"),
        ([], "holds no measured point"),
        ([point("gemm", {"m": 3}, 1.0)], "holds no measured point"),
        ([product(1, 64, 64)], "too few points to fit: 1 of gemm"),
        ([product(1, 64, 64), product(1, 64, 64, chip="b card", mode="x")], "several chips"),
    ],
)
def test_what_is_missing_is_said(
    written: Callable[..., Path], tmp_path: Path, lines: list[dict[str, Any]] | None, said: str
) -> None:
    path = tmp_path / "none.jsonl" if lines is None else written(*lines)
    out = str(tmp_path / "chip.toml")
    told = foretell("calibrate", "fit", str(path), "--chip", "h200-sxm", "--out", out)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
    assert not Path(out).exists()


@pytest.mark.parametrize(
    ("chip", "out", "said"),
    [
        ("My GPU!", "chip.toml", "chip: cannot be a new chip's id"),
        ("dgx-h200", "chip.toml", "chip: is a system of the catalogue"),
        ("my-gpu", "chip.json", "out: is not a TOML file's name"),
        ("my-gpu", "no/folder/chip.toml", "out: no file can be written there"),
    ],
)
def test_bad_words(
    written: Callable[..., Path], tmp_path: Path, chip: str, out: str, said: str
) -> None:
    path = written(*products()[:8], *streams())
    words = ("--chip", chip, "--out", str(tmp_path / out))
    told = foretell("calibrate", "fit", str(path), *words)
    assert (told.code, told.out) == (2, "")
    assert said in told.err


@needs_torch
def test_from_nothing_to_a_prediction(root: Path, tmp_path: Path) -> None:
    points, chip, plot = (str(tmp_path / name) for name in ("p.jsonl", "cpu.toml", "cpu.svg"))
    command = [sys.executable, "-m", "foretell.lab.calibrate.measure", "--out", points, "--short"]
    environ = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    # The second goes on with the file of the first.
    for only in ("gemm,copies", "gemm,copies,attention,pointwise,launch"):
        words = [*command, "--device", "cpu", "--minutes", "20", "--only", only]
        subprocess.run(words, check=True, env=environ, capture_output=True, timeout=600)
    told = foretell(
        *("calibrate", "fit", points, "--chip", "cpu", "--out", chip, "--plot", plot, "--json")
    )
    assert (told.code, told.err) == (0, "")
    assert told.json["new_chip"]
    assert {"gemm", "pointwise"} <= {surface["family"] for surface in told.json["surfaces"]}
    for surface in told.json["surfaces"]:
        numbers = [*surface["residuals"], *surface["coefficients"].values()]
        assert all(math.isfinite(number) for number in numbers)
    ElementTree.fromstring(Path(plot).read_text())
    model = "llama:layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=64"
    job = ("--gpus", "1", "--global-batch", "1", "--seq-len", "8")
    plan = ("--plan", "mbs1 no-fused weights=fp32 master=none")
    guess = foretell("estimate", model, "--system", chip, *job, *plan, "--json")
    assert (guess.code, guess.err) == (0, "")
    assert math.isfinite(guess.json["step_s"])
    assert guess.json["step_s"] > 0.0
    shown = foretell("catalog", "show", chip, "--json")
    assert shown.code == 0
    assert shown.json["values"]["chip.matrix_flop_per_s.fp32"]["status"] == "measured"
    assert len(shown.json["kernels"]) == len(told.json["surfaces"])
