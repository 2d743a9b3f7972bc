"""Choices of a plan that its software makes for some models, chips and layouts: rules and virtual stages.

Rules are the catalogue's (catalog/software_rules.py); words of the plan win. Where recipes of the software
interleave, stages of a dense model are cut into virtual ones: each layer by itself up to eight layers, else
five or four where they divide. Where they fill the memory, a micro-batch has as many sequences as
`Software.micro_tokens` hold and divide a replica's.
"""

from collections.abc import Collection
from dataclasses import replace
from math import prod

from foretell.catalog.software_rules import AS_TP, SoftwareRule, rules_of
from foretell.records import dataclass
from foretell.specs.ffn import Experts
from foretell.specs.mixers import LatentAttention
from foretell.specs.model import Model
from foretell.specs.plan import BATCH_FIELDS, USUAL_SCHEDULES, Plan
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.specs.system import System

INNER_TIERS = ("package", "pair", "socket", "node", "rack")
"""Names of tiers inside a domain of fast links."""
FEW_LAYERS, USUAL_CHUNKS = 8, (5, 4)
"""Layers of a stage up to which each is a virtual stage by itself, and numbers of virtual stages above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """What rules ask of a question."""

    experts: bool
    """Whether the model has routed experts."""
    latent: bool
    """Whether it has latent attention."""
    biased: bool
    """Whether its experts have biases."""
    hidden: int
    """Its width."""
    domain: float
    """Chips of one domain of fast links."""
    architecture: str
    """The chip's."""


def facts_of(model: Model, system: System) -> RuleFacts:
    """The facts of a model on a system."""
    layers = dict.fromkeys(model.stack.layers)
    routed = [layer.ffn for layer in layers if isinstance(layer.ffn, Experts)]
    return RuleFacts(
        experts=bool(routed),
        latent=any(isinstance(m, LatentAttention) for layer in layers for m in layer.mixers),
        biased=any(part.expert_bias for part in routed),
        hidden=model.stack.hidden,
        domain=domain_of(system),
        architecture=system.chip.architecture,
    )


def domain_of(system: System) -> float:
    """Chips inside the innermost tiers, at least the first."""
    tiers = system.network.tiers
    inner = next((i for i, tier in enumerate(tiers) if tier.name not in INNER_TIERS), len(tiers))
    return prod(float(tier.size) for tier in tiers[: max(inner, 1)])


def holds(rule: SoftwareRule, facts: RuleFacts, plan: Plan) -> bool:
    """Whether all that a rule asks for is so."""
    ranks = plan.tp * plan.cp * plan.dp
    known: dict[str, object] = {
        "experts": facts.experts,
        "latent": facts.latent,
        "biased": facts.biased,
        "dropped": plan.capacity > 0,
        "lora": plan.lora > 0,
        "ep_beyond_domain": plan.ep > facts.domain,
        "etp_divides": ranks % (plan.ep * plan.tp) == 0,
    }
    lists = {"architecture": facts.architecture, "precision": plan.precision}
    above = {
        "ep_above": plan.ep,
        "tp_above": plan.tp,
        "pp_above": plan.pp,
        "zero_above": plan.zero,
    }

    def so(name: str, wanted: object) -> bool:
        if name in lists:
            return isinstance(wanted, list) and lists[name] in wanted
        number = float(str(wanted)) if name not in known else 0.0
        if name in above:
            return above[name] > number
        if name == "domain_at_most":
            return facts.domain <= number
        return facts.hidden >= number if name == "hidden_at_least" else known[name] == wanted

    return all(so(name, wanted) for name, wanted in rule.when.items())


def apply_rules(
    scenario: Scenario, plan: Plan, named: Collection[str], *, searched: bool = False
) -> tuple[Plan, dict[str, str]]:
    """The plan with the choices of its software's rules, and each field that was set with its reason."""
    rules = rules_of(plan.framework)
    why: dict[str, str] = {}
    if not rules:
        return plan, why
    facts = facts_of(scenario.model, scenario.system)
    shut = {*named, *(BATCH_FIELDS if searched else ())} - {"framework"}
    for rule in rules:
        fields = [name for name in rule.sets if name not in shut and name not in why]
        if not fields or not holds(rule, facts, plan):
            continue
        for name in fields:
            value = rule.sets[name]
            if name == "framework":
                value = _variant(str(value), plan.framework)
            plan = replace(plan, **{name: plan.tp if value == AS_TP else value})  # type: ignore[arg-type]
            why[name] = rule.why
    return plan, why


def _variant(word: str, framework: str) -> str:
    """A variant's word with the release that the plan names."""
    at = framework.partition("@")[2]
    return f"{word}@{at}" if at else word


def interleave_stages(
    scenario: Scenario, plan: Plan, named: Collection[str], software: Software
) -> Plan:
    """The plan with virtual stages, where its software's recipes have them and it does not say."""
    told = "vpp" in named or "schedule" in named or plan.schedule not in USUAL_SCHEDULES
    if told or plan.pp == 1 or plan.lora or not software.interleaves:
        return plan
    layers = scenario.model.stack.layers
    # Two layers fewer where embedding and head take the place of one each, as in Llama 3.
    stage = -(-len(layers) // plan.pp)
    even = stage * plan.pp in (len(layers), len(layers) + 2)
    micro_batches = scenario.job.global_batch / (plan.dp * plan.micro_batch)
    if any(isinstance(layer.ffn, Experts) for layer in layers) or not even:
        return plan
    chunks = (stage,) if stage <= FEW_LAYERS else tuple(v for v in USUAL_CHUNKS if stage % v == 0)
    if micro_batches % plan.pp or not chunks or chunks[0] == 1:
        return plan
    return replace(plan, vpp=chunks[0], schedule="interleaved")


def fill_micro_batch(
    scenario: Scenario, plan: Plan, named: Collection[str], software: Software
) -> Plan:
    """The plan with as large a micro-batch as its software's recipes have, where it does not say."""
    if "micro_batch" in named or plan.pp > 1 or not software.micro_tokens:
        return plan
    share = scenario.job.global_batch // plan.dp
    room = min(software.micro_tokens // scenario.job.seq_len, share)
    fits = [many for many in range(1, room + 1) if share % many == 0]
    return replace(plan, micro_batch=max(fits, default=1))
