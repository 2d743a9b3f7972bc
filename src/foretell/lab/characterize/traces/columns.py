"""Events of a Chrome trace one by one, and what is kept of each: a few numbers, as columns.

A file of hundreds of megabytes is never held as a whole. A trace is an object with a list under
`traceEvents`, or the bare list; either may be gzipped. Of a bare list the closing bracket may be missing: the
format allows it, so that a program that dies leaves a trace.
"""

import gzip
import json
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from foretell.catalog.files import read_table
from foretell.errors import BadInput, bad_input
from foretell.interop.user_files import check_regular
from foretell.lab.characterize.traces.rank_trace import Times

CHUNK = 1 << 20
"""Characters read at once."""
LONGEST = 1 << 26
"""Characters of one event or head field above which a file is taken for broken."""
MAGIC = b"\x1f\x8b"
"""How gzipped files begin."""

Event = dict[str, Any]

_UNSAID = re.compile(r'("Process Group (?:Name|Description|Ranks)")\s*:\s*(?=[,}])')
"""What releases of PyTorch wrote for groups without a name, and JSON has no reading for."""
_BLANKS = re.compile(r"[ \t\r\n]*")


def _after_blanks(text: str, at: int) -> int:
    """Where the next sign is that is no blank."""
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def events_of(path: str | Path) -> Iterator[tuple[str, Any]]:
    """("event", an event) for each, and (a key, its value) for every other field of the object."""
    path = Path(path)
    check_regular(path)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == MAGIC
            raw.seek(0)
            binary: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            yield from _StreamReader(path, binary).parts()
    except EOFError as error:
        raise trace_problem(path, "the gzipped file is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise trace_problem(path, f"the gzipped file is damaged ({error})") from error
    except UnicodeDecodeError as error:
        raise trace_problem(path, "is no text: not a trace in JSON") from error
    except OSError as error:
        raise trace_problem(path, error.strerror or str(error)) from error


def trace_problem(path: Path, message: str, value: object = None) -> BadInput:
    """What is wrong with a trace file."""
    allowed = "a PyTorch-profiler trace or one of foretell simulate: .json or .json.gz"
    told = value if value is not None else str(path)
    return bad_input("trace", told, f"{path.name}: {message}", allowed)


class _StreamReader:
    """A cursor in a file that is read piece by piece."""

    def __init__(self, path: Path, binary: IO[bytes]) -> None:
        """At the beginning."""
        import codecs

        self.path, self.binary = path, binary
        self.decode = codecs.getincrementaldecoder("utf-8")()
        self.raw_decode = json.JSONDecoder().raw_decode
        self.text, self.at, self.ended, self.events = "", 0, False, 0

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Everything in the file, in its order."""
        opening = self.peek()
        if opening == "":
            raise trace_problem(self.path, "is empty")
        if opening == "[":
            yield from self.list_events(may_end=True)
        elif opening == "{":
            yield from self.fields()
        else:
            raise trace_problem(self.path, "is no trace: JSON begins with { or [")
        if self.peek() not in ("", ","):
            raise self.wrong("has something behind its end")

    def fields(self) -> Iterator[tuple[str, Any]]:
        """Fields of the object; its events one by one."""
        self.at += 1
        found = False
        while self.peek() != "}":
            key = self.value()
            if not isinstance(key, str) or self.peek() != ":":
                raise self.wrong("is no JSON")
            self.at += 1
            if key == "traceEvents":
                if self.peek() != "[":
                    raise self.wrong("traceEvents is no list")
                found = True
                yield from self.list_events(may_end=False)
            else:
                yield key, self.value()
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "}":
                raise self.wrong("is no JSON")
        self.at += 1
        if not found:
            raise trace_problem(self.path, "has no traceEvents: not a trace")

    def list_events(self, *, may_end: bool) -> Iterator[tuple[str, Event]]:
        """Events up to the closing bracket."""
        self.at += 1
        while (sign := self.peek()) != "]":
            if sign == "" and may_end:
                return
            event = self.value()
            if not isinstance(event, dict):
                raise self.wrong(f"event {self.events + 1} is no object")
            self.events += 1
            yield "event", event
            sign = self.peek()
            if sign == ",":
                self.at += 1
            elif sign not in ("]", ""):
                raise self.wrong(f"is no JSON behind event {self.events}")
        self.at += 1

    def peek(self) -> str:
        """The next sign that is no blank, or nothing at the end."""
        while True:
            self.at = _after_blanks(self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def value(self) -> Any:
        """The next value, with as much more of the file as it takes."""
        if self.peek() == "":
            raise self.wrong("is truncated")
        while True:
            try:
                found, end = self.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if len(self.text) - self.at > LONGEST or not self.more():
                    raise self.wrong(self._why(error)) from error
                continue
            except ValueError as error:  # what Python will not convert
                raise self.wrong("has a number of thousands of digits") from error
            except RecursionError as error:
                raise self.wrong("is nested too deeply") from error
            # A number at the end of what was read may go on.
            if end == len(self.text) and self.text[end - 1].isdigit() and self.more():
                continue
            self.at = end
            return found

    def _why(self, error: json.JSONDecodeError) -> str:
        """Whether a value goes on behind the end of the file, or is none."""
        open_end = error.pos >= len(self.text.rstrip()) or error.msg.startswith("Unterminated")
        return "is truncated" if self.ended and open_end else "is no JSON"

    def more(self) -> bool:
        """Read on; what is behind the cursor is forgotten."""
        if self.ended:
            return False
        piece = self.binary.read(CHUNK)
        self.ended = not piece
        text = self.text[self.at :] + self.decode.decode(piece, final=self.ended)
        self.text, self.at = _UNSAID.sub(r'\1: ""', text), 0
        return True

    def wrong(self, message: str) -> BadInput:
        """An error that says how far the file was read."""
        return trace_problem(self.path, f"{message} (after {self.events:,} events)")


TABLES = read_table(Path(__file__).with_name("names.toml"))
"""What events and operations are, by their names."""
KEPT: Sequence[str] = TABLES["kept"]
"""Categories of what an accelerator runs."""
OWN_STREAMS: Sequence[str] = TABLES["own_streams"]
"""Categories of traces that `foretell simulate` writes."""
GPU_NOTE = "gpu_user_annotation"
NOTE = "user_annotation"
HOST_OP = "cpu_op"
FARTHEST_US = 4e15
"""Beyond this (a hundred years and more) a time is none; sums of two fit into 64 bits of nanoseconds."""


class EventTable:
    """Events of one kind: times, names and one more number each."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.starts, self.ends = array("q"), array("q")
        self.names, self.threads, self.keys = array("q"), array("q"), array("q")

    def add(self, start: int, end: int, name: int, thread: int, key: int) -> int:
        """One more event, and its place."""
        self.starts.append(start)
        self.ends.append(end)
        self.names.append(name)
        self.threads.append(thread)
        self.keys.append(key)
        return len(self.starts) - 1

    def column(self, name: str) -> Times:
        """One of the columns."""
        return np.asarray(np.frombuffer(getattr(self, name), np.int64))

    def __len__(self) -> int:
        return len(self.starts)


class EventColumns:
    """One rank's events."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[object, object], int] = {}
        self.work, self.launches, self.ops = EventTable(), EventTable(), EventTable()
        self.notes, self.gpu_notes, self.host = EventTable(), EventTable(), EventTable()
        self.tables = {
            HOST_OP: self.ops,
            NOTE: self.notes,
            GPU_NOTE: self.gpu_notes,
            **dict.fromkeys(TABLES["launches"], self.launches),
        }
        self.kinds = array("b")
        """Of each piece of work, the place of its category in KEPT."""
        self.dims: dict[int, tuple[int, int, int]] = {}
        """Key of an operation -> rows, inputs and outputs of its matrix product."""
        self.args: dict[int, Mapping[str, Any]] = {}
        """Place of a collective in `work` or `notes` -> what the trace says of it."""
        self.families: dict[int, str] = {}
        """Place of work of our own traces -> family."""
        self.passes: dict[int, str] = {}
        """The same -> pass."""

    def name(self, text: str) -> int:
        """The number of a name."""
        return self.names.setdefault(text, len(self.names))

    def thread(self, event: Mapping[str, Any]) -> int:
        """The number of an event's thread or stream."""
        key = _plain(event.get("pid")), _plain(event.get("tid"))
        return self.threads.setdefault(key, len(self.threads))

    @property
    def texts(self) -> list[str]:
        """Names by number."""
        return list(self.names)


def _plain(value: Any) -> object:
    """A process or thread as the trace names it; what is neither number nor text, as its text."""
    return value if isinstance(value, int | str) else str(value)


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an event says of itself."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _key(value: Any) -> int:
    """A number that events refer to each other by; -1 where it is none."""
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return value if usable else -1


def nanoseconds(value: Any) -> int | None:
    """A time of a trace, in microseconds, as whole nanoseconds; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -FARTHEST_US < value < FARTHEST_US:
        return None
    return round(value * 1000.0)


def take(columns: EventColumns, event: Mapping[str, Any]) -> bool:
    """Keep an event of the PyTorch profiler; False where it has no usable times."""
    category = str(event.get("cat"))
    category = TABLES["old"].get(category, category)
    if category in KEPT:
        return _take_work(columns, event, KEPT.index(category))
    table = columns.tables.get(category)
    if table is None:
        return True
    times = _times(event)
    if times is None:
        return False
    args, name = _args(event), str(event.get("name", ""))
    key = _key(args.get("correlation" if table is columns.launches else "External id"))
    place = table.add(*times, columns.name(name), columns.thread(event), key)
    if name in TABLES["products"] and table is columns.ops:
        dims = product_dims(name, args.get("Input Dims"))
        if dims is not None:
            columns.dims[key] = dims
    elif table is columns.notes and name.startswith("gloo:"):
        columns.args[place] = _sent_args(args)
    return True


def _take_work(columns: EventColumns, event: Mapping[str, Any], kind: int) -> bool:
    times = _times(event)
    if times is None:
        return False
    args = _args(event)
    key = _key(args.get("correlation"))
    name = columns.name(str(event.get("name", "")))
    place = columns.work.add(*times, name, columns.thread(event), key)
    columns.kinds.append(kind)
    if "Collective name" in args:
        columns.args[place] = _sent_args(args)
    return True


def take_own(columns: EventColumns, event: Mapping[str, Any]) -> bool:
    """Keep an event of a trace of our own; False where it has no usable times."""
    times = _times(event)
    if times is None:
        return False
    category, name = event["cat"], columns.name(str(event.get("name", "")))
    thread, args = columns.thread(event), _args(event)
    if category == "host":
        columns.host.add(*times, name, thread, -1)
        return True
    place = columns.work.add(*times, name, thread, OWN_STREAMS.index(category))
    columns.kinds.append(1 if category == "copy" else 0)
    if "family" in args:
        columns.families[place] = str(args["family"])
    if "pass" in args:
        columns.passes[place] = str(args["pass"])
    return True


def _times(event: Mapping[str, Any]) -> tuple[int, int] | None:
    start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0.0))
    if start is None or length is None:
        return None
    # The profiler writes a length below zero for what it did not see the end of.
    return start, start + max(length, 0)


def _sent_args(args: Mapping[str, Any]) -> dict[str, Any]:
    return {key: args[key] for key in TABLES["sent"] if key in args}


def product_dims(name: str, dims: Any) -> tuple[int, int, int] | None:
    """Rows, inputs and outputs of a matrix product, from the shapes that `record_shapes` leaves."""
    first = TABLES["products"].get(name)
    if first is None or not isinstance(dims, list) or len(dims) < first + 2:
        return None
    a, b = dims[first], dims[first + 1]
    sides = [*a, *b] if isinstance(a, list) and isinstance(b, list) else []
    if len(sides) != 4 or not all(isinstance(side, int) for side in sides):
        return None
    return sides[0], sides[1], sides[3]
