"""Placements, ranked: colocated, two pools in turn, two pools at once, with every ratio that comes out even.

Rollout and trainer do not depend on each other once the chips are divided: the trainer's phases are computed
once for each of its sizes, the generation once for each of its own, and both are joined on the chips. Memory
decides first: a placement with a phase that does not fit comes after all that fit.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.errors import Infeasible, wrong
from foretell.posttraining.passes import packed_batch
from foretell.posttraining.rollout import rollout_times
from foretell.posttraining.step import StepResult, StepSetup, step_of
from foretell.posttraining.workload import TrajectoryWorkload
from foretell.records import dataclass
from foretell.schedules.rules import all_broken
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.specs.plan import Plan, batch_of
from foretell.specs.post_training import SyncName
from foretell.specs.scenario import Scenario
from foretell.training.step import evaluate

WHOLE_LENGTH = 128
"""Tokens that every degree of the candidates divides."""
RATIOS = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8)
"""Shares of the chips that train, of placements with two pools."""
BESIDE_ENGINE = 0.4
"""Share of a card that Megatron plans of published loops fill: they leave the rolling-out engine its share,
and cut the model over four cards or more where one would hold it."""
FILLED_MOST = 0.85
"""Share of a card that plans may fill at most."""
FILLED = (1.0, 2.0, 4.0, 8.0)
"""Parts of the usual tokens of a micro-batch that are tried where a plan is chosen for fine-tuning."""
NOTICED = 2.0
"""Times as long as the fastest that a generation may take before a framework's layout is changed."""
CLOSE = 0.02
"""Placements whose steps are nearer than this are asked to be alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlacement:
    """One placement with its step."""

    result: StepResult
    """The step."""
    fits: bool
    """Whether every phase fits."""

    @property
    def label(self) -> str:
        """In words."""
        setup = self.result.setup
        if setup.placement == "colocated":
            return f"colocated on {setup.gpus}"
        return f"{setup.placement} {setup.trainer_gpus} trainer + {setup.rollout_gpus} rollout"

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        setup = self.result.setup
        return {
            "placement": setup.placement,
            "trainer_gpus": setup.trainer_gpus,
            "rollout_gpus": setup.rollout_gpus,
            "step_s": self.result.step_s,
            "fits": self.fits,
            "idle_share": self.result.idle_share,
            "waits": self.result.waits,
            "plan": setup.plan_words,
        }


def candidate_plans(
    scenario: Scenario, base: Plan, trainer: str, work: TrajectoryWorkload, budget: float
) -> tuple[Plan, bool]:
    """The fastest of a few plans of a trainer that fit, the smallest where none does; and whether it does."""
    gpus = scenario.job.gpus
    found = trainer_candidates(scenario.model, base, trainer, gpus, work_generates=work.generated)
    have = float(scenario.system.chip.memory_bytes)
    room = FILLED_MOST * have
    step, peak = _alike(scenario, found, work, budget)
    beside = BESIDE_ENGINE * have if work.generated and trainer == "megatron" else room
    over = (peak > room).astype(float) + (peak > beside)
    order: list[int] = np.lexsort((np.where(peak <= room, step, peak), over)).tolist()
    for row in order:
        batch = packed_batch(scenario, found[row], work, 1.0 / work.updates, budget, balanced=True)
        if not all_broken(batch.scenario, batch.plan, batch_of([batch.plan])):
            return found[row], bool(peak[row] <= room)
    message = f"no {trainer} plan divides {gpus} chips and the model's heads and layers"
    raise Infeasible([wrong("plan", None, message, "another number of chips")])


def _alike(
    scenario: Scenario, plans: list[Plan], work: TrajectoryWorkload, budget: float
) -> tuple[Array, Array]:
    """Seconds and bytes of an update by plans of one base, over sequences that all of them can cut: enough to
    put them in order, in one evaluation for all."""
    length = math.ceil(work.passed_length / WHOLE_LENGTH) * WHOLE_LENGTH
    rows = max(round(budget / length), 1) if budget else plans[0].micro_batch
    sequences = max(round(work.passed_tokens / work.updates / length), 1)
    job = replace(scenario.job, global_batch=sequences, seq_len=length)
    batch = batch_of([replace(plan, micro_batch=rows) for plan in plans])
    return evaluate(replace(scenario, job=job), batch)


def trainer_candidates(
    model: Model, base: Plan, trainer: str, gpus: int, work_generates: bool = True
) -> list[Plan]:
    """A few plans of a trainer on so many chips: degrees, and whether layers are computed again."""
    experts = max(
        (layer.ffn.experts for layer in model.stack.layers if isinstance(layer.ffn, Experts)),
        default=0,
    )
    found = []
    if trainer in ("fsdp", "deepspeed"):
        # Loops compute layers again unless they are told not to.
        for recompute in ("full",) if work_generates else ("none", "full"):
            plan = replace(base, dp=gpus, tp=1, pp=1, cp=1, sp=False, zero=3, recompute=recompute)
            found.append(plan)
        return found
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8, 16):
            if gpus % (tp * pp) or tp > gpus:
                continue
            rest = gpus // (tp * pp)
            degrees = [1]
            if experts:
                degrees = [
                    e for e in (1, 4, 8, 16, 32) if experts % e == 0 and (rest * tp) % e == 0
                ]
            for ep in degrees:
                found += [
                    replace(
                        base, dp=rest, tp=tp, pp=pp, cp=1, ep=ep, etp=1, sp=tp > 1,
                        zero=1, vpp=1, schedule="1f1b", recompute=recompute,
                    )
                    for recompute in ("selective", "full")
                ]  # fmt: skip
    return found


def best_micro_batch(setup: StepSetup) -> StepSetup:
    """The fastest way to fill micro-batches of fine-tuning: what is computed again at the setup's tokens is
    often kept at fewer, and fits. Only what clearly fits takes the place of a setup that fits."""
    longest = setup.work.padded_to or setup.work.prompt_tokens + setup.work.answers.cap
    best = step_of(setup)
    for budget in (setup.budget / share for share in FILLED):
        for recompute in sorted({"none", setup.plan.recompute}):
            if budget < min(longest, setup.budget):
                continue
            plan = replace(setup.plan, recompute=recompute)
            tried = step_of(replace(setup, plan=plan, budget=budget))
            clear = all(one.fits == "yes" for one in tried.memory)
            fails = any(one.fits == "no" for one in best.memory)
            if clear and (fails or tried.step_s < best.step_s):
                best = tried
    return best.setup


def usual_layout(setup: StepSetup) -> Deployment:
    """The framework's usual layout of the engine where it fits the chips and nobody would notice that another
    is faster; else the fastest that fits."""
    best_s, best = fastest_layout(setup)
    if setup.loop.rollout_tp:
        try:
            usual_s, usual = fastest_layout(setup, (setup.loop.rollout_tp,))
        except Infeasible:
            return best
        return usual if usual_s < NOTICED * best_s else best
    return best


def fastest_layout(
    setup: StepSetup, degrees: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
) -> tuple[float, Deployment]:
    """The fastest layout of the engine that fits its chips, and the seconds of its generation."""
    found: list[tuple[float, Deployment]] = []
    problem: Infeasible | None = None
    many = setup.rollout_gpus
    experts = any(isinstance(layer.ffn, Experts) for layer in setup.scenario.model.stack.layers)
    for tp in degrees:
        if tp > many or many % tp:
            continue
        layout = replace(setup.deployment, tp=tp, pp=1, dp=1, cp=1, ep=tp if experts else 1)
        try:
            times = rollout_times(
                setup.scenario.model, setup.rollout_system, many, layout, setup.profile, setup.work
            )
        except Infeasible as error:
            problem = error
            continue
        found.append((times.seconds, layout))
        if len(found) > 1 and found[-1][0] > found[-2][0]:
            break
    if not found:
        raise problem or Infeasible([wrong("rollout_plan", None, "no layout fits")])
    return min(found, key=lambda one: one[0])


def rank_placements(setup: StepSetup, options: Mapping[str, Any]) -> tuple[RankedPlacement, ...]:
    """Every placement of the chips, those that fit first, then by the time of a step."""
    total = max(setup.trainer_gpus, setup.rollout_gpus)
    found = _apart(setup, total, options)
    if options.get("placement") == "best" and not options.get("pools_given"):
        one = _placed(setup, "colocated", total, total, options, {})
        found = [*([] if one is None else [one]), *found]
    if not found:
        message = "no placement of these chips holds the model in every phase"
        raise Infeasible([wrong("placement", None, message, "more chips")])
    return tuple(sorted(found, key=lambda one: (not one.fits, one.result.step_s)))


def _apart(setup: StepSetup, total: int, options: Mapping[str, Any]) -> list[RankedPlacement]:
    """Two pools, in turn and at once, with every ratio."""
    found = []
    sizes = sorted({max(round(total * share), 1) for share in RATIOS} - {0, total})
    if options.get("pools_given"):
        sizes = [setup.trainer_gpus]
        total = setup.trainer_gpus + setup.rollout_gpus
    known: dict[int, Plan] = {}
    for trainer in sizes:
        uneven = total % 8 == 0 and trainer % max(total // 8, 1)
        if uneven and not options.get("pools_given"):
            continue
        kinds = (
            ("split", "async") if options.get("placement") == "best" else (options["placement"],)
        )
        for name in kinds:
            one = _placed(setup, name, trainer, total - trainer, options, known)
            found += [] if one is None else [one]
    return found


def _placed(
    setup: StepSetup,
    name: str,
    trainer: int,
    rollout: int,
    options: Mapping[str, Any],
    known: dict[int, Plan],
) -> RankedPlacement | None:
    """One placement; None where a pool cannot hold the model. `known` has the trainer's plans so far."""
    loop = setup.loop
    usual: SyncName = "ipc" if name == "colocated" else "broadcast"
    fraction = loop.memory_fraction if name == "colocated" else loop.split_memory_fraction
    deployment = setup.deployment
    if not options.get("fraction_given"):
        deployment = replace(deployment, memory_fraction=fraction)
    scenario = replace(setup.scenario, job=replace(setup.scenario.job, gpus=trainer))
    try:
        plan = known.get(trainer, setup.plan)
        if plan.gpus != trainer:
            if options.get("plan_given") and trainer % (plan.tp * plan.pp * plan.cp) == 0:
                plan = replace(plan, dp=trainer // (plan.tp * plan.pp * plan.cp))
            else:
                plan = _plan_on(scenario, plan, setup, trainer)
        known[trainer] = plan
        moved = replace(
            setup,
            placement=name,  # type: ignore[arg-type]
            scenario=scenario,
            plan=plan,
            rollout_gpus=rollout,
            deployment=deployment,
            sync=setup.sync if options.get("sync_given") else usual,
            offload=setup.offload if name == "colocated" else frozenset(),
        )
        if rollout % moved.deployment.gpus or not options.get("layout_given"):
            best = options.get("placement") == "best"
            layout = fastest_layout(moved)[1] if best else usual_layout(moved)
            moved = replace(moved, deployment=layout)
        result = step_of(moved)
    except Infeasible:
        return None
    return RankedPlacement(result=result, fits=all(one.fits != "no" for one in result.memory))


def _plan_on(scenario: Scenario, plan: Plan, setup: StepSetup, gpus: int) -> Plan:
    """The trainer's plan on another number of chips."""
    if setup.trainer in ("fsdp", "deepspeed") and plan.tp == plan.pp == plan.cp == 1:
        return replace(plan, dp=gpus)
    return candidate_plans(scenario, plan, setup.trainer, setup.work, setup.budget)[0]


def best_setup(found: tuple[RankedPlacement, ...]) -> tuple[StepResult, tuple[str, ...]]:
    """The first placement, and why it is first."""
    best = found[0]
    reasons = [f"{best.label}: {best.result.step_s:.1f} s a step"]
    if not best.fits:
        reasons.append("no placement fits in every phase; this one is the fastest")
    for name in ("colocated", "split", "async"):
        others = [one for one in found if one.result.setup.placement == name and one is not best]
        if not others:
            continue
        if best.result.setup.placement == name:
            reasons += _ratio_reason(best, others[0])
        else:
            reasons.append(_compared(best, others[0], name))
    return best.result, tuple(reasons)


def _ratio_reason(best: RankedPlacement, other: RankedPlacement) -> list[str]:
    """Why the next ratio of the same kind is behind the best one; none where it does not fit either."""
    if best.fits and not other.fits:
        return []
    slower = other.result.step_s / best.result.step_s - 1.0
    behind = "as fast" if slower < CLOSE else f"{slower:.0%} slower"
    waits = f": the {other.result.waits} pool waits" if other.result.waits else ""
    return [f"the next ratio, {other.label}, is {behind} ({other.result.step_s:.1f} s){waits}"]


def _compared(best: RankedPlacement, other: RankedPlacement, name: str) -> str:
    """Why a kind of placement is behind the best one."""
    slower = other.result.step_s / best.result.step_s - 1.0
    if best.fits and not other.fits:
        worst = max(other.result.memory, key=lambda one: one.total_bytes / one.capacity_bytes)
        need = worst.total_bytes / worst.capacity_bytes
        return f"{name} does not fit: {worst.phase} needs {need:.0%} of a chip"
    if abs(slower) < CLOSE:
        return f"{name} ({other.label}) is as fast: {other.result.step_s:.1f} s"
    phases = {phase.name: phase.seconds for phase in other.result.phases}
    if name == "async":
        why = (
            f"{other.result.waits} waits: generation {phases.get('generate', 0.0):.0f} s and training "
            f"{phases.get('update_actor', 0.0):.0f} s do not balance at this ratio, and fewer chips train"
        )
    elif name == "split":
        why = "each pool is idle while the other works"
    else:
        tail = other.result.rollout.tail_s if other.result.rollout else 0.0
        why = f"phases follow each other, and all chips wait for a tail of {tail:.0f} s"
    return f"{name} is {slower:.0%} slower ({other.result.step_s:.1f} s): {why}"
