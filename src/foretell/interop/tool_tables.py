"""What each tool's keys mean, as data: interop/tools/NAME.toml, one file a tool, and the lookup of one key.

    family     whose step it is: training, megatron, policy (reinforcement learning), service
    include    tables whose keys it has too, with the path that they are under; `unread` where they matter and
    are
               not read
    fields     field of ours = keys of the tool that set it, the one that counts first
    backends   the same for one trainer behind the tool (`backend` says which runs)
    values     field = their word and ours
    words      field = our word and theirs, where a reader asks for them by name
    tables     keys that are tables: what is in one and is in no list matters
    sources    value = the keys or fields that it is from; CHIPS are all names for chips
    writes     flag or key = what of a plan it says, for the writer (export_tables.py)
    rules      lists of rows that several keys decide together (rules.py)
    written    rows of conditions and of what they write of a plan, for the writer (training_write.py)
    products   degree = keys whose product it is, each with its own default
    plan       key = their value and the words of a plan that it stands for
    defaults   what the tool does where a file is silent, by field; `defaults.plan` in words of a plan
    same       keys that are fields of ours by their own names
    bears      keys that move time or memory and are not modelled
    quiet      keys that move neither

Lists of keys share beginnings: `a.{b c.{d e}}` is a.b, a.c.d and a.c.e, and `a|b.{c d}` is a.c, a.d,
b.c and b.d. A key in no list is unknown.
"""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass

Verdict = Literal["sets", "bears", "quiet"]
"""What a key does: sets a value of ours, matters and is not modelled, or moves no time and no memory."""
_MATTERS = re.compile(
    r"batch|bsz|parallel|shard|zero|offload|recompute|remat|precision|dtype|fp8|fp4|fp16|bf16|quant|lora|"
    r"length|seq|tokens?_per|max_tokens|gpu|node|device|memory|mem_|cache|compile|fus(?:ed|ion)|flash|attn|"
    r"attention|overlap|accum|micro|layers|hidden_size|heads|expert|moe|pack|graph|world_size|replica|"
    r"n_samples|recipe|num_generations|unfrozen|freeze_(?:llm|language|lm|layers|model)|^freeze$|speculative|draft|vocab_size|(?:^|[._])(?:tp|pp|dp|cp|ep|sp|etp|vpp)(?:_|$)",
    re.IGNORECASE,
)
_TALK = re.compile(
    r"eval|valid|log|wandb|save|ckpt|checkpoint_(?!ing)|tokenizer|prompt_key|report|path|dir|url|name|seed|"
    r"profil|timeout|port|metric|reward",
    re.IGNORECASE,
)

