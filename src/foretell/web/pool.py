"""Worker processes and the line before them: a fixed number, a longest wait, a deadline for each answer.

A process that misses its deadline, in processor time, is ended and another takes its place, so that no
question, however it came to take so long, holds up the server. What nobody waits for any more is cancelled.
Answers depend on their question alone and are kept for a while.
"""

import asyncio
import hashlib
import json
import multiprocessing
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from foretell.errors import wrong
from foretell.web.figures import KINDS
from foretell.web.limits import ELSEWHERE, Limits, TooMuch
from foretell.web.progress import Report, watching
from foretell.web.worker import (
    CANCEL,
    FIGURE,
    HINT,
    PROGRESS,
    SHOWN,
    Reply,
    answer,
    errors_reply,
    unpack_reply,
    work,
)

KEPT_BYTES = 64 * 2**20
"""Answers that are kept, together."""
START_S = 120.0
"""Longest time that a new worker may take until it is ready."""
STOP_S = 2.0
"""What a worker is given to end by itself."""


MOST_WALL = 4.0
"""Most time by the clock of one answer, over its processor time."""
LOOK_S = 0.25
"""How often it is looked whether whoever asked is still there, and what an answer has taken."""
SLOW_VERBS = frozenset(
    {
        "search",
        "size",
        "fleet",
        "compare",
        "codesign",
        "optimise",
        "scaling",
        "sensitivity",
        "simulate",
        "post-train",
        "improve",
        "simulate trace",
    }
)
"""Verbs that search, play or sweep."""
PLANNED_VERBS = frozenset({"estimate", "explain", "memory", "cost run"})
"""Verbs that search where no plan is given."""
PASTED = frozenset({"measured", "launch", "logs", "text"})
"""Fields with texts that a user pasted."""


class Busy(Exception):
    """So many questions wait already that this one is refused: 429."""


class Worker:
    """One process and the pipe to it; used by one thread at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, self._limits), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False

    def ask(self, question: str, report: Report | None = None) -> Reply:
        """The worker's reply to `[verb, flags]` in JSON; 422 where it took too long, 503 where it ended.

        With `report`, which is informed how far the answer is, it may take as long as a watched one may.
        """
        most_s = self._limits.deadline_s if report is None else self._limits.watched_s
        try:
            if not self._ready:
                self._wait(START_S)
                self._pipe.recv_bytes()
                self._ready = True
            begun_s = processor_s(self._process.pid)
            self._pipe.send_bytes(question.encode("ascii"))
            end = time.monotonic() + MOST_WALL * most_s
            while True:
                self._wait_for_answer(begun_s, most_s, end, most_s if report is None else LOOK_S)
                reply = unpack_reply(self._pipe.recv_bytes())
                if reply[0] != PROGRESS:
                    return reply
                if report is not None:
                    report(*json.loads(reply[2]))
        except TimeoutError:
            self.restart()
            most = f"{most_s:g} s"
            return _refusal(422, f"takes longer than the {most} that this server gives")
        except (EOFError, OSError):
            self.restart()
            return _refusal(503, "took more memory or time than this server has")

    def _wait(self, seconds: float) -> None:
        if not self._pipe.poll(seconds):
            raise TimeoutError

    def _wait_for_answer(self, begun_s: float, most_s: float, end: float, wait_s: float) -> None:
        """Until a message is there, or its processor time is spent: other processes may have the cores."""
        while not self._pipe.poll(wait_s):
            spent_s = processor_s(self._process.pid) - begun_s
            if spent_s >= most_s or time.monotonic() >= end or not self._process.is_alive():
                raise TimeoutError
            wait_s = LOOK_S

    def cancel(self) -> None:
        """End the question under way; the process goes on, where the system can tell it so."""
        if CANCEL is not None and self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, CANCEL)

    def restart(self) -> None:
        """End the process at once and start another."""
        self.stop(0.0)
        self._start()

    def stop(self, patience_s: float = STOP_S) -> None:
        """End the process: its pipe is closed, and it is killed where that does not help."""
        self._pipe.close()
        if patience_s:
            self._process.join(patience_s)
        if self._process.is_alive():
            self._process.kill()
        self._process.join(STOP_S)


def _refusal(status: int, message: str) -> Reply:
    problem = wrong("", None, f"{message}; {ELSEWHERE}")
    return errors_reply(status, TooMuch([problem]))


def processor_s(process: int | None) -> float:
    """Processor time that a process has had; the clock's where the system does not tell."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic()


