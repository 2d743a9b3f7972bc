"""What is asked of a service."""

import numpy as np

from foretell.records import dataclass
from foretell.serving.disaggregation import PrefillPool
from foretell.specs._base import Num
from foretell.specs.cost import Prices
from foretell.specs.deployment import Batching, Deployment, Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeQuestion:
    """What is asked of one deployment."""

    model: Model
    """What is served."""
    system: System
    """On what."""
    gpus: int
    """Chips of all instances; where prefill is apart, of those that decode."""
    deployment: Deployment
    """How one instance is laid out."""
    profile: EngineProfile
    """By which engine."""
    traffic: Traffic
    """The load of all instances together."""
    rate: float | None
    """Requests a second; None under a fixed concurrency."""
    prices: Prices
    """What is paid."""
    plan_chosen: bool = False
    """Whether the deployment was chosen."""
    assumptions: tuple[str, ...] = ()
    """Defaults and guesses made on the way."""
    overrides: tuple[tuple[str, object], ...] = ()
    """Fields set by hand."""
    warnings: tuple[str, ...] = ()
    """What bears on the answer and is not in it."""
    targets_ms: tuple[float | None, float | None] = (None, None)
    """Time to the first token and time per output token that are good service; None: any."""
    prefill: PrefillPool | None = None
    """Instances that do prefill alone; None: prompts and answers have the same ones."""
    batching: Batching = "continuous"
    """How requests share steps."""
    requests: Num | None = None
    """Requests of a benchmark that begins with all of its concurrency at once; None: ten waves."""
    warmup: int = 0
    """Of these, the first that are not counted."""
    named: str = ""
    """The model's repository as the user named it; empty: by a name of the catalogue, a file or a record."""

    @property
    def all_gpus(self) -> int:
        """Chips of all instances, those of prefill included."""
        return self.gpus + (0 if self.prefill is None else self.prefill.gpus)

    @property
    def usd_per_hour(self) -> float:
        """Rent of all chips; 0 where a rent is not known."""
        own = float(self.prices.usd_per_chip_hour) * self.gpus
        if self.prefill is None:
            return own
        front = self.prefill.usd_per_chip_hour * self.prefill.gpus
        return own + front if own and front else 0.0

    @property
    def replicas(self) -> int:
        """Instances side by side."""
        return self.gpus // self.deployment.gpus

    @property
    def in_use(self) -> Num:
        """Instances that have anything to do: under a fixed concurrency, no more than its requests."""
        if self.rate is not None or self.prefill is not None or self.batching == "offline":
            return float(self.replicas)
        return np.minimum(float(self.replicas), self.traffic.concurrency)
