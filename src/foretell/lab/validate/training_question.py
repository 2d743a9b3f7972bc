"""A published run as the question that a user would type: model, system, settings, job and plan in words.

The scorer asks this question by the code that answers a user's; `command` is the line to type.
"""

import shlex
from functools import lru_cache

from foretell.catalog import model as catalogue_model
from foretell.inputs.overrides import parse_settings
from foretell.inputs.system import system_of
from foretell.lab.validate.training_model import model_text
from foretell.lab.validate.training_plan import batches_of, degrees_of, plan_words
from foretell.lab.validate.training_rows import TrainingRow
from foretell.lab.validate.training_system import system_words
from foretell.records import dataclass
from foretell.specs.plan_words import read_words
from foretell.specs.system import System

ALL_SHARED = 3
"""ZeRO stage that needs no other split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuestion:
    """One run in words."""

    id: str
    """The row's id."""
    model: str
    """A model of the catalogue, or a typed one."""
    system: str
    """A system or a chip."""
    settings: tuple[str, ...]
    """`path=value`, of the system."""
    gpus: int
    """Chips."""
    global_batch: int | None
    """Sequences per step; None: not stated."""
    seq_len: int | None
    """Tokens per sequence; None: not stated."""
    plan: str | None
    """The plan's words; None: no split is stated, so that the best plan is searched for."""

    def flags(self) -> list[str]:
        """The arguments of `foretell estimate`."""
        words = [self.model, "--system", self.system, "--gpus", str(self.gpus)]
        if self.global_batch is not None:
            words += ["--global-batch", str(self.global_batch)]
        words += ["--seq-len", str(self.seq_len)] if self.seq_len else []
        for setting in self.settings:
            words += ["--set", setting]
        return [*words, "--plan", self.plan] if self.plan else words

    def command(self) -> str:
        """The line that a user would type."""
        return f"foretell estimate {shlex.join(self.flags())} # {self.id}"


def question_of(row: TrainingRow) -> PublishedQuestion:
    """The question of a row; UnsupportedRun with the reason where it cannot be asked."""
    text = model_text(row)
    system, settings = system_words(row)
    _, batch = batches_of(row, degrees_of(row)[3])
    architecture = system_record(system, settings).chip.architecture
    plan = " ".join(plan_words(row, len(catalogue_model(text).stack.layers), architecture))
    told = row.tp is not None or row.pp is not None or row.zero_stage == ALL_SHARED
    return PublishedQuestion(
        id=row.id,
        model=text,
        system=system,
        settings=settings if told else (*settings, *_as_settings(plan)),
        gpus=row.gpus or 1,
        global_batch=batch,
        seq_len=row.seq_len,
        plan=plan if told else None,
    )


def _as_settings(plan: str) -> list[str]:
    """The words of a plan as settings, which leave the rest to a search."""
    given = read_words(plan)[0].items()
    return [f"plan.{n}={str(v).lower() if isinstance(v, bool) else v}" for n, v in given]


@lru_cache(maxsize=512)
def system_record(name: str, settings: tuple[str, ...]) -> System:
    """The system of a question, kept: tables have few systems and many rows."""
    return system_of(name, parse_settings(settings), {})
