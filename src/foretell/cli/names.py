"""Names that a shell offers while one types: ids of the catalogue, and files by the shell itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def models(context: Any) -> dict[str, str]:
    """Ids of models, each with its source."""
    del context
    from foretell.catalog.model_names import model_entries

    return {entry.id: entry.source for entry in model_entries()}


def model_name(type_: Any, tokens: Sequence[Any]) -> str:
    """A model as typed; `models/llama-3.1-8b` is the folder there where it has a config.json.

    Elsewhere `org/name` is the name of a repository first: only who types a path at a shell means its files.
    """
    del type_
    return own_path(str(tokens[0].value))


def own_path(text: str) -> str:
    """The text, with `./` before it where it is the path of a folder with a config.json."""
    try:
        here = "/" in text and (Path(text) / "config.json").is_file()
    except (OSError, ValueError):  # a text that no file can be called
        here = False
    return f"./{text}" if here and not text.startswith(("/", ".", "~")) else text


def systems(context: Any) -> dict[str, str]:
    """Ids of systems and chips, each with its name."""
    del context
    from foretell.catalog.names import load

    titles = load().titles
    return {**titles["chip"], **titles["system"]}


def entries(context: Any) -> dict[str, str]:
    """Ids of everything that `catalog show` shows."""
    return {**systems(context), **models(context)}
