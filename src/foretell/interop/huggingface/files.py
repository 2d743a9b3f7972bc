"""config.json and hf_quant_config.json on disk: read once, checked, never run."""

import json
from collections.abc import Mapping
from pathlib import Path

from foretell.errors import BadInput, bad_input
from foretell.interop.user_files import check_file, is_too_deep

CONFIG = "config.json"
QUANTISATION = "hf_quant_config.json"


def load_config(path: Path) -> tuple[Mapping[str, object], str, str]:
    """(parsed config, its name in messages, an id for the model) of a file or a folder with one.

    Where hf_quant_config.json lies beside a config.json, its content is added under the key
    `hf_quant_config`; the same for org--name_hf_quant_config.json beside org--name_config.json.
    """
    check_file(path)
    try:
        file = path / CONFIG if path.is_dir() else path
        there = file.is_file()
        beside = file.parent / (file.name.removesuffix(CONFIG) + QUANTISATION)
        quantised = file.name.endswith(CONFIG) and beside.is_file() and beside != file
    except (OSError, ValueError) as error:  # a text that no file can be called
        reason = getattr(error, "strerror", None) or error
        raise _bad(path, f"is no path of a file: {reason}") from None
    if not there:
        missing = "there is no such file" if file is path else "the folder holds no config.json"
        raise _bad(path, missing)
    name = file.stem if file.name != CONFIG else file.resolve().parent.name
    data = load_json(file)
    if quantised:
        data = {**data, "hf_quant_config": load_json(beside)}
    return data, file.name, name or file.name


def load_json(path: Path) -> Mapping[str, object]:
    """A JSON file whose top is a table; anything else is `BadInput`.

    NaN and infinities are let through, since published configs have them (`time_step_limit`); where
    a reader asks for such a key, it is refused by name. A key that is there twice with two values is
    refused too: which one counts would be a guess.
    """
    check_file(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_table)
    except UnicodeDecodeError:
        raise _bad(path, "is not UTF-8 text") from None
    except RecursionError:
        raise _bad(path, "is nested too deeply") from None
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from None
    except _TwiceError as error:
        raise _bad(path, str(error), allowed="each key once") from None
    except ValueError as error:
        raise _bad(path, f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise _bad(path, "is not a JSON table", allowed="{ ... } at the top")
    if is_too_deep(data):
        raise _bad(path, "is nested too deeply")
    return data


class _TwiceError(ValueError):
    """A key that is there twice with two values."""


def _table(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON; _TwiceError where a key contradicts itself."""
    found = dict(pairs)
    if len(found) < len(pairs):
        for key, value in pairs:
            if repr(value) != repr(found[key]):
                raise _TwiceError(f"{key[:60]} is given twice, with two values")
    return found


def _bad(path: Path, message: str, allowed: str | None = None) -> BadInput:
    return bad_input(str(path).encode("utf-8", "backslashreplace").decode(), None, message, allowed)
