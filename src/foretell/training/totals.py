"""Matrix operations and joules of a step.

Every chip draws its base watts from the beginning of the step to its end, whether it computes or waits.
Products and bytes cost joules on top (kernels/power.py): those of the passes, of the sums of gradients and of
the update, on every rank of every stage. Every rank of a replica runs its part of each layer once a
micro-batch, wherever the stages are.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache

import numpy as np

from foretell.kernels.optimizer import MEMORY_SHARE
from foretell.records import dataclass
from foretell.sharding.recompute import recompute_layer
from foretell.specs._base import Num, with_fields
from foretell.specs.arrays import Array, Mask
from foretell.specs.model import Model
from foretell.specs.plan import Plans, recompute_code
from foretell.specs.plan_forms import recompute_layers, recompute_modules
from foretell.specs.scenario import Job, Scenario
from foretell.training.ledger import Ledger
from foretell.training.memory import LISTED, block_share
from foretell.training.pass_times import repeats_of
from foretell.training.shapes import Lengths, graph_parts, named_modules
from foretell.training.tables import Tables, gather
from foretell.workload.build import build_kept
from foretell.workload.graph import Graph
from foretell.workload.masks import within_documents
from foretell.workload.ops import AttentionCore, Op
from foretell.workload.roles import Region


def plan_flops(scenario: Scenario, plans: Plans, tables: Tables) -> tuple[float, float, Array]:
    """Matrix operations of a step by the usual convention, as masks leave them, and with recomputation."""
    job, base = scenario.job, plans.base
    model_flop, forward_flop, core_flop = step_flops(scenario.model, job, base.documents)
    # Frozen matrices have a data gradient alone; what adapters multiply is left out.
    model_flop = (2.0 * model_flop / 3.0 + core_flop) if base.lora else model_flop
    once_more = repeats_of(plans, np.arange(len(plans)), tables)[:, 0]
    hardware = model_flop + once_more * forward_flop
    hardware = hardware + core_flop * (plans.recompute == recompute_code("selective"))
    if named_modules(base.recompute):
        listed = plans.recompute == recompute_code(base.recompute)
        more = modules_flop(scenario.model, job, base.recompute, base.flash, base.documents)
        hardware = hardware + more * listed
    passes = 2.0 if base.lora else 3.0
    masked_flop = model_flop - passes * unseen_flop(scenario.model, job, base.documents)
    return model_flop, masked_flop, np.asarray(hardware)


def step_flops(model: Model, job: Job, documents: int = 0) -> tuple[float, float, float]:
    """Matrix operations of a step by the usual convention: forward and backward, forward of the layers,
    forward of the attention cores.

    Attention counts the whole square (no causal halving), of a document where sequences are packed of
    `documents` tokens each, a window counts as a window, and the backward pass is twice the forward
    (Chowdhery et al. 2022, appendix B). Recomputation is not in the first.
    """
    layers, cores, ends = _sequence_flops(model, (job.seq_len, job.target_len), documents)
    batch = float(job.global_batch)
    return 3.0 * batch * (layers + ends), batch * layers, batch * cores


@lru_cache(maxsize=64)
def _sequence_flops(model: Model, lengths: Lengths, documents: int) -> tuple[float, float, float]:
    """Forward matrix operations of one sequence: of the layers, of their attention cores, of both ends."""
    graph = _one_sequence(model, lengths, documents)
    parts = graph_parts(graph)
    counts = np.bincount(np.asarray(graph.order), minlength=len(graph.kinds))
    whole = [_forward_flop(part.ops) for part in parts]
    layers = float(sum(c * w for c, (w, _) in zip(counts, whole, strict=False)))
    cores = float(sum(c * a for c, (_, a) in zip(counts, whole, strict=False)))
    # A frozen tower passes forward alone: a third of what a pass and its gradients take.
    still, _ = _forward_flop([op for op in graph.embedding.ops if op.region is Region.FROZEN])
    return layers, cores, whole[-2][0] + whole[-1][0] - still * 2.0 / 3.0


@lru_cache(maxsize=16)
def _one_sequence(model: Model, lengths: Lengths, documents: int) -> Graph:
    """The graph of one sequence, of documents where it is packed of some; attention in whole squares."""
    target = None if lengths[1] is None else float(lengths[1])
    graph = build_kept(model, batch=1.0, seq_len=float(lengths[0]), target_len=target)
    if not documents:
        return graph
    kinds = tuple(within_documents(part, float(documents)) for part in graph.kinds)
    return with_fields(graph, kinds=kinds)


def unseen_flop(model: Model, job: Job, documents: int = 0) -> float:
    """Matrix operations of a forward pass that the usual convention counts and a causal mask leaves out."""
    lengths = (job.seq_len, job.target_len)
    return float(job.global_batch) * _unseen_by_sequence(model, lengths, documents)


@lru_cache(maxsize=64)
def _unseen_by_sequence(model: Model, lengths: Lengths, documents: int) -> float:
    """The same of one sequence."""
    graph = _one_sequence(model, lengths, documents)
    counts = np.bincount(np.asarray(graph.order), minlength=len(graph.kinds))
    total = 0.0
    for count, part in zip(counts, graph.kinds, strict=True):
        cores = [op for op in part.ops if isinstance(op, AttentionCore)]
        seen = sum(float(with_fields(op, flash=True).forward().matrix_flop) for op in cores)
        total += float(count) * max(_forward_flop(cores)[1] - seen, 0.0)
    return total


def modules_flop(model: Model, job: Job, recompute: str, flash: bool, documents: int = 0) -> float:
    """Matrix operations of a step that recomputing some modules of every layer adds, counted alike."""
    lengths = (job.seq_len, job.target_len)
    return float(job.global_batch) * _modules_by_sequence(
        model, lengths, recompute, flash, documents
    )


@lru_cache(maxsize=64)
def _modules_by_sequence(
    model: Model, lengths: Lengths, recompute: str, flash: bool, documents: int
) -> float:
    """The same of one sequence."""
    graph = _one_sequence(model, lengths, documents)
    counts = np.bincount(np.asarray(graph.order), minlength=len(graph.kinds))
    total = 0.0
    for count, part in zip(counts, graph.kinds, strict=True):
        runs = recompute_layer(part, recompute_modules(recompute), flash=flash).ops
        flop = [run * _forward_flop((op,))[0] for op, run in zip(part.ops, runs, strict=True)]
        total += float(count) * sum(flop)
    return total


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJoules:
    """Joules beyond base watts in a step, of one rank of every stage; (plans,)."""

    passes: Array
    """Operations of all passes."""
    optimizer: Array
    """The optimizer's update."""
    gradient_sums: Array
    """Adding up gradients."""

    @property
    def total(self) -> Array:
        """All of them."""
        found = self.passes
        for leaf in fields(self)[1:]:
            found = found + getattr(self, leaf.name)
        return found


