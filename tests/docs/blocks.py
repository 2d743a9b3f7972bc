"""Runs the blocks of a Markdown page as a reader would, in order and in one folder.

- `console`: each line `$ command` is run and must exit 0, or N if it ends in `# exit N`; the lines
  up to the next command are its output. A line `...` stands for any lines, `...` within a line for
  any text; a command without output may print what it likes.
- `python`: run, all of a page in one namespace; a following `output` block is what it prints.
- the word `full` after either: only in `./test --full`.
- other languages, such as `text`, are not run.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("./foretell", "./test", "cat", "head", "ls")
"""What a console block may begin a command with: nothing that installs, fetches or deletes."""
ANSWERED_HERE = (
    *("estimate", "search", "memory", "explain", "compare-plans", "simulate"),
    *("serve", "size", "fleet", "catalog", "network", "cost", "reference", "compare", "diagnose"),
)
"""Verbs that are run in this process: starting one takes longer than most answers."""
LONGEST_S = 300.0
"""A command of the documentation that takes longer has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    line: int
    """Line of its opening fence, from 1."""
    language: str
    """First word after the fence."""
    full: bool
    """Whether it belongs to the long form only."""
    lines: tuple[str, ...]
    """What stands between the fences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a console block."""

    text: str
    """What is typed after `$ `."""
    exit_code: int
    """What it must exit with."""
    output: tuple[str, ...]
    """What it must print; empty: anything."""


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order; a fence ends with one as long as it began with."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    start, body = 0, list[str]()
    for number, line in enumerate(page.splitlines(), start=1):
        if opening is None:
            opening = re.match(r"(`{3,})\s*(\w*)(.*)$", line)
            start, body = number, []
        elif line.rstrip() == opening[1]:
            full = "full" in opening[3].split()
            found.append(Block(line=start, language=opening[2], full=full, lines=tuple(body)))
            opening = None
        else:
            body.append(line)
    assert opening is None, f"the block that begins in line {start} does not end"
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block, each with its output."""
    found: list[tuple[str, list[str]]] = []
    for line in block.lines:
        if found and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0][:-1] + line.strip().removeprefix("> "), [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        else:
            assert found, f"line {block.line}: a console block begins with a command"
            found[-1][1].append(line)
    return [_command(text, output) for text, output in found]


def _command(text: str, output: list[str]) -> Command:
    exits = re.search(r"#\s*exit\s+(\d+)\s*$", text)
    while output and not output[-1].strip():
        output.pop()
    return Command(text=text, exit_code=int(exits[1]) if exits else 0, output=tuple(output))


def matches(expected: tuple[str, ...], printed: str) -> bool:
    """Whether the output is as expected, wildcards and white space at line ends allowed for."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
        else:
            parts = (re.escape(part) for part in line.rstrip().split("..."))
            pattern += ".*".join(parts) + r"[ \t]*\n"
    return re.fullmatch(pattern, printed.rstrip() + "\n" if printed.strip() else "") is not None


def workspace(folder: Path) -> None:
    """A folder that looks like the repository and whose two commands are quick to start.

    Entries are links, so that what a command writes beside them stays here; `results`, where a user's own
    runs lie, is none. `./test` within the tests would never end: here it says its usage.
    """
    for entry in ROOT.iterdir():
        if entry.name not in ("foretell", "test", ".git", ".venv", "results"):
            (folder / entry.name).symlink_to(entry)
    python = shlex.quote(sys.executable)
    source = shlex.quote(str(ROOT / "src"))
    _script(folder / "foretell", f'PYTHONPATH={source} exec {python} -P -m foretell "$@"')
    _script(folder / "test", f"exec {shlex.quote(str(ROOT / 'test'))} --help")


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def run_page(page: str, folder: Path, *, full: bool = False) -> int:
    """Run every block of a page in the folder, and say how many there were."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    count = 0
    for block in blocks(page):
        if block.language == "output":
            if printed is not None:
                assert matches(block.lines, printed), _differs(block.line, block.lines, printed)
            continue
        printed = None
        if block.language not in ("console", "python") or (block.full and not full):
            continue
        count += 1
        if block.language == "python":
            printed = run_python(block, names, folder)
        else:
            for command in commands(block):
                _run_command(command, block, folder)
    return count


def run_python(block: Block, names: dict[str, object], folder: Path) -> str:
    """Run a Python block in a folder and a namespace, and give what it prints."""
    source = "\n" * block.line + "\n".join(block.lines)  # so that a traceback gives the page's line
    output = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output):
        exec(compile(source, "<page>", "exec"), names)
    return output.getvalue()


def _run_command(command: Command, block: Block, folder: Path) -> None:
    where = f"line {block.line}: $ {command.text}"
    assert command.text.split()[0] in COMMANDS, f"{where}: only {COMMANDS} are run; use ```text"
    done = run_text(command.text, folder)
    assert done.returncode == command.exit_code, (
        f"{where}: exit code {done.returncode}\n{done.stdout}"
    )
    if command.output:
        assert matches(command.output, done.stdout), _differs(where, command.output, done.stdout)


TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
"""What a page is written on."""


def run_text(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a page as its reader would, both outputs together."""
    words = plain_words(text)
    if words[:1] == ["./foretell"] and words[1:2] and words[1] in ANSWERED_HERE:
        return _run_here(words, folder)
    return subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env={**os.environ, **TERMINAL},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def plain_words(text: str) -> list[str]:
    """The words of a command that a shell would only split; empty for one that it would do more with."""
    bare = re.sub(r"'[^']*'|\"[^\"$`\\]*\"", "", text.partition(" #")[0])
    special = re.search(r"[|&;<>$`*?~(){}\[\]\\!]", bare) or "--workers" in bare
    return [] if special else shlex.split(text, comments=True)


def _run_here(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of ours in this process."""
    from foretell.cli.dispatch import run

    said, before = io.StringIO(), {name: os.environ.get(name) for name in TERMINAL}
    try:
        os.environ.update(TERMINAL)
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            code = run(words[1:])
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    return subprocess.CompletedProcess(args=words, returncode=code, stdout=said.getvalue())


def _differs(where: object, expected: tuple[str, ...], printed: str) -> str:
    return "\n".join([f"{where}: the page says", *expected, "but it is", printed])
