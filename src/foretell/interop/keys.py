"""Typed access to the arguments of one tool, which remembers what was read and what was wrong.

As the reader of configs does (huggingface/config.py), it never stops at the first fault: a value that
cannot be is recorded, and all faults are raised together.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.interop.arguments import ArgumentTable
from foretell.interop.forms.values import worked_out
from foretell.interop.launch import Known, ReadValue
from foretell.interop.tool_tables import ALL_CHIPS, NODE_CHIPS, NODE_TASKS, NODES, table_of

LARGEST = 10**9
"""Degrees, batches and lengths above this are a typing error."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0{1,6})?")
_TRUTH = {
    "true": True, "1": True, "yes": True, "on": True,
    "false": False, "0": False, "no": False, "off": False,
}  # fmt: skip
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|\?+|\{\{.*\}\}|TODO.*|YOUR.*|your_.*|"
    r"[\d *]*\b[a-z]\w*(?:\.\w+)+",
    re.DOTALL,
)
"""Texts that stand for a value which the user is to fill in, or that is worked out elsewhere."""
EMPTY_WORDS = ("none", "null", "auto", "default", "")
"""How tools spell that a value is left to them."""


LAUNCHER_FLAGS = frozenset(
    """mpi container_image container_mounts container_workdir container_name container_mount_home
    container_writable container_remap_root container_env kill_on_bad_exit cpu_bind label unbuffered overlap
    jobid hostfile allow_run_as_root map_by bind_to mca master_addr master_port node_rank rdzv_id rdzv_backend
    rdzv_endpoint rdzv_conf max_restarts monitor_interval log_dir redirects no_python standalone""".split()
)
"""Flags of srun (pyxis), mpirun, torchrun and deepspeed that say where processes run, not what they do."""


FLAG_OF = table_of("_training").words["flag"]
"""The flag of ours that says a field."""


class LeftArguments(NamedTuple):
    """Arguments that no reader turned into a value."""

    bears: tuple[str, ...]
    """Those that bear on latency or memory and are not modelled."""
    quiet: tuple[str, ...]
    """Those that change no answer."""
    unknown: tuple[str, ...]
    """Those that are not known."""


