"""One training step of a traced module on all its ranks: stages, exchanges, the update, and memory.

Every stage of a pipeline is two lines that overlap, the host's and the GPU's (training/traced_rows.py);
stages wait for one another as the schedule says. Ranks that share layers exchange what they made between its
rows. Data parallelism sums gradients behind the backward pass; ZeRO shares states, gradients and weights.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from foretell.catalog.hosts import optimizer_of
from foretell.kernels.memory import HeldBytes
from foretell.kernels.traced_ops import FILE
from foretell.network.collectives import send_s
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe, RankTimes
from foretell.sharding.traced_pipeline import TracedStage, pipeline_stages
from foretell.sharding.traced_tensor import TracedExchange, tensor_cut
from foretell.specs.arrays import Array, Ints, Mask
from foretell.specs.result import Leaf
from foretell.trace.graph import PHASES, TracedGraph, TracedModel, TracedOp
from foretell.training.traced_exchanges import exchange_seconds, exposed_seconds, rank_counts
from foretell.training.traced_memory import (
    BACKWARD,
    RankMemory,
    parts_of,
    rank_memory,
    recomputation_bytes,
    trained_weights,
    weight_bytes,
)
from foretell.training.traced_rows import (
    HOST,
    RECOMPUTE,
    TracedJob,
    of_kind,
    ranges_of,
    speed_of,
    steady_seconds,
    timed_rows,
)

UPDATES = ("foreach", "fused", "loop")
"""How PyTorch's optimizers run: over lists of tensors, in one kernel, or tensor by tensor."""
EXCHANGE_S = 6e-5
"""What the host takes to start a collective of PyTorch: about as long as fused attention (not measured)."""
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


UPDATE_FORMS = {name: UpdateForm(**form) for name, form in FILE["update"]["forms"].items()}
"""By name; SGD with momentum takes what a fused update takes."""


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
    """Matrix operations of a step on one rank, attention as the whole square, without what is recomputed."""
    causal_flops: float
    """The same with the pairs of attention that its mask leaves."""
    hardware_flops: float
    """The same with it."""
    time: Leaf
    """Where the time goes."""
    stages: tuple[Leaf, ...]
    """Where the memory of each stage goes."""
    held: HeldBytes
    """Peak of the rank that holds the most."""
    notes: tuple[str, ...]
    """What was assumed."""
    unknown_share: float
    """Share of the GPU's time in operations of which their bytes alone are known."""
    range_s: Mapping[str, tuple[float, float]]
    """Level -> time of a step where these, and the host, take the least and the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One stage's rows of one micro-batch, in the order in which they run."""

    part: TracedStage
    """What it runs."""
    gpu: Array
    """Seconds of the GPU, exchanges among them."""
    host: Array
    """Seconds of the host to start them, the last entry what starts the passes."""
    sync: Mask
    """Where the host waits."""
    unsure: Mask
    """Rows of which the bytes alone are known."""
    shares: Mapping[str, float]
    """Seconds of the GPU by phase and family."""
    summing: tuple[float, float]
    """Adding gradients to those before: on GPU and host."""
    update: tuple[float, float]
    """The optimizer: on GPU and host."""
    back_s: float
    """Seconds of the GPU in the backward pass."""
    forward_s: float
    """The same in the forward pass."""
    again: float
    """Matrix operations of a micro-batch that are computed again."""
    notes: tuple[str, ...]
    """What was assumed of kernels."""

    def passes_s(self, factor: float = 1.0, host_factor: float = 1.0) -> float:
        """Seconds of one micro-batch behind others."""
        gpu = np.append(np.where(self.unsure, factor * self.gpu, self.gpu), self.summing[0])
        host = host_factor * np.append(self.host, self.summing[1])
        return steady_seconds(gpu, host, np.append(self.sync, False))


