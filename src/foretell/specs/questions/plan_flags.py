"""The words of a plan that people type most, as flags of their own: `--tp 8 --framework megatron-core`.

They are words of the plan: a question that has them adds them to `plan` when it is made, so that whatever
answers it reads one text.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.records import dataclass
from foretell.specs.plan_words import CHOICES
from foretell.specs.questions.common import MOST_CHIPS, MOST_LENGTH
from foretell.specs.questions.flags import Flag, QuestionField, fields_of, flag, whole

IN_PLAN = "a study has plan, and plan.tp and the like"


def _degree(about: str, word: str, most: int = MOST_CHIPS) -> Flag:
    return whole(about, most=most, word=word, without={"study": IN_PLAN})


def _choice(about: str, word: str, metavar: str = "WORD") -> Flag:
    return flag(about, metavar, word=word, without={"study": IN_PLAN})


@dataclass(frozen=True, slots=False, kw_only=True)
class DegreeFlags:
    """How a model is cut over chips."""

    tp: Annotated[int | None, _degree("Tensor-parallel ranks.", "tp")] = None
    pp: Annotated[int | None, _degree("Pipeline stages.", "pp")] = None
    ep: Annotated[int | None, _degree("Expert-parallel ranks.", "ep")] = None
    cp: Annotated[int | None, _degree("Context-parallel ranks.", "cp")] = None

    def __post_init__(self) -> None:
        """The plan with the words that were given."""
        held = {field.name: getattr(self, field.name) for field in fields_of(type(self))}
        for name, value in with_plan_words(type(self), held).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=False, kw_only=True)
class LayoutFlags(DegreeFlags):
    """The same of training, and in which numbers it computes and what it computes again."""

    zero: Annotated[int | None, _degree("ZeRO stage, 0 to 3; FSDP is 3.", "zero", 3)] = None
    mbs: Annotated[int | None, _degree("Sequences per micro-batch.", "mbs", MOST_LENGTH)] = None
    precision: Annotated[
        str | None, _choice(f"{', '.join(CHOICES['precision'])}.", "precision=", "NAME")
    ] = None
    recompute: Annotated[
        str | None, _choice("none, selective, full, or names of modules.", "recompute=")
    ] = None


@dataclass(frozen=True, slots=False, kw_only=True)
class PlanFlags(LayoutFlags):
    """The same, and the software that runs it."""

    framework: Annotated[
        str | None,
        _choice(
            "What runs it: megatron-core, torchtitan, deepspeed ... (@RELEASE).",
            "framework=",
            "NAME",
        ),
    ] = None


def with_plan_words(record: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of a question, with its flags for words of the plan put into `plan`."""
    flags = [field for field in fields_of(record) if field.flag.word]
    words, problems = list[str](), list[Problem]()
    for field in flags:
        if (value := given.get(field.name)) is not None:
            _add(field, value, words, problems)
    if problems:
        raise BadInput(problems)
    if not words:
        return dict(given)
    plan = given.get("plan")
    if plan is not None and not isinstance(plan, str):
        message = "the plan is a record, which leaves nothing open"
        raise bad_input(words[0], None, message, "a plan in words")
    none = {field.name: None for field in flags if field.name in given}
    return {**given, **none, "plan": " ".join([*(plan or "").split(), *words])}


def _add(field: QuestionField, value: Any, words: list[str], problems: list[Problem]) -> None:
    """One flag's word, or what is wrong with its value."""
    path, word = field.called, field.flag.word
    if field.flag.kind == "whole":
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            allowed = "a whole number"
            problems.append(wrong(path, value, "not a whole number", allowed))
            return
    elif not isinstance(value, str) or not value or len(value.split()) != 1:
        problems.append(wrong(path, value, "not one word"))
        return
    words.append(f"{word}{value}")
