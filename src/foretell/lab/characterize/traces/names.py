"""What a kernel or a collective is, by its name (names.toml), and a collective's bytes and ranks."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from foretell.catalog.files import read_table
from foretell.lab.characterize.traces.rank_trace import CommEvents, Times
from foretell.specs.arrays import Index

COMMUNICATION = "communication"
COPY, MEMSET, OPTIMIZER, GEMM, ELEMENTWISE, OTHER = (
    "copy", "memset", "optimizer", "gemm", "elementwise", "other",
)  # fmt: skip
"""Families of kernels that code asks for; names.toml has them all."""

_TABLES = read_table(Path(__file__).with_suffix(".toml"))
"""Rules in order, by what they are of, and sizes."""


def _patterns(
    rules: Sequence[tuple[str, str]], flags: int = 0
) -> list[tuple[str, re.Pattern[str]]]:
    return [(what, re.compile(rule, flags)) for what, rule in rules]


_KERNELS = _patterns(_TABLES["kernels"], re.IGNORECASE)
_HOST = _patterns(_TABLES["host"])
_SENT = _patterns(_TABLES["collectives"], re.IGNORECASE)
_PLAIN = re.compile(_TABLES["plain"])
"""Operations that compute nothing themselves."""


@lru_cache(maxsize=1 << 16)
def kernel_family(name: str) -> str:
    """Family of an accelerator's kernel."""
    return next((family for family, rule in _KERNELS if rule.search(name)), OTHER)


@lru_cache(maxsize=1 << 16)
def host_family(name: str) -> str | None:
    """Family of an operation that runs on the host; None where it computes nothing itself."""
    if _PLAIN.fullmatch(name):
        return None
    if not name.startswith(
        ("aten::", "torch::distributed", "torch.distributed", "mkldnn", "onednn")
    ):
        return None
    return next((family for family, rule in _HOST if rule.search(name)), None)


@lru_cache(maxsize=1 << 14)
def collective_kind(name: str) -> str:
    """Which collective a kernel, an annotation or a name of c10d is."""
    return next((kind for kind, rule in _SENT if rule.search(name)), OTHER)


def bus_factor(kind: str, members: int) -> float:
    """What every link carries of a message, over its size."""
    rounds = _TABLES["bus_rounds"].get(kind)
    return 1.0 if rounds is None else rounds * (members - 1) / members


def element_bytes(dtype: object) -> int | None:
    """Bytes of one element; None where the type is not known."""
    found: int | None = _TABLES["dtype_bytes"].get(str(dtype).lower())
    return found


def sent_of(
    starts: Times,
    ends: Times,
    places: Index,
    args: Sequence[Mapping[str, Any]],
    info: Mapping[str, Any],
) -> CommEvents:
    """Collectives at some places, by what the trace says of each."""
    world = info.get("world_size")
    groups = _group_sizes(info)
    labels, members, sizes = [], [], []
    for one in args:
        kind = collective_kind(str(one.get("Collective name", "")))
        group = one.get("Group size")
        if not _is_count(group):
            group = groups.get(str(one.get("Process Group Name")), world)
        group = group if _is_count(group) else 0
        name = one.get("Process Group Description") or one.get("Process Group Name")
        plain = name in (None, "", "undefined", "default_pg", "0")
        labels.append(kind if plain else f"{kind} ({name})")
        members.append(group)
        sizes.append(message_bytes(kind, one, group))
    kinds = tuple(dict.fromkeys(labels))
    return CommEvents(
        starts=starts[places],
        ends=ends[places],
        kinds=kinds,
        kind=np.array([kinds.index(label) for label in labels], np.intp),
        members=np.array(members, np.int64),
        size_bytes=np.array(sizes, np.int64),
    )


def _is_count(value: Any) -> TypeGuard[int]:
    """Whether a value is a usable number of ranks or elements."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40


def _group_sizes(info: Mapping[str, Any]) -> dict[str, int]:
    """Process groups of the job by name."""
    config = info.get("pg_config")
    rows = config if isinstance(config, list) else []
    return {
        str(row.get("pg_name")): row["pg_size"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("pg_size"), int)
    }


def message_bytes(kind: str, args: Mapping[str, Any], members: int) -> int:
    """The full buffer of one rank, as nccl-tests counts it; -1 where the trace does not say.

    That is the larger of what goes in and what comes out: a gather ends with it, a scatter begins with it.
    """
    width = element_bytes(args.get("dtype"))
    counts = [args.get(key) for key in ("In msg nelems", "Out msg nelems")]
    known = [count for count in counts if _is_count(count)]
    if width is not None and known:
        return width * max(known)
    # gloo's annotations have the input alone.
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not (isinstance(dims, list) and isinstance(types, list) and dims and types):
        return -1
    width = element_bytes(types[0])
    if width is None or not isinstance(dims[0], list) or not all(map(_is_count, dims[0])):
        return -1
    whole = width * math.prod(dims[0]) * (members if kind == "all-gather" and members else 1)
    return whole if whole < 2**62 else -1
