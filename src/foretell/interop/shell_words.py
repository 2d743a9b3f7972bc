"""The words of a launch script: quotes, comments, continuation lines, variables and arrays.

Nothing is run. `NAME=value`, `NAME=( ... )` and `${NAME:-default}` are followed inside the text itself;
what the text does not say (another variable, a command's output) stays as it is written.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from foretell.interop.whole_numbers import whole_number
from foretell.records import dataclass

MOST_WORDS = 20_000
"""Words of a script, after its variables are put in."""
LONGEST_VALUE = 20_000
"""Characters of a variable's value into which others are put."""
MOST_HEREDOCS = 64
"""Files that a script writes with << that are looked at."""
_PIECE = re.compile(
    r"""(?P<sum>\$\(\((?:[^()]|\([^()]*\))*\)\))
    |(?P<gap>(?:\\\n|\s)+)|(?P<comment>\#[^\n]*)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"
    |\\(?P<escaped>.)|(?P<bracket>[()])|(?P<plain>(?:(?!\$\(\()[^\s'"\\()\#])+)|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_]\w*|[1-9])(?:\[@\]|\[\*\])?(?::?-([^{}$]*))?\}|([A-Za-z_]\w*))"
)
_FIRST = re.compile(r"\$\{([A-Za-z_]\w*):?=([^{}$\n]*)\}")
"""A variable that is set where nothing has set it: `: "${GPUS:=8}"`."""
_COMMAND = re.compile(r"\$\((?!\()[^()]*\)|`[^`\n]*`")
"""A command whose output stands in its place: what it prints is not known."""
_SET = re.compile(r"^[ \t]*set [-+][^\n]*$", re.MULTILINE)
"""Options of the shell itself."""
_UTILITY = re.compile(
    r"^[ \t]*(?:mkdir|cd|pushd|popd|source|\.|conda|module|pip3?|echo|printf|sleep|rm|cp|mv|ln|chmod|ulimit"
    r"|nvidia-smi|hostname|git|tar|wget|curl|trap|wait|kill|pkill|ray|ls|df|free|which|apt-get|apt|hf"
    r"|huggingface-cli|wandb|scontrol|sysctl|unset|shopt|exit|rsync|ssh|mount)[ \t]+[^\n&;|\\<>()]*$",
    re.MULTILINE,
)
"""Lines that prepare or watch a run, whose flags are none of its own."""
_SUM = re.compile(r"\$\(\(((?:[^()]|\([^()]*\)){1,120})\)\)")
"""Arithmetic."""
_USED = re.compile(r"\$\{?([A-Za-z_]\w*)")
_SBATCH = re.compile(r"^#SBATCH\s+(--?[\w-]+)[ =]+(\S+)", re.MULTILINE)
SHORT = {"-N": "nodes", "-G": "gpus", "-n": "ntasks", "-J": "job_name"}
"""Short flags of a batch script."""
SLURM = {
    "SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NTASKS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks_per_node", "SLURM_GPUS_PER_NODE": "gpus_per_node",
    "SLURM_GPUS_ON_NODE": "gpus_per_node",
}  # fmt: skip
"""Variables that Slurm sets, and the flags they are from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A launch script taken apart."""

    words: tuple[str, ...]
    """Words of its commands in order, variables put in."""
    variables: Mapping[str, str]
    """What it sets."""
    files: tuple[str, ...]
    """Contents that it writes with <<."""
    batch: Mapping[str, str]
    """Flags of its #SBATCH lines."""
    used: frozenset[str]
    """Names of variables that it refers to anywhere."""


def read_script(text: str) -> Script:
    """Words, variables and written files of a text."""
    rest, files = _heredocs(text)
    rest = _SET.sub("", _UTILITY.sub("", _COMMAND.sub("$OUTPUT_OF_A_COMMAND", rest)))
    scalars: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    order: list[str] = []
    words, at, raw = list[str](), 0, _words(rest)
    while at < len(raw):
        match = _NAME.fullmatch(raw[at])
        if match and match[2] == "" and at + 1 < len(raw) and raw[at + 1] == "\0(":
            end = next((i for i in range(at + 2, len(raw)) if raw[i] == "\0)"), len(raw))
            arrays[match[1]] = [word for word in raw[at + 2 : end] if not word.startswith("\0")]
            order.append(match[1])
            at = end + 1
            continue
        if match and not raw[at].startswith("-"):
            scalars.setdefault(match[1], _own_default(match[1], match[2]))
        if not raw[at].startswith("\0"):
            words.append(raw[at])
        at += 1
    for name, value in _FIRST.findall(rest):
        scalars.setdefault(name, value.strip("\"'"))
    used = {name for word in words for name in _named(word)}
    for name in order:  # a list of arguments that nothing refers to is what the text is about
        words += [] if name in used else [f"${{{name}}}"]
    batch = {
        SHORT.get(flag, flag.lstrip("-").replace("-", "_")): value
        for flag, value in _SBATCH.findall(text)
    }
    for name, source in SLURM.items():
        number = batch.get(source, "").rpartition(":")[2]
        if whole_number(number) is not None:
            scalars.setdefault(name, number)
    scalars = _settled(scalars)
    expanded = _expanded(words, scalars, arrays)
    referred = frozenset(_USED.findall(text))
    return Script(
        words=tuple(_SUM.sub(lambda one: _sum(one, scalars), word) for word in expanded),
        variables=scalars,
        files=tuple(files),
        batch=batch,
        used=referred,
    )


def _words(text: str) -> list[str]:
    """Words as a shell would split them; brackets are marked by a null before them."""
    return list(_split(text))


@lru_cache(maxsize=4)
def _split(text: str) -> tuple[str, ...]:
    """The same, kept: a launch is looked at for one tool after the other."""
    words: list[str] = []
    word: list[str] = []
    begun = False
    at = 0
    while at < len(text) and len(words) < MOST_WORDS:
        match = _PIECE.match(text, at)
        if match is None:
            break
        at, kind = match.end(), match.lastgroup
        if kind == "comment" and begun:  # a # inside a word begins no comment
            word.append("#")
            at = match.start() + 1
        elif kind in ("gap", "comment", "bracket"):
            words += ["".join(word)] if begun else []
            words += [f"\0{match['bracket']}"] if kind == "bracket" else []
            word, begun = [], False
        elif kind is not None:
            piece = match[kind]
            if kind == "double":
                piece = re.sub(r'\\(["\\$`])', r"\1", piece).replace("\\\n", "")
            word.append(piece.replace("\0", ""))
            begun = True
    return (*words, "".join(word)) if begun else tuple(words)


def _own_default(name: str, value: str) -> str:
    """`NAME=${NAME:-8}` is 8 where nothing outside the text sets it."""
    match = _VARIABLE.fullmatch(value)
    return match[2] if match and match[1] == name and match[2] is not None else value


def _named(word: str) -> list[str]:
    return [match[0] or match[2] for match in _VARIABLE.findall(word)]


def _expanded(
    words: list[str], scalars: Mapping[str, str], arrays: Mapping[str, list[str]]
) -> list[str]:
    """Words with variables put in, a few levels deep; a variable of several words becomes several."""
    for _ in range(4):
        made: list[str] = []
        for word in words:
            match = _VARIABLE.fullmatch(word)
            name = (match[1] or match[3]) if match else ""
            if name in arrays:
                made += arrays[name]
            elif name in scalars and name not in _named(scalars[name]):
                made += scalars[name].split()
            else:
                made.append(_VARIABLE.sub(lambda m: _value(m, scalars), word))
            if len(made) > MOST_WORDS:
                return made[:MOST_WORDS]
        if made == words:
            break
        words = made
    return words


def _settled(scalars: Mapping[str, str]) -> dict[str, str]:
    """Variables with those that they are made of put in, a few levels deep, and products worked out."""
    found = dict(scalars)
    for _ in range(4):
        made = {name: _put_in(name, value, found) for name, value in found.items()}
        if made == found:
            break
        found = made
    return found


def _put_in(name: str, value: str, scalars: Mapping[str, str]) -> str:
    """A variable's value with other variables and arithmetic in it worked out."""
    if len(value) > LONGEST_VALUE:
        return value
    filled = _VARIABLE.sub(lambda one: _other(one, name, scalars), value)
    return _SUM.sub(lambda one: _sum(one, scalars), filled)


def _other(match: re.Match[str], own: str, scalars: Mapping[str, str]) -> str:
    """A variable inside another's value."""
    return match[0] if (match[1] or match[3]) == own else _value(match, scalars)


def _sum(match: re.Match[str], scalars: Mapping[str, str]) -> str:
    """The whole number that a shell works out of + - * / % and brackets; else the text as it is."""
    text = re.sub(r"[A-Za-z_]\w*", lambda one: scalars.get(one[0], one[0])[:20], match[1])
    text = re.sub(r"\s", "", text)
    try:
        while inner := re.search(r"\(([^()]*)\)", text):
            text = text[: inner.start()] + str(_worked_out(inner[1])) + text[inner.end() :]
        return str(_worked_out(text))
    except (ValueError, ZeroDivisionError):
        return match[0]


def _worked_out(text: str) -> int:
    """A line of whole numbers and signs, products and quotients first; ValueError where it is none."""
    if not re.fullmatch(r"\d{1,9}(?:[-+*/%]\d{1,12})*", text):
        raise ValueError(text)
    total, sign = 0, 1
    for piece in re.findall(r"[-+]|[^-+]+", text):
        if piece in "+-":
            sign = 1 if piece == "+" else -1
            continue
        first, *rest = re.findall(r"\d+|[*/%]\d+", piece)
        term = int(first)
        for part in rest:
            other = int(part[1:])
            term = (
                term * other
                if part[0] == "*"
                else (term // other if part[0] == "/" else term % other)
            )
        total += sign * term
    return total


def _value(match: re.Match[str], scalars: Mapping[str, str]) -> str:
    """What a variable stands for: its value, its default, or itself."""
    name = match[1] or match[3]
    value = scalars.get(name, "")
    if name in scalars and name not in _named(value) and len(value) < 1000:
        return value
    return match[2] if match[2] is not None else match[0]


def _heredocs(text: str) -> tuple[str, list[str]]:
    """The text without what it writes with <<, and that."""
    files: list[str] = []
    at = 0
    for _ in range(MOST_HEREDOCS):
        at = text.find("<<", at)
        if at < 0:
            break
        match = re.compile(r"<<-?\s*['\"]?(\w{1,40})['\"]?[^\n]{0,200}\n").match(text, at)
        if match is None:
            at += 2
            continue
        end = re.compile(rf"^[ \t]*{match[1]}[ \t]*$", re.MULTILINE).search(text, match.end())
        if end is None:
            at = match.end()
            continue
        files.append(text[match.end() : end.start()])
        text = text[: match.start()] + "\n" + text[end.end() :]
    return text, files
