"""Gated delta-rule attention as operations (gated DeltaNet, Kimi delta attention)."""

import numpy as np

from foretell.specs.mixers import DeltaNet
from foretell.workload.graph import LayerGraph, Saved, Tokens
from foretell.workload.mamba2 import convolution
from foretell.workload.ops import Op, Scan
from foretell.workload.part import PartOps
from foretell.workload.roles import Region

REGION = Region.DELTA_RULE


def deltanet_graph(mixer: DeltaNet, hidden: int, tokens: Tokens) -> LayerGraph:
    """Projections, convolution over q, k and v, delta-rule scan, gated norm, output projection.

    With K = key_heads key_dim and V = value_heads value_dim the weights are h (2 K + 2 V + 2
    value_heads), (2 K + V)(taps + bias), 2 value_heads (A_log, dt_bias), value_dim for the norm and
    V h (Qwen3-Next; arXiv 2412.06464). A decay per channel (Kimi delta attention, arXiv 2510.26692)
    has a map of its own to value_heads key_dim, directly or through a low rank, and a dt_bias of
    that width; the output gate may go through a low rank too. Tensor parallelism cuts value heads;
    key heads are copied once there are more ranks than those; low ranks are whole on every rank.
    """
    part = PartOps(name="delta", region=REGION, rows=tokens.count)
    count = tokens.count
    keys = 2.0 * mixer.key_heads * mixer.key_dim
    values = float(mixer.value_heads * mixer.value_dim)
    return LayerGraph(
        name="delta",
        ops=(
            *_projections(mixer, hidden, part),
            convolution(part, keys + values, mixer.conv_kernel, bias=mixer.conv_bias),
            delta_scan(mixer, tokens),
            part.gated_norm("norm", count * values, float(mixer.value_dim)),
            part.gemm("out", hidden, values, "row"),
        ),
        saved=_saved(mixer, tokens, part),
        edges=part.ends(count * hidden, count * hidden),
    )


def _projections(mixer: DeltaNet, hidden: int, part: PartOps) -> tuple[Op, ...]:
    """q, k, v, gate, write strength (beta) and decay."""
    keys = 2.0 * mixer.key_heads * mixer.key_dim
    values = float(mixer.value_heads * mixer.value_dim)
    whole_gate = mixer.gate_rank is None
    by_head = mixer.decay == "head"
    inner = keys + values + (values if whole_gate else 0.0)
    beta = (2.0 if by_head else 1.0) * mixer.value_heads
    ops: list[Op] = [
        part.gemm("in", inner, hidden, "col", n_kv=keys, n_kv_min=2.0 * mixer.key_dim),
        part.gemm("beta", beta, hidden, "col"),
    ]
    if not by_head:
        channels = mixer.value_heads * mixer.key_dim
        ops += _map("decay", hidden, mixer.decay_rank, channels, part)
    if not whole_gate:
        ops += _map("gate", hidden, mixer.gate_rank, values, part)
    return tuple(ops)


def _map(what: str, hidden: int, rank: int | None, outputs: float, part: PartOps) -> tuple[Op, ...]:
    """hidden -> outputs, directly or through a rank that is whole on every rank of the group."""
    if rank is None:
        return (part.gemm(what, outputs, hidden, "col"),)
    return (
        part.gemm(f"{what}_down", rank, hidden),
        part.gemm(f"{what}_up", outputs, rank, "col"),
    )


def delta_scan(mixer: DeltaNet, tokens: Tokens) -> Scan:
    """The gated delta rule S <- decay S + beta k (v - S^T k)^T, out = S^T q, per value head.

    Chunked, with chunks of C positions (at most the sequence), key width d and value width e, per
    position and value head (arXiv 2412.06464, section 3.3, the UT transform):

        k k^T                          2 C d
        inverse T of the triangle      C^2 / 3 plain operations (forward substitution)
        T k, T v                       2 C (d + e)
        q k^T                          2 C d
        (T k) S, q S, k^T new          6 d e
        (q k^T) new                    2 C e

    The backward pass has two products for each of these and two of C x C x C for the inverse (its
    gradient is -T^T dT T^T); fused, it also makes T k, T v, the new values and the states again. A
    decay per channel has the same products. One step takes some 7 d e plain operations and moves
    the state twice.
    """
    d, e = float(mixer.key_dim), float(mixer.value_dim)
    heads = float(mixer.value_heads)
    rates = d if mixer.decay == "channel" else 1.0
    weights = heads * (1.0 + rates)
    small = 2.0 * d + 2.0 * e + rates + 1.0
    if tokens.phase == "decode":
        return Scan(
            name="delta.scan",
            tokens=tokens.count,
            heads=heads,
            matrix_flop_per_token_head=0.0,
            vector_flop_per_token_head=7.0 * d * e,
            moved_per_token_head=2.0 * d * e + small,
            weights=weights,
            region=REGION,
        )
    c = np.clip(tokens.q_len, 1.0, float(mixer.chunk))
    matrix = 2.0 * c * (3.0 * d + 2.0 * e) + 6.0 * d * e
    inverse = 4.0 * c * c
    again = 2.0 * c * (d + e) + 4.0 * d * e if tokens.flash else 0.0
    return Scan(
        name="delta.scan",
        tokens=tokens.count,
        heads=heads,
        matrix_flop_per_token_head=matrix,
        vector_flop_per_token_head=c * c / 3.0 + 6.0 * c + 4.0 * (d + e) + 2.0 * d * e / c,
        moved_per_token_head=small + 2.0 * d * e / c,
        back_factor=2.0 + (inverse + again) / matrix,
        weights=weights,
        region=REGION,
    )


def _saved(mixer: DeltaNet, tokens: Tokens, part: PartOps) -> tuple[Saved, ...]:
    """Inputs and outputs of convolution, scan and norm, low ranks, and the inverse of each chunk.

    Unfused, the scan keeps per head T k, T v, the new values, k k^T, q k^T and the states as well.
    """
    count = tokens.count
    keys = 2.0 * mixer.key_heads * mixer.key_dim
    values = float(mixer.value_heads * mixer.value_dim)
    rates = mixer.key_dim if mixer.decay == "channel" else 1.0
    c = np.clip(tokens.q_len, 1.0, float(mixer.chunk))
    small = mixer.value_heads * (rates + 1.0)
    kept = [
        part.kept("in", count * (keys + 2.0 * values + small)),
        part.kept("conv", count * (keys + values)),
        part.kept("inverse", count * mixer.value_heads * c),
        part.kept("scan", count * values),
        part.kept("norm", count * values),
    ]
    decay = mixer.decay_rank or 0 if mixer.decay == "channel" else 0
    ranks = float(decay + (mixer.gate_rank or 0))
    if ranks:
        kept.append(part.kept("ranks", count * ranks, split="none"))
    if not tokens.flash:
        d, e = mixer.key_dim, mixer.value_dim
        between = mixer.value_heads * (d + 2.0 * e + 2.0 * c + d * e / c)
        kept.append(part.kept("chunks", count * between, core=True))
    return tuple(kept)
