"""Collectives of a trace: which, among how many, of how many bytes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from foretell.lab.characterize.traces.intervals import Times
from foretell.lab.characterize.traces.names import collective_kind, element_bytes
from foretell.lab.characterize.traces.rank_trace import CommEvents


def sent_of(
    starts: Times,
    ends: Times,
    places: NDArray[np.intp],
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
