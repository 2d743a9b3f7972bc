"""Beginnings of prompts that stay in the cache, whole or as blocks, and the tiers of memory behind it.

A block is found where all before it are: hits are counted from the beginning of a prompt and end at the first
miss. Blocks that nobody uses leave the cache, the least recently used first, and go to the next tier of
memory (`host:1TB@50GB/s ssd:8TB@6GB/s`); from there they come back at its speed.
"""

import dataclasses
import re
from collections import OrderedDict

from foretell.errors import BadInput, wrong
from foretell.records import dataclass
from foretell.serving.requests.records import KvTier, Requests


@dataclasses.dataclass(slots=True)
class CachedPrefix:
    """One of them in the cache."""

    tokens: float
    """Its length."""
    users: int = 0
    """Sequences that look at it now: while there are any it stays."""


class Prefixes:
    """What one replica has of them."""

    def __init__(self) -> None:
        self.known: OrderedDict[int, CachedPrefix] = OrderedDict()
        """The least recently used first."""
        self.used: dict[int, tuple[int, float]] = {}
        """Request -> its beginning, and the tokens of it that the request does not hold itself."""
        self.saved_tokens = 0.0
        """Prompt tokens that were not computed again."""
        self.from_tier: dict[str, float] = {}
        """Whole beginnings are kept in the cache alone."""
        self.loading_s: dict[int, float] = {}

    def length(self, request: int, requests: Requests) -> float:
        """Tokens of the request's common beginning; the last token of a prompt is always computed."""
        if (
            requests.prefix is None
            or requests.prefix_tokens is None
            or requests.prefix[request] < 0
        ):
            return 0.0
        return float(min(requests.prefix_tokens[request], requests.isl[request] - 1))

    def use(self, request: int, requests: Requests) -> float:
        """Tokens of the prompt that are there already; they stay until the request leaves."""
        length = self.length(request, requests)
        name = requests.prefix[request] if length and requests.prefix is not None else -1
        known = self.known.get(name)
        if known is None:
            return 0.0
        hit = min(known.tokens, length)
        known.users += 1
        self.known.move_to_end(name)
        self.used[request] = (name, hit)
        return hit

    def keep(self, request: int, requests: Requests) -> None:
        """A prompt is computed: a beginning that nobody had is common from now on."""
        length = self.length(request, requests)
        if not length or requests.prefix is None or request in self.used:
            return
        name = requests.prefix[request]
        if name not in self.known:
            self.known[name] = CachedPrefix(length, 1)
            self.used[request] = (name, length)

    def answer(self, request: int, requests: Requests) -> None:
        """An answer is whole: nobody asks with it again."""

    def leave(self, request: int) -> float:
        """A request leaves; tokens that stay behind."""
        name, tokens = self.used.pop(request, (-1, 0.0))
        if name in self.known:
            self.known[name].users -= 1
        return tokens

    def room(self, request: int) -> float:
        """Nothing comes from elsewhere."""
        return 0.0

    def refuse(self, request: int) -> None:
        """A request is not let in."""
        self.leave(request)

    def has(self, request: int, requests: Requests) -> bool:
        """Whether the beginning of a request's prompt is here."""
        return requests.prefix is not None and requests.prefix[request] in self.known

    def evict(self, tokens: float) -> float:
        """Beginnings that nobody uses leave until so many tokens are free; those that are."""
        freed = 0.0
        for name in [name for name, known in self.known.items() if known.users <= 0]:
            if freed >= tokens:
                break
            freed += self.known.pop(name).tokens
        return freed


