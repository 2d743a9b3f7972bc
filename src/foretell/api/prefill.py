"""Prefill apart from decode: `--prefill-gpus` and `--prefill-plan` as a pool of instances."""

import re
from dataclasses import replace

from foretell.catalog.engines import profile as profile_for
from foretell.errors import BadInput, Problem, wrong
from foretell.inputs.overrides import parse_settings
from foretell.inputs.question import chips_given, collect
from foretell.inputs.system import system_of
from foretell.serving.disaggregation import PrefillPool
from foretell.serving.engine_options import with_options
from foretell.serving.formats import mixture_of
from foretell.serving.layouts import alike
from foretell.serving.question import ServeQuestion
from foretell.serving.sizing_records import PrefillPlace
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import deployment_problems, parse_deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.questions.sizing import SizeQuestion
from foretell.specs.scenario import Scenario
from foretell.specs.system import System


def decode_gpus(asked: ServiceQuestion, scenario: Scenario, problems: list[Problem]) -> int:
    """Chips that are left for decode: all but a bare number of prefill chips."""
    every = scenario.job.gpus
    count, named = chips_given(asked.prefill_gpus, problems, "prefill_gpus")
    if count is None or named is not None:
        return every
    if count >= every:
        problems.append(
            wrong(
                "prefill_gpus",
                count,
                f"leaves none of {every} chips to decode",
                f"less than {every}, or a named chip such as {count}xH200, which is added",
            )
        )
        return every
    return every - count


def prefill_pool(
    asked: ServiceQuestion, scenario: Scenario, found: tuple[EngineProfile, Deployment], engine: str
) -> tuple[PrefillPool | None, list[str]]:
    """The pool, and what was assumed of it; None where prompts and answers have the same instances."""
    if asked.prefill_gpus is None and asked.prefill_plan is None:
        return None, []
    problems: list[Problem] = []
    if asked.prefill_gpus is None:
        problems.append(
            wrong(
                "prefill_gpus",
                None,
                "missing beside --prefill-plan",
                "chips of the prefill instances, such as 4 or 8xB200",
            )
        )
        raise BadInput(problems)
    profile, decode = found
    count, named = chips_given(asked.prefill_gpus, problems, "prefill_gpus")
    system = _chips_of(named, scenario.system, problems)
    if count is None or system is None:
        raise BadInput(problems)
    layout, said = prefill_layout(asked.prefill_plan, decode, count, problems)
    if problems:
        raise BadInput(problems)
    if named is not None:
        own = profile_for(engine, system.chip, mixture=mixture_of(scenario.model))
        profile = replace(own, encoders=profile.encoders)
        said.append(f"{count} x {system.chip.id} do prefill besides the {scenario.job.gpus} chips")
    given = asked.prefill_plan is not None
    return PrefillPool(
        system=system, deployment=layout, profile=profile, gpus=count, given=given
    ), said


def prefill_layout(
    plan: str | None, decode: Deployment, gpus: int, problems: list[Problem]
) -> tuple[Deployment, list[str]]:
    """Layout of a prefill instance: as given, as the decode instances, or one over all chips of the pool.

    Formats are those of the decode instances: both hold the same checkpoint and pass one cache on.
    """
    base = replace(
        decode, draft_tokens=0, accepted=0.0, max_batch=None, max_tokens=None, memory_fraction=None,
        wait_steps=None,
    )  # fmt: skip
    said: list[str] = []
    if plan is not None:
        own = replace(base, tp=1, pp=1, dp=1, ep=1, cp=1)
        layout = collect(lambda: parse_deployment(str(plan), own), problems) or base
    else:
        layout = alike(base, gpus)
        how = "are laid out as those that decode" if gpus % base.gpus == 0 else "are one"
        said.append(f"prefill instances {how}: no --prefill-plan was given")
    problems += [
        replace(problem, path=problem.path.replace("plan.", "prefill_plan.", 1))
        for problem in deployment_problems(layout, gpus)
    ]
    return layout, said


def prefill_place(asked: SizeQuestion, q: ServeQuestion) -> PrefillPlace | None:
    """Where a sized service must have its prefill instances; None: wherever it is cheapest.

    The number of `--prefill-gpus` is the most that one of them may have, as that of `--gpus` is.
    """
    if asked.prefill_gpus is None and asked.prefill_plan is None:
        return None
    problems: list[Problem] = []
    given = q.gpus if asked.prefill_gpus is None else asked.prefill_gpus
    if isinstance(given, str) and re.fullmatch(r"[A-Za-z][^x]*", given.strip()):
        given = f"{q.gpus}x{given.strip()}"
    count, named = chips_given(given, problems, "prefill_gpus")
    system = _chips_of(named, q.system, problems)
    words = asked.prefill_plan or ""
    collect(lambda: parse_deployment(words, q.deployment), problems)
    if problems or count is None or system is None:
        raise BadInput(problems)
    engine = asked.engine or q.profile.engine
    profile = q.profile
    if named is not None:
        own = profile_for(engine, system.chip, mixture=mixture_of(q.model))
        profile = replace(own, encoders=profile.encoders)
    return PrefillPlace(
        system=system,
        profile=with_options(profile, q.deployment),
        most_gpus=count,
        degrees=degrees_of(words),
        chip=system.chip.id if named is not None else "",
    )


def _chips_of(named: str | None, own: System, problems: list[Problem]) -> System | None:
    """The system that `--prefill-gpus` names, or the service's own; None, and problems, where it is none."""
    if named is None:
        return own
    return collect(lambda: system_of(named, parse_settings(()), {}), problems)


def degrees_of(plan: str) -> tuple[tuple[str, int], ...]:
    """The degrees that a plan's words name."""
    words = (re.fullmatch(r"(tp|pp|dp|ep|cp)([0-9]+)", word) for word in plan.split())
    return tuple((word[1], int(word[2])) for word in words if word)
