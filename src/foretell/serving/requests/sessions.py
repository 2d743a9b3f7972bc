"""Sessions of agents and chats: turns that each ask with all before them, a pause after each answer."""

import math

import numpy as np

from foretell.errors import BadInput, Problem
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
        problems.append(
            Problem(path="sessions", value=text, message="has no turn", allowed="turns=1 or more")
        )
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
