"""From names, files and flags to a scenario: defaults are filled in and stated, problems collected."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from foretell.catalog import model as catalog_model
from foretell.catalog import model_table
from foretell.catalog.attention import widest_heads
from foretell.catalog.models import is_catalogue_model
from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.inputs.job import job_of, length_problems, whole_problems, with_inputs
from foretell.inputs.overrides import Setting, apply_settings, apply_to_table, parse_settings
from foretell.inputs.plan_defaults import (
    apply_rules,
    complete_plan,
    doubts_of,
    fill_micro_batch,
    sentences,
)
from foretell.inputs.software import framework_word, put_software, software_of, with_library
from foretell.inputs.system import check_record, of_system, system_of
from foretell.specs.check import field_types, problems_of
from foretell.specs.cost import Prices
from foretell.specs.model import Model
from foretell.specs.plan import Plan, named_fields, parse_plan, plan_problems
from foretell.specs.plan_words import GENERIC, PrecisionName
from foretell.specs.questions.common import Settings as Settings
from foretell.specs.questions.flags import asks, fields_of
from foretell.specs.questions.training import StepQuestion
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.trace.decoder import decoder_of
from foretell.trace.graph import is_traced_file, load_traced

_CHIPS = re.compile(r"([0-9]{1,12})(?:\s*[xX\u00d7]\s*(\S.*))?")
"""`512`, and `512xH100`, which names the system too."""

_TURNED = re.compile(r"([A-Za-z][\w.-]*?)\s*[:xX*\u00d7]\s*([0-9]{1,12})")
"""`H100:8` and the like, which is read as 8xH100."""
NUMBERS = ("global_batch", "seq_len", "target_len")
"""Fields of a job that are given as whole numbers."""
T = TypeVar("T")


def scenario_for(question: StepQuestion) -> Scenario:
    """A scenario; every problem of every argument, the plan's words included, is reported at once."""
    gpus, target_len, system = question.gpus, question.target_len, question.system
    problems: list[Problem] = []
    chosen = collect(lambda: parse_settings(settings_of(question)), problems) or ()
    count, named = chips_given(gpus, problems)
    if system is not None and named is not None and system != named:
        problems.append(wrong("gpus", gpus, f"names another system than system, {system}"))
    system = system if system is not None else named
    if system is None:
        problems.append(
            wrong("system", None, "missing", "a system, a chip, a TOML file, or --gpus 512xH100")
        )
    seen: dict[str, object] = {}
    the_model = collect(lambda: _model(question.model, chosen, seen), problems)
    the_system = (
        None if system is None else collect(lambda: system_of(system, chosen, seen), problems)
    )
    collect(lambda: _prices(chosen, seen), problems)
    collect(lambda: apply_settings(_plan(question.plan), chosen, "plan"), problems)
    word = framework_word(question.plan, chosen)
    software = collect(lambda: software_of(word, chosen, seen), problems)
    numbers = {name: getattr(question, name) for name in NUMBERS}
    shortened = [text for name in LENGTHS if (text := _shortened(name, numbers))]
    for name, value in numbers.items():
        problems += whole_problems(name, value)
    if problems or the_model is None or the_system is None or software is None:
        raise BadInput(problems)
    job, said = job_of(the_model, the_system, count, numbers)
    said += shortened
    job = apply_settings(job, chosen, "job", seen)
    late = [
        p for name in ("gpus", *numbers) for p in whole_problems(f"job.{name}", getattr(job, name))
    ]
    if the_model.kind != "encoder-decoder" and (target_len or job.target_len) is not None:
        message = f"{the_model.id} is no encoder-decoder: it has no target"
        late.append(wrong("target_len", target_len or job.target_len, message))
    late += length_problems(the_model, job, said)
    read = collect(partial(with_inputs, the_model, job, question, said), late) or the_model
    if late:
        raise BadInput(late)
    seen |= {setting.path: setting.text for setting in chosen if setting.root == "plan"}
    return Scenario(
        model=read,
        system=with_library(the_system, software),
        job=job,
        software=software,
        assumptions=(*the_model.assumptions, *of_system(the_system, chosen), *said),
        overrides=seen,
    )


