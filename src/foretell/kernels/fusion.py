"""Passes over memory as frameworks make them: how many times the least traffic, and how many kernels.

An operation's least traffic reads its inputs and writes its outputs once. Compiled kernels come near to that
forward; backward they read more (reductions for the weights' gradients, uneven strides). Plain kernels, one
after the other, write every step out. The numbers and their sources are in catalog/kernels/passes.toml.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.software import Host
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
    compiles: bool = False
    """Whether a compiler makes one kernel of it."""
    counted: Sequence[float] = ()
    """Traffic over the least as its bytes are counted, forward and backward, where what is above it is the
    cores' rate and not the memory's; empty: all of it is bytes."""


def traffic(made: Passes, per_core: Num, *, backward: bool) -> Num:
    """Traffic over the least of a kind of pass, on a chip whose memory has `per_core` bytes for a core in a
    clock: kernels that cores bound beside a fast memory wait for their bytes alone beside a slow one."""
    measured = made.backward if backward else made.forward
    if not made.counted:
        return measured
    share = np.minimum(np.asarray(per_core) / CORE_BYTES, 1.0)
    return np.maximum(made.counted[backward], measured * share)


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
APART: Mapping[str, Passes] = TABLES["apart"]
"""Passes that one framework or one way of dispatch has, by the names that `Software.passes` uses."""
JOINED = APART["joined"]
"""Sums of the gradients of one input, where its maps are products of their own; elsewhere there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """What the host spends to start an operation's kernels, forward."""

    operation_s: float
    """On each operation: modules, dispatch, the graph of gradients."""
    kernel_s: float
    """On each launch."""
    backward: float
    """Backward over forward, for as many kernels."""


GUARDS = 0.6
"""Code that a compiler made takes this of a launch on each operation besides: 5 us beside 8.5 on one H200."""


def launch_cost(host: Host, launch: str, *, fused: bool = True) -> LaunchCost:
    """How a host starts kernels (`Software.launch`); what is not fused is launched one by one."""
    if launch == "program":
        return LaunchCost(operation_s=0.0, kernel_s=0.0, backward=1.0)
    if launch == "eager" or not fused:
        return LaunchCost(
            operation_s=host.operation_s, kernel_s=host.kernel_s, backward=host.backward
        )
    return LaunchCost(operation_s=GUARDS * host.kernel_s, kernel_s=host.kernel_s, backward=1.0)


COMPOSED = (0.92, 0.7)
"""Of an operation and its launch, what kernels of transformers' modules take the host: forward, backward.

Composed norms and rotary positions are operations without modules around them, and the graph of gradients is
walked without Python. One H200, passes of 64 tokens: 38 us for each of a Llama layer's 37 kernels, 29 for
each of 80 backward.
"""
SIDE_BY_SIDE = 6.0
"""Power of the norm that joins the host's time and the chip's: the longer one shows, nearly alone."""
CORE_BYTES = 13.4
"""Bytes that the memory has for a core in a clock from which on factors of passes that cores bound hold: an
A100's, whose steps they fit as well as those of the H200 that they were measured on."""
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
