"""Points, curves and the whole of a scaling study, as records."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from foretell.records import Answer, as_json, dataclass
from foretell.specs.result import Fits

Mode = Literal["weak", "strong"]
"""The batch grows with the chips, or is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """One strategy on one number of chips; what a plan that breaks a rule has not is None."""

    strategy: str
    """Words of the strategy, as asked."""
    gpus: int
    """Chips."""
    global_batch: int
    """Sequences of a step."""
    plan: str
    """The whole plan."""
    fits: Fits
    """Whether it fits the memory; no where a rule forbids it too."""
    reason: str | None = None
    """Why it cannot be, where it cannot."""
    step_s: float | None = None
    """Time of a step."""
    interval: Mapping[str, tuple[float, float]] | None = None
    """Of the step: p50 and p90."""
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    """p50 and p90 of every predicted number, by its name; a ratio of two predictions has none."""
    tokens_per_s: float | None = None
    """Throughput."""
    tokens_per_s_per_gpu: float | None = None
    """The same for each chip."""
    tflops_per_gpu: float | None = None
    """Model FLOP/s of a chip, by the usual convention."""
    mfu: float | None = None
    """The same over the chip's peak."""
    compute_s: float | None = None
    """Of the step: kernels of the passes, sums of gradients, the update."""
    exposed_communication_s: float | None = None
    """Of the step: waiting for collectives and sends."""
    hidden_communication_s: float | None = None
    """Beside the step: data-parallel messages that run behind the passes."""
    bubble_s: float | None = None
    """Of the step: waiting for other pipeline stages."""
    other_s: float | None = None
    """Of the step: the host, copies to it, and what a framework takes beside the work."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the step: every branch of the estimate's tree, in seconds."""
    efficiency: float | None = None
    """Throughput of a chip over that on the fewest chips that fit, were nothing waited for there; None where
    it does not fit."""
    scaling_efficiency: float | None = None
    """The same over that on the fewest chips as it is, which may wait for its links already."""
    peak_memory_bytes: float | None = None
    """What the fullest chip holds."""
    limited_by: str | None = None
    """The largest share of the step."""
    follows: str | None = None
    """The link or latency that shortens the step most, twice as good; None where none does."""
    elasticities: Mapping[str, float] = field(default_factory=dict)
    """d ln(step) / d ln(bandwidth or latency of each tier)."""
    twice: Mapping[str, float] = field(default_factory=dict)
    """Step with each of them twice as good, over the step as it is."""
    by_bandwidth: Mapping[str, float] = field(default_factory=dict)
    """Step with all bandwidths beyond the innermost tier times a factor, over the step as it is."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One strategy over all numbers of chips."""

    model: str
    """Model id."""
    system: str
    """System id."""
    strategy: str
    """Words of the strategy, as asked."""
    points: tuple[ScalingPoint, ...]
    """Fewest chips first."""
    fits_from: int | None
    """The fewest chips that it fits on."""
    scales_to: int | None
    """The most chips up to which no point is below the floor of efficiency."""
    stops_at: int | None
    """The first number of chips below that floor; None where there is none."""
    best_gpus: int | None
    """Chips on which the throughput of all of them is highest."""
    lost_to: str | None
    """What grew most, for a token, from the fewest chips to where it stops, or to the most chips."""
    why: str
    """All of this in a sentence."""

    @property
    def largest(self) -> ScalingPoint | None:
        """The point on the most chips that fits."""
        return next((p for p in reversed(self.points) if p.fits != "no"), None)

    to_dict = as_json(without=("points",), more=("points",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling(Answer):
    """Models and strategies on one system."""

    verb = "scaling"

    system: str
    """System id."""
    mode: Mode
    """Whether the batch grows with the chips."""
    seq_len: int
    """Tokens of a sequence."""
    floor: float
    """Efficiency below which a strategy has stopped scaling."""
    curves: tuple[Curve, ...]
    """Models in the order asked, each with its strategies."""
    assumptions: tuple[str, ...]
    """Every default or guess."""

    to_dict = as_json()

    @property
    def models(self) -> tuple[str, ...]:
        """Models in order."""
        return tuple(dict.fromkeys(curve.model for curve in self.curves))

    def of(self, model: str) -> tuple[Curve, ...]:
        """Curves of one model."""
        return tuple(curve for curve in self.curves if curve.model == model)
