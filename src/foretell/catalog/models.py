"""Models by name or file: the catalogue's own, a Hugging Face config, a TOML file of ours, or a typed text.

A question reads the index and the one file that it names. A name is forgiven its case and
punctuation; what separates two digits still counts, so that opt-1.3b and opt-13b stay two models.
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
from foretell.records import dataclass
from foretell.specs.model import Model

FOLDER = Path(__file__).parent / "models"
"""One file per model, and their index."""
INDEX = FOLDER / "index.toml"
STORED = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("fp8", "fp8"), ("fp4", "nvfp4"), ("awq", "int4"),
    ("w4a16", "int4"), ("int4", "int4"), ("4bit", "int4"), ("w8a8", "int8"), ("w8a16", "int8"),
    ("int8", "int8"), ("8bit", "int8"), ("gptq", "int4"),
)  # fmt: skip
"""How a repository's name says that its weights are stored in fewer bits: ending, precision."""
LAST_WORDS = 3
"""Words at the end of a repository's name among which it may say so (`-FP8-KV`, `-FP8-dynamic`)."""
PACKED = re.compile(
    r"[-_. ](?:instruct|chat|hf|it|preview|fp8|fp4|nvfp4|mxfp4|mxfp8|bf16|fp16|int[48]|w\d+a\d+|[48]bit"
    r"|awq|gptq|kv|dynamic|static|block|marlin|quantized|turbo)$"
)
"""Endings of repositories' names that leave the model's shape as it is."""
LAST_SIZE = re.compile(r"[-_]a?\d+(?:\.\d+)?[bm]$")
"""Size at the end of a name."""
LIKE = 0.75
"""Share of letters that names have in common, from which one is likely the other misspelled."""
ALLOWED = "a name of `foretell catalog models`"
"""What a model may be given as."""
Given = str | os.PathLike[str] | Mapping[str, Any]
"""A name or path, or a parsed config (Hugging Face's form or ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model of the catalogue, as the index has it."""

    id: str
    """Catalogue id."""
    file: str
    """Its file: .json in Hugging Face's form, .toml in ours."""
    aliases: tuple[str, ...] = ()
    """Other names."""
    reasoning: tuple[str, ...] = ()
    """Names under which it was trained to reason at length; "*": all of them."""
    source: str
    """Where its shape comes from."""
    status: str
    """published, inferred or recalled."""
    published: int | None = None
    """Parameter count in print."""
    published_text: str | None = None
    """The same where it is printed with few digits."""
    published_source: str | None = None
    """Where it is printed."""
    check: str = "none"
    """match, rounded, differs or none: our count beside the printed one."""
    note: str | None = None
    """What else there is to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNames:
    """The index, and every name in it."""

    entries: Mapping[str, ModelEntry]
    """Id -> entry, in the order of the ids."""
    by_key: Mapping[str, str]
    """`name_key` of every name -> id."""
    by_plain: Mapping[str, frozenset[str]]
    """The same without any punctuation -> ids, more than one where that is ambiguous."""
    by_kin: Mapping[str, frozenset[str]]
    """The same without owner and endings that leave the shape as it is -> ids."""
    by_short: Mapping[str, frozenset[str]]
    """The same without the sizes at the end (`qwen3-235b`, `mistral-small`) -> ids."""


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
    if are_read() and _looks_like_path(given):
        return _from_path(_expanded(given))
    if typed_words(given) is not None:
        return typed_model(given)
    found = find_model(given)
    if found is not None:
        return _stored(catalogue_model(found.id), given)
    if is_there(given):
        return _from_path(Path(given))
    raise _unknown(given)


def find_model(name: str) -> ModelEntry | None:
    """The entry that a name means, None where there is none; ambiguous names raise BadInput."""
    names = load_names()
    if name in names.entries:
        return names.entries[name]
    key = names.by_key.get(name_key(name))
    if key is not None:
        return names.entries[key]
    found = names.by_plain.get(plain_key(name), frozenset())
    if len(found) > 1:
        raise bad_input("model", name, "means more than one model", " or ".join(sorted(found)))
    kin = kin_key(name)
    found = found or names.by_kin.get(kin) or names.by_short.get(kin, frozenset())
    return names.entries[next(iter(found))] if len(found) == 1 else None


def stand_in(name: str) -> ModelEntry | None:
    """The entry whose shape a repository that the catalogue lacks has, as its name tells; else None.

    A tuned model has its base's words in their order (`Llama-3-8b-sft-mixture`). Else it is the model nearest
    in size, within a third, of all weights and of those that pass a token, its own family's first.
    """
    if is_path_or_text(name) or find_model(name) is not None:
        return None
    words = name_words(name)
    best: tuple[tuple[int, ...], ModelEntry] | None = None
    for entry in model_entries():
        for own in (entry.id, *entry.aliases):
            places = places_in(name_words(own), words, entry.published)
            rank = (-len(places), *places)
            if len(places) > 1 and (best is None or rank < best[0]):
                best = (rank, entry)
    return best[1] if best is not None else nearest_in_size(words)


def is_path_or_text(name: str) -> bool:
    """Whether a name means a file of the user's or a typed model, and no entry."""
    return typed_words(name) is not None or _looks_like_path(name) or is_there(name)