ALL_CHIPS = ("world_size", "num_processes", "ng", "gpus", "n_gpus")
"""Names for all chips of a job."""
NODE_CHIPS = (
    "nproc_per_node", "gpus_per_node", "num_gpus_per_node", "devices", "n_gpus_per_node", "num_gpus",
    "gres", "ngpu",
)  # fmt: skip
"""Names for the chips of a node."""
NODE_TASKS = ("ntasks_per_node",)
"""Names for the processes of a node, where none says its chips."""
NODES = ("nnodes", "num_nodes", "nodes", "num_machines")
"""Names for nodes; a range of torchrun's counts with its most."""
CHIP_KEYS = (*ALL_CHIPS, *NODE_CHIPS, *NODE_TASKS, *NODES)
"""All of them, for a table of what was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTable:
    """One tool's keys."""

    tool: str
    """Its name."""
    family: str
    """Whose step it is."""
    source: str = ""
    """Releases and files that the keys were read from."""
    programs: tuple[str, ...] = ()
    """Parts of the program's name that say it is this tool."""
    weak: tuple[str, ...] = ()
    """Parts of its name that other programs have too."""
    bases: frozenset[str] = frozenset()
    """Tables that it includes whole."""
    own_marks: frozenset[str] = frozenset()
    """Those of them that the tables it includes do not have."""
    marks: frozenset[str] = frozenset()
    """Keys that few other tools have."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field of ours -> keys, the one that counts first."""
    backends: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Trainer -> fields that its keys set."""
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Field -> their word -> ours."""
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Field -> their word -> ours, where a reader asks for them by name."""
    tables: frozenset[str] = frozenset()
    """Keys that are tables: a key inside one that no list has matters."""
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Value -> keys or fields that it is from, where these are not of its own name."""
    writes: Mapping[str, str] = field(default_factory=dict)
    """Flag or key -> the value that is written there."""
    written: tuple[Mapping[str, Any], ...] = ()
    """Rows of a plan's arguments: conditions, and the flags or keys that they write (training_write.py)."""
    plan: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Key -> their value -> words of a plan."""
    rules: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    """What several keys decide together: rows of conditions and words (rules.py)."""
    products: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Degree -> keys whose product it is, each with what it is where it is not given."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Field -> what the tool does where nothing is stated."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """How the step is put together, where the family leaves it open."""
    bears: frozenset[str] = frozenset()
    """Keys that matter and are not modelled."""
    quiet: frozenset[str] = frozenset()
    """Keys that do not matter."""
    read: frozenset[str] = frozenset()
    """Keys that set something."""
    switches: frozenset[str] = frozenset()
    """Flags that take no value: a word behind one is by itself."""
    last: bool = False
    """Whether the last part of a dotted key counts alone: `model.seq_length` is seq_length."""
    free: tuple[str, ...] = ()
    """Paths below which names are the user's own: a key there that is not known stops nothing, and is
    named."""

    def verdict(self, key: str) -> Verdict | None:
        """What a key does; None where no list has it."""
        if key in self.read:
            return "sets"
        if key in self.bears:
            return "bears"
        if key in self.quiet:
            return "quiet"
        if any(key.startswith(f"{one}.") for one in self.tables):
            return "bears"
        plain = re.sub(r"\.\d+(?=\.|$)", "", key)
        return None if plain == key else self.verdict(plain)

    @property
    def known(self) -> frozenset[str]:
        """Every key with a verdict."""
        return self.read | self.bears | self.quiet


def unknown_sentence(key: str, table: ToolTable) -> str | None:
    """Why a key that no table knows stops an import; None where it is named and no more."""
    near = resembles(key, table)
    if near is not None:
        return f"{key} is not known here: a misspelling of {near}?"
    if may_matter(key) and not any(key.startswith(one) for one in table.free):
        return f"{key} is not known here, and its name says that it may matter"
    return None


def may_matter(key: str) -> bool:
    """Whether a key that no table knows sounds like time or memory, by the last part of its name."""
    last = key.rpartition(".")[2]
    return bool(_MATTERS.search(last)) and not _TALK.search(last)


def resembles(key: str, table: ToolTable) -> str | None:
    """The key that sets a value and that another, unknown, may be a misspelling of: two letters at most."""
    front, _, last = key.rpartition(".")
    if len(last) < 5:
        return None
    for known in sorted(table.read, key=lambda one: (len(one), one)):
        own_front, _, own = known.rpartition(".")
        if (
            abs(len(own) - len(last)) > 2
            or own == last
            or (front and own_front and front != own_front)
        ):
            continue
        if own[0] == last[0] and len(own) > 4 and _near(last, own):
            return known
    return None


def _near(one: str, other: str) -> bool:
    """Whether at most two letters are added, missing, exchanged or swapped."""
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if at is None:
        return True
    back = next(
        (n for n, (a, b) in enumerate(zip(one[::-1], other[::-1], strict=False)) if a != b), 0
    )
    inner = max(len(one) - at - back, 0), max(len(other) - at - back, 0)
    return max(inner) <= 2


TOOLS = Path(__file__).parent / "tools"
"""A file for each tool."""


@cache
def tool_names() -> tuple[str, ...]:
    """Tools that have a table."""
    return tuple(sorted(path.stem for path in TOOLS.glob("[!_]*.toml")))


@cache
def heads() -> Mapping[str, str]:
    """Tool -> everything by which it is recognised, in one line each: parts of programs and telling keys.

    Tables are long, and most launches need one of them: their heads are found without reading the rest."""
    found: dict[str, str] = {}
    for name in tool_names():
        text = (TOOLS / f"{name}.toml").read_text("utf-8")[:4000]
        found[name] = " ".join(
            re.findall(r'^(?:programs|weak|marks) = "(.*)"$', text, re.MULTILINE)
        )
    return found


@cache
def table_of(name: str) -> ToolTable:
    """A tool's table, with the keys of those that it includes."""
    raw = packaged_table(TOOLS / f"{name}.toml")
    inner = [
        (
            table_of(one["table"]) if not one.get("unread") else _unread(table_of(one["table"])),
            under,
        )
        for one in raw.get("include", ())
        for under in one.get("under", "").split() or [""]
    ]
    family = raw.get("family", inner[0][0].family if inner else "training")
    fields = {key: tuple(expand(told)) for key, told in raw.get("fields", {}).items()}
    fields = {key: (key,) for key in expand(raw.get("same", ""))} | fields
    plan: dict[str, dict[str, Any]] = {
        key: _folded(told) for keys, told in raw.get("plan", {}).items() for key in expand(keys)
    }
    values = {key: _folded(told) for key, told in raw.get("values", {}).items()}
    backends = {
        name: {key: tuple(expand(told)) for key, told in own.items()}
        for name, own in raw.get("backends", {}).items()
    }
    words = {key: _by_theirs(told) for key, told in raw.get("words", {}).items()}
    products = {key: tuple(told.split()) for key, told in raw.get("products", {}).items()}
    bears, quiet = set(expand(raw.get("bears", ""))), set(expand(raw.get("quiet", "")))
    switches = set(expand(raw.get("switches", "")))
    defaults, options = dict(raw.get("defaults", {})), dict(raw.get("options", {}))
    rules = {key: tuple(rows) for key, rows in raw.get("rules", {}).items()}
    marks, bases = set(expand(raw.get("marks", ""))), set[str]()
    sources: dict[str, tuple[str, ...]] = {}
    if "style" in options:
        style = table_of(f"_{options['style']}")
        rules, sources = {**style.rules, **rules}, dict(style.sources)
    for one, under in inner:
        sources |= one.sources
        if not under:
            marks |= one.marks
            bases |= {one.tool, *one.bases}
        same = family == one.family
        for key, told in one.fields.items():
            more = tuple(f"{under}{name}" for name in told)
            # A field of another family may be another thing: its keys are known, and no more.
            named = key if same or key in more else f"{one.tool}: {key}"
            fields[named] = tuple(dict.fromkeys((*fields.get(named, ()), *more)))
        plan = {f"{under}{key}": dict(told) for key, told in one.plan.items()} | plan
        shared = {key: dict(told) | values.get(key, {}) for key, told in one.values.items()}
        values = values | shared if same else values
        words = {key: dict(told) for key, told in one.words.items()} | words
        switches |= {f"{under}{key}" for key in one.switches}
        bears |= {f"{under}{key}" for key in one.bears}
        quiet |= {f"{under}{key}" for key in one.quiet}
        if same:
            defaults = dict(one.defaults) | defaults
            options = dict(one.options) | options
            rules = {**one.rules, **rules}
    read = {key for keys in fields.values() for key in keys} | set(plan)
    read |= {one.partition(":")[0] for keys in products.values() for one in keys}
    read |= {key for own in backends.values() for keys in own.values() for key in keys}
    return ToolTable(
        tool=name,
        family=family,
        source=raw.get("source", ""),
        programs=tuple(raw.get("programs", "").split()),
        weak=tuple(raw.get("weak", "").split()),
        bases=frozenset(bases),
        own_marks=frozenset(expand(raw.get("marks", ""))),
        marks=frozenset(marks),
        fields=fields,
        backends=backends,
        values=values,
        plan=plan,
        words=words,
        tables=frozenset(raw.get("tables", "").split()),
        sources=sources | {key: _sources(told) for key, told in raw.get("sources", {}).items()},
        writes=raw.get("writes", {}),
        written=tuple(raw.get("written", ())),
        rules=rules,
        products=products,
        defaults=defaults,
        options=options,
        bears=frozenset(bears - read),
        quiet=frozenset(quiet - read - bears),
        read=frozenset(read),
        switches=frozenset(switches),
        last=bool(raw.get("last")),
        free=tuple(raw.get("free", "").split()),
    )


