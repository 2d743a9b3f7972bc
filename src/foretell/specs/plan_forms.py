"""Words of a plan that are neither one of a few choices nor a degree: lists of modules, counted layers.

    recompute   none, selective, full, full:N (N layers of each stage), or modules joined by +
    offload     none, or what lives in the host's memory, joined by +
    layout      even, or layers of each pipeline chunk, first to last: 7,8*14,7
    adapters    all, attention, qkv, qv, mlp, or some of q+k+v+o+up+down; +ends trains table and head whole
    shard, secondary, lora, tp2, panels, bucket, prefetch   whole numbers, 0 where there is none
    framework   NAME, NAME@RELEASE or NAME@DATE: which there are, the catalogue knows (catalog/software)
    tp_mode=sequence   read as tp by columns and rows, and context parallelism that gathers: the same thing

A form is printed in one spelling only: modules in the order of `MODULES`, `core` alone as `selective`.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import groupby

from foretell.errors import Problem, wrong

MODULES = ("core", "attention", "up", "mlp", "act", "norm", "moe", "products")
"""What can be computed again by itself: attention cores and scans, whole mixers, queries, keys and values out
of their latents, dense feed-forward parts, activations, norms, mixtures of experts; every second product."""
OFFLOADS = ("optimizer", "activations", "weights")
"""What can live in the host's memory."""
TARGETS = ("q", "k", "v", "o", "up", "down")
"""Linear maps that can have an adapter: queries, keys, values, the output of attention; both products of
feed-forward parts, the gate with the first."""
TARGET_SETS = {
    "all": frozenset(TARGETS),
    "attention": frozenset("qkvo"),
    "qkv": frozenset("qkv"),
    "qv": frozenset("qv"),
    "mlp": frozenset(("up", "down")),
}
"""Words for several of them."""
TRAINED_ENDS = "ends"
"""Word of `adapters` by which table and head are trained whole beside the adapters (PEFT:
modules_to_save)."""
GENERIC = "generic"
"""The software of a plan that names none."""
_FRAMEWORK = re.compile(r"[a-z][a-z0-9.-]*(@[a-z0-9][a-z0-9.-]*)?")
NUMBERS = (
    "shard", "secondary", "lora", "tp2", "panels", "bucket", "prefetch", "documents", "wide_layers",
)  # fmt: skip
"""Keys whose value is a whole number."""
SEQUENCE_GRID = "sequence"
"""Value of tp_mode that is another spelling: `tp8 tp_mode=sequence tp2=2` is `tp4 cp2 cp_mode=allgather`."""


def recompute_form(value: str) -> str | None:
    """The one spelling of a recomputation, or None where it is none."""
    if value in ("none", "selective", "full"):
        return value
    head, _, count = value.partition(":")
    if head == "full":
        digits = count.isascii() and count.isdigit() and len(count) < 7
        return f"full:{int(count)}" if digits and int(count) > 0 else None
    chosen = join_names(value, MODULES)
    return "selective" if chosen == "core" else chosen


def offload_form(value: str) -> str | None:
    """The one spelling of what is offloaded, or None."""
    return value if value == "none" else join_names(value, OFFLOADS)


EVEN = "even"
"""The layout of a plan that names none: as even as it can be, the outer chunks with the fewer layers."""
MOST_CHUNKS = 4096
"""Chunks of a layout."""
_RUN = re.compile(r"(\d{1,5})(?:\*(\d{1,4}))?")


def layout_form(value: str) -> str | None:
    """The one spelling of a layout, runs of equal chunks joined; None where it is none."""
    if value == EVEN:
        return value
    sizes: list[int] = []
    for part in value.split(","):
        match = _RUN.fullmatch(part)
        if match is None or int(match[2] or 1) < 1:
            return None
        sizes += [int(match[1])] * int(match[2] or 1)
        if len(sizes) > MOST_CHUNKS:
            return None
    runs = [(size, len(list(same))) for size, same in groupby(sizes)]
    return ",".join(str(size) if many == 1 else f"{size}*{many}" for size, many in runs)


@lru_cache(maxsize=1024)
def layout_sizes(value: str) -> tuple[int, ...]:
    """Layers of each chunk; none where the layout is even."""
    if value == EVEN:
        return ()
    runs = (part.partition("*") for part in value.split(","))
    return tuple(int(size) for size, _, many in runs for _ in range(int(many or 1)))


def even_sizes(layers: int, chunks: int, tail: int = 0) -> tuple[int, ...]:
    """Layers of each chunk of an even layout: the remainder goes to the inner chunks first.

    Blocks behind the last layer that cost as much as `tail` layers take the places of the last ones.
    """
    size, rest = divmod(layers + tail, chunks)
    inner = [*range(1, chunks - 1), 0, chunks - 1][:chunks] if chunks > 1 else [0]
    more = {*inner[:rest]}
    sizes = [size + (at in more) for at in range(chunks)]
    for at in reversed(range(chunks)):
        taken = min(tail, sizes[at])
        sizes[at] -= taken
        tail -= taken
    return tuple(sizes)


def adapters_form(value: str) -> str | None:
    """The one spelling of the maps that have adapters, or None."""
    given = value.split("+")
    known = set(given) <= {*TARGETS, *TARGET_SETS, TRAINED_ENDS}
    if len(set(given)) != len(given) or not known:
        return None
    maps = adapter_targets(value)
    if not maps:
        return None
    names = [name for name, several in TARGET_SETS.items() if several == maps]
    words = names[:1] or [name for name in TARGETS if name in maps]
    return "+".join([*words, *([TRAINED_ENDS] if TRAINED_ENDS in given else [])])


