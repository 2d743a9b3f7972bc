"""Products and fused attention in 32 bits (`precision=fp32` and `precision=tf32`), where they differ from 16.

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

import numpy as np

from foretell.kernels.call_records import CallStack
from foretell.kernels.families.base import Engine, matrix_peak
from foretell.specs.chip import Chip
from foretell.specs.plan import WIDE_PRECISIONS

TURNED = {"hopper": 0.63}
"""Share of the TF32 peak for products whose operands do not lie along the contraction, by architecture."""
TIMES = 3.0
"""Products of TF32 that stand for one of 32 bits."""
OVER_FLASH = {"prefill": 0.64, "prefill-backward": 1.0}
"""Share of FlashAttention 2's rate that fused attention in 32 bits reaches."""


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