@cache
def own_configurations(file: str) -> Mapping[str, Any]:
    """Configurations that a tool ships by name, and what each sets; models that it knows by name."""
    return packaged_table(TOOLS.parent / file)


def _unread(table: ToolTable) -> ToolTable:
    """A table whose keys another tool takes and does not read: those that set something matter there."""
    return replace(
        table,
        fields={},
        plan={},
        values={},
        sources={},
        rules={},
        defaults={},
        bears=table.bears | table.read,
        read=frozenset(),
    )


def expand(text: str) -> list[str]:
    """Keys of a list whose beginnings are shared."""
    found: list[str] = []
    stack: list[tuple[str, ...]] = [("",)]
    for word in re.findall(r"[^\s{}]*\{|\}|[^\s{}]+", text):
        if word == "}":
            stack.pop()
            continue
        ends = word.removesuffix("{").removesuffix(".").split("|")
        dot = "." if word.endswith(".{") else ""
        longer = tuple(f"{start}{end}{dot}" for start in stack[-1] for end in ends)
        if word.endswith("{"):
            stack.append(longer)
        else:
            found += longer
    return found


def _by_theirs(words: Mapping[str, str]) -> dict[str, str]:
    """Our words and theirs as their word and ours."""
    return {theirs: ours for ours, many in words.items() for theirs in many.split()}


def _sources(text: str) -> tuple[str, ...]:
    """Keys that a value is from."""
    return tuple(
        name for word in text.split() for name in (CHIP_KEYS if word == "CHIPS" else (word,))
    )


def _folded(words: Mapping[str, Any]) -> dict[str, Any]:
    """Their words in lower case."""
    return {str(word).lower(): ours for word, ours in words.items()}