def adapter_targets(value: str) -> frozenset[str]:
    """Linear maps that a word of `adapters` names."""
    sets = (TARGET_SETS.get(name, frozenset((name,))) for name in value.split("+"))
    return frozenset().union(*sets) - {TRAINED_ENDS}


def framework_form(value: str) -> str | None:
    """The one spelling of a word for software, or None where it cannot be one."""
    return value if len(value) <= 80 and _FRAMEWORK.fullmatch(value) else None


def join_names(value: str, names: tuple[str, ...]) -> str | None:
    """Names joined by +, each once and in their own order; None where one is unknown or doubled."""
    given = value.split("+")
    if len(set(given)) != len(given) or not set(given) <= set(names):
        return None
    return "+".join(name for name in names if name in given)


def recompute_modules(text: str) -> tuple[str, ...]:
    """Modules that a recomputation names; selective is the attention core, whole layers are none."""
    if text == "selective":
        return ("core",)
    named = text != "none" and not text.startswith("full")
    return tuple(text.split("+")) if named else ()


def recompute_layers(text: str) -> int:
    """N of full:N; 0 elsewhere."""
    return int(text.partition(":")[2] or 0)


def offloads(text: str) -> tuple[str, ...]:
    """What is in the host's memory."""
    return () if text == "none" else tuple(text.split("+"))


FORMS: Mapping[str, Callable[[str], str | None]] = {
    "framework": framework_form,
    "recompute": recompute_form,
    "offload": offload_form,
    "layout": layout_form,
    "adapters": adapters_form,
}
"""Keys with a spelling of their own."""
FORM_ALLOWED: Mapping[str, str] = {
    "recompute": "none, selective, full, full:N, or some of " + "+".join(MODULES),
    "offload": "none, or some of " + "+".join(OFFLOADS),
    "adapters": f"{', '.join(TARGET_SETS)}, or some of {'+'.join(TARGETS)}; +{TRAINED_ENDS}",
    "framework": "NAME, NAME@RELEASE or NAME@DATE",
    "layout": "even, or layers of each pipeline chunk, first to last, as in 7,8*14,7",
}
"""What their values may be, in words."""
FORM_WORDS: Mapping[str, tuple[str, ...]] = {
    "recompute": ("none", "selective", "full", *MODULES),
    "offload": ("none", *OFFLOADS),
    "adapters": (*TARGET_SETS, *TARGETS),
    "framework": (GENERIC,),
    "layout": (EVEN,),
}
"""Words from which the nearest to a wrong value is taken."""


PAGED = {"paged-adam": "adam", "paged-adam8bit": "adam8bit"}
"""Values of optimizer that are another spelling: bitsandbytes keeps their states in pages that may live on
the host, read as states on the host, `optimizer=adam8bit offload=optimizer`."""
_NAMES = {
    "adam": "adamw adamw_torch adamw_torch_fused adamw_apex_fused adamw_hf adamwnpufused fused_adam "
    "fusedadam adamw_torch_xla adamw_torch_npu_fused adamw_anyprecision paged_adamw paged_adamw_32bit",
    "adam8bit": "adamw_bnb_8bit adamw_8bit paged_adamw_8bit adamw_torch_8bit",
    "lion": "lion_32bit paged_lion_32bit",
}
OPTIMIZER_NAMES = {name: ours for ours, names in _NAMES.items() for name in names.split()}
"""Names of Hugging Face's `optim=` -> ours; paged states stay on the card while they fit."""


def as_written(given: dict[str, object], problems: list[Problem]) -> dict[str, object]:
    """The fields of a text, a grid of features and sequence as the two groups that it is.

    2-D sequence parallelism cuts heads and widths over the first dimension and tokens over the second, whose
    ranks gather each other's keys: tensor parallelism with sequence parallelism, and context parallelism.
    """
    if "dora" in given:  # another spelling of its method
        dora = given["dora"]
        given = {name: value for name, value in given.items() if name != "dora"}
        given |= {"method": "dora"} if dora else {}
    name = str(given.get("optimizer"))
    if name in PAGED:
        given = {"offload": "optimizer", **given, "optimizer": PAGED[name]}
    if name in OPTIMIZER_NAMES:
        given = {**given, "optimizer": OPTIMIZER_NAMES[name]}
    if given.get("tp_mode") != SEQUENCE_GRID:
        return given
    rest = {key: value for key, value in given.items() if key not in ("tp_mode", "tp2")}
    second = int(str(given.get("tp2", 0)))
    said = [key for key in ("cp", "cp_mode", "panels") if key in given]
    if said:
        message = f"tp_mode={SEQUENCE_GRID} cuts the sequence by tp2 already"
        problems.append(wrong(f"plan.{said[0]}", given[said[0]], message, "tp2=N"))
    if second:
        ranks = int(str(given.get("tp", 1)))
        if ranks % second:
            message = f"must divide tp {ranks}: the rest is {ranks % second}"
            problems.append(wrong("plan.tp2", second, message))
        rest |= {"tp": max(ranks // second, 1), "cp": second}
    return rest | {"cp_mode": "allgather"}
