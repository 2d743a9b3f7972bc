"""What is new about a question, beside every run that was seen: features from 0 (seen often) to 1 (never).

Each counts worlds that share something with the question; more sightings never make it larger.

    together     this software on this generation of chips with this kind of model
    software     this software; unnamed where no software is named
    generation   this generation of chips
    model        this kind of model
    precision    this format under this software
    layout       this kind of layout
    fabric       the links between nodes of this system
    scale        larger than any run of this software
    length       sequences longer or shorter than any of this software
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from foretell.catalog.error_models import QuestionFacts, Sighting, sightings_without, worlds
from foretell.kernels.precision import linear_format
from foretell.network.library_catalog import inner_tiers
from foretell.specs.ffn import Experts
from foretell.specs.mixers import DeltaNet, Mamba2
from foretell.specs.model import Model
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario
from foretell.specs.system import System

FEATURES = (
    "together", "software", "unnamed", "generation", "model", "precision", "layout", "fabric",
    "scale", "length",
)  # fmt: skip
"""By name."""
FAR = 4.0
"""Doublings beyond what was seen at which a size is wholly new."""
ENOUGH = 3
"""Worlds from which something counts as seen."""


def training_facts(scenario: Scenario, plan: Plan) -> QuestionFacts:
    """What is known of a training step before it is run."""
    system, job = scenario.system, scenario.job
    return QuestionFacts(
        software="" if scenario.software.unnamed else scenario.software.family,
        chip=system.chip.id,
        generation=system.chip.architecture,
        model=kind_of_model(scenario.model),
        precision=linear_format(plan) or "wide",
        layout=training_layout(plan),
        fabric=system.id if job.gpus > room_of(system) else "",
        size=float(job.gpus),
        length=float(job.seq_len),
    )


def training_novelty(scenario: Scenario, plan: Plan) -> Mapping[str, float]:
    """What is new about a training step, without what its scenario leaves out."""
    out = scenario.software.left_out, scenario.system.chip.left_out
    return novelty_of("training", training_facts(scenario, plan), *out)


def training_layout(plan: Plan) -> str:
    """Which kinds of parallelism and of training a plan has."""
    words = (
        ("tp", plan.tp > 1), ("pp", plan.pp > 1), ("cp", plan.cp > 1), ("ep", plan.ep > 1),
        ("zero3", plan.zero >= 3), ("lora", bool(plan.lora)),
    )  # fmt: skip
    return " ".join(name for name, there in words if there)


def kind_of_model(model: Model) -> str:
    """dense, mixture (routed experts), hybrid (layers that scan in place of attention), or encoder."""
    if model.kind != "decoder":
        return "encoder"
    layers = model.stack.layers
    if any(isinstance(mixer, Mamba2 | DeltaNet) for layer in layers for mixer in layer.mixers):
        return "hybrid"
    return "mixture" if any(isinstance(layer.ffn, Experts) for layer in layers) else "dense"


def room_of(system: System) -> float:
    """Chips of one node or rack of fast links."""
    tiers = system.network.tiers
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    return math.prod(float(tier.size) for tier in tiers[:inner])


def novelty_of(
    kind: str, facts: QuestionFacts, sources: tuple[str, ...] = (), chips: tuple[str, ...] = ()
) -> Mapping[str, float]:
    """The features of a question, without the sources and chips that are left out."""
    counted = _counted(
        kind, facts.software, facts.generation, facts.model, facts.precision, facts.layout,
        facts.fabric, sources, chips,
    )  # fmt: skip
    most, shortest, longest = _ranges(kind, facts.software, sources, chips)
    beyond = max(math.log2(facts.length / longest), math.log2(shortest / facts.length), 0.0)
    return {
        **counted,
        "scale": min(max(math.log2(facts.size / most), 0.0) / FAR, 1.0),
        "length": min(beyond / FAR, 1.0),
    }


def seen_together(
    kind: str, facts: QuestionFacts, sources: tuple[str, ...] = (), chips: tuple[str, ...] = ()
) -> int:
    """Worlds in which this software ran this kind of model on this generation of chips."""
    known = sightings_without(kind, sources, chips) if facts.software else ()
    return worlds(one for one in known if same_triple(one.facts, facts))


def same_triple(one: QuestionFacts, other: QuestionFacts) -> bool:
    """Whether two agree in generation of chips, kind of model and, where the other names one, software."""
    software = not other.software or one.software == other.software
    return software and (one.generation, one.model) == (other.generation, other.model)


@lru_cache(maxsize=1024)
def _counted(
    kind: str, software: str, generation: str, model: str, precision: str, layout: str,
    fabric: str, sources: tuple[str, ...], chips: tuple[str, ...],
) -> Mapping[str, float]:  # fmt: skip
    """The features that count worlds."""
    known = sightings_without(kind, sources, chips)
    facts = QuestionFacts(software=software, generation=generation, model=model)

    def rare(of: Callable[[QuestionFacts], bool]) -> float:
        return 1.0 / (1.0 + worlds(one for one in known if of(one.facts)))

    def mine(one: QuestionFacts) -> bool:
        return not software or one.software == software

    return {
        "together": rare(lambda one: same_triple(one, facts)),
        "software": rare(lambda one: one.software == software) if software else 0.0,
        "unnamed": float(not software),
        "generation": rare(lambda one: one.generation == generation),
        "model": rare(lambda one: one.model == model),
        "precision": rare(lambda one: mine(one) and one.precision == precision),
        "layout": rare(lambda one: one.layout == layout),
        "fabric": rare(lambda one: one.fabric == fabric) if fabric else 0.0,
    }


@lru_cache(maxsize=1024)
def _ranges(
    kind: str, software: str, sources: tuple[str, ...], chips: tuple[str, ...]
) -> tuple[float, float, float]:
    """Largest size, shortest and longest length of this software; of all where it was never seen."""
    known: tuple[Sighting, ...] = sightings_without(kind, sources, chips)
    mine = [one for one in known if one.facts.software == software] or known
    if not mine:
        return 1.0, 1.0, 1.0
    return (
        max(one.facts.size for one in mine),
        min(one.least_length for one in mine),
        max(one.facts.length for one in mine),
    )


def forget() -> None:
    """Drop what was counted: sightings have changed."""
    _counted.cache_clear()
    _ranges.cache_clear()


REPEATED = {"none": 0.0, "selective": 0.5, "full": 1.0}
"""How much of the layers is computed again; half of them where modules are named."""


def features_of(scenario: Scenario, plan: Plan) -> dict[str, float | str]:
    """The features of a training step."""
    job = scenario.job
    return {
        "chips": math.log2(job.gpus),
        "length": math.log2(job.seq_len),
        "micro_batch": math.log2(max(plan.micro_batch, 1)),
        "width": math.log2(scenario.model.stack.hidden),
        "tp": math.log2(plan.tp),
        "pp": math.log2(plan.pp),
        "cp": math.log2(plan.cp),
        "ep": math.log2(plan.ep),
        "zero3": float(plan.zero >= 3),
        "recompute": REPEATED.get(plan.recompute, 0.5),
        "lora": float(bool(plan.lora)),
        "software": scenario.software.family,
        "model": scenario.model.id,
        "chip": scenario.system.chip.id,
        "format": f"{plan.precision} {plan.weights}",
    }
