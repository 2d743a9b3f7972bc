"""Steps of Hugging Face transformers that were measured for this project on one H200, beside predictions.

own_transformers.csv   tests/bench/measure_transformers.py on one NVIDIA H200 (driver 580.159.04), PyTorch
                       2.11.0 (CUDA 13.0), transformers 5.17.0, accelerate 1.15.0, peft 0.21.0; 2026-11-16.
                       Medians of 1.2 seconds of steps, the fastest, phases by stamps in the queue, the
                       host's time for passes of 64 tokens, peaks of the allocator, what stays allocated
                       between steps, joules

`variant` says what no word of a plan says: another optimizer, a mask, the Trainer itself. Two are left out of
the figures, since no word asks for them: experts in a loop, and masks that are padded.
`python -m foretell.lab.validate.published` writes the tables into docs/accuracy.md, and a test holds the page
to them.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from foretell.api.answers import Estimate
from foretell.api.training import estimate
from foretell.errors import Infeasible
from foretell.lab.validate.own_runs import GIB, SYSTEM, Row, measured_rows, tensor_bytes
from foretell.lab.validate.published import Sections
from foretell.lab.validate.stored_steps import rows_text
from foretell.records import dataclass

FILE = "own_transformers.csv"
WORDS = "framework=transformers dp1 precision=bf16 master=none"
"""What all points have in common."""
NARROW = "weights=bf16 gradients=bf16 states=bf16"
"""What those have in common whose weights are in 16 bits."""
NO_WORD = ("experts one by one", "padded mask")
"""Variants that no plan can ask for."""
FITTED = ("llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b", "qwen3-30b-a3b", "gpt2", "gpt2-xl")
"""Models whose points any number was read from: the host's times from Llama and Qwen3-0.6B, traffic of
kernels from Llama 3.1, of experts from Qwen3-30B-A3B, of composed activations from GPT-2. The others are held
out, but for their attention that stores scores, which the traffic of its softmax was read from."""
MODES = (
    "bf16 weights",
    "autocast",
    "checkpointing",
    "torch.compile",
    "LoRA",
    "attention that stores scores",
)
"""Groups of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured step and what is predicted of it."""

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
        plan = self.row["plan"]
        words = ("no-flash", "lora", "compile=on", "recompute=full", "weights=fp32")
        places = (5, 4, 3, 2, 1)
        return MODES[next((at for word, at in zip(words, places, strict=True) if word in plan), 0)]


def plan_words(row: Row) -> str:
    """A row's plan."""
    narrow = "" if "weights=" in row["plan"] else f" {NARROW}"
    return f"{WORDS} mbs{row['micro_batch']}{narrow} {row['plan']}".strip()


def predict_point(row: Row) -> Estimate:
    """What a row's step takes, by the words of a plan."""
    layers = (
        () if row["model"].startswith("gpt2") else (f"model.num_hidden_layers={row['layers']}",)
    )
    try:
        return estimate(
            row["model"],
            system=SYSTEM,
            gpus=1,
            plan=plan_words(row),
            global_batch=int(row["micro_batch"]) * int(row["micro_batches"]),
            seq_len=int(row["seq_len"]),
            set=layers,
        )
    except Infeasible as error:
        assert isinstance(error.answer, Estimate)
        return error.answer


def points() -> list[Point]:
    """Every point that a plan can ask for, measured and predicted."""
    rows = [row for row in measured_rows(FILE) if row["variant"] not in NO_WORD]
    return [Point(row=row, told=predict_point(row)) for row in rows]


def is_held_out(point: Point) -> bool:
    """Whether nothing was read from the points of its model."""
    return point.row["model"] not in FITTED and point.mode != MODES[-1]


def table_text(root: Path) -> str:
    """Errors by mode and by model, of all points and of those that are held out."""
    del root
    every = points()
    lines = [
        "| | points | step: median | worst | peak allocated: median | worst |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_line(mode, [p for p in every if p.mode == mode]) for mode in MODES]
    lines += [
        _line(f"`{model}`", [p for p in every if p.row["model"] == model])
        for model in dict.fromkeys(p.row["model"] for p in every)
    ]
    lines.append(_line("all", every))
    lines.append(_line("held-out models", [p for p in every if is_held_out(p)]))
    return "\n".join(lines)


def _line(name: str, some: Sequence[Point]) -> str:
    time = sorted((p.time_error for p in some), key=abs)
    memory = sorted((p.memory_error for p in some), key=abs)
    cells = [name, f"{len(some)}"]
    for errors in (time, memory):
        cells += [f"{median(map(abs, errors)):.1%}", f"{errors[-1]:+.1%}"]
    return f"| {' | '.join(cells)} |"


def points_text(root: Path) -> str:
    """Every point as CSV."""
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
    ("docs/accuracy.md", "transformers", table_text),
    ("docs/accuracy/transformers.csv", "", points_text),
)
"""Page, name of its section, and what writes it."""
