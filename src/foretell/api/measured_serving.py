"""Services conditioned on measured ones: a benchmark -> factors on prefill, decode, overhead, queueing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretell.api.conditioning import factor_json
from foretell.api.measured_files import FAR_SERVICE, check_plausible, read_measured
from foretell.api.serving import as_answered, closed_form
from foretell.api.serving_questions import question_of
from foretell.catalog.error_models import error_model
from foretell.errors import BadInput, Problem, bad_input
from foretell.inputs.question import collect
from foretell.records import dataclass
from foretell.serving.corrections import METRICS, served_slopes
from foretell.serving.evidence import facts_of, service_novelty
from foretell.serving.serve import ServeQuestion, serve_one
from foretell.specs.corrections import SERVING, Corrections
from foretell.specs.deployment_text import deployment_text
from foretell.specs.measurement import SERVED, Measurement
from foretell.specs.service import Percentiles, ServiceEstimate
from foretell.specs.system import System
from foretell.uncertainty.posterior import MeasuredRun, NextRun, Posterior, condition

FAR = 1.5
"""Largest log-factor."""
OTHER_WEIGHTS = 1.25
"""Measured over predicted weights from which a log is of another model, format or number of chips."""
OPEN = 0.02
"""Slope from which a mechanism is given."""
SCALED = {
    "output_tokens_per_s_per_gpu": "output_tokens_per_s",
    "requests_per_s": "output_tokens_per_s",
}
"""Figures that go with another one."""
RATES = (
    "requests_per_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user",
)  # fmt: skip
MONEY = ("usd_per_million_input_tokens", "usd_per_million_output_tokens")
"""Figures that go with the rate of a service under a fixed concurrency, and those that go against it."""
ZERO = np.zeros(len(SERVING))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedService:
    """A posterior for services of one place."""

    posterior: Posterior
    """What is held."""
    questions: tuple[ServeQuestion, ...]
    """The measured services."""
    figures: tuple[tuple[int, str], ...] = ()
    """Of each run of the posterior, the number of its service, and what of it was measured."""
    cache: float | None = None
    """Measured over predicted cache of the engine once it is up; None: not measured."""
    notes: tuple[str, ...] = ()
    """Notes on the way."""

    def places(self, number: int) -> list[tuple[int, str]]:
        """The figures of one measured service: where they are among the posterior's runs, and their names."""
        return [(i, name) for i, (of, name) in enumerate(self.figures) if of == number]

    def said(self, q: ServeQuestion) -> dict[str, NextRun]:
        """Metric -> what the posterior says of a deployment's."""
        return {
            name: self.posterior.of(run_of(q, name, slopes))
            for name, (_, slopes) in served_slopes(q, ZERO).items()
        }

    def corrections(self, q: ServeQuestion) -> Corrections:
        """Factors on the mechanisms of serving; a cache that was measured is not inferred from latencies."""
        told: dict[str, float] = {}
        if self.posterior.runs:
            _, slopes = served_slopes(q, ZERO)["tpot_ms"]
            logs = self.posterior.of(run_of(q, "tpot_ms", slopes)).factors
            told = dict(zip(SERVING, np.exp(np.clip(logs, -FAR, FAR)).tolist(), strict=True))
        if self.cache is not None:
            told["cache_capacity"] = self.cache
        return Corrections(**told)

    def place(self, q: ServeQuestion) -> System:
        """The system of a question as what was measured has it."""
        return q.system.with_corrections(self.corrections(q))

    def served(self, q: ServeQuestion, given: bool) -> ServiceEstimate:
        """The deployment asked for, or the best one, given what was measured."""
        found = closed_form(replace(q, system=self.place(q)), given)
        if not self.posterior.runs:
            return self.with_cache(found)
        layout = as_answered(found, q)
        return self.after(layout, serve_one(layout), found)

    def with_cache(self, found: ServiceEstimate) -> ServiceEstimate:
        """An answer under a measured cache alone: an engine's boot says nothing of its speed."""
        known = {} if self.cache is None else factor_json(math.log(self.cache), 0.0)
        return replace(
            found,
            posterior_factors={"cache_capacity": known},
            assumptions=(*found.assumptions, *self.notes),
        )

    def after(
        self, q: ServeQuestion, before: ServiceEstimate, found: ServiceEstimate
    ) -> ServiceEstimate:
        """An answer under the factors: each latency at the posterior's median, with its interval."""
        said = self.said(q)
        old = {"ttft_ms": before.ttft_ms.mean, "tpot_ms": before.tpot_ms.mean}
        moved: dict[str, Any] = {}
        interval = {}
        for name, value in old.items():
            now = value * math.exp(said[name].median)
            held = getattr(found, name)
            moved[name] = scaled(held, now / held.mean if held.mean > 0.0 else 1.0)
            interval[name] = {
                key: (value * math.exp(low), value * math.exp(high))
                for key, (low, high) in said[name].interval.items()
            }
        # A request is its first token and the others, and a fixed concurrency turns over once in that time.
        later = (before.e2e_ms.mean - old["ttft_ms"]) / max(old["tpot_ms"], 1e-12)
        whole = moved["ttft_ms"].mean + later * moved["tpot_ms"].mean
        for name in ("e2e_ms", "tpot_with_first_ms"):
            ratio = whole / found.e2e_ms.mean if found.e2e_ms.mean > 0.0 else 1.0
            moved[name] = scaled(getattr(found, name), ratio)
        rate = before.output_tokens_per_s * before.e2e_ms.mean / max(whole, 1e-12)
        faster = 1.0 if q.rate is not None else rate / max(found.output_tokens_per_s, 1e-12)
        for name in RATES:
            moved[name] = getattr(found, name) * faster
        for name in MONEY:
            held = getattr(found, name)
            moved[name] = None if held is None else held / faster
        return replace(
            found,
            **moved,
            interval=interval,
            interval_reason="given what was measured",
            prior={
                "ttft_ms": before.ttft_ms.to_dict(),
                "tpot_ms": before.tpot_ms.to_dict(),
                "e2e_ms": before.e2e_ms.to_dict(),
                "output_tokens_per_s": before.output_tokens_per_s,
                "interval": before.interval,
            },
            posterior_factors=self.factors(said["tpot_ms"]),
            assumptions=(*found.assumptions, *self.notes),
        )

    def factors(self, said: NextRun) -> dict[str, Any]:
        """Mechanism -> factor and its interval, of those that a measured service has."""
        there = np.max([np.abs(run.slopes) for run in self.posterior.runs], axis=0)
        return {
            name: factor_json(said.factors[i], said.deviations[i])
            for i, name in enumerate(SERVING)
            if there[i] > OPEN
        }


