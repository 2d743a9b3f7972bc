"""One reader under many mutated inputs: an answer or a clear error, within a second and bounded memory."""

import gc
import resource
import signal
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from foretell.errors import BadInput, Infeasible
from tests.fuzz.mutate import mutated
from tests.fuzz.typed import typed

LONGEST_S, KILLED_S = 1.0, 10.0
"""CPU seconds that one input may take, and after which it is given up."""
MORE_BYTES = 2 << 30
"""Address space that one reader may take beyond what the process has."""


class Hang(BaseException):
    """An input that takes too long."""


@contextmanager
def limited() -> Iterator[None]:
    """Within bounds of memory and of CPU time for each input."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES, before[1]))
    old = signal.signal(signal.SIGVTALRM, _too_long)
    gc.collect()
    gc.freeze()  # an input pays for what it makes, not for looking through all that other tests left
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise Hang


def fuzz(
    name: str, read: Callable[[bytes], object], seeds: Sequence[bytes], many: int, seed: int = 0
) -> dict[str, int]:
    """Run the reader on so many inputs; AssertionError names every fault with the seed that gives it."""
    told = {"answers": 0, "refused": 0}
    faults: list[str] = []
    base = zlib.crc32(name.encode()) + (seed << 32)
    with limited():
        for content in seeds:
            read(content)  # what is not mutated is read
        for case in range(many):
            content = changed(base + case, seeds[(case // 2) % len(seeds)])
            fault = _one(read, content, told)
            if fault:
                faults.append(f"{name} case {case}: {fault}; input {content[:300]!r}")
            if len(faults) >= 10:
                break
    assert not faults, "\n".join(faults)
    return told


def changed(seed: int, content: bytes) -> bytes:
    """An input made wrong: half of them parse still, with a value of another type or without a part."""
    found = typed(seed, content) if seed % 2 else None
    return mutated(seed, content) if found is None else found


def _one(read: Callable[[bytes], object], content: bytes, told: dict[str, int]) -> str:
    """What is wrong with how one input is taken; empty where nothing is."""
    began = time.thread_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, KILLED_S)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read(content)
        told["answers"] += 1
    except (BadInput, Infeasible) as error:
        if not error.problems or not str(error).strip():
            return "an error that says nothing"
        told["refused"] += 1
    except Hang:
        return f"no answer after {KILLED_S} s"
    except MemoryError:
        return "memory without bound"
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    took = time.thread_time() - began
    return f"{took:.1f} s" if took > LONGEST_S else ""
