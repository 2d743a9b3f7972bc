"""What is asked of the price of work: how it is paid for, and the run or the service that it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Number = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """How work is paid for, and where it runs; the same for every kind of work."""

    rent: str = ""
    """on-demand, spot, reserved, own or another term; on demand where a rent is known, else own."""
    region: str = "world"
    """Grid whose carbon counts: a country, or a region of a cloud."""
    price: str | float = ""
    """Rent of a chip for an hour, instead of the catalogue's."""
    prices: str = ""
    """A price list in SkyPilot's form, instead of the catalogue's offers."""
    years: str | float = ""
    """Years that servers are used."""
    utilisation: str | float = ""
    """Share of the hours in which owned or reserved chips work."""
    set: Sequence[str] = ()
    """Fields and figures set by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion(Payment):
    """A training run; fields as of `foretell.estimate`."""

    model: Any
    """Which."""
    system: Any = None
    """Where."""
    gpus: Any = None
    """Chips."""
    global_batch: Any = None
    """Sequences per step."""
    seq_len: Any = None
    """Tokens per sequence."""
    target_len: Any = None
    """Target tokens of an encoder-decoder."""
    plan: Any = None
    """The best where none is given."""
    tokens: Number = None
    """Of the whole run; compute-optimal where none are given."""
    failures_per_gpu_day: Number = None
    """Unplanned stops."""
    restart_s: Number = None
    """From a stop to reading."""
    checkpoint: str | None = None
    """async or sync."""
    checkpoint_interval: Number = None
    """Between two."""
    checkpoint_wait_s: Number = None
    """What all chips wait for each."""
    storage_bandwidth: Number = None
    """Of the storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenQuestion(Payment):
    """A service; fields as of `foretell.serve`."""

    model: Any
    """Which."""
    system: Any = None
    """Where."""
    gpus: Any = None
    """Chips of all instances."""
    isl: Any = 1024
    """Tokens of a prompt."""
    osl: Any = 1024
    """Tokens of an answer."""
    concurrency: Any = None
    """Requests in flight."""
    rate: Any = None
    """Requests per second, in the place of those."""
    plan: Any = None
    """The best layout where none is given."""
    engine: str = "vllm"
    """Engine, or a profile of one."""
    spread: Any = 1.0
    """Lengths are even between this share and the whole."""
