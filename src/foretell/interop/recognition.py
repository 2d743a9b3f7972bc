"""Which tool a launch is for, by score: the program that it runs, keys that few other tools have, and how
many of its
keys a tool's table knows."""

import re
from collections.abc import Sequence, Set
from dataclasses import replace
from functools import cache, lru_cache

from foretell.errors import BadInput, bad_input
from foretell.interop.arguments import ArgumentTable
from foretell.interop.launch import Known, Tool
from foretell.interop.named_files import with_files
from foretell.interop.tool_tables import ToolTable, heads, table_of, tool_names

PROGRAM, WEAK, MARK, SHARE = 10.0, 2.0, 3.0, 8.0
"""What the program's name counts, one that others have too, each telling key, and all keys being known."""
LEAST_SHARE = 0.4
"""The least share of keys that a table must know where the program does not say whose they are."""
SURE = 15.0
"""The score of a tool whose program is named, or of which several telling keys are given."""
COMPLETE = 100
"""Keys of a table that has all of its tool's."""
LEAST = 3.0
"""The least score of a tool; below it none is recognised."""
_BESIDE = re.compile(
    r"router|proxy|simulator|pytest|text_gen|(?:^|[ /_])ptq[ _]|load_balanc|bench|frontend|disaggregated|"
    r"convert|conversion/|roundtrip|ch?kpt\.py|checkpoint\.py|maxengine|jetstream|mmlu|download|tokenize|"
    r"(?:^|[ /_.-])(?:preprocess(?:_\w+)?|analyze\w*|prune|quantize|export|generat(?:e|ion)|predict|"
    r"inference|infer|eval|evaluate|zero_?shot|merge\w*)(?:_(?:gpt|data|model|lora|weights|samples))*\.py\b|"
    r"(?:^|[ /_.-])(?:generate|inference|infer)(?:_\w+)?\.py\b"
)
"""Programs that are beside a server, prepare a run or use a model: they are no launch of one that is
known."""
_MODULE = re.compile(r"[\w.]+\.\w*(?:inference|infer|evaluate|convert|ckpt|checkpoint)")
"""A module that uses or turns a model, as a word of its own."""
_INDEX = re.compile(r"\.\d+(?=\.|$)")
_PROGRAM = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.(?:py|sh)|\w+(?:\.\w+)+")
"""A file or module of somebody's own."""


def recognise(given: ArgumentTable) -> Tool:
    """The tool of a launch; BadInput where none has enough of its marks."""
    near = _near(program_of(given), frozenset(key for key, _ in given.pairs))
    scores = {name: score(given, table_of(name)) for name in near or tool_names()}
    best = max(scores.values())
    likely = [name for name in scores if scores[name] == best]
    if best >= LEAST:
        nearest = [
            one for one in likely if all({one} <= {name, *table_of(name).bases} for name in likely)
        ]
        if nearest:
            return nearest[0]
    message = "is of no tool known here" if best < LEAST else f"could be for {' or '.join(likely)}"
    parts = sorted({part for key, _ in given.pairs for part in key.split(".")})
    shown = ", ".join(parts[:8])[:200] or None
    names = ", ".join(tool_names())
    raise bad_input(
        "import",
        shown,
        message,
        f"a launch of {names}; the command before the arguments says whose",
    )


@lru_cache(maxsize=256)
def _near(program: str, keys: frozenset[str]) -> list[str]:
    """Tools of which a program or a telling key is there; a file may run one program many times."""
    return [
        name
        for name, head in heads().items()
        if any(_named(one, program) or _marked(one, keys) for one in head.split())
    ]


def launched_tools(
    tables: Sequence[ArgumentTable], tool: Tool | None, known: Known
) -> list[tuple[ArgumentTable, Tool]]:
    """The processes of a file that launch a tool known here, the surest first; BadInput where none does."""
    found: list[tuple[float, int, ArgumentTable, Tool]] = []
    problems: list[BadInput] = []
    for at, given in enumerate(tables):
        words = (f"{one}.py" if _MODULE.fullmatch(one) else one for one in given.words[:3])
        if given.started and _BESIDE.search(" ".join(words).lower()):
            continue
        try:
            whose = instead_of(tool or given.tool or _recognised(given, known), given)
        except BadInput as error:
            problems.append(error)
            continue
        if not _is_beside(given, table_of(whose)):
            found.append((-score(given, table_of(whose)), at, given, whose))
    if not found:
        raise problems[0] if problems else nothing_launched(tables[0].text)
    return [(given, whose) for _, _, given, whose in sorted(found, key=lambda one: one[:2])]


def _is_beside(given: ArgumentTable, table: ToolTable) -> bool:
    """Whether a verb, module or key says that the tool does something else than train or serve."""
    marks = {*str(table.options.get("beside", "")).split()}
    modules = [str(value) for key, value in given.pairs if key in ("m", "module")]
    words = [*given.words[:3], *modules] if given.started else []
    return any(
        word.endswith(mark) if "/" in mark else mark in (word, _last(word))
        for word in words
        for mark in marks
    ) or any(
        key in marks for key, value in given.pairs if value not in (None, False, "false", "False")
    )


def _last(word: str) -> str:
    """The last part of a path or of a module's name."""
    return re.split(r"[./]", word.removesuffix(".py"))[-1]


