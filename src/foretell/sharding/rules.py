"""What a plan must satisfy before anything is computed: each rule as a mask over a batch and a sentence.

The same masks prune a search and explain a single plan, so the two can never disagree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet, LatentAttention, Mamba2
from foretell.specs.model import Layer, Model
from foretell.specs.plan import Plan, Plans
from foretell.specs.scenario import Scenario

Mask = NDArray[np.bool_]

ENDS = 2
"""Embedding and head may stand alone on the outer chunks, in the place of layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """Sizes that tensor parallelism must divide."""

    heads: tuple[int, ...]
    """Query (or state, or value) heads of the model's mixers."""
    kv_heads: tuple[int, ...]
    """Key and value heads: divided, or copied when tp is a multiple of them."""
    widths: tuple[int, ...]
    """Inner widths of the feed-forward parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One condition on a plan."""

    name: str
    """Its key in `rejected`."""
    holds: Callable[[Scenario, Cuts, Plans], Mask]
    """Where it is satisfied."""
    says: Callable[[Scenario, Cuts, Plan], str]
    """What failed, and by how much."""


@lru_cache(maxsize=64)
def cuts_of(model: Model) -> Cuts:
    """Collect the sizes from every layer of the model."""
    layers: list[Layer] = [*model.stack.layers]
    layers += model.encoder.layers if model.encoder else ()
    layers += model.prediction.layers if model.prediction else ()
    heads: set[int] = set()
    kv_heads: set[int] = set()
    widths: set[int] = set()
    for layer in set(layers):
        for mixer in layer.mixers:
            match mixer:
                case Attention():
                    heads.add(mixer.heads)
                    kv_heads.add(mixer.kv_heads)
                case LatentAttention() | Mamba2():
                    heads.add(mixer.heads)
                case DeltaNet():
                    heads |= {mixer.key_heads, mixer.value_heads}
        for ffn in (layer.ffn, layer.dense_beside):
            if isinstance(ffn, Dense) and not ffn.linear:
                widths.add(ffn.width)
            if isinstance(ffn, Experts):
                widths |= {ffn.width} | ({ffn.shared_width} if ffn.shared_width else set())
    return Cuts(
        heads=tuple(sorted(heads)), kv_heads=tuple(sorted(kv_heads)), widths=tuple(sorted(widths))
    )


def chips_of(scenario: Scenario) -> float:
    """Chips of the whole system."""
    return float(prod(float(tier.size) for tier in scenario.system.network.tiers))


def layers_of(model: Model) -> int:
    """Layers that are dealt to pipeline stages."""
    return len(model.stack.layers) + (len(model.encoder.layers) if model.encoder else 0)


def _divides(sizes: tuple[int, ...], plans: Plans) -> Mask:
    ok = np.ones(len(plans), dtype=bool)
    for size in sizes:
        ok &= np.mod(size, plans.tp) == 0
    return ok


def _kv_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    ok = np.ones(len(plans), dtype=bool)
    for size in cuts.kv_heads:
        ok &= (np.mod(size, plans.tp) == 0) | (np.mod(plans.tp, size) == 0)
    return ok


def _bad(sizes: tuple[int, ...], tp: int) -> str:
    return ", ".join(f"{s} mod {tp} = {s % tp}" for s in sizes if s % tp)


RULES: tuple[Rule, ...] = (
    Rule(
        name="gpus",
        holds=lambda s, c, p: p.dp * p.tp * p.pp == s.job.gpus,
        says=lambda s, c, p: (
            f"tp x pp x dp = {p.tp} x {p.pp} x {p.dp} = {p.tp * p.pp * p.dp}, "
            f"not the {s.job.gpus} chips asked for"
        ),
    ),
    Rule(
        name="system",
        holds=lambda s, c, p: np.full(len(p), s.job.gpus <= chips_of(s)),
        says=lambda s, c, p: f"{s.job.gpus} chips asked for, {s.system.id} has {chips_of(s):.0f}",
    ),
    Rule(
        name="heads",
        holds=lambda s, c, p: _divides(c.heads, p),
        says=lambda s, c, p: f"tp must divide the heads: {_bad(c.heads, p.tp)}",
    ),
    Rule(
        name="kv_heads",
        holds=_kv_holds,
        says=lambda s, c, p: (
            f"tp {p.tp} neither divides the key-value heads {c.kv_heads} nor is a multiple of them"
        ),
    ),
    Rule(
        name="width",
        holds=lambda s, c, p: _divides(c.widths, p),
        says=lambda s, c, p: f"tp must divide the feed-forward widths: {_bad(c.widths, p.tp)}",
    ),
    Rule(
        name="layers",
        holds=lambda s, c, p: p.pp * p.vpp <= layers_of(s.model) + ENDS,
        says=lambda s, c, p: (
            f"pp x vpp = {p.pp * p.vpp} chunks for {layers_of(s.model)} layers: "
            f"{p.pp * p.vpp - layers_of(s.model) - ENDS} too many, embedding and head counted"
        ),
    ),
    Rule(
        name="batch",
        holds=lambda s, c, p: np.mod(s.job.global_batch, p.dp * p.micro_batch) == 0,
        says=lambda s, c, p: (
            f"global batch {s.job.global_batch} is not a multiple of dp x mbs = "
            f"{p.dp * p.micro_batch} (remainder {s.job.global_batch % (p.dp * p.micro_batch)})"
        ),
    ),
    Rule(
        name="interleaving",
        holds=lambda s, c, p: (
            (p.vpp == 1)
            | ((p.pp > 1) & (np.mod(s.job.global_batch / (p.dp * p.micro_batch), p.pp) == 0))
        ),
        says=lambda s, c, p: (
            f"vpp {p.vpp} needs pp > 1 and a number of micro-batches that pp divides: "
            f"{s.job.global_batch / (p.dp * p.micro_batch):g} mod {p.pp}"
        ),
    ),
    Rule(
        name="sequence",
        holds=lambda s, c, p: (
            (p.sp == 0) | (np.mod(s.job.seq_len, p.tp) + np.mod(s.job.target_len or 0, p.tp) == 0)
        ),
        says=lambda s, c, p: (
            f"sp needs tp to divide the sequence: {s.job.seq_len} mod {p.tp} = "
            f"{s.job.seq_len % p.tp}, target {s.job.target_len or 0} mod {p.tp} = "
            f"{(s.job.target_len or 0) % p.tp}"
        ),
    ),
)


def broken(scenario: Scenario, plan: Plan, plans: Plans) -> list[tuple[str, str]]:
    """Names and sentences of the rules that one plan (and its batch of one) breaks."""
    cuts = cuts_of(scenario.model)
    return [
        (rule.name, rule.says(scenario, cuts, plan))
        for rule in RULES
        if not rule.holds(scenario, cuts, plans)[0]
    ]
