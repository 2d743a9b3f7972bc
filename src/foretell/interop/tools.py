"""Which tool a text of arguments is for, and its reader; every writer, with what it could not say.

A writer's text is read back by the tool's own reader: each field of the plan that comes back otherwise is
stated in a note, so that nothing is lost in silence.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.interop.arguments import ArgumentTable, spell_key
from foretell.interop.launch import (
    Known,
    Launch,
    Tool,
)
from foretell.interop.named_files import with_files
from foretell.interop.policy_launch import read_policy
from foretell.interop.process_arguments import argument_tables
from foretell.interop.recognition import is_sure, launched_tools, nothing_launched, unwrapped
from foretell.interop.services import read_service
from foretell.interop.several_servers import join_servers, role_of
from foretell.interop.tool_tables import ToolTable, table_of, unknown_sentence
from foretell.interop.training_launch import read_training
from foretell.interop.whole_numbers import whole_number


def read_arguments(
    text: str,
    layers: int | None = None,
    tool: Tool | None = None,
    known: Known | None = None,
    path: Path | None = None,
) -> Launch:
    """What a text of arguments says, with what is known beside it; BadInput where no tool is known by it, or
    where it is wrong. `path` is the file that the text is from."""
    beside = known or Known(layers=layers)
    tables = [unwrapped(one) for one in argument_tables(path or text, text)]
    if not tables:
        raise nothing_launched(text)
    named = launched_tools(tables, tool, beside)
    servers = [pair for pair in named if table_of(pair[1]).family == "service"]
    trainers = [pair for pair in named if pair not in servers and is_sure(*pair)]
    if servers and not trainers and named[0] in servers:
        return join_servers(
            [(_read_one(one, of, beside), role_of(one, text)) for one, of in servers]
        )
    main = trainers[0] if trainers else named[0]
    launch = _read_one(*main, beside)
    alike = [one for one, of in named if of == launch.tool]
    notes = [*_sweep(alike or [main[0]], launch.tool)]
    notes += [
        f"servers of {of}, which it starts too, are not read" for of in {of for _, of in servers}
    ]
    return replace(launch, notes=(*launch.notes, *notes))


def _sweep(runs: list[ArgumentTable], tool: Tool) -> list[str]:
    """What is to be reported of runs of one command that a loop starts with other values: the first is
    read."""
    first, table = dict(runs[0].pairs), table_of(tool)
    again = [dict(one.pairs) for one in runs[1:] if one.places == runs[0].places]
    keys = dict.fromkeys(
        key
        for one in again
        for key, value in one.items()
        if first.get(key) != value and table.verdict(key) == "sets"
    )
    if not keys:
        return []
    told = {key: ", ".join(str(one.get(key)) for one in (first, *again)) for key in keys}
    shown = "; ".join(f"{key}: {values}"[:80] for key, values in told.items())
    return [f"a loop starts {len(again) + 1} runs, of which the first is read ({shown})"]


def _read_one(alone: ArgumentTable, whose: Tool, beside: Known) -> Launch:
    given = with_files(_environment(_on_pods(alone, whose), whose), beside.files, whose)
    launch = _instances(_judged(reader_of(whose)(given, beside), given), given, beside)
    opened = [f"{one.key} {one.name} was opened".strip() for one in beside.files]
    if given.bare and beside.files == () and not given.copies > 1 and _of_file(given):
        told = (
            "the file holds flags and no program that takes them: import the script that uses them"
        )
        launch = replace(launch, doubts=(*launch.doubts, told))
    launch = replace(launch, doubts=(*launch.doubts, *_cut_short(given)))
    if (launch.accelerator or "").lower() == "cpu":
        launch = replace(launch, doubts=(*launch.doubts, "it runs on processors without a GPU"))
    opened_names = {one.name for one in beside.files}
    parents = _parents(given, whose, opened_names)
    closed = [] if parents else _not_opened(given, opened_names)
    behind = _behind(given, launch)
    if parents or behind or any("_recipe " in ask for ask in launch.asks):
        launch = only_told(launch, given)
    return with_asks(
        replace(
            launch,
            notes=(*launch.notes, *opened),
            asks=(
                *parents,
                *(ask for ask in given.asks if not (launch.gpus and "--gpus" in ask)),
                *launch.asks,
                *closed,
                *behind,
            ),
        )
    )


def _on_pods(given: ArgumentTable, tool: Tool) -> ArgumentTable:
    """Arguments of a training whose pods are its nodes, where no launcher says how many there are."""
    told = given.variables
    alone = "nnodes" not in told and not {"world_size", "num_machines", "nnodes"} & {
        *dict(given.pairs)
    }
    if (
        table_of(tool).family == "service"
        or not given.wrapped
        or given.copies < 2
        or "gpus_per_node" not in told
        or not alone
    ):
        return given
    return replace(given, variables={**told, "nnodes": str(given.copies)})


EMPTY = ("null", "none", "")
"""Values that leave a key out."""
FAMILIES = {
    "training": read_training,
    "policy": read_policy,
    "megatron": read_training,
    "service": read_service,
    "torchtitan": read_training,
    "deepspeed": read_training,
}
"""Readers of the families that tables belong to."""


def reader_of(tool: Tool) -> Callable[[ArgumentTable, Known], Launch]:
    """The reader of a tool: its family's, walking its table."""
    table = table_of(tool)
    return lambda given, known: FAMILIES[table.family](given, known, table)


