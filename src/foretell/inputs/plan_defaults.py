"""What a plan leaves open and its software decides: every choice that the record states, with a sentence.

Words of the plan win. Where attention stores its scores there is no library to choose; gradients in the
working precision are fp16 beside fp16 weights and fp32 beside wide ones, as states are; sequence
parallelism needs tensor parallelism. A search tries recomputation and sequence parallelism itself: for it
they stay open.

For some layouts the choices are rules (catalog/software_rules.py). Where recipes fill the memory, a micro-
batch has as many sequences as `Software.micro_tokens` hold and divide a replica's.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from foretell.catalog.attention import NONE, Heads, library_for
from foretell.catalog.software import family_table
from foretell.catalog.software_rules import AS_TP, SoftwareRule, rules_of
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Mamba2
from foretell.specs.plan import BATCH_FIELDS, DTYPE_BYTES, WIDE_PRECISIONS, Plan
from foretell.specs.plan_words import DEGREES, SWITCHES
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software

NO_RULES: Mapping[str, str] = {}
WIDE_BYTES = 4.0
"""Bytes of a weight whose gradient and states are in 32 bits too, where they have its dtype."""


def stated_fields(
    software: Software,
    architecture: str,
    plan: Plan,
    heads: Heads = (0, 0),
    *,
    searched: bool = False,
) -> dict[str, object]:
    """Fields of a plan that the software states, with their values for this plan on such a chip, or for a
    search, which tries degrees that the plan does not have.

    The attention library goes by chip and head size too (catalog/attention.toml).
    """
    library = library_for(software.attention, architecture, heads)
    narrow = "fp16" if plan.precision == "fp16" else "bf16"
    wide = DTYPE_BYTES[plan.weights] >= WIDE_BYTES
    working = "fp32" if plan.precision in WIDE_PRECISIONS or wide else narrow
    found: dict[str, object] = {
        "fused": software.fused,
        "flash": software.flash and library != NONE,
        "attention": "" if library == NONE else library,
        "recompute": software.default_recompute,
        "gradients": working if software.gradients == "bf16" else "fp32",
        "sp": software.sequence_parallel and plan.tp > 1,
        "master": software.master
        and ("none" if plan.precision in WIDE_PRECISIONS else software.master),
        "states": software.states and ("fp32" if wide else software.states),
        "optimizer": software.optimizer,
        "cp_mode": software.context if plan.cp > 1 or searched else "",
    }
    return {name: value for name, value in found.items() if value not in ("", None)}


def complete_plan(
    plan: Plan,
    named: Collection[str],
    software: Software,
    architecture: str,
    *,
    searched: bool = False,
    heads: Heads = (0, 0),
) -> Plan:
    """The plan with the choices of its software, where its own words (`named` fields) leave them open."""
    open_ones = _open(plan, named, software, architecture, searched=searched, heads=heads)
    return replace(plan, **open_ones) if open_ones else plan  # type: ignore[arg-type]


def sentences(
    plan: Plan,
    named: Collection[str],
    software: Software,
    architecture: str,
    ruled: Mapping[str, str] = NO_RULES,
    *,
    searched: bool = False,
    heads: Heads = (0, 0),
) -> tuple[str, ...]:
    """What the software of a completed plan has set, and which of its choices the plan's words replace.

    `ruled` are the fields that a rule has set, with its reason.
    """
    by = f"framework={plan.framework}"
    filled = _open(plan, {*named, *ruled}, software, architecture, searched=searched, heads=heads)
    words = [_word(name, value) for name, value in filled.items() if name != "sp" or plan.tp > 1]
    if plan.tp_overlap == "auto" and plan.tp > 1 and software.in_pieces(architecture):
        words.append("tp_overlap=on")
    found = [
        f"{by} (release {software.release}) sets {', '.join(words)} (catalogue, {software.file})"
    ]
    own = [
        f"{_word(name, getattr(plan, name))} for {_word(name, value)}"
        for name, value in _choices(plan, software, architecture, heads).items()
        if name in named and name not in ruled and getattr(plan, name) != value
    ]
    reasons: dict[str, list[str]] = {}
    for name, why in ruled.items():
        reasons.setdefault(why, []).append(_word(name, getattr(plan, name)))
    found += [f"{software.family} sets {', '.join(ws)}: {why}" for why, ws in reasons.items()]
    found += [f"the plan's words replace choices of {by}: {', '.join(own)}"] if own else []
    if base := family_table(software.family)["family"].get("based_on", ""):
        found.append(f"{by}: what {software.family} does not state is as in {base}")
    return tuple(found)


def _open(
    plan: Plan,
    named: Collection[str],
    software: Software,
    architecture: str,
    *,
    searched: bool,
    heads: Heads,
) -> dict[str, object]:
    """Choices that the software states and the plan's words leave open."""
    tried = BATCH_FIELDS if searched else ()
    choices = stated_fields(software, architecture, plan, heads, searched=searched)
    found = {n: v for n, v in choices.items() if n not in named and n not in tried}
    if not found.get("flash", plan.flash):
        found.pop("attention", None)
    return found


def _choices(plan: Plan, software: Software, architecture: str, heads: Heads) -> dict[str, object]:
    """All that the software states, of attention only where the plan's is fused."""
    found = stated_fields(software, architecture, plan, heads)
    return found if plan.flash else {n: v for n, v in found.items() if n != "attention"}


def _word(name: str, value: object) -> str:
    """A choice as a word of a plan."""
    if name in SWITCHES:
        return name if value else f"no-{name}"
    if name in DEGREES.values():
        return f"{next(word for word, field in DEGREES.items() if field == name)}{value}"
    return f"{name}={value}"


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
