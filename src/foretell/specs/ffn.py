"""Feed-forward parts: dense and mixture of experts."""

from foretell.records import dataclass
from foretell.specs.block import MapBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """Up projection, activation, down projection; gated variants have two up projections."""

    width: int
    """Inner width."""
    gated: bool = True
    """Whether a second up projection multiplies the activation (SwiGLU, GEGLU)."""
    activation: str = "silu"
    """The activation's name; it matters only where formulas ask (relu2, gelu, silu)."""
    up_bias: bool = False
    """Bias of the up projection(s)."""
    down_bias: bool = False
    """Bias of the down projection."""
    linear: bool = False
    """Whether it is one hidden x hidden map (NAS-pruned models); width is then unused."""
    factor: MapBlock | None = None
    """What stands for each of its maps where they are factorised (tensor chains)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: router, routed experts, shared experts."""

    experts: int
    """Routed experts."""
    top_k: int
    """Routed experts per token."""
    width: int
    """Inner width of a routed expert."""
    gated: bool = True
    """Whether experts have two up projections."""
    activation: str = "silu"
    """The activation's name."""
    expert_bias: bool = False
    """Biases inside each routed expert (up and down)."""
    clamped: bool = False
    """Whether both factors of a gated activation are clamped first."""
    shared_width: int = 0
    """Inner width of all shared experts together; 0: none."""
    shared_gate: bool = False
    """Whether a gate of the hidden width scales the shared expert."""
    router_bias: bool = False
    """A weight per expert added to the router's scores (balance correction or bias)."""
    has_router: bool = True
    """False where tokens are routed by a table."""
    latent: int | None = None
    """Width into which tokens are projected before the routed experts and from which they return."""
    latent_norm: bool = False
    """Whether a norm of the latent width is applied."""
    extra_parameters: int = 0
    """Weights beside these (scales, hash tables are not weights)."""
