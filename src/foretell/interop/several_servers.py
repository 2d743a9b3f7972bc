"""Files that start more than one server: copies side by side, or the two halves of a disaggregated service.

A half is known by its own flag (SGLang's --disaggregation-mode, Dynamo's --is-prefill-worker, vLLM's
kv_role), by the
role that a manifest gives it, else by the port that a router is given.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from foretell.errors import bad_input
from foretell.interop.arguments import ArgumentTable
from foretell.interop.launch import Launch, ReadValue

MOST_SERVERS = 256
"""Servers that one file may start: each is read by itself."""
_PREFILL_PORTS = re.compile(r"--prefill(?:er)?(?:-hosts?-)?(?:-?ports?)?[ =]+((?:\S*\d{4,5}\s*)+)")


def join_servers(servers: Sequence[tuple[Launch, str]]) -> Launch:
    """All servers of a file as one launch, of launches with the half that each is."""
    if len(servers) > MOST_SERVERS:
        raise bad_input(
            "import", len(servers), "is too many servers of one file", f"at most {MOST_SERVERS}"
        )
    decoding = [launch for launch, role in servers if role != "prefill"]
    prefilling = [launch for launch, role in servers if role == "prefill"]
    if not decoding or not prefilling:
        return _side_by_side([launch for launch, _ in servers])
    whole, half = (_side_by_side([_whole(one) for one in some]) for some in (decoding, prefilling))
    return joined_halves(whole, half.gpus or 1, half.plan, half.doubts)


def role_of(given: ArgumentTable, text: str) -> str:
    """prefill, decode, or nothing."""
    told = dict(given.pairs)
    flags = f"{told.get('disaggregation_mode', '')} {told.get('kv_transfer_config', '')}"
    if "prefill" in flags or "kv_producer" in flags or told.get("is_prefill_worker"):
        return "prefill"
    if "decode" in flags or "kv_consumer" in flags or told.get("is_decode_worker"):
        return "decode"
    ports = {port for one in _PREFILL_PORTS.findall(text) for port in re.findall(r"\d{4,5}", one)}
    port = str(told.get("port", ""))
    if ports and port:
        return "prefill" if port in ports else "decode"
    return given.role


def _whole(launch: Launch) -> Launch:
    """A server without the notes and doubts that it is one half: the other is at hand."""
    notes = [text for text in launch.notes if "describe the other side" not in text]
    doubts = [text for text in launch.doubts if "one half of a disaggregated service" not in text]
    return replace(launch, notes=tuple(notes), doubts=tuple(doubts))


def joined_halves(
    whole: Launch, prefill_gpus: int, prefill_plan: str, doubts: Sequence[str] = ()
) -> Launch:
    """A launch of decode instances with the chips and the layout of those that do prefill alone."""
    total = (whole.gpus or 1) + prefill_gpus
    rows = [replace(row, value=str(total)) if row.name == "gpus" else row for row in whole.values]
    rows += [
        ReadValue(name="prefill_gpus", value=str(prefill_gpus), origin="file", key="prefill"),
        ReadValue(name="prefill_plan", value=prefill_plan, origin="file", key="prefill"),
    ]
    return replace(
        whole,
        gpus=total,
        prefill_gpus=prefill_gpus,
        prefill_plan=prefill_plan,
        values=tuple(rows),
        doubts=tuple(dict.fromkeys((*whole.doubts, *doubts))),
    )


def _side_by_side(launches: Sequence[Launch]) -> Launch:
    """Servers of one kind: as many instances of the first; another layout is in doubt."""
    first = launches[0]
    if len(launches) == 1:
        return first
    total = sum(one.gpus or 1 for one in launches)
    rows = tuple(
        replace(row, value=str(total)) if row.name == "gpus" else row for row in first.values
    )
    doubts = [text for one in launches for text in one.doubts]
    if len({(one.plan, one.models) for one in launches}) > 1:
        doubts.append("several servers of different layouts: one layout at a time is computed")
    note = f"{len(launches)} servers side by side"
    return replace(
        first,
        gpus=total,
        values=rows,
        doubts=tuple(dict.fromkeys(doubts)),
        notes=(*first.notes, note),
    )
