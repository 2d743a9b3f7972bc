"""Seconds of a call: by a device's events, by the host's clock on a CPU; in bursts or for seconds."""

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np

from foretell.lab.calibrate.measure.file import Launch, Mode
from foretell.lab.calibrate.measure.power import Meter
from foretell.records import dataclass

DEPTH = 3
"""Stretches in flight when running without pause: the device never waits, the host never runs away."""
MOST_CALLS = 256
"""Calls in one stretch."""
SHORT_STRETCH_S = 5e-3
"""A stretch this short is run once untimed before each timing, so that clocks are up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long to measure."""

    stretch_s: float
    """Calls are put together to stretches of about this long in bursts."""
    long_stretch_s: float
    """The same when running without pause."""
    repeats: int
    """Stretches timed in a burst."""
    patience_s: float
    """A burst ends after this long, with the stretches it then has."""
    sustained_s: float
    """How long to run without pause; the second half counts."""
    rest: float
    """Pause between stretches of a burst, in lengths of a stretch."""


GPU_PACE = Pace(
    stretch_s=3e-3, long_stretch_s=2e-2, repeats=7, patience_s=1.0, sustained_s=2.0, rest=2.0
)
CPU_PACE = Pace(
    stretch_s=2e-2, long_stretch_s=5e-2, repeats=7, patience_s=1.5, sustained_s=1.0, rest=0.0
)
SHORT_PACE = Pace(
    stretch_s=1e-3, long_stretch_s=2e-3, repeats=3, patience_s=0.05, sustained_s=0.02, rest=0.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWork:
    """What is timed: calls that do the same on different buffers, taken in turn."""

    calls: Sequence[Callable[[], object]]
    """Each does the work once."""
    flop: float = 0.0
    """Operations of one call."""
    bytes_moved: float = 0.0
    """The fewest bytes one call moves: inputs read once, outputs written once."""
    rotated_bytes: float = 0.0
    """Bytes that all the calls' buffers take: several times the cache, so that it does not serve them."""
    timed_by: Literal["device", "host", "host-end"] = "device"
    """device: the device's events; host: how long the host is busy; host-end: until the device is done."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """More for the line: tokens, parameters, ..."""


class DeviceTimer:
    """Times stretches of calls on a device."""

    def __init__(self, torch: Any, device: str, pace: Pace, meter: Meter) -> None:
        self._torch, self._cuda, self.pace, self._meter = torch, device == "cuda", pace, meter
        self._spoiled = False

    @property
    def spoiled(self) -> bool:
        """Whether a capture failed, after which the allocator no longer frees what it keeps."""
        return self._spoiled

    def sync(self) -> None:
        """Wait until the device is done."""
        if self._cuda:
            self._torch.cuda.synchronize()

    def _mark(self, by: str) -> Any:
        if self._cuda and by == "device":
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
            return event
        if by == "host-end":
            self.sync()
        return time.perf_counter()

    @staticmethod
    def _between(first: Any, second: Any) -> float:
        if isinstance(first, float):
            return float(second - first)
        return float(first.elapsed_time(second)) * 1e-3

    def measure(self, work: TimedWork, mode: Mode, launch: Launch) -> dict[str, Any]:
        """Seconds of one call with their spread, clocks and watts."""
        for call in work.calls:
            call()
        self.sync()
        guess = self._guess(work)
        long = mode == "sustained"
        target = self.pace.long_stretch_s if long else self.pace.stretch_s
        count = _count(guess, target, len(work.calls))
        graph, why = self._capture(work, count) if launch == "graph" else (None, "")
        stretch = graph.replay if graph is not None else _loop(work, count)
        try:
            if long:
                times, told = self._sustained(stretch)
            else:
                times, told = self._burst(stretch, work, guess * count)
        finally:
            self.sync()
            if graph is not None:
                graph.reset()
        used = "graph" if graph is not None else "eager" if launch == "graph" else launch
        fallback = {"capture_failed": why} if why else {}
        return {**_spread(times / count), "calls": count, "launch_used": used, **fallback, **told}

    def _guess(self, work: TimedWork) -> float:
        """Seconds of a call after warming up, the host's time included."""
        self.sync()
        begin = time.perf_counter()
        for call in work.calls:
            call()
        self.sync()
        return max((time.perf_counter() - begin) / len(work.calls), 1e-7)

    def _capture(self, work: TimedWork, count: int) -> tuple[Any, str]:
        """A graph of `count` calls, or why there is none."""
        if not self._cuda:
            return None, "no graphs on a CPU"
        graph = self._torch.cuda.CUDAGraph()
        self.sync()
        # The bare calls rather than torch.cuda.graph, which collects garbage and empties the cache first.
        graph.capture_begin()
        try:
            _loop(work, count)()
        except RuntimeError as error:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            self._spoiled = True
            if isinstance(error, self._torch.OutOfMemoryError):
                raise
            return None, " ".join(str(error).split())[:160]
        graph.capture_end()
        graph.replay()
        self.sync()
        return graph, ""

    def _burst(
        self, stretch: Callable[[], object], work: TimedWork, guess_s: float
    ) -> tuple[Any, dict[str, Any]]:
        times: list[float] = []
        told: dict[str, Any] = {}
        begin = time.perf_counter()
        rest = min(self.pace.rest * guess_s, 0.1)
        while len(times) < self.pace.repeats:
            if times and time.perf_counter() - begin > self.pace.patience_s:
                break
            if self.pace.rest:
                time.sleep(max(rest, 2e-3))
            if guess_s < SHORT_STRETCH_S or not times:
                stretch()
            if work.timed_by != "device":
                self.sync()
            first = self._mark(work.timed_by)
            stretch()
            last = self._mark(work.timed_by)
            told = self._meter.now()
            self.sync()
            times.append(self._between(first, last))
        told.pop("watts", None)  # averaged over a second by the driver: says nothing of a burst
        return np.asarray(times), told

    def _sustained(self, stretch: Callable[[], object]) -> tuple[Any, dict[str, Any]]:
        limit_s = self.pace.sustained_s
        self._meter.start()
        marks, ends = [self._mark("device")], [time.perf_counter()]
        while ends[-1] - ends[0] < limit_s or len(marks) < 4:
            stretch()
            marks.append(self._mark("device"))
            if self._cuda and len(marks) > DEPTH:
                marks[-DEPTH].synchronize()
            ends.append(time.perf_counter())
        self.sync()
        told = self._meter.stop(since_s=(ends[0] + ends[-1]) / 2)
        times = np.asarray([self._between(a, b) for a, b in itertools.pairwise(marks)])
        late = np.cumsum(times) > times.sum() / 2
        return times[late], told


def _loop(work: TimedWork, count: int) -> Callable[[], None]:
    """A stretch of calls, launched one by one."""
    calls = [work.calls[i % len(work.calls)] for i in range(count)]

    def stretch() -> None:
        for call in calls:
            call()

    return stretch


def _count(guess_s: float, target_s: float, sets: int) -> int:
    """Calls of a stretch: about the target's length, all buffers in turn, and not too many."""
    wanted = int(min(max(target_s / guess_s, 1.0), MOST_CALLS))
    return wanted if wanted < sets else wanted // sets * sets


def _spread(times: Any) -> dict[str, Any]:
    """Median, the middle half's width over the median, and the least, for a machine with other users."""
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
    spread = float((high - low) / middle) if middle > 0 else 0.0
    least = float(np.min(times))
    return {
        "seconds": float(middle),
        "least_seconds": least,
        "spread": round(spread, 5),
        "repeats": len(times),
    }
