"""The spine: a step of fine-tuning or reinforcement learning, phase by phase.

Read this file to know where everything is:

    workload.py              trajectories and their lengths
    rollout.py               generation
      serving/requests/        the engine's queue, batch and cache, from event to event
    passes.py                log-probabilities, values, updates over packed or padded lengths
      training/variants.py passes without gradients
      training/step.py         updates
    sync.py                  weights to the rollout engine
    memory.py                what a chip holds in every phase
    pipeline.py              two pools at once
    catalog/posttraining.toml   what a framework does around all of it

One pool, or two in turn:   S = wake + generate + environment + sleep + old + reference + values + advantages
                                + updates + critic's updates + sync + host
two pools at once:          pipeline.py, with the same phases

`catalog/posttraining.toml` has the spreads by which each number was off with its source left out.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from foretell.catalog.post_training import PostTrainingLoop
from foretell.posttraining.memory import Residency, phase_memory
from foretell.posttraining.passes import TrainerPasses, trainer_passes
from foretell.posttraining.pipeline import PoolTimes, pipeline_of
from foretell.posttraining.rollout import RolloutTimes, rollout_times
from foretell.posttraining.sync import BYTES, SyncQuestion, kept_bytes, sync_seconds
from foretell.posttraining.workload import TrajectoryWorkload
from foretell.records import dataclass
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Head, Model
from foretell.specs.plan import Plan
from foretell.specs.post_training import (
    AlgorithmForm,
    Phase,
    PhaseMemory,
    PlacementName,
    Pool,
    SyncName,
)
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.training.variants import ForwardPass, forward_only
from foretell.workload.parameters import count as count_parameters

Held = Literal["weights", "optimizer"]
"""What a trainer may keep on the host."""
PASS_BYTES, UPDATE_BYTES = 36.0, 60.0
"""Bytes of a place of a padded batch that a controller hands out: tokens, mask, positions and answers in 64
bits and log-probabilities back; for updates also old and reference ones, advantages, returns and masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSetup:
    """Everything that a step is made of."""

    algorithm: AlgorithmForm
    """Which phases there are."""
    loop: PostTrainingLoop
    """What the framework does around them."""
    work: TrajectoryWorkload
    """Trajectories."""
    scenario: Scenario
    """The trainer: model, system and software; its job is made for each phase."""
    plan: Plan
    """The trainer's plan."""
    trainer: str
    """fsdp, megatron or deepspeed."""
    budget: float
    """Tokens of a micro-batch on one rank; 0: the plan's sequences."""
    rollout_system: System
    """System of the engine."""
    rollout_gpus: int
    """Its chips; 0: nothing is generated."""
    deployment: Deployment
    """Its layout."""
    profile: EngineProfile
    """Its overheads."""
    placement: PlacementName
    """Where both stay in place."""
    sync: SyncName
    """How weights get from one to the other."""
    offload: frozenset[str]
    """What the trainer keeps on the host outside its own phases."""
    staleness: float = 1.0
    """Batches that may be ahead of the trainer, where both pools work at once."""
    partial: bool = False
    """Whether long answers go on under the next weights."""
    critic: Model | None = None
    """The value model; None where there is none."""
    log_prob_mbs: int = 0
    """Sequences of a micro-batch of old log-probabilities on one rank; 0: as updates fill theirs."""
    reference_mbs: int = 0
    """The same of the reference."""

    @property
    def plan_words(self) -> str:
        """The trainer's plan as words that give the same step: no sequences of a micro-batch where tokens
        fill it."""
        words = str(self.plan).split()
        size = f"mbs{self.plan.micro_batch}"
        return " ".join(word for word in words if not self.budget or word != size)

    @property
    def trainer_gpus(self) -> int:
        """Chips that train."""
        return self.plan.gpus

    @property
    def gpus(self) -> int:
        """Chips of all pools."""
        if self.placement == "colocated" or not self.rollout_gpus:
            return max(self.trainer_gpus, self.rollout_gpus)
        return self.trainer_gpus + self.rollout_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """A step in numbers, before prices and sentences."""

    setup: StepSetup
    """What was asked."""
    step_s: float
    """Seconds."""
    phases: tuple[Phase, ...]
    """Its parts."""
    memory: tuple[PhaseMemory, ...]
    """What chips hold."""
    passes: TrainerPasses
    """The trainer's."""
    rollout: RolloutTimes | None
    """The engine's; None where nothing is generated."""
    staleness: float
    """Versions between a trajectory's first token and its use."""
    waits: str
    """The pool that waits; empty where phases follow each other."""
    idle_share: float
    """Share of the chips' time in which they wait."""


