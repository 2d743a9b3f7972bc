"""Where shards are computed: anything with the interface of `concurrent.futures`.

A process pool, Dask's `Client.get_executor()`, MPI futures and submitit have it alike. Workers get a study
and a number and give bytes back: they need neither the folder nor each other.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import lru_cache, partial
from typing import Any

from foretell.errors import BadInput, bad_input
from foretell.records import dataclass
from foretell.search.interrupts import end_at_once, hold_interrupts
from foretell.specs.study import Study
from foretell.studies.sweep.shards import shard_bytes

AHEAD = 2
"""Shards that are handed out for each worker, so that none waits for the next."""
MOST_WORKERS = 1024
BEGIN_S = 4.0
"""What workers take to begin, all of them alike, on a machine with other users."""
FEW_WORKERS = 4
"""Up to so many workers, the process that asks for a sweep is one of them."""
CLEARLY_MANY = 16
"""Shards of about a second for each worker, beyond which workers begin without a first one being timed."""
GLIBC_OPTIONS = {-1: 1 << 28, -2: 1 << 26, -3: 1 << 25}
"""Options of glibc's `mallopt`: free bytes at the top that are kept, bytes fetched at once, and the bytes
from which an array is mapped on its own (32 MiB is the most that glibc takes)."""
QUIET_DASK = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Settings of a cluster of our own: its workers do not sample their stacks a hundred times a second, which
takes a tenth of their time."""
RESTARTS = 3
"""Times that a pool whose worker died is begun anew without a shard done in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRunner:
    """What runs the shards."""

    open: Callable[[], Any]
    """A context that gives an executor."""
    ahead: int
    """Shards handed out at a time."""
    workers: int = 0
    """Workers that are begun for this sweep; 0: those of somebody else, which are there already."""
    shared: bool = False
    """Whether this process is one of them to the end, and not just until the others answer."""


def shard_runner(executor: str | Executor, workers: int) -> ShardRunner | None:
    """From a name (`process`, `dask`, `dask://host:port`) or an executor; None: in this process."""
    if isinstance(executor, Executor):
        given = executor
        return ShardRunner(open=lambda: _as_it_is(given), ahead=max(AHEAD * workers, 16))
    if executor == "process":
        return _own_workers(_processes, workers)
    if executor == "dask":
        return _own_workers(partial(_dask, None), workers)
    if executor.startswith("dask://") and executor.rpartition(":")[2].isdigit():
        address = executor.removeprefix("dask://")
        return ShardRunner(
            open=lambda: _dask(f"tcp://{address}", workers), ahead=max(AHEAD * workers, 256)
        )
    raise bad_input("executor", executor, "not a choice", "process, dask, dask://host:port")


def _own_workers(
    begin: Callable[[int], AbstractContextManager[Executor]], workers: int
) -> ShardRunner | None:
    """Workers that are begun for a sweep; None where this process is the only one.

    Among few this process is one of them: one less has to begin. Among many it has enough to do with writing
    what they give back.
    """
    if workers == 1:
        return None
    shared = workers <= FEW_WORKERS
    others = workers - shared
    return ShardRunner(
        open=lambda: begin(others), ahead=AHEAD * others, workers=workers, shared=shared
    )


def worker_shard(study: Study, number: int) -> bytes:
    """One shard as a worker computes it, whoever began that worker."""
    keep_freed_memory()
    return shard_bytes(study, number)


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next array, whatever the environment says.

    Dask begins workers with MALLOC_TRIM_THRESHOLD_=65536. Every array over 128 KiB is then mapped anew, page
    by page, which doubles the processor time of a shard. C libraries other than glibc are left as they are.
    """
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in GLIBC_OPTIONS.items():
        mallopt(ctypes.c_int(option), ctypes.c_int(value))


