"""Rows of serving results as questions that `serve` answers, and our figures beside theirs.

A score asks the answer of each row, as a user gets it (`row_figures`). A fit asks for the same numbers of
many rows under many profiles: `predicted_all` has those of one deployment at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.api.serving import asked_of, served_plainly
from foretell.errors import Infeasible
from foretell.lab.calibrate.serving_arguments import (
    ATTENTION_DP,
    ONLINE,
    Arguments,
    UnsupportedRow,
    arguments_of,
)
from foretell.lab.calibrate.serving_rows import ServingRow
from foretell.records import dataclass
from foretell.serving.benchmark import (
    begun_at_once,
    benchmark_tokens_per_s,
    benchmark_ttft_s,
    first_wave,
    is_short,
)
from foretell.serving.disaggregation import PrefillPool
from foretell.serving.formats import mixture_of
from foretell.serving.memory import memory_of
from foretell.serving.serve import ServeQuestion, state_of
from foretell.serving.service_numbers import first_token_s
from foretell.serving.steps import step_times
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.questions.serving import ServingQuestion
from foretell.specs.service import ServiceEstimate
from foretell.specs.system import System

Figures = Mapping[str, float]
"""Metric -> figure: ttft, ttft_median, tpot and e2e in milliseconds, throughput in output tokens a second of
all chips, input_throughput in prompt tokens of one, joules of an output token."""
Columns = Mapping[str, Array]
"""Metric -> figures of several rows."""
PREFILLING = "prefill_tokens_per_gpu_s"
"""Kind of instances that do prefill alone."""
DERIVED = "derived"
"""How notes say that a throughput was computed from latencies, of nominal lengths."""
EARLY, LONG_ANSWER = "2023, Splitwise", 1024.0
"""Engine of rows whose answers of so many tokens stopped early: their end-to-end times mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCase:
    """A row, and the question that it asks."""

    row: ServingRow
    """The row."""
    arguments: Arguments
    """What a user would give `serve`."""
    question: ServeQuestion
    """The question that they make."""
    said: tuple[str, ...]
    """What was filled."""

    @property
    def model(self) -> Model:
        """What is served."""
        return self.question.model

    @property
    def system(self) -> System:
        """On what."""
        return self.question.system

    @property
    def deployment(self) -> Deployment:
        """How: one instance; of those that decode, where prefill is apart."""
        return self.question.deployment

    @property
    def profile(self) -> EngineProfile:
        """By which engine."""
        return self.question.profile

    @property
    def prefill(self) -> PrefillPool | None:
        """Prefill workers; None where the instances do both."""
        return self.question.prefill

    @property
    def group(self) -> str:
        """Model, chip and engine: what is left out together."""
        return f"{self.model.id} x {self.system.chip.id} x {self.profile.engine}"

    @property
    def mixture(self) -> bool:
        """Whether the model has routed experts."""
        return mixture_of(self.model)

    def asked_of(self, profile: EngineProfile) -> ServeQuestion:
        """The row's question of an engine profile."""
        return replace(self.question, profile=profile)


def case_of(row: ServingRow) -> ServingCase:
    """A row understood; UnsupportedRow with the reason, or BadInput, where it cannot be."""
    arguments, notes = arguments_of(row)
    question, _ = asked_of(ServingQuestion(**arguments))
    memory = memory_of(question.model, question.system, question.deployment, question.profile)
    if not memory.fits and any(ATTENTION_DP in text for text in notes):
        return case_of(replace(row, dp=1))
    return ServingCase(
        row=row, arguments=arguments, question=question, said=(*notes, *question.assumptions)
    )


def row_figures(case: ServingCase, profile: EngineProfile) -> Figures | str:
    """A row's figures in the answer that a user gets, or the reason why there is none.

    The tails of latencies, of simulated requests there, are not scored.
    """
    try:
        return answer_figures(served_plainly(case.asked_of(profile), given=True))
    except Infeasible as error:
        return "; ".join(p.message for p in error.problems)


def answer_figures(found: ServiceEstimate) -> Figures:
    """The figures of an answer: as a benchmark prints them where all begins at once."""
    own = found.benchmark or found
    return {
        "ttft": own.ttft_ms.mean,
        "ttft_median": own.ttft_ms.p50,
        "tpot": own.tpot_ms.mean,
        "e2e": own.e2e_ms.mean,
        "throughput": own.output_tokens_per_s,
        "input_throughput": found.requests_per_s * found.isl / found.gpus,
        "joules": found.joules_per_token,
    }


def predict_case(case: ServingCase, profile: EngineProfile | None = None) -> Figures:
    """Our figures of a row; UnsupportedRow with the reason where there are none."""
    found = row_figures(case, profile or case.profile)
    if isinstance(found, str):
        raise UnsupportedRow(found)
    return found