def instead_of(tool: Tool, given: ArgumentTable) -> Tool:
    """The tool whose step runs where keys of it are among a trainer's: LLaMA-Factory with Megatron's."""
    keys = {key for key, _ in given.pairs}
    for other, marks in table_of(tool).options.get("instead", {}).items():
        if keys & {*marks.split()}:
            return str(other)
    return tool


def _recognised(given: ArgumentTable, known: Known) -> Tool:
    """The tool of a launch, by the files that it names where it does not say so itself."""
    try:
        return recognise(given)
    except BadInput:
        if not known.files:
            raise
        return recognise(with_files(given, known.files, "trainer"))


def nothing_launched(text: str) -> BadInput:
    """The refusal of a text that starts nothing."""
    return bad_input(
        "import",
        next((line for line in text.splitlines() if line.strip()), "").strip()[:80],
        "launches no training and no server that is known here",
        f"a launch of {', '.join(tool_names())}",
    )


def score(given: ArgumentTable, table: ToolTable) -> float:
    """How much a launch looks like one of a tool."""
    keys = {key for key, value in given.pairs if not key.startswith("$")}
    program = program_of(given)
    named = _program_score(table, program)
    weak = any(_named(one, program) for one in table.weak)
    marks = [one for one in table.marks if _marked(one, keys, table.last)]
    own = given.started and any(
        table.family != "service" or _PROGRAM.fullmatch(word) for word in given.words[:1]
    )
    few = own and len(marks) < 2
    if not named and (
        not (weak or marks)
        or (few and not (weak and (marks or not keys)))
        or (table.bases and not weak and not table.own_marks & {*marks})
    ):
        return (
            0.0  # nothing speaks for it, or nothing that does not for the tool that it is made of
        )
    kinds = {_INDEX.sub("", key) for key in keys}  # a list of many rows is one of a few keys
    known = {key for key in kinds if _known(key, table)}
    theirs = {key for key in kinds - known if not key.startswith(table.free)}
    share = len(known) / len(known | theirs) if table.known and known else 0.0
    if (
        not named
        and len(table.known) > COMPLETE
        and share < (LEAST_SHARE if given.started or len(kinds) > 8 else 0.0)
    ):
        return 0.0
    return PROGRAM * named + WEAK * weak + MARK * min(len(marks), 6) + SHARE * share


def program_of(given: ArgumentTable) -> str:
    """Words that may name the program: those that belong to no flag, and a module."""
    module = next((str(value) for key, value in given.pairs if key in ("m", "module")), "")
    lists = [value for _, value in given.pairs if isinstance(value, list)] if given.words else []
    behind = [str(one) for value in lists for one in value[1:]]
    return " ".join(word[:200] for word in (*given.words[:200], module, *behind[:200])).lower()


def is_sure(given: ArgumentTable, tool: Tool) -> bool:
    """Whether a process is the tool's by its program's name or by several keys."""
    return given.started and score(given, table_of(tool)) >= SURE


def _program_score(table: ToolTable, program: str) -> int:
    """1 where the program's name says that it is the tool's, 3 where two words or a whole one do, else 0."""
    return max(
        (3 if {"+", "$"} & {*one} else 1 for one in table.programs if _named(one, program)),
        default=0,
    )


def _named(part: str, program: str) -> bool:
    """Whether a program's name has a part where a word begins: `a+b` is two words, `a$` a whole one."""
    text = part.lower().removesuffix("$").replace("+", " ")
    return text in program and _pattern(part, text).search(program) is not None


@cache
def _pattern(part: str, text: str) -> re.Pattern[str]:
    """Where a word begins with a part of a program's name; parts are those of the tables."""
    end = r"(?![\w.])" if part.endswith("$") else "(?!-workspace)"
    return re.compile(rf"(?<![a-z0-9]){re.escape(text)}{end}")


def _marked(mark: str, keys: Set[str], last: bool = True) -> bool:
    """Whether a telling key is there, or a part of a longer one."""
    if mark in keys or any(key.startswith(f"{mark}.") for key in keys):
        return True
    return last and "." not in mark and any(key.endswith(f".{mark}") for key in keys)


def _known(key: str, table: ToolTable) -> bool:
    if table.verdict(key) is not None:
        return True
    return table.last and table.verdict(key.rpartition(".")[2]) is not None


def unwrapped(given: ArgumentTable) -> ArgumentTable:
    """A configuration inside another tool's (Primus: modules.NAME.overrides) by its own keys."""
    pairs = dict(given.pairs)
    for key, value in pairs.items():
        match = re.fullmatch(r"(modules\.\w+)\.framework", key)
        if match is None:
            continue
        wrapped = table_of("primus").options["frameworks"].get(str(value).lower())
        if wrapped is None:
            continue
        own, model_key = wrapped
        start = f"{match[1]}.overrides."
        inner = tuple((name.removeprefix(start), told) for name, told in given.pairs)
        model = str(pairs.get(f"{match[1]}.model", "")).removesuffix(".yaml")
        more = ((model_key, model),) if model and own != "torchtitan" else ()
        places = {name.removeprefix(start): line for name, line in given.places.items()}
        places[model_key] = places.get(f"{match[1]}.model", 0)
        return replace(given, pairs=(*inner, *more), places=places, tool=own, named=model)
    return given
