"""What a sized service is asked for and made of: targets, instances, options."""

from typing import Any, Literal

from foretell.records import JsonRecord, dataclass
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import deployment_text
from foretell.specs.engine import EngineProfile
from foretell.specs.service import LengthForm
from foretell.specs.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTargets:
    """What a service must do."""

    rate: float
    """Requests a second."""
    isl: float
    """Prompt tokens."""
    osl: float
    """Answer tokens."""
    ttft_ms: float
    """Longest time to the first token."""
    tpot_ms: float
    """Longest time per output token, the first excluded."""
    headroom: float = 0.2
    """Share of the rate that must be there besides."""
    most_gpus: int = 64
    """Chips of one instance at most."""
    cached: float = 0.0
    """Share of a prompt's tokens that a prefix cache has already."""
    lengths: LengthForm | None = None
    """How lengths spread; None: all alike."""
    degrees: tuple[tuple[str, int], ...] = ()
    """Degrees of an instance that are given, such as ("tp", 2); the others are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPlace:
    """Where prefill instances must be, of a service that has them apart."""

    system: System
    """Their chips and network."""
    profile: EngineProfile
    """By which engine."""
    most_gpus: int
    """Chips of one instance at most."""
    degrees: tuple[tuple[str, int], ...] = ()
    """Degrees of an instance that are given; the others are searched."""
    usd_per_chip_hour: float = 0.0
    """Rent of one of their chips; 0 where none is known."""
    worth: float = 1.0
    """The same over the rent of a chip that decodes."""
    chip: str = ""
    """Their chip, where it is another one than that of decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One layout at one batch limit."""

    deployment: Deployment
    """The layout."""
    batch: int
    """Sequences at once at most, or prompts of a step where it does prefill alone."""
    ttft_ms: float
    """Mean time to the first token at its load; 0 where it decodes alone."""
    tpot_ms: float
    """Mean time per output token at its load; 0 where it does prefill alone."""
    requests_per_s: float
    """The most that one instance can answer."""
    prompt_s: float = 0.0
    """What a prompt takes beyond the decoding beside it; 0 where prompts have other instances."""
    sure: float = 1.0
    """Share of it that layouts like it reach nearly always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to serve it."""

    kind: Literal["aggregated", "disaggregated"]
    """Prompts and answers together, or apart."""
    instance: Instance
    """What answers; where apart, what decodes."""
    replicas: int
    """How many of it."""
    prefill: Instance | None = None
    """What does prompts, where apart."""
    prefill_replicas: int = 0
    """How many of it."""
    transfer_ms: float = 0.0
    """What a cache takes from one to the other."""
    prefill_placed: bool = False
    """Whether prefill is where it must be; else on chips of the same system, as large as is cheapest."""
    prefill_chip: str = ""
    """Chip of the prefill instances, where it is another one than that of decode."""
    prefill_worth: float = 1.0
    """Rent of a prefill chip over that of a chip that decodes."""
    refusal: str = ""
    """Why the engine does not launch it; empty: it does."""

    @property
    def prefill_gpus(self) -> int:
        """Chips of the prefill instances."""
        return self.prefill.deployment.gpus * self.prefill_replicas if self.prefill else 0

    @property
    def gpus(self) -> int:
        """Chips of all."""
        return self.instance.deployment.gpus * self.replicas + self.prefill_gpus

    @property
    def worth(self) -> float:
        """Rent of all chips, in chips that decode."""
        back = self.instance.deployment.gpus * self.replicas
        return back + self.prefill_worth * self.prefill_gpus

    @property
    def requests_per_s(self) -> float:
        """What all of it answers."""
        back = self.replicas * self.instance.requests_per_s
        if self.prefill is None:
            return back
        return min(back, self.prefill_replicas * self.prefill.requests_per_s)

    @property
    def sure_per_s(self) -> float:
        """What all of it answers nearly always: what options of one rent are ordered by."""
        front = 1.0 if self.prefill is None else self.prefill.sure
        return self.requests_per_s * min(self.instance.sure, front)

    def prompt_share(self, rate: float) -> float:
        """Share of the chips' time that is for prompts at a rate of requests; where they have chips of their
        own, the share of these."""
        if self.prefill is None:
            return min(rate / self.replicas * self.instance.prompt_s, 1.0)
        return 1.0 - self.instance.deployment.gpus * self.replicas / self.worth

    @property
    def ttft_ms(self) -> float:
        """Mean time to the first token at the full rate."""
        return (self.prefill or self.instance).ttft_ms

    @property
    def tpot_ms(self) -> float:
        """Mean time per output token at the full rate."""
        return self.instance.tpot_ms

    def e2e_ms(self, osl: float) -> float:
        """Mean time of a whole request at the full rate."""
        return self.ttft_ms + self.tpot_ms * max(osl - 1.0, 0.0)

    def tokens_per_s_per_gpu(self, osl: float) -> float:
        """Tokens of answers a second and chip at the full rate."""
        return self.requests_per_s * osl / self.gpus

    def name(self) -> str:
        """A short name: 2 x tp8, or 2 x tp8 prefill + 3 x tp4 decode."""
        text = f"{self.replicas} x {layout_words(self.instance.deployment)}"
        if self.prefill is None:
            return text
        front = f"{self.prefill_replicas} x {layout_words(self.prefill.deployment)}"
        where = f" on {self.prefill_chip}" if self.prefill_chip else ""
        return f"{front} prefill{where} + {text} decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingPoint(JsonRecord):
    """One instance on the front of tokens/s of a user and of a chip."""

    option: Option
    """The instance, once."""
    osl: float
    """Answer tokens of a request."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        one = self.option.instance
        return {
            "plan": deployment_text(one.deployment),
            "gpus": one.deployment.gpus,
            "batch": one.batch,
            "ttft_ms": one.ttft_ms,
            "tpot_ms": one.tpot_ms,
            "output_tokens_per_s_per_user": 1e3 / one.tpot_ms,
            "output_tokens_per_s_per_gpu": self.option.tokens_per_s_per_gpu(self.osl),
        }


def layout_words(d: Deployment) -> str:
    """Degrees of a layout as plan words."""
    words = [
        f"{key}{value}"
        for key, value in zip(("tp", "pp", "dp", "ep"), (d.tp, d.pp, d.dp, d.ep), strict=True)
    ]
    return " ".join(word for word in words if not word.endswith("p1")) or "tp1"