def _judged(launch: Launch, given: ArgumentTable) -> Launch:
    """A launch whose unknown keys that may matter stop it; the others, and those that are set to nothing,
    are named and no more."""
    empty = {key for key, value in given.pairs if value is None or str(value).lower() in EMPTY}
    empty |= {
        key for key, value in given.pairs if "freeze" in key and str(value).lower() == "false"
    }
    table = table_of(launch.tool)
    recipes = [one for one in launch.unknown if "_recipe " in one]
    plain = (one for one in launch.unknown if one not in recipes and one not in empty)
    told = dict(given.pairs)
    stops = [
        why
        for one in plain
        if (why := unknown_sentence(one, table) or _degrees_inside(one, told.get(one)))
    ]
    asks = [f"what {one} sets is not in the file: --plan, --gpus" for one in recipes]
    return replace(launch, doubts=(*launch.doubts, *stops), asks=(*launch.asks, *asks))


def _degrees_inside(key: str, value: object) -> str | None:
    """A doubt where the value of a key that is not known sets degrees: `--component language=tp=4,pp=2`."""
    return f"{key} sets degrees that are not read" if _DEGREES.search(str(value)) else None


_DEGREES = re.compile(r"(?<![a-z])[tpcde]p=\d")


def _parents(given: ArgumentTable, tool: Tool, opened: Collection[str]) -> list[str]:
    """Configurations that a launch is made from and that are not at hand: those that its tool names by a key,
    any file behind a key for one, and one that the command has as a word of its own."""
    table = table_of(tool)
    found = []
    keys = {key for key, _ in given.pairs}
    complete, always = (
        keys & {*str(table.options.get(name, "")).split()} for name in ("complete", "always")
    )
    if complete and not always:
        return []
    named = [(key, value) for key, value in given.pairs if isinstance(value, str)]
    own = str(table.options.get("parents", "")).split()
    files = [(key, value) for key, value in named if key in PARENTS and value.endswith(ENDINGS)]
    files += [("", word) for word in given.words if given.started and word.endswith(ENDINGS)]
    defaults = str(table.options.get("own_files", "")).split()
    files = [one for one in files if not _written(one[1], given.text) and one[1] not in opened
             and one[1].rpartition("/")[2] not in defaults]  # fmt: skip
    told = [(key, value) for key, value in named if key in own and value not in opened]
    for key, value in dict.fromkeys((*told, *files)):
        if value.lower() not in table.values.get("backend", {}) and not value.startswith("$"):
            shown = f"{value[:80]} ({key})" if key else value[:80]
            found.append(
                f"{shown}, which the rest comes from, is not at hand: put it beside the file"
            )
    return found


def _written(name: str, text: str) -> bool:
    """Whether a script writes a file itself."""
    return bool(re.search(rf">\s*\S*{re.escape(name.rpartition('/')[2])}", text))


def _field_of(word: str) -> str:
    """The field that a word of a plan or of a deployment says."""
    name = re.sub(r"^no-|\d+$", "", word.partition("=")[0])
    return "micro_batch" if name == "mbs" else name


