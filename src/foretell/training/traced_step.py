"""One training step of a traced module: two lines that overlap, the host's and the GPU's, and its memory.

    end_i = max(end_{i-1}, host_i) + kernels_i

A host starts one operation after the other; a GPU runs them in that order, as soon as they are started. Where
the host reads a number back, it waits for the GPU. A step is what the second of two steps in a row adds. Data
parallelism sums gradients behind the backward pass; ZeRO shares states, gradients and weights.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.optimizers import optimizer_of
from foretell.kernels.memory import HeldBytes, framework_bytes
from foretell.kernels.traced_ops import recurrent_steps, traced_kernels
from foretell.network.collectives import collective_s, place
from foretell.network.placement import tier_counts
from foretell.network.placement import units as filled_units
from foretell.records import dataclass
from foretell.specs.plan import Plan
from foretell.specs.result import Leaf
from foretell.specs.software import Software
from foretell.specs.system import System
from foretell.trace.graph import PHASES, TracedGraph, TracedModel, TracedTensor, block_bytes
from foretell.training.traced_memory import (
    compiled_graph,
    live_bytes,
    live_gradient_bytes,
    of_library,
    outside,
    recomputation_bytes,
    temporary_bytes,
)

Array = NDArray[np.float64]
RECOMPUTE, BACKWARD = PHASES.index("recompute"), PHASES.index("backward")
UPDATES = ("foreach", "fused", "loop")
"""How PyTorch's optimizers run: over lists of tensors, in one kernel, or tensor by tensor."""
STREAM = 0.9
"""Share of the memory bandwidth that long vectors reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateForm:
    """What one form of an optimizer's update takes, by updates of 8 to 1,000 tensors on one H200."""

    passes: float
    """Reads and writes of a weight's width for each weight, in 32 bits."""
    narrow_passes: float
    """The same in 16 bits."""
    start_s: float
    """Host: starting an update."""
    tensor_s: float
    """Host: each tensor."""
    kernels: float
    """Kernels of each tensor."""


