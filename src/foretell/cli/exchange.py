"""What `--import`, `--export` and `--jsonl` do: other tools' arguments, in and out."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.cli.command import Edges
from foretell.cli.output import READ_BACK
from foretell.errors import bad_input

if TYPE_CHECKING:
    from foretell.interop.launch import Launch, ReadValue


class AskedQuestion(dict[str, Any]):
    """Arguments of a verb's function, and the read-back table of the launch that they are from."""

    rows: "tuple[ReadValue, ...]" = ()
    launch: "Launch | None" = None

    @property
    def told(self) -> dict[str, Any]:
        """What JSON adds to an answer: the table, where a launch was read."""
        return {"read_back": [row.to_dict() for row in self.rows]} if self.rows else {}


def imported(
    given: Mapping[str, Any],
    edges: Edges,
    *,
    serving: bool = False,
    plain: bool = False,
    free: tuple[str, ...] = (),
) -> AskedQuestion:
    """What was given, above what `--import` says.

    What the reading took for granted goes with the model, so that every answer tells it; with `plain` the
    model stays a name, and it is reported on standard error. Fields of the plan in `free` are left to a
    search.
    """
    model = given.get("model")
    READ_BACK.set(())
    if edges.import_ is None:
        if model is None:
            raise bad_input("--model", None, "missing")
        return AskedQuestion(given, model=_fetched(model) if edges.hub else model)
    from foretell.api.launches import read_question

    asked = read_question(
        edges.import_,
        given,
        serving=serving,
        accept_unknown=edges.accept_unknown,
        hub=edges.hub,
        free=free,
    )
    launch, result = asked.launch, AskedQuestion(asked.arguments)
    result.rows, result.launch = asked.rows, launch
    READ_BACK.set(asked.rows)
    said = launch.said()
    if serving and launch.warnings():
        result["warnings"] = launch.warnings()
    if serving:
        said = (*said, *_converted(launch, result["model"], given, result))
    return _with_notes(result, said, plain=plain)


def _with_notes(
    result: AskedQuestion, said: Sequence[str], *, plain: bool = False
) -> AskedQuestion:
    """The question with what its reading assumed stated by its model, else on standard error."""
    from foretell.api.launches import noted_model

    record = None if plain else noted_model(result, said)
    if record is None:
        note(said)
    else:
        result["model"] = record
    return result


def imported_step(given: Mapping[str, Any], edges: Edges) -> AskedQuestion:
    """What was given of a post-training question, above what `--import` says."""
    if edges.import_ is None:
        return imported(given, edges)
    from foretell.api.post_training_launches import read_post_training

    asked = read_post_training(
        edges.import_, given, accept_unknown=edges.accept_unknown, hub=edges.hub
    )
    result = AskedQuestion(asked.arguments)
    result.rows = asked.rows
    READ_BACK.set(asked.rows)
    return _with_notes(result, asked.launch.said())


def _fetched(model: Any) -> Any:
    """A repository that neither the catalogue nor the disk has, from the hub."""
    from foretell.catalog.model_names import find_model
    from foretell.interop.huggingface.hub import fetch_config, is_repository
    from foretell.interop.user_files import is_there

    if not is_repository(model) or find_model(model) is not None or is_there(model):
        return model
    return fetch_config(model)


def _converted(
    launch: "Launch", model: Any, given: Mapping[str, Any], result: dict[str, Any]
) -> list[str]:
    """A memory fraction of one engine by the rule of another, where another is asked for."""
    engine, mine = result["engine"], str(given.get("plan") or "")
    words = [word for word in launch.plan.split() if word.startswith("memory_fraction=")]
    if engine == launch.engine or not words or "memory_fraction=" in mine:
        return []
    from foretell.api.serving_commands import fraction_between

    place = (result.get("system"), result.get("gpus"))
    share = fraction_between(model, *place, result["plan"], (launch.engine, engine))
    result["plan"] = result["plan"].replace(words[0], f"memory_fraction={share:g}")
    return [f"{words[0]} of {launch.tool} is {share:g} by the rule of {engine}"]


BUNDLE = "bundle:"
"""How `--export bundle DIR` is passed on, as one word."""


def joined_bundle(arguments: list[str]) -> list[str]:
    """Arguments with `--export bundle DIR` as one value."""
    found = list(arguments)
    for at, word in enumerate(found[:-1]):
        if word == "--export" and found[at + 1] == "bundle" and at + 2 < len(found):
            found[at + 1 : at + 3] = [BUNDLE + found[at + 2]]
            break
    return found


def bundle_of(export: str | None) -> str | None:
    """The folder of a bundle; none where something else is exported."""
    if export == "bundle":
        raise bad_input("--export bundle", None, "needs the folder that it is written to", "DIR")
    return export.removeprefix(BUNDLE) if export and export.startswith(BUNDLE) else None


def check_tool(tool: str | None, *, serving: bool) -> None:
    """Refuse a tool or release that nothing is written for, before anything is computed."""
    if tool is not None and bundle_of(tool) is None:
        from foretell.interop.releases import release_of

        release_of(tool, serving=serving, path="--export")


def note(notes: Sequence[str]) -> None:
    """What a written text does not say, on standard error: the text itself stays pasteable."""
    for text in notes:
        print(f"note: {text}", file=sys.stderr)


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
        raise bad_input("--jsonl", name, "cannot be written", "a file in a folder")
    return path


def append(path: Path, text: str) -> None:
    """Lines behind those that are there."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
