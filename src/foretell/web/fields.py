"""From flags of the command line to typed request bodies: names, help and defaults are the flags' own.

The command line hands its flags over as `Flag` records (cli/ui.py), so that they are written once. Here
stands only what JSON adds: which are numbers, which are names or objects, and which make no sense from afar.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from foretell.records import dataclass
from foretell.web.names import FILES

LEFT_OUT = (*FILES, "json", "jsonl", "workers", "executor", "yes", "resume")
"""Flags about files, output and processes of the caller."""
OBJECTS = ("model", "system")
"""Names for which an inline object may stand."""
LISTS = ("models", "systems")
"""Several of them."""
TABLES: Mapping[str, str] = {
    "study": "A study as an object: study, base, vary, objectives, limits, workload (docs/sweep.md).",
    "workload": "A mix as an object: base and workload of a study (docs/compare.md).",
}
"""Flags that name a file with tables, which are given themselves."""
WHOLE = (
    "global_batch", "seq_len", "target_len", "top", "repeats", "seed", "group", "neighbours", "requests",
    "prefixes", "prefix_tokens", "prefill_gpus", "micro_batch", "batch_per_gpu", "trials",
)  # fmt: skip
"""Flags that are whole numbers."""
DECIMAL = (
    "isl", "osl", "concurrency", "rate", "jitter", "stragglers", "slowdown", "spread", "headroom", "ttft",
    "tpot", "imbalance", "factor", "floor",
)  # fmt: skip
"""Flags that are plain numbers."""
AMOUNTS = (
    "gpus", "price", "tokens", "failures_per_gpu_day", "restart_s", "checkpoint_interval",
    "checkpoint_wait_s", "storage_bandwidth", "bytes", "area", "dies", "die_to_die", "volume", "years",
    "utilisation", "watts", "budget",
)  # fmt: skip
"""Flags that are numbers, or texts with a unit or a name."""
TEXT_LENGTH, LIST_LENGTH, MOST_NAMED = 2000, 64, 16
"""Longest text, most entries of a list, and most models or systems of one question."""

Text = Annotated[str, Field(max_length=TEXT_LENGTH)]
Name = Annotated[str, Field(max_length=80)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
Amount = Whole | Finite | Text
Object = dict[str, Any]
Settings = (
    Annotated[list[Text], Field(max_length=LIST_LENGTH)]
    | Annotated[dict[Text, Amount], Field(max_length=LIST_LENGTH)]
)
Texts = Annotated[list[Text], Field(max_length=LIST_LENGTH)]
Named = Annotated[list[Text | Object], Field(max_length=MOST_NAMED)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of a verb."""

    name: str
    """In snake case."""
    required: bool
    """Whether a question must have it."""
    default: Any
    """What is taken where it is not given."""
    help: str
    """One line about it."""
    switch: bool = False
    """Whether it is on or off."""


Table = Mapping[str, Sequence[Flag]]
"""Verb, with spaces between its words -> its flags."""


class Strict(BaseModel):
    """A body in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=False, title=None)


def body_model(
    verb: str, flags: Sequence[Flag], more: Mapping[str, Any] | None = None
) -> type[Strict]:
    """The request body of a verb; `more` are fields that the command line has no flag for."""
    fields: dict[str, Any] = {}
    names = [flag.name for flag in flags]
    for flag in flags:
        if flag.name not in LEFT_OUT:
            # A file that could name the model is not read here.
            fields[flag.name] = _field(flag, flag.name == "model" and "import" in names)
    title = "".join(word.title() for word in verb.replace("-", " ").split()) + "Question"
    made: type[Strict] = create_model(title, __base__=Strict, **fields, **(more or {}))
    return made


def _field(flag: Flag, needed: bool) -> tuple[Any, Any]:
    """Type and default of a flag in JSON."""
    kind = kind_of(flag)
    said = _said(flag)
    if flag.required or needed:
        return kind, Field(description=said)
    return kind | None, Field(default=None, description=said)


def _said(flag: Flag) -> str:
    """The help of a flag, and what is taken without it."""
    said = flag.help
    if flag.name in (*OBJECTS, *LISTS):
        each = "Of each: an" if flag.name in LISTS else "An"
        said = f"{each} id or alias of the catalogue, or an inline object; never a path."
    if flag.name in TABLES and not flag.switch:
        said = TABLES[flag.name]
    if flag.default not in (None, "", (), False):
        said += f" Default: {flag.default}."
    return said


def kind_of(flag: Flag) -> Any:
    """The type of a flag's value in JSON."""
    if flag.switch:
        return bool
    if flag.name == "set":
        return Settings
    if flag.name == "sweep":
        return Texts
    for names, kind in (
        (OBJECTS, Text | Object),
        (LISTS, Named),
        (tuple(TABLES), Object),
        (WHOLE, Whole),
        (DECIMAL, Finite),
        (AMOUNTS, Amount),
    ):
        if flag.name in names:
            return kind
    return Text


def figure_model(verb: str, question: type[BaseModel], most: int) -> type[Strict]:
    """The request body of a figure of several questions."""
    title = "".join(word.title() for word in verb.replace("-", " ").split())
    many: Any = list[question]  # type: ignore[valid-type]
    fields: dict[str, Any] = {
        "questions": (
            Annotated[many, Field(min_length=1, max_length=most)],
            Field(description="Flags of each, side by side."),
        ),
        "names": (Annotated[list[Name], Field(max_length=most)] | None, None),
        "theme": (Literal["light", "dark"] | None, None),
    }
    made: type[Strict] = create_model(title, __base__=Strict, **fields)
    return made


def given(body: BaseModel) -> dict[str, Any]:
    """The flags that a body has, less those that are null."""
    held = body.model_dump(exclude_unset=True)
    if "questions" in held:
        held["questions"] = [_known(question) for question in held["questions"]]
    return _known(held)


def _known(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if value is not None}
