"""Which layers of a stack differ, by the rules of a row: a list or a pattern, and sliding windows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.rows import Row, key_of

Marks = tuple[bool, ...]
Windows = tuple[int | None, ...]
"""Keys that each layer's queries see, None for all."""


def marks_of(row: Row, ways: str | Sequence[Mapping[str, Any]], depth: int) -> Marks:
    """Which layers are marked: by the first of some ways that the config has; by none, all are."""
    if isinstance(ways, str):
        return WAYS[ways](row, depth)
    for way in ways:
        found = _marked(row, way, depth)
        if found is not None:
            return found
    return (True,) * depth


def _marked(row: Row, way: Mapping[str, Any], depth: int) -> Marks | None:
    """Layers by one way, None where the config has no such keys.

    `types`: a list of names, of which those in `on` are marked; `list`: 0 or 1 for each layer, where it is
    not empty if `or_empty`; `numbers`: the layers' numbers, from `first` on (0); else every `every`-th from
    `shift` on, behind `behind` layers and up to `until`, but those of the list `but`; `other`: the others.
    A way may say that it is an assumption (`assume`), or that a key is `missing`.
    """
    config = row.config
    if "in" in way:
        if not config.has(way["in"]):
            return None
        config = config.sub(way["in"])
    if "assume" in way:
        config.assume(way["assume"])
    if "missing" in way:
        config.problem(way["missing"], "is missing", allowed=way["allowed"])
    marks: Marks | None
    if "types" in way:
        names = _names(row, way, depth)
        marks = None if names is None else tuple(name in way["on"] for name in names)
    elif "list" in way:
        there = config.raw(way["list"]) or not way.get("or_empty")
        found = config.wholes(way["list"], depth) if there else None
        marks = None if found is None else tuple(bool(mark) for mark in found)
    elif "numbers" in way:
        named = _numbers(config, way["numbers"])
        first = way.get("first", 0)
        config.check(
            all(first <= i < depth + first for i in named or ()),
            (way["numbers"], row.keys("depth")),
            f"names layers beyond the {depth} there are",
        )
        marks = None if named is None else tuple(i + first in named for i in range(depth))
    else:
        marks = _pattern(row, way, depth)
    if marks is None or not way.get("other"):
        return marks
    return tuple(not mark for mark in marks)


def _numbers(config: Config, key: str) -> tuple[int, ...] | None:
    """A list of layers: numbers, or a text with commas between them."""
    value = config.raw(key)
    if not isinstance(value, str):
        return config.wholes(key)
    words = [word.strip() for word in value.split(",") if word.strip()]
    if all(word.isdecimal() for word in words):
        return tuple(int(word) for word in words)
    config.problem(key, "is not a list of layers", value)
    return ()


def _names(row: Row, way: Mapping[str, Any], depth: int) -> tuple[str, ...] | None:
    """The kind of each layer; a problem where one is none that the way knows."""
    known = (*way["on"], *way["off"])
    return row.config.layer_types(depth, known, key=way["types"])


def _pattern(row: Row, way: Mapping[str, Any], depth: int) -> Marks:
    """Layers by numbers."""
    config = row.config
    every = row.value(way.get("every", 1))
    shift = row.value(way.get("shift", every - 1), 0)
    behind = row.value(way.get("behind", 0), 0)
    config.check(
        behind <= depth,
        (key_of(way.get("behind")), row.keys("depth")),
        f"{behind} leading layers of {depth} in all",
    )
    until = row.value(way.get("until"), 0)
    last = depth - 1 if until in (None, -1) else until
    but = set(config.wholes(way["but"]) or ()) if "but" in way else set()
    return tuple(behind <= i <= last and i not in but and i % every == shift for i in range(depth))


def with_indexers(row: Row, depth: int) -> Marks:
    """Layers with an indexer of their own: `indexer_types`, else a pattern, else every n-th.

    From layer `index_skip_topk_offset` - 1 on, every `index_topk_freq`-th layer has one; the layers
    before it have one each. Both keys absent: every layer.
    """
    config = row.config
    kinds = config.layer_types(depth, ("full", "shared"), key="indexer_types")
    if kinds is None and isinstance(config.raw("index_topk_pattern"), str):
        letters = config.text("index_topk_pattern", "")
        config.check(len(letters) == depth, ("index_topk_pattern",), f"has {len(letters)} letters")
        kinds = tuple({"F": "full"}.get(c, "shared") for c in letters.ljust(depth, "F"))
    if kinds is None:
        every = config.get("index_topk_freq", 1, None, low=1)
        offset = config.get("index_skip_topk_offset", 2, None)
        return tuple(max(i - offset + 1, 0) % every == 0 for i in range(depth))
    config.check(
        kinds[0] == "full", ("indexer_types",), "the first layer has no indexer to share with"
    )
    return tuple(kind == "full" for kind in kinds[:depth])


