"""Events of a Chrome trace one by one: a file of hundreds of megabytes is never held as a whole.

A trace is an object with a list under `traceEvents`, or the bare list; either may be gzipped. Of a bare list
the closing bracket may be missing: the format allows it, so that a program that dies leaves a trace.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from foretell.errors import BadInput, bad_input
from foretell.interop.user_files import check_regular

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
