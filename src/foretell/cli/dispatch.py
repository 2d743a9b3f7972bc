"""Arguments to exit code: every error becomes one line on standard error, and no traceback."""

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.cli.output import READ_BACK
from foretell.errors import BadInput, Infeasible, Problem, nearest_name, wrong

if TYPE_CHECKING:
    from cyclopts import CycloptsError

ANSWERED, NO, BAD_INPUT, FAULT, UNWRITABLE = 0, 1, 2, 70, 74
INTERRUPTED, READER_GONE = 128 + signal.SIGINT, 128 + signal.SIGPIPE
EVERY_FLAG = "--help-all"
"""Shows the help of a verb with every flag; taken anywhere among the arguments."""
DEBUG = "--debug"
"""Shows the traceback of a fault; taken anywhere among the arguments."""


def run(arguments: Sequence[str]) -> int:
    """Run a verb and give the exit code."""
    _ready_streams()
    READ_BACK.set(())  # of a command that this process ran before
    debug = DEBUG in arguments
    try:
        code = _dispatch([word for word in arguments if word != DEBUG])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return READER_GONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:  # files that are read are looked after where they are read
        _drop_output()
        print(f"error: cannot write: {error.strerror or error}", file=sys.stderr)
        return UNWRITABLE
    except Exception as error:
        if debug:
            raise
        return _fault(error)


def _ready_streams() -> None:
    """Streams that take any text: a name that the terminal cannot show is no error."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Throw away what cannot be written, so that the flush at exit does not complain of it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    """Find the verb, run it, and say what was wrong if anything was."""
    from cyclopts import CycloptsError

    from foretell.cli.app import make_app

    if EVERY_FLAG in arguments:
        from foretell.cli.command import show_flags

        show_flags(every=True)
        try:
            return _dispatch([word for word in arguments if word != EVERY_FLAG] + ["--help"])
        finally:
            show_flags(every=False)
    if "--export" in arguments:
        from foretell.cli.exchange import joined_bundle

        arguments = joined_bundle(arguments)
    try:
        app = make_app()
        result = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
        return result if isinstance(result, int) else ANSWERED
    except CycloptsError as error:
        complain([_of_parser(error, arguments)])
        return BAD_INPUT
    except BadInput as error:
        complain(error.problems)
        return BAD_INPUT
    except Infeasible as error:
        complain(error.problems)
        return NO


def complain(problems: Sequence[Problem]) -> None:
    """One line per problem on standard error."""
    for line in dict.fromkeys(map(_line, problems)):
        print(f"error: {line}", file=sys.stderr)


def _line(problem: Problem) -> str:
    """A problem on one line; a plan that works instead as the flag to type."""
    near = problem.nearest
    if not near or not problem.path.startswith("plan") or " " not in near:
        return str(problem)
    return str(problem).replace(f"did you mean {near}?", f'did you mean --plan "{near}"?')


def _of_parser(error: "CycloptsError", arguments: Sequence[str] = ()) -> Problem:
    """What the command line's parser has to say, as a problem."""
    from cyclopts import (
        MissingArgumentError,
        RepeatArgumentError,
        UnknownCommandError,
        UnknownOptionError,
        UnusedCliTokensError,
    )

    path, message, allowed, near = "", "", None, None
    match error:
        case UnknownOptionError():
            path, message = error.token.keyword or error.token.value, "unknown option"
            flags = [name for argument in error.argument_collection for name in argument.names]
            verb = next(iter(arguments), "")
            near = _plan_word(path, arguments, verb) if "--plan" in flags else None
            near = near or nearest_name(path.partition("=")[0], flags)
        case UnknownCommandError(unused_tokens=[word, *_], app=app) if app is not None:
            names = [name for name in app if name.startswith("-") == word.startswith("-")]
            kind = "option" if word.startswith("-") else "verb"
            message, allowed = f"unknown {kind} {word!r}", ", ".join(names)
            near = nearest_name(word, names)
        case MissingArgumentError(argument=argument, keyword=keyword) if argument is not None:
            path = keyword or argument.name
            message = "missing" if keyword is None else "needs a value"
        case RepeatArgumentError(token=token) if token.keyword is not None:
            path, message = token.keyword, "given more than once"
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            message, near = f"unexpected argument {word!r}", _flag_of(word)
        case _:
            error.verbose = False
            message = str(error)
    return wrong(path, None, message, allowed, near)


PLAN_WORDS = {
    "--tp ": ("tp-size", "tensor-parallel-size", "tensor-model-parallel-size"),
    "--pp ": ("pp-size", "pipeline-parallel-size", "pipeline-model-parallel-size"),
    "--cp ": ("cp-size", "context-parallel-size"),
    "--ep ": ("ep-size", "expert-parallel-size", "expert-model-parallel-size"),
    "--zero ": ("zero-stage",),
    "--mbs ": ("micro-batch", "micro-batch-size"),
    "--recompute ": ("recompute-granularity",),
    "--plan dp": ("dp", "dp-size", "data-parallel-size"),
    "--plan etp": ("etp",),
    "--plan vpp": ("vpp",),
    "--plan sp": ("sp", "sequence-parallel"),
    "--plan schedule=": ("schedule",),
}
"""What flags of other tools are here, up to their value."""
SERVES = ("serve", "size")
"""Verbs whose plans have the words of an engine."""
USUAL = {"--plan sp": "", "--recompute ": "full", "--plan schedule=": "1f1b"}
"""Their values where none was typed; else 8."""


def _flag_of(word: str) -> str | None:
    """The flag that a word behind a verb is likely meant for: chips, or an algorithm."""
    from foretell.specs.post_training import ALGORITHMS

    if re.fullmatch(r"\d+(x\S+)?", word):
        return f"--gpus {word}"
    return f"--algorithm {word}" if word in ALGORITHMS else None


def _plan_word(option: str, arguments: Sequence[str], verb: str) -> str | None:
    """What another tool's flag such as --tensor-parallel-size 8 is here, with the number that was typed; of a
    plan's word (--lora 16) the plan."""
    name = option.lstrip("-").partition("=")[0]
    typed = " ".join(arguments).partition(f"--{name}")[2]
    value = typed.lstrip("= ").partition(" ")[0]
    plain = name.replace("_", "-").lower()
    found = next((word for word, flags in PLAN_WORDS.items() if plain in flags), None)
    if found is None:
        from foretell.specs.plan_words import KEYS, METHODS

        plan = METHODS.get(plain) or (plain in KEYS and f"{plain}={{}}")
        return f'--plan "{plan.format(value)}"' if plan and value and verb not in SERVES else None
    usual = USUAL.get(found, "8")
    return found + (value if usual and value.isalnum() else usual)


def _fault(error: Exception) -> int:
    """A defect of Foretell, stated in one line."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    said = f"this is a fault of foretell, please report it ({what}); {DEBUG} shows where"
    print(f"error: {said}", file=sys.stderr)
    return FAULT
