"""Arguments of other tools as a question of ours: `read_launch`, and how they meet the flags given beside.

What is said by hand counts before what a launch says: a plan's words replace those of the same field, and
the replicas that a launch names go where the chips or another degree are given anew.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.catalog import model as catalog_model
from foretell.catalog.models import find_model
from foretell.errors import BadInput, Problem
from foretell.interop.arguments import LARGEST_TEXT
from foretell.interop.launch import SERVING, Launch, Tool
from foretell.interop.tools import read_arguments
from foretell.interop.user_files import is_there, user_file
from foretell.specs.deployment_text import DEGREES as SERVING_DEGREES
from foretell.specs.plan_words import read_words

ENDINGS = (".json", ".toml", ".yaml", ".yml", ".sh", ".txt", ".py", ".args", ".slurm", ".sbatch")
"""Names that can only be files."""


def read_launch(
    given: str | Path, *, model: Any = None, tool: Tool | None = None, files: bool = True
) -> Launch:
    """What a command, script or configuration of another tool says.

    `given` is its text, or the name of a file with it where `files` allows that. `model` is what the text
    leaves out; its layers turn layers per virtual stage into virtual stages.
    """
    text = _text(given, files)
    launch = read_arguments(text, None, tool)
    named = model if model else _known(launch.models)
    layers, described = None, named or launch.table
    if described is not None:
        try:
            layers = len(catalog_model(described, files=files).stack.layers)
        except BadInput:
            if not model:  # what the flags say besides is for the question to complain of
                raise
    if layers is not None:
        launch = read_arguments(text, layers, launch.tool)
    return replace(launch, models=(named,) if isinstance(named, str) and named else ())


def merge_launch(launch: Launch, model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The launch's arguments under those given by hand."""
    told = launch.arguments()
    by_hand = {name: value for name, value in given.items() if value is not None}
    result = {**given, **told, **by_hand}
    if model:
        result["model"] = model
    elif "model" not in told:
        message = f"the {launch.tool} arguments name no model that is known here"
        raise BadInput([Problem(path="model", value=None, message=message, allowed="MODEL")])
    chips = given.get("gpus")
    anew = chips is not None and _count(chips) != launch.gpus
    result["plan"] = _joined(launch, given.get("plan"), anew)
    return result


def serving_only(launch: Launch, wanted: bool) -> None:
    """Refuse a training run where a deployment is asked for, and the other way round."""
    if launch.serves != wanted:
        kind = "a deployment" if launch.serves else "a training run"
        message = f"{launch.tool} arguments are of {kind}"
        allowed = ", ".join(SERVING) if wanted else "megatron, torchtitan, deepspeed"
        raise BadInput(
            [Problem(path="import", value=launch.tool, message=message, allowed=allowed)]
        )


def _joined(launch: Launch, by_hand: Any, anew: bool) -> Any:
    """The plan's words by hand, then those of the launch whose fields they leave open."""
    if by_hand is not None and not isinstance(by_hand, str):
        return by_hand
    mine = by_hand or ""
    name = _serving_field if launch.serves else _training_field
    taken = {field for word in mine.split() if (field := name(word))}
    if anew or taken & {"tp", "pp", "cp"}:
        taken.add("dp")
    kept = [word for word in launch.plan.split() if name(word) not in taken]
    return " ".join([*mine.split(), *kept])


def _training_field(word: str) -> str:
    return next(iter(read_words(word)[0]), "")


def _serving_field(word: str) -> str:
    key = word.partition("=")[0]
    stem = key.rstrip("0123456789")
    return stem if stem in SERVING_DEGREES else key.removeprefix("no-")


def _count(chips: Any) -> int | None:
    """The number of `64` and of `64xH100`."""
    digits = str(chips).strip().lower().partition("x")[0].strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None


def _known(names: tuple[str, ...]) -> str | None:
    """The first of some names that is a model's: of the catalogue, or a path that is there."""
    for name in names:
        try:
            if len(name) < 200 and find_model(name) is not None:
                return name
        except BadInput:
            continue
    return None


def _text(given: str | Path, files: bool) -> str:
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
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
        return content.decode()
    except UnicodeDecodeError:
        raise _bad(name, "is not UTF-8 text") from None
    except OSError as error:
        raise _bad(name, f"cannot be read: {error.strerror or error}") from None


def _bad(name: str, message: str) -> BadInput:
    return BadInput(
        [Problem(path="import", value=name, message=message, allowed="a file or a text")]
    )
