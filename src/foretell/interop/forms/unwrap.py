"""Launchers around a command, taken off one after the other: srun, torchrun, docker, `python -m`, `bash -c`.

A launcher is a row of launchers.toml: which of its options take no value, or which do. What it is given is
kept as a `LauncherLayer`; the words behind it are the next command.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from foretell.interop.forms.records import LauncherLayer, Word
from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How the own options of a launcher are distinguished from the command behind them."""

    switches: frozenset[str] = frozenset()
    """Options without a value, where every other one has a value."""
    values: frozenset[str] | None = None
    """Options with a value, where every other one has none."""
    verbs: tuple[str, ...] = ()
    """Words that follow its name when it launches something: `accelerate launch`."""
    skips: int = 0
    """Words behind the options that are its own: a host, a duration, an image."""
    image: bool = False
    """Whether the word that is skipped is an image."""
    joins: bool = False
    """Whether the words behind it are joined and read as a script: ssh."""
    script: bool = False
    """Whether the word behind its options is a file with a script: bash, sbatch."""
    python: bool = False
    """Whether the program is of Python: a file, or a module behind -m."""
    dashes: bool = False
    """Whether the command is what is behind `--`."""
    command: str = ""
    """The option that holds a whole command as one word: `--command`."""
    options: frozenset[str] = frozenset()
    """All of its long options without their dashes, where these are listed."""
    states: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes, GPUs or processes, and the options that state them."""


_TABLE = packaged_table(Path(__file__).with_name("launchers.toml"))
PYTHON_SWITCHES = _set(_TABLE["python_switches"])
"""Options of an interpreter without a value."""
OUTER = _set(_TABLE["outer"])
"""Programs that run an image and whose `-e` sets a variable."""
UTILITIES = _set(_TABLE["utilities"])
"""Commands that prepare, look or tidy up, and launch nothing."""


def _launcher(row: Mapping[str, Any]) -> Launcher:
    """A row of the table; one that is like another is that."""
    told = dict(_TABLE["launchers"][row["like"]] if "like" in row else row)
    told |= {name: _set(told[name]) for name in ("switches", "values", "options") if name in told}
    states = {name: tuple(options.split()) for name, options in told.get("states", {}).items()}
    return Launcher(**told | {"verbs": tuple(told.get("verbs", ())), "states": states})


LAUNCHERS = {name: _launcher(row) for name, row in _TABLE["launchers"].items()}
"""Launchers by name."""
EXTRAS = re.compile(
    r"@|\*|\w*(?:ARGS|OPTS|OPTIONS|FLAGS|PARAMS|ARGUMENTS|OVERRIDES)\d*|(?:\w+_)?EXTRAS?",
    re.IGNORECASE,
)
"""Names of variables that hold further words of a command rather than one value."""


_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_WITH_C = re.compile(r"-[a-z]*c")
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?|pypy3?")
_UNSET = re.compile(r"\$\{(\w+)\}")
_MODULES = {"accelerate.commands.launch": "accelerate", "deepspeed.launcher.runner": "deepspeed",
            "accelerate.commands.accelerate_cli": "accelerate"}  # fmt: skip
_MOST_LAYERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwrapped:
    """A command without its launchers."""

    layers: tuple[LauncherLayer, ...]
    """Launchers, the outermost first."""
    env: Mapping[str, Word]
    """Variables that they set for it."""
    words: tuple[Word, ...]
    """Its words; none where a launcher starts a shell alone or nothing."""
    image: str = ""
    """The image that it runs in."""
    text: Word | None = None
    """A script that is given as one word: `bash -c TEXT`."""
    script: bool = False
    """Whether the first of its words is a file with a script, the others its positions."""
    stdin: bool = False
    """Whether it reads a script from its input: `bash <<EOF`."""
    module: bool = False
    """Whether the program is a module of Python."""


def unwrapped(words: Sequence[Word]) -> Unwrapped:
    """The command behind every launcher."""
    layers: list[LauncherLayer] = []
    env: dict[str, Word] = {}
    image, rest = "", list(words)

    def behind(words: Sequence[Word] = (), **more: Any) -> Unwrapped:
        held = {"image": image, **more}
        return Unwrapped(layers=tuple(layers), env=env, words=tuple(words), **held)

    for _ in range(_MOST_LAYERS):
        while rest and (match := _ASSIGNED.fullmatch(rest[0].text)) and layers:
            env[match[1]] = _replaced(rest[0], match[2])
            rest = rest[1:]
        if not rest:
            break
        name = rest[0].text.rpartition("/")[2]
        if _is_python(rest):
            layer, rest, module = _python(rest)
            layers.append(layer)
            if cut := _command_behind(rest):
                layers.append(
                    LauncherLayer(name=rest[0].text.rpartition("/")[2], argv=tuple(rest[1:cut]))
                )
                rest = rest[cut + 1 :]
                continue
            whole = rest[0].text if rest else ""
            if not module or (whole not in LAUNCHERS and whole not in _MODULES):
                return behind(rest, module=module)
            name = _MODULES.get(whole, whole)
        unset = _UNSET.fullmatch(rest[0].text)
        if unset and len(rest) > 1 and _starts_program(rest[1].text):
            layers.append(LauncherLayer(name=unset[1], argv=(rest[0],)))
            rest = rest[1:]
            continue
        if name not in LAUNCHERS and (cut := _command_behind(rest)):
            layers.append(LauncherLayer(name=name, argv=tuple(rest[1:cut])))
            rest = rest[cut + 1 :]
            continue
        if name.endswith((".sh", ".bash")) and (inner := _wrapped(rest)) is not None:
            return _inside(behind(), inner)
        launcher = LAUNCHERS.get(name)
        verbs = None if launcher is None else _behind_verb(launcher, rest)
        if launcher is None or verbs is None:
            break
        own, rest = _own_options(launcher, rest[verbs:])
        texts = [word.text for word in (*own, *rest)]
        if launcher.dashes and rest and "--" in texts:
            cut = texts.index("--")
            own, rest = [*own, *rest][:cut], [*own, *rest][cut + 1 :]
        layers.append(LauncherLayer(name=_called(name, launcher, words), argv=tuple(own)))
        env |= _variables(name, own)
        if launcher.command:
            return behind(text=layers[-1].value(launcher.command), image="")
        if launcher.skips:
            image = rest[0].text if launcher.image and rest else image
            rest = [*(_entry(own) if launcher.image else ()), *rest[launcher.skips :]]
        if launcher.image and not rest:
            return behind()
        if launcher.joins and rest:
            joined = _replaced(rest[0], " ".join(word.text for word in rest))
            return behind(text=rest[0] if len(rest) == 1 else joined)
        if launcher.script:
            return _of_shell(behind(), own, rest)
        if name == "srun" and (held := layers[-1].value("--container-image")):
            image = held.text
        if launcher.python:
            module = any(one.text in ("-m", "--module") for one in own)
            plain = any(one.text.replace("_", "-") == "--no-python" for one in own)
            if rest and (module or (not plain and name != "uv")):
                return behind(rest, module=module)
    return behind(rest)


def _command_behind(rest: Sequence[Word]) -> int:
    """Where `--` is before a command that is known; 0 where there is none."""
    texts = [word.text for word in rest]
    cut = texts.index("--", 1) if "--" in texts[1:-1] else 0
    return cut if cut and _starts(texts[cut + 1]) else 0


def _inside(outer: Unwrapped, inner: Unwrapped) -> Unwrapped:
    """A command behind further launchers."""
    return replace(inner, layers=(*outer.layers, *inner.layers), env={**outer.env, **inner.env},
                   image=inner.image or outer.image)  # fmt: skip


def _starts(text: str) -> bool:
    """Whether a word is a launcher, an interpreter or an engine."""
    name = text.rpartition("/")[2]
    return name in LAUNCHERS or bool(_PYTHON.fullmatch(name)) or name == "vllm"


def _starts_program(text: str) -> bool:
    return text.endswith((".py", ".sh")) or text in ("-m", "-u") or text in LAUNCHERS


def _is_python(rest: Sequence[Word]) -> bool:
    name = rest[0].text.rpartition("/")[2]
    if _PYTHON.fullmatch(name):
        return True
    return bool(re.fullmatch(r"\$\{\w*(?:PYTHON|PY)\w*\}", name)) and len(rest) > 1


def _behind_verb(launcher: Launcher, rest: Sequence[Word]) -> int | None:
    """How many words name a launcher: 1, or more with its verb; None where another verb follows."""
    if not launcher.verbs:
        return 1
    texts = [word.text for word in rest[1:6]]
    for verb in launcher.verbs:
        parts = verb.split()
        for skip in range(3):  # `ray --flag job submit`, `docker container run`
            if texts[skip : skip + len(parts)] == parts and all(
                one.startswith("-") or one == "container" for one in texts[:skip]
            ):
                return 1 + skip + len(parts)
    return None


def _called(name: str, launcher: Launcher, words: Sequence[Word]) -> str:
    known = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun"}
    if launcher.verbs and launcher.verbs[0] == "job submit":
        return "ray job"
    return known.get(name, name)


def _own_options(launcher: Launcher, rest: Sequence[Word]) -> tuple[list[Word], list[Word]]:
    """(a launcher's options with their values, what is behind them)."""
    at = 0
    while at < len(rest):
        text = rest[at].text
        if text == "--":
            return list(rest[:at]), list(rest[at + 1 :])
        if (unset := _UNSET.fullmatch(text)) and EXTRAS.fullmatch(unset[1]):
            at += 1  # further options of its own
            continue
        if not text.startswith("-") or text == "-":
            break
        flag, equals, _ = text.partition("=")
        plain = flag.replace("_", "-") if flag.startswith("--") else flag
        if equals:
            at += 1
            continue
        if flag in ("-mca", "--mca"):
            at += 3
            continue
        if launcher.script and (_WITH_C.fullmatch(flag) or flag == "-s"):
            return list(rest[: at + 1]), list(rest[at + 1 :])
        takes = (
            plain in launcher.values or flag in launcher.values
            if launcher.values is not None
            else plain not in launcher.switches and not _glued(flag, launcher)
        )
        if takes and launcher.python and at + 1 < len(rest) and rest[at + 1].text.endswith(".py"):
            takes = plain.replace("_", "-") in ("--config-file",)
        at += 2 if takes else 1
        if launcher.python and plain in ("-m", "--module") and launcher.values is None:
            continue
    return list(rest[:at]), list(rest[at:])


def _glued(flag: str, launcher: Launcher) -> bool:
    """`-N2`, `-n8`, `-itd`: a short option with its value or others behind it."""
    if flag.startswith("--") or len(flag) < 3:
        return False
    return flag[2].isdigit() or all(f"-{one}" in launcher.switches for one in flag[1:])


def _entry(own: Sequence[Word]) -> list[Word]:
    found = LauncherLayer(name="", argv=tuple(own)).value("--entrypoint")
    return [found] if found and found.text else []


def _variables(name: str, own: Sequence[Word]) -> dict[str, Word]:
    """Variables that a launcher is asked to set: docker -e, mpirun -x, srun --export, apptainer --env."""
    flags = {"-e", "--env", "-x", "-genv", "--export"} if name != "apptainer" else {"--env"}
    found: dict[str, Word] = {}
    for at, word in enumerate(own):
        flag, equals, value = word.text.partition("=")
        if flag not in flags:
            glued = re.fullmatch(r"-e(\w+)=(.*)", word.text) if name in OUTER else None
            if glued:
                found[glued[1]] = _replaced(word, glued[2])
            continue
        told = value if equals else own[at + 1].text if at + 1 < len(own) else ""
        source = word if equals else own[at + 1] if at + 1 < len(own) else word
        for one in told.split(",") if name in ("srun", "apptainer") else [told]:
            if match := _ASSIGNED.fullmatch(one):
                found[match[1]] = _replaced(source, match[2])
    return found


def _python(rest: Sequence[Word]) -> tuple[LauncherLayer, list[Word], bool]:
    """(the interpreter, the program with its words, whether it is a module)."""
    at = 1
    while at < len(rest) and rest[at].text.startswith("-"):
        text = rest[at].text
        if text == "-m":
            layer = LauncherLayer(name="python -m", argv=tuple(rest[1:at]))
            return layer, list(rest[at + 1 :]), True
        if text in ("-c", "-"):
            return LauncherLayer(name="python", argv=tuple(rest[1:at])), list(rest[at:]), False
        at += 2 if text in ("-X", "-W") else 1
        if text not in PYTHON_SWITCHES and not text.startswith(("-X", "-W")):
            break
    return LauncherLayer(name="python", argv=tuple(rest[1:at])), list(rest[at:]), False


def _of_shell(outer: Unwrapped, own: Sequence[Word], rest: Sequence[Word]) -> Unwrapped:
    """`bash -c TEXT`, `bash FILE`, `sbatch --wrap TEXT`, or a shell that reads its input."""
    *before, last = outer.layers
    wrapped = last.value("--wrap") if last.name == "sbatch" else None
    if wrapped is not None:
        return replace(outer, text=wrapped)
    if own and _WITH_C.fullmatch(own[-1].text) and last.name != "sbatch":
        layers = (*before, LauncherLayer(name=f"{last.name} -c", argv=last.argv))
        rest = rest[1:] if rest and rest[0].text == "--" else rest
        return replace(outer, layers=layers, words=tuple(rest[1:]), text=rest[0] if rest else None)
    if not rest or rest[0].text == "-":
        return replace(outer, stdin=True)
    if (inner := _wrapped(rest)) is not None:
        return _inside(outer, inner)
    return replace(outer, words=tuple(rest), script=True)


def _wrapped(rest: Sequence[Word]) -> Unwrapped | None:
    """A script that is handed a command (`wrap.sh -- torchrun ...`): the command, with the script around it;
    None where it is handed none."""
    for at, word in enumerate(rest[1:4], 1):
        if _starts(word.text):
            inner = unwrapped(rest[at:])
            own = LauncherLayer(name=rest[0].text.rpartition("/")[2], argv=tuple(rest[1:at]))
            return replace(inner, layers=(own, *inner.layers))
        if word.text.startswith("-") and word.text != "--":
            return None
    return None


def _replaced(word: Word, text: str) -> Word:
    return Word(
        text=text, line=word.line, raw=word.raw, unknown=word.unknown, set_line=word.set_line
    )
