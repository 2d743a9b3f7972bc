"""The software of a question: the record that a plan's `framework=` names, as `--set software.` has it."""

from collections.abc import Sequence
from dataclasses import replace

from foretell.catalog.software import form_word, shipped_release, software
from foretell.errors import BadInput, Problem
from foretell.inputs.overrides import Setting, apply_settings
from foretell.specs.check import problems_of
from foretell.specs.plan import Plan, parse_plan
from foretell.specs.plan_words import GENERIC, read_words
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.specs.system import System

ROOT = "software"
"""How the path of a setting begins that changes the record."""
WORD, FORM = "plan.framework", "plan.compile"
"""The settings that name the software, and its form."""


def framework_word(plan: str | Plan | None, settings: Sequence[Setting] = ()) -> str:
    """The word for the software of a plan and its settings, in the form that `compile=` asks for; generic
    where neither has one."""
    if isinstance(plan, Plan):
        given: dict[str, object] = {"framework": plan.framework, "compile": plan.compile}
    else:
        given = read_words(plan or "")[0]
    by_hand = {s.path: s.text.lower() for s in settings if s.path in (WORD, FORM)}
    word = by_hand.get(WORD, str(given.get("framework", GENERIC)))
    return form_word(word, by_hand.get(FORM, str(given.get("compile", "auto"))))


def software_of(
    word: str,
    settings: Sequence[Setting] = (),
    seen: dict[str, object] | None = None,
    left_out: Sequence[str] = (),
) -> Software:
    """The record of a word with the settings of `software.` applied; what was set is put into `seen`, and
    `left_out` are sources of published runs that it must not rest on."""
    found = software(word, left_out)
    if not any(s.root == ROOT for s in settings):
        return found
    changed = apply_settings(found, settings, ROOT, seen)
    problems = problems_of(changed, ROOT)
    if problems:
        raise BadInput(problems)
    return changed


def with_software(
    scenario: Scenario, plan: str | Plan | None, settings: Sequence[Setting] = ()
) -> Scenario:
    """The scenario with the software of a plan: for plans of several frameworks, each gets its own."""
    return put_software(scenario, software_of(framework_word(plan, settings), settings))


def put_software(scenario: Scenario, software: Software) -> Scenario:
    """The scenario with this software, and the release of NCCL that it came with."""
    system, before = scenario.system, library_of(scenario.software)
    if system.nccl and system.nccl == before:
        system = replace(system, nccl="")
    return replace(scenario, software=software, system=with_library(system, software))


def with_library(system: System, software: Software) -> System:
    """The system with the release of NCCL that the software came with, unless it has one."""
    found = library_of(software)
    return system if system.nccl == found or system.nccl else replace(system, nccl=found)


def library_of(software: Software) -> str:
    """The release of NCCL that a framework of that date came with; empty: today's, as where none is named."""
    return "" if software.family == GENERIC else shipped_release(software.released)


def checked_plan(text: str) -> Plan:
    """A plan's text parsed, its software known to the catalogue; all that is wrong with it at once."""
    problems: list[Problem] = []
    plan = None
    try:
        plan = parse_plan(text)
    except BadInput as error:
        problems += error.problems
    if isinstance(text, str):
        try:
            software(framework_word(text))
        except BadInput as error:
            problems += error.problems
    if problems or plan is None:
        raise BadInput(problems)
    return plan
