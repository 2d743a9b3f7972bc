"""Measured runs as a system's file: `foretell calibrate runs runs.csv --out my-cluster.toml`.

The file names the system that it stands on and what its mechanisms take over what is predicted, so that every
verb answers with `--system my-cluster.toml` as if the runs were given with `--measured`. Where the system is
itself a file (calibrate fit, or one's own), its text is kept and the factors stand beside its numbers.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.conditioning import Conditioned, condition_steps, measured_steps
from foretell.api.measured_files import read_measured
from foretell.catalog.files import toml_value
from foretell.catalog.systems import own_file
from foretell.errors import BadInput, Problem
from foretell.inputs.question import scenario_for
from foretell.records import as_json, dataclass
from foretell.specs.corrections import TRAINING, TRAINING_MEMORY, Corrections
from foretell.specs.questions.training import StepQuestion

HEAD = """# What measured runs took over what is predicted, by mechanism: 1 as predicted, 2 twice as long.
# Written by foretell calibrate runs; use it as --system in every verb.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedRuns:
    """A system as measured runs have it."""

    system: str
    """The system that it stands on."""
    runs: int
    """Runs that were read."""
    corrections: dict[str, float]
    """Mechanism -> factor."""
    deviations: dict[str, float]
    """Mechanism -> standard deviation of the factor's logarithm."""
    before: float
    """Median of |predicted / measured - 1| before."""
    after: float
    """The same with the factors."""
    notes: tuple[str, ...]
    """Notes on the way."""
    text: str
    """The file."""

    to_dict = as_json(without=("text",))


def calibrate_runs(
    files: Sequence[str | Path],
    *,
    model: Any,
    system: Any,
    gpus: Any = None,
    plan: str | None = None,
) -> CalibratedRuns:
    """The factors of a system from runs on it; BadInput with every problem."""
    rows = read_measured(list(files))
    if not rows:
        raise BadInput([Problem(path="files", value=None, message="have no measured runs")])
    first = rows[0].asked
    named: Any = model or first.get("model")
    question = StepQuestion(
        named,
        system=system or first.get("system"),
        gpus=gpus or first.get("gpus"),
        global_batch=first.get("global_batch"),
        seq_len=first.get("seq_len"),
    )
    scenario = scenario_for(question)
    runs = measured_steps(scenario, plan, rows)
    known = condition_steps(runs)
    corrections, deviations = _mean_of(known)
    notes = [f"{row.source}: {note}" for row in rows for note in row.notes]
    before, after = _errors(known, corrections)
    return CalibratedRuns(
        system=scenario.system.id,
        runs=len(runs),
        corrections={k: v for k, v in corrections.to_dict().items() if abs(v - 1.0) > 1e-4},
        deviations=deviations,
        before=before,
        after=after,
        notes=(*known.notes, *notes),
        text=file_text(question.system or scenario.system.id, corrections, deviations, len(runs)),
    )


def _mean_of(known: Conditioned) -> tuple[Corrections, dict[str, float]]:
    """The factors that the measured runs have on the mean, what is alike among them included."""
    steps = [known.step(run.scenario, run.plan) for run in known.runs]
    names = (*TRAINING, *(TRAINING_MEMORY if known.memory.runs else ()))
    logs = {
        name: float(np.mean([math.log(getattr(step.corrections, name)) for step in steps]))
        for name in names
    }
    found: dict[str, Any] = {name: float(f"{math.exp(value):.4g}") for name, value in logs.items()}
    spread = np.mean([step.said.deviations for step in steps], axis=0).tolist()
    return Corrections(**found), {n: round(d, 4) for n, d in zip(TRAINING, spread, strict=True)}


def _errors(known: Conditioned, corrections: Corrections) -> tuple[float, float]:
    """Median errors of the runs' step times, as predicted and with the factors."""
    from dataclasses import replace

    from foretell.specs.plan import batch_of
    from foretell.training.step import evaluate

    off: list[tuple[float, float]] = []
    for run in known.runs:
        if run.step_s:
            system = run.scenario.system.with_corrections(corrections)
            scenarios = (run.scenario, replace(run.scenario, system=system))
            pair = [
                evaluate(one, batch_of([run.plan]))[0][0] / run.step_s - 1.0 for one in scenarios
            ]
            off.append((abs(pair[0]), abs(pair[1])))
    if not off:
        return 0.0, 0.0
    return float(np.median([a for a, _ in off])), float(np.median([b for _, b in off]))


def file_text(
    system: Any, corrections: Corrections, deviations: dict[str, float], runs: int
) -> str:
    """The system's file."""
    path = own_file(str(system)) if isinstance(system, str | Path) else None
    told = [f"{k} = {v!r}" for k, v in corrections.to_dict().items() if abs(v - 1.0) > 1e-4]
    lines = ["[corrections]", *told]
    wide = ", ".join(f"{name} = {value!r}" for name, value in deviations.items())
    lines.append(f"# standard deviations of their logarithms after {runs} runs: {wide}")
    if path is not None:
        return path.read_text().rstrip() + "\n\n" + HEAD + "\n".join(lines) + "\n"
    return HEAD + f"base = {toml_value(str(system))}\n\n" + "\n".join(lines) + "\n"
