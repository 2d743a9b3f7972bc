"""Steps that were measured for this project on one H200, beside what is predicted of them today.

own_h200.csv    the runner's ladder of decoders, examples/characterize_h200.toml; NVIDIA H200 (700 W, driver
                580.159.04), PyTorch 2.11.0 (CUDA 13.0), eager; medians of two seconds of steps
own_wide.csv    the same in 32 bits, examples/characterize_wide.toml; medians of a second and a half
own_anthe.csv   Anthe and its baselines, tests/bench/bench_anthe.py on the same kind of card: medians of 15
                steps with the fastest and the slowest, peaks of the allocator, bytes of the gradients
own_transformers.csv    Hugging Face transformers, tests/bench/measure_transformers.py; transformers 5.17.0,
                accelerate 1.15.0, peft 0.21.0; 2026-11-16. Medians of 1.2 seconds of steps, the fastest,
                phases by stamps in the queue, the host's time for passes of 64 tokens, peaks of the
                allocator, what stays allocated between steps, joules

The others are of 2026-11-15. `variant` says what no word of a plan says: another optimizer, a mask, the
Trainer itself. Two are left out of the figures, since no word asks for them: experts in a loop, and masks
that are padded. `python -m foretell.lab.validate.published` writes the tables into docs/accuracy.md and
docs/anthe.md, and a test holds the pages to them.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, cast

from foretell.api.answers import Estimate
from foretell.api.training import estimate
from foretell.catalog.files import read_table
from foretell.catalog.models import model as catalogue
from foretell.errors import Infeasible
from foretell.lab.characterize.config import read_config
from foretell.lab.characterize.predict import PointPrediction, predict
from foretell.lab.translate.settings import with_form
from foretell.lab.validate.page_text import Sections, markdown, rows_text, with_written
from foretell.records import dataclass

HERE = Path(__file__).parent
SYSTEM = "h200-sxm"
GIB = 2.0**30
SOURCE, TARGET = 100, 101
"""Tokens of a source and of a target of the translation models' steps."""
TRANSLATION = "framework=pytorch-eager no-fused weights=bf16 gradients=bf16 master=none states=bf16"
"""How those steps ran."""
TABLE = read_table(HERE / "own_runs.toml")
"""What pages call these steps."""
WORDS = "framework=transformers dp1 precision=bf16 master=none"
"""What all points of transformers have in common."""
NARROW = "weights=bf16 gradients=bf16 states=bf16"
"""What those have in common whose weights are in 16 bits."""
MODES: Mapping[str, str] = TABLE["modes"]
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
        plan, batch = f"dp1 mbs{row['batch']} {TRANSLATION}", int(row["batch"])
        sizes: dict[str, Any] = {"global_batch": batch, "seq_len": SOURCE, "target_len": TARGET}
        found.append((row, estimate(model, system=SYSTEM, gpus=1, plan=plan, **sizes)))
    return found


def tensor_bytes(told: Estimate) -> float:
    """What tensors take at the peak, without allocator and framework."""
    assert told.memory is not None
    return sum(leaf.value for leaf in told.memory.children if leaf.name != "lost")


def ladder_rows(root: Path) -> str:
    """The runner's points on one H200 as CSV."""
    rows = []
    for row, told in (pair for name in ("h200", "wide") for pair in ladder(root, name)):
        found = {n: row[n] for n in ("model", "micro_batch", "micro_batches", "seq_len", "plan")}
        found["step_ms"] = f"{1e3 * float(row['step_s']):.1f}"
        found["predicted_ms"] = f"{1e3 * told.step_s:.1f}"
        found["error"] = f"{told.step_s / float(row['step_s']) - 1.0:+.3f}"
        for part in ("forward", "backward", "optimizer"):
            found[f"{part}_ms"] = f"{1e3 * float(row[f'{part}_s']):.1f}"
            found[f"{part}_predicted_ms"] = f"{1e3 * told.shares_s[part]:.1f}"
        found["allocated_gib"] = f"{float(row['max_allocated_bytes']) / GIB:.1f}"
        found["predicted_gib"] = f"{told.allocated_bytes / GIB:.1f}"
        rows.append(found)
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
    both = translation()
    rows = []
    for row, told in both:
        step, fastest, slowest = (
            f"{1e3 * float(row[f'{name}_s']):.1f}" for name in ("step", "fastest", "slowest")
        )
        plain = row["model"] == "anthe-no-tc" or "base" in row["model"]
        limit = TABLE["limits"].get(told.limited_by, told.limited_by)
        rows.append(
            [
                f"`{row['model']}`", "" if plain else row["form"], row["batch"],
                f"{step} ({fastest} to {slowest})", f"{1e3 * told.step_s:.1f}", limit,
                row["peak_gib"], f"{tensor_bytes(told) / GIB:.2f}", f"{row['gradient_mb']} MB",
            ]
        )  # fmt: skip
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
    head = "model | form | batch | step, ms | predicted | largest part | peak, GiB | predicted | gradients"
    return f"{markdown(head, rows)}\n\n{' '.join(said)}"