def active_joules(plans: Plans, tables: Tables, ledger: Ledger) -> Array:
    """Joules of all chips beyond their base watts in one step; (plans,)."""
    return np.asarray(ranks_of(plans) * rank_joules(plans, tables, ledger).total)


def ranks_of(plans: Plans) -> Array:
    """Ranks of each stage; (plans,)."""
    return np.asarray(plans.tp * plans.dp * plans.cp)


def rank_joules(plans: Plans, tables: Tables, ledger: Ledger) -> ActiveJoules:
    """What one rank of every stage spends beyond base watts."""
    return ActiveJoules(
        passes=ledger.micro_batches * model_joules(plans, tables, ledger),
        optimizer=update_joules(tables, ledger),
        gradient_sums=sum_joules(tables, ledger),
    )


def update_joules(tables: Tables, ledger: Ledger) -> Array:
    """What the update of one rank of every stage spends beyond base watts; (plans,)."""
    update_s = (ledger.seconds.optimizer * ledger.multiplicity).sum(axis=1)
    return np.asarray(streamed_joules(update_s, tables))


def sum_joules(tables: Tables, ledger: Ledger) -> Array:
    """What the sums of gradients of one rank of every stage spend beyond base watts; (plans,)."""
    sums_s = (ledger.sums_s * ledger.multiplicity).sum(axis=1)
    return np.asarray(streamed_joules(ledger.micro_batches * sums_s, tables))


def model_joules(plans: Plans, tables: Tables, ledger: Ledger) -> Array:
    """Joules of one micro-batch's operations over the whole model, at the clock held; (plans,)."""
    parts, at, fall = tables.parts, tables.shape, ledger.core_fall[:, None]
    repeated = repeated_share(plans, tables)
    again = 1.0 + repeated
    core = parts.forward.core_joules[at] * again + parts.backward.core_joules[at]
    memory = parts.forward.memory_joules[at] * again + parts.backward.memory_joules[at]
    core = core - repeated * parts.stop.core_joules[at]
    memory = memory - repeated * parts.stop.memory_joules[at]
    if parts.again is not None:
        listed = (plans.recompute == LISTED)[:, None] * layers_of(tables)
        core = core + listed * parts.again.core_joules[at]
        memory = memory + listed * parts.again.memory_joules[at]
    return np.asarray((parts.counts * (core * fall + memory)).sum(axis=1))


def layers_of(tables: Tables) -> Mask:
    """Which parts are layers; (parts,)."""
    return np.arange(len(tables.parts.names)) < tables.parts.kinds


def repeated_share(plans: Plans, tables: Tables) -> Array:
    """Share of each part, over all stages, that is computed again whole; (plans, parts)."""
    whole = (plans.recompute == 2.0)[:, None] * layers_of(tables)
    if not recompute_layers(plans.base.recompute):
        return np.asarray(whole, float)
    shares = block_share(plans, np.arange(len(plans)), tables)
    if shares is None:
        return np.asarray(whole, float)
    counts = gather(tables.stages.counts, tables.pair)
    many = gather(tables.stages.multiplicity, tables.pair)
    repeated = np.einsum("ns,nsp->np", many * shares, counts) / tables.parts.counts
    return np.asarray(whole + repeated * layers_of(tables))


def streamed_joules(seconds: Num, tables: Tables) -> Num:
    """Joules beyond base watts of seconds in which a kernel streams memory."""
    numbers = tables.power.coefficients
    per_byte = numbers.core_joules_per_byte + numbers.memory_joules_per_byte
    return per_byte * (MEMORY_SHARE * tables.bytes_per_s * seconds)
