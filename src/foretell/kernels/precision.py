"""Recipes of low precision: which format products run in, what a cast moves, what is kept besides.

    precision  scaling   format      one scale for          casts move (over one read and one write)
    fp8        tensor    fp8         a tensor               4/3: read 16 bits, write it and its transpose;
                                                            2 where the scale is found first (torchao)
    fp8        row       fp8         a row, a column        2: the transpose has other scales, read again
    fp8        block     fp8-block   1 x 128 and 128 x 128  4/3: both directions from one tile
    mxfp8                mxfp8       32 values              4/3
    nvfp4                nvfp4       16 values, a tensor    2: the tensor's largest value is found first

Attention, head, table, router, norms and sums stay in 16 or 32 bits in every recipe; gradients, master copy
and states are choices of their own. Beside the 16-bit weights lie copies in the format, as long as a step's
micro-batches use them: one for each direction in which products read a matrix, the same one twice where the
chip's units take it transposed (Blackwell, scaled by tensor). A frozen base in fp8 is one copy: where units
do not take it transposed, it is turned for every data gradient (Transformer Engine without its cache of
transposes, as the recipes of adapters set it).
"""

from collections.abc import Mapping
from dataclasses import replace

from foretell.kernels.calls import kept_high
from foretell.kernels.families.base import DTYPES
from foretell.specs.plan import WIDE_PRECISIONS, Plan, activation_bytes
from foretell.specs.plan_words import PrecisionName
from foretell.specs.software import Software
from foretell.workload.graph import Saved
from foretell.workload.ops import Gemm, Op
from foretell.workload.roles import ATTENTIONS, Region, SavedRole

LOW_PRECISION: Mapping[str, str] = {"fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
"""Format of the linear layers for each low-precision recipe; the rest stays in 16 bits."""
CAST_PASSES, ROW_CAST_PASSES = 4.0 / 3.0, 2.0
"""Traffic of a cast over one read and one write: the format written twice, as it is and transposed; and where
16 bits are read twice, for two casts or for the largest value and the cast."""
EITHER_WAY = ("blackwell", "blackwell-ultra", "rubin")
"""Architectures whose fp8 units read an operand in both orders."""
NARROW_KEPT = (SavedRole.ENTRY, SavedRole.EXPERT_INPUT, SavedRole.ACTIVATED)
"""Saved tensors that are inputs of linear layers and of nothing else that the backward pass reads."""


WEIGHED_BYTES = 4.0
"""An element of what experts give, where it is weighed in 32 bits."""
RESULT_BYTES = 1.5
"""An element of attention's result in E5M6, 12 bits (DeepSeek-V3 technical report, section 3.3)."""


def linear_format(plan: Plan) -> str | None:
    """Format of the linear layers' products; None where they run as all others do."""
    if plan.precision == "fp8" and plan.scaling == "block":
        return "fp8-block"
    return LOW_PRECISION.get(plan.precision)


def plain_format(plan: Plan) -> PrecisionName:
    """Format of the products that no low-precision recipe narrows."""
    return plan.precision if plan.precision in ("fp16", *WIDE_PRECISIONS) else "bf16"


def cast_passes(plan: Plan, software: Software) -> float:
    """Traffic of a cast over one read of 16 bits and one write of the format."""
    by_row = plan.precision == "fp8" and plan.scaling == "row"
    anew = plan.precision == "fp8" and plan.scaling == "tensor" and software.casts_anew
    return ROW_CAST_PASSES if by_row or anew or plan.precision == "nvfp4" else CAST_PASSES


def is_narrow(op: Op) -> bool:
    """Whether a low-precision recipe runs an operation in its format."""
    return isinstance(op, Gemm) and not kept_high(op)


def is_linear(op: Op) -> bool:
    """Whether an operation is one matrix on all tokens, not one of many experts'."""
    return isinstance(op, Gemm) and op.family != "grouped-gemm"


def reads_either_way(plan: Plan, architecture: str) -> bool:
    """Whether one copy of a weight serves products in both directions."""
    scaled = plan.precision == "fp8" and plan.scaling == "tensor"
    return scaled and architecture in EITHER_WAY


def turned_anew(plan: Plan, architecture: str) -> bool:
    """Whether frozen weights that are kept in fp8 are transposed for every data gradient, not kept twice."""
    frozen = plan.lora > 0 and plan.weights == "fp8" and plan.precision == "fp8"
    return frozen and not reads_either_way(plan, architecture)


def copy_bytes(plan: Plan, software: Software, architecture: str) -> float:
    """Bytes per weight of a linear layer of the copies in the format, beside the working weights."""
    name = linear_format(plan)
    if name is None or software.narrow == "none":
        return 0.0
    one = reads_either_way(plan, architecture) or turned_anew(plan, architecture)
    copies = 1.0 if one else 2.0
    # Working weights that are in the format already are one of the copies.
    copies -= 1.0 if plan.weights == "fp8" and plan.precision == "fp8" else 0.0
    return copies * DTYPES[name].weight_bytes


def wide_share(plan: Plan, layers: int) -> float:
    """Share of a model's layers whose products stay in 16 bits beside a recipe of fewer."""
    narrow = linear_format(plan) is not None
    return min(plan.wide_layers / max(layers, 1), 1.0) if narrow else 0.0


def kept_width(tensor: Saved, plan: Plan, software: Software, wide: float = 0.0) -> float:
    """Bytes per element of a saved tensor, in the mean of layers of which a share `wide` is in 16 bits.

    What fused kernels compute again is not kept; inputs of linear layers are kept as their products read
    them where the software does so.
    """
    if wide:
        plain = replace(plan, precision=plain_format(plan))
        narrow = kept_width(tensor, plan, software)
        return (1.0 - wide) * narrow + wide * kept_width(tensor, plain, software)
    own, name = tensor.bytes_per_element or activation_bytes(plan), linear_format(plan)
    if tensor.fused_away and plan.fused:
        return 0.0
    if software.weighs_inside and _expert_results(tensor):
        return 0.0
    if software.weighs_wide and _expert_results(tensor):
        return WEIGHED_BYTES
    if name is None or software.narrow == "none":
        return own
    narrow = DTYPES[name].activation_bytes
    if plan.flash and tensor.role is SavedRole.RESULT and tensor.region in ATTENTIONS:
        # The fused attention's backward pass reads it too, in 16 bits.
        return RESULT_BYTES if software.narrow == "all" else own + narrow
    if tensor.role is SavedRole.UP and software.narrow == "all":
        return narrow
    return narrow if tensor.role in NARROW_KEPT else own


def passing_width(tensor: Saved, plan: Plan, software: Software) -> float:
    """Bytes per element that the backward pass of a saved tensor holds: its gradient, and of results that are
    weighed in 32 bits their gradient, its product with the scores and that with the results besides."""
    copies = 3.0 * WEIGHED_BYTES if software.weighs_wide and _expert_results(tensor) else 0.0
    return activation_bytes(plan) + copies


def _expert_results(tensor: Saved) -> bool:
    """What routed experts give, which the gradient of their weights reads where it is weighed last."""
    return tensor.role is SavedRole.RESULT and tensor.region is Region.EXPERTS