def name_words(name: str) -> tuple[str, ...]:
    """The words of a repository's name without its owner: letters from numbers, sizes with their unit."""
    plain = re.sub(r"^meta-(?=llama)", "", name.rsplit("/", 1)[-1].lower())
    plain = re.sub(r"(?<=\d)_(?=\d+[bm])", ".", plain).replace("_", "-")
    return tuple(re.findall(r"a?\d+(?:\.\d+)?[bm](?![a-z])|\d+(?:\.\d+)*|[a-z]+", plain))


def places_in(
    own: tuple[str, ...], words: tuple[str, ...], published: int | None = None
) -> tuple[int, ...]:
    """Where the words of an entry's name stand in another's, in order, its size among them, or that of as
    many weights as are `published`; () where one does not, or the name has another size beside it."""
    places: list[int] = []
    for word in own:
        start = places[-1] + 1 if places else 0
        if word not in words[start:]:
            return ()
        places.append(words.index(word, start))
    sizes = [word for word in words if SIZE.fullmatch(word) and word.endswith("b")]
    if sizes and all(size in own for size in sizes):
        return tuple(places)
    told = sizes_in(words)
    alike = told and published and abs(math.log(told[0] / published)) < ALIKE
    numbered = sizes_in(own) is None and any(any(c.isdigit() for c in word) for word in own)
    return tuple(places) if numbered and (alike or not sizes) else ()


SIZE = re.compile(r"a?(\d+(?:\.\d+)?)([bm])")
"""Millions or billions of weights in a name; behind an a, those that pass a token."""
LEAST_SIZE = 5e7
"""Weights from which on a number is a model's size (`1M` behind a size is a length)."""
ALIKE = math.log(4.0 / 3.0)
MIXED = math.log(1.6)
"""Difference of the logarithms of sizes up to which a model stands for another, and of mixtures."""


def nearest_in_size(words: tuple[str, ...]) -> ModelEntry | None:
    """The entry nearest to the sizes that a name has, of the same family where there is one."""
    wanted = sizes_in(words)
    if wanted is None:
        return None
    # There are few mixtures, so that one of another family and further off has to do.
    mixture = wanted[0] > wanted[1]
    found = []
    for entry in model_entries():
        own = name_words(entry.id)
        sizes = sizes_in(own)
        usual = entry.id.startswith(USUAL_SHAPES)
        if sizes is None or not (usual or mixture or own[0] == words[0]):
            continue
        apart = max(abs(math.log(a / b)) for a, b in zip(wanted, sizes, strict=True))
        if apart < (MIXED if mixture else ALIKE):
            found.append((own[0] != words[0], not usual, round(apart, 1), entry.id))
    return load_names().entries[min(found)[-1]] if found else None


USUAL_SHAPES = ("llama-3", "qwen2.5", "qwen3")
"""Families whose shapes stand for those of others."""


def states_size(name: str) -> bool:
    """Whether a repository's name says how many weights it has."""
    return sizes_in(name_words(name)) is not None


def sizes_in(words: tuple[str, ...]) -> tuple[float, float] | None:
    """Weights of a name, all of them and those that pass a token; None where it says none."""
    read = [(SIZE.fullmatch(word), word[0] == "a") for word in words]
    units = {"b": 1e9, "m": 1e6}
    found = [(float(one[1]) * units[one[2]], active) for one, active in read if one is not None]
    whole = next((size for size, active in found if size >= LEAST_SIZE and not active), None)
    active = next((size for size, active in found if size > 0.0 and active), whole)
    return None if whole is None or active is None else (whole, active)