UPDATE_FORMS = {
    "foreach": UpdateForm(
        passes=23.5, narrow_passes=28.0, start_s=8e-4, tensor_s=2.0e-5, kernels=0.2
    ),
    "fused": UpdateForm(passes=8.9, narrow_passes=11.2, start_s=3e-4, tensor_s=7e-6, kernels=0.02),
    "loop": UpdateForm(
        passes=20.0, narrow_passes=20.0, start_s=2e-4, tensor_s=1.6e-4, kernels=12.0
    ),
}
"""By name; SGD with momentum takes what a fused update takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """What a host takes to start operations of plain PyTorch, with the Python around them."""

    forward: Mapping[str, float]
    """Seconds of an operation by family, forward; "" of all others."""
    backward: Mapping[str, float]
    """The same backward."""
    compiled: Mapping[str, float]
    """The same of an operation that a compiler leaves to a library."""
    compiled_kernel_s: float
    """Each kernel that a compiler has made."""
    tensor_s: float
    """Each trained tensor of a micro-batch: its gradient is put in place or added, and given up."""
    compiled_tensor_s: float
    """The same where a compiler made the backward pass."""
    pass_s: float
    """Starting a forward and a backward pass."""
    compiled_pass_s: float
    """The same where a compiler made them: guards, and what wraps its graphs."""
    recurrent_s: float
    """Each step of each recurrent layer and direction, forward or backward."""
    again_s: float
    """Each block that is computed again: states of random numbers kept and set, hooks of what is saved."""

    @staticmethod
    def of(table: Mapping[str, float], kind: str) -> float:
        """Seconds of an operation of a family."""
        return table.get(kind, table[""])


UNKNOWN: Mapping[str, tuple[float, float]] = {"p50": (0.9, 4.0), "p90": (0.5, 16.0)}
"""Least and most that an operation takes of which its bytes alone are known, over a pass of these bytes.
Fused attention of heads of 128 takes 4 passes on an H100 over 2,000 tokens, and 16 over 8,000."""
OTHER_HOSTS: Mapping[str, tuple[float, float]] = {"p50": (0.75, 1.15), "p90": (0.45, 1.4)}
"""Least and most that another host takes, over the measured one: of four measurements of the same modules on
hosts of H200s, three took this and one half of it. `--set chip.host_speed=2` is the fast one."""
HOST = HostTimes(
    forward={
        "": 13e-6, "view": 14e-6, "gemm": 16e-6, "conv": 74e-6, "attention": 66e-6, "copy": 34e-6,
        "norm": 18e-6, "rnn": 5e-4, "sync": 1e-4,
    },
    backward={
        "": 13e-6, "view": 11e-6, "gemm": 10e-6, "conv": 166e-6, "attention": 76e-6, "norm": 16e-6,
        "rnn": 5e-4,
    },
    compiled={"": 33e-6, "conv": 115e-6, "attention": 85e-6, "rnn": 5e-4, "sync": 1e-4},
    compiled_kernel_s=39e-6,
    tensor_s=30e-6,
    compiled_tensor_s=15e-6,
    pass_s=0.6e-3,
    compiled_pass_s=1.0e-3,
    recurrent_s=27e-6,
    again_s=1.8e-3,
)  # fmt: skip
"""What the host took of 65 steps that it bounds, and of 16 compiled ones (tools/modules/steps.jsonl)."""
WORKSPACE_BYTES = 2 * 32.0 * 2**20
"""cuBLAS takes a workspace of 32 MiB for the stream of each of two threads, on Hopper and later."""
SMALL_WORKSPACE_BYTES = 2 * 8.125 * 2**20
"""The same on earlier chips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedJob:
    """What is asked of a traced model."""

    system: System
    """Where it runs."""
    software: Software
    """Whose kernels stand for its."""
    plan: Plan
    """Data parallelism, ZeRO, recomputation, precision, optimizer."""
    form: str
    """Which of its graphs runs."""
    compiled: bool
    """Whether torch.compile makes the kernels."""
    update: str
    """How the optimizer runs: foreach, fused or loop."""
    micro_batches: int
    """Micro-batches of a step on each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleStep:
    """What one step of a traced model takes."""

    step_s: float
    """Time of a step."""
    gpu_s: float
    """Time that the GPU is busy."""
    host_s: float
    """Time that the host is."""
    communication_s: float
    """Exposed communication."""
    flops: float
    """Matrix operations of a step on one rank, without what is recomputed."""
    hardware_flops: float
    """The same with it."""
    time: Leaf
    """Where the time goes."""
    memory: Leaf
    """Where the memory goes."""
    held: HeldBytes
    """Peak of one rank."""
    notes: tuple[str, ...]
    """What was assumed."""
    unknown_share: float
    """Share of the GPU's time in operations of which their bytes alone are known."""
    range_s: Mapping[str, tuple[float, float]]
    """Level -> time of a step where these, and the host, take the least and the most."""