def scaled(latency: Percentiles, ratio: float) -> Percentiles:
    """A latency with all of its percentiles times a ratio."""
    made: dict[str, Any] = {f.name: getattr(latency, f.name) * ratio for f in fields(latency)}
    return replace(latency, **made)


def run_of(q: ServeQuestion, metric: str, slopes: np.ndarray[Any, Any]) -> MeasuredRun:
    """One figure of a deployment as the posterior sees it."""
    at_once = 1.0 if q.rate is not None else float(np.max(np.asarray(q.traffic.concurrency)))
    return MeasuredRun(
        slopes=slopes,
        features=service_features(
            metric, q.model.id, q.system.chip.id, q.profile.engine,
            (at_once, float(np.asarray(q.traffic.isl)), float(np.asarray(q.traffic.osl)),
             float(q.deployment.tp), float(q.deployment.dp), float(q.deployment.ep)),
        ),
        novelty=service_novelty(facts_of(q), metric),
        key=(
            metric, q.model.id, q.system.id, q.profile.id, deployment_text(q.deployment), q.gpus, at_once,
            q.rate, float(np.asarray(q.traffic.isl)), float(np.asarray(q.traffic.osl)),
        ),
    )  # fmt: skip


SIZES = ("batch", "prompt", "answer", "tp", "dp", "ep")
"""Numbers that make two services alike, in powers of two."""


def service_features(
    metric: str, model: str, chip: str, engine: str, sizes: Sequence[float]
) -> dict[str, float | str]:
    """What makes two figures of services alike."""
    numbers = {n: math.log2(max(v, 1.0)) for n, v in zip(SIZES, sizes, strict=True)}
    return {**numbers, "metric": metric, "model": model, "chip": chip, "engine": engine}


