"""What goes to standard output: a record as JSON or as text."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from foretell.errors import Infeasible, Problem


def write_json(record: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value and a line end; unknown is null, so that NaN would be a defect of ours.

    Dates, which a TOML file may hold, become texts.
    """
    sys.stdout.write(json.dumps(record, indent=2, allow_nan=False, default=str) + "\n")


def show_answer(verb: str, told: Mapping[str, Any]) -> None:
    """The JSON of an answer as text."""
    from foretell.report.console import show
    from foretell.report.presentation.text import verb_text

    show(verb_text(verb, told))


def no_as_dict(
    problems: Sequence[Problem], answer: object = None, read_back: Sequence[Any] = ()
) -> dict[str, Any]:
    """The answer no: `fits` and why, on top of what was computed all the same."""
    from foretell.report import refusal as no  # a plain answer starts without it

    return no.no_as_dict(problems, answer, read_back=read_back)


READ_BACK: ContextVar[tuple[Any, ...]] = ContextVar(
    "rows of the launch that a command read", default=()
)
"""The read-back table of the launch that is asked about, which an answer of no shows too."""


def show_rows() -> None:
    """The read-back table in text, once."""
    if READ_BACK.get():
        from foretell.report.console import show
        from foretell.report.read_back import read_back_text

        show(read_back_text(READ_BACK.get()))
        READ_BACK.set(())


@contextmanager
def no_as_json(wanted: bool) -> Iterator[None]:
    """Where JSON is wanted, write the answer no before it goes on as an error; else what was read."""
    try:
        yield
    except Infeasible as error:
        if error.read_back:
            READ_BACK.set(tuple(error.read_back))
        if wanted:
            write_json(no_as_dict(error.problems, error.answer, READ_BACK.get()))
        else:
            show_rows()
        raise


@contextmanager
def no_as_text(wanted: bool, show: Callable[[Any], None]) -> Iterator[None]:
    """Where text is wanted, show the numbers of a plan that does not fit before it goes on as an error."""
    try:
        yield
    except Infeasible as error:
        if wanted and error.answer is not None:
            show_rows()
            show(error.answer)
        raise
