"""Answers as arguments of the tools that run them: an estimate's plan, a service's deployment."""

from dataclasses import replace

from foretell.api.answers import scenario_of
from foretell.catalog.models import find_model
from foretell.errors import BadInput
from foretell.interop.launch import SERVING, TRAINING, Tool, ToolArguments, Training
from foretell.interop.serving_words import Serving
from foretell.interop.tools import no_tool, write_serving, write_training
from foretell.serving.memory import fraction_for, memory_of
from foretell.serving.serve import ServeQuestion
from foretell.specs.result import StepEstimate


def export_plan(result: StepEstimate, tool: str) -> ToolArguments:
    """The plan of an estimate as a training tool's arguments."""
    if tool not in TRAINING:
        raise no_tool(tool, TRAINING)
    scenario = scenario_of(result)
    run = Training(
        model=scenario.model,
        plan=result.plan,
        software=scenario.software,
        gpus=result.gpus,
        global_batch=result.global_batch,
        seq_len=result.seq_len,
    )
    return write_training(tool, run)


def export_deployment(
    question: ServeQuestion, tool: str, batch: int | None = None
) -> ToolArguments:
    """A deployment as an engine's command, its share of the memory by that engine's rule.

    An engine's own default is left to it; another engine's rule is turned into the share that leaves the
    cache as many bytes.
    """
    if tool not in SERVING:
        raise no_tool(tool, SERVING)
    deployment, profile = question.deployment, question.profile
    notes: tuple[str, ...] = ()
    if profile.memory_rule != tool:
        memory = memory_of(question.model, question.system, deployment, profile)
        share = round(fraction_for(_rule(tool), memory), 4)
        told = (
            profile.memory_fraction
            if deployment.memory_fraction is None
            else deployment.memory_fraction
        )
        notes = (
            f"{tool}'s memory fraction {share:g} leaves the cache as large as {profile.engine}'s {told:g}",
        )
        deployment = replace(deployment, memory_fraction=share)
    name = repository(question.model.id)
    written = write_serving(tool, Serving(model=name, deployment=deployment, batch=batch))
    return replace(written, notes=(*notes, *written.notes))


def _rule(tool: Tool) -> str:
    return tool


def repository(model_id: str) -> str:
    """The repository that an engine would load, where the catalogue knows one; else the id itself."""
    try:
        entry = find_model(model_id)
    except BadInput:
        entry = None
    if entry is None:
        return model_id
    return next((name for name in entry.aliases if name.count("/") == 1), model_id)
