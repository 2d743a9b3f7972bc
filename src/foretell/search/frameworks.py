"""Which plans a framework can run: its rules by release, each a mask over a batch of plans and a sentence.

A plan that satisfies the rules of arithmetic (sharding/rules.py) may still be one that a framework refuses to
start, or has no flag for. With a framework named, a search keeps to what it can run; without one, every plan
says which could. Rules are those of the releases named in CHECKED, read from their sources:

    megatron     megatron/core/transformer/transformer_config.py, megatron/training/arguments.py
                 (validate_args)
    torchtitan   distributed/pipeline_parallel.py, distributed/parallel_dims.py, models/common/decoder.py
    deepspeed    runtime/engine.py, runtime/pipe/engine.py, runtime/config.py
    transformers accelerate's FSDP and TrainingArguments: no pipeline, whole experts
    nanotron     config/parallelism_config.py: ZeRO 1, 1F1B or all forward first
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from foretell.records import dataclass
from foretell.sharding.rules import ENDS, Cuts, cuts_of, layers_of
from foretell.specs.arrays import Mask
from foretell.specs.plan import Plan, Plans, batch_of
from foretell.specs.plan_forms import EVEN, GENERIC, offloads
from foretell.specs.scenario import Scenario

Version = tuple[int, ...]

CHECKED: Mapping[str, str] = {
    "megatron-core": "0.16",
    "torchtitan": "0.3",
    "deepspeed": "0.19",
    "transformers": "5",
    "nanotron": "0.4",
}
"""Launchers whose rules are kept here, with the release that is meant where none is named."""
FAMILIES: Mapping[str, str] = {
    "megatron-core": "megatron-core",
    "megatron-te": "megatron-core",
    "megatron-lm": "megatron-core",
    "megatron-bridge": "megatron-core",
    "nemo": "megatron-core",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "transformers": "transformers",
    "fsdp": "transformers",
    "fsdp2": "transformers",
    "fsdp-compiled": "transformers",
    "nanotron": "nanotron",
}
"""Words for software and the launcher whose rules it has."""


class PlansAsked(NamedTuple):
    """A batch of plans, and what a framework's rules look at besides."""

    scenario: Scenario
    """The question."""
    cuts: Cuts
    """What of the model can be cut."""
    plans: Plans
    """The plans."""
    version: Version
    """The framework's release."""

    @property
    def base(self) -> Plan:
        """What all of the plans have in common."""
        return self.plans.base


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRule:
    """One condition that a framework has."""

    name: str = field(kw_only=False)
    """Its key among what a search rejects."""
    holds: Callable[[PlansAsked], Mask | bool] = field(kw_only=False)
    """Where it is satisfied; True or False of all plans."""
    says: str = field(kw_only=False)
    """What the framework wants."""


def _layers(a: PlansAsked) -> Mask:
    """Equal chunks; embedding and loss as a layer each; or a layout that the plan names."""
    chunks, layers = a.plans.pp * a.plans.vpp, layers_of(a.scenario.model)
    even = (np.mod(layers, chunks) == 0) | (np.mod(layers + ENDS, chunks) == 0)
    told = a.base.layout != EVEN and a.version >= (0, 13)
    return np.asarray(even | told | (a.plans.pp == 1))


def _chunks(a: PlansAsked) -> Mask:
    """A layer in every chunk; embedding and loss may be alone in theirs where they count as a layer."""
    chunks, layers = a.plans.pp * a.plans.vpp, layers_of(a.scenario.model)
    return np.asarray((chunks <= layers) | (chunks == layers + ENDS) | (a.plans.pp == 1))


def _groups(a: PlansAsked, copied: bool = False) -> Mask:
    """Key-value heads that the ranks divide, or where they may be `copied` also the other way round."""
    ok = np.ones(len(a.plans), dtype=bool)
    for heads in a.cuts.kv_heads:
        whole = np.mod(heads, a.plans.tp) == 0
        ok &= whole | ((np.mod(a.plans.tp, heads) == 0) & copied)
    return ok


def _schedules(*names: str) -> Callable[[PlansAsked], Mask]:
    return lambda a: np.asarray((a.plans.pp == 1) | (a.base.schedule in names))


