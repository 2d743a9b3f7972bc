"""What a launch file holds, whatever its form: words, processes with their launchers, settings and facts.

Every value keeps the line of the file on which it is written. A name that the file gives no value to stays
in the text as `${NAME}` and is listed in `unknown`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from foretell.records import dataclass

FactName = Literal[
    "nodes", "gpus_per_node", "gpus", "processes", "processes_per_node", "replicas", "accelerator",
    "role",
]  # fmt: skip
"""What a form can state beside a command: nodes and GPUs that it is given, processes that a launcher starts,
copies of a pod, the kind of GPU, the half of a split service."""
Form = Literal[
    "shell", "slurm", "python", "notebook", "dockerfile", "compose", "kubernetes", "helm", "skypilot",
    "dstack", "task", "ray-serve", "systemd", "yaml", "json", "toml",
]  # fmt: skip
"""Forms of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command after expansion."""

    text: str
    """The value; parts that are not known stay as `${NAME}`."""
    line: int
    """Line of the file on which it is written, counted from 1; 0 where it comes from another file."""
    raw: str = ""
    """The word as the file spells it, before expansion."""
    unknown: tuple[str, ...] = ()
    """Variables in it that the file gives no value to."""
    set_line: int = 0
    """Line on which the value itself is written, where a variable supplies it; else that of the word."""

    @property
    def known(self) -> bool:
        """Whether every variable in it has a value."""
        return not self.unknown


def plain_word(text: str, line: int) -> Word:
    """A word that is in a file as it is."""
    return Word(text=text, line=line, raw=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherLayer:
    """One launcher around a process."""

    name: str
    """Its name: srun, #SBATCH, torchrun, accelerate, deepspeed, mpirun, docker, ray job, bash -c, env ..."""
    argv: tuple[Word, ...] = ()
    """Its own words, without its name and without the command that it starts."""

    def value(self, *names: str) -> Word | None:
        """The value of an option by its names with dashes (`--nnodes`, `-N`), `_` and `-` alike; the last
        one counts; None where it is absent."""
        wanted = {name.replace("_", "-") for name in names}
        found = None
        for at, word in enumerate(self.argv):
            flag, equals, value = word.text.partition("=")
            if flag.replace("_", "-") not in wanted:
                continue
            if equals:
                found = Word(text=value, line=word.line, raw=word.raw, unknown=word.unknown)
            elif at + 1 < len(self.argv):
                found = self.argv[at + 1]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFact:
    """One thing that a form states about where its processes run."""

    name: FactName
    """What it is."""
    value: int | str
    """Its value; of an unknown one the text with `${NAME}`."""
    line: int = 0
    """Line of the file."""
    source: str = ""
    """The key or option that states it: `--gpus-per-node`, `nvidia.com/gpu`, `replicas`."""
    unknown: tuple[str, ...] = ()
    """Variables in it that the file gives no value to."""


def stated(name: FactName, value: int | str, line: int, source: str) -> StatedFact:
    """A fact that a key or an option states on a line."""
    return StatedFact(name=name, value=value, line=line, source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedProcess:
    """A process that a file launches, its launchers unwrapped."""

    program: str
    """The program: a script's path, a module of `python -m`, or a command such as `vllm`."""
    argv: tuple[Word, ...]
    """Its words, the program first."""
    env: Mapping[str, Word] = field(default_factory=dict)
    """Variables that it is started with, as far as the file sets them."""
    layers: tuple[LauncherLayer, ...] = ()
    """Launchers around it, the outermost first."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the script writes, by name as it is spelled."""
    facts: tuple[StatedFact, ...] = ()
    """What the form and the launchers state about nodes and GPUs."""
    image: str = ""
    """The container image it runs in, where one is named."""
    background: bool = False
    """Whether the script goes on beside it (`&`, nohup)."""
    extras: tuple[str, ...] = ()
    """Variables of further words that the file does not set: `@` of the caller, EXTRA_ARGS."""
    condition: str = ""
    """The condition under which it starts, where the file does not decide it."""
    copies: int = 1
    """How often the file starts it, where that is known."""
    name: str = ""
    """The name of its service, container or task in the file."""

    def layer(self, name: str) -> LauncherLayer | None:
        """The innermost launcher of a name; None where there is none."""
        return next((one for one in reversed(self.layers) if one.name == name), None)

    def fact(self, name: FactName) -> StatedFact | None:
        """The first fact of a name; None where there is none."""
        return next((one for one in self.facts if one.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSetting:
    """One key of a configuration with its value."""

    path: tuple[str, ...]
    """Keys from the root; positions of a list as `0`, `1` ..."""
    value: Any
    """A text, number, boolean, None, or a list of these."""
    line: int = 0
    """Line of the file."""
    raw: str = ""
    """The value as the file spells it."""

    @property
    def key(self) -> str:
        """The path joined by dots."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContents:
    """What a text launches."""

    form: Form
    """Its form."""
    processes: tuple[LaunchedProcess, ...] = ()
    """Processes that it starts, in order; none where it is a configuration alone."""
    settings: tuple[ConfigSetting, ...] = ()
    """Keys and values, where it is a configuration."""
    python: str = ""
    """Source of Python, where the text is a program or a notebook."""
    env: Mapping[str, Word] = field(default_factory=dict)
    """Variables that the text sets, at its end."""
    facts: tuple[StatedFact, ...] = ()
    """What the form states for all of its processes."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it writes, by name."""
    notes: tuple[str, ...] = ()
    """What was chosen or left out while reading, a sentence each."""
    missing: tuple[str, ...] = ()
    """Files that it sources or starts and that are not beside it."""
    asks: tuple[str, ...] = ()
    """Values that the file needs and does not contain, a sentence each."""
