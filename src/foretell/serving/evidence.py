"""What a served number rests on, and where it may lie.

`fitted`: this engine was seen with this kind of model on this generation of chips; `transferred`: it was not;
`datasheet`: no product was measured on the chip, nor on any of its generation. Intervals are those of
services that nobody had seen when they were predicted, wider the more is new about a question
(catalog/error_models.py).
"""

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.error_models import QuestionFacts, error_model, sightings
from foretell.kernels.families.choose import choose
from foretell.serving.question import ServeQuestion
from foretell.specs.corrections import SERVING
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.service import Interval
from foretell.specs.system import System
from foretell.uncertainty.novelty import (
    kind_of_model,
    novelty_of,
    same_triple,
    seen_together,
)
from foretell.uncertainty.posterior import MeasuredRun, prior_interval
from foretell.uncertainty.words import reason_of

ServedEvidence = Literal["fitted", "transferred", "datasheet"]
"""What a served number rests on."""
WIDE = ("bf16", "fp16", "fp32")
"""Formats that are computed as trained."""
NEAR = 1.25
"""Times beyond measured lengths that are still as measured: 1,000 tokens beside 1,024."""
USUAL: Mapping[str, Mapping[str, float]] = {
    "ttft": {"prefill": 0.5, "queueing": 0.5},
    "tpot": {"decode_weights": 0.6, "decode_cache": 0.2, "step_overhead": 0.2},
    "e2e": {"decode_weights": 0.5, "decode_cache": 0.2, "step_overhead": 0.2, "prefill": 0.1},
}
"""Metric -> usual shares of what it is made of."""


def layout_of(d: Deployment, system: System) -> str:
    """The kind of a layout: tensor, experts (spread over tensor-parallel ranks), attention-dp, wide (over
    more than one domain of fast links, or by dispatch), stages."""
    if d.pp > 1:
        return "stages"
    if d.stage > float(system.network.tiers[0].size):
        return "wide"
    if d.dp > 1 or d.cp > 1:
        return "attention-dp"
    return "experts" if d.ep > 1 else "tensor"


def service_facts(
    *,
    engine: str,
    model: Model,
    system: System,
    deployment: Deployment,
    apart: bool,
    sequences_per_gpu: float,
    prompt: float,
) -> QuestionFacts:
    """What is known of a service before it is run."""
    layout = layout_of(deployment, system)
    return QuestionFacts(
        software=engine,
        chip=system.chip.id,
        generation=system.chip.architecture,
        model=kind_of_model(model),
        precision="wide" if deployment.weights in WIDE else str(deployment.weights),
        layout=f"{layout} apart" if apart else layout,
        size=max(sequences_per_gpu, 1e-3),
        length=max(prompt, 1.0),
    )


def facts_of(q: ServeQuestion) -> QuestionFacts:
    """What is known of a service that is asked for."""
    at_once = 1.0 if q.rate is not None else float(np.max(np.asarray(q.traffic.concurrency)))
    return service_facts(
        engine=q.profile.engine,
        model=q.model,
        system=q.system,
        deployment=q.deployment,
        apart=q.prefill is not None,
        sequences_per_gpu=at_once / max(q.gpus, 1),
        prompt=float(np.max(np.asarray(q.traffic.isl))),
    )


def evidence_for(facts: QuestionFacts, system: System) -> ServedEvidence:
    """What the figures of a service rest on."""
    seen = seen_together("serving", facts)
    if not seen and choose(system.chip, "gemm", "bf16").foreign:
        return "datasheet"
    return "fitted" if seen else "transferred"


def beyond_measured(facts: QuestionFacts) -> tuple[str, ...]:
    """How a service lies beyond every measured one of its engine, model's kind and generation of chips.

    Beside all of the engine where none of them was measured.
    """
    known = [one for one in sightings("serving") if one.facts.software == facts.software]
    alike = [one for one in known if same_triple(one.facts, facts)]
    if not known:
        return (f"no service of {facts.software} was measured",)
    near = alike or known
    of = f"{facts.software} with {facts.model} models on {facts.generation} chips"
    found = [] if alike else [f"no {of} was measured"]
    most, longest = (max(getattr(one.facts, key) for one in near) for key in ("size", "length"))
    shortest = min(one.least_length for one in near)
    if facts.size > most:
        found.append(f"{facts.size:,.0f} sequences a GPU, measured up to {most:,.0f}")
    if not shortest / NEAR <= facts.length <= NEAR * longest:
        found.append(
            f"prompts of {facts.length:,.0f} tokens, measured {shortest:,.0f} to {longest:,.0f}"
        )
    if facts.layout not in {one.facts.layout for one in known}:
        found.append(f"a layout of the kind {facts.layout!r}, never measured with {facts.software}")
    return tuple(found)


def service_novelty(facts: QuestionFacts, metric: str) -> Mapping[str, float]:
    """What is new about one figure of a service: of the service, and which figure it is."""
    return {**novelty_of("serving", facts), metric.partition("_")[0]: 1.0}


def usual_slopes(metric: str) -> NDArray[np.float64]:
    """Usual slopes of a figure to the mechanisms of serving; rates fall where latencies rise."""
    name = metric.partition("_")[0]
    shares = USUAL.get(name, USUAL["e2e"])
    sign = -1.0 if name in ("throughput", "input", "output", "requests") else 1.0
    return np.array([sign * shares.get(one, 0.0) for one in SERVING])


def interval_of(value: float, facts: QuestionFacts, metric: str) -> Interval:
    """p50 and p90 of a figure, by first contacts with services."""
    run = MeasuredRun(slopes=usual_slopes(metric), novelty=service_novelty(facts, metric))
    ends = prior_interval(error_model("serving"), SERVING, run)
    return {
        key: (value * math.exp(low), value * math.exp(high)) for key, (low, high) in ends.items()
    }


def sure_share(
    model: Model, system: System, deployment: Deployment, profile: EngineProfile, *, apart: bool
) -> float:
    """Share of the predicted throughput that a layout reaches at least in 19 of 20 services like it.

    Of the layout alone, whatever the load: what layouts of one question are compared by.
    """
    facts = service_facts(
        engine=profile.engine, model=model, system=system, deployment=deployment, apart=apart,
        sequences_per_gpu=1.0, prompt=1.0,
    )  # fmt: skip
    return interval_of(1.0, facts, "throughput")["p90"][0]


def service_reason(facts: QuestionFacts) -> str:
    """Why the interval of the time per output token is as wide as it is."""
    low, high = interval_of(1.0, facts, "tpot")["p90"]
    return reason_of(error_model("serving"), facts, service_novelty(facts, "tpot"), low, high)
