"""Which kernels a plan's operations run on a chip: coefficients of their families, and the chip's rates.

Products and fused attention in 32 bits (`precision=fp32` and `precision=tf32`) differ from those in 16:

turned     The matrix instructions of Hopper that reach its peak (wgmma) read operands of 32 bits along the
           contraction alone; those of 16 bits either way (PTX ISA, wgmma.mma_async). The forward product
           lies so, both products of the backward pass do not, and run by the instructions of the generation
           before, which reach 0.63 of the peak there (Luo et al. 2024, arXiv 2402.13499: 62.9 % on average).
attention  Fused attention in 32 bits is CUTLASS's, whose products are three of TF32 each whether TF32 is
           allowed or not, on chips that have it. Over FlashAttention 2 at that third of the peak it reaches
           0.64 forward and 1.0 backward: 12 layers of gpt-124m on one H200, PyTorch 2.11, 0.87 and 2.07 ms.
loss       Scores are in 32 bits already: nothing is cast (kernels/op_times.py).
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.kernels.call_records import CallStack
from foretell.kernels.families.base import DTYPES, Engine, attainable, engine_of, matrix_peak
from foretell.kernels.families.choose import FamilyCoefficients, choose, of_kin, spread_of
from foretell.kernels.families.gemm import GemmCoefficients
from foretell.kernels.modules import is_wide
from foretell.kernels.precision import cast_passes, linear_format, plain_format
from foretell.kernels.stack_passes import fuses_experts
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import WIDE_PRECISIONS, Plan
from foretell.specs.software import Software

SOFTWARE = ("torch", "trtllm", "sglang", "vllm")
"""Whose kernels stand for training's, the nearest first."""
LIBRARY = ("torch", "trtllm")
"""Whose products are the vendor library's, as training's are; vLLM brings its own in narrow formats."""
ATTENTION = {
    "fa1": "torch-fa1",
    "fa2": "torch-fa2",
    "fa3": "torch-fa3",
    "cudnn": "torch-cudnn",
    "cudnn8": "torch-cudnn",
}
"""Library of a plan's attention -> the software its kernels were measured under."""
ATTENTION_BACKWARD = {**ATTENTION, "cudnn8": "torch-fa2"}
"""The same of its backward pass. cuDNN 8.9 and 9.0 had a new scheme there up to 256 MB of scratch, the
gradient of all scores in 16 bits (one sequence of 2,000 tokens in 32 heads), and FlashAttention-2's else."""
BEST_ATTENTION = {
    "hopper": "cudnn",
    "blackwell": "cudnn",
    "blackwell-ultra": "cudnn",
    "rubin": "cudnn",
}
"""The fastest library of an architecture; fa2 elsewhere."""
ROW_PRODUCTS = 0.73
"""Share of the vendor library's rate that products with a scale a row reach: by CUTLASS, in PyTorch as in
vLLM, whose fp8 table on Blackwell tops out at 0.55 of the peak where the library's has 0.757."""
CAST_LAUNCH_S = 3e-6
"""Launch of a product whose operands are already narrow."""
SPLASH_CHIPS = ("tpu",)
"""Architectures whose attention is a kernel of large blocks over few wide cores (JAX's splash attention)."""
SPLASH_BLOCK, SPLASH_SOFTMAX = 2048.0, 0.7
"""Queries and keys of its blocks (sa_block_q, sa_block_kv of MaxText), of which a causal mask leaves
out whole ones alone: 1.25 times the pairs at 8,192 tokens, hardly more at 131,072; and plain operations of a
pair over those of a GPU's, by recipes of 8,192 tokens on v6e and v7x (tpu-recipes)."""
SPLASH_LANES = 128.0
"""Sizes of its heads: vectors fill whole rows of the matrix units (NUM_LANES; smaller heads are padded)."""
TURNED = {"hopper": 0.63}
"""Share of the TF32 peak for products whose operands do not lie along the contraction, by architecture."""
TIMES = 3.0
"""Products of TF32 that stand for one of 32 bits."""
OVER_FLASH = {"prefill": 0.64, "prefill-backward": 1.0}
"""Share of FlashAttention 2's rate that fused attention in 32 bits reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyOnChip:
    """A family of kernels on one chip: its coefficients, and the chip as they see it."""

    chosen: FamilyCoefficients
    """The coefficients."""
    engine: Engine
    """The chip's rates for them."""
    spread: tuple[float, ...]
    """Quantiles of the residuals of the coefficients."""
    note: str
    """Where they come from."""


def family_on_chip(
    family: str, dtype: str, chip: Chip, plan: Plan, software: Software
) -> FamilyOnChip:
    """A family of kernels in a format on a chip; numbers of the chip may be arrays."""
    try:
        return _known_family(family, dtype, chip, plan, software)
    except (TypeError, ValueError):  # arrays have no hash, and are not equal as one
        return _family_on_chip(family, dtype, chip, plan, software)


