"""Measured runs as a system's file: `foretell calibrate runs runs.csv --out my-cluster.toml`.

The file names the system that it extends and what its mechanisms take over what is predicted, so that every
verb answers with `--system my-cluster.toml` as if the runs were given with `--measured`. Where the system is
itself a file (calibrate fit, or one's own), its text is kept and the factors are beside its numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.conditioning import (
    Conditioned,
    MeasuredStep,
    condition_steps,
    measured_steps,
    step_run,
)
from foretell.api.measured_files import read_measured
from foretell.api.measured_serving import condition_service
from foretell.catalog.files import toml_value
from foretell.catalog.systems import own_file
from foretell.errors import bad_input
from foretell.inputs.question import scenario_for
from foretell.records import as_json, dataclass
from foretell.specs.corrections import SERVING, TRAINING, TRAINING_MEMORY, Corrections
from foretell.specs.measurement import SERVED, Measurement
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.questions.training import StepQuestion

HEAD = """# What measured runs took over what is predicted, by mechanism: 1 as predicted, 2 twice as long.
# Written by foretell calibrate runs; use it as --system in every verb.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedRuns:
    """A system as measured runs have it."""

    system: str
    """The system that it extends."""
    runs: int
    """Runs that were read."""
    quantiles: tuple[float, ...]
    """5, 25, 75 and 95 % quantiles of ln(measured / predicted) of a training step like them, or none."""
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
        raise bad_input("files", None, "have no measured runs")
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
    steps = [row for row in rows if not _served(row)]
    known = condition_steps(measured_steps(scenario, plan, steps))
    corrections, deviations, quantiles = _mean_of(known)
    served = [row for row in rows if _served(row)]
    if served:
        corrections = corrections.times(_services(question, plan, served))
    notes = [f"{row.source}: {note}" for row in rows for note in row.notes]
    before, after = _errors(known, corrections)
    return CalibratedRuns(
        system=scenario.system.id,
        runs=len(rows),
        quantiles=quantiles,
        corrections={k: v for k, v in corrections.to_dict().items() if abs(v - 1.0) > 1e-4},
        deviations=deviations,
        before=before,
        after=after,
        notes=(*known.notes, *notes),
        text=file_text(
            question.system or scenario.system.id, corrections, deviations, quantiles, len(rows)
        ),
    )


def _served(row: Measurement) -> bool:
    return any(name in SERVED for name in row.values)


def _services(question: StepQuestion, plan: str | None, rows: Sequence[Measurement]) -> Corrections:
    """The factors of measured services, on their mean."""
    asked = ServiceQuestion(
        question.model, system=question.system, gpus=question.gpus or 1, plan=plan
    )
    known, _ = condition_service(asked, rows)
    found = [known.corrections(q) for q in known.questions]
    told: dict[str, Any] = {
        name: float(f"{math.exp(np.mean([math.log(getattr(one, name)) for one in found])):.4g}")
        for name in SERVING
    }
    return Corrections(**told)


def _mean_of(known: Conditioned) -> tuple[Corrections, dict[str, float], tuple[float, ...]]:
    """The factors that the measured runs have on the mean, what is alike among them included, how sure they
    are, and how far the next step like them may be."""
    if not known.runs:
        return Corrections(), {}, ()
    steps = [known.step(run.predicted, another=True) for run in known.runs]
    names = (*TRAINING, *(TRAINING_MEMORY if known.memory.runs else ()))
    logs = {
        name: float(np.mean([math.log(getattr(step.corrections, name)) for step in steps]))
        for name in names
    }
    found: dict[str, Any] = {name: float(f"{math.exp(value):.4g}") for name, value in logs.items()}
    spread = np.mean([step.said.deviations for step in steps], axis=0).tolist()
    told = {n: round(d, 4) for n, d in zip(TRAINING, spread, strict=True)}
    ends = np.mean([_ends(known, run) for run in known.runs], axis=0).tolist()
    return Corrections(**found), told, tuple(round(end, 4) for end in ends)


def _ends(known: Conditioned, run: MeasuredStep) -> list[float]:
    """Quantiles of a step like a measured one, of another model, around its median."""
    line = step_run(run.predicted)
    said = known.steps.of(replace(line, key=None, features={**line.features, "model": "another"}))
    (low, high), (below, above) = said.interval["p90"], said.interval["p50"]
    return [end - said.median for end in (low, below, above, high)]


def _errors(known: Conditioned, corrections: Corrections) -> tuple[float, float]:
    """Median errors of the runs' step times, as predicted and with the factors."""
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
    system: Any,
    corrections: Corrections,
    deviations: dict[str, float],
    quantiles: Sequence[float],
    runs: int,
) -> str:
    """The system's file."""
    path = own_file(str(system)) if isinstance(system, str | Path) else None
    told = [f"{k} = {v!r}" for k, v in corrections.to_dict().items() if abs(v - 1.0) > 1e-4]
    lines = ["[corrections]", *told]
    wide = ", ".join(f"{name} = {value!r}" for name, value in deviations.items())
    if wide:
        lines.append(f"# standard deviations of their logarithms after {runs} runs: {wide}")
    if quantiles:
        lines += ["", "[measured_step]", f"quantiles = {toml_value(list(quantiles))}"]
        lines.append(
            "# ln(measured / predicted) of a training step like those, at 5, 25, 75 and 95 %"
        )
    if path is not None:
        return path.read_text().rstrip() + "\n\n" + HEAD + "\n".join(lines) + "\n"
    return HEAD + f"base = {toml_value(str(system))}\n\n" + "\n".join(lines) + "\n"