def reasons_at_length(given: object) -> bool:
    """Whether a name means a model that was trained to reason at length; of what is no name, False."""
    entry = find_model(given) if isinstance(given, str) and typed_words(given) is None else None
    if entry is None:
        return False
    return any(name == "*" or kin_key(name) == kin_key(str(given)) for name in entry.reasoning)


def is_catalogue_model(name: str) -> bool:
    """Whether a text names a model of the catalogue, and no file."""
    return _entry_and_file(name)[0] is not None


def model_entries() -> tuple[ModelEntry, ...]:
    """Every model of the catalogue, in the order of the ids."""
    return tuple(load_names().entries.values())


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
    looked_up = isinstance(given, str) and not _looks_like_path(given)
    entry = find_model(given) if looked_up and isinstance(given, str) else None
    if entry is not None:
        return entry, FOLDER / entry.file
    return None, _config_file(_expanded(given))


def name_key(name: str) -> str:
    """Lower case, letters and digits, and a dot for whatever separates two digits."""
    joined = re.sub(r"(?<=[0-9])[^a-z0-9]+(?=[0-9])", ".", name.lower())
    return re.sub(r"[^a-z0-9.]|(?<![0-9])\.|\.(?![0-9])", "", joined)


def kin_key(name: str) -> str:
    """A repository's name without its owner, and without what tells how its weights were tuned or packed."""
    plain = re.sub(r"^meta-(?=llama)", "", name.rsplit("/", 1)[-1].lower())
    while (shorter := PACKED.sub("", plain)) != plain:
        plain = shorter
    return name_key(plain)


def plain_key(name: str) -> str:
    """Lower case, letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@lru_cache(maxsize=1)
def load_names() -> ModelNames:
    """The stored index: package data, the same in every call."""
    entries: dict[str, ModelEntry] = {}
    by_key: dict[str, str] = {}
    by_plain: dict[str, set[str]] = {}
    by_kin: dict[str, set[str]] = {}
    by_short: dict[str, set[str]] = {}
    for table in read_table(INDEX)["model"]:
        lists = {name: tuple(table.get(name, ())) for name in ("aliases", "reasoning")}
        entry = ModelEntry(**{**table, **lists})
        entries[entry.id] = entry
        for name in (entry.id, *entry.aliases):
            by_key.setdefault(name_key(name), entry.id)
            by_plain.setdefault(plain_key(name), set()).add(entry.id)
            by_kin.setdefault(kin_key(name), set()).add(entry.id)
            short = name.lower()
            while (shorter := LAST_SIZE.sub("", short)) != short:
                short = shorter
                by_short.setdefault(kin_key(short), set()).add(entry.id)
    return ModelNames(
        entries=entries,
        by_key=by_key,
        by_plain={key: frozenset(ids) for key, ids in by_plain.items()},
        by_kin={key: frozenset(ids) for key, ids in by_kin.items()},
        by_short={key: frozenset(ids) for key, ids in by_short.items()},
    )


@lru_cache(maxsize=64)
def catalogue_model(id: str) -> Model:
    """The model of a catalogue id; kept, since the files of a package do not change."""
    path = FOLDER / load_names().entries[id].file
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


def _looks_like_path(name: str) -> bool:
    """Whether a name can only be a path; `org/name` is the name of a repository first."""
    return name.endswith((".json", ".toml")) or name.startswith((".", "/", "~"))


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

    names = load_names()
    message = "is neither a model of the catalogue nor a file" if are_read() else NOT_READ
    key, words = name_key(name)[:100], name_words(name[:100])
    near = [names.by_key[own] for own in names.by_key if len(key) > 3 and own.startswith(key)]
    near += [id for id in names.entries if words and {*words} <= {*name_words(id)}]
    like = difflib.get_close_matches(key, names.by_key, n=8, cutoff=0.6)
    near += [  # another family's name only where it is spelled nearly so
        names.by_key[own]
        for own in like
        if own.startswith(words[:1]) or difflib.SequenceMatcher(None, key, own).ratio() > LIKE
    ]
    if not near and (alike := nearest_in_size(words)) is not None:
        near.append(alike.id)
    allowed = f"{ALLOWED}, owner/name with --hub, its config.json" if are_read() else ALLOWED
    nearest = " or ".join(list(dict.fromkeys(near))[:3]) or None
    return bad_input("model", name, message, allowed, nearest)