def _ends(errors: Sequence[float]) -> str:
    return f"{min(errors):.1%} to {max(errors):.1%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured step of transformers and what is predicted of it."""

    row: Row
    """As measured."""
    told: Estimate
    """As predicted."""

    @property
    def time_error(self) -> float:
        """Predicted over measured time, less one."""
        return 1e3 * self.told.step_s / float(self.row["step_ms"]) - 1.0

    @property
    def memory_error(self) -> float:
        """Predicted over measured peak of the allocator, less one."""
        return tensor_bytes(self.told) / float(self.row["peak_bytes"]) - 1.0

    @property
    def mode(self) -> str:
        """The group that it belongs to."""
        return [mode for mode, word in MODES.items() if word in self.row["plan"]][-1]


def predict_point(row: Row) -> Estimate:
    """What a row's step takes, by the words of a plan."""
    narrow = "" if "weights=" in row["plan"] else f" {NARROW}"
    own = () if row["model"].startswith("gpt2") else (f"model.num_hidden_layers={row['layers']}",)
    try:
        return estimate(
            row["model"],
            system=SYSTEM,
            gpus=1,
            plan=f"{WORDS} mbs{row['micro_batch']}{narrow} {row['plan']}".strip(),
            global_batch=int(row["micro_batch"]) * int(row["micro_batches"]),
            seq_len=int(row["seq_len"]),
            set=own,
        )
    except Infeasible as error:
        assert isinstance(error.answer, Estimate)
        return error.answer


def points() -> list[Point]:
    """Every point of transformers that a plan can ask for, measured and predicted."""
    rows = [
        r for r in measured_rows("own_transformers.csv") if r["variant"] not in TABLE["no_word"]
    ]
    return [Point(row=row, told=predict_point(row)) for row in rows]


def is_held_out(point: Point) -> bool:
    """Whether nothing was read from the points of its model."""
    return point.row["model"] not in TABLE["fitted"] and point.mode != list(MODES)[-1]


def table_text(root: Path) -> str:
    """Errors by mode and by model, of all points and of those that are held out."""
    del root
    every = points()
    groups = {mode: [p for p in every if p.mode == mode] for mode in MODES}
    for model in dict.fromkeys(p.row["model"] for p in every):
        groups[f"`{model}`"] = [p for p in every if p.row["model"] == model]
    groups |= {"all": every, "held-out models": [p for p in every if is_held_out(p)]}
    rows = []
    for name, some in groups.items():
        cells = [name, f"{len(some)}"]
        for errors in ([p.time_error for p in some], [p.memory_error for p in some]):
            cells += [f"{median(map(abs, errors)):.1%}", f"{max(errors, key=abs):+.1%}"]
        rows.append(cells)
    return markdown("| points | step: median | worst | peak allocated: median | worst", rows)


def points_text(root: Path) -> str:
    """Every point of transformers as CSV."""
    del root
    names = ("model", "layers", "micro_batch", "seq_len", "micro_batches", "plan", "variant")
    return rows_text(
        [
            {name: point.row[name] for name in names}
            | {
                "step_ms": f"{float(point.row['step_ms']):.1f}",
                "predicted_ms": f"{1e3 * point.told.step_s:.1f}",
                "step_error": f"{point.time_error:+.3f}",
                "peak_gib": f"{float(point.row['peak_bytes']) / GIB:.1f}",
                "predicted_gib": f"{tensor_bytes(point.told) / GIB:.1f}",
                "peak_error": f"{point.memory_error:+.3f}",
            }
            for point in points()
        ]
    )


SECTIONS: Sections = (
    ("docs/accuracy.md", "h200", ladder_text),
    ("docs/accuracy.md", "wide", wide_text),
    ("docs/accuracy/h200.csv", "", ladder_rows),
    ("docs/anthe.md", "steps", translation_text),
    ("docs/accuracy.md", "transformers", table_text),
    ("docs/accuracy/transformers.csv", "", points_text),
)
"""Page, name of its section, and what writes it."""


def with_steps(root: Path) -> dict[Path, str]:
    """The pages of a repository as predictions are today; a page may have several sections."""
    return with_written(root, SECTIONS, root)
