"""Commands inside containers and quotes: `docker run ... IMAGE command`, `apptainer exec`, `mpirun`, `bash`.

Options of the container change no answer but for two: variables that it sets, and how many GPUs it may see.
The image stands in its place as `IMAGE=name`, by which the program is known where the command is the image's
own. What a shell is told to run (`bash -c`) is read as a script of its own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.interop.shell_words import Script, read_script
from foretell.interop.whole_numbers import whole_number

ENGINES = ("docker", "podman", "nerdctl", "nvidia-docker")
"""Programs that run an image: `docker run [OPTIONS] IMAGE [COMMAND]`."""
FILES = ("apptainer", "singularity")
"""Programs that run an image in a file: `apptainer exec [OPTIONS] IMAGE COMMAND`."""
SWITCHES = frozenset(
    """--detach --rm --interactive --tty --privileged --init --read-only --publish-all --no-healthcheck
    --oom-kill-disable --disable-content-trust --quiet --nv --rocm --cleanenv --writable-tmpfs --no-home
    --containall --contain --fakeroot --compat --no-mount --nvccli --tls-verify""".split()
)
"""Options without a value."""
MPI = ("mpirun", "mpiexec", "orterun")
"""Programs that start so many processes of another."""
MPI_VALUES = frozenset(
    """-np -n -N -H -host --host -hostfile --hostfile -machinefile --machinefile -map-by --map-by -bind-to
    --bind-to -x -ppn -npernode --npernode -wdir --wdir -rank-by --rank-by -prefix --prefix""".split()
)
"""Their options with one value; `-mca` has two."""
SHELLS = ("bash", "sh", "zsh")
_LETTERS = re.compile(r"-[ditPq]+")
_GLUED = re.compile(r"-([evpuwhlmcBH])(.+)")
_OPTION_C = re.compile(r"-[a-z]*c")
_DEEPEST = 4


def without_containers(script: Script, depth: int = 0) -> Script:
    """The script with the commands inside its containers and shells in their places."""
    words: list[str] = []
    variables: dict[str, str] = {}
    files: list[str] = []
    rest = list(script.words)
    at = 0
    while at < len(rest):
        if rest[at].rpartition("/")[2] in MPI:
            at, found = _past_mpi(rest, at + 1)
            variables |= found
            continue
        begin = _options_at(rest, at)
        if begin is not None:
            image, at, found = _unwrapped(rest, begin)
            words += image[:1]
            rest[at:at] = image[1:]  # what the container begins with is read with what follows it
            variables |= found
            continue
        inner = _quoted(rest, at) if depth < _DEEPEST else None
        if inner is not None:
            told = without_containers(read_script(_with(script.variables, inner)), depth + 1)
            words += told.words
            variables |= dict(told.variables)
            files += told.files
            at = next(i for i in range(at, len(rest)) if rest[i] == inner) + 1
            continue
        words.append(rest[at])
        at += 1
    if words == list(script.words):
        return script
    known = dict(script.variables) | variables
    return replace(script, words=tuple(words), variables=known, files=(*script.files, *files))


def _options_at(words: Sequence[str], at: int) -> int | None:
    """Where the options of a container begin; None where no container does."""
    name = words[at].rpartition("/")[2]
    verbs = words[at + 1 : at + 3]
    if name in ENGINES and verbs[:1] in (["run"], ["exec"]):
        return at + 2
    if name in ENGINES and verbs[:2] in (["container", "run"], ["container", "exec"]):
        return at + 3
    if name in FILES and verbs[:1] in (["exec"], ["run"]):
        return at + 2
    return None


def _unwrapped(words: Sequence[str], at: int) -> tuple[list[str], int, dict[str, str]]:
    """(the image and what it begins with, where the command begins, variables)."""
    variables: dict[str, str] = {}
    entry = ""
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        glued = None if word.startswith("--") else _GLUED.fullmatch(word)
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if glued is not None:
            flag, value, equals = f"-{glued[1]}", glued[2].removeprefix("="), "="
        at += 1
        if not equals and (flag in SWITCHES or _LETTERS.fullmatch(flag)):
            continue
        if not equals and at < len(words):
            value, at = words[at], at + 1
        if flag in ("-e", "--env"):
            name, told, content = value.partition("=")
            if told and name.isidentifier():
                variables[name] = content
        if flag == "--gpus" and (many := _gpus(value)):
            variables["gpus_per_node"] = str(many)
        if flag == "--entrypoint":
            entry = value
    image = [f"IMAGE={words[at]}"] if at < len(words) else []
    return [*image, *([entry] if entry else [])], at + 1, variables


def _past_mpi(words: Sequence[str], at: int) -> tuple[int, dict[str, str]]:
    """(where the program behind mpirun begins, how many processes it starts)."""
    variables: dict[str, str] = {}
    while at < len(words) and words[at].startswith("-"):
        flag = words[at]
        many = 3 if flag in ("-mca", "--mca", "-genv") else 2 if flag in MPI_VALUES else 1
        if flag in ("-np", "-n") and at + 1 < len(words) and words[at + 1].isdigit():
            variables["num_processes"] = words[at + 1]
        at += many
    return at, variables


def _gpus(text: str) -> int | None:
    """How many GPUs `--gpus` names: 4, device=0,1,2,3; None of all of them."""
    plain = text.strip("\"' ")
    if plain.isdigit():
        return whole_number(plain)
    match = re.fullmatch(r"(?:count=(\d+)|\"?device=([\w,:.-]+)\"?)", plain)
    if match is None:
        return None
    return whole_number(match[1]) if match[1] else len(match[2].strip(",").split(","))


def _quoted(words: Sequence[str], at: int) -> str | None:
    """The text that a shell is told to run; None where none is."""
    if words[at].rpartition("/")[2] not in SHELLS:
        return None
    options = at + 1
    while options < len(words) and words[options].startswith("-"):
        if _OPTION_C.fullmatch(words[options]) and options + 1 < len(words):
            return words[options + 1] if " " in words[options + 1].strip() else None
        options += 1
    return None


def _with(variables: Mapping[str, str], text: str) -> str:
    """A text after what the script around it sets."""
    known = [
        f"{name}={value}" for name, value in variables.items() if name in text and " " not in value
    ]
    return "\n".join([*known, text])
