"""Passes over memory as frameworks make them: how many times the least traffic, and how many kernels.

An operation's least traffic reads its inputs and writes its outputs once. Compiled kernels come near to that
forward; backward they read more (reductions for the weights' gradients, uneven strides). Plain kernels, one
after the other, write every step out. The numbers and their sources are in catalog/kernels/passes.toml.
"""

from collections.abc import Mapping

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass
from foretell.workload.ops import Op
from foretell.workload.roles import OpRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """One kind of operation, forward and backward."""

    forward: float
    """Traffic over the least, forward."""
    backward: float
    """The same, backward."""
    kernels: float = 1.0
    """Kernels launched, forward."""
    back: float = 2.0
    """Kernels launched backward, over those forward."""


def _passes_tables() -> dict[str, dict[str, Passes]]:
    """Every table of catalog/kernels/passes.toml; one that is like another has its other kinds too."""
    found: dict[str, dict[str, Passes]] = {}
    for name, table in FILE.items():
        if "kinds" in table:
            own = {kind: Passes(**numbers) for kind, numbers in table["kinds"].items()}
            found[name] = {**found.get(table.get("like", ""), {}), **own}
    return found


FILE = read_table(ROOT / "kernels" / "passes.toml")
"""Passes and host times, with their sources."""
TABLES = _passes_tables()
FUSED: Mapping[str, Passes] = TABLES["fused"]
"""By a compiler or by hand."""
PLAIN: Mapping[str, Passes] = TABLES["plain"]
"""One plain kernel after the other."""
MODULES: Mapping[str, Passes] = TABLES["modules"]
"""Modules of transformers in 16 bits (kernels/modules.py)."""
WIDE_MODULES: Mapping[str, Passes] = TABLES["wide-modules"]
"""The same under autocast, with weights and the residual stream in 32 bits."""
COMPLEX_ROTARY = TABLES["apart"]["complex-rotary"]
"""Rotary positions in complex numbers."""
COMPOSED_NORM = TABLES["apart"]["composed-norm"]
"""RMS norms operation by operation in 32 bits."""
REPEATED = TABLES["apart"]["repeated"]
"""Shared keys and values written out for every head, where a framework does so."""
PLAIN_LATENT = TABLES["apart"]["latent-rotated"]
"""Keys and values of latent attention joined by plain kernels, the rotation of its queries included."""
JOINED = TABLES["apart"]["joined"]
"""Sums of the gradients of one input, where its maps are products of their own; elsewhere there is one."""
COMPILED_SORTS = TABLES["apart"]["compiled-sorts"]
"""Sorting tokens by expert and adding their rows up again under a compiler, which calls the library."""
SPREAD_SORTS = TABLES["apart"]["spread-sorts"]
"""Sorting tokens by plain kernels for a plain all-to-all: once by PLAIN's, and once more a copy by rank."""
SPREAD_FUSED = TABLES["apart"]["spread-fused"]
"""The same by fused kernels: sorted once by FUSED's, and once more a copy by rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """What the host spends to start an operation's kernels, forward."""

    operation_s: float
    """On each operation: modules, dispatch, the graph of gradients."""
    kernel_s: float
    """On each launch."""
    backward: float
    """Backward over forward, for as many kernels."""


def _launch_cost(name: str) -> LaunchCost:
    table = FILE["host"][name]
    return LaunchCost(**{key: table[key] for key in ("operation_s", "kernel_s", "backward")})


HOSTS: Mapping[bool, LaunchCost] = {True: _launch_cost("compiled"), False: _launch_cost("plain")}
"""Compiled, and plain."""
COLLECTIVE_HOST_S: float = FILE["host"]["collective_s"]
"""What the host takes to start one collective through torch.distributed."""
SIDE_BY_SIDE = 6.0
"""Power of the norm that joins the host's time and the chip's: the longer one shows, nearly alone."""
KINDS = ("norm", "loss", "embedding", "routing")
"""Families of operations that are a kind by themselves."""
BY_ROLE = {
    OpRole.RESIDUAL: "residual",
    OpRole.ADAPTER_SUM: "residual",
    OpRole.ACTIVATION: "act",
    OpRole.ROTATION: "rotate",
    OpRole.SCALED_ROTATION: "scaled-rotate",
    OpRole.EXPERT_BIAS: "expert-bias",
    OpRole.CLAMP: "clamp",
    OpRole.LATENT_JOIN: "latent-join",
}
"""Kinds of operations of the other families, by what they do."""


def kind_of(op: Op) -> str:
    """The kind of a pass over memory."""
    if op.family in KINDS:
        return op.family
    return BY_ROLE.get(op.role, "other")


def passes(kind: str, fused: bool) -> Passes:
    """The traffic of a kind under a compiler, or without."""
    table = FUSED if fused else PLAIN
    return table.get(kind, table["other"])
