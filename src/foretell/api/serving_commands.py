"""Commands that start an answered deployment, and fractions of memory between engines."""

from dataclasses import replace
from pathlib import Path

from foretell.api.serving_questions import question_of
from foretell.interop.fleets import Role
from foretell.interop.launch import Launch, ToolArguments
from foretell.serving.memory import fraction_alike
from foretell.serving.serve import ServeQuestion
from foretell.specs.deployment import Deployment
from foretell.specs.model import Model
from foretell.specs.questions.flags import part
from foretell.specs.questions.serving import LoadQuestion, ServiceQuestion
from foretell.specs.service import ServiceEstimate
from foretell.specs.system import System


def launch_command(
    tool: str,
    found: ServiceEstimate,
    asked: LoadQuestion,
    launcher: str | None = None,
    launch: Launch | None = None,
) -> ToolArguments:
    """The command that starts an answered deployment, or the script of all its instances and their router.

    Where prompts have chips of their own (`prefill_plan`), both halves are written. With the `launch` that
    was read, the model's name and the flags that do not change are its own.
    """
    from foretell.api.exports import LaunchOrigin, export_fleet  # it reads and writes every tool

    again = part(ServiceQuestion, asked)
    question = _asked_again(again, found.plan)
    origin = None
    if launch is not None:
        if (
            question.prefill is not None
        ):  # two halves with flags of their own: the name alone is kept
            launch = replace(launch, flags=())
        as_read = _asked_again(again, launch.plan).deployment
        origin = LaunchOrigin(launch=launch, as_read=as_read)
    answers, pool = question.deployment, question.prefill
    if pool is not None:
        pools: list[tuple[Role, int, Deployment, int | None]] = [
            ("prefill", pool.replicas, pool.deployment, None),
            ("decode", question.replicas, answers, None),
        ]
        return export_fleet(question, tool, pools, launcher, origin)
    pools = [("both", found.replicas, answers, None)]
    return export_fleet(question, tool, pools, launcher, origin)


def instance_command(tool: str, plan: str, asked: LoadQuestion) -> ToolArguments:
    """The command of one instance of a deployment, as the engine's writer has it."""
    from foretell.api.exports import export_deployment

    question = _asked_again(part(ServiceQuestion, asked), plan)
    return export_deployment(question, tool)


def fraction_between(
    model: str | Path | Model,
    system: str | Path | System | None,
    gpus: int | str | None,
    plan: str,
    engines: tuple[str, str],
) -> float:
    """The memory fraction by a second engine's rule that leaves the cache as large as a first one's."""
    question = ServiceQuestion(model, system=system, gpus=gpus)
    first, second = (_asked_again(replace(question, engine=name), plan) for name in engines)
    profiles = (first.profile, second.profile)
    return fraction_alike(first.model, first.system, first.deployment, profiles)


def _asked_again(question: ServiceQuestion, plan: str) -> ServeQuestion:
    """The question of a deployment, whatever the load."""
    names = ("system", "gpus", "engine", "set", "prefill_gpus", "prefill_plan")
    place = {name: getattr(question, name) for name in names}
    return question_of(ServiceQuestion(question.model, **place, plan=plan, isl=1.0, osl=1.0))[0]