LENGTHS = ("seq_len", "target_len")
"""Numbers of tokens of a sequence, which may be shortened: 8k is 8 x 1024."""
_THOUSANDS = re.compile(r"([0-9]{1,5})\s?[kK]")


def _shortened(name: str, numbers: dict[str, Any]) -> str:
    """Put the number of a length such as 8k in its place; the sentence that says so, empty elsewhere."""
    match = _THOUSANDS.fullmatch(numbers[name].strip()) if isinstance(numbers[name], str) else None
    if match is None:
        return ""
    numbers[name] = int(match[1]) * 1024
    return f"{name} {match[0]}: {match[1]} x 1024 = {numbers[name]} tokens, as names of models count them"


ask = asks(StepQuestion)(scenario_for)
"""The scenario of a step, from the fields of its question."""


def plan_of(
    scenario: Scenario,
    text: str | Plan | None,
    settings: Sequence[str] = (),
    *,
    searched: bool = False,
    left_out: Sequence[str] = (),
) -> tuple[Scenario, Plan]:
    """A plan for the scenario, and the scenario with the plan's software.

    Parsed, with the chip's precision, the settings applied, and what both leave open as the software has it,
    which the scenario's assumptions then say. A `Plan` leaves nothing open. `searched`: what a search tries
    by itself stays open. `left_out`: sources of published runs that the software must not rest on.
    """
    chosen = parse_settings(settings)
    if isinstance(text, Plan):
        plan = text
    else:
        plan = parse_plan(text or "", scenario.job.gpus, default_precision(scenario.system))
    by_words, plan = plan, apply_settings(plan, chosen, "plan")
    # What words can give is checked word by word.
    problems = () if plan is by_words and text is not plan else _wrong_in(plan)
    if problems:
        raise BadInput(problems)
    software = software_of(framework_word(plan), chosen, left_out=left_out)
    if software is not scenario.software:
        scenario = put_software(scenario, software)
    by_hand = any(s.root == "software" for s in chosen)
    if isinstance(text, Plan) or (plan.framework == GENERIC and not by_hand):
        return scenario, plan
    named = named_by(text or "", settings)
    architecture = scenario.system.chip.architecture
    heads = widest_heads(scenario.model)
    plan, why = apply_rules(scenario, plan, named, searched=searched)
    own, named = named, {*named, *why}
    plan = complete_plan(plan, named, software, architecture, searched=searched, heads=heads)
    plan = plan if searched else fill_micro_batch(scenario, plan, named, software)
    if plan.framework == GENERIC:
        return scenario, plan
    said = sentences(plan, own, software, architecture, why, searched=searched, heads=heads)
    doubts = doubts_of(plan, why)
    if doubts:
        words = " ".join(f"{name}={value}" for name, value in doubts.items())
        said += (f"not all recipes of {plan.framework} do so: the interval allows for {words}",)
    if plan.micro_batch > 1 and "micro_batch" not in named:
        tokens = f"{software.micro_tokens:,} tokens"
        said += (f"mbs{plan.micro_batch}: recipes of {software.name} fill up to {tokens}",)
    return replace(scenario, assumptions=(*scenario.assumptions, *said), doubts=doubts), plan


LAYOUT = ("tp", "tp2", "pp", "vpp", "dp", "cp", "ep", "etp", "zero")
"""Fields of a plan that say how a model is cut and its states are shared."""


def is_partial(plan: str | Plan | None, settings: Sequence[str], gpus: int) -> bool:
    """Whether a plan names no parallel degree and no ZeRO stage, so that these are searched; on one chip
    there is nothing to search."""
    if isinstance(plan, Plan):
        return False
    return plan is None or (gpus > 1 and not {*LAYOUT} & named_by(plan, settings))


def named_by(text: str, settings: Sequence[str] = ()) -> set[str]:
    """Fields of a plan that its own words or a setting name."""
    by_hand = (s.steps[0] for s in parse_settings(settings) if s.root == "plan")
    return {*named_fields(text), *by_hand}


@lru_cache(maxsize=4096)
def _wrong_in(plan: Plan) -> tuple[Problem, ...]:
    """What is wrong with a plan by itself; remembered, since a record never changes."""
    return tuple(problems_of(plan, "plan") or plan_problems(plan))


