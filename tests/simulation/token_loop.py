"""The plainest engine there is: one step after the other, every sequence by itself, nothing remembered."""

import math
from dataclasses import dataclass, field

from foretell.serving.requests.records import Clock, EngineRules, Requests

WATERMARK = 0.01


@dataclass
class Sequence:
    """A request under way."""

    request: int
    todo: float
    """Prompt tokens to compute."""
    cached: float = 0.0
    """Tokens in the cache."""
    answer: int = 0
    """Tokens given."""


@dataclass
class Loop:
    """One engine, without prefix caching, classes or drafts."""

    requests: Requests
    rules: EngineRules
    clock: Clock
    now: float = 0.0
    running: list[Sequence] = field(default_factory=list)
    prompts: list[Sequence] = field(default_factory=list)
    waiting: list[Sequence] = field(default_factory=list)
    coming: list[tuple[float, int]] = field(default_factory=list)
    most_held: float = 0.0

    def play(self) -> tuple[list[float], list[float], list[float]]:
        """Arrivals, first tokens and last tokens."""
        q = self.requests
        many = len(q)
        arrival, first, done = ([math.nan] * many for _ in range(3))
        times = [0.0] * min(q.concurrency, many) if q.at_s is None else list(q.at_s)
        self.coming = [(at, i) for i, at in enumerate(times)]
        following = len(times)
        while self.coming or self.waiting or self.prompts or self.running:
            if not (self.waiting or self.prompts or self.running):
                self.now = max(self.now, self.coming[0][0])
            while self.coming and self.coming[0][0] <= self.now:
                at, i = self.coming.pop(0)
                arrival[i] = at
                self.waiting.append(Sequence(i, float(q.isl[i])))
            self.let_in()
            for i, given in self.step():
                if given == 1 and math.isnan(first[i]):
                    first[i] = self.now
                if given == q.osl[i]:
                    done[i] = self.now
                    if q.at_s is None and following < many:
                        self.coming.append((self.now, following))
                        following += 1
            self.make_room()
        return arrival, first, done

    def held(self) -> float:
        total = 0.0
        for s in [*self.running, *self.prompts]:
            if self.rules.whole_admission:
                total += self.requests.isl[s.request] + self.requests.osl[s.request]
            else:
                total += s.cached + s.todo
            total += self.rules.slack_tokens
        return total

    def let_in(self) -> None:
        rules = self.rules
        budget = rules.max_tokens - (len(self.running) if rules.policy == "mixed" else 0)
        budget -= sum(s.todo for s in self.prompts)
        while (
            self.waiting and len(self.running) + len(self.prompts) < rules.max_batch and budget > 0
        ):
            s = self.waiting[0]
            need = s.todo + rules.slack_tokens
            if rules.whole_admission:
                need += self.requests.osl[s.request]
            busy = bool(self.running or self.prompts)
            if self.held() + need > rules.kv_tokens * (1 - WATERMARK if busy else 1):
                return
            self.prompts.append(self.waiting.pop(0))
            budget -= s.todo

    def step(self) -> list[tuple[int, int]]:
        """One step; (request, tokens given so far) of every sequence that got one."""
        rules = self.rules
        mixed = rules.policy == "mixed"
        decoding = list(self.running) if mixed or not self.prompts else []
        context = sum(s.cached for s in decoding)
        given = []
        if self.prompts:
            left = max(rules.max_tokens - len(decoding), 1)
            chunks = []
            for s in self.prompts:
                chunk = min(s.todo, left)
                if chunk > 0:
                    chunks.append((s, chunk))
                    left -= chunk
            new, past = sum(c for _, c in chunks), sum(s.cached for s, _ in chunks)
            self.now += self.clock.mixed(len(decoding), context, new, past, len(chunks))
            for s, chunk in chunks:
                s.todo -= chunk
                s.cached += chunk
        else:
            a, b, _ = self.clock.line(len(decoding), context)
            self.now += a + b * context
        for s in decoding:
            s.cached += 1
        for s in [*decoding, *[s for s in self.prompts if s.todo == 0]]:
            s.answer += 1
            given.append((s.request, s.answer))
        self.running += [s for s in self.prompts if s.todo == 0]
        self.prompts = [s for s in self.prompts if s.todo > 0]
        self.running = [s for s in self.running if s.answer < self.requests.osl[s.request]]
        self.most_held = max(self.most_held, self.held())
        return given

    def make_room(self) -> None:
        if self.rules.whole_admission:
            return
        while len(self.running) > 1 and self.held() + len(self.running) > self.rules.kv_tokens:
            s = self.running.pop()
            self.waiting.insert(0, Sequence(s.request, s.cached + 1, 0.0, s.answer))
