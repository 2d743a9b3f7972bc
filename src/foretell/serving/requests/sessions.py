"""Sessions of agents and chats, drawn or from a file: turns that each ask with all before them.

    ShareGPT            conversations: [{from: human | gpt, value: TEXT}]
    LMSYS, WildChat     conversation: [{role: user | assistant, content: TEXT}]
    chat completions    messages: the same

Lengths of a file are counted in characters. It has no arrivals: a loop of conversations, in which a turn
follows the answer before it; in sessions that are drawn a pause after it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretell.errors import BadInput, Problem, wrong
from foretell.records import dataclass
from foretell.serving.requests.records import Requests
from foretell.serving.requests.words import read_words

BLOCK = 16
"""Tokens of a block of their contexts: a page of the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """What sessions are like."""

    turns: int = 8
    """Requests of one."""
    pause_s: float = 5.0
    """Mean seconds from an answer to the next request: a tool runs, a user reads."""
    new_tokens: int = 500
    """Mean tokens that each further turn adds to the context: a tool's output, a question."""


def read_sessions(text: str) -> Sessions:
    """Sessions of words such as `turns=8 pause=5 new=500`; seconds and tokens."""
    usual = Sessions()
    values, problems = read_words(
        "sessions", text, {"turns": usual.turns, "pause": usual.pause_s, "new": usual.new_tokens}
    )
    if values["turns"] < 1.0:
        problems.append(wrong("sessions", text, "has no turn", "turns=1 or more"))
    if problems:
        raise BadInput(problems)
    return Sessions(
        turns=int(values["turns"]), pause_s=values["pause"], new_tokens=int(values["new"])
    )


def session_requests(drawn: Requests, how: Sessions, seed: int) -> Requests:
    """Requests that were drawn by chance as the turns of sessions, which begin when the first of them came.

    `drawn` has the first prompt of each session as its prompts; later turns ask with what was said before.
    """
    rng = np.random.default_rng(seed + 2)
    many = max(len(drawn) // how.turns, 1)
    starts = drawn.at_s if drawn.at_s is not None else [0.0] * len(drawn)
    order: list[tuple[float, int, int]] = []
    for session in range(many):
        order += [(float(starts[session * how.turns]), session, turn) for turn in range(how.turns)]
    isl, osl, after, pause, blocks, kept, owner, at = [], [], [], [], [], [], [], []
    context, seen, first = 0, 0, 0
    for place, (start, session, turn) in enumerate(order):
        answer = int(drawn.osl[place])
        if turn == 0:
            context, first = int(drawn.isl[place]), seen
        else:
            context += int(drawn.osl[place - 1]) + max(int(rng.poisson(how.new_tokens)), 1)
        ids = math.ceil(context / BLOCK)
        isl.append(context)
        osl.append(answer)
        after.append(-1 if turn == 0 else place - 1)
        pause.append(0.0 if turn == 0 else float(rng.exponential(how.pause_s)))
        blocks.append(tuple(range(first, first + ids)))
        kept.append(tuple(range(first, first + (context + answer) // BLOCK)))
        owner.append(session)
        at.append(start)
        seen = max(seen, first + ids + math.ceil(answer / BLOCK))
    return Requests(
        isl=isl, osl=osl, at_s=at, after=after, pause_s=pause, blocks=blocks, block_tokens=BLOCK,
        session=owner, kept=kept,
    )  # fmt: skip


KEYS = ("conversations", "conversation", "messages")
"""Keys under which a row has its turns."""
TOKEN_CHARACTERS = 4.0
"""Characters of English prose to a token."""
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