def traced_step(model: TracedModel, job: TracedJob) -> ModuleStep:
    """Time and memory of one step."""
    whole = model.graphs[job.form]
    graph, own, plan = whole, model, job.plan
    exchanges, notes = tuple[TracedExchange, ...](), list[str]()
    if plan.tp > 1:
        cut = tensor_cut(model, job.form, plan.tp, sp=plan.sp)
        own, graph, exchanges = cut.model, cut.graph, cut.exchanges
        if cut.notes:
            notes.append(
                f"tp={plan.tp}: {cut.whole_share:.2%} of the maps' operations stay whole on every rank"
                f" ({'; '.join(cut.notes[:4])})"
            )
    parts = pipeline_stages(own, graph, plan.pp)
    seconds = exchange_seconds(job, exchanges)
    stages = [_stage(part, job, exchanges, seconds) for part in parts]
    timing = _Timing(stages, job)
    memories = _memories(stages, job)
    most = max(memories, key=lambda one: float(one.held.peak_bytes))
    step_s = timing.taken_s()
    ranks = plan.tp * plan.pp
    each = np.array([model_flops(op) for op in whole.ops] or [(0.0, 0.0)])[whole.op]
    flops, causal = each[whole.phase != RECOMPUTE].sum(axis=0) * job.micro_batches / ranks
    again = sum(one.again for one in stages) / plan.pp * job.micro_batches
    slow = timing.slowest()
    busy_s = timing.busy_s(slow)
    unknown_s = float(slow.gpu[slow.unsure].sum()) * job.micro_batches
    return ModuleStep(
        step_s=step_s,
        gpu_s=busy_s,
        host_s=timing.host_s(slow),
        communication_s=timing.exposed_s,
        flops=float(flops),
        causal_flops=float(causal),
        hardware_flops=float(flops) + again,
        time=_summed("step", timing.leaves(slow, step_s), step_s),
        stages=tuple(one.tree for one in memories),
        held=most.held,
        notes=tuple(dict.fromkeys([*notes, *(note for one in stages for note in one.notes)])),
        unknown_share=unknown_s / busy_s if busy_s > 0.0 else 0.0,
        range_s=ranges_of(timing.taken_s),
    )


def _stage(
    part: TracedStage, job: TracedJob, exchanges: Sequence[TracedExchange], seconds: Array
) -> _Stage:
    """The rows of one stage with their seconds."""
    graph, model = part.graph, part.model
    gpu, host, notes = timed_rows(graph, job)
    kernels_s = gpu
    places = {int(row): n for n, row in enumerate(part.rows)}
    sent = np.zeros(len(gpu))
    host = host.copy()
    for one, taken in zip(exchanges, seconds, strict=True):
        if one.row in places:
            sent[places[one.row]] += taken
            host[places[one.row]] += EXCHANGE_S / speed_of(job)
    gpu = gpu + sent
    again = np.zeros(0, dtype=np.int64)
    if job.plan.recompute == "full":
        again = recomputation_bytes(graph, model.layers)[1]
    order = np.concatenate([np.arange(len(gpu)), again])
    blocks = len({path for path in model.layers if any(_below(path, p) for p in graph.paths)})
    pass_s = HOST.compiled_pass_s if job.compiled else HOST.pass_s
    pass_s += HOST.again_s * (blocks if len(again) else 0)
    tensor_s = HOST.compiled_tensor_s if job.compiled else HOST.tensor_s
    start_s = (pass_s + tensor_s * trained_weights(model)[1]) / speed_of(job)
    shares = _shares(graph, kernels_s, again)
    if len(exchanges):
        shares["tensor-parallel"] = float(sent[order].sum())
    back = graph.phase == BACKWARD
    flops = np.array([model_flops(op)[0] for op in graph.ops] or [0.0])[graph.op]
    return _Stage(
        part=part,
        gpu=np.append(gpu[order], 0.0),
        host=np.append(host[order], start_s),
        sync=np.append(of_kind(graph, "sync")[order], False),
        unsure=np.append(of_kind(graph, "unknown")[order], False),
        shares=shares,
        summing=_summing(model, job) if job.micro_batches > 1 else (0.0, 0.0),
        update=_update(model, job),
        back_s=float(gpu[back].sum()),
        forward_s=float(gpu[~back].sum()),
        again=float(flops[again].sum() + flops[graph.phase == RECOMPUTE].sum()),
        notes=notes,
    )


