"""Requests of a file: our own columns, or those of public traces.

    Azure LLM 2023, 2024   CSV    TIMESTAMP (date and time), ContextTokens, GeneratedTokens
    Mooncake               JSONL  timestamp (ms), input_length, output_length, hash_ids (512 tokens)
    Qwen-Bailian           JSONL  timestamp (s), the same, chat_id, parent_chat_id, hash_ids (16 tokens)
    BurstGPT               CSV    Timestamp (s), Request tokens, Response tokens, Session ID; zeros failed
    ShareGPT and the like  JSON   conversations, messages: lengths from the text, no arrivals
    Vidur, our own         CSV or JSONL

Equal hash ids in equal leading places are a common beginning. Whether timestamps are seconds or milliseconds,
and how many tokens a hash id stands for, is read from the file where it can be, else asked for; what was
taken is among the answer's assumptions.
"""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.interop.user_files import user_file
from foretell.serving.requests.records import Requests
from foretell.serving.requests.sessions import conversations, turns_of

NAMES: Mapping[str, tuple[str, ...]] = {
    "at_s": (
        "at_s", "arrival_s", "arrived_at", "timestamp", "TIMESTAMP", "time", "Timestamp",
    ),
    "isl": (
        "isl", "prompt_tokens", "num_prefill_tokens", "ContextTokens", "input_tokens", "input_length",
        "Request tokens",
    ),
    "osl": (
        "osl", "output_tokens", "num_decode_tokens", "GeneratedTokens", "output_length",
        "Response tokens",
    ),
    "prefix": ("prefix", "prefix_id"),
    "prefix_tokens": ("prefix_tokens",),
    "priority": ("priority", "class"),
    "session": ("session", "Session ID", "session_id"),
}  # fmt: skip
"""Columns of a trace -> the names under which public traces have them."""
UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of moments -> seconds."""
BLOCKS = (512, 16)
"""Tokens that a hash id stands for: Mooncake's, and Qwen-Bailian's."""
SLOWEST, SLOWEST_UNKNOWN = 0.005, 0.02
"""Requests a second below which a trace shows 0.00: no service is that idle, the unit is another. The second
where neither a public format nor `--trace-unit` says the unit."""
QUICKEST = 5000.0
"""Requests a second above which the unit of a trace is another."""
MOST, LATEST = 1e9, 1e19
"""Largest length or number of a row, and largest moment: some logs count nanoseconds."""
LARGEST_BYTES = 1 << 30
"""A larger file is no list of requests that could be simulated."""
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d{1,9})?)?)?)?)"
    r"\s*(?:Z|([+-])([01]\d|2[0-4]):?([0-5]\d)?)?"
)
"""A date with a time, and its zone."""
FAILED = ("Request tokens", "Response tokens", "ContextTokens", "GeneratedTokens")
"""Columns of BurstGPT and Azure in which a zero is a request that failed."""
FORMATS: tuple[tuple[str, frozenset[str]], ...] = (
    (
        "Qwen-Bailian",
        frozenset({"timestamp", "input_length", "output_length", "hash_ids", "chat_id"}),
    ),
    ("Mooncake", frozenset({"timestamp", "input_length", "output_length", "hash_ids"})),
    ("BurstGPT", frozenset({"Timestamp", "Request tokens", "Response tokens"})),
    ("Azure", frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})),
    ("Vidur", frozenset({"arrived_at", "num_prefill_tokens", "num_decode_tokens"})),
)
"""Public traces and the columns by which each is known, the most telling first."""
FEW = 64
"""Rows by which the tokens of a hash id are found."""


def read_trace(
    path: str | Path, unit: str | None = None, block_tokens: int | None = None
) -> Requests:
    """Requests of a file; `unit` of its moments and tokens of its hash ids where they cannot be known."""
    file = user_file(path, "arrivals", "a CSV or JSONL file")
    if not file.is_file():
        raise bad_input("arrivals", str(path), "there is no such file", "a CSV or JSONL file")
    text = _text(file)
    rows = json_rows(text) if file.suffix in (".jsonl", ".json") else _csv_rows(text)
    if rows and turns_of(rows[0]) is not None:
        return conversations(rows)
    every = len(rows)
    rows = [row for row in rows if not is_failure(row)]
    if not rows:
        raise bad_input("arrivals", str(path), "it has no requests", "at least one row")
    names = {key: _column(rows[0], key) for key in NAMES}
    missing = [key for key in ("isl", "osl") if names[key] is None]
    if missing:
        raise BadInput(
            [
                wrong(key, sorted(map(str, rows[0])), "no such column", " or ".join(NAMES[key]))
                for key in missing
            ]
        )
    kind = trace_format(rows[0])
    taken = unit or ("ms" if kind == "Mooncake" else "s")
    found = _requests(rows, names, str(path), (taken, block_tokens, unit is not None or bool(kind)))
    return replace(found, said=_said(rows, found, (kind, taken, every), names["at_s"]))


def trace_format(row: Mapping[str, Any]) -> str:
    """The public trace that has a row's columns; empty: none that is known."""
    return next((name for name, columns in FORMATS if columns <= set(row)), "")


