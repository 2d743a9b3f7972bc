"""Watts, clocks and temperature while something runs; read only, nothing of the card is ever changed.

NVML through its C library, which comes with the driver; else what torch.cuda offers (ROCm, or NVML's
Python package); else nothing, as on a CPU.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

SAMPLE_S = 0.02
"""Time between two samples."""
LEAST_ENERGY_S = 0.4
"""Shorter than this, the energy counter's own steps show, and sampled power is taken instead."""
SM_CLOCK, MEMORY_CLOCK = 1, 2
THROTTLES = {
    0x4: "power-cap",
    0x8: "slowdown",
    0x20: "thermal-software",
    0x40: "thermal-hardware",
    0x80: "power-brake",
}
"""Bits of NVML's reasons for a lower clock."""

Reading = Mapping[str, float]
"""Power, clocks and the like at one moment; what is unknown is not there."""


class Nvml:
    """The few calls of NVML that tell about one device."""

    def __init__(self, uuid: str) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        if self._library.nvmlInit_v2() != 0:
            raise OSError("NVML does not start")
        self._device = ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        handle = ctypes.byref(self._device)
        by_name = self._library.nvmlDeviceGetHandleByUUID(name.encode(), handle)
        if by_name != 0 and self._library.nvmlDeviceGetHandleByIndex_v2(0, handle) != 0:
            raise OSError("NVML does not know the device")

    def _number(self, call: str, *arguments: Any, kind: Any = ctypes.c_uint) -> float | None:
        value = kind()
        function = getattr(self._library, call, None)
        if function is None or function(self._device, *arguments, ctypes.byref(value)) != 0:
            return None
        return float(value.value)

    def read(self) -> Reading:
        """What the card tells now."""
        wide = ctypes.c_ulonglong
        told = {
            "watts": (self._number("nvmlDeviceGetPowerUsage"), 1e-3),
            "joules": (self._number("nvmlDeviceGetTotalEnergyConsumption", kind=wide), 1e-3),
            "sm_clock_hz": (self._number("nvmlDeviceGetClockInfo", SM_CLOCK), 1e6),
            "memory_clock_hz": (self._number("nvmlDeviceGetClockInfo", MEMORY_CLOCK), 1e6),
            "temperature_c": (self._number("nvmlDeviceGetTemperature", 0), 1.0),
            "throttle": (
                self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=wide),
                1.0,
            ),
        }
        return {name: value * unit for name, (value, unit) in told.items() if value is not None}

    def facts(self) -> dict[str, Any]:
        """What does not change while we measure: limits, highest clocks, driver."""
        text = ctypes.create_string_buffer(96)
        known = self._library.nvmlSystemGetDriverVersion(text, 96) == 0
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit")
        clocks = {
            "max_sm_clock_hz": self._number("nvmlDeviceGetMaxClockInfo", SM_CLOCK),
            "max_memory_clock_hz": self._number("nvmlDeviceGetMaxClockInfo", MEMORY_CLOCK),
        }
        return {
            "driver": text.value.decode(errors="replace") if known else None,
            "power_limit_watts": None if limit is None else limit * 1e-3,
            **{name: None if value is None else value * 1e6 for name, value in clocks.items()},
        }


class OfTorch:
    """What torch.cuda tells, where NVML's library is not to be had."""

    def __init__(self, torch: Any) -> None:
        self._calls: dict[str, tuple[Callable[[], float], float]] = {
            "watts": (torch.cuda.power_draw, 1e-3),
            "sm_clock_hz": (torch.cuda.clock_rate, 1e6),
            "temperature_c": (torch.cuda.temperature, 1.0),
        }
        if not self.read():
            raise OSError("torch.cuda tells nothing of power")

    def read(self) -> Reading:
        """What the card tells now."""
        told = {}
        for name, (call, unit) in self._calls.items():
            try:
                told[name] = float(call()) * unit
            except Exception:  # noqa: BLE001 - a missing package, an unsupported card: unknown
                continue
        return told

    def facts(self) -> dict[str, Any]:
        """Nothing more is known."""
        return {}


@dataclass(slots=True)
class Meter:
    """Samples taken between `start` and `stop`; several stretches may follow each other."""

    source: Nvml | OfTorch | None
    """What is asked, or None where nothing tells."""
    samples: list[tuple[float, Reading]]
    """When and what, of the present stretch."""
    _thread: threading.Thread | None = None
    _over: threading.Event | None = None

    def start(self) -> None:
        """Begin to sample."""
        self.samples = []
        if self.source is None:
            return
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(self._over,), daemon=True)
        self._thread.start()

    def _watch(self, over: threading.Event) -> None:
        assert self.source is not None
        while not over.is_set():
            self.samples.append((time.perf_counter(), self.source.read()))
            over.wait(SAMPLE_S)

    def stop(self, since_s: float = 0.0) -> dict[str, Any]:
        """Means over the samples after a moment of `time.perf_counter`."""
        if self._thread is None or self._over is None:
            return {}
        self._over.set()
        self._thread.join()
        self._thread = self._over = None
        return means([sample for sample in self.samples if sample[0] >= since_s])

    def now(self) -> dict[str, Any]:
        """One sample, less what needs a stretch of time."""
        return {} if self.source is None else means([(0.0, self.source.read())])


def means(samples: list[tuple[float, Reading]]) -> dict[str, Any]:
    """Mean power from the energy counter where the stretch is long enough, and means of the rest."""
    if not samples:
        return {}
    told: dict[str, Any] = {}
    for name in ("watts", "sm_clock_hz", "memory_clock_hz", "temperature_c"):
        values = [reading[name] for _, reading in samples if name in reading]
        if values:
            told[name] = float(np.mean(values))
    energies = [(when, reading["joules"]) for when, reading in samples if "joules" in reading]
    if energies and energies[-1][0] - energies[0][0] >= LEAST_ENERGY_S:
        (begin, first), (end, last) = energies[0], energies[-1]
        told["watts_sampled"] = told.get("watts")
        told["watts"] = (last - first) / (end - begin)
    bits = [int(reading["throttle"]) for _, reading in samples if "throttle" in reading]
    told["throttle"] = {
        name: round(sum(bool(b & bit) for b in bits) / len(bits), 3)
        for bit, name in THROTTLES.items()
        if any(b & bit for b in bits)
    }
    return told


def meter(torch: Any, device: str) -> Meter:
    """The meter of a device; one that tells nothing on a CPU."""
    if device != "cuda":
        return Meter(source=None, samples=[])
    uuid = str(getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", ""))
    for make in (lambda: Nvml(uuid), lambda: OfTorch(torch)):
        try:
            return Meter(source=make(), samples=[])
        except (OSError, AttributeError):
            continue
    return Meter(source=None, samples=[])