def model_flops(op: TracedOp) -> tuple[float, float]:
    """Operations of a product as MFU counts them, attention as the whole square and by its pairs."""
    if op.kind != "attention" or not op.sizes:
        return op.flops, op.flops
    s = op.sizes
    each = 2.0 * s["batch"] * s["heads"] * (s["qk_dim"] + s["v_dim"]) * (1.0 + s["backward"])
    return each * s["q_len"] * s["kv_len"], each * s["pairs"]


def _below(layer: str, path: str) -> bool:
    return path == layer or path.startswith(f"{layer}.")


class _Timing:
    """The seconds of a step from those of its stages."""

    def __init__(self, stages: Sequence[_Stage], job: TracedJob) -> None:
        self.stages, self.job = stages, job
        self.exposed_s = max(exposed_seconds(one.part.model, job, one.back_s) for one in stages)
        self.sends_s = self._sends()

    def _sends(self) -> list[float]:
        """Seconds that each stage waits for sends, there and back: half of each is its neighbour's."""
        plan, found = self.job.plan, [0.0] * len(self.stages)
        if plan.pp == 1:
            return found
        counts = rank_counts(self.job, plan.pp, plan.tp * plan.dp)
        for n, one in enumerate(self.stages[:-1]):
            size = np.array([one.part.sent_bytes])
            taken = float(np.ravel(send_s(size, counts, self.job.system.network))[0])
            found[n] += taken
            found[n + 1] += taken
        return found

    def taken_s(self, factor: float = 1.0, host_factor: float = 1.0) -> float:
        """Seconds of a step with unknown operations, and the host, so many times slower."""
        if len(self.stages) == 1:
            return self.exposed_s + self._line_s(self.stages[0], factor, host_factor)
        update_s = max(max(one.update[0], host_factor * one.update[1]) for one in self.stages)
        return self.exposed_s + update_s + self._pipeline_s(factor, host_factor)[0]

    def _line_s(self, one: _Stage, factor: float, host_factor: float) -> float:
        """Seconds of a step where the host runs ahead through micro-batches and the update."""
        gpu = np.where(one.unsure, factor * one.gpu, one.gpu)
        many = self.job.micro_batches
        pieces_gpu, pieces_host = [gpu], [one.host]
        for _ in range(many - 1):
            pieces_gpu += [gpu, np.array([one.summing[0]])]
            pieces_host += [one.host, np.array([one.summing[1]])]
        pieces_gpu.append(np.array([one.update[0]]))
        pieces_host.append(np.array([one.update[1]]))
        more = np.array([False])
        sync = [one.sync, *([one.sync, more] * (many - 1)), more]
        line = np.concatenate(pieces_gpu), host_factor * np.concatenate(pieces_host)
        return steady_seconds(*line, np.concatenate(sync))

    def _pipeline_s(self, factor: float, host_factor: float) -> tuple[float, float]:
        """Seconds of all passes, and those that the slowest stage waits for the others."""
        whole = np.array([[one.passes_s(factor, host_factor) for one in self.stages]])
        whole += np.array([self.sends_s])
        share = [one.forward_s / max(one.forward_s + one.back_s, 1e-12) for one in self.stages]
        times = RankTimes(
            whole_s=whole,
            multiplicity=np.ones_like(whole),
            slowest=np.argmax(whole, axis=1),
            forward_s=whole * np.array([share]),
        )
        bubble = float(schedule_named(self.job.plan.schedule).bubble_s(times, _pipe(self.job))[0])
        return self.job.micro_batches * float(whole.max()) + bubble, bubble

    def slowest(self) -> _Stage:
        """The stage that sets the pace."""
        order = [one.passes_s() + sent for one, sent in zip(self.stages, self.sends_s, strict=True)]
        return self.stages[int(np.argmax(order))]

    def busy_s(self, one: _Stage) -> float:
        """Seconds that a stage's GPU works in a step."""
        many = self.job.micro_batches
        return float(many * one.gpu.sum() + (many - 1) * one.summing[0] + one.update[0])

    def host_s(self, one: _Stage) -> float:
        """Seconds that its host works."""
        many = self.job.micro_batches
        return float(many * one.host.sum() + (many - 1) * one.summing[1] + one.update[1])

    def leaves(self, one: _Stage, step_s: float) -> list[Leaf]:
        """Where a step of the slowest stage goes."""
        many = self.job.micro_batches
        found = {name: value * many for name, value in one.shares.items()}
        found["update"] = one.update[0]
        rest = self.exposed_s
        if len(self.stages) > 1:
            sends = self.sends_s[self.stages.index(one)] * many
            bubble = self._pipeline_s(1.0, 1.0)[1]
            found |= {"pipeline sends": sends, "pipeline bubble": bubble}
            rest += sends + bubble
        found["waiting for the host"] = max(step_s - rest - self.busy_s(one), 0.0)
        found["data-parallel"] = self.exposed_s
        carried = ("data-parallel", "tensor-parallel", "pipeline sends", "pipeline bubble")
        return [
            Leaf(
                name=name,
                value=value,
                unit="s",
                evidence="transferred" if name in carried else "fitted",
            )
            for name, value in found.items()
        ]