def run_shards(
    study: Study, numbers: Iterable[int], place: ShardRunner | None, many: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Shards as they become ready; every number once. `many` is how many there are, where it is known.

    Workers of our own take seconds to begin: a sweep goes on in this process until what is left would take
    longer than that, and then until the first of them answers, or to the end where it is one of them.
    """
    left = iter(numbers)
    if place is None:
        yield from ((number, shard_bytes(study, number)) for number in left)
        return
    alone = 0 < many <= CLEARLY_MANY * place.workers
    while alone:
        first = next(left, None)
        if first is None:
            return
        began = time.perf_counter()
        content = shard_bytes(study, first)
        took = time.perf_counter() - began
        yield first, content
        many -= 1
        alone = many * took * (1.0 - 1.0 / place.workers) <= BEGIN_S
    lost: list[int] = []
    restarts = 0
    while restarts <= RESTARTS:
        try:
            for number, content in _on_workers(study, left, lost, place):
                restarts = 0
                yield number, content
            return
        except BrokenExecutor:
            # A worker was killed: a new pool does what was on its hands.
            restarts += 1
    message = f"workers died {restarts} times before a shard was done: too little memory?"
    raise bad_input("workers", None, message, "fewer workers")


def _on_workers(
    study: Study, left: Iterator[int], lost: list[int], place: ShardRunner
) -> Iterator[tuple[int, bytes]]:
    """Shards of workers, and of this process while workers of our own begin, in a thread beside it."""
    with ExitStack() as stack:
        opener = stack.enter_context(ThreadPoolExecutor(1))
        opening = opener.submit(lambda: stack.enter_context(place.open()))
        while place.workers and not opening.done():
            number = next(left, None)
            if number is None:
                break
            yield number, shard_bytes(study, number)
        yield from _handed_out(study, left, lost, opening.result(), place)


def _handed_out(
    study: Study, left: Iterator[int], lost: list[int], executor: Executor, place: ShardRunner
) -> Iterator[tuple[int, bytes]]:
    """Keep some shards on the workers' hands; `lost` has those that are on them, until they are done."""
    again = list(lost)
    pending: dict[Future[bytes], int] = {}
    works = place.workers > 0
    try:
        while True:
            while len(pending) < place.ahead:
                number = again.pop(0) if again else next(left, None)
                if number is None:
                    break
                if number not in lost:
                    lost.append(number)
                with hold_interrupts():  # a worker may begin in here
                    pending[executor.submit(worker_shard, study, number)] = number
            if not pending:
                return
            works = works and (place.shared or not any(future.done() for future in pending))
            own = next(left, None) if works else None
            if own is not None:
                yield own, shard_bytes(study, own)
            for future in wait(pending, None if own is None else 0.0, FIRST_COMPLETED).done:
                number = pending.pop(future)
                content = future.result()
                lost.remove(number)
                yield number, content
    finally:
        for future in pending:
            future.cancel()


@contextmanager
def _as_it_is(executor: Executor) -> Iterator[Executor]:
    """An executor of the caller's, which the caller ends."""
    yield executor


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """A pool of processes, begun afresh: a copy of one with threads in it could hang."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_ready)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ready() -> None:
    """Ready a worker: end with an interrupt or with who began it, and leave other cores to other workers."""
    import os
    from threading import Thread

    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # polars reads it when it is imported
    end_at_once()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the process that began this one; a pool's worker would else outlive it."""
    import os
    from multiprocessing import parent_process
    from multiprocessing.connection import wait as wait_for

    parent = parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


@contextmanager
def _dask(address: str | None, workers: int) -> Iterator[Executor]:
    """Workers of a cluster: one that is there, or one of our own on this machine.

    A client that is entered must be left in the same thread; one that is closed, need not.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise _not_installed("distributed") from None
    if address is None:
        with (
            dask.config.set(QUIET_DASK),
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                memory_limit=None,
                env={"POLARS_MAX_THREADS": "1"},  # other cores are other workers'
            ) as cluster,
            closing(Client(cluster, direct_to_workers=True)) as client,
        ):
            yield client.get_executor(pure=False)
        return
    try:
        client = Client(address, timeout=10)
    except OSError:
        message, allowed = "no Dask scheduler answers there", "dask://host:port of one that runs"
        raise bad_input("executor", address, message, allowed) from None
    with closing(client):
        yield client.get_executor(pure=False)


def _not_installed(package: str) -> BadInput:
    message = f"needs {package}, which is not installed"
    return bad_input("sweep", None, message, 'pip install "foretell[sweep]"')