class Keys:
    """The arguments of one tool."""

    tool: str
    """Whose arguments, in messages."""
    notes: list[str]
    """What was converted or taken for granted."""
    doubts: list[str]
    """What may change the answer and is not understood."""
    unset: set[str]
    """Arguments whose value is a variable that the text does not set."""
    asks: list[str]
    """Values that the text needs and does not have, a sentence each."""
    problems: list[Problem]
    """What is wrong so far."""
    given: ArgumentTable
    """The arguments as they were given."""
    alone: frozenset[str]
    """Keys of the tool that are words of a plan by themselves."""
    defaults: frozenset[str]
    """Names that the text does not have: a configuration of the tool's own that it names sets them."""
    words: list[str]
    """Words that belong to no flag, in order."""

    def __init__(self, given: ArgumentTable, *, tool: str) -> None:
        """The arguments by the names of `given`."""
        self.tool, self.notes, self.doubts, self.problems = tool, [], [], []
        self.given, self.defaults, self.asks, self.unset = given, frozenset(), [], set[str]()
        self.alone, self.variables = frozenset[str](), given.variables
        self.words = list(given.words)
        self._pairs: dict[str, Any] = {}
        for name, value in given.pairs:
            before = self._pairs.get(name)
            if before is not None and before != value:
                self.notes.append(f"{name[:60]} is given more than once: the last counts")
            self._pairs[name] = value

    @property
    def pairs(self) -> Mapping[str, Any]:
        """Every argument and its value."""
        return self._pairs

    def has(self, *names: str) -> bool:
        """Whether any of the names is given."""
        return any(name in self._pairs for name in names)

    def raw(self, *names: str) -> Any:
        """The first of the names that is given, as it is; None where none is."""
        for name in names:
            value = self._pairs.get(name)
            if value is not None:
                return value
        return None

    def whole(self, *names: str, low: int = 1, high: int = LARGEST) -> int | None:
        """A whole number, None where absent, left to the tool, or not in the text."""
        value = self._one(*names)
        if value is None:
            return None
        text = str(value).strip().replace("_", "")
        if "**" in text and (power := worked_out(text, lambda name: None)) is not None:
            text = str(power)
        if _PLACEHOLDER.fullmatch(str(value).strip()):
            self.ask_for(next(name for name in names if name in self._pairs), str(value))
            return None
        if isinstance(value, bool) or not _WHOLE.fullmatch(text):
            self.problem(names[0], "is not a whole number", value, f"{low} to {high}")
            return None
        number = int(text.partition(".")[0])
        if not low <= number <= high:
            self.problem(names[0], "is out of range", value, f"{low} to {high}")
            return None
        return number

    def number(self, *names: str, low: float = 0.0, high: float = 1e12) -> float | None:
        """A number between two ends."""
        value = self._one(*names)
        if value is None:
            return None
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not low <= number <= high:
            self.problem(names[0], "is not a usable number", value, f"{low:g} to {high:g}")
            return None
        return number

    def flag(self, *names: str) -> bool | None:
        """Whether a switch is on; None where it is not given."""
        for name in names:
            if self.has(f"no_{name}"):
                return False
        value = self._one(*names)
        if value is None or isinstance(value, bool):
            return value
        if str(value).lower() in _TRUTH:
            return _TRUTH[str(value).lower()]
        self.problem(names[0], "is neither true nor false", value, "true or false")
        return None

    def text(self, *names: str) -> str | None:
        """A text; the words of several are joined by spaces."""
        value = self.raw(*names)
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, list):
            value = " ".join(str(item) for item in value)
        return None if str(value).strip().lower() in EMPTY_WORDS else str(value).strip()

    def choice(self, names: Sequence[str], known: Mapping[str, str]) -> str | None:
        """Our word for one of their words; another word is a problem."""
        value = self.text(*names)
        if value is None:
            return None
        plain = value.lower()
        if plain in known:
            return known[plain]
        if "$" in plain:
            self.ask_for(next(name for name in names if name in self._pairs), value)
            return None
        self.problem(names[0], "is none of the values known here", value, ", ".join(known),
                     nearest_name(plain, known))  # fmt: skip
        return None

    def problem(
        self, key: str, message: str, value: object = None, allowed: str | None = None,
        nearest: str | None = None,
    ) -> None:  # fmt: skip
        """Record that an argument is wrong."""
        shown = value if isinstance(value, int | float) else str(value)[:200]
        self.problems.append(
            wrong(f"import: {self.given.spelt.get(key, key)}", shown, message, allowed, nearest)
        )

    def note(self, sentence: str) -> None:
        """Record what was converted or taken for granted."""
        self.notes.append(sentence)

    def doubt(self, sentence: str) -> None:
        """Record what may change the answer and is not understood."""
        self.doubts.append(sentence)

    def ask(self, sentence: str) -> None:
        """Record a value that the text does not have, and the flag that says it."""
        if sentence not in self.asks:
            self.asks.append(sentence)

    def ask_for(self, name: str, value: str) -> None:
        """Ask for a variable that a value is made of."""
        self.unset.add(name)
        unset = re.search(r"\$\{?(\w+)", value)
        key = self.given.spelt.get(name, name)
        flag = FLAG_OF.get(name, "a plan's word says it in --plan")
        self.ask(f"{unset[1] if unset else value[:40]} is not set in the file ({key[:60]}): {flag}")

    def said_as(self, *names: str) -> list[str]:
        """Those of some names that are given, or set as a variable of the script."""
        known = {name.lower() for name in self.variables}
        own = (name for name in names if name not in self.defaults)
        return [
            one for one in own if one in self._pairs or one in self.alone or one.lower() in known
        ]

    def raise_problems(self) -> None:
        """Raise BadInput with everything that is wrong."""
        if self.problems:
            raise BadInput(self.problems)

    def _one(self, *names: str) -> Any:
        """A single value; a variable that the text does not set is none, and is stated."""
        value = self.raw(*names)
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, str):
            value = value.strip().strip("\"'")
            if "$" in value:
                self.ask_for(next((name for name in names if name in self._pairs), names[0]), value)
                return None
            if value.lower() in EMPTY_WORDS:
                return None
        if isinstance(value, dict):
            self.problem(names[0], "is a table", "{...}", "a single value")
            return None
        return value


def is_truth(value: Any) -> bool:
    """Whether a value is one of a switch."""
    return isinstance(value, bool) or value is None or str(value).lower() in _TRUTH


def plan_words(values: Mapping[str, object]) -> str:
    """Fields of a plan as its words: degrees, switches, key=value; None is left out."""
    degrees = {
        "micro_batch": "mbs",
        **{n: n for n in ("tp", "pp", "vpp", "dp", "cp", "ep", "etp", "zero")},
    }
    words = []
    for name, value in values.items():
        if value is None:
            continue
        if name in degrees:
            words.append(f"{degrees[name]}{value}")
        elif isinstance(value, bool):
            words.append(name if value else f"no-{name}")
        elif isinstance(value, tuple):
            words.append(f"{name}={','.join(value)}")
        elif isinstance(value, float):
            words.append(f"{name}={value:.6f}".rstrip("0").rstrip("."))
        else:
            words.append(f"{name}={value}")
    return " ".join(words)


DIVIDED = ("tp", "pp", "cp", "gpus")
"""Values that the number of replicas follows from."""


