"""What `--import`, `--export` and `--jsonl` do: other tools' arguments, in and out."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.errors import BadInput, Problem, unknown

if TYPE_CHECKING:
    from foretell.interop.launch import Launch, ToolArguments


def imported(
    given: Mapping[str, Any], source: str | None, *, serving: bool = False, plain: bool = False
) -> dict[str, Any]:
    """What was given, above what `--import` says.

    What the reading took for granted goes with the model, so that every answer tells it; with `plain` the
    model stays a name, and it is told on standard error.
    """
    model = given.get("model")
    if source is None:
        if model is None:
            raise BadInput([Problem(path="--model", value=None, message="missing")])
        return dict(given)
    from dataclasses import replace

    from foretell.api.launches import merge_launch, read_launch, serving_only
    from foretell.catalog import model as catalog_model

    launch = read_launch(source, model=model or None)
    serving_only(launch, serving)
    by_hand = {name: value for name, value in given.items() if name != "model"}
    result = merge_launch(launch, model or "", by_hand)
    said = launch.said()
    if serving and launch.warnings():
        result["warnings"] = launch.warnings()
    if serving:
        said = (*said, *_converted(launch, result["model"], given, result))
    # Settings of the model's file need the file itself.
    own = any(str(text).strip().startswith("model.") for text in given.get("set", ()))
    if own or plain:
        note(said)
        return result
    record = catalog_model(result["model"])
    return {**result, "model": replace(record, assumptions=(*record.assumptions, *said))}


def _converted(
    launch: "Launch", model: Any, given: Mapping[str, Any], result: dict[str, Any]
) -> list[str]:
    """A memory fraction of one engine by the rule of another, where another is asked for."""
    engine, mine = result["engine"], str(given.get("plan") or "")
    words = [word for word in launch.plan.split() if word.startswith("memory_fraction=")]
    if engine == launch.tool or not words or "memory_fraction=" in mine:
        return []
    from foretell.api.serving import fraction_between

    place = (result.get("system"), result.get("gpus"))
    share = fraction_between(model, *place, result["plan"], (launch.tool, engine))
    result["plan"] = result["plan"].replace(words[0], f"memory_fraction={share:g}")
    return [f"{words[0]} of {launch.tool} is {share:g} by the rule of {engine}"]


def check_tool(tool: str | None, known: Sequence[str]) -> None:
    """Refuse a tool that nothing is written for, before anything is computed."""
    if tool is not None and tool not in known:
        raise BadInput([unknown("--export", tool, known)])


def note(notes: Sequence[str]) -> None:
    """What a written text does not say, on standard error: the text itself stays pasteable."""
    for text in notes:
        print(f"note: {text}", file=sys.stderr)


def print_launch(written: "ToolArguments") -> None:
    """A text for another tool, and what it does not say."""
    print(written.text)
    note(written.notes)


def lines_file(name: str | None) -> Path | None:
    """Where lines of JSON go; a folder that is not there is bad input, found before the work."""
    if name is None:
        return None
    path = Path(name)
    try:
        usable = path.parent.is_dir() and not path.is_dir()
    except (OSError, ValueError):
        usable = False
    if not usable:
        message = "cannot be written"
        raise BadInput(
            [Problem(path="--jsonl", value=name, message=message, allowed="a file in a folder")]
        )
    return path


def append(path: Path, text: str) -> None:
    """Lines behind those that are there."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