def step_of(setup: StepSetup) -> StepResult:
    """One step; Infeasible where the engine does not fit at all."""
    form, actor = setup.algorithm, setup.scenario
    if form.moves_weights:
        return sync_alone(setup)
    if not form.head:
        actor = replace(actor, model=with_scalar_head(actor.model))
    asked = setup.plan, setup.work, setup.budget, setup.loop.balanced
    own = (setup.log_prob_mbs, setup.reference_mbs)
    passes = valued = trainer_passes(actor, *asked, log_prob_mbs=own[0], reference_mbs=own[1])
    if setup.critic is not None:
        critic = replace(actor, model=with_scalar_head(setup.critic))
        valued = trainer_passes(critic, *asked)
    rollout = None
    if setup.algorithm.generates:
        rollout = rollout_times(
            setup.scenario.model,
            setup.rollout_system,
            setup.rollout_gpus,
            setup.deployment,
            setup.profile,
            setup.work,
            in_turn=setup.loop.static_batches,
        )
    seconds = phase_seconds(setup, passes, valued, rollout)
    where = Residency(
        colocated=setup.placement == "colocated" and rollout is not None,
        awake=setup.loop.awake,
        offload=setup.offload,
        trainer_bytes=float(setup.scenario.system.chip.memory_bytes),
        rollout_bytes=float(setup.rollout_system.chip.memory_bytes),
        passes_forward=setup.algorithm.old or setup.algorithm.reference,
        reference=setup.algorithm.reference and not setup.plan.lora,
        critic=critic_share(setup),
        loaded_bytes=loaded_bytes(setup),
    )
    return _joined(setup, passes, rollout, seconds, phase_memory(where, passes, rollout))


def sync_alone(setup: StepSetup) -> StepResult:
    """The way of the weights to the engine, and nothing else."""
    trained = 0.0
    if setup.plan.lora:
        step = setup.plan.tp * setup.plan.cp * 2
        job = replace(
            setup.scenario.job, gpus=setup.plan.gpus, global_batch=setup.plan.dp, seq_len=step
        )
        trained = forward_only(replace(setup.scenario, job=job), setup.plan).trained
    nothing = ForwardPass(seconds=0.0, weight_bytes=0.0, passing_bytes=0.0, trained=trained)
    passes = TrainerPasses(
        update_s=0.0, forward_s=0.0, frozen_s=0.0, held={}, forward=nothing,
        micro_batches=0.0, forward_batches=0.0, frozen_batches=0.0,
    )  # fmt: skip
    seconds: dict[str, tuple[float, Pool]] = {"weight_sync": (sync_of(setup, trained), "all")}
    return _joined(setup, passes, None, seconds, ())


def scaled_step(result: StepResult, factors: Mapping[str, float]) -> StepResult:
    """The same step where phases take so many times as long; a phase without a factor stays."""
    seconds = {p.name: (p.seconds * factors.get(p.name, 1.0), p.pool) for p in result.phases}
    rollout, longer = result.rollout, factors.get("generate", 1.0)
    if rollout is not None:
        times = ("seconds", "tail_s", "steady_s", "latency_s")
        rollout = replace(rollout, **{name: getattr(rollout, name) * longer for name in times})
    return _joined(result.setup, result.passes, rollout, seconds, result.memory)


