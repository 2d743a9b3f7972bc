"""A characterisation as text: the matrix, measured beside predicted."""

from statistics import median
from typing import TYPE_CHECKING, Any

from foretell.lab.characterize.predict import HELD
from foretell.lab.characterize.table import SHARES, measured_of

if TYPE_CHECKING:
    from foretell.lab.characterize.run import CharacterizeResult, PointRow

WORDS = {"left out": "skipped"}
"""Status of a point -> what it is called, where that differs."""
DEFAULT_WORDS = (
    "pp1", "tp1", "flash", "no-fused", "recompute=none", "gradients=fp32", "framework=pytorch-eager",
)  # fmt: skip
"""Words of a plan that say what is usual here."""


def characterized_text(found: "CharacterizeResult") -> str:
    """A line for each point, the largest disagreements of each, and where the results are."""
    lines = []
    errors = []
    for row in found.rows:
        lines += _lines(row)
        if row.measured is not None and row.predicted is not None:
            errors.append(abs(row.predicted.step_s / measured_of(row.measured)["step_s"] - 1.0))
    if errors:
        lines.append(f"median error of the step: {median(errors):.1%} over {len(errors)} points")
    states = [row.status for row in found.rows]
    counts = {s: states.count(s) for s in ("planned", "finished", "failed", "left out")}
    lines.append(", ".join(f"{n} {WORDS.get(name, name)}" for name, n in counts.items() if n))
    lines += [_note(found.note)] if found.note else []
    lines += [f"results: {found.parquet}"] if found.parquet else []
    return "\n".join(lines)


def _note(words: str) -> str:
    """A note, or a warning as it is."""
    return words if words.startswith("warning:") else f"note: {words}"


def _lines(row: "PointRow") -> list[str]:
    point, guess = row.point, row.predicted
    plan = " ".join(w for w in str(point.plan).split() if w not in DEFAULT_WORDS)
    head = f"{point.model}: {point.processes} processes, {point.global_batch} x {point.seq_len}, {plan}"
    lines = [head]
    if guess is not None:
        memory = f"{guess.peak_bytes / 2**30:.2f} GiB"
        lines.append(f"  predicted {_time(guess.step_s)}, {memory}: {_shares(guess.shares_s)}")
    if row.measured is not None:
        told = measured_of(row.measured)
        error = "" if guess is None else f", predicted {guess.step_s / told['step_s'] - 1.0:+.1%}"
        rate = f"{told['tokens_per_s']:,.0f} tokens/s"
        lines.append(
            f"  measured  {_time(told['step_s'])}, {rate}{error}: {_shares(told['shares_s'])}"
        )
        lines += [f"  {text}" for text in _held(row, told)]
    elif row.status != "planned":
        lines.append(f"  {WORDS.get(row.status, row.status)}: {row.why}")
    return lines


def _held(row: "PointRow", told: dict[str, Any]) -> list[str]:
    """Memory of the first rank, and whether the messages are those predicted."""
    sides = {"held MiB  ": told["held_bytes"][0]}
    if row.predicted is not None:
        sides["predicted "] = row.predicted.stages[0].held_bytes
    return [
        name + ", ".join(f"{part} {held[part] / 2**20:.1f}" for part in HELD)
        for name, held in sides.items()
    ]


def _shares(shares: dict[str, float]) -> str:
    named = [(name, shares.get(name, 0.0)) for name in SHARES]
    return ", ".join(f"{name} {_time(s)}" for name, s in named if s > 0.0005 * sum(shares.values()))


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{seconds * 1e3:.3g} ms"
