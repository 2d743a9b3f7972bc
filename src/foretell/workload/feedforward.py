"""Dense feed-forward parts and mixtures of experts as operations."""

from foretell.specs._base import Num, with_fields
from foretell.specs.block import MapBlock, MapShape
from foretell.specs.ffn import Dense, Experts
from foretell.workload.graph import Edge, LayerGraph, Saved, Tokens, with_region
from foretell.workload.ops import Gemm, Op, Pointwise
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
    if ffn.linear:
        op = Gemm(
            name=f"{name}.linear",
            m=count,
            n=float(hidden),
            k=float(hidden),
            bias=ffn.up_bias,
            split="tokens",
            region=region,
        )
        return LayerGraph(name=name, ops=(op,))
    ups = 2.0 if ffn.gated else 1.0
    width = float(ffn.width)
    return LayerGraph(
        name=name,
        ops=(
            Gemm(
                name=f"{name}.up",
                m=count,
                n=ups * width,
                k=float(hidden),
                bias=ffn.up_bias,
                split="col",
                role=OpRole.UP,
                region=region,
                gated=ffn.gated,
            ),
            _activation(name, count * width, ups, region),
            Gemm(
                name=f"{name}.down",
                m=count,
                n=float(hidden),
                k=width,
                bias=ffn.down_bias,
                split="row",
                role=OpRole.DOWN,
                region=region,
            ),
        ),
        saved=(
            _before(name, count * before_act(ffn) * width, region),
            _behind(name, count * width, region),
            *_gate(name, count * width, region, gated=ffn.gated),
        ),
        edges=(
            Edge(name=name, elements=count * hidden, leave=False, region=region),
            Edge(name=name, elements=count * hidden, leave=True, region=region),
        ),
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
    region = Region.FEED_FORWARD
    act = _activation("ffn", count * width, float(len(ups)), region)
    saved = (
        _before("ffn", count * width * before_act(ffn), region),
        _behind("ffn", count * width, region),
        *_gate("ffn", count * width, region, gated=ffn.gated),
    )
    middle = LayerGraph(
        name="ffn",
        ops=(with_fields(act, split="tokens"),),
        saved=tuple(with_fields(tensor, split="tokens") for tensor in saved),
    )
    shape = MapShape(name="ffn.down", inputs=width, outputs=hidden, bias=ffn.down_bias, alone=True)
    whole: LayerGraph = graph + middle + factor.graph(shape, count, "tokens")
    return with_region(whole, region)


def experts_graph(ffn: Experts, hidden: int, tokens: Tokens) -> LayerGraph:
    """Router, sort of tokens by expert, grouped up, activation, grouped down, weighted return.

    Each of the E experts sees T top_k / E tokens (balanced load; the sum of work is T top_k rows
    however they are spread). Tokens may be projected to a latent width before the routed experts
    and back after them. Shared experts are one dense part in the same tensor-parallel region.
    """
    count = tokens.count
    ops = (
        *_router(ffn, hidden, count),
        *_latent_in(ffn, hidden, count),
        *_routed(ffn, hidden, count, clamped=ffn.clamped and tokens.phase == "training"),
        *_latent_out(ffn, hidden, count),
    )
    graph = LayerGraph(
        name="moe",
        ops=ops,
        saved=_experts_saved(ffn, hidden, count),
        edges=(
            Edge(name="moe", elements=count * hidden, leave=False, region=Region.EXPERTS),
            Edge(name="moe", elements=count * hidden, leave=True, region=Region.EXPERTS),
        ),
    )
    if not ffn.shared_width:
        return graph
    shared = Dense(width=ffn.shared_width, gated=ffn.gated, activation=ffn.activation)
    part = dense_graph(shared, hidden, tokens, "moe.shared", Region.SHARED_EXPERTS)
    graph = graph + LayerGraph(name="shared", ops=part.ops, saved=part.saved)
    if ffn.shared_gate:
        graph = graph + _shared_gate(hidden, count)
    return graph


def _router(ffn: Experts, hidden: int, count: Num) -> tuple[Op, ...]:
    """Scores of all experts per token, and the choice of top_k; before the region, so on own
    tokens."""
    experts = float(ffn.experts)
    choice = Pointwise(
        name="moe.top_k",
        elements=count * experts,
        flop=6.0,
        weights=(experts if ffn.router_bias else 0.0) + ffn.extra_parameters,
        family="routing",
        role=OpRole.CHOICE,
        region=Region.EXPERTS,
    )
    if not ffn.has_router:
        return (choice,)
    scores = Gemm(
        name="moe.router",
        m=count,
        n=experts,
        k=float(hidden),
        split="tokens",
        role=OpRole.ROUTER,
        region=Region.EXPERTS,
    )
    return (scores, choice)


def _latent_in(ffn: Experts, hidden: int, count: Num) -> tuple[Op, ...]:
    """hidden -> latent, with a norm where there is one."""
    if ffn.latent is None:
        return ()
    width = float(ffn.latent)
    down = _latent_map("moe.latent_down", count, width, float(hidden))
    if not ffn.latent_norm:
        return (down,)
    norm = Pointwise(
        name="moe.latent_norm",
        elements=count * width,
        flop=5.0,
        back_flop=8.0,
        weights=width,
        split="none",
        family="norm",
        role=OpRole.EXPERT_LATENT,
        region=Region.EXPERTS,
    )
    return (down, norm)


def _latent_out(ffn: Experts, hidden: int, count: Num) -> tuple[Op, ...]:
    """latent -> hidden."""
    if ffn.latent is None:
        return ()
    return (_latent_map("moe.latent_up", count, float(hidden), float(ffn.latent)),)


def _latent_map(name: str, count: Num, n: float, k: float) -> Gemm:
    role = OpRole.EXPERT_LATENT
    return Gemm(name=name, m=count, n=n, k=k, role=role, region=Region.EXPERTS)


def _routed(ffn: Experts, hidden: int, count: Num, *, clamped: bool) -> tuple[Op, ...]:
    """Tokens to their experts, grouped products, and the weighted sum back.

    `clamped`: clamps are an operation, which training frameworks may run apart; engines have them
    in their kernels.
    """
    experts, width = float(ffn.experts), float(ffn.width)
    routed, inner = count * ffn.top_k, float(ffn.latent or hidden)
    ups, region = 2.0 if ffn.gated else 1.0, Region.EXPERTS
    permute = Pointwise(
        name="moe.permute",
        role=OpRole.PERMUTE,
        region=region,
        elements=routed * inner,
        flop=0.0,
        back_moves=2.0,
        back_flop=0.0,
        split="none",
        family="routing",
        launches=experts,
        copies=float(ffn.top_k),
    )
    up = Gemm(
        name="moe.up",
        role=OpRole.UP,
        region=region,
        gated=ffn.gated,
        m=routed / experts,
        n=ups * width,
        k=inner,
        groups=experts,
        bias=ffn.expert_bias,
        split="col",
        family="grouped-gemm",
    )
    down = Gemm(
        name="moe.down",
        role=OpRole.DOWN,
        region=region,
        m=routed / experts,
        n=inner,
        k=width,
        groups=experts,
        bias=ffn.expert_bias,
        split="row",
        family="grouped-gemm",
    )
    unpermute = Pointwise(
        name="moe.unpermute",
        role=OpRole.UNPERMUTE,
        region=region,
        elements=routed * inner,
        flop=2.0,
        back_moves=3.0,
        split="none",
        family="routing",
        launches=experts,
    )
    act = with_fields(_activation("moe", routed * width, ups, region), launches=experts)
    inside: tuple[Op, ...] = (permute, up, *_clamp(routed * ups * width, clamped), act, down)
    if not ffn.expert_bias:
        return (*inside, unpermute)
    biases = Pointwise(
        name="moe.expert-bias",
        role=OpRole.EXPERT_BIAS,
        region=region,
        elements=routed * inner,
        flop=2.0,
        back_moves=1.0,
        back_flop=4.0,
        split="none",
        launches=experts,
    )
    return (*inside, biases, unpermute)


def _clamp(elements: Num, there: bool) -> tuple[Pointwise, ...]:
    """Both factors of a gated activation read, clamped and written; backward their gradients."""
    if not there:
        return ()
    clamp = Pointwise(
        name="moe.clamp",
        elements=elements,
        flop=0.0,
        back_flop=0.0,
        split="width",
        role=OpRole.CLAMP,
        region=Region.EXPERTS,
    )
    return (clamp,)


def _shared_gate(hidden: int, count: Num) -> LayerGraph:
    """One gate per token on the shared experts' output, which its gradient needs."""
    region = Region.SHARED_EXPERTS
    name, width, role = "moe.shared_gate", float(hidden), OpRole.SHARED_GATE
    return LayerGraph(
        name="gate",
        ops=(
            Gemm(name=name, m=count, n=1.0, k=width, role=role, region=region),
            Pointwise(
                name="moe.shared_scale",
                elements=count * hidden,
                flop=1.0,
                back_moves=3.0,
                back_flop=3.0,
                split="none",
                region=region,
            ),
        ),
        saved=(Saved(name="moe.shared_out", elements=count * hidden, split="none", region=region),),
    )


def _experts_saved(ffn: Experts, hidden: int, count: Num) -> tuple[Saved, ...]:
    """fp32 routing scores, permuted tokens, both sides of the activation, results before
    weighting."""
    routed, inner = count * ffn.top_k, float(ffn.latent or hidden)
    width, ups, region = float(ffn.width), 2.0 if ffn.gated else 1.0, Region.EXPERTS

    def whole(what: str, elements: Num, role: SavedRole) -> Saved:
        name = f"moe.{what}"
        return Saved(name=name, elements=elements, split="none", role=role, region=region)

    saved = [
        Saved(
            name="moe.scores",
            elements=count * float(ffn.experts),
            split="tokens",
            bytes_per_element=4.0,
            region=region,
        ),
        whole("in", routed * inner, SavedRole.EXPERT_INPUT),
        _before("moe", routed * ups * width, region),
        _behind("moe", routed * width, region),
        *_gate("moe", routed * width, region, gated=ffn.gated),
        whole("out", routed * inner, SavedRole.RESULT),
    ]
    if ffn.latent is not None:
        # The state before the norm, where there is one, and the sum that goes back to full width.
        states = 2.0 if ffn.latent_norm else 1.0
        saved.append(whole("latent", states * count * inner, SavedRole.LATENT))
    return tuple(saved)


def _before(name: str, elements: Num, region: Region) -> Saved:
    """What the first product gives."""
    full, role = f"{name}.up", SavedRole.UP
    return Saved(name=full, elements=elements, split="width", role=role, region=region)


def _behind(name: str, elements: Num, region: Region) -> Saved:
    """What the second product reads."""
    full, role = f"{name}.act", SavedRole.ACTIVATED
    return Saved(name=full, elements=elements, split="width", role=role, region=region)


def _gate(name: str, elements: Num, region: Region, *, gated: bool) -> tuple[Saved, ...]:
    """The other factor of a gated product, which fused kernels compute again from its input."""
    kept = Saved(
        name=f"{name}.gate",
        elements=elements,
        split="width",
        fused_away=True,
        role=SavedRole.GATE,
        region=region,
    )
    return (kept,) if gated else ()


def _activation(name: str, elements: Num, ups: float, region: Region) -> Pointwise:
    """Activation, times the gate where there is one."""
    return Pointwise(
        name=f"{name}.act",
        elements=elements,
        reads=ups,
        flop=4.0 + ups,
        back_moves=1.0 + 2.0 * ups,
        back_flop=8.0,
        split="width",
        role=OpRole.ACTIVATION,
        region=region,
    )