def _said(
    rows: Sequence[Mapping[str, Any]],
    found: Requests,
    how: tuple[str, str, int],
    column: str | None,
) -> tuple[str, ...]:
    """What was taken of a trace: its format, unit and blocks, and rows that are left out."""
    kind, unit, every = how
    dated = column is not None and not _plain(rows[0].get(column))
    when = (
        "dates" if dated else f"timestamps in {unit}" if found.at_s is not None else "no timestamps"
    )
    text = f"trace of {len(rows)} requests: {kind + ' columns' if kind else 'columns by their names'}, {when}"
    text += f", hash ids of {found.block_tokens} tokens" if found.block_tokens else ""
    said = [text]
    if lost := every - len(rows):
        some = f"{lost} row{'s' if lost > 1 else ''}"
        said.append(f"{some} without prompt or answer tokens: requests that failed, skipped")
    if "NumImages" in rows[0]:
        said.append("NumImages is not read: prompts count with the tokens that the trace has")
    return tuple(said)


def is_failure(row: Mapping[str, Any]) -> bool:
    """Whether a row of a public trace is a request that failed: it has no tokens."""
    cells = [row.get(name) for name in FAILED]
    return any(str(cell).strip() in ("0", "0.0") for cell in cells if cell is not None)


def _requests(
    rows: Sequence[Mapping[str, Any]],
    names: Mapping[str, str | None],
    path: str,
    how: tuple[str, int | None, bool],
) -> Requests:
    unit, block_tokens, by_hand = how
    problems: list[Problem] = []
    found: dict[str, list[float]] = {
        key: [] for key, name in names.items() if name is not None and key != "session"
    }
    for number, row in enumerate(rows, start=1):
        for key, column in found.items():
            value = _number(row.get(names[key] or ""), key)
            least = 1.0 if key in ("isl", "osl") else -1.0 if key == "prefix" else 0.0
            most = LATEST if key == "at_s" else MOST
            if value is None or not least <= value <= most:
                problems.append(
                    wrong(
                        f"{path}:{number}.{key}", row.get(names[key] or ""),
                        "not a number that it can be", f"{least:g} to {most:g}",
                    )
                )  # fmt: skip
                value = 1.0
            column.append(value)
    if problems:
        raise BadInput(problems[:20])
    at = found.get("at_s")
    order = np.argsort(at, kind="stable") if at is not None else np.arange(len(rows))
    dated = at is not None and not _plain(rows[0].get(names["at_s"] or ""))
    scale = 1.0 if dated else UNITS[unit]
    first = min(at) if at is not None else 0.0
    when = None if at is None else [scale * (at[i] - first) for i in order]
    if when is not None and not dated:
        check_rate(when, path, unit, by_hand)

    def whole(key: str) -> list[int] | None:
        return [int(found[key][i]) for i in order] if key in found else None

    isl = whole("isl") or []
    blocks, tokens = hash_blocks([rows[i] for i in order], isl, block_tokens, path)
    return Requests(
        isl=isl,
        osl=whole("osl") or [],
        at_s=when,
        prefix=whole("prefix") if "prefix_tokens" in found else None,
        prefix_tokens=whole("prefix_tokens") if "prefix" in found else None,
        priority=whole("priority"),
        blocks=blocks,
        block_tokens=tokens,
        session=_sessions([rows[i] for i in order], names["session"]),
    )


