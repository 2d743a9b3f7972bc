"""Models by name or file: the catalogue's own, a Hugging Face config, a TOML file of ours, or a typed text.

A question reads the index and the one file that it names.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.catalog.files import read_table
from foretell.catalog.model_names import (
    FOLDER,
    ModelEntry,
    entries_by_id,
    find_model,
    ids_by,
    looks_like_path,
    name_key,
    name_words,
    nearest_in_size,
    plain_key,
)
from foretell.catalog.typed_models import typed_model, typed_words
from foretell.errors import BadInput, bad_input
from foretell.interop.user_files import (
    NOT_READ,
    are_read,
    is_there,
    is_too_deep,
    names_only,
    user_file,
)
from foretell.specs.model import Model

STORED = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("fp8", "fp8"), ("fp4", "nvfp4"), ("awq", "int4"),
    ("w4a16", "int4"), ("int4", "int4"), ("4bit", "int4"), ("w8a8", "int8"), ("w8a16", "int8"),
    ("int8", "int8"), ("8bit", "int8"), ("gptq", "int4"),
)  # fmt: skip
"""How a repository's name says that its weights are stored in fewer bits: ending, precision."""
LAST_WORDS = 3
"""Words at the end of a repository's name among which it may say so (`-FP8-KV`, `-FP8-dynamic`)."""
LIKE = 0.75
"""Share of letters that names have in common, from which one is likely the other misspelled."""
ALLOWED = "a name of `foretell catalog models`"
"""What a model may be given as."""
Given = str | os.PathLike[str] | Mapping[str, Any]
"""A name or path, or a parsed config (Hugging Face's form or ours)."""


def model(given: Given, *, files: bool = True) -> Model:
    """The model of a name, a path (config.json, a folder with one, our TOML) or a parsed table.

    `files=False` takes names and tables alone, for callers that must not open what a stranger asks
    for. Unknown names raise BadInput with the nearest ones.
    """
    if not files:
        with names_only():
            return model(given)
    if isinstance(given, Mapping):
        return _from_table(given)
    if not isinstance(given, str):
        return _from_path(user_file(given, "model"))
    if are_read() and looks_like_path(given):
        return _from_path(_expanded(given))
    if typed_words(given) is not None:
        return typed_model(given)
    found = find_model(given)
    if found is not None:
        return _stored(catalogue_model(found.id), given)
    if is_there(given):
        return _from_path(Path(given))
    raise _unknown(given)


def is_catalogue_model(name: str) -> bool:
    """Whether a text names a model of the catalogue, and no file."""
    return _entry_and_file(name)[0] is not None


def show_model(given: Given, counts: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A model in the JSON form of `catalog show`: each value with its source and status.

    `counts` are `parameters`, `parameters_text` and `parameters_active`, which the caller has from
    `foretell.workload.parameters`.
    """
    record = model(given)
    entry, path = _entry_and_file(given)
    table = model_table(given)
    source, status = str(path) if path else "given inline", "published"
    if entry is not None:
        source, status = entry.source, entry.status
    shown: dict[str, Any] = {
        "kind": "model",
        "id": record.id,
        "aliases": list(entry.aliases) if entry else [],
        "family": record.family,
        "model_kind": record.kind,
        **(counts or {}),
        "published_parameters": entry.published if entry else None,
        "published_text": entry.published_text if entry else None,
        "published_source": entry.published_source if entry else None,
        "check": entry.check if entry else "none",
        "notes": [entry.note] if entry and entry.note else [],
        "assumptions": list(record.assumptions),
        "values": {
            key: {"value": value, "source": source, "status": status}
            for key, value in _flat(table).items()
        },
    }
    return shown


def model_table(given: Given) -> Mapping[str, Any]:
    """The keys and values that a model is read from, as its file has them."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str) and typed_words(given) is not None:
        return {}
    _, path = _entry_and_file(given)
    return _raw_table(path or Path())


def _entry_and_file(given: Given) -> tuple[ModelEntry | None, Path | None]:
    """The catalogue's entry, if it has one of this name, and the file to read."""
    if isinstance(given, Mapping) or (isinstance(given, str) and typed_words(given) is not None):
        return None, None
    looked_up = isinstance(given, str) and not looks_like_path(given)
    entry = find_model(given) if looked_up and isinstance(given, str) else None
    if entry is not None:
        return entry, FOLDER / entry.file
    return None, _config_file(_expanded(given))


@lru_cache(maxsize=64)
def catalogue_model(id: str) -> Model:
    """The model of a catalogue id; kept, since the files of a package do not change."""
    path = FOLDER / entries_by_id()[id].file
    if path.suffix == ".toml":
        from foretell.interop.own_model import read_toml

        return read_toml(path)
    from foretell.interop.huggingface import read_model

    return read_model(path, id=id)


def _stored(record: Model, name: str) -> Model:
    """With the precision that the name of a repository says its weights are stored in."""
    if "/" not in name:
        return record
    plain, words = plain_key(name), re.split(r"[-_. ]", name.lower())[-LAST_WORDS:]
    for ending, dtype in STORED:
        if (plain.endswith(ending) or ending in words) and record.dtype != dtype:
            said = f"weights stored in {dtype}, as the name {name} says"
            return replace(record, dtype=dtype, assumptions=(*record.assumptions, said))
    return record


def _from_path(path: Path) -> Model:
    if path.suffix == ".toml":
        from foretell.interop.own_model import read_toml

        return read_toml(path)
    from foretell.interop.huggingface import read_model

    return read_model(path)


def _from_table(table: Mapping[str, Any]) -> Model:
    """Our form has a `stack`; everything else is read as a Hugging Face config."""
    if is_too_deep(table):
        raise bad_input("model", None, "is nested too deeply")
    if "stack" in table:
        from foretell.interop.own_model import read_table as read_own

        return read_own(dict(table), id="inline")
    from foretell.interop.huggingface import read_model

    return read_model(table, id="inline")


def _expanded(name: str | os.PathLike[str]) -> Path:
    """The user's file, with `~` as the user's folder, where there is such a user."""
    path = user_file(name, "model")
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _config_file(path: Path) -> Path:
    return path / "config.json" if path.is_dir() else path


def _raw_table(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".toml":
        return read_table(path)
    from foretell.interop.huggingface.files import load_json

    return load_json(path)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _finite(value)
    return flat


def _finite(value: Any) -> Any:
    """With NaN and infinities, which JSON does not have, as null."""
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unknown(name: str) -> BadInput:
    """No such model, with the ids whose names are most like it."""
    import difflib  # only a failing run pays for it

    entries, by_key = entries_by_id(), ids_by(name_key)
    message = "is neither a model of the catalogue nor a file" if are_read() else NOT_READ
    key, words = name_key(name)[:100], name_words(name[:100])
    near = [by_key[own][0] for own in by_key if len(key) > 3 and own.startswith(key)]
    near += [id for id in entries if words and {*words} <= {*name_words(id)}]
    like = difflib.get_close_matches(key, by_key, n=8, cutoff=0.6)
    near += [  # another family's name only where it is spelled nearly so
        by_key[own][0]
        for own in like
        if own.startswith(words[:1]) or difflib.SequenceMatcher(None, key, own).ratio() > LIKE
    ]
    if not near and (alike := nearest_in_size(words)) is not None:
        near.append(alike.id)
    allowed = f"{ALLOWED}, owner/name with --hub, its config.json" if are_read() else ALLOWED
    nearest = " or ".join(list(dict.fromkeys(near))[:3]) or None
    return bad_input("model", name, message, allowed, nearest)