def drop_unset(
    keys: Keys,
    values: dict[str, object],
    job: dict[str, Any],
    sources: Mapping[str, tuple[str, ...]],
) -> None:
    """Take out of a launch what follows from variables that its text does not set: these are asked for."""
    if not keys.unset:
        return
    open_ = {name for name in (*values, *job) if keys.unset & {*sources.get(name, (name,))}}
    if open_ & {*DIVIDED} or "dp" in open_:
        open_ |= {"dp"}
        if not keys.said_as(*(name for name in sources.get("global_batch", ())[:1])):
            open_ |= {"global_batch"}
    for name in open_:
        if name in values:
            values[name] = None
        if name in job:
            job[name] = None


def world_size(keys: Keys, known: Known) -> int | None:
    """Chips of a training command: by hand, torchrun's, a batch script's, or a variable's; None where not
    stated.

    accelerate's num_processes and a plain world_size count all of them, the others those of a node.
    """
    every, each, nodes = _chip_counts(keys)
    if known.gpus is not None:
        return known.gpus
    if every is not None:
        return every
    return None if each is None else each * (nodes or 1)


def enough_chips(keys: Keys, known: Known, gpus: int | None, ranks: int) -> int | None:
    """Chips of a training command, where they are as many as a replica's ranks; else they are asked for."""
    if gpus is None or known.gpus is not None or gpus >= ranks:
        return gpus
    keys.ask(f"tp x pp x cp = {ranks} is more than the {gpus} GPUs of the file: --gpus")
    return None


def node_size(keys: Keys, gpus: int | None) -> int | None:
    """Chips of a node of a training command: stated, or all of them over its nodes; None where neither is."""
    _, each, nodes = _chip_counts(keys)
    if each is None and gpus is not None and nodes is not None and gpus % nodes == 0:
        return gpus // nodes
    return each


_LAST_NUMBER = re.compile(r"(?:.*[:x])?([0-9]{1,7})")


def _chip_counts(keys: Keys) -> tuple[int | None, int | None, int | None]:
    """Chips of all nodes, chips of one, and nodes, as far as a command or its script says them."""
    variables = {name.lower(): value for name, value in keys.variables.items()}
    each = _count(keys, variables, NODE_CHIPS) or _count(keys, variables, NODE_TASKS)
    return _count(keys, variables, ALL_CHIPS), each, _count(keys, variables, NODES)


def _count(keys: Keys, variables: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The first of some names that says a number, among the arguments, then among a script's variables."""
    told = (keys.raw(name) for name in names if keys.has(name))
    texts = [str(value[0] if isinstance(value, list) and value else value) for value in told]
    texts += [variables[name] for name in names if name in variables]
    for text in texts:
        match = _LAST_NUMBER.fullmatch(text.strip().strip("\"'[]"))
        if match and int(match[1]):
            return int(match[1])
    return None


def read_back(
    keys: Keys, values: Mapping[str, object], sources: Mapping[str, tuple[str, ...]]
) -> tuple[ReadValue, ...]:
    """A row for each value: the arguments it is from with their line, else the tool's default.

    `sources` names the arguments of each value; one that has none has its own name.
    """
    rows = []
    for name, value in values.items():
        if value is None:
            continue
        own = keys.given.spelt
        said = keys.said_as(*sources.get(name, (name,)))
        given = [*dict.fromkeys(own.get(key, key) for key in said)]
        line = next((at for at in (line_of(keys.given, key) for key in given) if at), None)
        word = not given and isinstance(value, str) and value in keys.words
        if word:
            line = next(
                (n for n, one in enumerate(keys.given.text.splitlines(), 1) if str(value) in one),
                None,
            )
        rows.append(
            ReadValue(
                name=name,
                value=_shown(value),
                origin="file" if given or word else "tool default",
                key=", ".join(key.lstrip("$") for key in given[:3]),
                line=line,
            )
        )
    return tuple(rows)


LONGEST_KEY = 500
"""Characters of a key that is looked for in a launch."""


def line_of(given: ArgumentTable, key: str) -> int | None:
    """The line that says a key: its parts one after the other, the last place where it is a flag."""
    text, at = given.text, 0
    if key in given.places:
        return given.places[key] or None
    if len(key) > LONGEST_KEY:  # nothing that any tool calls a flag
        return None
    found = [one.start() for one in re.finditer(_spelt(key), text)]
    said = [place for place in found if not _commented(text, place)]
    dotted = said or found
    if dotted:
        return text.count("\n", 0, dotted[-1]) + 1
    for part in key.split("."):
        match = re.compile(_spelt(part)).search(text, at)
        if match is None:
            continue
        at = match.end()
    return text.count("\n", 0, at) + 1 if at else None


def _commented(text: str, at: int) -> bool:
    """Whether a place is in a line that is a comment."""
    return text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith("#")


def _spelt(key: str) -> str:
    """A pattern for a key in its spellings: dashes for underscores, letters of any case."""
    return r"(?i)(?<!\w)(?<!\w-)" + re.escape(key).replace("_", "[-_]") + r"(?!-?\w)"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
