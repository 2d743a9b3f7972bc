"""Experts spread over ranks with tokens of their own: which kernels bring tokens there, and how even it is.

Inside a node engines gather the tokens of all ranks and scatter the sums (`gather`), unless asked otherwise.
Beyond a node, and in racks that are one domain of fast links, they dispatch each token to the ranks of its
experts (network/dispatch.py): low-latency kernels in decode steps, which graphs hold, and kernels made for
throughput in steps with prompts.

Without care the busiest rank gets as many times the even share as the likings of the router tell
(kernels/families/experts_loads.py). With EPLB experts are placed and copied by measured loads, and what is
left is how far the traffic of now is from that of the measurement.
"""

from dataclasses import replace

import numpy as np

from foretell.network.dispatch import (
    ROW_BYTES,
    DispatchKernels,
    DispatchLoad,
    dispatch_kernels,
    exchange_seconds,
)
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import WIDE, Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.specs.system import System

BALANCE = 0.75
"""Mean over largest load of a rank with EPLB: above 0.7 online (Ant on H20, lmsys.org/blog/2025-09-26); 0.75
is what 50,302 tokens/s a node at the usual distribution against 59,337 at a perfect one tell
(lmsys.org/blog/2025-05-05, DeepSeek-V3 at EP32, where experts and dispatch are about half of a step)."""
REDUNDANT = 32
"""Copies of experts that deployments of DeepSeek-V3 add (DeepSeek, open-infra-index;
lmsys.org/blog/2025-05-05)."""
LARGE_DOMAIN = 16.0
"""Ranks of a domain of fast links from which engines dispatch inside it too (racks of 72)."""
GROUP_LIMIT = 4.0
"""Nodes that a token of a model with many experts goes to at most: DeepSeek's routing is limited to 4 groups
of experts (arXiv 2412.19437, section 2.1.2). Others hit no more where experts are drawn from many."""
LIMITED = ("deepseek", "kimi")
"""Families, by how their names begin, whose routing is limited to groups."""
OVERLAP = 0.6
"""Of the shorter of computing and communication what two halves by turns hide. With it two-batch overlap is
worth -19, -3, +13 and +26 % at 32, 64, 128 and 256 sequences of a GPU (DeepSeek-V3 decode, EP72 on H100; in
print -27, break-even between 64 and 128, +25.5 at 256), and +33 % in prefill (in print +27 to 35;
lmsys.org/blog/2025-05-05)."""
LOW_LATENCY_TOKENS = 1024.0
"""Most tokens of a rank for which low-latency kernels have room (DeepEP's buffers of one expert's rows)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WideExperts:
    """How one stage's experts get their tokens."""

    decode: DispatchKernels
    """Kernels of decode steps."""
    prefill: DispatchKernels
    """Kernels of steps with prompts."""
    domain: float
    """Ranks of a domain of fast links."""
    near_bytes_per_s: Num
    """One rank's rate into it; of several networks a column."""
    far_bytes_per_s: Num
    """One rank's rate between domains; of several networks a column."""
    row_bytes: float
    """Bytes of an element on its way to the experts."""

    def leaves(self, d: Deployment) -> bool:
        """Whether the stage is larger than one domain."""
        return d.stage > self.domain

    def exchange_s(
        self, ffn: Experts, hidden: float, tokens: Array, d: Deployment, over: Array, limit: float
    ) -> tuple[Array, Array]:
        """Seconds of a dispatch and its combine in a decode step, and in one with prompts.

        `tokens` are those of one rank; the busiest rank gets and gives back `over` times the even share.
        """
        load = DispatchLoad(
            tokens=tokens * over,
            hidden=hidden,
            row_bytes=self.row_bytes,
            top_k=float(ffn.top_k),
            experts=float(slots_of(ffn, d)),
            ranks=float(d.ep),
            domain=self.domain,
            near_bytes_per_s=self.near_bytes_per_s,
            far_bytes_per_s=self.far_bytes_per_s,
            limit=limit,
        )
        # Rows that cross by node go to the rank of the same place there: a node's ranks even out.
        evener = 1.0 + (over - 1.0) / np.sqrt(self.domain)
        by_node = self.prefill.unit == "node" and self.leaves(d)
        prompts = exchange_seconds(
            self.prefill, replace(load, tokens=tokens * (evener if by_node else over))
        )
        steps = exchange_seconds(self.decode, load)
        return np.where(tokens > LOW_LATENCY_TOKENS, prompts, steps), prompts