def traced_step(model: TracedModel, job: TracedJob) -> ModuleStep:
    """Time and memory of one step."""
    graph = model.graphs[job.form]
    gpu, host, notes = timed_rows(graph, job)
    sync = of_kind(graph, "sync")
    again = np.zeros(0, dtype=np.int64)
    if job.plan.recompute == "full":
        again = recomputation_bytes(graph, model.layers)[1]
    order = np.concatenate([np.arange(len(gpu)), again])
    gpu_s, host_s, syncs = gpu[order], host[order], sync[order]
    unknown = of_kind(graph, "unknown")[order]
    shares = _shares(graph, gpu, again)
    update_gpu, update_host = _update(model, job)
    summing = _summing(model, job) if job.micro_batches > 1 else (0.0, 0.0)
    tensor_s = HOST.compiled_tensor_s if job.compiled else HOST.tensor_s
    pass_s = HOST.compiled_pass_s if job.compiled else HOST.pass_s
    pass_s += HOST.again_s * (len(model.layers) if len(again) else 0)
    start_s = (pass_s + tensor_s * _trained(model)[1]) / speed_of(job)
    pieces_gpu, pieces_host, pieces_sync, pieces_unknown = [], [], [], []
    for number in range(job.micro_batches):
        pieces_gpu += [gpu_s, np.array([summing[0] if number else 0.0])]
        pieces_host += [
            host_s,
            np.array([start_s + (summing[1] if number else 0.0)]),
        ]
        pieces_sync += [syncs, np.array([False])]
        pieces_unknown += [unknown, np.array([False])]
    pieces_gpu.append(np.array([update_gpu]))
    pieces_host.append(np.array([update_host]))
    pieces_sync.append(np.array([False]))
    pieces_unknown.append(np.array([False]))
    one = [np.concatenate(part) for part in (pieces_gpu, pieces_host, pieces_sync)]
    unsure = np.concatenate(pieces_unknown)
    back_s = float(gpu[graph.phase == BACKWARD].sum())
    exposed = _communication(model, job, back_s)

    def taken_s(factor: float = 1.0, host_factor: float = 1.0) -> float:
        slower = np.where(unsure, factor * one[0], one[0])
        return exposed + steady_seconds(slower, host_factor * one[1], one[2].astype(bool))

    step_s, ranges = taken_s(), ranges_of(taken_s)
    leaves = [
        Leaf(name=name, value=value * job.micro_batches, unit="s", evidence="fitted")
        for name, value in shares.items()
    ]
    leaves.append(Leaf(name="update", value=update_gpu, unit="s", evidence="fitted"))
    busy_s = float(one[0].sum())
    waiting = max(step_s - exposed - busy_s, 0.0)
    leaves.append(Leaf(name="waiting for the host", value=waiting, unit="s", evidence="fitted"))
    leaves.append(Leaf(name="data-parallel", value=exposed, unit="s", evidence="transferred"))
    flops = float(sum(graph.ops[n].flops for n in graph.op[graph.phase != 1]))
    extra = float(sum(graph.ops[n].flops for n in graph.op[graph.phase == 1]))
    extra += float(sum(graph.ops[n].flops for n in graph.op[again]))
    memory, held = _memory(model, job, graph)
    return ModuleStep(
        step_s=step_s,
        gpu_s=busy_s,
        host_s=float(one[1].sum()),
        communication_s=exposed,
        flops=flops * job.micro_batches,
        hardware_flops=(flops + extra) * job.micro_batches,
        time=_summed("step", leaves, step_s),
        memory=memory,
        held=held,
        notes=notes,
        unknown_share=float(one[0][unsure].sum()) / busy_s if busy_s > 0.0 else 0.0,
        range_s=ranges,
    )


def timed_rows(graph: TracedGraph, job: TracedJob) -> tuple[Array, Array, tuple[str, ...]]:
    """Seconds of each row of a graph on the GPU, and on the host to start it; with what was assumed."""
    kernels = traced_kernels(graph.ops, job.system.chip, job.plan, job.software)
    gpu, host = kernels.seconds[graph.op], _host_seconds(graph) / speed_of(job)
    if job.compiled:
        gpu, host = _compiled_lines(graph, gpu, host, job)
    return gpu, host, (*graph.notes, *kernels.notes)


def ranges_of(taken_s: Callable[[float, float], float]) -> dict[str, tuple[float, float]]:
    """Least and most seconds by level: of unknown operations, and of the hosts that start all of them."""
    return {
        level: (taken_s(low, OTHER_HOSTS[level][0]), taken_s(high, OTHER_HOSTS[level][1]))
        for level, (low, high) in UNKNOWN.items()
    }


def of_kind(graph: TracedGraph, kind: str) -> NDArray[np.bool_]:
    """Whether each row's operation is of a family."""
    found = np.array([op.kind == kind for op in graph.ops] or [False])
    return np.asarray(found[graph.op] if len(graph.op) else np.zeros(0, dtype=bool))


def _summed(name: str, leaves: Sequence[Leaf], total: float) -> Leaf:
    """A tree whose leaves add up to its value: what runs beside something else counts once."""
    found = sum(leaf.value for leaf in leaves)
    scale = total / found if found > 0.0 else 0.0
    children = tuple(
        Leaf(name=leaf.name, value=leaf.value * scale, unit="s", evidence=leaf.evidence)
        for leaf in leaves
    )
    return Leaf(name=name, value=total, unit="s", evidence="fitted", children=children)


def speed_of(job: TracedJob) -> float:
    return float(np.ravel(job.system.chip.host_speed)[0])