def phase_seconds(
    setup: StepSetup, passes: TrainerPasses, critic: TrainerPasses, rollout: RolloutTimes | None
) -> dict[str, tuple[float, Pool]]:
    """Seconds of each phase by itself, and the chips that it keeps busy; `critic`: passes of the value
    model, where there is one."""
    form, loop, work = setup.algorithm, setup.loop, setup.work
    each_s = loop.micro_batch_s if form.generates else 0.0
    weights: tuple[Held, ...] = ("weights",)
    again = 2.0 if loop.reloads else 0.0

    def forward_of(mine: TrainerPasses, pass_s: float, many: float) -> float:
        """A pass without gradients in so many micro-batches, and what is moved for it."""
        beside_s = each_s * many + carried_s(setup, PASS_BYTES)
        return pass_s + beside_s + again * onload_s(setup, mine, weights)

    def update_of(mine: TrainerPasses) -> float:
        """All updates, and what is moved for them."""
        beside_s = 2.0 * each_s * mine.micro_batches + carried_s(setup, UPDATE_BYTES)
        return mine.update_s + beside_s + again * onload_s(setup, mine)

    moved_s = onload_s(setup, passes, weights) if loop.reloads else onload_s(setup, passes)
    found: dict[str, tuple[float, Pool]] = {}
    both: Pool = "all" if setup.placement == "colocated" else "rollout"
    if rollout is not None:
        if setup.placement == "colocated":
            found["wake"] = (loop.wake_s + moved_s, "all")
        found["generate"] = (rollout.seconds, both)
        if rollout.environment_s > 0.0:
            found["environment"] = (rollout.environment_s, "host")
        if setup.placement == "colocated":
            found["sleep"] = (loop.wake_s + moved_s, "all")
        found["reward"] = (loop.reward_s * work.trajectories, "host")
    if form.old and (
        loop.old_logprobs == "always" or (loop.old_logprobs == "several" and work.updates > 1)
    ):
        old_s = forward_of(passes, passes.forward_s, passes.forward_batches)
        found["old_logprob"] = (old_s, "trainer")
    if form.reference:
        reference_s = forward_of(passes, passes.frozen_s, passes.frozen_batches)
        found["ref_logprob"] = (reference_s, "trainer")
    if form.critic:
        values_s = forward_of(critic, critic.forward_s, critic.forward_batches)
        found["values"] = (values_s, "trainer")
    if rollout is not None:
        found["adv"] = (loop.advantage_s * work.trajectories, "host")
    found["update_actor"] = (update_of(passes), "trainer")
    if form.critic:
        found["update_critic"] = (update_of(critic), "trainer")
    if rollout is not None:
        found["weight_sync"] = (sync_of(setup, passes.forward.trained), "all")
        found["host"] = (loop.step_s, "host")
    return found


def critic_share(setup: StepSetup) -> float:
    """Weights of the value model over those of the policy; 0 where there is none."""
    if setup.critic is None:
        return 0.0
    actor = setup.scenario.model
    return float(count_parameters(setup.critic).text) / float(count_parameters(actor).text)


def loaded_bytes(setup: StepSetup) -> float:
    """All weights, where fine-tuning gathers them on every chip to load them; else 0."""
    shares = setup.plan.zero == 3 and setup.plan.dp > 1 and not setup.algorithm.generates
    whole = float(count_parameters(setup.scenario.model).text) * BYTES
    return whole if setup.loop.loads_whole and shares else 0.0


def with_scalar_head(model: Model) -> Model:
    """A model with one number a token in the place of scores: reward and value models."""
    return replace(model, id=f"{model.id} with a scalar head", head=Head(outputs=1))


def carried_s(setup: StepSetup, each: float) -> float:
    """One batch through the controller, filled up to the limits; where both pools work at once, trajectories
    come one by one while the trainer is busy."""
    loop, work = setup.loop, setup.work
    if (
        not loop.controller_bytes_per_s
        or setup.placement == "async"
        or not setup.algorithm.generates
    ):
        return 0.0
    places = work.trajectories * (work.prompt_tokens + work.answers.cap)
    return each * places / loop.controller_bytes_per_s