def _family_on_chip(
    family: str, dtype: str, chip: Chip, plan: Plan, software: Software
) -> FamilyOnChip:
    chosen = coefficients(family, dtype, chip, plan, software)
    engine = engine_of(chip, dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    if family == "grouped" and is_wide(plan, software):
        # Autocast has no rule for grouped products: they run as the weights are.
        engine = replace(engine, flop_per_s=engine_of(chip, "fp32").flop_per_s)
    return FamilyOnChip(chosen=chosen, engine=engine, spread=spread_of(chosen), note=chosen.note)


_known_family = lru_cache(maxsize=256)(_family_on_chip)
"""The same; kept, since they depend on no size: every new length of a sequence asks for them."""


def required_dtypes(plan: Plan) -> tuple[str, ...]:
    """Matrix peaks that the chip must have for this plan."""
    low = linear_format(plan)
    return (plain_format(plan), DTYPES[low].peak) if low else (plain_format(plan),)


def call_dtype(stack: CallStack, plan: Plan) -> str:
    """The format in which a stack's products run."""
    return (linear_format(plan) if stack.linear else None) or plain_format(plan)


def coefficients(
    family: str, dtype: str, chip: Chip, plan: Plan, software: Software | None = None
) -> FamilyCoefficients:
    """The surface of a family, without its own view of the power limit: the second pass has that."""
    if family in ("prefill", "prefill-backward"):
        name = BEST_ATTENTION.get(chip.architecture, "fa2")
        name = name if plan.attention == "auto" else plan.attention
        name = (
            "fa2" if dtype in WIDE_PRECISIONS else name
        )  # what kernels/plan_kernels.py compares with
        libraries = ATTENTION if family == "prefill" else ATTENTION_BACKWARD
        found = choose(chip, family, dtype, (libraries[name],))
        record = replace(found.record, warm=0.0, touch_flop=0.0)
        if chip.architecture.startswith(SPLASH_CHIPS):
            record = replace(
                record,
                tile_q=SPLASH_BLOCK,
                tile_k=SPLASH_BLOCK,
                head_step=SPLASH_LANES,
                prologue=record.prologue * record.tile_q / SPLASH_BLOCK,
                softmax_flop=SPLASH_SOFTMAX * record.softmax_flop,
            )
        return replace(found, record=record)
    if family == "grouped":
        return library_products(chip, "experts", dtype)
    if family == "gemm":
        found = library_products(chip, "gemm", dtype)
        record = replace(found.record, fade=0.0)
        if software is not None and DTYPES[dtype].quantised:
            record = fused_cast(record, plan, software)
        return replace(found, record=record)
    return choose(chip, "pointwise", "bf16", SOFTWARE)


def library_bound(
    stack: CallStack, dtype: str, chip: Chip, plan: Plan, software: Software
) -> tuple[Array, Array]:
    """What the vendor library's plain products of grouped ones' sizes take side by side, which grouped
    kernels do not beat, and what casting their operands to a narrow format takes besides.

    Tables of grouped products end at the depths of models' layers. Products for the weights' gradients are as
    deep as an expert has rows.
    """
    chosen = coefficients("gemm", dtype, chip, plan, software)
    engine = engine_of(chip, dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    plain = {"m": stack.sizes["m"], "n": stack.sizes["n"], "k": stack.sizes["k"]}
    plain |= {"batch": stack.sizes["groups"]}
    record: Any = chosen.record
    least_s = chosen.family.seconds(plain | {"cast": np.zeros(1)}, record, engine)
    if not engine.dtype.quantised:
        return least_s, np.zeros(1)
    moved = stack.sizes["cast"] * plain["batch"] * plain["m"] * plain["k"]
    moved = moved * (2.0 + engine.dtype.activation_bytes) * record.quantise
    moved = 0.5 * moved if fuses_experts(plan, software) else moved
    return least_s, np.asarray(moved / (record.memory * engine.bytes_per_s))


def library_products(chip: Chip, family: str, dtype: str) -> FamilyCoefficients:
    """Products of the vendor's library: the chip's own tables of it, those of its generation, any."""
    names = (dtype, "fp8") if dtype == "mxfp8" else (dtype,)
    for name in names:
        found = of_kin(chip, family, name, LIBRARY)
        if found is not None:
            return found
    return choose(chip, family, dtype, SOFTWARE)


def fused_cast(record: GemmCoefficients, plan: Plan, software: Software) -> GemmCoefficients:
    """Products in a narrow format as training runs them: casts fused into what comes before.

    Serving's tables launch the cast by itself and scale row by row; training casts a tensor in one pass
    that reads 16 bits and writes the format twice, as it is and transposed (4 bytes a value in fp8).
    """
    by_row = plan.precision == "fp8" and plan.scaling == "row"
    return replace(
        record,
        compute=record.compute * (ROW_PRODUCTS if by_row else 1.0),
        launch_s=np.minimum(record.launch_s, CAST_LAUNCH_S),
        quantise=cast_passes(plan, software),
        row_s=0.0,
        ragged=0.0,
    )


def in_wide(engine: Engine, stack: CallStack, chip: Chip, dtype: str) -> Engine:
    """The engine as kernels of 32 bits find it; any other as it is."""
    if dtype not in WIDE_PRECISIONS or "tf32" not in chip.matrix_flop_per_s:
        return engine
    if stack.family in OVER_FLASH and chip.vendor == "NVIDIA":
        share = OVER_FLASH[stack.family] / TIMES
        return replace(engine, flop_per_s=share * matrix_peak(chip, "tf32"))
    if stack.family == "gemm" and dtype == "tf32":
        turned = TURNED.get(chip.architecture, 1.0)
        shares = np.where([backward for _, backward in stack.kinds], turned, 1.0)[:, None]
        return replace(engine, flop_per_s=shares * engine.flop_per_s)
    return engine