def default_precision(system: System) -> PrecisionName:
    """bf16 where the chip has it, else fp16."""
    return "bf16" if "bf16" in system.chip.matrix_flop_per_s else "fp16"


def collect(make: Callable[[], T], problems: list[Problem]) -> T | None:
    """The value, or None with its problems added to the list."""
    try:
        return make()
    except BadInput as error:
        problems += error.problems
        return None


def _model(given: Any, settings: Sequence[Setting], seen: dict[str, object]) -> Model:
    """The model, with settings applied to the keys of its file first and to the record then.

    One of the catalogue with the same settings is the same object: thousands of layers are compared once.
    """
    if is_traced_file(given):
        given = decoder_of(load_traced(given))
    own = tuple(s for s in settings if s.root == "model")
    if not own or not isinstance(given, str) or not is_catalogue_model(given):
        return _changed_model(given, settings, seen)
    model, items = _known_model(given, own)
    seen |= dict(items)
    return model


@lru_cache(maxsize=64)
def _known_model(
    given: str, settings: tuple[Setting, ...]
) -> tuple[Model, tuple[tuple[str, object], ...]]:
    seen: dict[str, object] = {}
    return _changed_model(given, settings, seen), tuple(seen.items())


def _changed_model(given: Any, settings: Sequence[Setting], seen: dict[str, object]) -> Model:
    names = field_types(Model)
    keys = [s for s in settings if s.root == "model" and s.steps[0] not in names]
    fields = [s for s in settings if s not in keys]
    if isinstance(given, Model):
        fields, keys = list(settings), []
        model = given
    elif keys:
        table = apply_to_table(model_table(given), keys, [*names], seen)
        model = replace(catalog_model(table), id=catalog_model(given).id)
    else:
        model = catalog_model(given)
    changed = apply_settings(model, fields, "model", seen)
    if changed is not model:
        _check_model(changed)
    return changed


def _check_model(model: Model) -> None:
    """Refuse of a model that was changed by hand what our own form of it would refuse."""
    import tomllib

    from foretell.interop.own_model import read_table, write_toml

    try:
        read_table(tomllib.loads(write_toml(model)), id=model.id, name="model")
    except BadInput as error:
        raise BadInput(
            replace(problem, path=problem.path.replace("model: ", "model.", 1))
            for problem in error.problems
        ) from None
    except ValueError:  # a text with characters that no file may hold
        raise bad_input("model", None, "has a text that cannot be printed") from None


def _plan(given: str | Plan | None) -> Plan:
    return given if isinstance(given, Plan) else parse_plan(given or "")


def _prices(settings: Sequence[Setting], seen: dict[str, object]) -> Prices:
    return check_record(apply_settings(Prices(), settings, "prices", seen), "prices", settings)


def chips_given(
    given: int | str | None, problems: list[Problem], name: str = "gpus"
) -> tuple[int | None, str | None]:
    """Chips, and the system that a text such as 512xH100 names."""
    if given is None:
        return None, None
    number: object = given
    named: str | None = None
    if isinstance(given, str) and (match := _CHIPS.fullmatch(given.strip())):
        number, named = int(match[1]), match[2]
    found = whole_problems(name, number)
    turned = _TURNED.fullmatch(given.strip()) if isinstance(given, str) else None
    if turned:
        found = [replace(p, nearest=f"{turned[2]}x{turned[1]}") for p in found]
    problems += found
    return (number if isinstance(number, int) and not found else None), named


def as_texts(settings: Settings) -> tuple[str, ...]:
    """Settings as `path=value` texts, also where they come as a mapping."""
    if isinstance(settings, Mapping):
        return tuple(f"{path}={value}" for path, value in settings.items())
    return tuple(settings)


def settings_of(question: Any) -> tuple[str, ...]:
    """Everything that a question sets by hand: `set`, and fields that are short names of a path."""
    short = [
        f"{field.flag.sets}={value}"
        for field in fields_of(type(question))
        if field.flag.sets and (value := getattr(question, field.name)) is not None
    ]
    return (*as_texts(question.set), *short)
