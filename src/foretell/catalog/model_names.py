"""Names of models: the catalogue's index, the entry a name means, and what stands for an unknown one.

A name is forgiven its case and punctuation; what separates two digits still counts, so that opt-1.3b and
opt-13b stay two models.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from foretell.catalog.files import read_table
from foretell.catalog.typed_models import typed_words
from foretell.errors import bad_input
from foretell.interop.user_files import (
    is_there,
)
from foretell.records import dataclass

FOLDER = Path(__file__).parent / "models"
"""One file per model, and their index."""


INDEX = FOLDER / "index.toml"


PACKED = re.compile(
    r"[-_. ](?:instruct|chat|hf|it|preview|fp8|fp4|nvfp4|mxfp4|mxfp8|bf16|fp16|int[48]|w\d+a\d+|[48]bit"
    r"|awq|gptq|kv|dynamic|static|block|marlin|quantized|turbo)$"
)
"""Endings of repositories' names that leave the model's shape as it is."""


LAST_SIZE = re.compile(r"[-_]a?\d+(?:\.\d+)?[bm]$")
"""Size at the end of a name."""


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
    """Parameter count as its text has it, where that has few digits."""
    published_source: str | None = None
    """Where it is printed."""
    check: str = "none"
    """match, rounded, differs or none: our count beside the printed one."""
    note: str | None = None
    """What else there is to say."""


def find_model(name: str) -> ModelEntry | None:
    """The entry that a name means, None where there is none; ambiguous names raise BadInput."""
    entries = entries_by_id()
    if name in entries:
        return entries[name]
    if found := ids_by(name_key).get(name_key(name)):
        return entries[found[0]]
    found = ids_by(plain_key).get(plain_key(name), ())
    if len(found) > 1:
        raise bad_input("model", name, "means more than one model", " or ".join(sorted(found)))
    kin = kin_key(name)
    found = found or ids_by(kin_key).get(kin) or ids_by(kin_key, short_names).get(kin, ())
    return entries[found[0]] if len(found) == 1 else None


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
    return typed_words(name) is not None or looks_like_path(name) or is_there(name)


def name_words(name: str) -> tuple[str, ...]:
    """The words of a repository's name without its owner: letters from numbers, sizes with their unit."""
    plain = re.sub(r"^meta-(?=llama)", "", name.rsplit("/", 1)[-1].lower())
    plain = re.sub(r"(?<=\d)_(?=\d+[bm])", ".", plain).replace("_", "-")
    return tuple(re.findall(r"a?\d+(?:\.\d+)?[bm](?![a-z])|\d+(?:\.\d+)*|[a-z]+", plain))


def places_in(
    own: tuple[str, ...], words: tuple[str, ...], published: int | None = None
) -> tuple[int, ...]:
    """Where the words of an entry's name are in another's, in order, its size among them, or that of as
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
    return entries_by_id()[min(found)[-1]] if found else None


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


def model_entries() -> tuple[ModelEntry, ...]:
    """Every model of the catalogue, in the order of the ids."""
    return tuple(entries_by_id().values())


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
def entries_by_id() -> Mapping[str, ModelEntry]:
    """Id -> entry, in the order of the ids: package data, the same in every call."""
    entries: dict[str, ModelEntry] = {}
    for table in read_table(INDEX)["model"]:
        lists = {name: tuple(table.get(name, ())) for name in ("aliases", "reasoning")}
        entry = ModelEntry(**{**table, **lists})
        entries[entry.id] = entry
    return entries


def same_name(name: str) -> list[str]:
    """The name itself."""
    return [name]


def short_names(name: str) -> list[str]:
    """The name without the sizes at its end (`qwen3-235b`, `mistral-small`), one after the other."""
    short, found = name.lower(), []
    while (shorter := LAST_SIZE.sub("", short)) != short:
        short = shorter
        found.append(short)
    return found


@lru_cache(maxsize=8)
def ids_by(
    key: Callable[[str], str], forms: Callable[[str], list[str]] = same_name
) -> Mapping[str, tuple[str, ...]]:
    """Key of every form of every name -> ids, more than one where that is ambiguous.

    Made when a name is first looked for by it: most questions give an id.
    """
    found: dict[str, dict[str, None]] = {}
    for entry in entries_by_id().values():
        for name in (entry.id, *entry.aliases):
            for form in forms(name):
                found.setdefault(key(form), {})[entry.id] = None
    return {name: tuple(ids) for name, ids in found.items()}


def looks_like_path(name: str) -> bool:
    """Whether a name can only be a path; `org/name` is the name of a repository first."""
    return name.endswith((".json", ".toml")) or name.startswith((".", "/", "~"))
