"""The answer of `foretell fleet`: models, the pools of chips that they are in, and what sharing saves."""

from dataclasses import field
from typing import Any

from foretell.api.sizing_answer import Sizing
from foretell.records import Answer, JsonRecord, as_json, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetModel(JsonRecord):
    """One model of a fleet."""

    name: str
    """What it is called in the fleet."""
    sizing: Sizing = field(repr=False)
    """The model by itself, on chips of its own."""
    ttft_ms: float
    """Time to the first token at the percentile, in its pool."""
    tpot_ms: float
    """Time per output token at it."""
    pool: int = 0
    """Place of its pool."""
    stretch: float = 1.0
    """How many times as long a step takes beside the other models of its pool."""

    @classmethod
    def of(cls, name: str, sizing: Sizing) -> "FleetModel":
        """A model on chips of its own."""
        best = sizing.best
        return cls(name=name, sizing=sizing, ttft_ms=best.ttft_ms, tpot_ms=best.tpot_ms)

    @property
    def gpus(self) -> int:
        """Chips of the model by itself."""
        return self.sizing.best.option.gpus

    @property
    def meets(self) -> bool:
        """Whether both latency targets are met."""
        w = self.sizing.wanted
        return self.ttft_ms <= w.ttft_ms and self.tpot_ms <= w.tpot_ms

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        w = self.sizing.wanted
        return {
            "name": self.name,
            "model": self.sizing.model,
            "system": self.sizing.system,
            "profile": self.sizing.profile,
            "rate": w.rate,
            "isl": w.isl,
            "osl": w.osl,
            "ttft_target_ms": w.ttft_ms,
            "tpot_target_ms": w.tpot_ms,
            "pool": self.pool,
            "ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "meets": self.meets,
            "stretch": self.stretch,
            "alone": self.sizing.best.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPool(JsonRecord):
    """Chips that one model has to itself, or several models share."""

    models: tuple[str, ...]
    """Names of the models on them."""
    shared: bool
    """Whether engines of several models take turns on them."""
    gpus: int
    """Chips of the pool."""
    replicas: int
    """Instances; of a model with prefill apart those that decode."""
    plans: tuple[str, ...]
    """Plan of each engine of an instance; prefill before decode."""
    name: str
    """A short name of the layout."""
    usd_per_hour: float | None
    """Rent of the chips."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAnswer(JsonRecord, Answer):
    """Several models on one fleet."""

    verb = "fleet"

    models: tuple[FleetModel, ...]
    """In the order of the file."""
    pools: tuple[FleetPool, ...]
    """Shared ones first."""
    percentile: str
    """Percentile at which the targets must be met."""
    available: int | None
    """Chips that there are; None: as many as it takes."""
    assumptions: tuple[str, ...]
    """Every default or guess."""

    @property
    def gpus(self) -> int:
        """Chips of all pools."""
        return sum(pool.gpus for pool in self.pools)

    @property
    def gpus_apart(self) -> int:
        """Chips of all models, each on its own."""
        return sum(model.gpus for model in self.models)

    @property
    def usd_per_hour(self) -> float | None:
        """Rent of all pools; None where one is not known."""
        return _sum([pool.usd_per_hour for pool in self.pools])

    @property
    def usd_per_hour_apart(self) -> float | None:
        """Rent of all models, each on its own."""
        return _sum([model.sizing.best.usd_per_hour for model in self.models])

    @property
    def fits(self) -> bool:
        """Whether the chips that there are suffice, and every model meets its targets."""
        enough = self.available is None or self.gpus <= self.available
        return enough and all(model.meets for model in self.models)

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {
            "gpus": self.gpus,
            "usd_per_hour": self.usd_per_hour,
            "gpus_apart": self.gpus_apart,
            "usd_per_hour_apart": self.usd_per_hour_apart,
            "gpus_saved": self.gpus_apart - self.gpus,
            "percentile": self.percentile,
            "available": self.available,
            "fits": "yes" if self.fits else "no",
            "models": [model.to_dict() for model in self.models],
            "pools": [pool.to_dict() for pool in self.pools],
            "assumptions": list(self.assumptions),
        }


def _sum(rents: list[float | None]) -> float | None:
    """All rents together; None where one is not known."""
    known = [rent for rent in rents if rent is not None]
    return sum(known) if len(known) == len(rents) else None
