"""Arguments of other tools as a question of ours: `read_launch`, and how they meet the flags given beside.

What is stated by hand counts before what a launch says, and is known while the launch is read: its tool's
rules
for batches and replicas are applied to the chips and degrees that count in the end. A plan's words replace
those of the same field, and the replicas that a launch names go where the chips or another degree are given
anew. `read_question` also tells where every value comes from, and stops at what it does not understand.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from foretell.catalog import model as catalog_model
from foretell.catalog import system as catalog_system
from foretell.catalog.model_names import find_model
from foretell.catalog.prices import chip_named
from foretell.errors import BadInput, bad_input, wrong
from foretell.interop.arguments import LARGEST_TEXT
from foretell.interop.huggingface.hub import fetch_config, is_repository
from foretell.interop.launch import SERVING, TRAINING, Known, Launch, Origin, ReadValue, Tool
from foretell.interop.named_files import files_beside
from foretell.interop.tools import read_arguments
from foretell.interop.user_files import check_regular, is_there, user_file
from foretell.records import dataclass
from foretell.specs.deployment_text import DEGREES as SERVING_DEGREES
from foretell.specs.model import Model
from foretell.specs.plan_words import read_words
from foretell.specs.system import System
from foretell.workload.parameters import count

ENDINGS = (".json", ".toml", ".yaml", ".yml", ".sh", ".txt", ".py", ".args", ".slurm", ".sbatch")
"""Names that can only be files."""
FREED = (
    "tp", "pp", "vpp", "dp", "cp", "ep", "etp", "zero", "micro_batch", "sp", "recompute", "order", "schedule",
    "layout", "shard", "tp2",
)  # fmt: skip
"""Fields of a plan that a search may choose anew: how the chips are shared out, and nothing of the recipe."""


HALF = ("prefill_gpus", "prefill_plan")
"""What a disaggregated service has beside its decode instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchQuestion:
    """A launch as a question, and where each of its values comes from."""

    launch: Launch
    """What was read."""
    arguments: dict[str, Any]
    """Arguments of the verb's function."""
    rows: tuple[ReadValue, ...]
    """The read-back table."""

    def read_back(self) -> list[dict[str, Any]]:
        """The table as JSON."""
        return [row.to_dict() for row in self.rows]


def read_launch(
    given: str | Path,
    *,
    model: Any = None,
    tool: Tool | None = None,
    files: bool = True,
    gpus: int | str | None = None,
    plan: str | None = None,
    hub: bool = False,
) -> Launch:
    """What a command, script or configuration of another tool says.

    `given` is its text, or the name of a file with it where `files` allows that. `model`, `gpus` and `plan`
    are what is given by hand beside it: the model's layers turn layers per virtual stage into virtual
    stages, and chips and degrees decide how many replicas share a batch. With `hub`, a repository that the
    catalogue does not know is fetched.
    """
    text = launch_text(given, files)
    known = Known(
        gpus=None if gpus is None else _count(gpus),
        degrees=_degrees(plan),
        files=files_beside(text, Path(given)) if files and text != str(given) else (),
    )
    path = Path(given) if files and text != str(given) else None
    launch = read_arguments(text, None, tool, known, path)
    named = model if model else _found(launch, files, hub)
    layers, described = None, named or launch.table
    if described is not None:
        try:
            layers = len(catalog_model(described, files=files).stack.layers)
        except BadInput:
            if not model:  # what the flags say besides is for the question to complain of
                raise
    if layers is not None:
        launch = read_arguments(text, None, tool, replace(known, layers=layers), path)
    told = next((name for name in launch.models if "$" not in name), "")
    return replace(
        launch,
        models=(str(named),) if isinstance(named, str | Path) and named else (),
        named="" if model else told,
    )


def read_question(
    given: str | Path,
    beside: Mapping[str, Any],
    *,
    serving: bool = False,
    accept_unknown: bool = False,
    hub: bool = False,
    files: bool = True,
    free: tuple[str, ...] = (),
) -> LaunchQuestion:
    """A launch and the flags beside it as one question, every value with where it comes from.

    What may change the answer and is not understood is BadInput, unless it is accepted. Words of the launch's
    plan whose field is in `free` are left for a search to choose.
    """
    model = beside.get("model") or None
    plan = beside.get("plan")
    words = plan if isinstance(plan, str) else None
    read = partial(
        read_launch, given, model=model, plan=None if serving else words, hub=hub, files=files
    )
    launch = read(gpus=beside.get("gpus"))
    serving_only(launch, serving)
    if not accept_unknown:
        refuse_unknown(launch)
    by_hand = {name: value for name, value in beside.items() if name != "model"}
    by_hand |= system_of(launch, by_hand)
    if not serving and launch.gpus is None and by_hand.get("gpus") is None:
        launch = on_one_node(read, launch, by_hand.get("system"))
    freed = launch if not free else replace(launch, plan=_without(launch.plan, free))
    arguments = merge_launch(freed, model or "", by_hand)
    rows = _rows(freed, arguments, beside, files=files)
    return LaunchQuestion(launch=launch, arguments=arguments, rows=rows)


