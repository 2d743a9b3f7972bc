"""Forward-only passes and updates over trajectories of uneven lengths.

Packed sequences of lengths l cost attention sum l^2 and everything else sum l. A batch of equal sequences of
length E[l^2] / E[l] has both sums, so that the engine of a training step is asked for that batch. Each rank
packs its share into micro-batches of at most a token budget, or of so many sequences; every rank waits for
the one with most tokens, unless the batch was balanced over them.
"""

import math
from dataclasses import replace

import numpy as np

from foretell.posttraining.workload import TrajectoryWorkload
from foretell.records import dataclass
from foretell.specs.plan import Plan
from foretell.specs.scenario import Job, Scenario
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from foretell.training.variants import ForwardPass, forward_only


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """A batch of trajectories as one rank passes it."""

    scenario: Scenario
    """The job of equal sequences that costs as much."""
    plan: Plan
    """The plan with its micro-batches."""
    imbalance: float
    """Work of the fullest rank over the mean."""

    @property
    def micro_batches(self) -> float:
        """Micro-batches of one rank."""
        return self.scenario.job.global_batch / (self.plan.dp * self.plan.micro_batch)


def packed_batch(
    scenario: Scenario,
    plan: Plan,
    work: TrajectoryWorkload,
    share: float,
    budget: float,
    *,
    balanced: bool,
) -> PackedBatch:
    """The part `share` of a step's trajectories as a job; `budget` tokens a micro-batch and rank, 0: as many
    sequences as the plan's micro-batch has."""
    ranks = plan.dp
    work = work if budget else work.in_batches(plan.micro_batch)
    sequences = work.sequences * work.trajectories * share
    tokens = work.passed_tokens * share / ranks
    mean, length = work.passed_tokens / (work.sequences * work.trajectories), work.passed_length
    each = budget * plan.cp if budget else plan.micro_batch * mean
    many = max(math.ceil(tokens / max(each, 1.0) - 1e-6), 1)
    rows = max(round(tokens / (many * length)), 1)
    step = plan.tp * plan.cp * (2 if plan.cp > 1 else 1)
    seq_len = max(math.ceil(tokens / (many * rows) / step) * step, step)
    job = Job(
        gpus=plan.gpus,
        global_batch=ranks * many * rows,
        seq_len=seq_len,
        target_len=None,
    )
    return PackedBatch(
        scenario=replace(scenario, job=job),
        plan=replace(plan, micro_batch=rows),
        imbalance=imbalance_of(work, sequences / ranks / many, ranks, balanced),
    )


def imbalance_of(work: TrajectoryWorkload, in_batch: float, ranks: int, balanced: bool) -> float:
    """Tokens of the fullest of `ranks` micro-batches of so many trajectories each, over the mean: the mean of
    the largest of many normal sums; none where lengths were dealt evenly."""
    if balanced or ranks < 2 or work.padded_to:
        return 1.0
    spread = work.variation / math.sqrt(max(in_batch, 1.0))
    return 1.0 + spread * math.sqrt(2.0 * math.log(ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerPasses:
    """What the trainer's phases of a step take, and hold; seconds of the whole step."""

    update_s: float
    """All updates."""
    forward_s: float
    """One pass without gradients over all trajectories."""
    frozen_s: float
    """The same without adapters."""
    micro_batches: float
    """Micro-batches of one rank in all updates' passes over the trajectories."""
    forward_batches: float
    """Those of the pass without gradients."""
    frozen_batches: float
    """Those of the one without adapters."""
    held: dict[str, float]
    """Bytes of the fullest chip in an update, by part."""
    forward: ForwardPass
    """What passes without gradients hold."""


def trainer_passes(
    scenario: Scenario,
    plan: Plan,
    work: TrajectoryWorkload,
    budget: float,
    balanced: bool,
    *,
    log_prob_mbs: int = 0,
    reference_mbs: int = 0,
) -> TrainerPasses:
    """Updates and forward-only passes of a step by a trainer's plan; sequences of a micro-batch of the
    passes, 0: as updates fill theirs."""
    if plan.lora and plan.method == "prompt":  # its tokens pass the model too
        work = replace(work, prompt_tokens=work.prompt_tokens + plan.lora)
    batch = packed_batch(scenario, plan, work, 1.0 / work.updates, budget, balanced=balanced)
    update_s, held = step_numbers(batch)
    if work.together and not budget:
        held = step_numbers(
            packed_batch(scenario, plan, work.longest(), 1.0, budget, balanced=balanced)
        )[1]
    whole = packed_batch(scenario, plan, work, 1.0, budget, balanced=balanced)
    own, frozen = (
        packed_batch(scenario, replace(plan, micro_batch=many), work, 1.0, 0.0, balanced=balanced)
        if many
        else whole
        for many in (log_prob_mbs, reference_mbs)
    )
    passed = kept = forward_only(own.scenario, own.plan)
    if plan.lora or frozen is not own:
        plain = replace(frozen.plan, lora=0, adapters="all", method="lora")
        kept = forward_only(frozen.scenario, plain)
    return TrainerPasses(
        update_s=work.updates * update_s * batch.imbalance,
        forward_s=passed.seconds * own.imbalance,
        frozen_s=kept.seconds * frozen.imbalance,
        micro_batches=whole.micro_batches,
        forward_batches=own.micro_batches,
        frozen_batches=frozen.micro_batches,
        held=held,
        forward=replace(passed, passing_bytes=max(passed.passing_bytes, kept.passing_bytes)),
    )


def step_numbers(batch: PackedBatch) -> tuple[float, dict[str, float]]:
    """Seconds of one update, and bytes of its fullest chip by part."""
    from foretell.specs.plan import batch_of

    plans = batch_of([batch.plan])
    tables = tables_of(batch.scenario, plans)
    ledger = evaluate_rows(batch.scenario, plans, tables)
    row = int(np.ravel(ledger.fullest)[0])
    memory = ledger.memory
    names = (
        "weights", "gradients", "states", "activations", "buffers", "allocator", "framework",
    )  # fmt: skip
    held = {name: float(getattr(memory, name)[0, row]) for name in names}
    return float(ledger.step_s[0]), held
