"""Answers as arguments of the tools that run them: an estimate's plan, a service's deployment."""

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote

import numpy as np

from foretell.api.answers import scenario_of
from foretell.catalog.engines import profile as profile_named
from foretell.catalog.model_names import find_model
from foretell.errors import BadInput, unknown
from foretell.interop.fleets import InstancePool, Role, fleet_script, nodes_of, service_file
from foretell.interop.launch import Launch, ToolArguments, Training
from foretell.interop.launchers import LAUNCHERS
from foretell.interop.releases import release_of
from foretell.interop.service_write import Serving, write_serving
from foretell.interop.training_write import job_name, write_training
from foretell.interop.whole_numbers import whole_number
from foretell.records import dataclass
from foretell.search.frameworks import refusals
from foretell.serving.boot_memory import default_fraction
from foretell.serving.formats import stored_formats
from foretell.serving.memory import fraction_alike, longest_context, memory_of
from foretell.serving.serve import ServeQuestion
from foretell.specs.deployment import Deployment
from foretell.specs.result import StepEstimate
from foretell.specs.system import System


def export_plan(
    result: StepEstimate, tool: str, launcher: str | None = None, launch: Launch | None = None
) -> ToolArguments:
    """The plan of an estimate as a training tool's arguments, of a release where one is named.

    With the `launch` that was read, its tokenizer and its flags without effect are kept.
    """
    release = release_of(tool, serving=False)
    if launcher is not None and launcher not in LAUNCHERS:
        raise BadInput([unknown("launcher", launcher, LAUNCHERS)])
    scenario = scenario_of(result)
    name = repository(scenario.model.id)
    own = launch if launch is not None and launch.tool == release.tool else None
    if own is not None and any("tokenizer_model" in row.key for row in own.values):
        name = quote(own.named) if "/" in own.named else name
    run = Training(
        model=scenario.model,
        plan=result.plan,
        software=scenario.software,
        gpus=result.gpus,
        global_batch=result.global_batch,
        seq_len=result.seq_len,
        version=release.version,
        node=node_size(scenario.system),
        chip=scenario.system.chip.id,
        repository=name if "/" in name else None,
        own=() if own is None else own.flags,
        launcher=launcher or "",
    )
    written = replace(write_training(release.tool, run), called=release.called)
    against = refusals(scenario, result.plan, release.called)
    refused = tuple(f"{release.called} refuses this plan: {text}" for text in against)
    return replace(written, notes=(*refused, *written.notes))


def node_size(system: System) -> int:
    """GPUs of one node: what shares a host, else the innermost tier."""
    return system.node_chips


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrigin:
    """The launch that a deployment comes from, whose names and flags are kept."""

    launch: Launch
    """What was read."""
    as_read: Deployment
    """The deployment that it says."""
    alone: bool = True
    """Whether one instance is written."""

    @property
    def port(self) -> int | None:
        """Where its clients expect it."""
        told = dict(self.launch.flags).get("--port", "")
        return whole_number(told)


def export_deployment(
    question: ServeQuestion,
    tool: str,
    batch: int | None = None,
    origin: LaunchOrigin | None = None,
) -> ToolArguments:
    """A deployment as an engine's command, its share of the memory by that engine's rule.

    An engine's own default is left to it; another engine's rule is turned into the share that leaves the
    cache as many bytes. With an `origin`, the model's name and the flags that do not change are its own.
    """
    release = release_of(tool, serving=True)
    tool = release.tool
    deployment, profile = question.deployment, question.profile
    notes: tuple[str, ...] = ()
    if profile.memory_rule != tool:
        there = profile_named(tool, question.system.chip)
        share = fraction_alike(question.model, question.system, deployment, (profile, there))
        own = default_fraction(question.model, question.system.chip, deployment, profile)
        told = float(own if deployment.memory_fraction is None else deployment.memory_fraction)
        notes = (
            f"{tool}'s memory fraction {share:g} leaves the cache as large as {profile.engine}'s {told:.3g}",
        )
        deployment = replace(deployment, memory_fraction=share)
    if tool == "vllm" and deployment.max_context is None:
        deployment = replace(deployment, max_context=started_for(question))
    serving = Serving(
        model=question.named or repository(question.model.id),
        deployment=deployment,
        batch=batch,
        narrowed=is_narrowed(question, deployment),
    )
    if origin is not None:
        serving = replace(
            serving,
            model=quote(origin.launch.named) if origin.launch.named else serving.model,
            alone=origin.alone,
        )
        if origin.launch.tool == tool:
            serving = replace(serving, launch=origin.launch, as_read=origin.as_read)
    written = write_serving(tool, serving)
    if "DRAFT_" in written.text:
        notes = (
            *notes,
            "put the repository of the drafter in the place of DRAFT_HEAD or DRAFT_MODEL",
        )
    return replace(written, notes=(*notes, *written.notes), called=release.called)