ANSWERED = ("the model is not named", "the number of GPUs", "the sequence length")
"""What a launch asks for and a question answers by itself: by a flag, by one node, by the model's length."""


def refuse_unknown(launch: Launch) -> None:
    """BadInput with everything of a launch that may change the answer and is not understood."""
    allowed = "a flag or plan word that says it, or --accept-unknown"
    problems = [
        wrong("import", None, f"{launch.tool}: {text}", allowed)
        for text in (
            *launch.not_understood,
            *(ask for ask in launch.asks if not ask.startswith(ANSWERED)),
        )
    ]
    if problems:
        raise BadInput(problems)


def system_of(launch: Launch, by_hand: Mapping[str, Any]) -> dict[str, Any]:
    """The system of the accelerator that a launch asks a cluster for, where none is given by hand."""
    if by_hand.get("system") is not None or _names_system(by_hand.get("gpus")):
        return {}
    chip = chip_named(launch.accelerator) if launch.accelerator else None
    return {"system": chip} if chip else {}


def on_one_node(read: Callable[..., Launch], launch: Launch, system: Any) -> Launch:
    """The launch on one node of the system, where it names no number of chips: a batch that it says per chip
    or per replica is then of that node's."""
    if system is None:
        return launch
    found = system if isinstance(system, System) else catalog_system(system)
    gpus = max(round(float(found.chips_per_node)), 1)
    one = read(gpus=gpus)
    place = ReadValue(name="gpus", value=f"{gpus}", origin="assumed", key="one node")
    rest = tuple(row for row in one.values if row.name != "gpus")
    return replace(one, gpus=gpus, values=(place, *rest))


