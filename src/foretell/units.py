"""Units: names that end in one, texts that carry one ("3.35 TB/s"), and numbers shown with one.

Inside Foretell every number is a float in the unit that ends its name; this is the only place that
knows other spellings. A unit is named here by that ending: `s`, `bytes_per_s`, `usd_per_chip_hour`,
and the empty text for a number without one. Prefixes are exact: 1 GB is 10**9 bytes, 1 GiB is 2**30
bytes, 1 Gbit is 10**9 / 8 bytes. Case matters, and a spelling that two people read in two ways
(`Gb`, `KB`, `TFLOPs` for a rate) is an error rather than a guess.
"""

import math
import re

from foretell.errors import BadInput, bad_input, nearest_name
from foretell.records import dataclass

LONGEST_TEXT = 100
"""Longer texts are refused unread, so that no number costs more than it is worth."""

_SI = {"p": -12, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_COUNT = {"k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15}
"""Powers of ten that may follow what is counted, as in 15T tokens, 70B or 10M USD."""

# Symbol -> (what it measures, its size over, under, the prefixes it takes).
_SYMBOLS: dict[str, tuple[str, int, int, str]] = {
    "s": ("time", 1, 1, "p n u m"),
    "min": ("time", 60, 1, ""),
    "h": ("time", 3600, 1, ""),
    "d": ("time", 86400, 1, ""),
    "year": ("years", 1, 1, ""),  # a measure of its own: how many days it has is not for us to say
    "B": ("data", 1, 1, "k M G T P E Ki Mi Gi Ti Pi Ei"),
    "bit": ("data", 1, 8, "k M G T P Ki Mi Gi Ti"),
    "FLOP": ("work", 1, 1, "k M G T P E"),
    "OP": ("work", 1, 1, "k M G T P E"),
    "MAC": ("multiply-adds", 1, 1, "k M G T P"),  # known, so that the error can say what it is
    "W": ("power", 1, 1, "u m k M G"),
    "J": ("energy", 1, 1, "p n u m k M G T P"),
    "Wh": ("energy", 3600, 1, "k M G T"),
    "Hz": ("frequency", 1, 1, "k M G T"),
    "USD": ("money", 1, 1, "k M G"),
    "g": ("mass", 1, 1, "m k"),
    "m": ("length", 1, 1, "n u m k"),
    "mm2": ("area", 1, 1, ""),
    "cm2": ("area", 100, 1, ""),
    "um2": ("area", 1, 10**6, ""),
    "token": ("token", 1, 1, "k M"),
    "%": ("", 1, 100, ""),
    **{noun: (noun, 1, 1, "") for noun in "chip node core die wafer user request step".split()},
}
_NOUNS = frozenset("chip node core die wafer user request step".split())
"""Things counted below the line: a text may leave them out, but not name others than the field."""
_COUNTABLE = frozenset({"", "token", "money", *_NOUNS})
_ALIASES = {
    "hr": "h", "hour": "h", "day": "d", "gpu": "chip", "accelerator": "chip", "tok": "token",
    "byte": "B", "usd": "USD", "$": "USD",
}  # fmt: skip
_WORDS = {
    "ns": "ns", "us": "us", "ms": "ms", "s": "s", "hour": "h", "day": "d", "year": "year",
    "bit": "bit", "byte": "B", "gb": "GB", "mib": "MiB", "gib": "GiB", "flop": "FLOP",
    "tflop": "TFLOP", "watt": "W", "joule": "J", "kwh": "kWh", "mwh": "MWh", "hz": "Hz",
    "usd": "USD", "m": "m", "mm": "mm", "nm": "nm", "mm2": "mm2", "token": "token",
    "gram": "g", "kg": "kg",
    "mtoken": "Mtoken", "gpu": "chip", **{noun: noun for noun in _NOUNS},
}  # fmt: skip
"""Word of a field's name, in the singular -> symbol."""
_TRAILING = re.compile(r"_(low|high|min|max|mean|p50|p90|p95|p99)$")
"""What may follow the unit in a field's name."""

# Sizes from large to small that `format` chooses from, by symbol; B alone counts in powers of two.
_SPANS = {
    "s": "d h min s ms us ns", "B": "EiB PiB TiB GiB MiB KiB B", "FLOP": "EFLOP PFLOP TFLOP FLOP",
    "W": "GW MW kW W mW", "J": "GWh MWh kWh kJ J mJ uJ nJ pJ", "Hz": "GHz MHz kHz Hz",
    "B/": "EB PB TB GB MB kB B",
}  # fmt: skip
_EXAMPLES = {
    "time": "us ms s min h days", "data": "GB GiB MB MiB TB Gbit", "work": "GFLOP TFLOP PFLOP",
    "power": "W kW MW", "energy": "pJ J kJ kWh MWh", "frequency": "MHz GHz", "area": "mm2 cm2",
    "money": "USD", "length": "nm mm m", "mass": "g kg",
}  # fmt: skip

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?(?![0-9.])")
_COUNTED = re.compile(r"([0-9]{1,3}(?:[,_'][0-9]{3}){1,5}|[0-9]{1,9})\s?([kKmMbBgGtT]?)")
"""A count as people write it: 100,000, 4k, 1M."""
_SEPARATED = re.compile(r"[0-9][,'_\u2019 \u00a0\u202f]+[0-9]|[0-9]\.[0-9]+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """A measure, perhaps over others, and its size in base units, over / under."""

    over: int
    under: int
    up: str | None
    """What is above the line; None for a bare count."""
    down: tuple[str, ...]
    """What is below it, sorted, nouns left out."""
    nouns: frozenset[str]
    """The things counted below the line."""


class _UnknownSymbolError(Exception):
    """A word that is no unit's symbol."""


def parse(text: str | float, unit: str, path: str = "") -> float:
    """How many of `unit` a text means, correctly rounded; a bare number is in `unit` already.

    BadInput, naming `path`, where the text is malformed, measures something else, or has no finite
    value that a float can hold.
    """
    target = _unit(symbol(unit), counted=False)
    try:
        over, under = _ratio(text)
        if isinstance(text, str):
            given = _given(text, counted=target.up in _COUNTABLE)
            if given is not None:
                _check_kind(given, target)
                over, under = over * given.over * target.under, under * given.under * target.over
        value = over / under
        if over != 0 and value == 0.0:
            raise ValueError("is too small to be represented")
    except OverflowError:
        raise _bad(path, text, unit, "is too large to be represented") from None
    except _UnknownSymbolError as error:
        raise _bad(path, text, unit, *_unknown(str(error), unit)) from None
    except ValueError as error:
        raise _bad(path, text, unit, str(error)) from None
    return value


def format(value: float, unit: str, digits: int = 4) -> str:
    """The number with the prefix that suits it, rounded to `digits`; `parse` reads it back."""
    first, *below = symbol(unit).split("/")
    if not math.isfinite(value):
        return f"{value} {symbol(unit)}".rstrip()
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    if first in ("USD", "token"):
        steps = [(10.0 ** _COUNT[name], name) for name in "TBM"]
        size, prefix = next((step for step in steps if rounded >= step[0]), (1.0, ""))
        plural = "s" if first == "token" and not below else ""
        return _shown(value / size, digits) + "/".join([f"{prefix} {first}{plural}", *below])
    span = _SPANS.get("B/" if first == "B" and below else first, "").split()
    sizes = [(_size(name), name) for name in span]
    smallest = sizes[-1] if sizes and value else (1.0, first)
    size, name = next((step for step in sizes if rounded >= step[0]), smallest)
    return f"{_shown(value / size, digits)} {'/'.join([name, *below])}".rstrip()


def exact(value: float, unit: str) -> str:
    """The number with every digit: `parse(exact(x, unit), unit) == x` for every finite x."""
    return f"{repr(float(value)).removesuffix('.0')} {symbol(unit)}".rstrip()


def field_unit(field_name: str) -> str:
    """The unit that ends a field's name, the longest if several do; empty if none does."""
    words = _TRAILING.sub("", field_name).split("_")
    for start in range(len(words)):
        ending = "_".join(words[start:])
        if _symbol_or_none(ending):
            return ending
    return ""


def symbol(unit: str) -> str:
    """How a unit is printed: `B/s` for `bytes_per_s`; ValueError where there is no such unit."""
    found = _symbol_or_none(unit)
    if found is None:
        raise ValueError(f"{unit!r} is not a unit")
    return found


def _symbol_or_none(unit: str) -> str | None:
    if unit == "":
        return ""
    unit = re.sub(r"million_(input_|output_)?tokens", "mtoken", unit)
    first, *below = unit.replace("tflops", "tflop_per_s").split("_per_")
    words = [first, *(word for part in below for word in part.split("_"))]
    words = [word.removesuffix("s") if len(word) > 3 else word for word in words]
    symbols = [_WORDS.get(word) for word in words]
    if None in symbols or (symbols[0] in _NOUNS and not below):  # `cores` alone is no unit
        return None
    return "/".join(name for name in symbols if name is not None)


SMALLEST = 5e-324
"""The least number above zero."""


def as_number(value: object, low: float = -math.inf, high: float = math.inf) -> float | None:
    """A number, or the one that a text is, if it is finite and between two ends; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        found = float(str(value))
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and low <= found <= high else None


def plain_number(text: object) -> str | None:
    """The plain number that a text such as 4k, 1M or 100,000 may stand for; None where it is no such text.

    A flag that counts takes plain digits alone: 4k tokens are 4,096 to some and 4,000 to others.
    """
    match = _COUNTED.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    digits = int(re.sub("[,_']", "", match[1]))
    if match[2] in ("k", "K"):
        return f"{digits * 1024} or {digits * 1000}"
    return str(digits * {"": 1, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}[match[2].lower()])


def _ratio(text: str | float) -> tuple[int, int]:
    """The plain number that a text begins with, or is, as a ratio of whole numbers."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError("is not a number, nor a text with a number and a unit")
    if isinstance(text, int):
        return text, 1
    if isinstance(text, float):
        if not math.isfinite(text):
            raise ValueError("is not finite")
        return text.as_integer_ratio()
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"is longer than {LONGEST_TEXT} characters")
    body = _body(text)
    if _SEPARATED.search(body):
        raise ValueError("has separators among its digits: write 1000, and 3.5 with a point")
    match = _NUMBER.match(body)
    if match is None or not (match[2] or match[3]):
        finite = re.match(r"[+-]?(nan|inf)", body, re.IGNORECASE) is None
        raise ValueError("does not begin with a number" if finite else "is not finite")
    fraction = match[3] or ""
    digits = int(f"{match[1]}{match[2]}{fraction}")
    power = int(match[4] or 0) - len(fraction) if digits else 0
    if power > 500:  # past every float, before a power of that many digits is taken
        raise OverflowError
    if power < -500:
        raise ValueError("is too small to be represented")
    return digits * 10 ** max(power, 0), 10 ** max(-power, 0)


def _body(text: str) -> str:
    """The text with its number first and plain signs, `$2/h` being `2 USD/h`."""
    body = text.strip().replace("\u00b5", "u").replace("\u03bc", "u").replace("\u2212", "-")
    dollars = re.match(r"\$\s*([-+.0-9eE]+)\s*([kKMGBT]?)(?![a-zA-Z])(.*)", body)
    return f"{dollars[1]} {dollars[2]} USD{dollars[3]}" if dollars else body


def _given(text: str, counted: bool) -> _Unit | None:
    """The unit that a text names, if any."""
    body = _body(text)
    match = _NUMBER.match(body)
    rest = body[match.end() :].strip() if match else ""
    rest = rest.replace("\u00b2", "2").replace("^2", "2").replace(" per ", "/")
    rest = re.sub(r"(FLOP|OP)S\b", r"\1/s", rest)  # rates without a stroke: TFLOPS, TOPS,
    rest = re.sub(r"(?<=[kMGTP])(bit|b|B)ps\b", _per_second, rest)  # Gbps and GBps
    return _unit(rest, counted) if rest else None


def _per_second(match: re.Match[str]) -> str:
    return ("B" if match[1] == "B" else "bit") + "/s"


def _unit(expression: str, counted: bool) -> _Unit:
    """The unit of symbols such as `Gbit/s` or `USD/GPU-hour`; `counted`: `15T` is a count."""
    first, *below = expression.split("/")
    over, under = 1, 1
    words = first.split()
    if counted and words and words[0] in _COUNT:
        over = 10 ** _COUNT[words.pop(0)]
    up: str | None = None if counted else ""
    if words or (expression and not counted):
        up, top, bottom = _one(" ".join(words))
        over, under = over * top, under * bottom
    down, nouns = [], set()
    for word in (word for part in below for word in re.split(r"[-*\u00b7]", part)):
        measure, top, bottom = _one(word.strip(" ()").replace(" ", ""))
        over, under = over * bottom, under * top
        if measure in _NOUNS:
            nouns.add(measure)
        else:
            down.append(measure)
    return _Unit(over=over, under=under, up=up, down=tuple(sorted(down)), nouns=frozenset(nouns))


def _one(word: str) -> tuple[str, int, int]:
    """What one symbol measures, and its size; words may be plural or capital, symbols may not."""
    is_word = len(word) > 3  # so that ms is never m in the plural
    singular = word.removesuffix("s") if is_word else word
    for spelling in (word, singular, singular.lower() if len(singular) > 2 else word):
        name = _ALIASES.get(spelling, spelling)
        if name in _SYMBOLS:
            return _SYMBOLS[name][:3]
    for base, (measure, over, under, prefixes) in _SYMBOLS.items():
        if singular.removesuffix(base) in prefixes.split() and singular.endswith(base):
            return measure, *_scaled(over, under, singular.removesuffix(base))
    raise _UnknownSymbolError(word)


def _scaled(over: int, under: int, prefix: str) -> tuple[int, int]:
    if prefix in _BINARY:
        return over << _BINARY[prefix], under
    power = _SI[prefix]
    return over * 10 ** max(power, 0), under * 10 ** max(-power, 0)


def _size(name: str) -> float:
    """Base units in one of the named."""
    _, over, under = _one(name)
    return over / under


def _shown(value: float, digits: int) -> str:
    """So many significant digits, without an exponent where the number is of ordinary size."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text and 1 <= abs(value) < 1e15 else text


def _check_kind(given: _Unit, target: _Unit) -> None:
    """ValueError where the two do not measure the same."""
    up = target.up if given.up is None else given.up
    if up == target.up and given.down == target.down and given.nouns <= target.nouns:
        return
    hint = ""
    if up == "multiply-adds":
        hint = ": one MAC is two FLOP, give FLOP"
    elif up == "work" == target.up:
        hint = ": an amount of work is FLOP, a rate FLOP/s"
    raise ValueError(f"measures something else{hint}")


def _unknown(word: str, unit: str) -> tuple[str, str | None]:
    """What to say of a word that is no symbol, and the most like one that would do."""
    if re.fullmatch(r"[kKMGTPgmt]?b", word):
        return "has a unit that may be bits or bytes: write B or bit", None
    if re.fullmatch(r"K(B|bit)", word):
        return "has a unit that may be 1000 or 1024: write k or Ki", None
    return f"has no unit {word!r} that is known", nearest_name(word, _accepted(unit))


def _accepted(unit: str) -> list[str]:
    """The usual spellings of a unit."""
    first, *below = symbol(unit).split("/")
    names = _EXAMPLES.get(_one(first)[0], first).split() if first else ["%"]
    return ["/".join([name, *below]) for name in names]


def _bad(path: str, value: object, unit: str, message: str, nearest: str | None = None) -> BadInput:
    """The error, with what this unit accepts."""
    counted = symbol(unit).split("/")[0] in ("", "USD", "token")
    alone = f" (in {symbol(unit)})" if unit else ""
    allowed = f"a number alone{alone} or with {', '.join(_accepted(unit))}"
    allowed += ", k, M, B or T after it" if counted else ""
    return bad_input(path, value, message, allowed, nearest)
