"""What a step does with gradients beside its passes: their sums, and the optimizer's update."""

import numpy as np

from foretell.catalog.hosts import host_of, optimizer_of
from foretell.kernels.optimizer import (
    LIST_LAUNCHES,
    TENSOR_LAUNCHES,
    accumulate_s,
    clip_s,
    first_sum_s,
    optimizer_s,
    shared_products_s,
    update_bytes,
)
from foretell.kernels.stack_passes import pass_made
from foretell.schedules import schedule_named
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import DTYPE_BYTES, Plan, Plans
from foretell.specs.plan_forms import offloads
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import GroupWeights
from foretell.training.layer_costs import beside_host
from foretell.training.memory import parts_of
from foretell.training.shapes import sum_of
from foretell.training.tables import Stages, Tables, gather


def sum_seconds(
    scenario: Scenario,
    plans: Plans,
    stages: Stages,
    shares: tuple[GroupWeights, ...],
    micro_batches: Array,
) -> Array:
    """Adding one micro-batch's gradients to the sum, on one rank of each stage; (plans, stages)."""
    software = scenario.software
    again = (micro_batches > 1.0) | software.sums_fused
    chip, base = scenario.system.chip, plans.base
    # Gradients that every micro-batch scatters are added up in pieces.
    pieces = shares[0].traffic.gradient_parts[:, None]
    sums_s = accumulate_s(stages.trained / pieces, 1.0, chip, base, fused=software.sums_fused)
    if pass_made(software, "casts") and base.gradients != base.weights:
        # Where the sum is of another dtype, the first micro-batch begins it by a pass of its own.
        begun_s = first_sum_s(stages.trained / pieces, chip, base)
        sums_s = sums_s + (begun_s - sums_s) / micro_batches[:, None]
        again = np.ones_like(again)
    # A micro-batch passes one of the copies of the weights that a rank may hold.
    slower = slow_memory(scenario)
    return np.asarray(
        slower * sums_s * (again / schedule_named(base.schedule).weight_copies)[:, None]
    )


def slow_memory(scenario: Scenario) -> Num:
    """Measured over predicted time of passes over memory; a number, or (plans, 1)."""
    slower = scenario.system.corrections.memory_bound
    return slower[:, None] if isinstance(slower, np.ndarray) else slower


HOST_BYTES_PER_S = 150e9
"""What all cores of two sockets stream, which the ranks of a node share (recalled); one thread of them, which
torchrun gives each rank (OMP_NUM_THREADS=1), has about as much as an eighth."""


def on_host(plan: Plan) -> bool:
    """Whether the host's cores update weights whose states are there; states in 8 bits come in pages."""
    return "optimizer" in offloads(plan.offload) and not optimizer_of(plan.optimizer).state_bytes


def host_update_s(scenario: Scenario, plan: Plan, updated: Array) -> Array:
    """Update of so many weights of each rank by the host's cores: gradients are read for their norm, and read
    and written scaled, beside the optimizer's own traffic and passes that change dtypes."""
    wide = plan.gradients if plan.master == "none" else plan.master
    moved = update_bytes(plan, casts=1.0) + 3.0 * DTYPE_BYTES[wide]
    ranks = max(min(scenario.job.gpus, scenario.system.node_chips), 1)
    host_s = updated * moved * ranks / HOST_BYTES_PER_S
    return np.asarray(host_s / np.reshape(scenario.system.chip.host_speed, (-1, 1)))


def update_seconds(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    stages: Stages,
    shares: tuple[GroupWeights, ...],
) -> Array:
    """The optimizer's update on one rank of each stage, with the clipping in front of it; (plans, stages)."""
    update_s = _only_update_s(scenario, plans, stages, shares)
    clips, chip = pass_made(scenario.software, "clip"), scenario.system.chip
    if clips is None or on_host(plans.base):
        return update_s
    updated = sum_of([s.trained / s.traffic.state_parts[:, None] for s in shares])
    counts = gather(tables.stages.counts, tables.pair)
    tensors = np.einsum("nsp,p->ns", counts, tables.parts.tensors)
    host_s = (LIST_LAUNCHES + TENSOR_LAUNCHES * tensors) * host_of(scenario.system).kernel_s
    host_s = host_s / np.reshape(chip.host_speed, (-1, 1))
    clipped_s = slow_memory(scenario) * clip_s(updated, chip, plans.base, clips.forward)
    return beside_host(update_s, host_s) + beside_host(clipped_s, host_s)


def _only_update_s(
    scenario: Scenario, plans: Plans, stages: Stages, shares: tuple[GroupWeights, ...]
) -> Array:
    """The optimizer's update by itself; (plans, stages)."""
    slower, cast = slow_memory(scenario), pass_made(scenario.software, "casts")
    casts = cast.forward if cast else 0.0
    updated = sum_of([s.trained / s.traffic.state_parts[:, None] for s in shares])
    chip, apart, all_s = scenario.system.chip, stages.matrices, stages.products_s
    if on_host(plans.base):
        return host_update_s(scenario, plans.base, updated)
    if apart is None or all_s is None:
        return np.asarray(slower * optimizer_s(updated, chip, plans.base, casts=casts))
    # Spread experts are shared by fewer ranks; both kinds of weights are in matrices alike.
    products_s = sum_of(
        [
            shared_products_s(all_s * part, apart.counts * part, s.traffic.state_parts[:, None])
            for s, part in parts_of(stages, shares)
        ]
    )
    in_matrices = updated * apart.weights / np.maximum(stages.trained, 1.0)
    update_s = optimizer_s(updated, chip, plans.base, in_matrices, products_s, casts=casts)
    return np.asarray(slower * update_s)