def _stages(*stages: int) -> Callable[[PlansAsked], Mask]:
    return lambda a: (a.plans.dp * a.plans.cp == 1) | np.isin(a.plans.zero, stages)


def _copied_alone(a: PlansAsked) -> Mask:
    """Whole copies only where nothing else is cut."""
    alone = a.plans.tp * a.plans.pp * a.plans.cp == 1
    return np.asarray((a.plans.zero > 0) | (a.plans.dp == 1) | alone)


def _host_activations(a: PlansAsked) -> Mask:
    """--cpu-offloading-num-layers, which knows neither stages nor what is computed again."""
    kept = "activations" not in offloads(a.base.offload)
    return np.asarray(kept | ((a.plans.pp == 1) & (a.plans.recompute == 0)))


LOOPS = ("1f1b", "interleaved")
DEALT = "dealt"
"""In the place of a layout: one that a search writes into the plans that it finds."""
PLAIN_TP = FrameworkRule(
    "grid", lambda a: a.base.tp_mode == "1d", "tensor parallelism by columns and rows alone"
)
LAYERS_AGAIN = FrameworkRule(
    "recompute", lambda a: a.plans.recompute != 1, "recompute=none or full"
)
CHUNKS = FrameworkRule("chunks", _chunks, "no virtual stage is empty")
HEADS = FrameworkRule("kv_heads", _groups, "tp divides the key-value heads")
RULES: Mapping[str, tuple[FrameworkRule, ...]] = {
    "megatron-core": (
        PLAIN_TP,
        FrameworkRule(
            "layers",
            _layers,
            "pp x vpp divides the layers, or the layers with embedding and loss, or layout= deals them",
        ),
        CHUNKS,
        FrameworkRule(
            "kv_heads",
            lambda a: _groups(a, copied=a.version >= (0, 16)),
            "tp divides the key-value heads (since 0.16 also a multiple of them)",
        ),
        FrameworkRule("schedule", _schedules(*LOOPS), "1F1B, interleaved where vpp > 1"),
        FrameworkRule(
            "experts",
            lambda a: (a.plans.ep == 1) | (a.base.precision != "fp16"),
            "no expert parallelism in fp16",
        ),
        FrameworkRule(
            "optimizer",
            lambda a: (a.plans.zero == 0) | (a.base.optimizer != "muon"),
            "Muon without the distributed optimizer",
        ),
        FrameworkRule(
            "graphs",
            lambda a: (a.plans.recompute != 2) | (a.base.graphs != "on"),
            "no whole layers recomputed with CUDA graphs",
        ),
        FrameworkRule(
            "offload",
            _host_activations,
            "activations in the host's memory without pipeline stages and without recomputation",
        ),
        FrameworkRule(
            "host_weights",
            lambda a: "weights" not in offloads(a.base.offload),
            "no weights in the host's memory",
        ),
    ),
    "torchtitan": (
        PLAIN_TP,
        FrameworkRule("layers", _layers, "stages that differ by embedding and head alone"),
        CHUNKS,
        HEADS,
        FrameworkRule(
            "schedule",
            _schedules(*LOOPS, "gpipe", "zb-v"),
            "1F1B, GPipe, Interleaved1F1B or ZBVZeroBubble",
        ),
        FrameworkRule("zero", _stages(0, 3), "FSDP (zero3) or copies (zero0)"),
        FrameworkRule(
            "copies",
            _copied_alone,
            "copies (zero0) without another parallelism",
        ),
        FrameworkRule("experts", lambda a: a.plans.etp == 1, "whole experts (etp1)"),
        FrameworkRule(
            "recompute",
            lambda a: a.plans.recompute != 1,
            "recompute=none, full, or products (by operation)",
        ),
    ),
    "deepspeed": (
        PLAIN_TP,
        FrameworkRule(
            "schedule",
            lambda a: _schedules("1f1b")(a) & (a.plans.vpp == 1),
            "1F1B without virtual stages",
        ),
        FrameworkRule(
            "zero",
            lambda a: (a.plans.pp == 1) | (a.plans.zero <= 1),
            "ZeRO 2 and 3 without pipeline stages",
        ),
        FrameworkRule(
            "tensor",
            lambda a: (a.plans.tp == 1) | (a.plans.zero <= 2) | (a.version >= (0, 19)),
            "AutoTP with ZeRO 0 to 2 (since 0.19 also 3)",
        ),
        FrameworkRule("sequence", lambda a: a.plans.sp == 0, "no sequence parallelism beside tp"),
        FrameworkRule(
            "context",
            lambda a: (a.plans.cp == 1) | (a.base.cp_mode == "ulysses"),
            "sequences cut by Ulysses (cp_mode=ulysses)",
        ),
        LAYERS_AGAIN,
    ),
    "transformers": (
        PLAIN_TP,
        FrameworkRule("pipeline", lambda a: a.plans.pp == 1, "no pipeline stages"),
        FrameworkRule("experts", lambda a: a.plans.ep == 1, "no expert parallelism"),
        FrameworkRule("zero", _stages(0, 2, 3), "copies, or FSDP (zero2, zero3)"),
        LAYERS_AGAIN,
    ),
    "nanotron": (
        PLAIN_TP,
        FrameworkRule(
            "schedule",
            lambda a: _schedules("1f1b", "gpipe")(a) & (a.plans.vpp == 1),
            "1F1B or all forward first, without virtual stages",
        ),
        FrameworkRule("zero", _stages(0, 1), "ZeRO 0 or 1"),
        HEADS,
        LAYERS_AGAIN,
    ),
}
"""Rules by launcher."""


