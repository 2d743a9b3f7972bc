"""Dense feed-forward parts and mixtures of experts as operations."""

from foretell.specs._base import Num, with_fields
from foretell.specs.block import MapBlock, MapShape
from foretell.specs.ffn import Dense, Experts
from foretell.workload.graph import LayerGraph, Saved, Tokens, with_region
from foretell.workload.ops import Op, Pointwise
from foretell.workload.part import Fields, PartOps
from foretell.workload.roles import OpRole, Region, SavedRole


def dense_graph(
    ffn: Dense,
    hidden: int,
    tokens: Tokens,
    name: str = "ffn",
    region: Region = Region.FEED_FORWARD,
) -> LayerGraph:
    """up (two when gated), activation, down: h f (ups + 1) weights and their biases.

    One hidden x hidden map in its place acts on each token alone and opens no tensor-parallel
    region.
    """
    count = tokens.count
    if ffn.factor is not None:
        return _factored(ffn, ffn.factor, hidden, tokens)
    part = PartOps(name=name, region=region, rows=count)
    if ffn.linear:
        op = part.gemm("linear", hidden, hidden, "tokens", bias=ffn.up_bias)
        return LayerGraph(name=name, ops=(op,))
    ups, width = 2.0 if ffn.gated else 1.0, float(ffn.width)
    return LayerGraph(
        name=name,
        ops=(
            part.gemm(
                "up", ups * width, hidden, "col", OpRole.UP, bias=ffn.up_bias, gated=ffn.gated
            ),
            _activation(part, count * width, ups),
            part.gemm("down", hidden, width, "row", OpRole.DOWN, bias=ffn.down_bias),
        ),
        saved=_around(part, count * before_act(ffn) * width, count * width, gated=ffn.gated),
        edges=part.ends(count * hidden, count * hidden),
    )


def before_act(ffn: Dense) -> float:
    """Tensors kept before the activation: none for a plain ReLU, whose gradient its output tells."""
    if ffn.gated:
        return 2.0
    return 0.0 if ffn.activation == "relu" else 1.0


def _factored(ffn: Dense, factor: MapBlock, hidden: int, tokens: Tokens) -> LayerGraph:
    """The same with each map by its factors, whole on every rank: no tensor-parallel region."""
    count, width = tokens.count, ffn.width
    ups = ("ffn.up", "ffn.gate_up")[: 2 if ffn.gated else 1]
    graph = LayerGraph(name="ffn")
    for i, name in enumerate(ups):
        # One of two copies of the input takes the input's place.
        shape = MapShape(name=name, inputs=hidden, outputs=width, bias=ffn.up_bias, alone=i == 0)
        graph = graph + factor.graph(shape, count, "tokens")
    part = PartOps(name="ffn", region=Region.FEED_FORWARD, rows=count)
    act = _activation(part, count * width, float(len(ups)))
    saved = _around(part, count * width * before_act(ffn), count * width, gated=ffn.gated)
    middle = LayerGraph(
        name="ffn",
        ops=(with_fields(act, split="tokens"),),
        saved=tuple(with_fields(tensor, split="tokens") for tensor in saved),
    )
    shape = MapShape(name="ffn.down", inputs=width, outputs=hidden, bias=ffn.down_bias, alone=True)
    whole: LayerGraph = graph + middle + factor.graph(shape, count, "tokens")
    return with_region(whole, Region.FEED_FORWARD)


def experts_graph(ffn: Experts, hidden: int, tokens: Tokens) -> LayerGraph:
    """Router, sort of tokens by expert, grouped up, activation, grouped down, weighted return.

    Each of the E experts sees T top_k / E tokens (balanced load; the sum of work is T top_k rows
    however they are spread). Tokens may be projected to a latent width before the routed experts
    and back after them. Shared experts are one dense part in the same tensor-parallel region.
    """
    part = PartOps(name="moe", region=Region.EXPERTS, rows=tokens.count)
    into, out = _latent_maps(ffn, hidden, part)
    clamped = ffn.clamped and tokens.phase == "training"
    graph = LayerGraph(
        name="moe",
        ops=(
            *_router(ffn, hidden, part),
            *into,
            *_routed(ffn, hidden, part, clamped=clamped),
            *out,
        ),
        saved=_experts_saved(ffn, hidden, part),
        edges=part.ends(part.rows * hidden, part.rows * hidden),
    )
    if not ffn.shared_width:
        return graph
    shared = Dense(width=ffn.shared_width, gated=ffn.gated, activation=ffn.activation)
    dense = dense_graph(shared, hidden, tokens, "moe.shared", Region.SHARED_EXPERTS)
    graph = graph + LayerGraph(name="shared", ops=dense.ops, saved=dense.saved)
    if ffn.shared_gate:
        graph = graph + _shared_gate(hidden, part.rows)
    return graph


def _router(ffn: Experts, hidden: int, part: PartOps) -> tuple[Op, ...]:
    """Scores of all experts per token, and the choice of top_k; before the region, so on own
    tokens."""
    experts = float(ffn.experts)
    weights = (experts if ffn.router_bias else 0.0) + ffn.extra_parameters
    work: Fields = {"flop": 6.0, "weights": weights, "family": "routing"}
    choice = part.pointwise("top_k", part.rows * experts, role=OpRole.CHOICE, **work)
    if not ffn.has_router:
        return (choice,)
    return (part.gemm("router", experts, hidden, "tokens", OpRole.ROUTER), choice)