def wide_experts(system: System, d: Deployment, profile: EngineProfile) -> WideExperts | None:
    """The kernels of a deployment; None where no tokens are dispatched."""
    if d.stage <= d.tp or d.ep == 1:
        return None
    tiers = system.network.tiers
    domain = float(tiers[0].size)
    names = families(system, d, profile, domain)
    if names is None:
        return None
    known = dispatch_kernels()
    narrow = d.experts in ("nvfp4", "mxfp4") and names[0].startswith("nvlink")
    form = "nvfp4" if narrow else "fp8" if d.experts in ("fp8", "fp8-block") else "bf16"
    # DeepEP casts rows to 8 bits for experts in 4 bits too.
    form = "fp8" if d.experts in ("nvfp4", "mxfp4") and not narrow else form
    near, far = np.broadcast_arrays(
        tiers[0].bandwidth_bytes_per_s, tiers[min(1, len(tiers) - 1)].bandwidth_bytes_per_s
    )
    return WideExperts(
        decode=known[names[0]],
        prefill=known[names[1]],
        domain=domain,
        near_bytes_per_s=_column(near),
        far_bytes_per_s=_column(far),
        row_bytes=ROW_BYTES[form],
    )


def _column(rate: Array) -> Num:
    """A rate of one network as a number, of several as a column."""
    return rate[:, None] if rate.ndim else float(rate)


def families(
    system: System, d: Deployment, profile: EngineProfile, domain: float
) -> tuple[str, str] | None:
    """Families of decode steps and of steps with prompts; None: gathered."""
    if d.dispatch == "gather":
        return None
    if d.dispatch != "auto":
        pair = {"deepep": "deepep-low-latency", "mori": "mori-low-latency"}
        return pair.get(d.dispatch, d.dispatch), d.dispatch.removesuffix("-low-latency")
    if d.stage <= domain < LARGE_DOMAIN:
        return None
    if system.chip.architecture.startswith("cdna"):
        return "mori-low-latency", "mori"
    if profile.engine == "trtllm" and d.stage <= domain:
        return "nvlink-one-sided", "nvlink-one-sided"
    return "deepep-low-latency", "deepep"


def is_balanced(d: Deployment) -> bool:
    """Whether experts are placed by their loads: where a deployment is wide, unless it is stated
    otherwise."""
    return d.ep >= WIDE if d.eplb is None else d.eplb


def slots_of(ffn: Experts, d: Deployment) -> int:
    """Experts of all ranks with their copies; as many on every rank."""
    if d.redundant_experts is not None:
        more = d.redundant_experts
    else:
        more = REDUNDANT if is_balanced(d) and (ffn.experts + REDUNDANT) % d.ep == 0 else 0
    slots = ffn.experts + more
    return slots + -slots % d.ep


def most_of(d: Deployment) -> float:
    """Largest load of a rank over the mean that balancing leaves; 0: as the router's likings have it."""
    if d.balance is not None:
        return 1.0 / d.balance
    return 1.0 / BALANCE if is_balanced(d) else 0.0


def group_limit(family: str) -> float:
    """Domains that a token goes to at most."""
    return GROUP_LIMIT if family.startswith(LIMITED) else float("inf")


def halved(d: Deployment, wide: WideExperts | None) -> bool:
    """Whether a step may run as two halves that compute and communicate by turns."""
    if wide is None or d.tbo is False:
        return False
    return bool(d.tbo) or wide.leaves(d)


def first_experts(model: Model) -> Experts | None:
    """The first mixture of a model; None where it has none."""
    found = (layer.ffn for layer in model.stack.layers if isinstance(layer.ffn, Experts))
    return next(found, None)


def wide_notes(d: Deployment, wide: WideExperts | None, experts: Experts | None) -> list[str]:
    """What a deployment assumes of its experts, in words."""
    if wide is None or experts is None:
        return []
    pair = dict.fromkeys((wide.decode.id, wide.prefill.id))
    names = " (decode) and ".join(pair) + (" (prefill)" if len(pair) > 1 else "")
    said = [f"tokens are dispatched to experts by {names}"]
    if is_balanced(d):
        more = slots_of(experts, d) - experts.experts
        how = "" if d.eplb else " (assumed from ep16 on; no-eplb turns it off)"
        said.append(f"experts are balanced by load (EPLB), {more} redundant{how}")
    if halved(d, wide) and d.tbo is None:
        said.append("two-batch overlap is used where it is faster (no-tbo turns it off)")
    return said