def takes_long(question: str) -> bool:
    """Whether `[verb, flags]` in JSON is likely to take longer than an estimate of one plan."""
    verb, given = json.loads(question)
    name = verb = verb.removeprefix(SHOWN)
    if verb.startswith(FIGURE):
        kind = KINDS.get(verb.removeprefix(FIGURE))
        name = kind.verb if kind else verb
    asked = given.get("questions") or [given]
    return (
        name.startswith(HINT)
        or name in SLOW_VERBS
        or (name in PLANNED_VERBS and any(not one.get("plan") for one in asked))
        or any(one.get("simulate") or one.get("sweep") for one in asked)
    )


def has_pasted(question: str) -> bool:
    """Whether `[verb, flags]` in JSON has text that a user pasted: neither it nor its answer is kept."""
    _, given = json.loads(question)
    return any(not PASTED.isdisjoint(one) for one in given.get("questions") or [given])


def key_of(question: str) -> str:
    """What a question is known by again: not its text, which may describe hardware of the user's own."""
    return hashlib.sha256(question.encode("ascii")).hexdigest()


async def patient(turn: Awaitable[object], gone: Callable[[], Awaitable[bool]]) -> bool:
    """Wait for a turn in a line; False where whoever asked has left it meanwhile."""
    waits = asyncio.ensure_future(turn)
    try:
        while not (await asyncio.wait({waits}, timeout=LOOK_S))[0]:
            if await gone() and not waits.done():  # a turn that has come is not lost
                return False
        return True
    finally:
        waits.cancel()


class Pool:
    """Workers, the line before them, and answers that are still known."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="foretell-web")
        self._workers = [Worker(limits) for _ in range(limits.workers)]
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        for worker in self._workers:
            self._idle.put_nowait(worker)
        # One worker is left to quick questions: an estimate never waits for searches alone.
        self._slow = asyncio.Semaphore(max(limits.workers - 1, 1))
        self._lines = {True: 0, False: 0}
        self._kept: OrderedDict[str, Reply] = OrderedDict()
        self._kept_bytes = 0

    @property
    def under_way(self) -> int:
        """Questions that are being answered or wait to be."""
        return sum(self._lines.values())

    async def ask(
        self,
        question: str,
        gone: Callable[[], Awaitable[bool]],
        report: Report | None = None,
    ) -> Reply | None:
        """The reply to `[verb, flags]` in JSON; None where `gone` says that nobody waits for it any more.

        Of two questions that are alike the second has the first one's answer. `report` is informed how far a
        long answer is.
        """
        key = key_of(question)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        # A line of its own each: searches that wait keep no estimate out.
        slow = takes_long(question)
        if self._lines[slow] >= self._limits.waiting + self._limits.workers:
            raise Busy
        self._lines[slow] += 1
        try:
            if not slow:
                reply = await self._ask(question, key, gone, report)
            elif await patient(self._slow.acquire(), gone):
                try:
                    reply = await self._ask(question, key, gone, report)
                finally:
                    self._slow.release()
            else:
                reply = None
        finally:
            self._lines[slow] -= 1
        if reply is not None and not has_pasted(question):
            self._keep(key, reply)
        return reply

    async def _ask(
        self,
        question: str,
        key: str,
        gone: Callable[[], Awaitable[bool]],
        report: Report | None,
    ) -> Reply | None:
        """The reply of the next idle worker; it is asked to stop where nobody waits any more."""
        worker = await self._idle.get()
        try:
            if key in self._kept:
                return self._kept[key]
            if await gone():
                return None
            if report is not None:
                report(0, 0)  # it is begun
            loop = asyncio.get_running_loop()
            asked = loop.run_in_executor(self._threads, worker.ask, question, report)
            while not (await asyncio.wait({asked}, timeout=LOOK_S))[0]:
                if await gone():
                    worker.cancel()
                    await asked
                    return None
            return asked.result()
        except OSError:  # no other process could be started in the place of one that ended
            return _refusal(503, "cannot be answered now")
        finally:
            self._idle.put_nowait(worker)

    def _keep(self, key: str, reply: Reply) -> None:
        """Keep an answer; the longest unused go."""
        if reply[0] != 200 or len(reply[2]) > KEPT_BYTES // 8 or key in self._kept:
            return
        self._kept[key] = reply
        self._kept_bytes += len(reply[2]) + len(key)
        while self._kept_bytes > KEPT_BYTES:
            old, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped[2]) + len(old)

    def stop(self) -> None:
        """End every worker; questions under way are lost, so that a server first answers them."""
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(wait=True)


class Inline:
    """The same without processes: questions are answered in threads of this one."""

    under_way = 0

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def ask(
        self,
        question: str,
        gone: Callable[[], Awaitable[bool]],
        report: Report | None = None,
    ) -> Reply | None:
        """The reply to `[verb, flags]` in JSON."""
        verb, given = json.loads(question)

        def asked() -> Reply:
            with watching(report):
                return answer(verb, given, self._limits)

        return await asyncio.to_thread(asked)

    def stop(self) -> None:
        """Nothing is held."""
