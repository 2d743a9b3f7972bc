"""One plan's estimate as a record: rates, utilisation, trees."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.memory import CLOSE_SHARE
from foretell.kernels.op_times import required_dtypes
from foretell.network.assumptions import network_said
from foretell.network.library_catalog import library_for
from foretell.sharding.recompute import again
from foretell.specs.ffn import Experts
from foretell.specs.job import Job
from foretell.specs.model import Model
from foretell.specs.plan import Plan, Plans, batch_of, recompute_code
from foretell.specs.plan_forms import recompute_modules
from foretell.specs.result import Fits, StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.breakdown import largest_share, trees, update_joules
from foretell.training.pass_times import repeats_of
from foretell.training.shapes import graph_parts, named_modules
from foretell.training.step import Rows, evaluate_rows
from foretell.training.tables import Tables, tables_of
from foretell.uncertainty.intervals import fit_of, of_estimate
from foretell.workload.build import build
from foretell.workload.ops import AttentionCore, Op

Array = NDArray[np.float64]


def answer_of(scenario: Scenario, plan: Plan, *, chosen: bool) -> StepEstimate:
    """Evaluate a batch of one and put its numbers into a record."""
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    rows = evaluate_rows(scenario, plans, tables)
    tree = trees(plans, tables, rows, scenario)
    job, chip = scenario.job, scenario.system.chip
    step_s, peak = float(rows.step_s[0]), float(rows.peak_bytes[0])
    model_flop, in_hardware = plan_flops(scenario, plans, tables)
    peak_flop_per_s = float(chip.matrix_flop_per_s[required_dtypes(plan)[-1]])
    per_gpu = model_flop / step_s / job.gpus
    return StepEstimate(
        model=scenario.model.id,
        system=scenario.system.id,
        gpus=job.gpus,
        global_batch=job.global_batch,
        seq_len=job.seq_len,
        target_len=job.target_len,
        plan=plan,
        plan_chosen=chosen,
        fits=fits(peak, float(chip.memory_bytes)),
        step_s=step_s,
        tokens_per_s=job.tokens_per_step / step_s,
        tokens_per_s_per_gpu=job.tokens_per_step / step_s / job.gpus,
        tflops_per_gpu=per_gpu / 1e12,
        mfu=per_gpu / peak_flop_per_s,
        hfu=float(in_hardware[0]) / step_s / job.gpus / peak_flop_per_s,
        peak_memory_bytes=peak,
        memory_capacity_bytes=float(chip.memory_bytes),
        energy_joules=float(energies(plans, tables, rows, job.gpus)[0]),
        limited_by=largest_share(tree.time),
        interval=tree.time.interval,
        breakdown=tree.time,
        memory=tree.memory,
        memory_by_stage=tree.stages,
        assumptions=assumed(scenario, plan, tables.parts.notes),
        overrides=dict(scenario.overrides),
        scenario=scenario,
    )


def plan_flops(scenario: Scenario, plans: Plans, tables: Tables) -> tuple[float, Array]:
    """Matrix operations of a step by the usual convention, and with what is recomputed; (plans,)."""
    job, base = scenario.job, plans.base
    model_flop, forward_flop, core_flop = step_flops(scenario.model, job)
    # Frozen matrices have a data gradient alone; what adapters multiply is left out.
    model_flop = (2.0 * model_flop / 3.0 + core_flop) if base.lora else model_flop
    once_more = repeats_of(plans, np.arange(len(plans)), tables)[:, 0]
    hardware = model_flop + once_more * forward_flop
    if not base.flash:
        hardware = hardware + core_flop * (plans.recompute == recompute_code("selective"))
    if named_modules(base.recompute):
        listed = plans.recompute == recompute_code(base.recompute)
        more = modules_flop(scenario.model, job, base.recompute, base.flash)
        hardware = hardware + more * listed
    return model_flop, np.asarray(hardware)


def energies(plans: Plans, tables: Tables, rows: Rows, gpus: int) -> Array:
    """Energy of all chips in one step, (plans,): base watts all along, and what products, bytes and updates
    spend.

    Every rank of a replica runs its part of each layer once a micro-batch, wherever the stages are.
    """
    parts, at, fall = tables.parts, tables.shape, rows.core_fall[:, None]
    once_more = repeats_of(plans, np.arange(len(plans)), tables)
    again = 1.0 + (np.arange(len(parts.names)) < parts.kinds) * once_more
    core = parts.forward.core_joules[at] * again + parts.backward.core_joules[at]
    memory = parts.forward.memory_joules[at] * again + parts.backward.memory_joules[at]
    if parts.again is not None:
        core = core + parts.again.core_joules[at]
        memory = memory + parts.again.memory_joules[at]
    one = (parts.counts * (core * fall + memory)).sum(axis=1)
    ranks = plans.tp * plans.dp * plans.cp
    update_s = (rows.optimizer_s * rows.multiplicity).sum(axis=1)
    update = update_joules(update_s, tables) - tables.power.base_watts * update_s
    always = tables.power.base_watts * rows.step_s * gpus
    return np.asarray(always + ranks * (rows.micro_batches * one + update))


def assumed(scenario: Scenario, plan: Plan, notes: tuple[str, ...]) -> tuple[str, ...]:
    """Every default or guess, as sentences."""
    said = network_said(scenario.system, scenario.assumptions, scenario.overrides)
    library = library_for(scenario.system)
    if library is not None:
        said.append(f"collectives as {library.id} runs them, by coefficients of catalog/fabrics")
    said += spreading(scenario.model, plan)
    return (*said, *notes, recipe(plan))


def spreading(model: Model, plan: Plan) -> list[str]:
    """How tokens and experts are spread, as sentences; none where the plan has neither."""
    said = []
    if plan.cp > 1:
        ways = {
            "ring": "by ring, behind the attention to the block before",
            "allgather": "gathered, nothing hidden",
            "ulysses": "by all-to-all of heads, nothing hidden",
        }
        said.append(
            f"context parallelism: keys and values {ways[plan.cp_mode]}; causal work is balanced"
        )
    if Experts not in {type(layer.ffn) for layer in model.stack.layers}:
        return said
    if plan.ep == 1:
        said.append("experts are cut by tensor parallelism: the plan spreads none (ep)")
        return said
    load = f"every expert has {plan.capacity:g} times its even share, filled up or dropped"
    if not plan.capacity:
        load = f"no token is dropped, the busiest rank has {plan.imbalance:g} times the mean"
    way = {"alltoall": "a copy for each expert", "dedup": "once to each node and rank"}
    hidden = "hidden behind another micro-batch" if plan.ep_overlap == "on" else "nothing hidden"
    said.append(f"expert parallelism: {load}; dispatch in 16 bits, {way[plan.dispatch]}, {hidden}")
    return said


def recipe(plan: Plan) -> str:
    """What the plan takes for granted, as a sentence."""
    attention = "fused attention" if plan.flash else "attention that stores its scores"
    master = "no" if plan.master == "none" else plan.master
    return (
        f"recipe: {plan.precision} products, {plan.weights} weights, {plan.gradients} gradients, "
        f"{master} master copy, {plan.optimizer} with {plan.states} states, {attention}, no dropout"
    )


def fits(peak_bytes: float, capacity_bytes: float) -> Fits:
    """no above the capacity, too_close within a tenth of it, yes below."""
    if peak_bytes > capacity_bytes:
        return "no"
    return "too_close" if peak_bytes > CLOSE_SHARE * capacity_bytes else "yes"


@lru_cache(maxsize=64)
def step_flops(model: Model, job: Job) -> tuple[float, float, float]:
    """Matrix operations of a step by the usual convention: forward and backward, forward of the layers,
    forward of the attention cores.

    Attention counts the whole square (no causal halving), a window counts as a window, and the backward
    pass is twice the forward (Chowdhery et al. 2022, appendix B). Recomputation is not in the first.
    """
    target = None if job.target_len is None else float(job.target_len)
    graph = build(model, batch=1.0, seq_len=float(job.seq_len), target_len=target, flash=False)
    parts = graph_parts(graph)
    counts = np.bincount(np.asarray(graph.order), minlength=len(graph.kinds))
    whole = [_forward_flop(part.ops) for part in parts]
    layers = float(sum(c * w for c, (w, _) in zip(counts, whole, strict=False)))
    cores = float(sum(c * a for c, (_, a) in zip(counts, whole, strict=False)))
    ends = whole[-2][0] + whole[-1][0]
    batch = float(job.global_batch)
    return 3.0 * batch * (layers + ends), batch * layers, batch * cores


@lru_cache(maxsize=64)
def modules_flop(model: Model, job: Job, recompute: str, flash: bool) -> float:
    """Matrix operations of a step that recomputing some modules of every layer adds, counted alike."""
    target = None if job.target_len is None else float(job.target_len)
    graph = build(model, batch=1.0, seq_len=float(job.seq_len), target_len=target, flash=False)
    counts = np.bincount(np.asarray(graph.order), minlength=len(graph.kinds))
    total = 0.0
    for count, part in zip(counts, graph.kinds, strict=True):
        runs = again(part, recompute_modules(recompute), flash=flash).ops
        flop = [run * _forward_flop((op,))[0] for op, run in zip(part.ops, runs, strict=True)]
        total += float(count) * sum(flop)
    return float(job.global_batch) * total


def _forward_flop(ops: Sequence[Op]) -> tuple[float, float]:
    """Matrix operations of a forward pass, and those of its attention cores alone."""
    total = core = 0.0
    for op in ops:
        flop = float(op.forward().matrix_flop)
        if isinstance(op, AttentionCore):
            pairs = op.q_len * op.kv_len if op.counted is None else op.counted
            flop = float(2.0 * op.batch * op.heads * pairs * (op.qk_dim + op.v_dim))
            core += flop
        total += flop
    return total, core


def estimate_json(result: StepEstimate) -> dict[str, Any]:
    """An estimate as JSON, intervals of its numbers included: the same keys as the answer's attributes."""
    found: dict[str, Any] = {name: getattr(result, name) for name in _PLAIN}
    found["intervals"] = of_estimate(result)
    found["fit_probability"] = fit_of(result)
    found["plan"] = str(result.plan)
    found["breakdown"] = result.breakdown.to_dict() if result.breakdown else None
    found["memory"] = result.memory.to_dict() if result.memory else None
    found["memory_by_stage"] = [stage.to_dict() for stage in result.memory_by_stage]
    found["run"] = result.run.to_dict() if result.run else None
    found["assumptions"] = list(result.assumptions)
    found["overrides"] = dict(result.overrides or {})
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
    "step_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "tflops_per_gpu",
    "mfu",
    "hfu",
    "peak_memory_bytes",
    "memory_capacity_bytes",
    "energy_joules",
    "limited_by",
    "interval",
)
"""Fields whose values are their own JSON, in its order."""
