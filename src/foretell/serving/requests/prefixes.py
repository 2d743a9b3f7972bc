"""Common beginnings of prompts that stay in the cache: computed and counted once."""

from collections import OrderedDict
from dataclasses import dataclass

from foretell.serving.requests.records import Requests


@dataclass(slots=True)
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
