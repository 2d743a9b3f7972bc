"""One replica of an engine: a queue, a batch, a cache, and the next event.

Between events the batch is the same, and a decode step takes a + b context: k steps of n sequences over C
tokens of context take

    k a + b (k C + n g k (k - 1) / 2)        g tokens a sequence and step

so that a replica jumps to the next answer that is whole, the next arrival, or the moment when its cache is
full, instead of stepping through every token. The step that ends a prompt gives its first token; that token
itself comes into the cache with the next step.
"""

import math
from collections import deque
from heapq import heappop, heappush
from typing import NamedTuple

from foretell.serving.requests.prefixes import BlockCache, Prefixes
from foretell.serving.requests.records import Clock, EngineRules, Requests, Series

SAMPLE = 16
"""Of so many events one is noted for the series."""
WATERMARK = 0.01
"""Share of the cache that new requests leave free while others decode, as vLLM does: else those that have
just come would be the first to leave."""


class BatchSlot(NamedTuple):
    """A sequence in the batch."""

    ends: float
    """Step count at which its answer is whole."""
    since: float
    """Step count when it joined."""
    tokens: float
    """Tokens that it had in the cache then."""


class Prompt:
    """A prompt under way."""

    __slots__ = ("past", "request", "todo")

    def __init__(self, request: int, todo: float, past: float) -> None:
        self.request, self.todo, self.past = request, todo, past


