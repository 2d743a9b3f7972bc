"""Whether a Chrome trace is well formed: what its viewers silently draw wrong is stated here.

for text in trace_problems(read_trace("step.json.gz")):
    print(text)
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]

TOUCH_US = 2e-3
"""Two slices may share this much: times are written to the nanosecond."""


def read_trace(path: str | Path) -> list[dict[str, Any]]:
    """Events of a trace file, gzipped or not; in the form of an object or of a bare list."""
    raw = Path(path).read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    found = json.loads(text)
    events = found["traceEvents"] if isinstance(found, dict) else found
    return list(events)


def trace_problems(events: Sequence[Event]) -> list[str]:
    """Everything that is wrong: times, slices without end, overlap on one stream, flows, names."""
    found = [text for event in events for text in _of_event(event)]
    if found:
        return found
    slices = _slices(events, found)
    found += _overlaps(slices)
    found += _flows(events, slices)
    found += _unnamed(events)
    return found


Stream = tuple[int, int]
Span = tuple[float, float, str]


def _of_event(event: Event) -> list[str]:
    """What one event lacks."""
    phase, name = event.get("ph"), event.get("name", "?")
    if phase not in ("X", "B", "E", "C", "M", "s", "f", "t"):
        return [f"{name}: unknown phase {phase!r}"]
    found = [] if isinstance(event.get("pid"), int) else [f"{name}: no pid"]
    if phase == "M":
        return found
    if not _time(event.get("ts")):
        found.append(f"{name}: ts {event.get('ts')!r} is no time")
    if phase != "C" and not isinstance(event.get("tid"), int):
        found.append(f"{name}: no tid")
    if phase == "X" and not _time(event.get("dur")):
        found.append(f"{name}: dur {event.get('dur')!r} is no time")
    if phase == "C":
        values = event.get("args") or {}
        if not values or not all(_time(value) for value in values.values()):
            found.append(f"{name}: a counter without values")
    if phase in ("s", "f", "t") and "id" not in event:
        found.append(f"{name}: a flow without id")
    return found


def _time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value < 1e18


def _slices(events: Iterable[Event], found: list[str]) -> dict[Stream, list[Span]]:
    """Slices by stream; what begins must end, innermost first."""
    slices: dict[Stream, list[Span]] = defaultdict(list)
    opened: dict[Stream, list[tuple[float, str]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = event["ts"]
            slices[event["pid"], event["tid"]].append((start, start + event["dur"], event["name"]))
        elif event["ph"] == "B":
            opened[event["pid"], event["tid"]].append((event["ts"], event["name"]))
        elif event["ph"] == "E":
            stream = event["pid"], event["tid"]
            if not opened[stream]:
                found.append(f"stream {stream}: an end without a begin at {event['ts']}")
                continue
            start, name = opened[stream].pop()
            slices[stream].append((start, event["ts"], name))
    for stream, left in opened.items():
        found += [f"stream {stream}: {name} at {start} never ends" for start, name in left]
    return slices


def _overlaps(slices: Mapping[Stream, list[Span]]) -> list[str]:
    """Slices of one stream that run at the same time."""
    found = []
    for stream, spans in slices.items():
        last = (0.0, 0.0, "")
        for span in sorted(spans):
            if span[0] < last[1] - TOUCH_US:
                found.append(f"stream {stream}: {last[2]} and {span[2]} overlap at {span[0]}")
            last = max(last, span, key=lambda one: one[1])
    return found


def _flows(events: Iterable[Event], slices: Mapping[Stream, list[Span]]) -> list[str]:
    """Every flow has one start and one finish, not before it, each in a slice."""
    ends: dict[Any, dict[str, list[Event]]] = defaultdict(lambda: {"s": [], "f": []})
    for event in events:
        if event["ph"] in ("s", "f"):
            ends[event.get("cat"), event["id"]][event["ph"]].append(event)
    found = []
    starts = {stream: sorted(spans) for stream, spans in slices.items()}
    for key, both in ends.items():
        if len(both["s"]) != 1 or len(both["f"]) != 1:
            found.append(f"flow {key}: {len(both['s'])} starts and {len(both['f'])} finishes")
            continue
        (begin,), (end,) = both["s"], both["f"]
        if end["ts"] < begin["ts"] - TOUCH_US:
            found.append(f"flow {key}: finishes at {end['ts']}, before it starts")
        found += [
            f"flow {key}: no slice at {event['ts']} on stream {(event['pid'], event['tid'])}"
            for event in (begin, end)
            if not _inside(event["ts"], starts.get((event["pid"], event["tid"]), []))
        ]
    return found


def _inside(moment: float, spans: Sequence[Span]) -> bool:
    """Whether a slice is there at a moment."""
    from bisect import bisect_right

    place = bisect_right(spans, (moment + TOUCH_US, float("inf"), "")) - 1
    return place >= 0 and moment <= spans[place][1] + TOUCH_US


def _unnamed(events: Sequence[Event]) -> list[str]:
    """Ranks and streams without a name."""
    processes = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {
        (e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"
    }
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    found = [f"rank {pid} has no name" for pid in sorted({pid for pid, _ in used} - processes)]
    return found + [f"stream {stream} has no name" for stream in sorted(used - threads)]