def _host_seconds(graph: TracedGraph) -> Array:
    """What the host takes to start each row."""
    if not len(graph.op):
        return np.zeros(0)
    forward = np.array([HOST.of(HOST.forward, op.kind) for op in graph.ops])
    backward = np.array([HOST.of(HOST.backward, op.kind) for op in graph.ops])
    own = np.where(graph.phase == BACKWARD, backward[graph.op], forward[graph.op])
    steps = np.array([recurrent_steps(op) for op in graph.ops])
    begun = np.diff(graph.phase == RECOMPUTE, prepend=False) & (graph.phase == RECOMPUTE)
    return np.asarray(own + HOST.recurrent_s * steps[graph.op] + HOST.again_s * begun)


def _shares(graph: TracedGraph, gpu: Array, again: NDArray[np.int64]) -> dict[str, float]:
    """Seconds of the GPU by phase and family of kernels."""
    found: dict[str, float] = {}
    for row, seconds in enumerate(gpu):
        name = f"{PHASES[graph.phase[row]]} {graph.ops[graph.op[row]].kind}"
        found[name] = found.get(name, 0.0) + float(seconds)
    found["recompute layers"] = float(gpu[again].sum())
    return {name: value for name, value in found.items() if value > 0.0}


def steady_seconds(gpu: Array, host: Array, sync: NDArray[np.bool_]) -> float:
    """What a step adds when it follows others."""
    state, ends = (0.0, 0.0), []
    for _ in range(3):
        state = _lines(gpu, host, sync, state)
        ends.append(max(state))
    return ends[-1] - ends[-2]


def _lines(
    gpu: Array, host: Array, sync: NDArray[np.bool_], state: tuple[float, float]
) -> tuple[float, float]:
    """When the host and the GPU have done all rows, begun at a state of both."""
    host_at, gpu_at = state
    cuts = [*(np.flatnonzero(sync) + 1).tolist(), len(gpu)]
    start = 0
    for cut in cuts:
        if cut > start:
            issued = host_at + np.cumsum(host[start:cut])
            done = np.cumsum(gpu[start:cut])
            before = done - gpu[start:cut]
            gpu_at = float(done[-1] + max(gpu_at, float(np.max(issued - before))))
            host_at = float(issued[-1])
            if sync[cut - 1]:
                host_at = max(host_at, gpu_at)
        start = cut
    return host_at, gpu_at


def _trained(model: TracedModel) -> tuple[float, int]:
    """Bytes of trained parameters, and how many tensors they are."""
    found = [t for t in model.of_kind("parameter") if t.trained]
    return float(sum(t.elements for t in found)), len(found)


def _width(model: TracedModel, job: TracedJob) -> float:
    """Bytes of a weight in the form that runs."""
    if job.form == "cast":
        return 2.0
    found = [t for t in model.of_kind("parameter") if t.trained]
    many = sum(t.elements for t in found)
    return sum(t.bytes for t in found) / many if many else 4.0


def _update(model: TracedModel, job: TracedJob) -> tuple[float, float]:
    """Seconds of the optimizer on GPU and host."""
    elements, tensors = _trained(model)
    elements /= _parts(job, 1)
    two = optimizer_of(job.plan.optimizer).states > 1.0
    form = UPDATE_FORMS[job.update if two or job.update == "loop" else "fused"]
    width = _width(model, job)
    wide = form.passes if width > 2.0 else form.narrow_passes
    bandwidth = STREAM * float(np.ravel(job.system.chip.memory_bandwidth_bytes_per_s)[0])
    gpu_s = elements * width * wide / bandwidth + tensors * form.kernels * 1.6e-6
    return gpu_s, (form.start_s + tensors * form.tensor_s) / speed_of(job)


def _summing(model: TracedModel, job: TracedJob) -> tuple[float, float]:
    """Adding a micro-batch's gradients to those before: seconds on GPU and host."""
    elements, tensors = _trained(model)
    moved = 3.0 * elements * _width(model, job)
    bandwidth = 0.86 * float(np.ravel(job.system.chip.memory_bandwidth_bytes_per_s)[0])
    return moved / bandwidth + tensors * 1.6e-6, tensors * 14e-6 / speed_of(job)