def _latent_maps(ffn: Experts, hidden: int, part: PartOps) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """hidden -> latent, with a norm where there is one; latent -> hidden."""
    if ffn.latent is None:
        return (), ()
    role, width = OpRole.EXPERT_LATENT, float(ffn.latent)
    into: tuple[Op, ...] = (part.gemm("latent_down", width, hidden, role=role),)
    if ffn.latent_norm:
        norm = part.norm("latent_norm", part.rows * width, width, "none", role=role)
        into = (*into, norm)
    return into, (part.gemm("latent_up", hidden, width, role=role),)


def _routed(ffn: Experts, hidden: int, part: PartOps, *, clamped: bool) -> tuple[Op, ...]:
    """Tokens to their experts, grouped products, and the weighted sum back.

    `clamped`: clamps are an operation, which training frameworks may run apart; engines have them
    in their kernels.
    """
    experts, width = float(ffn.experts), float(ffn.width)
    routed, inner = part.rows * ffn.top_k, float(ffn.latent or hidden)
    ups = 2.0 if ffn.gated else 1.0
    moved: Fields = {"split": "none", "family": "routing", "launches": experts}
    grouped: Fields = {
        "m": routed / experts, "groups": experts, "bias": ffn.expert_bias, "family": "grouped-gemm",
    }  # fmt: skip
    permute = part.pointwise(
        "permute", routed * inner, role=OpRole.PERMUTE, flop=0.0, back_moves=2.0, back_flop=0.0,
        copies=float(ffn.top_k), **moved,
    )  # fmt: skip
    up = part.gemm("up", ups * width, inner, "col", OpRole.UP, gated=ffn.gated, **grouped)
    act = with_fields(_activation(part, routed * width, ups), launches=experts)
    down = part.gemm("down", inner, width, "row", OpRole.DOWN, **grouped)
    unpermute = part.pointwise(
        "unpermute", routed * inner, role=OpRole.UNPERMUTE, flop=2.0, back_moves=3.0, **moved
    )
    # Both factors of a gated activation read, clamped and written; backward their gradients.
    clamp = part.pointwise(
        "clamp", routed * ups * width, "width", OpRole.CLAMP, flop=0.0, back_flop=0.0
    )
    biases = part.pointwise(
        "expert-bias", routed * inner, "none", OpRole.EXPERT_BIAS, flop=2.0, back_moves=1.0,
        back_flop=4.0, launches=experts,
    )  # fmt: skip
    inside = (permute, up, *((clamp,) if clamped else ()), act, down)
    return (*inside, *((biases,) if ffn.expert_bias else ()), unpermute)


def _shared_gate(hidden: int, count: Num) -> LayerGraph:
    """One gate per token on the shared experts' output, which its gradient needs."""
    part = PartOps(name="moe", region=Region.SHARED_EXPERTS, rows=count)
    scale: Fields = {"flop": 1.0, "back_moves": 3.0, "back_flop": 3.0}
    return LayerGraph(
        name="gate",
        ops=(
            part.gemm("shared_gate", 1.0, hidden, role=OpRole.SHARED_GATE),
            part.pointwise("shared_scale", count * hidden, "none", **scale),
        ),
        saved=(part.kept("shared_out", count * hidden, split="none"),),
    )


def _experts_saved(ffn: Experts, hidden: int, part: PartOps) -> tuple[Saved, ...]:
    """fp32 routing scores, permuted tokens, both sides of the activation, results before
    weighting."""
    count = part.rows
    routed, inner = count * ffn.top_k, float(ffn.latent or hidden)
    width, ups = float(ffn.width), 2.0 if ffn.gated else 1.0
    scores = part.kept("scores", count * float(ffn.experts), split="tokens", bytes_per_element=4.0)
    saved = [
        scores,
        part.kept("in", routed * inner, SavedRole.EXPERT_INPUT, "none"),
        *_around(part, routed * ups * width, routed * width, gated=ffn.gated),
        part.kept("out", routed * inner, SavedRole.RESULT, "none"),
    ]
    if ffn.latent is not None:
        # The state before the norm, where there is one, and the sum that goes back to full width.
        states = 2.0 if ffn.latent_norm else 1.0
        saved.append(part.kept("latent", states * count * inner, SavedRole.LATENT, "none"))
    return tuple(saved)


def _around(part: PartOps, before: Num, behind: Num, *, gated: bool) -> tuple[Saved, ...]:
    """What the first product gives and the second reads, and the other factor of a gated product, which fused
    kernels compute again from its input."""
    saved = (
        part.kept("up", before, SavedRole.UP),
        part.kept("act", behind, SavedRole.ACTIVATED),
        part.kept("gate", behind, SavedRole.GATE, fused_away=True),
    )
    return saved if gated else saved[:2]


def _activation(part: PartOps, elements: Num, ups: float) -> Pointwise:
    """Activation, times the gate where there is one."""
    work: Fields = {
        "reads": ups,
        "flop": 4.0 + ups,
        "back_moves": 1.0 + 2.0 * ups,
        "back_flop": 8.0,
    }
    return part.pointwise("act", elements, "width", OpRole.ACTIVATION, **work)