def check_rate(at_s: Sequence[float], path: str, unit: str, sure: bool) -> None:
    """Refuse a trace at a rate that no service has: its timestamps are in another unit. `sure` where the
    format or a flag says the unit."""
    if len(at_s) < 2 or at_s[-1] <= 0.0:
        return
    rate = len(at_s) / at_s[-1]
    if (SLOWEST if sure else SLOWEST_UNKNOWN) <= rate <= QUICKEST:
        return
    likely = [
        name
        for name, scale in UNITS.items()
        if 0.02 <= rate * UNITS[unit] / scale <= QUICKEST and name != unit
    ]
    message = f"comes at {rate:.2g} requests/s where its timestamps are in {unit}"
    message += f": they are likely in {' or '.join(likely[:2])}" if likely else ""
    allowed = f"--trace-unit {likely[0] if likely else ', '.join(UNITS)}"
    if sure and not likely:
        return
    raise bad_input("arrivals", path, message, allowed)


def hash_blocks(
    rows: Sequence[Mapping[str, Any]], isl: Sequence[int], given: int | None, path: str
) -> tuple[list[tuple[int, ...]] | None, int]:
    """Hash ids of every prompt, and the tokens that one stands for."""
    if "hash_ids" not in rows[0]:
        return None, 0
    try:
        blocks = [tuple(int(i) for i in row.get("hash_ids") or ()) for row in rows]
    except (TypeError, ValueError, OverflowError):
        problem = wrong(f"{path}.hash_ids", None, "not whole numbers", "a list of ids a row")
        raise BadInput([problem]) from None
    fitting = [
        tokens
        for tokens in ((given,) if given else BLOCKS)
        if all(
            abs(math.ceil(n / tokens) - len(ids)) <= 1
            for n, ids in zip(isl[:FEW], blocks[:FEW], strict=True)
        )
    ]
    if not fitting:
        message = "prompts and hash ids fit no known number of tokens to an id"
        problem = wrong("arrivals", path, message, "--block-tokens N that ceil(prompt / N) ids fit")
        raise BadInput([problem])
    return blocks, fitting[0]


def _sessions(rows: Sequence[Mapping[str, Any]], column: str | None) -> list[int] | None:
    """Equal numbers for requests of one session; a chat and its parent are one."""
    if "chat_id" in rows[0]:
        root: dict[str, str] = {}
        for row in rows:
            own, parent = str(row.get("chat_id")), str(row.get("parent_chat_id", -1))
            root[own] = root.get(parent, own) if parent != "-1" else own
        names = [root[str(row.get("chat_id"))] for row in rows]
    elif column is not None:
        names = [str(row.get(column)) for row in rows]
    else:
        return None
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def _plain(value: object) -> bool:
    """Whether a moment is a number."""
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _number(value: object, key: str) -> float | None:
    """A number; a moment may be a date with a time."""
    try:
        found = float(str(value))
    except ValueError:
        if key != "at_s":
            return None
        try:
            found = _moment_s(str(value).strip())
        except (ValueError, OverflowError):
            return None
    return found if np.isfinite(found) else None


def _moment_s(text: str) -> float:
    """Seconds of a date with a time, in its zone or in none; Azure writes seven digits of a second."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    # numpy reads nanoseconds, and knows no zones
    seconds = float(np.datetime64(found[1], "ns").astype(np.int64)) * 1e-9
    if found[2] is None:
        return seconds
    away = 3600.0 * int(found[3]) + 60.0 * int(found[4] or 0)
    return seconds + (away if found[2] == "-" else -away)


def _column(row: Mapping[str, Any], key: str) -> str | None:
    return next((name for name in NAMES[key] if name in row), None)


def _text(file: Path) -> str:
    """The content of a file; BadInput where it is too large or no text."""
    try:
        if file.stat().st_size > LARGEST_BYTES:
            message = f"is larger than {LARGEST_BYTES} bytes"
            raise bad_input("arrivals", str(file), message, "fewer requests")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise bad_input("arrivals", str(file), "is not text in UTF-8", "text") from None
    except OSError as error:
        said = f"cannot be read: {error.strerror or error}"
        raise bad_input("arrivals", str(file), said, "a CSV or JSONL file") from None


def _csv_rows(text: str) -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise bad_input("arrivals", None, f"is not CSV: {error}", "a table") from None


def json_rows(text: str) -> list[dict[str, Any]]:
    if text.lstrip().startswith("["):
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise bad_input("arrivals", text[:60], str(error), "a list of objects") from None
        return [row for row in whole if isinstance(row, dict)]
    rows, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (
            ValueError,
            RecursionError,
        ) as error:  # numbers of thousands of digits, deep nesting
            problems.append(wrong(f"line {number}", line[:60], str(error), "one object a line"))
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            problems.append(
                wrong(f"line {number}", line[:60], "not an object", "one object a line")
            )
    if problems:
        raise BadInput(problems[:20])
    return rows
