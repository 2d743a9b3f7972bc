"""What a plan must satisfy before anything is computed: each rule as a mask over a batch and a sentence.

The same masks prune a search and explain a single plan, so the two can never disagree.
"""

from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from math import prod

import numpy as np

from foretell.records import dataclass
from foretell.sharding.data import sharing_group, sharing_holds, sharing_of
from foretell.specs.arrays import Array, Mask
from foretell.specs.block import MixerBlock
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet, LatentAttention, Mamba2
from foretell.specs.model import Layer, Model
from foretell.specs.plan import USUAL_SCHEDULES, Plan, Plans
from foretell.specs.scenario import Scenario

ENDS = 2
"""Embedding and head may be alone on the outer chunks, in the place of layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """Sizes that tensor, context and expert parallelism must divide."""

    heads: tuple[int, ...]
    """Query (or state, or value) heads of the model's mixers."""
    kv_heads: tuple[int, ...]
    """Key and value heads: divided, or copied when tp is a multiple of them."""
    widths: tuple[int, ...]
    """Inner widths of dense feed-forward parts and shared experts."""
    experts: tuple[int, ...] = ()
    """Routed experts of the mixtures."""
    expert_widths: tuple[int, ...] = ()
    """Inner widths of routed experts: cut by tp, or by etp where ep spreads them."""
    gridless: str = ""
    """What of the model has no form on a grid of tensor-parallel ranks; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One condition on a plan."""

    name: str = field(kw_only=False)
    """Its key in `rejected`."""
    holds: Callable[[Scenario, Cuts, Plans], Mask] = field(kw_only=False)
    """Where it is satisfied."""
    says: Callable[[Scenario, Cuts, Plan], str] = field(kw_only=False)
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
    experts: set[int] = set()
    expert_widths: set[int] = set()
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
                case MixerBlock():
                    heads |= {*mixer.head_counts}
        for ffn in (layer.ffn, layer.dense_beside):
            if isinstance(ffn, Dense) and not ffn.linear and ffn.factor is None:
                widths.add(ffn.width)
            if isinstance(ffn, Experts):
                widths |= {ffn.shared_width} if ffn.shared_width else set()
                experts.add(ffn.experts)
                expert_widths.add(ffn.width)
    return Cuts(
        heads=tuple(sorted(heads)),
        kv_heads=tuple(sorted(kv_heads)),
        widths=tuple(sorted(widths)),
        experts=tuple(sorted(experts)),
        expert_widths=tuple(sorted(expert_widths)),
        gridless=_gridless(model, layers),
    )


def _gridless(model: Model, layers: list[Layer]) -> str:
    """The first thing of a model that a grid has no products for."""
    if model.encoder is not None:
        return "an encoder beside its decoder"
    for layer in layers:
        for mixer in layer.mixers:
            if not isinstance(mixer, Attention):
                return f"a {type(mixer).__name__} mixer"
            if mixer.cross or mixer.indexer is not None or mixer.compress_ratio is not None:
                return "attention to other than its own tokens"
        if isinstance(layer.ffn, Experts) or isinstance(layer.dense_beside, Experts):
            return "experts"
    return ""


def chips_of(scenario: Scenario) -> float:
    """Chips of the whole system."""
    return float(prod(float(tier.size) for tier in scenario.system.network.tiers))


def layers_of(model: Model) -> int:
    """Layers that are dealt to pipeline stages."""
    return len(model.stack.layers) + (len(model.encoder.layers) if model.encoder else 0)


def _divides(sizes: tuple[int, ...], parts: Array) -> Mask:
    ok = np.ones(len(parts), dtype=bool)
    for size in sizes:
        ok &= np.mod(size, parts) == 0
    return ok


def _width_parts(plans: Plans) -> Array:
    """Parts into which widths and heads are cut: tp, or the first dimension of a grid."""
    return plans.tp / np.maximum(plans.tp2, 1.0)