def only_told(launch: Launch, given: ArgumentTable) -> Launch:
    """A launch without what its tool's defaults say: another file that is not at hand has the rest."""
    kept = ("model", "framework", *(("algorithm",) if _names_method(launch.tool, given) else ()))
    parents = str(table_of(launch.tool).options.get("parents", "")).split()
    told = {one.name for one in launch.values if one.origin == "file" and one.key not in parents}
    told -= {"dp"}
    if not _names_batch(launch):
        told -= {"global_batch"}
    row = next((one for one in launch.values if one.name == "gpus"), None)
    if row and {*row.key.split(", ")} <= {*table_of(launch.tool).fields.get("nodes", ())}:
        told -= {"gpus"}  # the GPUs of a node are in the other file
    words = [word for word in launch.plan.split() if _field_of(word) in told]
    post = launch.post_training
    return replace(
        launch,
        plan=" ".join(words),
        values=tuple(row for row in launch.values if row.name in told),
        gpus=launch.gpus if "gpus" in told else None,
        global_batch=launch.global_batch if "global_batch" in told else None,
        seq_len=launch.seq_len if "seq_len" in told else None,
        post_training=None
        if post is None
        else {key: value for key, value in post.items() if key in told or key in kept},
    )


def _names_method(tool: Tool, given: ArgumentTable) -> bool:
    """Whether a launch of a tool whose configuration has a section for each method has one of these."""
    sections = table_of(tool).options.get("sections", {})
    starts = (*" ".join(sections.values()).split(), "grpo.")
    return given.started or not sections or any(key.startswith(starts) for key, _ in given.pairs)


def _names_batch(launch: Launch) -> bool:
    """Whether a launch says its whole batch by a key, rather than by what a GPU takes."""
    own = table_of(launch.tool).fields.get("global_batch", ("global_batch",))
    row = next((one for one in launch.values if one.name == "global_batch"), None)
    return launch.generates or row is None or row.key.split(", ")[0] in own


_AFTER_COMMENT = re.compile(
    r"\\\n(?:[ \t]*#[^\n]*\n)+[ \t]*(?:--([A-Za-z][\w-]*)|\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=)"
)
"""A flag or override in the line after a comment that follows a line which goes on."""


def _cut_short(given: ArgumentTable) -> list[str]:
    """A doubt where a comment ends a command whose next lines are meant for it: a shell runs them apart."""
    keys = {key for key, _ in given.pairs}
    lost = (match for match in _AFTER_COMMENT.finditer(given.text) if given.started)
    named = ((match, spell_key(match[1] or match[2])) for match in lost)
    return [
        f"a comment in line {given.text.count(chr(10), 0, match.start()) + 2} ends the command: {key} and "
        "what follows do not reach the program"
        for match, key in named
        if key not in keys
    ][:1]


def _of_file(given: ArgumentTable) -> bool:
    """Whether flags without a program are in a script rather than in a command that somebody pasted."""
    return given.started and "\n" in given.text.strip() and not given.text.lstrip().startswith("-")


def _environment(given: ArgumentTable, tool: Tool) -> ArgumentTable:
    """Arguments with the variables of the environment that the tool reads, some of them flags by their
    names."""
    table = table_of(tool)
    by_name = bool(table.options.get("variables_are_flags"))
    pairs: list[tuple[str, Any]] = []
    for key, value in given.pairs:
        if not key.startswith("$") or key in table.known:
            pairs.append((key, value))
        elif by_name and key[1:].lower() in table.known:
            pairs.append((key[1:].lower(), value))
    if given.started and not table.options.get("plain_keys"):
        pairs = [(_whole_flag(key, table), value) for key, value in pairs]
    places = {_whole_flag(key, table): line for key, line in given.places.items()}
    if by_name:
        places |= {
            key[1:].lower(): line for key, line in given.places.items() if key.startswith("$")
        }
    return replace(given, pairs=tuple(pairs), places=places)


def _whole_flag(key: str, table: ToolTable) -> str:
    """A flag that is cut short, as argparse takes it, where one flag alone begins so."""
    if len(key) < 5 or "." in key or key.startswith("$") or table.verdict(key) is not None:
        return key
    longer = [one for one in table.known if one.startswith(key)]
    return longer[0] if len(longer) == 1 else key


PLACE = re.compile(
    r"path[/_-]to[/_-]|(?:^|[/_-])your[/_-]|^<.*>$|x{6}|^/mnt/models/?$", re.IGNORECASE
)
"""A name that stands for a model which the user is to fill in, or that a platform mounts."""


