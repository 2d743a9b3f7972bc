"""One plan's estimate as a record: totals of its ledger, trees, and what was assumed."""

from dataclasses import fields
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from foretell.kernels.memory import HeldBytes
from foretell.kernels.plan_kernels import required_dtypes
from foretell.network.library_catalog import library_for
from foretell.network.tier_checks import network_assumptions
from foretell.records import Keyed, later
from foretell.specs._base import Num
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.specs.plan import Plan, Plans, batch_of
from foretell.specs.result import LATE, OUTPUTS, StepEstimate, Totals
from foretell.specs.scenario import Scenario
from foretell.training.breakdown import largest_share, trees
from foretell.training.feasibility import memory_verdict
from foretell.training.ledger import Ledger
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, tables_of
from foretell.training.totals import active_joules, plan_flops
from foretell.uncertainty.intervals import fit_of, of_estimate
from foretell.uncertainty.words import interval_reason
from foretell.workload.layer import layer_kinds

ANY_SOFTWARE = (
    "no framework is named: as a well-tuned stack of today runs it (Megatron-Core with Transformer Engine, "
    "MaxText on TPUs); the interval spans the software that people run, and framework=NAME narrows it"
)
"""What is assumed of the software where a plan names none."""


def answer_of(scenario: Scenario, plan: Plan, *, chosen: bool) -> StepEstimate:
    """One plan's estimate; a question that was asked before has the answer of then."""
    try:
        return _known_answer(Keyed(_key_of(scenario, plan, chosen), scenario, plan, chosen))
    except TypeError:  # numbers that are arrays have no hash
        return _new_answer(scenario, plan, chosen)


def _key_of(scenario: Scenario, plan: Plan, chosen: bool) -> tuple[Any, ...]:
    """A scenario and a plan as one key."""
    own = scenario.model, scenario.system, scenario.job, scenario.software
    return (*own, scenario.assumptions, tuple(scenario.overrides.items()), plan, chosen)


@lru_cache(maxsize=512)
def _known_answer(asked: Keyed) -> StepEstimate:
    return _new_answer(*asked.values)


def _new_answer(scenario: Scenario, plan: Plan, chosen: bool) -> StepEstimate:
    """Evaluate a batch of one and put its numbers into a record."""
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    ledger = evaluate_rows(scenario, plans, tables)
    # Trees, rates and energy are most of the time and seldom looked at in a search or a study.
    tree = cache(lambda: trees(plans, tables, ledger, scenario))
    totals = cache(lambda: one_row(totals_of(scenario, plans, tables, ledger)))
    job = scenario.job
    late = {name: later(partial(lambda n: OUTPUTS[n].of(totals()), name)) for name in LATE}
    held = HeldBytes(**{f.name: _number(getattr(ledger.held, f.name)) for f in fields(HeldBytes)})
    capacity_bytes = _number(scenario.system.chip.memory_bytes)
    return StepEstimate(
        model=scenario.model.id,
        system=scenario.system.id,
        gpus=job.gpus,
        global_batch=job.global_batch,
        seq_len=job.seq_len,
        target_len=job.target_len,
        plan=plan,
        plan_chosen=chosen,
        fits=memory_verdict(held, capacity_bytes),
        step_s=_number(ledger.step_s),
        allocated_bytes=float(held.allocated_bytes),
        reserved_bytes=float(held.reserved_bytes),
        peak_memory_bytes=float(held.peak_bytes),
        memory_capacity_bytes=capacity_bytes,
        **late,
        limited_by=later(lambda: largest_share(tree().time)),
        interval=later(lambda: tree().time.interval),
        breakdown=later(lambda: tree().time),
        memory=later(lambda: tree().memory),
        memory_by_stage=later(lambda: tree().stages),
        assumptions=later(lambda: assumptions_of(scenario, plan, tables.parts.notes)),
        overrides=dict(scenario.overrides),
        totals=later(totals),
        scenario=scenario,
    )


def totals_of(scenario: Scenario, plans: Plans, tables: Tables, ledger: Ledger) -> Totals:
    """What the steps of a batch of plans add up to; numbers of the chip may be arrays over them."""
    job, chip = scenario.job, scenario.system.chip
    model_flop, masked_flop, hardware_flop = plan_flops(scenario, plans, tables)
    return Totals(
        step_s=ledger.step_s,
        allocated_bytes=ledger.held.allocated_bytes,
        reserved_bytes=ledger.held.reserved_bytes,
        peak_memory_bytes=ledger.held.peak_bytes,
        memory_capacity_bytes=chip.memory_bytes,
        base_watts=tables.power.base_watts,
        active_joules=active_joules(plans, tables, ledger),
        tokens=job.tokens_per_step,
        model_flop=model_flop,
        masked_flop=masked_flop,
        hardware_flop=hardware_flop,
        gpus=job.gpus,
        peak_flop_per_s=chip.matrix_flop_per_s[required_dtypes(plans.base)[-1]],
    )


def one_row(totals: Totals) -> Totals:
    """The totals of a batch of one as numbers."""
    return Totals(**{f.name: _number(getattr(totals, f.name)) for f in fields(totals)})


