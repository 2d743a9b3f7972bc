"""Two lines of a traced module that overlap: what the GPU takes for each row, and the host to start it.

    end_i = max(end_{i-1}, host_i) + kernels_i

A host starts one operation after the other; a GPU runs them in that order, as soon as they are started. Where
the host reads a number back, it waits for the GPU. A step is what the second of two steps in a row adds.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.traced_ops import FILE, recurrent_steps, traced_kernels
from foretell.records import dataclass
from foretell.specs.arrays import Array, Ints, Mask
from foretell.specs.plan import Plan
from foretell.specs.software import Software
from foretell.specs.system import System
from foretell.trace.graph import LOSS, PHASES, TracedGraph

RECOMPUTE, BACKWARD = PHASES.index("recompute"), PHASES.index("backward")


LIBRARY = ("gemm", "conv", "attention", "rnn", "sort", "scatter", "fft", "solve", "sync", "unknown")
"""Families that a compiler leaves to kernels of their own: it joins what runs between them."""


def of_library(graph: TracedGraph) -> Mask:
    """Whether each row is an operation that a compiler joins with no other."""
    found = np.isin([op.kind for op in graph.ops] or ["view"], LIBRARY)
    return np.asarray(
        found[graph.op] | outside(graph) if len(graph.op) else np.zeros(0, dtype=bool)
    )


def outside(graph: TracedGraph) -> Mask:
    """Whether each row is of a loss outside of the module, which is not compiled with it."""
    return np.asarray((np.array(graph.paths or ("",)) == LOSS)[graph.path])


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
    """Each trained tensor whose backward pass a compiler made."""
    pass_s: float
    """Starting a forward and a backward pass."""
    compiled_pass_s: float
    """Starting passes that a compiler made: guards, and what wraps its graphs."""
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
HOST = HostTimes(**{k: v for k, v in FILE["host"].items() if k not in ("source", "status")})


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


def of_kind(graph: TracedGraph, kind: str) -> Mask:
    """Whether each row's operation is of a family."""
    found = np.array([op.kind == kind for op in graph.ops] or [False])
    return np.asarray(found[graph.op] if len(graph.op) else np.zeros(0, dtype=bool))


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


def steady_seconds(gpu: Array, host: Array, sync: Mask) -> float:
    """What a step adds when it follows others."""
    state, ends = (0.0, 0.0), []
    for _ in range(3):
        state = _lines(gpu, host, sync, state)
        ends.append(max(state))
    return ends[-1] - ends[-2]


def _lines(gpu: Array, host: Array, sync: Mask, state: tuple[float, float]) -> tuple[float, float]:
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


def _compiled_lines(
    graph: TracedGraph, gpu: Array, host: Array, job: TracedJob
) -> tuple[Array, Array]:
    """Kernels and starts where a compiler joins the passes over memory between two library operations."""
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
    last: Ints,
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