def _parts(job: TracedJob, stage: int) -> float:
    """Ranks that share what a stage of ZeRO shares."""
    return float(job.plan.dp) if job.plan.zero >= stage else 1.0


def _communication(model: TracedModel, job: TracedJob, back_s: float) -> float:
    """Exposed seconds of data parallelism in a step."""
    dp = job.plan.dp
    if dp == 1:
        return 0.0
    elements, _ = _trained(model)
    size = elements * _width(model, job)
    network = job.system.network
    counts = tier_counts(np.array([float(dp)]), np.ones(1), filled_units(network, dp), dp)
    group = place(counts, job.system)

    def taken(kind: str) -> float:
        return float(np.ravel(collective_s(kind, np.array([size]), group))[0])  # type: ignore[arg-type]

    if job.plan.zero == 3:
        sent, hidden = taken("reduce-scatter") + 2.0 * taken("all-gather"), 1.5 * back_s
        return max(sent - 0.9 * hidden, 0.1 * sent) * job.micro_batches
    sent = taken("all-reduce") if not job.plan.zero else taken("reduce-scatter")
    exposed = max(sent - 0.9 * back_s, 0.05 * sent)
    return exposed + (taken("all-gather") if job.plan.zero else 0.0)


def _compiled_lines(
    graph: TracedGraph, gpu: Array, host: Array, job: TracedJob
) -> tuple[Array, Array]:
    """Kernels and their starts where a compiler joins passes over memory.

    Passes between two operations of a library are one kernel: it reads what was made before and writes what
    is read later. Views are no operations at all.
    """
    kinds = np.array([op.kind for op in graph.ops])[graph.op]
    apart, alone = of_library(graph), outside(graph)
    gpu, host = gpu.copy(), host.copy()
    size = graph.storage_bytes
    last = np.zeros(len(size), dtype=np.int64)
    for row, reads in enumerate(graph.reads):
        for number in reads:
            last[number] = row
    start = 0
    for cut in [*np.flatnonzero(apart).tolist(), len(kinds)]:
        rows = range(start, cut)
        _fuse(graph, rows, kinds, last, gpu, host, job)
        if cut < len(kinds) and not alone[cut]:
            steps = HOST.recurrent_s * recurrent_steps(graph.ops[graph.op[cut]])
            host[cut] = (HOST.of(HOST.compiled, kinds[cut]) + steps) / speed_of(job)
        start = cut + 1
    return gpu, host


def _fuse(
    graph: TracedGraph,
    rows: range,
    kinds: NDArray[np.str_],
    last: NDArray[np.int64],
    gpu: Array,
    host: Array,
    job: TracedJob,
) -> None:
    """Put a run of passes over memory into one kernel."""
    bandwidth = float(np.ravel(job.system.chip.memory_bandwidth_bytes_per_s)[0])
    real = [row for row in rows if kinds[row] != "view"]
    for row in rows:
        host[row] = 0.0
    if not real:
        return
    made = {number for row in real for number in graph.writes[row]}
    inside = {n for n in made if graph.born[n] >= rows.start and last[n] < rows.stop}
    read = {n for row in real for n in graph.reads[row]} - made
    moved = sum(graph.storage_bytes[n] for n in read) + sum(
        graph.storage_bytes[n] for n in made - inside
    )
    static = sum(
        op.read_bytes - sum(graph.storage_bytes[n] for n in graph.reads[row])
        for row in real
        if (op := graph.ops[graph.op[row]]).kind not in ("fill",)
    )
    moved += max(static, 0.0)
    plain = float(gpu[real].sum())
    reduced = sum(1 for row in real if kinds[row] in ("norm", "reduce"))
    kernels = min(1.0 + 0.5 * reduced, float(len(real)))
    fused = moved / (FUSED_SHARE * bandwidth) + kernels * 1.6e-6
    for row in real:
        gpu[row] *= min(fused / plain, 1.0) if plain > 0.0 else 0.0
    host[real[-1]] = kernels * HOST.compiled_kernel_s / speed_of(job)


FUSED_SHARE = 0.7
"""Share of the bandwidth that kernels of a compiler reach over what a run of passes must read and write."""