class Replica:
    """State of one replica; `event` takes it to its next event.

    Where others decide what comes next, the event has two halves: `begin` lets requests in and does a step
    with prompts; where nothing but decode steps follow, `plan` tells when they end, and `decode`
    does them, up to a request that comes before.
    """

    def __init__(
        self, index: int, requests: Requests, rules: EngineRules, clock: Clock, series: Series
    ) -> None:
        self.index, self.requests, self.rules, self.clock = index, requests, rules, clock
        self.series = series
        self.now, self.busy_s, self.steps = 0.0, 0.0, 0.0
        self.n, self.context, self.held = 0, 0.0, 0.0
        self.batch: dict[int, BatchSlot] = {}
        """Decoding requests in the order in which they joined."""
        self.finish: list[tuple[float, int]] = []
        """(step count at which it ends, request), a heap; entries of those that left early are stale."""
        self.prompts: list[Prompt] = []
        self.queue: deque[int] = deque()
        self.classes: list[tuple[int, int]] = []
        """(class, request), a heap, where requests have classes."""
        self.returned: deque[int] = deque()
        """Those that had to leave, the first of them next."""
        self.generated: dict[int, int] = {}
        """Tokens that these had by then."""
        self.waits_from = 0.0
        """Step count when the queue began to fill."""
        self.prefixes = Prefixes() if requests.blocks is None else BlockCache(rules.tiers)
        self.first: list[tuple[int, float]] = []
        """(request, when) of first tokens, for the caller to take."""
        self.done: list[tuple[int, float]] = []
        """(request, when) of whole answers, likewise."""
        self.preempted, self.events = 0, 0
        self.load = 0
        """Requests here: in the queue, prompts under way, and in the batch."""
        self.planned: tuple[float, float] = (0.0, 0.0)
        """Decode steps that follow if no request comes before, and their seconds."""

    # -- what the caller asks ---------------------------------------------------------------------

    def push(self, request: int) -> None:
        """A request comes."""
        if self.rules.wait_steps and not self.waiting:
            self.waits_from = self.steps
        self.load += 1
        if self.requests.priority is None:
            self.queue.append(request)
        else:
            heappush(self.classes, (self.requests.priority[request], request))

    @property
    def waiting(self) -> int:
        """Requests not let in."""
        return self.load - len(self.prompts) - self.n

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done."""
        return not self.load

    def event(self, until_s: float) -> None:
        """The next step with prompts, or decode steps up to the next answer, arrival or full cache."""
        if self.begin():
            self.decode(until_s)

    def begin(self) -> bool:
        """Let requests in and do a step with prompts; whether there was none, and decode steps follow."""
        if self.queue or self.classes or self.returned:
            self._admit()
        self.events += 1
        if self.events % SAMPLE == 0:
            self._note()
        if self.prompts:
            self._prefill()
            return False
        return self.n > 0

    def plan(self) -> float:
        """When the decode steps that follow end, if no request comes before; they are `planned`."""
        self.planned = self._decode_steps(math.inf)
        return self.now + self.planned[1]

    def decode(self, until_s: float | None = None) -> None:
        """Steps without prompts, up to the next answer, arrival or full cache; those planned where no
        moment is given."""
        k, seconds = self.planned if until_s is None else self._decode_steps(until_s)
        self._spend(seconds)
        self._advance(k)
        self._finish()
        self._make_room()

    # -- letting in -------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Requests into the batch, in order, as far as places, tokens of a step and the cache go."""
        rules = self.rules
        if self.n and not self.prompts and self._waits():
            return
        budget = float(rules.max_tokens - (self.n if rules.policy == "mixed" else 0))
        if self.prompts:
            budget -= sum(min(prompt.todo, rules.rank_tokens) for prompt in self.prompts)
        while self.n + len(self.prompts) < rules.max_batch:
            if not (self.queue or self.classes or self.returned):
                break
            if budget <= 0.0 and not rules.decode_only:
                break
            request = self._next()
            todo = self._let_in(request)
            if todo < 0.0:
                break
            budget -= min(todo, rules.rank_tokens)
        self.waits_from = self.steps

    def _waits(self) -> bool:
        """Whether prompts wait for others."""
        rules = self.rules
        soon = self.steps < self.waits_from + rules.wait_steps
        return soon and self.waiting < rules.wait_prompts

    def _next(self) -> int:
        if self.returned:
            return self.returned[0]
        return self.queue[0] if self.queue else self.classes[0][1]

    def _pop(self) -> None:
        if self.returned:
            self.returned.popleft()
        elif self.queue:
            self.queue.popleft()
        else:
            heappop(self.classes)

    def _let_in(self, request: int) -> float:
        """Give a request its place in the cache; its prompt tokens to compute, or -1 where there is none."""
        rules, requests = self.rules, self.requests
        had = self.generated.get(request, 0)
        swapped = had > 0 and rules.preemption == "swap"
        tokens = float(requests.isl[request] + had - (1 if swapped else 0))
        hit = self.prefixes.use(request, requests) if rules.prefix_caching else 0.0
        need = tokens - hit + rules.slack_tokens
        whole = requests.osl[request] - had if rules.whole_admission else 0
        free = rules.kv_tokens * (1.0 - WATERMARK if self.n or self.prompts else 1.0)
        if self.held + need + whole > free:
            self.held -= self.prefixes.evict(self.held + need + whole - free)
            if self.held + need + whole > free:
                self.prefixes.refuse(request)
                return -1.0
        self._pop()
        if rules.prefix_caching:
            self.held += self.prefixes.room(request)
            self.prefixes.saved_tokens += hit
        # Room for the whole answer is kept from the beginning where the engine promises it.
        self.held += need + whole
        if rules.decode_only or swapped:
            if swapped:
                self._spend(rules.swap_s_per_token * tokens)
            self._join(request, tokens, requests.osl[request] - max(had, 1))
            if rules.decode_only and not had:
                # The user's stream is the decode instance's: its first step hands the first token over.
                self.first.append((request, self.now + self._step_s() + self._late()))
            return 0.0
        todo = max(tokens - hit, 1.0)
        self.prompts.append(Prompt(request, todo, tokens - todo))
        return todo

    # -- steps ------------------------------------------------------------------------------------

    def _spend(self, seconds: float) -> None:
        self.now += seconds
        self.busy_s += seconds

    def _prefill(self) -> None:
        """One step with prompt tokens."""
        rules = self.rules
        mixed = rules.policy == "mixed"
        n, context = (self.n, self.context) if mixed else (0, 0.0)
        left = float(max(rules.max_tokens - n, 1))
        new = past = 0.0
        taken: list[tuple[Prompt, float]] = []
        for prompt in self.prompts:
            chunk = min(prompt.todo, left - new, rules.rank_tokens)
            if chunk <= 0.0:
                break
            taken.append((prompt, chunk))
            new += chunk
            past += prompt.past
        span = self.clock.mixed(n, context, new, past, len(taken))
        behind = self._behind(span, n, context) if rules.stages > 1 else 0.0
        self._spend(span - behind)
        if n:
            self._advance(1.0)
        for prompt, chunk in taken:
            prompt.todo -= chunk
            prompt.past += chunk
            if prompt.todo <= 0.0:
                self._computed(prompt, behind)
        self.prompts = [prompt for prompt in self.prompts if prompt.todo > 0.0]
        self._finish()
        self._make_room()

    def _behind(self, span: float, n: int, context: float) -> float:
        """What a step with prompts takes in later stages, while the first goes on with other sequences."""
        beside = 0.0
        if n:
            a, b, _ = self.clock.line(n, context)
            beside = a + b * context
        return max(span - beside, 0.0) * (1.0 - 1.0 / self.rules.stages)

    def _computed(self, prompt: Prompt, behind: float) -> None:
        """A whole prompt is in the cache, and a token is there."""
        request = prompt.request
        had = self.generated.get(request, 0)
        if not had:
            # Blocks of other tiers come while the rest of the prompt is computed: only what is left shows.
            when = self.now + behind + self._late()
            if self.rules.prefix_caching:
                when += self.prefixes.loading_s.pop(request, 0.0)
            self.first.append((request, when))
        if self.rules.prefix_caching:
            self.prefixes.keep(request, self.requests)
        left = 0 if self.rules.prefill_only else self.requests.osl[request] - had - 1
        self._join(request, prompt.past, left)

    def _late(self) -> float:
        """What a first token waits for after its own step."""
        return self.rules.late_steps * self._step_s() if self.rules.late_steps else 0.0

    def _step_s(self) -> float:
        """A decode step of the batch as it is; 0 where nothing decodes."""
        if not self.n:
            return 0.0
        a, b, _ = self.clock.line(self.n, self.context)
        return a + b * self.context

    def _join(self, request: int, tokens: float, left: int) -> None:
        """A request whose prompt is in the cache decodes from the next step on."""
        if left <= 0:
            self._free(request, tokens, tokens)
            self._answered(request)
            return
        ends = self.steps + math.ceil(left / self.rules.tokens_per_step)
        heappush(self.finish, (ends, request))
        self.batch[request] = BatchSlot(ends, self.steps, tokens)
        self.n += 1
        self.context += tokens

    def _decode_steps(self, until_s: float) -> tuple[float, float]:
        """How many steps without prompts come next, and their seconds."""
        rules = self.rules
        k = self._first_end() - self.steps
        grown = self.n * rules.tokens_per_step
        if not rules.whole_admission and self.held + grown * k > rules.kv_tokens:
            # One sequence that is left alone goes on: what is longer than the cache was never let in.
            k = max(min(k, math.floor((rules.kv_tokens - self.held) / grown)), 1.0)
        if self.n >= rules.max_batch or self.queue or self.classes or self.returned:
            waits = self._waits()
            if not (waits and rules.wait_prompts < math.inf):
                until_s = math.inf  # who comes now waits anyway
            if waits:
                k = min(k, math.ceil(self.waits_from + rules.wait_steps - self.steps))
        context = self.context
        a, b, upto = self.clock.line(self.n, context)
        if context + grown * k > upto:
            k = min(k, max(math.ceil((upto - context) / grown), 1.0))
        if until_s < math.inf:
            k = min(k, self._steps_to(until_s - self.now, a, b, grown))
        return k, k * a + b * (k * context + grown * k * (k - 1.0) / 2.0)

    def _steps_to(self, left_s: float, a: float, b: float, grown: float) -> float:
        """Whole steps after which a time has passed, at least one."""
        each = a + b * self.context
        if left_s <= each:
            return 1.0
        bend = 0.5 * b * grown
        straight = each - bend
        if bend <= 0.0:
            return math.ceil(left_s / each - 1e-9)
        # straight k + bend k^2 = left
        root = 2.0 * left_s / (straight + math.sqrt(straight * straight + 4.0 * bend * left_s))
        return max(math.ceil(root - 1e-9), 1.0)

    def _advance(self, k: float) -> None:
        """Every decoding sequence is k steps on."""
        grown = self.n * self.rules.tokens_per_step * k
        self.steps += k
        self.context += grown
        if not self.rules.whole_admission:
            self.held += grown

    def _first_end(self) -> float:
        """Step count at which the next answer is whole."""
        finish, batch = self.finish, self.batch
        while True:
            ends, request = finish[0]
            place = batch.get(request)
            if place is not None and place.ends == ends:
                return ends
            heappop(finish)

    def _finish(self) -> None:
        """Answers that are whole leave the batch."""
        finish, steps = self.finish, self.steps
        while finish and finish[0][0] <= steps:
            ends, request = heappop(finish)
            place = self.batch.get(request)
            if place is not None and place.ends == ends:
                if self.rules.prefix_caching and not self.rules.prefill_only:
                    self.prefixes.answer(request, self.requests)
                self._leave(request)
                self._answered(request)

    def _answered(self, request: int) -> None:
        self.load -= 1
        self.done.append((request, self.now))

    def _leave(self, request: int) -> tuple[BatchSlot, float]:
        """A sequence out of the batch and the cache; its place, and the tokens that it had."""
        place = self.batch.pop(request)
        tokens = place.tokens + (self.steps - place.since) * self.rules.tokens_per_step
        self.n -= 1
        self.context = self.context - tokens if self.n else 0.0
        self._free(request, tokens, place.tokens)
        return place, tokens

    def _free(self, request: int, tokens: float, joined_with: float) -> None:
        """The cache of a request, but for a common beginning that stays."""
        rules = self.rules
        if rules.whole_admission:
            had = self.generated.get(request, 0)
            tokens = joined_with + self.requests.osl[request] - had
        stays = self.prefixes.leave(request) if rules.prefix_caching else 0.0
        self.held -= tokens - stays + rules.slack_tokens

    def _make_room(self) -> None:
        """The last to join leave while the next step would not fit; one always stays."""
        rules = self.rules
        if rules.whole_admission:
            return
        while self.n > 1 and self.held + self.n * rules.tokens_per_step > rules.kv_tokens:
            over = self.held + self.n * rules.tokens_per_step - rules.kv_tokens
            freed = self.prefixes.evict(over)
            self.held -= freed
            if freed >= over:
                break
            request = next(reversed(self.batch))
            place, tokens = self._leave(request)
            made = int((self.steps - place.since) * rules.tokens_per_step)
            had = self.generated.get(request, 0)
            # A prompt that was computed gave a token; a cache that came back did not.
            moved = had > 0 and (rules.decode_only or rules.preemption == "swap")
            self.generated[request] = had + made + (0 if moved else 1)
            if rules.preemption == "swap":
                self._spend(rules.swap_s_per_token * tokens)
            self.returned.appendleft(request)
            self.preempted += 1

    def _note(self) -> None:
        series = self.series
        series.at_s.append(self.now)
        series.replica.append(self.index)
        series.decoding.append(self.n)
        series.waiting.append(self.waiting)
        series.held_tokens.append(self.held)
