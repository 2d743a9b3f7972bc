"""Steps that were measured for this project on one H200, beside what is predicted of them today.

own_h200.csv    the runner's ladder of decoders, examples/characterize_h200.toml; NVIDIA H200 (700 W, driver
                580.159.04), PyTorch 2.11.0 (CUDA 13.0), eager; medians of two seconds of steps
own_wide.csv    the same in 32 bits, examples/characterize_wide.toml; medians of a second and a half
own_transformers.csv   steps of Hugging Face transformers: own_transformers.py
own_anthe.csv   Anthe and its baselines, tests/bench/bench_anthe.py on the same kind of card: medians of 15
                steps with the fastest and the slowest, peaks of the allocator, bytes of the gradients

All of 2026-11-15. `python -m foretell.lab.validate.published` writes the tables into docs/accuracy.md and
docs/anthe.md, and a test holds the pages to them.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal, cast

from foretell.api.answers import Estimate
from foretell.api.training import estimate
from foretell.catalog.models import model as catalogue
from foretell.lab.characterize.config import read_config
from foretell.lab.characterize.predict import PointPrediction, predict
from foretell.lab.translate.models import with_form
from foretell.lab.validate.published import Sections, with_written
from foretell.lab.validate.stored_steps import rows_text

HERE = Path(__file__).parent
SYSTEM = "h200-sxm"
GIB = 2.0**30
SOURCE, TARGET = 100, 101
"""Tokens of a source and of a target of the translation models' steps."""
WORDS = "framework=pytorch-eager no-fused weights=bf16 gradients=bf16 master=none states=bf16"
"""How those steps ran."""
LIMITS = {
    "host": "host",
    "compute.gemm": "GEMMs",
    "memory_bound.gemm": "loads of GEMMs",
    "memory_bound.elementwise": "memory",
}
"""What limits a step, as the page calls it."""
Row = dict[str, str]
Form = Literal["auto", "build", "contract"]


def measured_rows(name: str) -> list[Row]:
    """The rows of one of the files."""
    with (HERE / name).open() as file:
        return list(csv.DictReader(file))


def ladder(root: Path, name: str = "h200") -> list[tuple[Row, PointPrediction]]:
    """The runner's points, measured and predicted, in the order of the example (`h200` or `wide`)."""
    points = read_config(root / "examples" / f"characterize_{name}.toml").points
    rows = measured_rows(f"own_{name}.csv")
    return [(row, predict(point, SYSTEM)) for row, point in zip(rows, points, strict=True)]


def translation() -> list[tuple[Row, Estimate]]:
    """Steps of the translation models, measured and predicted."""
    found = []
    for row in measured_rows("own_anthe.csv"):
        model = catalogue(row["model"])
        if row["form"] != "auto":
            model = with_form(model, cast(Form, row["form"]))
        told = estimate(
            model,
            system=SYSTEM,
            gpus=1,
            plan=f"dp1 mbs{row['batch']} {WORDS}",
            global_batch=int(row["batch"]),
            seq_len=SOURCE,
            target_len=TARGET,
        )
        found.append((row, told))
    return found


def tensor_bytes(told: Estimate) -> float:
    """What tensors take at the peak, without allocator and framework."""
    assert told.memory is not None
    return sum(leaf.value for leaf in told.memory.children if leaf.name != "lost")


def ladder_rows(root: Path) -> str:
    """The runner's points on one H200 as CSV."""
    rows = []
    for name in ("h200", "wide"):
        for row, told in ladder(root, name):
            shares = {
                f"{part}_{side}": f"{1e3 * float(value):.1f}"
                for part in ("forward", "backward", "optimizer")
                for side, value in (
                    ("ms", row[f"{part}_s"]), ("predicted_ms", told.shares_s[part])
                )
            }  # fmt: skip
            kept = ("model", "micro_batch", "micro_batches", "seq_len", "plan")
            rows.append(
                {one: row[one] for one in kept}
                | {
                    "step_ms": f"{1e3 * float(row['step_s']):.1f}",
                    "predicted_ms": f"{1e3 * told.step_s:.1f}",
                    "error": f"{told.step_s / float(row['step_s']) - 1.0:+.3f}",
                    **shares,
                    "allocated_gib": f"{float(row['max_allocated_bytes']) / GIB:.1f}",
                    "predicted_gib": f"{told.allocated_bytes / GIB:.1f}",
                }
            )
    return rows_text(rows)


def ladder_text(root: Path, name: str = "h200") -> str:
    """How far off the runner's points are."""
    errors = [told.step_s / float(row["step_s"]) - 1.0 for row, told in ladder(root, name)]
    bar = " (bar: 7 %)" if name == "h200" else ""
    return (
        f"Median error of the step {median(map(abs, errors)):.1%}{bar}, all between "
        f"{min(errors):+.1%} and {max(errors):+.1%}."
    )


def wide_text(root: Path) -> str:
    """The points in 32 bits."""
    return ladder_text(root, "wide")


def translation_text(root: Path) -> str:
    """Steps of the translation models as a table, and how far off they are."""
    del root
    lines = [
        "| model | form | batch | step, ms | predicted | largest part | peak, GiB | predicted | gradients |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    both = translation()
    for row, told in both:
        step = [1e3 * float(row[f"{name}_s"]) for name in ("step", "fastest", "slowest")]
        form = "" if row["model"] in ("anthe-no-tc",) or "base" in row["model"] else row["form"]
        cells = [
            f"`{row['model']}`", form, row["batch"], f"{step[0]:.1f} ({step[1]:.1f} to {step[2]:.1f})",
            f"{1e3 * told.step_s:.1f}", LIMITS.get(told.limited_by, told.limited_by), row["peak_gib"],
            f"{tensor_bytes(told) / GIB:.2f}", f"{row['gradient_mb']} MB",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    said = []
    for batch in ("256", "64"):
        some = [(row, told) for row, told in both if row["batch"] == batch]
        time = [abs(told.step_s / float(row["step_s"]) - 1.0) for row, told in some]
        peak = [abs(tensor_bytes(told) / GIB / float(row["peak_gib"]) - 1.0) for row, told in some]
        said.append(
            f"At batch {batch} time is met to {_ends(time)} (median {median(time):.0%}), "
            f"memory to {_ends(peak)}."
        )
    inside = sum(
        told.interval is not None
        and told.interval["p90"][0] <= float(row["step_s"]) <= told.interval["p90"][1]
        for row, told in both
    )
    said.append(f"{inside} of {len(both)} steps lie in the stated 90 % interval.")
    return "\n".join([*lines, "", " ".join(said)])


def _ends(errors: Sequence[float]) -> str:
    return f"{min(errors):.1%} to {max(errors):.1%}"


SECTIONS: Sections = (
    ("docs/accuracy.md", "h200", ladder_text),
    ("docs/accuracy.md", "wide", wide_text),
    ("docs/accuracy/h200.csv", "", ladder_rows),
    ("docs/anthe.md", "steps", translation_text),
)
"""Page, name of its section, and what writes it."""


def with_steps(root: Path) -> dict[Path, str]:
    """The pages of a repository as predictions are today; a page may have several sections."""
    from foretell.lab.validate.own_transformers import SECTIONS as TRANSFORMERS

    return with_written(root, (*SECTIONS, *TRANSFORMERS), root)
