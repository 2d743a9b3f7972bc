"""Numbers of chips and strategies from texts, with what is wrong with them."""

import math
import re
from collections.abc import Sequence

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.inputs.job import LARGEST
from foretell.inputs.software import checked_plan
from foretell.specs.plan import named_fields, parse_plan

_RANGE = re.compile(r"([0-9]{1,10})\s*\.\.\s*([0-9]{1,10})")
_COMMA = re.compile(r",(?!\s*(?:tp|cp|dp|pp)\s*(?:,|$|\s))")
"""Commas between strategies; those of an order of placement, order=tp,cp,dp,pp, are before a bare name."""
MOST_COUNTS = 64
"""Numbers of chips of one study."""
MOST_STRATEGIES = 24
"""Strategies of one study."""
GPUS_ALLOWED = "1..512 (powers of two times the first), or a list such as 8,16,24"


def gpu_counts(given: int | str | Sequence[int]) -> tuple[int, ...]:
    """Numbers of chips, ascending: `1..512` doubles from its low end to its high one."""
    found: list[int]
    number: object = given
    if isinstance(given, int):
        found = [given]
    elif isinstance(number, float):
        raise BadInput([_bad_gpus(given)])
    elif isinstance(given, str):
        found = [count for word in given.split(",") for count in _counts(word.strip(), given)]
    else:
        found = list(given)
    wrong = [c for c in found if type(c) is not int or not 1 <= c <= LARGEST]
    if wrong or not found or len(found) > MOST_COUNTS:
        raise BadInput([_bad_gpus(wrong[0] if wrong else given)])
    return tuple(sorted(set(found)))


def _counts(word: str, whole: str) -> list[int]:
    if word.isascii() and word.isdecimal():
        return [int(word)]
    match = _RANGE.fullmatch(word)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise BadInput([_bad_gpus(whole)])
    low, high = int(match[1]), int(match[2])
    return [low * 2**k for k in range(int(math.log2(high / low) + 1e-9) + 1)]


def _bad_gpus(value: object) -> Problem:
    return wrong("gpus", value, "not a usable list of numbers of chips", GPUS_ALLOWED)


def strategy_texts(given: str | Sequence[str]) -> tuple[str, ...]:
    """Strategies, each the words of a plan: `zero1,zero3,tp4 zero1`."""
    words = _COMMA.split(given) if isinstance(given, str) else list(given)
    found = tuple(dict.fromkeys(" ".join(str(w).split()) for w in words if str(w).strip()))
    if not 1 <= len(found) <= MOST_STRATEGIES:
        allowed = f"1 to {MOST_STRATEGIES} plans, such as zero1,zero2,zero3"
        raise bad_input("strategies", given, "no strategies", allowed)
    return found


def plan_texts(strategies: Sequence[str], words: str, micro_batch: int | None) -> tuple[str, ...]:
    """Every strategy with the words that all share; mbs where neither names one."""
    problems: list[Problem] = []
    found = []
    for strategy in strategies:
        text = f"{words} {strategy}".strip()
        try:
            checked_plan(text)
        except BadInput as error:
            problems += error.problems
        named = "micro_batch" in named_fields(text)
        if named and micro_batch is not None:
            problems.append(wrong("micro_batch", micro_batch, "is also in the words of a plan"))
        found.append(text if named else f"{text} mbs{micro_batch or 1}")
    if problems:
        raise BadInput(problems)
    return tuple(found)


def common_batch(texts: Sequence[str]) -> int:
    """Sequences of a chip and step that every strategy's micro-batch divides."""
    return math.lcm(*(parse_plan(text).micro_batch for text in texts))