def with_asks(launch: Launch) -> Launch:
    """A launch that asks for what its file does not say and nothing else can: model, GPUs, lengths."""
    asks = list(launch.asks)
    named = any("$" not in name and not PLACE.search(name) for name in launch.models)
    if launch.table is None and not named and not any("MODEL" in ask for ask in asks):
        asks.append("the model is not named in the file: MODEL")
    if not launch.serves and launch.gpus is None and not any("--gpus" in ask for ask in asks):
        asks.append("the number of GPUs, and with it the batch, is not in the file: --gpus")
    if not launch.serves and launch.seq_len is None and not any("len" in ask for ask in asks):
        asks.append("the sequence length is not in the file: --seq-len")
    return replace(launch, asks=_few(list(dict.fromkeys(asks))))


MOST_ASKS = 5
"""Questions of a launch; of more, those that a plan answers are asked as one."""


def _few(asks: list[str]) -> tuple[str, ...]:
    """Questions, those for words of a plan joined where there are too many."""
    of_plan = [ask for ask in asks if "--plan" in ask and "--gpus" not in ask]
    if len(asks) <= MOST_ASKS or len(of_plan) < 2:
        return tuple(asks)
    ends = re.compile(r" (?:(?:is|are) not (?:set )?in the file|has values that).*|, which .*|: .*")
    names = ", ".join(dict.fromkeys(ends.sub("", ask)[:60] for ask in of_plan))
    joined = f"{names} are not in the file: words of --plan say them"
    return (*(ask for ask in asks if ask not in of_plan), joined)


def _instances(launch: Launch, given: ArgumentTable, known: Known) -> Launch:
    """A server on every node that a task or object starts it on: as many instances as fit."""
    nodes, each = (given.variables.get(name, "") for name in ("nnodes", "gpus_per_node"))
    if not (launch.serves and launch.gpus and known.gpus is None and given.wrapped):
        return launch
    many, inside = whole_number(nodes), whole_number(each)
    spans = -(-launch.gpus // inside) if inside else 1
    copies = given.copies if many is None or not inside else max(many // spans, given.copies)
    if copies < 2:
        return launch
    place = f"{spans} nodes" if spans > 1 else "node"
    note = f"{copies} instances, one on every {place} that it is started on"
    total = launch.gpus * copies
    values = tuple(
        replace(row, value=str(total), key=", ".join(filter(None, (row.key, "replicas"))))
        if row.name == "gpus"
        else row
        for row in launch.values
    )
    return replace(launch, gpus=total, values=values, notes=(*launch.notes, note))


FILES = (
    "job.config_file",
    "deepspeed_config",
    "config",
    "extra_llm_api_options",
    "yaml_cfg",
    "fsdp_config",
)
"""Arguments that may name a file with more arguments."""
PARENTS = ("config", "job.config_file", "yaml_cfg", "params_file")
"""Those of them that a whole launch may be made from."""
ENDINGS = (".json", ".yaml", ".yml", ".toml")
_ALONE = re.compile(r"\$\{?\w+(?:\[[@*]\])?\}?")
_BEHIND = re.compile(
    r"\$\{?(\w*(?:ARGS|OPTIONS|OPTS|FLAGS|PARAMS)\w*)(?:\[[@*]\])?\}?", re.IGNORECASE
)


def _not_opened(given: ArgumentTable, opened: Collection[str] = ()) -> list[str]:
    """Files that hold further arguments and that the text itself does not write."""
    own = [key for key, _ in given.pairs if key in FILES]
    named = [(key, str(value)) for key, value in given.pairs if key in own]
    return [
        f"{value[:60]} ({key}) is a file of its own and not at hand: put it beside the launch"
        for key, value in named
        if value.endswith(ENDINGS)
        and value not in opened
        and "$" not in value
        and not _written(value, given.text)
    ]


def _behind(given: ArgumentTable, launch: Launch) -> list[str]:
    """Variables of flags that a command has and its file does not set; slime's models are a file of flags,
    known by name, and the first word of a server's command is its model."""
    values = (one for _, value in given.pairs for one in (value if isinstance(value, list) else []))
    alone = [word for word in given.words if _ALONE.fullmatch(word) and word not in launch.models]
    named = [word for word in values if _BEHIND.fullmatch(str(word))]
    model = table_of(launch.tool).options.get("model_flags_in", "")
    skipped = model if launch.models else ""
    found = dict.fromkeys(re.sub(r"\W", "", str(word)) for word in (*alone, *named))
    return [
        f"{name[:40]} is not set in the file, and flags may be behind it"
        for name in found
        if given.started and name != skipped
    ]
