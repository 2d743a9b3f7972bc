"""What goes to standard output, a record as JSON or as text, and figures that go to files."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from foretell.errors import Infeasible, Problem


def write_json(record: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value and a line end; unknown is null, so that NaN would be a defect of ours.

    Dates, which a TOML file may hold, become texts.
    """
    sys.stdout.write(json.dumps(record, indent=2, allow_nan=False, default=str) + "\n")


def show_answer(verb: str, told: Mapping[str, Any]) -> None:
    """The JSON of an answer as text."""
    from foretell.report.presentation.text import show, verb_text

    show(verb_text(verb, told))


def print_answer(verb: str, told: Mapping[str, Any], *, json: bool) -> int:
    """The JSON of an answer, as it is or as text; the exit code of an answer."""
    if json:
        write_json(told)
    else:
        show_answer(verb, told)
    return 0


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
    show_read_back(READ_BACK.get())
    READ_BACK.set(())


def show_read_back(rows: Sequence[Any]) -> None:
    """Every value of a question that a launch was read for, and where it comes from."""
    if rows:
        from foretell.report.presentation.text import draw_table, show
        from foretell.report.presentation.training_cards import read_back_table

        show(draw_table(*read_back_table([row.to_dict() for row in rows])))


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


def plot_file(plot: str | None, flag: str = "plot") -> Path | None:
    """Where the figure goes, none where none is wanted; BadInput before anything is computed."""
    if not plot:
        return None
    from foretell.report.figures.files import figure_file

    return figure_file(flag, plot)


def write_plot(
    file: Path | None, verb: str, answer: Callable[[], Mapping[str, Any] | None], *, quiet: bool
) -> None:
    """Write the figure of a verb's answer, where it has one; `quiet`: without a word, as beside JSON."""
    if file is None or (told := answer()) is None:
        return
    from foretell.report.figures.answers import FIGURES

    draw_figure(FIGURES[verb](told), file, quiet=quiet)


def draw_figure(figure: Mapping[str, Any], file: Path, *, quiet: bool) -> None:
    """Write a figure, and say where."""
    from foretell.report.figures.files import write_figure

    write_figure(figure, file)
    say_written(file, quiet=quiet)


def say_written(file: Path, *, quiet: bool) -> None:
    """Name a file that was written on standard error: standard output is the answer's."""
    if not quiet:
        print(f"written: {file}", file=sys.stderr)