def condition_service(question: Any, given: Any) -> tuple[ConditionedService, ServeQuestion]:
    """What measured services say, with what they leave open as the question has it; and the question."""
    asked, _ = question_of(question)
    rows = read_measured(given)
    problems: list[Problem] = []
    runs: list[MeasuredRun] = []
    questions: list[ServeQuestion] = []
    figures: list[tuple[int, str]] = []
    caches: list[float] = []
    for number, one in enumerate(rows, start=1):
        said = list[Problem]()
        found = collect(lambda one=one: measured_service(question, one), said)  # type: ignore[misc]
        problems += [replace(p, path=f"measured {number}: {p.path}") for p in said]
        if found is not None:
            q, there, cache = found
            runs += there.values()
            figures += [(len(questions), name) for name in there]
            questions.append(q)
            caches += [] if cache is None else [math.log(cache)]
    if problems:
        raise BadInput(problems)
    posterior = condition(error_model("serving"), SERVING, runs)
    notes = tuple(f"measured: {one.source}: {note}" for one in rows for note in one.notes)
    known = ConditionedService(
        posterior=posterior,
        questions=tuple(questions),
        figures=tuple(figures),
        cache=math.exp(sum(caches) / len(caches)) if caches else None,
        notes=notes,
    )
    return known, asked


def measured_service(
    question: Any, one: Measurement
) -> tuple[ServeQuestion, dict[str, MeasuredRun], float | None]:
    """A measured service, every figure of it beside its prediction, by its name, and its cache over the
    predicted one where that was measured."""
    told: dict[str, Any] = {
        name: one.asked[name]
        for name in ("model", "system", "gpus", "isl", "osl", "engine")
        if name in one.asked
    }
    if "concurrency" in one.asked or "rate" in one.asked:
        told |= {name: one.asked.get(name) for name in ("concurrency", "rate")}
    if one.plan:
        told["plan"] = one.plan
    q, given = question_of(replace(question, **told))
    if not given:
        q = as_answered(closed_form(q, given), q)
    cache = measured_cache(q, one)
    slopes = served_slopes(q, ZERO)
    found: dict[str, MeasuredRun] = {}
    # The rate and the whole latency of requests follow from these two.
    both = all(name in one.values for name in ("ttft_ms", "tpot_ms"))
    for name in ("ttft_ms", "tpot_ms") if both else SERVED:
        key = SCALED.get(name, name)
        if name not in one.values or key not in METRICS:
            continue
        predicted = figure_of(slopes, q, name)
        run = run_of(q, key, slopes[key][1])
        check_plausible(one.source, {name: (one.values[name], predicted)}, FAR_SERVICE)
        ratio = math.log(one.values[name] / predicted)
        found[name] = replace(run, log_ratio=ratio, noise=one.noise)
    if not found and cache is None:
        message = "has no latency, no rate and no cache of a service"
        raise bad_input("values", dict(one.values), message)
    return q, found, cache


def measured_cache(q: ServeQuestion, one: Measurement) -> float | None:
    """Measured over predicted cache of an engine that is up: of its bytes where the log has them."""
    name = next((name for name in ("kv_bytes", "kv_cache_tokens") if name in one.values), None)
    if name is None:
        return None
    before = serve_one(q)
    check_plausible(
        one.source, {name: (one.values[name], float(getattr(before, name)))}, FAR_SERVICE
    )
    if "weight_bytes" in one.values:
        weights = (one.values["weight_bytes"], before.weight_bytes)
        check_plausible(one.source, {"weight_bytes": weights}, OTHER_WEIGHTS)
    ratio = one.values[name] / float(getattr(before, name))
    room = before.memory_bytes - before.weight_bytes
    if ratio * before.kv_bytes > room:
        message = (
            f"{before.plan} has no room for it beside its weights: likely of another layout or chip"
        )
        allowed = f"at most {one.values[name] * room / (ratio * before.kv_bytes):,.0f}"
        raise bad_input(name, one.values[name], message, allowed)
    return ratio


def figure_of(slopes: Mapping[str, tuple[float, Any]], q: ServeQuestion, name: str) -> float:
    """A predicted figure in the unit of what was measured."""
    value = slopes[SCALED.get(name, name)][0]
    if name == "output_tokens_per_s_per_gpu":
        return value / q.gpus
    if name == "requests_per_s":
        answer = max(0.5 * (1.0 + q.traffic.least) * float(np.asarray(q.traffic.osl)), 1.0)
        return value / answer
    return value
