"""One thing to measure, and the machine as a list of points sees it."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from foretell.records import dataclass

Pass = Literal["forward", "dgrad", "wgrad", "backward"]
"""Which part of training or serving: dgrad and wgrad are the two products of a linear map's backward."""
Mode = Literal["burst", "sustained"]
"""burst: short, with pauses, on a card that stays cool; sustained: without pause until power settles."""
Launch = Literal["eager", "graph"]
"""How kernels reach the device: one by one, or as a replayed graph."""
IDENTITY = ("family", "variant", "dims", "dtype", "pass", "mode", "launch")
"""Keys of a line that tell points apart."""
HALF, FULL = 2.0, 4.0
"""Bytes of a number in 16 and in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMachine:
    """What the plan must know of the machine."""

    device: Literal["cuda", "cpu"]
    """Where kernels run; ROCm is cuda too."""
    chip: str
    """The device's name as its driver tells it."""
    software: str
    """torch and its version."""
    memory_bytes: float
    """Memory of the device."""
    l2_bytes: float
    """Last-level cache that buffers rotate out of."""
    half: str
    """The 16-bit format to measure in; empty where only 32 bits are quick."""
    fp8: bool
    """Whether the chip multiplies in fp8."""
    world: int = 1
    """Processes started together by torchrun."""
    short: bool = False
    """A handful of small points of each group, to see that it runs."""

    @property
    def main(self) -> str:
        """The format most points are in."""
        return self.half or "fp32"

    @property
    def bare(self) -> Launch:
        """How kernels are launched where the host's part is not to show."""
        return "graph" if self.device == "cuda" else "eager"

    @property
    def item_bytes(self) -> float:
        """Bytes of a number in that format."""
        return HALF if self.half else FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePoint:
    """One thing to measure."""

    group: str
    """Points of one group share an amount of time: gemm, attention, pointwise, ..."""
    family: str
    """What is measured: gemm, batched_gemm, prefill, decode, rms_norm, ..."""
    dims: Mapping[str, int]
    """Sizes by name."""
    dtype: str
    """Number format."""
    passed: Pass = "forward"
    """Which pass."""
    mode: Mode = "burst"
    """Short or until power settles."""
    launch: Launch = "eager"
    """How kernels are launched."""
    variant: str = ""
    """Library, backend or form, where there are several."""
    level: int = 0
    """Coarse points come first: 0, then 1, 2, ..."""
    memory_bytes: float = 0.0
    """Memory it needs, roughly and rather too much."""
    cost_s: float = 0.3
    """Seconds it is likely to take, building and warming up included."""

    def identity(self) -> dict[str, Any]:
        """What tells it apart, by the keys of its line."""
        return {
            "family": self.family,
            "variant": self.variant,
            "dims": dict(self.dims),
            "dtype": self.dtype,
            "pass": self.passed,
            "mode": self.mode,
            "launch": self.launch,
        }

    @property
    def key(self) -> str:
        """The identity as text."""
        return key_of(self.identity())

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.dims.items())
        words = (self.family, self.variant, self.dtype, self.passed, self.mode, self.launch, sizes)
        return " ".join(word for word in words if word)


def key_of(line: Mapping[str, Any]) -> str:
    """The identity of a point, from the point or from its line in a file."""
    return json.dumps({name: line[name] for name in IDENTITY}, sort_keys=True)
