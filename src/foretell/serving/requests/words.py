"""Options of a simulation that are words of their own: `turns=8 pause=5 new=500`."""

import re
from collections.abc import Mapping

from foretell.errors import Problem, nearest_name, wrong

NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?s?")
"""A number, or seconds."""


def read_words(
    option: str, text: str, usual: Mapping[str, float]
) -> tuple[dict[str, float], list[Problem]]:
    """Word -> its number, the usual one where it is not there; and what is no such word."""
    found, problems = dict(usual), []
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name in usual and NUMBER.fullmatch(value):
            found[name] = float(value.rstrip("s"))
            continue
        allowed = " ".join(f"{one}={number:g}" for one, number in usual.items())
        near = nearest_name(name, tuple(usual))
        problems.append(wrong(option, word, f"is no word of {option}", allowed, near))
    return found, problems
