"""A Mamba-2 mixer as operations: projection, convolution, state-space scan, gated norm,
projection."""

import numpy as np

from foretell.specs.mixers import Mamba2
from foretell.workload.graph import LayerGraph, Saved, Tokens
from foretell.workload.ops import Pointwise, Scan
from foretell.workload.part import Fields, PartOps
from foretell.workload.roles import Region

REGION = Region.STATE_SPACE


def mamba2_graph(mixer: Mamba2, hidden: int, tokens: Tokens) -> LayerGraph:
    """One mixer of H heads of width P with state N and G groups; the inner width is I = H P.

    Weights: h (2 I + 2 G N + H) in, (I + 2 G N)(K + bias) convolution, 3 H (A_log, D, dt_bias), I
    norm, I h out (Dao and Gu 2024, arXiv 2405.21060, section 7). Tensor parallelism cuts heads; B
    and C are cut by groups and copied once there are more ranks than groups.
    """
    part = PartOps(name="mamba", region=REGION, rows=tokens.count)
    count = tokens.count
    inner = float(mixer.heads * mixer.head_dim)
    shared = 2.0 * mixer.groups * mixer.state
    own: Fields = {"bias": mixer.proj_bias, "n_kv": shared, "n_kv_min": 2.0 * mixer.state}
    weights = inner if mixer.gated_norm else 0.0
    return LayerGraph(
        name="mamba",
        ops=(
            part.gemm("in", 2.0 * inner + shared + mixer.heads, hidden, "col", **own),
            convolution(part, inner + shared, mixer.conv_kernel, bias=mixer.conv_bias),
            ssd_scan(mixer, tokens),
            part.gated_norm("norm", count * inner, weights, cut_weights=True),
            part.gemm("out", hidden, inner, "row", bias=mixer.proj_bias),
        ),
        saved=_saved(mixer, tokens, part),
        edges=part.ends(count * hidden, count * hidden),
    )


def convolution(part: PartOps, channels: float, kernel: int, *, bias: bool) -> Pointwise:
    """Causal depthwise convolution with SiLU: 2 K + 4 operations per value, K (+ 1) taps per
    channel."""
    return part.pointwise(
        "conv", part.rows * channels, "width", flop=2.0 * kernel + 4.0, back_flop=4.0 * kernel + 8.0,
        weights=channels * (kernel + (1.0 if bias else 0.0)), cut_weights=True,
    )  # fmt: skip


def ssd_scan(mixer: Mamba2, tokens: Tokens) -> Scan:
    """The state-space recurrence: chunked in training and prefill, one step in decode.

    Chunked, with chunks of Q positions (at most the sequence), per position:

        C B^T                       2 Q N   per group
        (C B^T o decay) X           2 Q P   per head
        chunk states B^T (decay X)  2 N P   per head
        C x state                   2 N P   per head

    (arXiv 2405.21060, section 6: the whole Q x Q square, as the matrix form has it). The backward
    pass has two products for each; fused, it also makes C B^T and the chunk states again. The pass
    of states from chunk to chunk and the decays are plain operations. These are kernels of their
    own (mamba_ssm/ops/triton/ssd_combined.py), each of which reads what the one before wrote: the
    chunk states in 32 bits (x, B), their pass (read in 32 bits, written in 16), C B^T in 32 bits,
    the scan (x, states, C, C B^T). One step reads and writes the state of N P and takes some 6 N P
    plain operations per head.
    """
    n, p = float(mixer.state), float(mixer.head_dim)
    heads, groups = float(mixer.heads), float(mixer.groups)
    if tokens.phase == "decode":
        return Scan(
            name="mamba.scan",
            tokens=tokens.count,
            heads=heads,
            matrix_flop_per_token_head=0.0,
            vector_flop_per_token_head=6.0 * n * p,
            moved_per_token_head=2.0 * n * p + 2.0 * p + 1.0,
            groups=groups,
            moved_per_token_group=2.0 * n,
            weights=3.0 * heads,
            region=REGION,
        )
    q = np.clip(tokens.q_len, 1.0, float(mixer.chunk))
    per_head, per_group = 2.0 * q * p + 4.0 * n * p, 2.0 * q * n
    again = (2.0 * n * p * heads + per_group * groups) / (per_head * heads + per_group * groups)
    return Scan(
        name="mamba.scan",
        tokens=tokens.count,
        heads=heads,
        matrix_flop_per_token_head=per_head,
        vector_flop_per_token_head=4.0 * q + 2.0 * p + 4.0 * n * p / q,
        moved_per_token_head=3.0 * p + 1.0 + 6.0 * n * p / q,
        groups=groups,
        matrix_flop_per_token_group=per_group,
        moved_per_token_group=4.0 * n + 4.0 * q,
        back_factor=2.0 + (again if tokens.flash else 0.0),
        weights=3.0 * heads,
        region=REGION,
    )


def _saved(mixer: Mamba2, tokens: Tokens, part: PartOps) -> tuple[Saved, ...]:
    """Outputs of the projection, the convolution, the scan and the norm; unfused, what lies
    between.

    The fused scan keeps no states: it makes them again. The plain one keeps, per head, the decayed
    square of each chunk, and the states.
    """
    count = tokens.count
    inner, shared = float(mixer.heads * mixer.head_dim), 2.0 * mixer.groups * mixer.state
    kept = (
        part.kept("in", count * (2.0 * inner + shared + mixer.heads)),
        part.kept("conv", count * (inner + shared)),
        part.kept("scan", count * inner),
        part.kept("norm", count * inner),
    )
    if tokens.flash:
        return kept
    q = np.clip(tokens.q_len, 1.0, float(mixer.chunk))
    between = q * mixer.heads + inner * mixer.state / q
    return (*kept, part.kept("chunks", count * between, core=True))
