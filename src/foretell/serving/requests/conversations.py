"""Conversations as requests: each turn asks with all that was said before it.

    ShareGPT            conversations: [{from: human | gpt, value: TEXT}]
    LMSYS, WildChat     conversation: [{role: user | assistant, content: TEXT}]
    chat completions    messages: the same

Lengths are counted in characters. There are no arrivals: a loop of conversations, in which a turn follows the
answer before it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.errors import BadInput, Problem
from foretell.serving.requests.records import Requests

KEYS = ("conversations", "conversation", "messages")
"""Keys under which a row has its turns."""
TOKEN_CHARACTERS = 4.0
"""Characters of English prose to a token."""
BLOCK = 16
"""Tokens of a block of their contexts: a page of the cache."""
ASKERS = ("human", "user", "system", "developer", "tool", "function")
"""Who asks, or is read before the answer."""


def turns_of(row: Mapping[str, Any]) -> list[tuple[bool, int]] | None:
    """(whether it is asked, tokens) of every turn of a row; None where it is no conversation."""
    told = next((row[key] for key in KEYS if isinstance(row.get(key), list)), None)
    if told is None:
        return None
    found = []
    for turn in told:
        if not isinstance(turn, Mapping):
            continue
        text = turn.get("value", turn.get("content", ""))
        who = str(turn.get("from", turn.get("role", "")))
        found.append((who in ASKERS, max(round(len(str(text)) / TOKEN_CHARACTERS), 1)))
    return found


def conversations(rows: Sequence[Mapping[str, Any]]) -> Requests:
    """The answers of conversations, each a request with all before it as its prompt."""
    isl: list[int] = []
    osl: list[int] = []
    session: list[int] = []
    after: list[int] = []
    blocks: list[tuple[int, ...]] = []
    kept: list[tuple[int, ...]] = []
    first = 0
    for number, row in enumerate(rows):
        past, before = 0, -1
        for asked, tokens in turns_of(row) or ():
            if asked or not past:
                past += tokens
                continue
            after.append(before)
            before = len(isl)
            isl.append(past)
            osl.append(tokens)
            session.append(number)
            blocks.append(tuple(range(first, first + math.ceil(past / BLOCK))))
            past += tokens
            kept.append(tuple(range(first, first + past // BLOCK)))
        first += math.ceil(past / BLOCK) + 1
    if not isl:
        problem = Problem(path="arrivals", value=None, message="the conversations have no answers",
                          allowed="turns from gpt, or of the role assistant")  # fmt: skip
        raise BadInput([problem])
    many = f"{len(isl)} requests of {len(set(session))} conversations"
    said = f"{many}, {TOKEN_CHARACTERS:g} characters to a token; a turn comes once the last is answered"
    return Requests(
        isl=isl, osl=osl, session=session, after=after, blocks=blocks, kept=kept, block_tokens=BLOCK,
        said=(said,),
    )  # fmt: skip
