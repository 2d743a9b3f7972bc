"""A shell script as the processes that it launches, batch lines (`#SBATCH`, `#PBS`) included."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from foretell.interop.forms.facts import batch_facts, batch_layer, process_facts, slurm_variables
from foretell.interop.forms.records import LaunchContents, LaunchedProcess, StatedFact, Word
from foretell.interop.forms.scope import House, Scope
from foretell.interop.forms.shell import Shell
from foretell.interop.forms.starts import note
from foretell.interop.forms.unwrap import Unwrapped
from foretell.interop.forms.values import ArrayValue, Source, Value, text_of, tokens_of

_PLACEHOLDER = re.compile(r"(?<=[=\s])(<[A-Za-z][\w ./:,-]{0,200}>[\w./-]{0,200})(?=[\s\\]|$)")
"""`NAME=<path to file>`: no redirection, but what the user puts in."""
_COMMENT = re.compile(r"`#[^`\n]*`")
"""A comment inside a command."""
_LIST = re.compile(r"(?<![\w-])(--[\w-]{1,80}[ =])(\(\[[^\s'\"]*\))")
"""`--moe-layer-freq ([0]*3+[1]*58)`: a value that a shell would want in quotes."""
_USED = re.compile(r"\$\{?(\w+)")


def no_file(name: str) -> str | None:
    """No file lies beside."""
    return None


def read_script(
    text: str, *, open_file: Callable[[str], str | None] = no_file, env: Mapping[str, Word] | None = None,
    first_line: int = 1,
) -> LaunchContents:  # fmt: skip
    """What a script launches; `env` are variables that it is started with."""
    text = _COMMENT.sub(lambda match: " " * len(match[0]), text)
    text = _LIST.sub(r"\1'\2'", text)
    text = _PLACEHOLDER.sub(r'"\1"', text.replace("\r\n", "\n").replace("\t", " "))
    batch = batch_layer(text, first_line)
    facts = batch_facts(batch) if batch is not None else ()
    scope = Scope({name: _value(word) for name, word in (env or {}).items()})
    scope.values |= slurm_variables(facts)
    house = House(open_file=open_file)
    shell = Shell(
        Source(text, first_line), scope, house, layers=() if batch is None else (batch,), env=env
    )
    shell.run_all()
    if not house.processes:
        for name in [one for one in house.functions if one not in house.called]:
            shell.call(name, ())
    if not house.processes and not house.missing:
        _argument_lists(shell, text)
    rays = [StatedFact(name="gpus_per_node", value=int(word.text) if word.text.isdigit() else word.text,
                 line=word.line, source="ray start --num-gpus", unknown=word.unknown)
            for word in house.rays]  # fmt: skip
    processes = [
        replace(one, facts=(*process_facts(one), *rays[:1]), files=house.files)
        for one in house.processes
    ]
    counted = _counted(processes)
    first = {(one.program, one.condition) for one in counted if one.condition}
    dropped = [
        one for one in counted if (one.program, one.condition.removeprefix("not ")) in first
        and one.condition.startswith("not ")
    ]  # fmt: skip
    variables = {
        name: Word(text=text_of(value), line=value[0].line if value else 0, raw=text_of(value),
                   unknown=tuple(n for piece in value for n in piece.names))
        for name, value in scope.values.items() if not isinstance(value, ArrayValue)
    }  # fmt: skip
    return LaunchContents(
        form="slurm" if batch is not None else "shell",
        processes=tuple(one for one in counted if one not in dropped),
        asks=(
            *(f"{one} is not set in the file: it decides flags" for one in house.deciders),
            *(f"{one.condition[4:]} decides which command is started" for one in dropped[:1]),
        ),
        env=variables,
        facts=(*facts, *rays[:1]),
        files=house.files,
        missing=tuple(house.missing),
    )


def _value(word: Word) -> Value:
    from foretell.interop.forms.values import TextPiece

    return (TextPiece(word.text, word.line, word.line, names=word.unknown),)


def _argument_lists(shell: Shell, text: str) -> None:
    """A script that starts nothing and sets lists of arguments: these are what it is about."""
    used = {*_USED.findall(text)}
    words: list[Word] = []
    for name, value in shell.scope.values.items():
        if name in used:
            continue
        if isinstance(value, ArrayValue):
            words += [token.word for _, one in value.items for token in tokens_of(one)]
        elif text_of(value).lstrip().startswith("--"):
            split = tuple(piece._replace(split=True) for piece in value)
            words += [token.word for token in tokens_of(split)]
    if any(word.text.startswith("--") for word in words):
        note(shell, Unwrapped(layers=(), env={}, words=()), words)


def _counted(processes: list[LaunchedProcess]) -> tuple[LaunchedProcess, ...]:
    """Processes with equal words counted once, with how often."""
    found: dict[tuple[tuple[tuple[str, int], ...], str], LaunchedProcess] = {}
    for one in processes:
        key = (tuple((word.text, word.line) for word in one.argv), one.image)
        before = found.get(key)
        again = before is not None and not (before.condition or one.condition)
        found[key] = (
            replace(before, copies=before.copies + 1) if before and again else before or one
        )
    return tuple(found.values())
