"""Worker processes and the line before them: a fixed number, a longest wait, a deadline for each answer.

A process that misses its deadline is ended and another takes its place, so that no question, however it came
to take so long, holds up the server. Answers depend on their question alone and are kept for a while.
"""

import asyncio
import json
import multiprocessing
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from foretell.errors import Problem
from foretell.web.limits import ELSEWHERE, Limits, TooMuch
from foretell.web.worker import Reply, answer, errors_reply, unpack_reply, work

KEPT_BYTES = 64 * 2**20
"""Answers that are kept, together."""
START_S = 120.0
"""Longest time that a new worker may take until it is ready."""
STOP_S = 2.0
"""What a worker is given to end by itself."""


class Busy(Exception):
    """So many questions wait already that this one is turned away: 429."""


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

    def ask(self, question: str) -> Reply:
        """The worker's reply to `[verb, flags]` in JSON; 422 where it took too long, 503 where it ended."""
        try:
            if not self._ready:
                self._wait(START_S)
                self._pipe.recv_bytes()
                self._ready = True
            self._pipe.send_bytes(question.encode("ascii"))
            self._wait(self._limits.deadline_s)
            return unpack_reply(self._pipe.recv_bytes())
        except TimeoutError:
            self.restart()
            most = f"{self._limits.deadline_s:g} s"
            return _refusal(422, f"takes longer than the {most} that this server gives")
        except (EOFError, OSError):
            self.restart()
            return _refusal(503, "took more memory or time than this server has")

    def _wait(self, seconds: float) -> None:
        if not self._pipe.poll(seconds):
            raise TimeoutError

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
    problem = Problem(path="", value=None, message=f"{message}; {ELSEWHERE}")
    return errors_reply(status, TooMuch([problem]))


class Pool:
    """Workers, the line before them, and answers that are still known."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.workers, thread_name_prefix="foretell-web")
        self._workers = [Worker(limits) for _ in range(limits.workers)]
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        for worker in self._workers:
            self._idle.put_nowait(worker)
        self._line = 0
        self._kept: OrderedDict[str, Reply] = OrderedDict()
        self._kept_bytes = 0

    @property
    def under_way(self) -> int:
        """Questions that are being answered or wait to be."""
        return self._line

    async def ask(self, question: str, gone: Callable[[], Awaitable[bool]]) -> Reply | None:
        """The reply to `[verb, flags]` in JSON; None where `gone` says that nobody waits for it any more.

        Of two questions that are alike the second has the first one's answer.
        """
        if question in self._kept:
            self._kept.move_to_end(question)
            return self._kept[question]
        if self._line >= self._limits.waiting + self._limits.workers:
            raise Busy
        self._line += 1
        try:
            worker = await self._idle.get()
            try:
                if question in self._kept:
                    return self._kept[question]
                if await gone():
                    return None
                loop = asyncio.get_running_loop()
                reply = await loop.run_in_executor(self._threads, worker.ask, question)
            except OSError:  # no other process could be started in the place of one that ended
                reply = _refusal(503, "cannot be answered now")
            finally:
                self._idle.put_nowait(worker)
        finally:
            self._line -= 1
        self._keep(question, reply)
        return reply

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

    async def ask(self, question: str, gone: Callable[[], Awaitable[bool]]) -> Reply | None:
        """The reply to `[verb, flags]` in JSON."""
        verb, given = json.loads(question)
        return await asyncio.to_thread(answer, verb, given, self._limits)

    def stop(self) -> None:
        """Nothing is held."""