def merge_launch(launch: Launch, model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The launch's arguments under those given by hand."""
    told = launch.arguments()
    by_hand = {name: value for name, value in given.items() if value is not None}
    result = {**given, **told, **by_hand}
    if model:
        result["model"] = model
    elif "model" not in told:
        message = f"the {launch.tool} arguments name no model that is known here"
        allowed = "MODEL, or --hub for a repository of the Hugging Face hub"
        raise bad_input("model", None, message, allowed)
    chips = given.get("gpus")
    anew = chips is not None and _count(chips) != launch.gpus
    result["plan"] = _joined(launch, given.get("plan"), anew)
    return result


def noted_model(
    arguments: Mapping[str, Any], said: Iterable[str], *, files: bool = True
) -> Model | None:
    """The model of a question with what its launch left to be assumed among its assumptions, so that every
    answer tells it; None where settings of the model's file need the file itself."""
    if any(str(text).strip().startswith("model.") for text in arguments.get("set") or ()):
        return None
    record = catalog_model(arguments["model"], files=files)
    return replace(record, assumptions=(*record.assumptions, *said))


def serving_only(launch: Launch, wanted: bool) -> None:
    """Refuse a training run where a deployment is asked for, and the other way round."""
    if launch.serves != wanted:
        kind = "a deployment" if launch.serves else "a training run"
        message = f"{launch.tool} arguments are of {kind}"
        allowed = ", ".join(SERVING) if wanted else ", ".join(TRAINING)
        raise bad_input("import", launch.tool, message, allowed)


def _rows(
    launch: Launch, arguments: Mapping[str, Any], beside: Mapping[str, Any], *, files: bool
) -> tuple[ReadValue, ...]:
    """The read-back table: the model, the job, then the plan's words; what a flag says is in its
    place."""
    record = arguments["model"]
    found = record if isinstance(record, Model) else catalog_model(record, files=files)
    by_hand = {name for name, value in beside.items() if value not in (None, (), "")}
    origin: Origin = "flag" if beside.get("model") else "file"
    place = next((row for row in launch.values if row.name == "model"), None)
    said = place is not None and origin == "file"
    rows = [
        ReadValue(
            name="model",
            value=found.id,
            origin=origin,
            key=place.key if said and place else "",
            line=place.line if said and place else None,
        ),
        ReadValue(name="parameters", value=f"{count(found).total:,}", origin=origin, key="model"),
    ]
    if arguments.get("system") is not None:
        told: Origin = "flag" if "system" in by_hand else "file"
        key = "" if told == "flag" else "accelerator"
        rows.append(
            ReadValue(name="system", value=_called(arguments["system"]), origin=told, key=key)
        )
    mine = str(beside.get("plan") or "")
    field = serving_field if launch.serves else training_field
    words = {field(word): word for word in mine.split()}
    kept = {field(word) for word in str(arguments.get("plan") or "").split()}
    for row in launch.values:
        if row.name in by_hand and row.name in ("gpus", "global_batch", "seq_len"):
            value = str(_count(beside[row.name]) or beside[row.name])
            rows.append(ReadValue(name=row.name, value=value, origin="flag"))
        elif row.name in words:
            rows.append(ReadValue(name=row.name, value=words.pop(row.name), origin="flag"))
        elif row.name in ("gpus", "global_batch", "seq_len", *HALF) or row.name in kept:
            rows.append(row)
    rows += [
        ReadValue(name=name, value=word, origin="flag") for name, word in words.items() if name
    ]
    told_names = {row.name for row in rows}
    for name in ("gpus", "global_batch", "seq_len"):
        if name not in told_names and not launch.serves:
            given = name in by_hand
            value = str(beside[name]) if given else "as Foretell chooses"
            rows.append(ReadValue(name=name, value=value, origin="flag" if given else "assumed"))
    return tuple(rows)


def _called(system: Any) -> str:
    return str(getattr(system, "id", system))


def _joined(launch: Launch, by_hand: Any, anew: bool) -> Any:
    """The plan's words by hand, then those of the launch whose fields they leave open."""
    if by_hand is not None and not isinstance(by_hand, str):
        return by_hand
    mine = by_hand or ""
    name = serving_field if launch.serves else training_field
    taken = {field for word in mine.split() if (field := name(word))}
    # Chips given anew are more instances of a server, and other replicas of a training run.
    if (anew and not launch.serves) or taken & {"tp", "pp", "cp"}:
        taken.add("dp")
    kept = [word for word in launch.plan.split() if name(word) not in taken]
    return " ".join([*mine.split(), *kept])


def _without(plan: str, free: tuple[str, ...]) -> str:
    """A plan's words but those of some fields."""
    return " ".join(word for word in plan.split() if training_field(word) not in free)


def _degrees(plan: str | None) -> dict[str, int]:
    """Degrees that a plan's text names."""
    words = read_words(plan)[0] if plan else {}
    names = ("tp", "pp", "cp", "dp", "micro_batch")
    return {name: int(str(words[name])) for name in names if name in words}


def training_field(word: str) -> str:
    """The field of a plan that a word says."""
    return next(iter(read_words(word)[0]), "")


def serving_field(word: str) -> str:
    """The value of a deployment that a word says."""
    key = word.partition("=")[0]
    stem = key.rstrip("0123456789")
    return stem if stem in SERVING_DEGREES else key.removeprefix("no-")


def _count(chips: Any) -> int | None:
    """The number of `64` and of `64xH100`."""
    digits = str(chips).strip().lower().partition("x")[0].strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None


def _names_system(chips: Any) -> bool:
    return "x" in str(chips or "").lower()


def _found(launch: Launch, files: bool, hub: bool) -> str | Path | None:
    """The model that a launch names: of the catalogue, a path that is there, or of the hub where allowed.

    Where flags describe the model, a name counts only if its model has the same shape.
    """
    named = _known(launch.models)
    if launch.table is not None:
        return named if named and _alike(named, launch.table, files) else None
    if named is None and hub:
        wanted = next((name for name in launch.models if is_repository(name)), None)
        return None if wanted is None else fetch_config(wanted)
    return named


def _alike(name: str, table: Mapping[str, Any], files: bool) -> bool:
    """Whether a model of the catalogue has the shape that flags describe: as many weights but for the rows
    that the vocabulary is padded by, as many layers, as wide."""
    own, told = catalog_model(name, files=files), catalog_model(table, files=files)
    same = len(own.stack.layers) == len(told.stack.layers) and own.stack.hidden == told.stack.hidden
    return same and abs(count(own).total - count(told).total) < 0.005 * count(own).total


def _known(names: tuple[str, ...]) -> str | None:
    """The first of some names that is a model's: of the catalogue, or a path that is there."""
    for name in names:
        try:
            entry = find_model(name) if len(name) < 200 else None
            if entry is not None:
                return entry.id if name.startswith(("/", ".", "~", "$")) else name
        except BadInput:
            continue
    return None


def launch_text(given: str | Path, files: bool) -> str:
    """The text itself, or that of the file it names."""
    name = str(given)
    short = isinstance(given, Path) or (len(name) < 1000 and "\n" not in name)
    if not files or not short:
        return name
    path = Path(name)
    if not is_there(path, folder=False):
        if isinstance(given, Path) or (" " not in name.strip() and name.endswith(ENDINGS)):
            user_file(name, "import", "a text")
            raise _bad(name, "there is no such file")
        return name
    check_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
        return content.decode()
    except UnicodeDecodeError:
        raise _bad(name, "is not UTF-8 text") from None
    except OSError as error:
        raise _bad(name, f"cannot be read: {error.strerror or error}") from None


def _bad(name: str, message: str) -> BadInput:
    return bad_input("import", name, message, "a file or a text")