WAYS: dict[str, Callable[[Row, int], Marks]] = {"indexers": with_indexers}
"""What marks the layers of a few families, by the word `layers` of a row."""


def windows_of(row: Row, depth: int) -> Windows:
    """The sliding window of each layer.

    `width`: that of an absent `sliding_window`; `used`: where `use_sliding_window` is on; `from`: the first
    layer where the config does not say; `all_but`: the layers that see all keys, each n-th, where it does
    not; `layer_types` says before both.
    """
    way, config = row.rules.get("windows"), row.config
    if way is None:
        return (None,) * depth
    if isinstance(way, str):
        return WINDOWS[way](row, depth)
    if way.get("used") and not config.flag("use_sliding_window", default=False, why=row.why):
        return (None,) * depth
    width = _width(row, way.get("width"))
    kinds = config.layer_types(depth, ("full_attention", "sliding_attention"))
    if kinds is not None:
        config.check(
            width is not None or "sliding_attention" not in kinds,
            ("layer_types", "sliding_window"),
            "layers with a sliding window need its width",
        )
        return tuple(width if kind == "sliding_attention" else None for kind in kinds)
    if width is not None and "all_but" in way:
        every = config.get("sliding_window_pattern", way["all_but"], row.why, low=1)
        return tuple(None if (i + 1) % every == 0 else width for i in range(depth))
    first = config.get("max_window_layers", way["from"], row.why) if "from" in way else 0
    return tuple(width if i >= first else None for i in range(depth))


def _width(row: Row, default: int | None) -> int | None:
    """`sliding_window`: null means none, absent means the family's default."""
    if default is None or row.config.given("sliding_window"):
        return row.config.get("sliding_window", None, low=1)
    return row.config.get("sliding_window", default, row.why, low=1)


def letter_windows(row: Row, depth: int) -> Windows:
    """EXAONE: `sliding_window_pattern` in letters (L: window, G: all keys), else as others have it."""
    pattern = row.config.raw("sliding_window_pattern")
    if row.config.has("layer_types") or not isinstance(pattern, str):
        return windows_of(row.within({"windows": {"all_but": 4, "width": 4096}}), depth)
    width = _width(row, 4096)
    row.config.check(
        bool(pattern) and set(pattern) <= {"L", "G"},
        ("sliding_window_pattern",),
        "has letters other than L and G",
    )
    letters = pattern or "G"
    return tuple(None if letters[i % len(letters)] == "G" else width for i in range(depth))


def local_in_turn(row: Row, depth: int) -> Windows:
    """GPT-Neo: `attention_layers`, else `attention_types` ([[[kinds], repeats], ...]), else in turn."""
    config = row.config
    width = config.get("window_size", 256, row.why, low=1)
    kinds = config.texts("attention_layers", depth)
    value = config.raw("attention_types")
    if kinds is None and value is not None:
        try:
            kinds = tuple(
                str(kind)
                for kinds, repeats in value  # type: ignore[attr-defined]
                for kind in list(kinds) * min(int(repeats), depth)
            )
        except (TypeError, ValueError):
            config.problem("attention_types", "is not a list of [[kinds], repeats]", value)
        if kinds is not None and len(kinds) != depth:
            config.problem("attention_types", f"gives {len(kinds)} layers for {depth}", value)
            kinds = None
    if kinds is None:
        config.assume("attention_types is absent: global and local layers in turn, as GPTNeoConfig")
        kinds = tuple("local" if i % 2 else "global" for i in range(depth))
    return tuple(width if kind == "local" else None for kind in kinds)


WINDOWS: dict[str, Callable[[Row, int], Windows]] = {
    "lettered": letter_windows, "local_in_turn": local_in_turn,
}  # fmt: skip
"""What computes the windows of a few families, by the word `windows` of a row."""