def launcher_of(framework: str) -> tuple[str, Version] | None:
    """The launcher and release that a plan's word for software means; None where no rules are kept for it."""
    word, _, release = framework.partition("@")
    name = FAMILIES.get(word)
    if name is None:
        return None
    return name, _version(release if word == name and release[:1].isdigit() else CHECKED[name])


@lru_cache(maxsize=64)
def _version(text: str) -> Version:
    """0.14.0 as (0, 14, 0); a date, which begins with a year, is the newest."""
    parts = tuple(int(part) for part in text.split(".") if part.isdigit())
    return parts if parts and parts[0] < 1000 else (999,)


def rule_masks(
    scenario: Scenario, plans: Plans, framework: str
) -> list[tuple[FrameworkRule, Mask]]:
    """Every rule of a framework with the plans of a batch that it lets through."""
    found = launcher_of(framework)
    if found is None:
        return []
    name, version = found
    asked = PlansAsked(scenario, cuts_of(scenario.model), plans, version)
    many = len(plans)
    return [(rule, np.broadcast_to(rule.holds(asked), many)) for rule in RULES[name]]


def runs_on(scenario: Scenario, plans: Plans, framework: str) -> tuple[Mask, dict[str, int]]:
    """Which plans of a batch a framework can run with their layout printed; what each rule takes away."""
    found = launcher_of(framework)
    if plans.base.layout == EVEN:
        plans = replace(plans, base=replace(plans.base, layout=DEALT))
    alive, lost = np.ones(len(plans), dtype=bool), dict[str, int]()
    for rule, holds in rule_masks(scenario, plans, framework):
        gone = int((alive & ~holds).sum())
        if gone and found is not None:
            lost[f"{found[0]}: {rule.name}"] = gone
        alive &= holds
    return alive, lost


def refusals(scenario: Scenario, plan: Plan, framework: str) -> tuple[str, ...]:
    """What a framework has against one plan, a sentence for each rule."""
    masks = rule_masks(scenario, batch_of([plan]), framework)
    return tuple(rule.says for rule, holds in masks if not holds[0])


def own_refusals(scenario: Scenario, plan: Plan) -> tuple[str, ...]:
    """What the framework that a plan names has against it."""
    return refusals(scenario, plan, plan.framework)


def launchable_with(scenario: Scenario, plan: Plan) -> tuple[str, ...]:
    """The launchers that can run a plan; where it names a framework, that one or none."""
    own = launcher_of(plan.framework)
    if plan.framework != GENERIC:
        return () if own is None or own_refusals(scenario, plan) else (own[0],)
    return tuple(name for name in RULES if not refusals(scenario, plan, name))