def _number(value: Num) -> float:
    return float(np.ravel(value)[0])


def assumptions_of(scenario: Scenario, plan: Plan, notes: tuple[str, ...]) -> tuple[str, ...]:
    """Every default or guess, as sentences."""
    said = network_assumptions(scenario.system, scenario.assumptions, scenario.overrides)
    library = library_for(scenario.system)
    if library is not None:
        said.append(f"collectives as {library.id} runs them, by coefficients of catalog/fabrics")
    said += spreading(scenario.model, plan)
    said += [ANY_SOFTWARE] if scenario.software.unnamed else []
    if scenario.software.unnamed and plan.pp > 1 and plan.vpp == 1:
        said.append(
            "stages hold one run of layers each (vpp1); the interval allows for interleaved ones"
        )
    return (*said, *notes, recipe(plan))


def spreading(model: Model, plan: Plan) -> list[str]:
    """How tokens and experts are spread, as sentences; none where the plan has neither."""
    said = []
    if plan.wide_layers:
        said.append(
            f"the GEMMs of {plan.wide_layers} layers are in 16 bits, spread evenly over the stages"
        )
    if plan.documents:
        said.append(
            f"sequences are packed of documents of {plan.documents:,} tokens, which attend within themselves"
        )
    if plan.cp > 1:
        ways = {
            "ring": "by ring, behind the attention to the block before",
            "allgather": "gathered, nothing hidden",
            "ulysses": "by all-to-all of heads, nothing hidden",
        }
        cuts = {
            "zigzag": "causal work is balanced",
            "contiguous": "ranks have runs of tokens, and wait for the last under a causal mask",
            "striped": "causal work is balanced",
        }
        heads = plan.cp_mode == "ulysses"
        even = cuts["zigzag" if heads else plan.cp_cut]
        said.append(f"context parallelism: keys and values {ways[plan.cp_mode]}; {even}")
    if not any(type(layer.ffn) is Experts for layer in layer_kinds(model.stack)[0]):
        return said
    if plan.ep == 1:
        said.append("experts are cut by tensor parallelism: the plan spreads none (ep)")
        return said
    load = f"every expert has {plan.capacity:g} times its even share, filled up or dropped"
    if not plan.capacity:
        balance = {
            "even": "all ranks have as many",
            "random": "experts are drawn at random",
            "bias": "experts are balanced by biases",
            "batch": "experts are balanced by a loss over batches",
            "sequence": "experts are balanced by a loss over each sequence",
        }[plan.routing]
        least = f", the busiest rank has {plan.imbalance:g} times the mean"
        load = f"no token is dropped, {balance}{least if plan.imbalance > 1.0 else ''}"
    way = {
        "alltoall": "a copy for each expert",
        "dedup": "once to each node and rank",
        "deepep": "once to each node and rank by DeepEP's kernels",
    }
    hidden = {
        "off": "nothing hidden",
        "on": "hidden behind another micro-batch",
        "shared": "beside the shared experts",
    }[plan.ep_overlap]
    said.append(f"expert parallelism: {load}; dispatch in 16 bits, {way[plan.dispatch]}, {hidden}")
    return said


def recipe(plan: Plan) -> str:
    """What the plan takes for granted, as a sentence."""
    attention = "fused attention" if plan.flash else "attention that stores its scores"
    master = "no" if plan.master == "none" else plan.master
    return (
        f"recipe: {plan.precision} GEMMs, {plan.weights} weights, {plan.gradients} gradients, "
        f"{master} master copy, {plan.optimizer} with {plan.states} states, {attention}, no dropout"
    )


def estimate_json(result: StepEstimate) -> dict[str, Any]:
    """An estimate as JSON, intervals of its numbers included: the same keys as the answer's attributes."""
    found: dict[str, Any] = {name: getattr(result, name) for name in _PLAIN}
    found["intervals"] = of_estimate(result)
    found["interval_reason"] = interval_reason(result)
    found["evidence"] = result.evidence
    found["fit_probability"] = fit_of(result)
    found["refusals"] = list(result.refusals)
    if result.filled_in:
        found["filled_in"] = list(result.filled_in)
    found["plan"] = str(result.plan)
    found["breakdown"] = result.breakdown.to_dict() if result.breakdown else None
    found["memory"] = result.memory.to_dict() if result.memory else None
    found["memory_by_stage"] = [stage.to_dict() for stage in result.memory_by_stage]
    found["run"] = result.run.to_dict() if result.run else None
    found["assumptions"] = list(result.assumptions)
    found["overrides"] = dict(result.overrides or {})
    if result.posterior_factors is not None:
        found |= {"prior": result.prior, "posterior_factors": result.posterior_factors}
    return found


_PLAIN = (
    "model",
    "system",
    "gpus",
    "global_batch",
    "seq_len",
    "target_len",
    "plan_chosen",
    "fits",
    *OUTPUTS,
    "limited_by",
    "interval",
)
"""Fields whose values are their own JSON, in its order."""