def _pipe(job: TracedJob) -> Pipe:
    """The sizes of a plan's pipeline."""
    return Pipe(
        micro_batches=np.array([float(job.micro_batches)]),
        pp=np.array([float(job.plan.pp)]),
        vpp=np.ones(1),
    )


def _memories(stages: Sequence[_Stage], job: TracedJob) -> list[RankMemory]:
    """What a rank of each stage holds."""
    if len(stages) == 1:
        return [rank_memory(stages[0].part.model, job, stages[0].part.graph)]
    position = np.arange(len(stages), dtype=float)[None, :]
    held = schedule_named(job.plan.schedule).in_flight(_pipe(job), position)[0]
    return [
        rank_memory(
            one.part.model, job, one.part.graph, name=f"stage {n}", in_flight=round(float(held[n]))
        )
        for n, one in enumerate(stages)
    ]


def _summed(name: str, leaves: Sequence[Leaf], total: float) -> Leaf:
    """A tree whose leaves add up to its value: what runs beside something else counts once."""
    found = sum(leaf.value for leaf in leaves)
    scale = total / found if found > 0.0 else 0.0
    children = tuple(
        Leaf(name=leaf.name, value=leaf.value * scale, unit="s", evidence=leaf.evidence)
        for leaf in leaves
    )
    return Leaf(name=name, value=total, unit="s", evidence="fitted", children=children)


def _shares(graph: TracedGraph, gpu: Array, again: Ints) -> dict[str, float]:
    """Seconds of the GPU by phase and family of kernels."""
    found: dict[str, float] = {}
    for row, seconds in enumerate(gpu):
        name = f"{PHASES[graph.phase[row]]} {graph.ops[graph.op[row]].kind}"
        found[name] = found.get(name, 0.0) + float(seconds)
    found["recompute layers"] = float(gpu[again].sum())
    return {name: value for name, value in found.items() if value > 0.0}


def _update(model: TracedModel, job: TracedJob) -> tuple[float, float]:
    """Seconds of the optimizer on GPU and host."""
    elements, tensors = trained_weights(model)
    elements /= parts_of(job, 1)
    two = optimizer_of(job.plan.optimizer).states > 1.0
    form = UPDATE_FORMS[job.update if two or job.update == "loop" else "fused"]
    width = weight_bytes(model, job)
    wide = form.passes if width > 2.0 else form.narrow_passes
    bandwidth = STREAM * float(np.ravel(job.system.chip.memory_bandwidth_bytes_per_s)[0])
    gpu_s = elements * width * wide / bandwidth + tensors * form.kernels * 1.6e-6
    return gpu_s, (form.start_s + tensors * form.tensor_s) / speed_of(job)


def _summing(model: TracedModel, job: TracedJob) -> tuple[float, float]:
    """Adding a micro-batch's gradients to those before: seconds on GPU and host."""
    elements, tensors = trained_weights(model)
    moved = 3.0 * elements * weight_bytes(model, job)
    bandwidth = 0.86 * float(np.ravel(job.system.chip.memory_bandwidth_bytes_per_s)[0])
    return moved / bandwidth + tensors * 1.6e-6, tensors * 14e-6 / speed_of(job)
