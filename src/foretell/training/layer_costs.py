"""What the parts of a model cost on one rank: each layer kind, the embedding, the head.

A part depends on micro-batch, tensor, sequence, context and expert parallelism alone, so it is computed
once for each distinct combination of these ("shapes") and gathered to the plans afterwards.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from foretell.catalog.hosts import host_of, optimizer_of
from foretell.kernels.call_records import table_of
from foretell.kernels.families.base import p_norm
from foretell.kernels.fusion import SIDE_BY_SIDE, launch_cost
from foretell.kernels.op_times import (
    OpTimes,
    mean_times,
    op_times,
    widened_weights,
    with_dequantisation,
)
from foretell.kernels.optimizer import Matrices, matrices_of, products_s, tensors_of
from foretell.kernels.precision import is_linear, is_narrow, linear_format, plain_format, wide_share
from foretell.schedules import schedule_named
from foretell.sharding.expert import without_region
from foretell.sharding.lora import backward_products, is_quantised, is_trained
from foretell.sharding.recompute import waits_again
from foretell.sharding.tensor import tensor_traffic
from foretell.sharding.tensor2d import GridTraffic
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.corrections import Corrections
from foretell.specs.model import Model
from foretell.specs.plan import QUANTISED, Plan, activation_bytes
from foretell.specs.plan_forms import recompute_modules
from foretell.specs.scenario import Scenario
from foretell.specs.software import Host, Software
from foretell.training.part_costs import Parts, PassSeconds
from foretell.training.shapes import (
    Lengths,
    Shape,
    Shapes,
    launch_kind,
    one_shape,
    operations_recipe,
    recipe_of,
    shapes_of,
)
from foretell.workload.ops import AttentionCore, Gemm, Op
from foretell.workload.roles import OpRole, Region

CORE = ("attention", "scan")
"""Families that selective recomputation runs again."""


UNSORTED = 1.3
"""Operations of a layer of routed experts whose dispatch leaves sorting to others, over those of one that
sorts on its way: permutation both ways, sizes that are read back, lists of splits (Megatron-Core,
token_dispatcher.py); set by steps of nine sources."""
UNCAPTURED = (
    Region.EXPERTS,
    Region.SHARED_EXPERTS,
    Region.FEED_FORWARD,
    Region.EMBEDDING,
    Region.HEAD,
)
"""Regions that partial graphs leave out, beside their routers."""
ROUTING = (OpRole.ROUTER, OpRole.CHOICE)
"""What routers do."""
ADAPTER_ROLES = (OpRole.ADAPTER, OpRole.ADAPTER_SUM)
"""What operations of adapters do."""
ADAPTER_HOST = 0.15
"""Host's time of an adapter's operation over that of a module's: PEFT's are plain calls without modules
around them, launched while the chip is busy (4.2 to 5.2 ms a layer with five of them in Qwen's profiles)."""


def part_table(scenario: Scenario, base: Plan, shape: Shape) -> Parts:
    """Build the graph for all shapes at once, cut it, and cost it in two calls."""
    chip, job, software = scenario.system.chip, scenario.job, scenario.software
    known, host = scenario.system.corrections, host_of(scenario.system)
    lengths = (job.seq_len, job.target_len)
    recipe = recipe_of(base)
    if np.size(shape.tp) == 1:
        # A single shape recurs from estimate to estimate: what it costs is remembered.
        one = _numbers(shape)
        return _one_part_table(scenario.model, lengths, chip, recipe, software, one, known, host)
    if _all_alike(shape):
        # One plan on many systems: its operations are the same on all of them.
        first = Shape(**{f.name: getattr(shape, f.name)[:1] for f in fields(Shape)})
        shapes = one_shape(
            scenario.model, lengths, operations_recipe(recipe), software, _numbers(first)
        )
    else:
        shapes = shapes_of(scenario.model, lengths, recipe, software, shape)
    return _costed(shapes, chip, recipe, software, shape, known, host)


def _all_alike(shape: Shape) -> bool:
    """Whether all shapes of a batch are the same one."""
    columns = (np.asarray(getattr(shape, f.name)) for f in fields(Shape))
    return all(bool((column == column[0]).all()) for column in columns)


def _numbers(shape: Shape) -> Shape:
    """A single shape in plain numbers."""
    return Shape(**{f.name: np.asarray(getattr(shape, f.name)).item() for f in fields(Shape)})


@lru_cache(maxsize=512)
def _one_part_table(
    model: Model,
    lengths: Lengths,
    chip: Chip,
    recipe: Plan,
    software: Software,
    shape: Shape,
    known: Corrections,
    host: Host,
) -> Parts:
    """Costs of one shape."""
    arrays = Shape(**{f.name: np.array([getattr(shape, f.name)]) for f in fields(Shape)})
    shapes = one_shape(model, lengths, operations_recipe(recipe), software, shape)
    return _costed(shapes, chip, recipe, software, arrays, known, host)


def _times_of(
    flat: list[Op],
    shapes: Shapes,
    chip: Chip,
    base: Plan,
    software: Software,
    shape: Shape,
    known: Corrections,
    host: Host,
) -> OpTimes:
    """Times of all operations, with their dequantisation and what the software launches otherwise."""
    cut = np.asarray(shape.tp) > 1.0
    launch = launch_kind(base, software)
    times = op_times(shapes.stacks, len(flat), chip, base, software, cut, known, (host, launch))
    wide = wide_share(base, len(shapes.graph.order))
    if wide:
        plain = replace(base, precision=plain_format(base))
        other = op_times(
            shapes.stacks, len(flat), chip, plain, software, cut, known, (host, launch)
        )
        times = mean_times(times, other, wide)
    if base.weights in QUANTISED:
        weights = np.broadcast_to(shapes.parameters, (len(flat), np.size(shape.tp)))
        quantised = np.array([is_quantised(op, base) for op in flat])[:, None]
        times = with_dequantisation(times, weights * quantised, chip, base)
    if base.lora and software.modules:
        of_adapters = np.array([op.role in ADAPTER_ROLES for op in flat])[:, None]
        lighter = np.where(of_adapters, ADAPTER_HOST, 1.0)
        times = replace(times, host_s=times.host_s * np.concatenate([lighter, lighter]))
    if base.graphs == "partial":
        eager = np.array([op.region in UNCAPTURED and op.role not in ROUTING for op in flat])[
            :, None
        ]
        times = replace(times, host_s=times.host_s * np.concatenate([eager, eager]))
    return times


def _routed_host_s(shapes: Shapes, chip: Chip, base: Plan, software: Software, host: Host) -> Array:
    """The host's time for what sorts tokens among experts, of each part."""
    each = launch_cost(host, launch_kind(base, software), fused=base.fused)
    many = software.routed_operations * (UNSORTED if base.dispatch != "dedup" else 1.0)
    routed_s = many * (each.operation_s + each.kernel_s)
    spread = np.array([any(op.family == "grouped-gemm" for op in part) for part in shapes.ops])
    return np.asarray(spread * routed_s / np.reshape(chip.host_speed, (-1, 1)))


def _weights_of(
    flat: list[Op], shapes: Shapes, width: int, chip: Chip, base: Plan, software: Software
) -> dict[str, Any]:
    """Fields of each part that count its weights, by what is trained, quantised or treated as a matrix."""
    ops = shapes.ops
    weights = np.broadcast_to(shapes.parameters, (len(flat), width))
    wide = wide_share(base, len(shapes.graph.order))
    quantised = np.array([is_quantised(op, base) for op in flat])[:, None]
    parameters = _sum_parts(ops, weights)
    learns = np.array([is_trained(op, base) for op in flat])[:, None]
    alike = optimizer_of(base.optimizer).uniform
    found = None if alike else matrices_of(flat, width, base)
    return {
        "parameters": parameters,
        "trained": parameters if learns.all() else _sum_parts(ops, weights * learns),
        "matrices": None
        if found is None
        else Matrices(
            weights=_sum_parts(ops, found.weights * learns),
            edges=_sum_parts(ops, found.edges * learns),
            counts=_sum_parts(ops, found.counts * learns),
        ),
        "products_s": _sum_parts(ops, products_s(flat, width, chip, base) * learns)
        if found is not None
        else None,
        "routed": _sum_parts(ops, np.broadcast_to(shapes.routed, weights.shape)),
        "linear": _sum_parts(ops, weights * np.array([[is_linear(op)] for op in flat])),
        "narrow": (1.0 - wide)
        * _sum_parts(ops, weights * np.array([[is_narrow(op)] for op in flat]))
        if linear_format(base) is not None
        else None,
        "quantised": _sum_parts(ops, weights * quantised) if base.weights in QUANTISED else None,
        "widened": widened_weights(weights * quantised, flat, software),
    }


def _activations_of(shapes: Shapes, width: int) -> dict[str, Any]:
    """Fields of each part that say what it keeps for the backward pass."""
    return {
        "kept_modules": table_of([a.kept_bytes for a in shapes.again], width).T,
        "dropped": table_of([a.dropped_bytes for a in shapes.again], width).T,
        "kept_whole": table_of([k.whole for k in shapes.kept], width).T,
        "kept_selective": table_of([k.selective for k in shapes.kept], width).T,
        "kept_input": table_of([k.input for k in shapes.kept], width).T,
        "scores": table_of([shapes.kept[-1].scores], width)[0],
        "gradient": table_of([k.gradient for k in shapes.kept], width).T,
    }


def _costed(
    shapes: Shapes,
    chip: Chip,
    base: Plan,
    software: Software,
    shape: Shape,
    known: Corrections,
    host: Host,
) -> Parts:
    """Shapes on a chip."""
    width, ops, whole = np.size(shape.tp), shapes.ops, shapes.whole
    flat = [op for part in ops for op in part]
    times = _times_of(flat, shapes, chip, base, software, shape, known, host)
    core = np.array([op.family in CORE for op in flat])[:, None]
    last = np.array([software.stops_early and _is_last(op) for op in flat], float)[:, None]
    routed_host_s = _routed_host_s(shapes, chip, base, software, host)
    again_rows = np.array([run for part in shapes.again for run in part.ops], float)[:, None]
    modules = recompute_modules(base.recompute)
    return Parts(
        **_weights_of(flat, shapes, width, chip, base, software),
        **_activations_of(shapes, width),
        names=tuple(part.name for part in whole),
        order=shapes.graph.order,
        ahead=shapes.graph.ahead,
        counts=shapes.counts,
        ops=ops,
        times=times,
        forward=_pass(ops, times, slice(0, len(flat)), routed_host_s),
        backward=_pass(ops, times, slice(len(flat), None), routed_host_s),
        core_s=_sum_parts(ops, times.seconds[: len(flat)] * core),
        stop=_stop(ops, times, last),
        rerun_ops=1.0 - last[:, 0],
        attention_s=_attention_s(ops, times) if shapes.context else (np.empty(0), np.empty(0)),
        tensors=_tensors(ops, base, software),
        weight_s=_weight_s(ops, times, base)
        if schedule_named(base.schedule).splits_backward
        else None,
        again_ops=again_rows[:, 0],
        again=_again(ops, times, again_rows, routed_host_s) if shapes.again else None,
        waits_again={
            name: np.array([waits_again(part, modules, name) for part in whole])
            for name in ("tensor_parallel", "context_parallel", "expert_parallel")
        }
        if shapes.again
        else {},
        tied=table_of([shapes.tied], width)[0],
        saved=shapes.saved,
        send_bytes=table_of([whole[0].input_elements * activation_bytes(base) / shape.tp], width)[
            0
        ],
        traffic=tuple(tensor_traffic(part) for part in whole),
        edges=tuple(part.edges for part in whole),
        spread_traffic=tuple(
            tensor_traffic(without_region(part)) for part in whole if shapes.experts
        ),
        context=shapes.context,
        experts=shapes.experts,
        grid=shapes.grid,
        panel_bytes=table_of([_panel_bytes(shapes.grid, base)], width)[0],
        shape=shape,
        notes=shapes.graph.notes,
        element_bytes=activation_bytes(base),
    )


def _stop(ops: tuple[tuple[Op, ...], ...], times: OpTimes, last: Array) -> PassSeconds:
    """The forward kernels of the operations that are last in their part; the host's time stays."""
    many = len(last)
    names = ("seconds", "clocked_s", "core_joules", "memory_joules")
    sums = _sums_by_name(ops, {name: getattr(times, name)[:many] * last for name in names})
    return PassSeconds(**sums, host_s=np.zeros_like(sums["seconds"]))


def _is_last(op: Op) -> bool:
    """Whether nothing that a layer keeps is behind an operation."""
    return op.role is OpRole.DOWN and op.region is Region.FEED_FORWARD


def _tensors(ops: tuple[tuple[Op, ...], ...], base: Plan, software: Software) -> Array:
    """Trained tensors of each part."""
    apart = software.maps_apart
    return np.array(
        [sum(tensors_of(o, apart=apart) for o in part if is_trained(o, base)) for part in ops],
        dtype=float,
    )


def _again(
    ops: tuple[tuple[Op, ...], ...], times: OpTimes, runs: Array, routed_host_s: Array
) -> PassSeconds:
    """The forward kernels that recomputed modules run once more, with their share of the host's time."""
    many = len(runs)
    sums = _sums_by_name(ops, {name: getattr(times, name)[:many] * runs for name in _SPENT})
    all_host_s = _sum_parts(ops, times.host_s[:many])
    share = sums["host_s"] / np.maximum(all_host_s, 1e-30)
    host_s = sums["host_s"] + share * routed_host_s
    return PassSeconds(**{**sums, "host_s": host_s})


def _weight_s(ops: tuple[tuple[Op, ...], ...], times: OpTimes, base: Plan) -> tuple[Array, Array]:
    """Of a matrix's two backward products at equal work, the one for its weights; none of frozen ones."""
    flat = [op for part in ops for op in part]
    both = [isinstance(op, Gemm) and backward_products(op, base) == 2 for op in flat]
    half = 0.5 * np.array(both)[:, None]
    rows = slice(len(flat), None)
    return _sum_parts(ops, times.seconds[rows] * half), _sum_parts(
        ops, times.clocked_s[rows] * half
    )


def _attention_s(ops: tuple[tuple[Op, ...], ...], times: OpTimes) -> tuple[Array, Array]:
    """Forward and backward time of the attention cores of each part."""
    flat = [op for part in ops for op in part]
    core = np.array([isinstance(op, AttentionCore) for op in flat])[:, None]
    rows = times.seconds[: len(flat)], times.seconds[len(flat) :]
    return _sum_parts(ops, rows[0] * core), _sum_parts(ops, rows[1] * core)


def beside_host(chip_s: Array, host_s: Array) -> Array:
    """Time of a pass whose kernels and exchanges take the chip `chip_s` while the host starts them."""
    return p_norm(chip_s, host_s, SIDE_BY_SIDE)


def chip_share(chip_s: Array, host_s: Array) -> Array:
    """Of a second that the chip takes longer for a pass, what the pass does: the slope of `beside_host`."""
    whole_s = np.maximum(beside_host(chip_s, host_s), 1e-300)
    return np.asarray((chip_s / whole_s) ** (SIDE_BY_SIDE - 1.0))


def _panel_bytes(grid: tuple[GridTraffic, ...], plan: Plan) -> Num:
    """Bytes of the widest panels of any part."""
    widest: Num = 0.0
    for traffic in grid:
        widest = np.maximum(widest, traffic.held)
    return widest * activation_bytes(plan)


def _pass(
    ops: tuple[tuple[Op, ...], ...], times: OpTimes, rows: slice, routed_host_s: Array
) -> PassSeconds:
    """Sums over the operations of each part in one pass; the host also routes tokens to experts."""
    sums = _sums_by_name(ops, {name: getattr(times, name)[rows] for name in _SPENT})
    return PassSeconds(**{**sums, "host_s": sums["host_s"] + routed_host_s})


_SPENT = ("seconds", "host_s", "clocked_s", "core_joules", "memory_joules")
"""What a pass spends, as OpTimes and PassSeconds name it."""


def _sums_by_name(ops: tuple[tuple[Op, ...], ...], values: Mapping[str, Array]) -> dict[str, Array]:
    """Several quantities of (operations, shapes), each summed to (shapes, parts)."""
    return dict(zip(values, _sum_parts(ops, np.stack([*values.values()])), strict=True))


def _sum_parts(ops: tuple[tuple[Op, ...], ...], values: Array) -> Array:
    """Sum (..., operations, shapes) over the operations of each part, to (..., shapes, parts)."""
    ends = list(accumulate(len(part) for part in ops))
    sums = np.empty((*values.shape[:-2], len(ops), values.shape[-1]))
    for part, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        values[..., start:end, :].sum(axis=-2, out=sums[..., part, :])
    return sums.swapaxes(-1, -2)
