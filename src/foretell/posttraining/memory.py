"""What one chip holds in every phase, by pool (bytes).

generate   engine: weights, cache, workspaces; the trainer's share where both have the same cards and
           nothing was offloaded, else what a trainer that sleeps leaves behind
sync       weights of both, and a bucket
logprob    weights, a layer's tensors or the scores; states unless they are on the host; the engine,
           asleep or awake
update     everything of a training step; the engine
load       a shard, and all weights where a loop gathers them to load them
"""

from collections.abc import Mapping

from foretell.kernels.memory import CONTEXT_BYTES, held_of_parts
from foretell.posttraining.passes import TrainerPasses
from foretell.posttraining.rollout import RolloutTimes
from foretell.records import dataclass
from foretell.specs.post_training import PhaseMemory, Pool
from foretell.training.feasibility import memory_verdict

RESIDUE_BYTES = 4.0 * 2**30
"""What a trainer that sleeps leaves on its card: contexts, communicators, fragments; 3 to 5 GB measured in
slime after groups were torn down, 15 to 18 before."""
ENGINE_RESIDUE_BYTES = 2.5 * 2**30
"""What an engine that sleeps leaves: context, captured graphs, workspaces."""
BUCKET_BYTES = 2.0 * 2**30
"""A bucket of weights on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """Where things live."""

    colocated: bool
    """Whether trainer and engine have the same cards."""
    awake: bool
    """Whether the engine keeps its memory while the trainer works."""
    offload: frozenset[str]
    """What the trainer keeps on the host outside its own phases: weights, optimizer, reference."""
    trainer_bytes: float
    """Memory of a trainer's chip."""
    rollout_bytes: float
    """Memory of a rollout chip."""
    passes_forward: bool
    """Whether there are passes without gradients."""
    reference: bool
    """Whether a second, frozen copy of the weights is held."""
    critic: float
    """Critic's weights over the actor's; 0: none."""
    loaded_bytes: float = 0.0
    """Weights that every chip holds at once as they are loaded, beside its shard."""


def phase_memory(
    where: Residency, passes: TrainerPasses, rollout: RolloutTimes | None
) -> tuple[PhaseMemory, ...]:
    """Every phase that holds something of its own."""
    held = dict(passes.held)
    resident = {"weights": held["weights"], "states": held["states"]}
    reference = held["weights"] if where.reference and "reference" not in where.offload else 0.0
    resident["reference"] = reference
    resident["critic"] = where.critic * (held["weights"] + held["states"] + held["gradients"])
    asleep = ENGINE_RESIDUE_BYTES if rollout is not None and where.colocated else 0.0
    if rollout is not None and where.colocated and where.awake:
        asleep = rollout.memory.weight_bytes + max(rollout.memory.kv_bytes, 0.0)
    found = []
    if where.loaded_bytes:
        loading = {"weights": held["weights"], "gathered": where.loaded_bytes}
        found.append(_phase("load", "trainer", loading, where.trainer_bytes))
    if rollout is not None:
        engine = {
            "engine weights": rollout.memory.weight_bytes,
            "cache": max(rollout.memory.kv_bytes, 0.0),
            "engine": rollout.memory.step_bytes + rollout.memory.reserve_bytes,
        }
        beside = _left_behind(where, resident) if where.colocated else {}
        pool: Pool = "all" if where.colocated else "rollout"
        found.append(_phase("generate", pool, {**engine, **beside}, where.rollout_bytes))
        moving = {"engine weights": rollout.memory.weight_bytes, "bucket": BUCKET_BYTES}
        if where.colocated:
            moving |= {"weights": held["weights"], "residue": RESIDUE_BYTES}
        found.append(_phase("weight_sync", pool, moving, where.rollout_bytes))
    forward = {
        "weights": passes.forward.weight_bytes,
        "states": 0.0 if "optimizer" in where.offload else held["states"],
        "reference": reference,
        "critic": resident["critic"],
        "passing": passes.forward.passing_bytes,
        "framework": held["framework"],
        "allocator": held["allocator"],
        "engine beside": asleep,
    }
    if where.passes_forward:
        found.append(_phase("logprob", "trainer", forward, where.trainer_bytes))
    update = {
        **held,
        "reference": reference,
        "critic": resident["critic"],
        "engine beside": asleep,
    }
    found.append(_phase("update_actor", "trainer", update, where.trainer_bytes))
    return tuple(found)


def _left_behind(where: Residency, resident: Mapping[str, float]) -> dict[str, float]:
    """What the trainer has on the cards while the engine generates."""
    kept = {
        name: size
        for name, size in resident.items()
        if {"weights": "weights", "states": "optimizer", "critic": "optimizer"}.get(name, name)
        not in where.offload
    }
    offloaded = {"weights", "optimizer"} <= where.offload
    return {**kept, "residue": RESIDUE_BYTES if offloaded else CONTEXT_BYTES}


def _phase(name: str, pool: Pool, parts: Mapping[str, float], capacity: float) -> PhaseMemory:
    """A phase with its verdict."""
    fits = memory_verdict(held_of_parts(parts), capacity)
    told = {key: value for key, value in parts.items() if value > 0.0}
    return PhaseMemory(phase=name, pool=pool, parts=told, capacity_bytes=capacity, fits=fits)
