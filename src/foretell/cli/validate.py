"""`foretell validate`: measured tables beside our predictions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from foretell.cli.command import Json, arg, switch
from foretell.cli.output import print_answer, write_json

if TYPE_CHECKING:
    from foretell.lab.validate.scores import Scores

Table = Annotated[str, arg("A table: .csv or .csv.gz (docs/command-line.md).", "FILE")]


ChipId = Annotated[str, arg("The chip (default: as the file's name says).", "ID")]
Software = Annotated[str, arg("The software (default: as the file's name says).", "NAME")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LedgerFlags:
    """Whether an answer is added to the ledger of first contacts, and where that is."""

    first_contact: Annotated[
        str,
        arg(
            "Add the predictions to the ledger of first contacts as the wave NAME (docs/first-contact.md).",
            "NAME",
            show_default=False,
        ),
    ] = ""
    after_learning: Annotated[
        str,
        arg(
            "Add to the ledger how the rows of its wave NAME look after learning from them.",
            "NAME",
            show_default=False,
        ),
    ] = ""
    out: Annotated[
        str,
        arg("Folder of the ledger (default: the package's own).", "DIR", show_default=False),
    ] = ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TypedRows:
    """Rows that a command can be typed for, and that others of their source may be given to."""

    commands: Annotated[
        bool, switch("Print the command of every row instead: `foretell VERB ... # ID`.")
    ] = False
    anchors: Annotated[
        int,
        arg(
            "Predict every row given K other rows of its source too, the source held out.",
            "K",
            show_default=False,
        ),
    ] = 0
    seed: Annotated[int, arg("Which rows these are.", "S", show_default=False)] = 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RowFlags(LedgerFlags, TypedRows):
    """Both."""


NO_LEDGER, PLAIN_ROWS = LedgerFlags(), RowFlags()


def check_anchors(anchors: int) -> None:
    """Refuse a number of rows that is none."""
    if not 0 <= anchors <= 100:
        from foretell.errors import bad_input

        raise bad_input("anchors", anchors, "not a usable number", "a whole number from 0 to 100")


def ledger_keeper(
    kind: str, file: str, ledger: LedgerFlags, beside: Mapping[str, object] = MappingProxyType({})
) -> Callable[[Mapping[str, Any]], int]:
    """What stores an answer in the ledger, if that is asked for, and returns the exit code.

    Names and flags are checked before anything is scored; `beside` are the flags by which an answer is no
    plain prediction.
    """
    first_contact, after_learning, out = ledger.first_contact, ledger.after_learning, ledger.out
    if not (first_contact or after_learning):
        return lambda answer: 0
    import sys

    from foretell.errors import BadInput, bad_input, wrong
    from foretell.lab.first_contact.entry import AFTER, add_after, known_wave, store
    from foretell.lab.first_contact.ledger import FOLDER, check_entry

    flag = "first-contact" if first_contact else "after-learning"
    if isinstance(ledger, RowFlags):
        beside = {**beside, "commands": ledger.commands, "anchors": ledger.anchors}
    given = {**beside, "after-learning": after_learning if first_contact else ""}
    message = f"changes what is predicted or shown: not with --{flag}"
    problems = [wrong(name, value, message) for name, value in given.items() if value]
    if problems:
        raise BadInput(problems)
    folder = Path(out) if out else FOLDER
    met = known_wave(kind, after_learning, folder) if after_learning else None
    path = check_entry(kind, first_contact, folder) if first_contact else folder / AFTER

    def keep(answer: Mapping[str, Any]) -> int:
        try:
            if met is None:
                store(kind, first_contact, Path(file), answer, folder)
            else:
                add_after(met, Path(file), answer, folder)
        except OSError as error:
            message = (
                f"the entry was not stored: {path} cannot be written: {error.strerror or error}"
            )
            allowed = "--out DIR, a folder that you may write to"
            raise bad_input("out", out or None, message, allowed) from None
        sys.stderr.write(f"added to the ledger: {path}\n")
        return 0

    return keep


def collectives(
    file: Table,
    *,
    chip: ChipId = "",
    software: Software = "",
    leave_one_out: Annotated[
        Literal["system", "library"] | None,
        arg("Score each system, or library of dispatches, by a fit to all the others."),
    ] = None,
    json: Json = False,
) -> int:
    """Score a table of NCCL tests, of a single-node all-reduce, or of dispatches to experts."""
    from foretell.lab.calibrate.dispatch_rows import is_dispatch_table
    from foretell.lab.validate.hardware import score_collectives, score_dispatches

    if is_dispatch_table(Path(file)):
        left: Literal["library"] | None = None if leave_one_out is None else "library"
        return show(score_dispatches(Path(file), leave_one_out=left), json)
    system: Literal["system"] | None = None if leave_one_out is None else "system"
    scores = score_collectives(Path(file), chip=chip, software=software, leave_one_out=system)
    return show(scores, json)


def kernels(
    file: Table,
    *,
    chip: ChipId = "",
    software: Software = "",
    leave_one_out: Annotated[
        Literal["site", "chip"] | None,
        arg("Score sites by a fit to the others, or the chip by those of other chips."),
    ] = None,
    json: Json = False,
) -> int:
    """Score a table of matrix multiplications, attention, experts or element-wise kernels."""
    from foretell.lab.validate.hardware import score_kernels

    scores = score_kernels(Path(file), chip=chip, software=software, leave_one_out=leave_one_out)
    return show(scores, json)


def training(
    file: Table,
    *,
    leave_one_out: Annotated[
        Literal["source", "framework", "chip"] | None,
        arg(
            "Score each run without what rests on its source, its family of frameworks or its chip."
        ),
    ] = None,
    simulate: Annotated[
        bool, switch("Play the runs that have a pipeline or replicas event by event.")
    ] = False,
    rows: RowFlags = PLAIN_ROWS,
    json: Json = False,
) -> int:
    """Score a table of published training runs: step time, and peak memory apart."""
    from foretell.lab.validate.training import commands, score_training

    how = {"leave_one_out": leave_one_out, "simulate": simulate}
    return _scored("training", file, rows, how, commands, score_training, json)


def _scored(
    kind: str,
    file: str,
    rows: RowFlags,
    how: Mapping[str, object],
    commands: Callable[[Path], list[dict[str, str | None]]],
    score: Callable[..., "Scores"],
    json: bool,
) -> int:
    """A table scored row by row, or the commands of its rows; kept in the ledger where that is asked for."""
    changed = {name.replace("_", "-"): value for name, value in how.items()}
    keep = ledger_keeper(kind, file, rows, changed)
    if rows.commands:
        return show_commands(commands(Path(file)), json)
    check_anchors(rows.anchors)
    found = score(Path(file), anchors=rows.anchors, seed=rows.seed, **how)
    return show(found, json) or keep(found.to_dict())


def show_commands(found: list[dict[str, str | None]], json: bool) -> int:
    """The command of every row of a table; one that cannot be asked is a comment with the reason."""
    if json:
        write_json({"commands": found})
        return 0
    for one in found:
        print(one["command"] or f"# {one['id']}: {one['reason']}")
    return 0


def memory(file: Table, *, ledger: LedgerFlags = NO_LEDGER, json: Json = False) -> int:
    """Say of every run of a table whether it fits: runs that ran, or that ran out of memory."""
    keep = ledger_keeper("memory", file, ledger)
    from foretell.lab.validate.memory import score_memory

    found = score_memory(Path(file)).to_dict()
    return print_answer("validate", found, json=json) or keep(found)


def serving(
    file: Table,
    *,
    leave_one_out: Annotated[
        Literal["group", "model"] | None,
        arg(
            "Score rows by profiles fitted to the table without their model, or without their model x "
            "chip x engine."
        ),
    ] = None,
    rows: RowFlags = PLAIN_ROWS,
    json: Json = False,
) -> int:
    """Score a table of serving results: offline, fixed concurrency, static batches, single steps."""
    from foretell.lab.validate.serving import commands, score_serving

    how = {"leave_one_out": leave_one_out}
    return _scored("serving", file, rows, how, commands, score_serving, json)


def post_training(
    file: Table,
    *,
    leave_one_out: Annotated[
        Literal["source"] | None, arg("Intervals without the row's own source (as it is).")
    ] = "source",
    rows: RowFlags = PLAIN_ROWS,
    json: Json = False,
) -> int:
    """Score a table of post-training runs: steps, phases, synchronisation, fine-tuning time and memory."""
    from foretell.lab.validate.post_training import commands, score_post_training

    score = partial(score_post_training, leave_one_out=leave_one_out)
    return _scored("post-training", file, rows, {}, commands, score, json)


def famous(file: Table, *, json: Json = False) -> int:
    """Type the command of each famous run of a table, and print its answer beside what was printed."""
    from foretell.lab.validate.famous import score_famous

    return print_answer("validate", score_famous(Path(file)).to_dict(), json=json)


def cost(file: Table, *, json: Json = False) -> int:
    """Score a table of published die or package costs: every cell, to the digits it prints."""
    from foretell.lab.validate.cost import score_cost

    return show(score_cost(Path(file)), json)


def show(scores: "Scores", json: bool) -> int:
    """A scored table as JSON or as text."""
    return print_answer("validate", scores.to_dict(), json=json)