LEFT = 0.95
"""Share of the tokens that the cache holds for which an engine is started."""


def started_for(question: ServeQuestion) -> int | None:
    """Longest request that vLLM is started for where the model's own does not fit; None: it does."""
    q = question
    room = longest_context(
        memory_of(q.model, q.system, q.deployment, q.profile), q.model, q.deployment
    )
    if room >= q.model.max_positions:
        return None
    asked = int(np.max(np.asarray(q.traffic.isl) + np.asarray(q.traffic.osl)))
    return max(int(LEFT * room), min(asked, room))


def is_narrowed(question: ServeQuestion, deployment: Deployment) -> bool:
    """Whether weights are narrower than in the checkpoint that the engine loads."""
    stored = "fp8" in question.named.lower() or set(stored_formats(question.model)) - {
        "bf16",
        "fp16",
    }
    return deployment.weights.startswith("fp8") and not stored


def export_fleet(
    question: ServeQuestion,
    tool: str,
    pools: Sequence[tuple[Role, int, Deployment, int | None]],
    launcher: str | None = None,
    origin: LaunchOrigin | None = None,
) -> ToolArguments:
    """A whole service as a script: all instances, both halves of a split one, the router in front.

    A pool is what its instances do, how many there are, their deployment and their sequences at once.
    """
    if launcher is not None and launcher not in SERVICE_LAUNCHERS:
        raise BadInput([unknown("launcher", launcher, SERVICE_LAUNCHERS)])
    several = sum(many for _, many, _, _ in pools) > 1
    origin = None if origin is None else replace(origin, alone=not several)
    made = [
        export_deployment(replace(question, deployment=deployment), tool, batch, origin)
        for _, _, deployment, batch in pools
    ]
    parts = [
        InstancePool(role=role, count=many, command=each.text, gpus=deployment.gpus)
        for (role, many, deployment, _), each in zip(pools, made, strict=True)
    ]
    node = node_size(question.system)
    port = None if origin is None else origin.port
    text, more = fleet_script(made[0].tool, parts, node, port)
    if (
        origin is not None and not several
    ):  # how its nodes find each other is the launch's own affair
        text = parts[0].command
    if launcher:
        text = service_file(
            text,
            launcher,
            name=job_name(question.model.id),
            nodes=nodes_of(parts, node),
            node_gpus=min(node, sum(part.gpus * part.count for part in parts)),
            chip=question.system.chip.id,
        )
    notes = dict.fromkeys([*(text for each in made for text in each.notes), *more])
    return replace(made[0], text=text, notes=tuple(notes))


SERVICE_LAUNCHERS = ("slurm", "kubernetes", "skypilot")
"""How a service can be started, beside its script."""


def repository(model_id: str) -> str:
    """The repository that an engine would load, where the catalogue knows one; else the id itself."""
    try:
        entry = find_model(model_id)
    except BadInput:
        entry = None
    if entry is None:
        return model_id
    return next((name for name in entry.aliases if name.count("/") == 1), model_id)
