"""Nouns of the 2024 reference model (arXiv 2410.00273): models, chips, strategies and quirks.

Seconds, bytes and FLOP inside; the published code reports GB of 1e9 bytes and TFLOP, and `rows.py`
converts to those when it writes a row.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretell.catalog.files import read_table
from foretell.records import dataclass

Ints = npt.NDArray[np.int64]
"""Sizes and degrees: floor division happens in these, before anything becomes a float."""
Floats = npt.NDArray[np.float64]
"""Everything that has been multiplied: FLOP counts pass 9.2e18, which int64 cannot hold."""

Strategy = Literal["1d", "2d", "2d-seqp"]
"""1d tensor parallelism, 2d SUMMA, or 2d with the sequence split over the second dimension."""
STRATEGIES: tuple[Strategy, ...] = ("1d", "2d", "2d-seqp")
"""The three strategies, as the published tables spell them."""
Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"]
"""Collectives of the model; broadcast and reduce are SUMMA's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyModel:
    """A transformer of equal layers with feed-forward width 4e; no embedding, no head."""

    name: str
    """Name as the published tables spell it."""
    seq_len: int
    """Tokens of one sample, l."""
    embed: int
    """Width of the residual stream, e."""
    heads: int
    """Attention heads, h."""
    layers: int
    """Transformer layers, L."""
    causal: bool
    """Whether attention is masked in truth (the published model never masks)."""
    samples: float
    """Samples of the whole training run, for the conversion of throughput to days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyChip:
    """A GPU and its two network tiers, as the published configuration files describe them."""

    name: str
    """Name as the published tables spell it."""
    matrix_flop_per_s: float
    """Peak of GEMM and attention, fp16, dense."""
    vector_flop_per_s: float
    """Peak of everything else, fp16."""
    hbm_bytes_per_s: float
    """Memory bandwidth, used at 100 %."""
    hbm_bytes: float
    """Memory capacity, used at 100 %."""
    fast_bytes_per_s: float
    """NVLink bandwidth of one GPU, one direction."""
    slow_bytes_per_s: float
    """InfiniBand bandwidth of one NIC, one direction."""
    compute_efficiency: float = 0.8
    """Share of either peak that any kernel reaches."""
    launch_s: float = 20e-6
    """Fixed cost of one op in one direction; hidden when the op is memory-bound."""
    link_efficiency: float = 0.7
    """Share of either tier's bandwidth that a collective reaches."""
    fast_latency_s: float = 2.5e-6
    """Latency of one hop inside the fast domain."""
    slow_latency_s: float = 5e-6
    """Latency of one hop between fast domains."""
    nics_per_gpu: float = 1.0
    """NICs that each GPU of a mixed group brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """What the published code does differently from what it means: True is as published.

    Numbers in brackets are those of docs/reference.md. Modelling limits have no switch, since
    correcting them is another model: no activation recomputation, embedding, head, loss, optimizer
    step or input (8); one kernel efficiency, HBM at 100 %, no fusion (9); exposed tensor-parallel
    communication except SUMMA's, blocking all-gather for context, plain 1F1B, ZeRO-1 only (10); two
    flat tiers, rings only, no congestion (11); no workspace, fragmentation or fp32 gradients, stage
    0's activations on every stage (12); doublings only for SUMMA's panels and one strategy per run
    (15). Quirk (4) is the launcher's and touches no equation.
    """

    layernorm_2d_width: bool = True
    """(1) SUMMA's LayerNorm, and so its pipeline message, is l/m1 wide; corrected: e/m1."""
    free_slow_p2p: bool = True
    """(2) Pipeline hops between domains cost nothing once nv_pp > 1; corrected: each costs a slow hop."""
    single_tier_all_reduce: bool = True
    """(3) An all-reduce within one tier moves its volume once; corrected: twice, as in the mixed case."""
    dropped_tokens: bool = True
    """(5) l/m2 and l/(m1 m2) are floored, dropping tokens; corrected: the real quotient, which keeps them."""
    constant_nvlink: bool = True
    """(6) Any t GPUs of a domain get the full NVLink rate; corrected: (t-1)/(domain-1) of it where
    the GPUs are wired to each other, that is in domains of at most four. Larger ones have a switch,
    and there the constant rate is right."""
    gathered_inputs_stored: bool = True
    """(7) 1d and seqp store the gathered input of qkv and fc1; corrected: the m1 shard, and a
    charged all-gather in the backward pass, as Megatron's sequence parallelism does."""
    unmasked_attention: bool = True
    """(8) Causal models attend to all keys; corrected: to (l+1)/2 of them on average, evenly spread."""
    scaled_vector_flops: bool = True
    """(13) flops_per_gpu counts attention's vector work times matrix/vector peak; corrected: once.
    Only this reported figure changes: the time must scale, since it divides by the matrix peak."""
    a100_bandwidth: bool = True
    """(13) The A100 has the 80 GB part's capacity and the 40 GB part's 1555 GB/s; corrected: 2039
    GB/s (NVIDIA A100 datasheet, SXM 80 GB)."""
    full_bias_1d: bool = True
    """(tables) 1d charges fc2's and vproj's bias on all b l rows although the rows were just
    scattered over m1; corrected: on b l/m1 rows, as seqp does for fc2."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every quirk, in the order of their definition."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def corrected(cls, *names: str) -> "Quirks":
        """As published except for the named quirks; with no name, every quirk corrected."""
        return replace(cls(), **dict.fromkeys(names or cls.names(), False))


_TABLES = read_table(Path(__file__).with_name("study.toml"))
MODELS = {name: StudyModel(name=name, **told) for name, told in _TABLES["model"].items()}
"""The published models."""
CHIPS = {name: StudyChip(name=name, **told) for name, told in _TABLES["chip"].items()}
"""The published chips with their network tiers."""
WIRED_DOMAIN = 4
"""Largest fast domain without a switch: boards of four GPUs join every pair directly."""
A100_80GB_BYTES_PER_S = 2039e9
"""Memory bandwidth of the A100 SXM 80 GB (NVIDIA A100 datasheet)."""


def with_quirks(chip: StudyChip, quirks: Quirks) -> StudyChip:
    """The chip with its data quirk corrected where asked; only the published A100 has one."""
    if quirks.a100_bandwidth or chip != CHIPS["A100"]:
        return chip
    return replace(chip, hbm_bytes_per_s=A100_80GB_BYTES_PER_S)