def _width_word(plan: Plan) -> tuple[int, str]:
    grid = plan.tp2 > 1
    return (max(plan.tp // plan.tp2, 1), "tp / tp2") if grid else (plan.tp, "tp")


def _width_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    inside = np.where(plans.ep > 1, plans.etp, plans.tp)
    return _divides(cuts.widths, _width_parts(plans)) & _divides(cuts.expert_widths, inside)


def _width_says(cuts: Cuts, plan: Plan) -> str:
    inside, word = (plan.etp, "etp") if plan.ep > 1 else (plan.tp, "tp")
    experts = _bad(cuts.expert_widths, inside)
    parts, name = _width_word(plan)
    dense = _bad(cuts.widths, parts)
    said = [f"{name} must divide the feed-forward widths: {dense}"] if dense else []
    said += [f"{word} must divide the experts' widths: {experts}"] if experts else []
    return "; ".join(said)


def _heads_cut(plans: Plans) -> Array:
    """Parts into which heads are cut: by tp, and by cp where ranks exchange tokens for heads."""
    return plans.tp * plans.cp if plans.base.cp_mode == "ulysses" else _width_parts(plans)


def _heads_word(plan: Plan) -> tuple[int, str]:
    exchanged = plan.cp_mode == "ulysses" and plan.cp > 1
    return (plan.tp * plan.cp, "tp x cp") if exchanged else _width_word(plan)


def _grid_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    """See `_grid_says`."""
    base = plans.base
    if base.tp_mode != "summa":
        return np.asarray((plans.tp2 <= 1) & (base.panels == 0))
    m1, m2 = _width_parts(plans), np.maximum(plans.tp2, 1.0)
    job, own = scenario.job, not (cuts.gridless or base.lora or base.optimizer in _WHOLE_MATRICES)
    alone = (plans.cp == 1) & (plans.ep == 1) & ((plans.sp == 1) | (plans.tp == 1))
    sizes = (*cuts.widths, scenario.model.stack.hidden)
    cut = _divides(sizes, m1) & _divides((*sizes, job.seq_len), m2)
    whole = (np.mod(base.panels, m1) == 0) & (np.mod(base.panels, m2) == 0)
    return np.asarray(alone & cut & whole & (np.mod(plans.tp, m2) == 0) & own)


def _grid_says(scenario: Scenario, cuts: Cuts, plan: Plan) -> str:
    if plan.tp_mode != "summa":
        word = f"tp2={plan.tp2}" if plan.tp2 > 1 else f"panels={plan.panels}"
        return f"{word} needs a grid of tensor-parallel ranks: tp_mode=summa"
    m2, said = max(plan.tp2, 1), []
    if cuts.gridless:
        said.append(f"the model has {cuts.gridless}: tp_mode=summa has dense layers alone")
    if plan.lora:
        said.append("adapters are too thin for panels: lora needs tp_mode=1d")
    if plan.optimizer in _WHOLE_MATRICES:
        said.append(f"{plan.optimizer} works on whole matrices, which a grid cuts both ways")
    if plan.cp > 1:
        said.append(f"cp {plan.cp}: the grid cuts the sequence already, by tp2")
    if plan.tp > 1 and not plan.sp:
        said.append("the grid cuts all activations: no-sp needs tp_mode=1d")
    if plan.tp % m2:
        return "; ".join([*said, f"tp2 {m2} must divide tp {plan.tp} (rest {plan.tp % m2})"])
    sizes = (*cuts.widths, scenario.model.stack.hidden)
    for parts, name, those in (
        (plan.tp // m2, "tp / tp2", sizes),
        (m2, "tp2", (*sizes, scenario.job.seq_len)),
    ):
        if _bad(those, parts):
            said.append(f"{name} must divide widths and tokens: {_bad(those, parts)}")
        if plan.panels % parts:
            said.append(f"panels {plan.panels} must be whole for each of {parts} ranks ({name})")
    return "; ".join(said)


_WHOLE_MATRICES = ("muon", "adafactor")
"""Optimizers whose update is of a matrix, not of its elements."""


def _context_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    """Two blocks of equal length for every rank; encoders and decoders both."""
    blocks = np.where(plans.cp > 1, 2 * plans.cp, 1)
    rest = np.mod(scenario.job.seq_len, blocks) + np.mod(scenario.job.target_len or 0, blocks)
    return np.asarray(rest == 0)


def _experts_hold(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    """etp x ep x edp = tp x cp x dp with whole experts on every rank, and no token on two of them."""
    none = (plans.ep == 1) & (plans.etp == 1)
    whole = np.mod(plans.tp * plans.cp * plans.dp, plans.ep * plans.etp) == 0
    apart = (plans.tp == 1) | (plans.sp == 1)
    some = np.full(len(plans), bool(cuts.experts)) & (plans.ep > 1)
    return np.asarray(none | (some & whole & apart & _divides(cuts.experts, plans.ep)))


def _experts_say(cuts: Cuts, plan: Plan) -> str:
    if not cuts.experts:
        return f"ep {plan.ep}, etp {plan.etp}: the model has no experts"
    if plan.ep == 1:
        return f"etp {plan.etp} needs ep > 1; without it tp cuts the experts"
    said = []
    if _bad(cuts.experts, plan.ep):
        said.append(f"ep must divide the experts: {_bad(cuts.experts, plan.ep)}")
    ranks, parts = plan.tp * plan.cp * plan.dp, plan.ep * plan.etp
    if ranks % parts:
        said.append(f"ep x etp = {parts} must divide tp x cp x dp = {ranks} (rest {ranks % parts})")
    if plan.tp > 1 and not plan.sp:
        said.append("ep with tp > 1 needs sp, so that no token is dispatched twice")
    return "; ".join(said)


def _sharing_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    """Whole groups of ranks that share, among all replicas and among those of spread experts."""
    if not plans.base.shard and not plans.base.secondary:
        return np.ones(len(plans), dtype=bool)
    sharing = sharing_of(plans.base)
    replicas = plans.dp * plans.cp * plans.tp / (plans.ep * plans.etp)
    groups = sharing_group(replicas, sharing)
    apart = (plans.ep == 1) | (np.mod(replicas, groups) == 0)
    return np.asarray(sharing_holds(plans.dp * plans.cp, sharing) & apart)


def _kv_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    ok = np.ones(len(plans), dtype=bool)
    for size in cuts.kv_heads:
        parts = _heads_cut(plans)
        ok &= (np.mod(size, parts) == 0) | (np.mod(parts, size) == 0)
    return ok


def _bad(sizes: tuple[int, ...], tp: int) -> str:
    return ", ".join(f"{s} mod {tp} = {s % tp}" for s in sizes if s % tp)


RULES: tuple[Rule, ...] = (
    Rule(
        "gpus",
        lambda s, c, p: p.dp * p.tp * p.pp * p.cp == s.job.gpus,
        lambda s, c, p: (
            (
                f"tp x pp x dp = {p.tp} x {p.pp} x {p.dp} = {p.tp * p.pp * p.dp}, "
                if p.cp == 1
                else f"tp x pp x dp x cp = {p.tp} x {p.pp} x {p.dp} x {p.cp} = {p.gpus}, "
            )
            + f"not the {s.job.gpus} chips asked for"
        ),
    ),
    Rule(
        "system",
        lambda s, c, p: np.full(len(p), s.job.gpus <= chips_of(s)),
        lambda s, c, p: f"{s.job.gpus} chips asked for, {s.system.id} has {chips_of(s):.0f}",
    ),
    Rule(
        "heads",
        lambda s, c, p: _divides(c.heads, _heads_cut(p)),
        lambda s, c, p: (
            f"{_heads_word(p)[1]} must divide the heads: {_bad(c.heads, _heads_word(p)[0])}"
        ),
    ),
    Rule(
        "kv_heads",
        _kv_holds,
        lambda s, c, p: (
            f"{_heads_word(p)[1]} {_heads_word(p)[0]} neither divides the key-value heads "
            f"{c.kv_heads} nor is a multiple of them"
        ),
    ),
    Rule("width", _width_holds, lambda s, c, p: _width_says(c, p)),
    Rule("grid", _grid_holds, _grid_says),
    Rule(
        "overlap",
        lambda s, c, p: (
            (p.base.tp_overlap != "on") | ((p.base.tp_mode == "1d") & ((p.tp == 1) | (p.sp == 1)))
        ),
        lambda s, c, p: (
            "tp_overlap=on cuts gathers and scatters into pieces: it needs sp"
            if p.tp_mode == "1d"
            else "tp_mode=summa hides its panels by itself: tp_overlap=auto"
        ),
    ),
    Rule("experts", _experts_hold, lambda s, c, p: _experts_say(c, p)),
    Rule(
        "context",
        _context_holds,
        lambda s, c, p: (
            f"2 cp = {2 * p.cp} must divide the sequence: {s.job.seq_len} mod {2 * p.cp} = "
            f"{s.job.seq_len % (2 * p.cp)}, target {(s.job.target_len or 0) % (2 * p.cp)}"
        ),
    ),
    Rule(
        "layers",
        lambda s, c, p: p.pp * p.vpp <= layers_of(s.model) + ENDS,
        lambda s, c, p: (
            f"pp x vpp = {p.pp * p.vpp} chunks for {layers_of(s.model)} layers: "
            f"{p.pp * p.vpp - layers_of(s.model) - ENDS} too many, embedding and head counted"
        ),
    ),
    Rule(
        "batch",
        lambda s, c, p: np.mod(s.job.global_batch, p.dp * p.micro_batch) == 0,
        lambda s, c, p: (
            f"global batch {s.job.global_batch} is not a multiple of dp x mbs = "
            f"{p.dp * p.micro_batch} (remainder {s.job.global_batch % (p.dp * p.micro_batch)})"
        ),
    ),
    Rule(
        "sharing",
        _sharing_holds,
        lambda s, c, p: (
            f"shard {p.shard} must divide dp x cp = {p.dp * p.cp} and the replicas of spread experts, "
            f"secondary {p.secondary} the ranks that share"
        ),
    ),
    Rule(
        "interleaving",
        lambda s, c, p: (
            (p.vpp == 1)
            | (p.base.schedule not in USUAL_SCHEDULES)
            | ((p.pp > 1) & (np.mod(s.job.global_batch / (p.dp * p.micro_batch), p.pp) == 0))
        ),
        lambda s, c, p: (
            f"vpp {p.vpp} needs pp > 1 and a number of micro-batches that pp divides: "
            f"{s.job.global_batch / (p.dp * p.micro_batch):g} mod {p.pp}"
        ),
    ),
    Rule(
        "sequence",
        lambda s, c, p: (
            (p.sp == 0)
            | (p.base.tp_mode == "summa")
            | (np.mod(s.job.seq_len, p.tp * p.cp) + np.mod(s.job.target_len or 0, p.tp * p.cp) == 0)
        ),
        lambda s, c, p: (
            f"sp needs {'tp' if p.cp == 1 else 'tp x cp'} to divide the sequence: "
            f"{s.job.seq_len} mod {p.tp * p.cp} = {s.job.seq_len % (p.tp * p.cp)}, "
            f"target {s.job.target_len or 0} mod {p.tp * p.cp} = "
            f"{(s.job.target_len or 0) % (p.tp * p.cp)}"
        ),
    ),
)


def broken_rules(
    scenario: Scenario, plan: Plan, plans: Plans, rules: tuple[Rule, ...] = RULES
) -> list[tuple[str, str]]:
    """Names and sentences of the rules that one plan (and its batch of one) breaks."""
    cuts = cuts_of(scenario.model)
    return [
        (rule.name, rule.says(scenario, cuts, plan))
        for rule in rules
        if not rule.holds(scenario, cuts, plans)[0]
    ]