def onload_s(
    setup: StepSetup, passes: TrainerPasses, parts: tuple[Held, ...] = ("weights", "optimizer")
) -> float:
    """Those `parts` that the trainer keeps on the host outside its phases, over its link, one way."""
    whole = passes.held["weights"] + passes.held["states"]
    # The one copy of FSDP is the master's, a third of what the optimizer has.
    weights = passes.held["weights"] or whole / 3.0
    sizes = {"weights": weights, "optimizer": whole - weights}
    moved = sum(sizes[name] for name in parts if name in setup.offload)
    return moved / setup.loop.wake_bytes_per_s


def sync_of(setup: StepSetup, trained: float) -> float:
    """The synchronisation of a setup: all weights, or the `trained` of adapters where the engine takes them
    as they are and the trainer has them by themselves."""
    model, plan = setup.scenario.model, setup.plan
    loop, shards = setup.loop, setup.trainer != "megatron"
    whole = not plan.lora or loop.sync_merged or (loop.sync_summons and shards)
    question = SyncQuestion(
        model=model,
        sent_parameters=float(count_parameters(model).text) if whole else trained,
        mechanism=setup.sync,
        trainer_gpus=plan.gpus,
        rollout_gpus=setup.rollout_gpus,
        replica_gpus=setup.deployment.gpus,
        offloaded="weights" in setup.offload and setup.placement != "colocated",
        kept_bytes=kept_bytes(not shards or bool(plan.lora)),
        narrow=setup.deployment.weights.startswith("fp8"),
        split=setup.placement != "colocated",
    )
    return sync_seconds(question, loop, setup.rollout_system)


def _joined(
    setup: StepSetup,
    passes: TrainerPasses,
    rollout: RolloutTimes | None,
    seconds: dict[str, tuple[float, Pool]],
    memory: tuple[PhaseMemory, ...],
) -> StepResult:
    """Phases in turn, or of two pools at once."""
    total = sum(value for value, _ in seconds.values())
    exposed = {name: value for name, (value, _) in seconds.items()}
    staleness, waits = 0.0, ""
    if setup.placement == "async" and rollout is not None:
        ahead = sum(exposed.get(name, 0.0) for name in ("generate", "environment"))
        beside = sum(exposed.get(name, 0.0) for name in ("weight_sync", "host"))
        # Log-probabilities of the policy that wrote them come with the answers.
        trainer_s = total - ahead - beside
        pools = PoolTimes(
            trainer_s=trainer_s,
            generate_s=ahead,
            steady_s=rollout.steady_s,
            latency_s=rollout.latency_s,
        )
        found = pipeline_of(pools, setup.staleness, setup.partial, setup.loop.partial_hides)
        staleness, waits = found.staleness, found.waits
        total = found.step_s + beside
        exposed["generate"] = max(found.step_s - trainer_s, 0.0)
        exposed["environment"] = 0.0
    phases = tuple(
        Phase(
            name=name,
            seconds=value,
            interval=(value, value),
            pool=pool,
            exposed=min(exposed.get(name, value), value),
        )
        for name, (value, pool) in seconds.items()
    )
    return StepResult(
        setup=setup,
        step_s=total,
        phases=phases,
        memory=memory,
        passes=passes,
        rollout=rollout,
        staleness=staleness,
        waits=waits,
        idle_share=idle_share(setup, rollout, seconds, total),
    )


def spread_interval(value: float, ends: tuple[float, float]) -> tuple[float, float]:
    """An interval whose ends are this far from a value in their logarithm."""
    return value * math.exp(ends[0]), value * math.exp(ends[1])


def idle_share(
    setup: StepSetup,
    rollout: RolloutTimes | None,
    seconds: dict[str, tuple[float, Pool]],
    step_s: float,
) -> float:
    """Share of all chips' time in which they neither pass tokens nor write them."""
    busy = {"trainer": 0.0, "rollout": 0.0}
    for name, (value, pool) in seconds.items():
        if name == "generate" and rollout is not None:
            busy["rollout"] += value * rollout.busy_share
        elif pool == "trainer":
            busy["trainer"] += value
    chips = busy["trainer"] * setup.trainer_gpus + busy["rollout"] * setup.rollout_gpus
    return max(1.0 - chips / max(setup.gpus * step_s, 1e-9), 0.0)