def predicted_all(
    cases: Sequence[ServingCase], profile: Callable[[ServingCase], EngineProfile]
) -> list[Figures]:
    """Our figures of many rows: closed forms of one deployment at once, short benchmarks one by one."""
    found: list[Figures] = [{}] * len(cases)
    groups: dict[Any, list[int]] = {}
    for i, case in enumerate(cases):
        if is_short(case.question):
            found[i] = predict_case(case, profile(case))
        else:
            groups.setdefault(alike(case, profile(case)), []).append(i)
    for members in groups.values():
        some = [cases[i].asked_of(profile(cases[i])) for i in members]
        columns = columns_of(some)
        for place, i in enumerate(members):
            found[i] = {name: float(values[place]) for name, values in columns.items()}
    return found


def alike(case: ServingCase, profile: EngineProfile) -> object:
    """What rows have in common that are predicted together."""
    q = case.question
    same = q.batching, q.gpus, q.prefill, q.traffic.least, q.traffic.cached
    waves = float(first_wave(q, q.traffic.concurrency).waves)
    alone = case.row.id if q.rate is not None else ""
    return q.model.id, q.system.id, q.deployment, profile, same, waves, alone


def columns_of(questions: Sequence[ServeQuestion]) -> Columns:
    """Figures of questions that differ in lengths and concurrency alone."""
    first = questions[0]
    isl, osl, flight = (
        np.array([float(np.asarray(getattr(q.traffic, name))) for q in questions])
        for name in ("isl", "osl", "concurrency")
    )
    load = replace(first.traffic, isl=isl, osl=osl, concurrency=flight)
    requests = None if first.requests is None else np.array([q.requests for q in questions], float)
    q = replace(first, traffic=load if first.rate is None else first.traffic, requests=requests)
    times = step_times(q.model, q.system, q.deployment, q.profile)
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    state, _ = state_of(q, times, memory)
    answer = np.maximum(0.5 * (1.0 + q.traffic.least) * osl, 1.0)
    ttft, rate, share = state.ttft_steady_s, np.asarray(state.requests_per_s) * q.replicas, 0.0
    if q.rate is None and q.batching == "continuous":
        state = begun_at_once(q, times, memory, state)
        ttft, share = benchmark_ttft_s(q, state), float(np.max(first_wave(q, flight).share))
        tokens = benchmark_tokens_per_s(q, ttft, state.tpot_s, answer)
    else:
        rate = rate if q.rate is None else np.minimum(q.rate, rate)
        tokens = rate * answer
    median = np.median(first_token_s(state, share), axis=-1)
    tpot = np.asarray(state.tpot_s) * (answer > 1.0)
    found = {
        "ttft": 1e3 * ttft,
        "ttft_median": 1e3 * median,
        "tpot": 1e3 * tpot,
        "e2e": 1e3 * (ttft + tpot * (answer - 1.0)),
        "throughput": tokens,
        "input_throughput": rate * isl / q.all_gpus,
    }
    return {name: np.broadcast_to(values, len(questions)) for name, values in found.items()}


def measured_figures(row: ServingRow) -> dict[str, float]:
    """What a row has of the metrics; throughput in total, else of one chip."""
    figures = {
        "ttft": row.ttft_median_ms or row.ttft_ms,
        "ttft_mean": row.ttft_ms if row.ttft_median_ms else None,
        "tpot": row.tpot_ms,
        "e2e": row.e2e_ms,
        "throughput": row.tokens_per_s or row.tokens_per_s_per_gpu,
        "joules": measured_joules(row),
        "input_throughput": row.input_tokens_per_s_per_gpu if row.kind == PREFILLING else None,
    }
    if EARLY in row.framework and (row.osl or 0.0) >= LONG_ANSWER:
        figures["e2e"] = None
    return {name: value for name, value in figures.items() if value is not None}


def measured_joules(row: ServingRow) -> float | None:
    """Joules of an output token: as printed, or by the chips' mean power and the rate."""
    if row.joules_per_output_token is not None:
        return row.joules_per_output_token
    if row.watts_per_gpu is None or row.n_gpus is None or not row.tokens_per_s:
        return None
    return row.watts_per_gpu * row.n_gpus / row.tokens_per_s


def in_their_unit(case: ServingCase, figures: Figures) -> dict[str, float]:
    """Figures as a row has them: the median TTFT where it is recorded, throughput of one chip where there is
    no total (of a disaggregated row, of each chip that decodes), that of latencies where notes say so."""
    found, row, q = dict(figures), case.row, case.question
    median = found.pop("ttft_median", None)
    if row.kind == ONLINE and DERIVED in row.notes.lower():
        whole = found["ttft"] + found["tpot"] * max(float(np.asarray(q.traffic.osl)) - 1.0, 0.0)
        found["throughput"] = (
            1e3 * float(np.asarray(q.traffic.concurrency)) * (row.osl or 1.0) / whole
        )
    if row.kind == "decode_tokens_per_gpu_s":
        # The second of two tokens: what steps of the whole batch give.
        found["throughput"] = 1e3 * float(np.asarray(q.traffic.concurrency)) / found["tpot"]
    if row.ttft_median_ms and median is not None:
        found |= {"ttft": median, "ttft_mean": found["ttft"]}
    if row.tokens_per_s is None and "throughput" in found:
        found["throughput"] /= q.gpus
    return found