BYTES = {
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "PB": 1e15,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
"""Units of sizes."""
_TIER = re.compile(r"([a-z][a-z0-9_-]*):([0-9.]{1,12})([KMGTP]i?B)@([0-9.]{1,12})([KMGTP]i?B)/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierGiven:
    """A tier as it is given, for one instance."""

    name: str
    """host, ssd, remote, ..."""
    size_bytes: float
    """What it holds."""
    bytes_per_s: float
    """How fast blocks come back."""

    def of_tokens(self, token_bytes: float) -> KvTier:
        """The tier in tokens of a cache."""
        return KvTier(
            name=self.name,
            tokens=self.size_bytes / token_bytes,
            s_per_token=token_bytes / self.bytes_per_s,
        )


def read_tiers(text: str) -> tuple[TierGiven, ...]:
    """Tiers of a text, the nearest first; every wrong word is reported."""
    found, problems = [], []
    for word in text.replace(",", " ").split():
        match = _TIER.fullmatch(word)
        known = match is not None and match[3] in BYTES and match[5] in BYTES
        numbers = [float(match[i]) for i in (2, 4) if match and _is_number(match[i])]
        if match is None or not known or len(numbers) < 2 or min(numbers) <= 0.0:
            problems.append(
                wrong("kv_tiers", word, "is no tier of memory", "NAME:SIZE@RATE, such as host:1TB@50GB/s")
            )  # fmt: skip
            continue
        found.append(
            TierGiven(
                name=match[1], size_bytes=numbers[0] * BYTES[match[3]],
                bytes_per_s=numbers[1] * BYTES[match[5]],
            )
        )  # fmt: skip
    if problems:
        raise BadInput(problems)
    return tuple(found)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None


class BlockCache:
    """Blocks of one replica; the interface of `Prefixes`."""

    def __init__(self, tiers: tuple[KvTier, ...] = ()) -> None:
        self.known: OrderedDict[int, int] = OrderedDict()
        """Block -> sequences that look at it, the least recently used first."""
        self.used: dict[int, tuple[int, ...]] = {}
        """Request -> blocks that it looks at and does not hold itself."""
        self.tiers = [(tier, OrderedDict[int, None]()) for tier in tiers]
        """Tiers with their blocks, the least recently used first."""
        self.saved_tokens = 0.0
        """Prompt tokens that were not computed again."""
        self.from_tier: dict[str, float] = {tier.name: 0.0 for tier in tiers}
        """Of these, tokens that came from a tier."""
        self.loading_s: dict[int, float] = {}
        """Request -> seconds that its blocks take from their tiers."""
        self.fresh: dict[int, tuple[int, ...]] = {}
        """Request -> blocks that came from a tier for it, and take room from now on."""
        self.size = 0

    def room(self, request: int) -> float:
        """Tokens of room that the blocks of a request take which came from a tier."""
        return float(len(self.fresh.pop(request, ())) * self.size)

    def refuse(self, request: int) -> None:
        """A request is not let in: what came for it is not here after all."""
        self.leave(request)
        for block in self.fresh.pop(request, ()):
            self.known.pop(block, None)
        self.loading_s.pop(request, None)

    def use(self, request: int, requests: Requests) -> float:
        """Tokens of the prompt that are there already; they stay until the request leaves."""
        self.size = requests.block_tokens
        ids = requests.blocks[request] if requests.blocks is not None else ()
        found: list[int] = []
        fresh: list[int] = []
        seconds = 0.0
        for block in ids:
            if block not in self.known:
                tier = next((one for one in self.tiers if block in one[1]), None)
                if tier is None:
                    break
                seconds += tier[0].s_per_token * self.size
                self.from_tier[tier[0].name] += self.size
                self.known[block] = 0
                fresh.append(block)
            found.append(block)
        # The last token of a prompt is always computed.
        most = (requests.isl[request] - 1) // max(self.size, 1)
        found = found[:most]
        for block in found:
            self.known[block] += 1
            self.known.move_to_end(block)
        self.used[request] = tuple(found)
        self.loading_s[request] = seconds
        self.fresh[request] = tuple(fresh)
        return float(len(found) * self.size)

    def keep(self, request: int, requests: Requests) -> None:
        """A prompt is computed: its whole blocks are common from now on."""
        ids = requests.blocks[request] if requests.blocks is not None else ()
        whole = ids[: requests.isl[request] // max(self.size, 1)]
        own = self.used.get(request, ())
        fresh = tuple(block for block in whole[len(own) :] if block not in self.known)
        for block in fresh:
            self.known[block] = 1
        self.used[request] = own + fresh

    def answer(self, request: int, requests: Requests) -> None:
        """An answer is whole: its whole blocks are common from now on, as its prompt's are."""
        if requests.kept is None:
            return
        own = self.used.get(request, ())
        more = tuple(block for block in requests.kept[request] if block not in self.known)
        for block in more:
            self.known[block] = 1
        self.used[request] = own + more

    def leave(self, request: int) -> float:
        """A request leaves; tokens that stay behind."""
        mine = self.used.pop(request, ())
        for block in mine:
            if block in self.known:
                self.known[block] -= 1
        return float(len(mine) * self.size)

    def has(self, request: int, requests: Requests) -> bool:
        """Whether the beginning of a prompt is here."""
        ids = requests.blocks[request] if requests.blocks is not None else ()
        return bool(ids) and ids[0] in self.known

    def evict(self, tokens: float) -> float:
        """Blocks that nobody uses leave for the next tier until so many tokens are free; those that are."""
        freed, gone = 0.0, list[int]()
        for block, users in self.known.items():
            if freed >= tokens:
                break
            if users <= 0:
                gone.append(block)
                freed += self.size
        for block in gone:
            del self.known[block]
            if self.tiers:
                self._pass_on(block, 0)
        return freed

    def _pass_on(self, block: int, place: int) -> None:
        """A block into a tier; what that has no room for goes to the one behind."""
        if place >= len(self.tiers):
            return
        tier, blocks = self.tiers[place]
        blocks[block] = None
        blocks.move_to_end(block)
        while len(blocks) * self.size > tier.tokens:
            old, _ = blocks.popitem(last=False)
            self._pass_on(old, place + 1)


def reusable_share(requests: Requests) -> float:
    """Share of all prompt tokens that one cache without limit would have, each request asked when those
    before it are answered."""
    cache = Prefixes() if requests.blocks is None else BlockCache()
    found = 0.0
    for request in range(len(requests)):
        found += cache.use(request, requests)
        cache.keep(request, requests)
        cache.answer(request, requests)
        cache.leave(request)
    return found / max(float(sum(requests.isl)), 1.0)