def _live(model: TracedModel, job: TracedJob, graph: TracedGraph, *, later: bool) -> Array:
    """Bytes of storages at each row; `later`: without gradients that are there from the first micro-batch on.
    Ranks that share gradients keep their parts of those that are made."""
    parts = _parts(job, 2)
    short = later or parts > 1.0
    if job.plan.recompute == "full":
        live = recomputation_bytes(graph, model.layers, later=short)[0]
    else:
        live = live_bytes(graph, later=short)
    live = live + temporary_bytes(graph)
    return live + live_gradient_bytes(graph) / parts if short and not later else live


def _gathered(model: TracedModel, job: TracedJob, size: Callable[[TracedTensor], float]) -> float:
    """Bytes of weights that are whole while they run where ZeRO 3 shares them: what is outside of the
    repeated blocks, one block and the next, and the gradients of one."""
    if _parts(job, 3) == 1.0:
        return 0.0
    blocks = dict.fromkeys(model.layers, 0.0)
    outside = 0.0
    for tensor in model.of_kind("parameter"):
        own = next((path for path in blocks if tensor.name.startswith(f"{path}.")), None)
        if own is None:
            outside += size(tensor)
        else:
            blocks[own] += size(tensor)
    return outside + 3.0 * max(blocks.values(), default=0.0)


def _memory(model: TracedModel, job: TracedJob, graph: TracedGraph) -> tuple[Leaf, HeldBytes]:
    """What a rank holds at the peak of a step, part by part."""
    narrow = job.form == "cast"
    graph = compiled_graph(graph) if job.compiled else graph

    def size(tensor: TracedTensor) -> float:
        wide = tensor.dtype == "fp32"
        return float(block_bytes(tensor.bytes / 2) if narrow and wide else tensor.bytes)

    weights = sum(map(size, model.of_kind("parameter")))
    trained = sum(size(t) for t in model.of_kind("parameter") if t.trained)
    optimizer = optimizer_of(job.plan.optimizer)
    own = optimizer.state_bytes * _trained(model)[0] if optimizer.state_bytes else trained
    held = {
        "weights": weights / _parts(job, 3),
        "buffers": sum(map(size, model.of_kind("buffer"))) + sum(map(size, model.of_kind("input"))),
        "states": optimizer.states * own / _parts(job, 1),
    }
    gathered = _gathered(model, job, size)
    base = sum(held.values()) + gathered
    gradients = float(graph.storage_bytes[graph.gradient].sum()) / _parts(job, 2)
    live = _live(model, job, graph, later=False)
    if job.micro_batches > 1:
        later = _live(model, job, graph, later=True)
        live = np.concatenate([live, gradients + later])
    passes = float(live.max()) if len(live) else 0.0
    update = 0.0
    if job.update == "foreach" and job.plan.optimizer != "sgd":
        update = trained
    if job.update == "loop":
        update = 3.0 * max((size(t) for t in model.of_kind("parameter") if t.trained), default=0.0)
    update = gradients + update / _parts(job, 1)
    workspace = workspace_bytes(graph, job)
    peak = base + workspace + max(passes, update)
    held["gathered weights"] = gathered
    held["activations and gradients"] = max(passes, update)
    held["workspaces"] = workspace
    leaves = tuple(
        Leaf(name=name, value=value, unit="bytes", evidence="fitted")
        for name, value in held.items()
    )
    lost = 0.08 * max(passes, update) + 0.02 * peak
    context = float(framework_bytes(np.array([1.0 if job.plan.dp > 1 else 0.0]))[0])
    tree = Leaf(name="memory", value=peak, unit="bytes", evidence="fitted", children=leaves)
    found = HeldBytes(
        allocated_bytes=peak, reserved_bytes=peak + lost, peak_bytes=peak + lost + context
    )
    return tree, found


def workspace_bytes(graph: TracedGraph, job: TracedJob) -> float:
    """What cuBLAS holds through a step."""
    if not any(op.kind == "gemm" for op in graph.ops):
        return 0.0
    modern = job.system.chip.architecture in ("hopper", "blackwell", "blackwell-ultra", "rubin")
    return WORKSPACE_BYTES if modern else SMALL_WORKSPACE_BYTES
