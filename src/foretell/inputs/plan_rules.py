"""Choices of a plan that its software makes for some layouts: rules, and micro-batches that fill the memory.

Rules are the catalogue's (catalog/software_rules.py); words of the plan win. Where recipes fill the memory, a
micro-batch has as many sequences as `Software.micro_tokens` hold and divide a replica's.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from foretell.catalog.software_rules import AS_TP, SoftwareRule, rules_of
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Mamba2
from foretell.specs.plan import BATCH_FIELDS, Plan
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software

OF_EXPERTS = ("capacity", "dispatch", "ep_overlap", "etp")
"""Words that are about experts, and about nothing where a model has none."""

PIPELINE = {"schedule", "vpp"}
"""Words that only go together: a rule that sets them holds where neither is named."""


def holds(rule: SoftwareRule, scenario: Scenario, plan: Plan) -> bool:
    """Whether all that a rule asks for is so."""
    ranks = plan.tp * plan.cp * plan.dp
    whole = ranks % (plan.ep * plan.tp) == 0
    mixers = (mixer for layer in scenario.model.stack.layers for mixer in layer.mixers)
    known = {
        "lora": plan.lora > 0,
        "drops": plan.capacity > 0.0,
        "etp_divides": whole,
        "precision": plan.precision,
        "schedule_plan": not any(isinstance(mixer, Mamba2) for mixer in mixers),
    }
    above = {
        "cp_above": float(plan.cp),
        "dp_above": float(plan.dp * plan.cp),
        "ep_above": float(plan.ep),
        "pp_above": float(plan.pp),
        "tp_above": float(plan.tp),
        "zero_above": float(plan.zero),
        "domain_above": float(np.max(scenario.system.network.tiers[0].size)),
    }
    return all(
        above[name] > float(str(wanted)) if name in above else known[name] == wanted
        for name, wanted in rule.when.items()
    )


def apply_rules(
    scenario: Scenario, plan: Plan, named: Collection[str], *, searched: bool = False
) -> tuple[Plan, dict[str, str]]:
    """The plan with the choices of its software's rules, and each field that was set with its reason."""
    rules = rules_of(plan.framework)
    why: dict[str, str] = {}
    if not rules:
        return plan, why
    shut = {*named, *(BATCH_FIELDS if searched else ())}
    routed = any(
        isinstance(layer.ffn, Experts) for layer in dict.fromkeys(scenario.model.stack.layers)
    )
    shut |= set() if routed else {*OF_EXPERTS}
    for rule in rules:
        fields = [name for name in rule.sets if name not in shut and name not in why]
        split = PIPELINE & shut & {*rule.sets}
        if not fields or split or not holds(rule, scenario, plan):
            continue
        for name in fields:
            value = rule.sets[name]
            plan = replace(plan, **{name: plan.tp if value == AS_TP else value})  # type: ignore[arg-type]
            why[name] = rule.why
    return plan, why


def doubts_of(plan: Plan, why: Mapping[str, str]) -> dict[str, object]:
    """Fields that rules have set, with what they are in runs that do not follow these."""
    return {
        name: value
        for rule in rules_of(plan.framework)
        for name, value in rule.others.items()
        if why.get(name) == rule.why
    }


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
