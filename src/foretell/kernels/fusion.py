"""Passes over memory as frameworks make them: how many times the least traffic, and how many kernels.

An operation's least traffic reads its inputs and writes its outputs once. Compiled kernels come near to that
forward; backward they read more (reductions for the weights' gradients, uneven strides). Plain kernels, one
after the other, write every step out. Counted by kernel times of real layers and steps on one H200 (PyTorch
2.11, profiler; hidden 4096 gated with rotary positions, hidden 1600 plain with biases); as multiples of the
time of the least bytes they carry over to other chips: 2023's serving kernels on A100 and H100 give 2.0 for
rotary positions, 1.6 for activations and 2.6 for norms (Vidur's profiles).
"""

from collections.abc import Mapping

from foretell.records import dataclass
from foretell.workload.ops import Op
from foretell.workload.roles import OpRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """One kind of operation, forward and backward."""

    forward: float
    """Traffic over the least, forward."""
    backward: float
    """The same, backward."""
    kernels: float = 1.0
    """Kernels launched, forward."""
    back: float = 2.0
    """Kernels launched backward, over those forward."""


FUSED: Mapping[str, Passes] = {
    "norm": Passes(forward=1.5, backward=2.4),
    "cast": Passes(forward=1.35, backward=1.35),
    "residual": Passes(forward=1.1, backward=1.5),
    "act": Passes(forward=1.2, backward=1.9),
    "rotate": Passes(forward=1.5, backward=2.7),
    "scaled-rotate": Passes(forward=1.5, backward=2.7),
    "bias": Passes(forward=0.0, backward=2.4),
    "loss": Passes(forward=0.65, backward=0.9),
    "loss16": Passes(forward=0.65, backward=0.9),
    "embedding": Passes(forward=1.1, backward=2.0),
    "routing": Passes(forward=1.2, backward=1.5),
    "softmax": Passes(forward=1.3, backward=1.3),
    "expert-bias": Passes(forward=0.0, backward=0.0),
    "clamp": Passes(forward=0.0, backward=0.0),
    "join": Passes(forward=0.0, backward=0.0),
    "heads": Passes(forward=0.0, backward=0.0),
    "repeat": Passes(forward=0.0, backward=0.0),
    "halves": Passes(forward=0.0, backward=0.0),
    "other": Passes(forward=1.3, backward=2.0),
}
"""By a compiler or by hand."""
PLAIN: Mapping[str, Passes] = {
    "norm": Passes(forward=1.5, backward=3.4),
    "residual": Passes(forward=1.1, backward=1.5),
    "act": Passes(forward=1.8, backward=2.9, kernels=2.0),
    "rotate": Passes(forward=13.0, backward=20.0, kernels=10.0),
    "scaled-rotate": Passes(forward=13.0, backward=20.0, kernels=10.0),
    "bias": Passes(forward=0.0, backward=2.5),
    "loss": Passes(forward=2.8, backward=4.4, kernels=4.0),
    "loss16": Passes(forward=0.95, backward=1.5, kernels=3.0),
    "embedding": Passes(forward=1.1, backward=2.0),
    "routing": Passes(forward=6.5, backward=3.2, kernels=4.0),
    "softmax": Passes(forward=2.2, backward=2.2, kernels=3.0),
    "cast": Passes(forward=1.35, backward=1.35),
    "join": Passes(forward=0.0, backward=0.0),
    "heads": Passes(forward=0.0, backward=0.0),
    "repeat": Passes(forward=0.0, backward=0.0),
    "halves": Passes(forward=0.0, backward=0.0),
    "expert-bias": Passes(forward=7.0, backward=18.0, kernels=4.0),
    "clamp": Passes(forward=2.0, backward=1.7, kernels=3.0),
    "other": Passes(forward=2.0, backward=3.0, kernels=2.0),
}
"""One plain kernel after the other. A plain loss casts the scores to 32 bits and back (36 bytes a score, both
passes); `loss16` keeps them as they are (12), as runs do whose weights are in 16 bits alone. Biases of
experts as Megatron-Core adds them (experts.py): times the router's weight, to the rows, experts joined, back
to 16 bits, 28 bytes an element in 32 bits; backward 36, for the gradients of rows, biases and weights. Clamps
as it makes them before its fused activation (fused_bias_geglu.py): both halves clamped, and joined again;
backward the gradients of each and their join. A kernel that has them in its epilogue moves none."""
MODULES: Mapping[str, Passes] = {
    **PLAIN,
    "rms": Passes(forward=13.4, backward=20.1, kernels=8.0),
    "rms-frozen": Passes(forward=13.4, backward=18.2, kernels=8.0, back=1.6),
    "dropped": Passes(forward=1.9, backward=2.7, kernels=2.0, back=1.0),
    "residual": Passes(forward=1.0, backward=1.4, back=1.0),
    "act": Passes(forward=1.64, backward=1.76, kernels=2.0, back=1.5),
    "composed": Passes(forward=9.0, backward=10.0, kernels=8.0),
    "rotate": Passes(forward=15.2, backward=25.0, kernels=10.0),
    "scaled-rotate": Passes(forward=15.2, backward=25.0, kernels=10.0),
    "loss": Passes(forward=2.44, backward=4.8, kernels=4.0),
    "join": Passes(forward=0.0, backward=1.3, back=1.0),
    "heads": Passes(forward=0.0, backward=1.0),
    "cast": Passes(forward=1.35, backward=1.35, back=1.0),
    "repeat": Passes(forward=1.0, backward=1.0),
    "cap": Passes(forward=1.0, backward=1.0, kernels=3.0),
    "softmax": Passes(forward=5.5, backward=5.25, kernels=4.0),
    "routing": Passes(forward=12.9, backward=7.9, kernels=8.0),
}
"""Modules of transformers in 16 bits (kernels/modules.py), by the kernels of a Llama layer on one H200,
hidden 4096: bytes as they are counted, at the rates that PyTorch's kernels reach. Those that broadcast a row
or a column, or read heads behind a transposition, reach 1.2 to 2.7 of the 4.1 TB/s of long vectors."""
WIDE_MODULES: Mapping[str, Passes] = {
    **MODULES,
    "rms": Passes(forward=10.2, backward=20.3, kernels=6.0),
    "rms-frozen": Passes(forward=10.2, backward=18.4, kernels=6.0, back=1.6),
    "norm": Passes(forward=3.0, backward=6.8),
    "dropped": Passes(forward=3.4, backward=5.9, kernels=2.0),
    "residual": Passes(forward=2.5, backward=4.6),
    "composed": Passes(forward=23.6, backward=24.3, kernels=9.0),
    "rotate": Passes(forward=19.5, backward=32.0, kernels=12.0),
    "scaled-rotate": Passes(forward=19.5, backward=32.0, kernels=12.0),
    "loss": Passes(forward=3.73, backward=4.8, kernels=5.0),
    "join": Passes(forward=0.0, backward=2.5, back=1.0),
    "softmax": Passes(forward=7.1, backward=6.8, kernels=4.0),
}
"""The same under autocast, with weights and the residual stream in 32 bits; scores are written in 32 bits
once more for the caller. A composed activation mixes both widths, at the rate of casts."""
COMPLEX_ROTARY = Passes(forward=5.0, backward=5.0, kernels=4.0)
"""Rotary positions in complex numbers: to 32 bits, the product, back: 6 + 8 + 6 bytes for at least 4."""
COMPOSED_NORM = Passes(forward=9.0, backward=14.0, kernels=7.0)
"""RMS norms operation by operation in 32 bits (to 32 bits, square, mean, product, back, times weights): 36
bytes for at least 4; their gradients, one operation after the other, 84 for at least 6."""
REPEATED = Passes(forward=1.0, backward=1.0)
"""Shared keys and values written out for every head, where a framework does so."""
JOINED = Passes(forward=0.0, backward=1.0)
"""Sums of the gradients of one input, where its maps are products of their own; elsewhere there is one."""
COMPILED_SORTS = Passes(forward=5.4, backward=1.2, kernels=3.0)
"""Sorting tokens by expert and adding their rows up again under a compiler, which leaves both to the library:
whole layers of experts on one H200, 16 to 128 of them, less their products (calibrate measure, experts)."""
SPREAD_SORTS = Passes(forward=2.1, backward=4.75, kernels=2.5)
"""Sorting tokens by plain kernels for a plain all-to-all: once by PLAIN's, and once more a copy by rank."""

SPREAD_FUSED = Passes(forward=2.2, backward=2.5, kernels=2.0)
"""The same by fused kernels: sorted once by FUSED's, and once more a copy by rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCost:
    """What the host spends to start an operation's kernels, forward."""

    operation_s: float
    """On each operation: modules, dispatch, the graph of gradients."""
    kernel_s: float
    """On each launch."""
    backward: float
    """Backward over forward, for as many kernels."""


HOSTS: Mapping[bool, LaunchCost] = {
    True: LaunchCost(operation_s=5e-6, kernel_s=8.5e-6, backward=1.0),
    False: LaunchCost(operation_s=30e-6, kernel_s=8.5e-6, backward=1.4),
}
"""Compiled, and plain: a layer of 256 tokens takes 0.48 ms forward and 1.39 ms backward in plain PyTorch on
the host of one H200, whatever its width; a launch 8.5 us. Another CPU is another number."""
COLLECTIVE_HOST_S = 45e-6
"""What the host takes to start one collective through torch.distributed: checks, events, a launch."""
SIDE_BY_SIDE = 6.0
"""Power of the norm that joins the host's time and the chip's: the longer one shows, nearly alone."""
KINDS = ("norm", "loss", "embedding", "routing")
"""Families of operations that are a kind by themselves."""
BY_ROLE = {
    OpRole.RESIDUAL: "residual",
    OpRole.ADAPTER_SUM: "residual",
    OpRole.ACTIVATION: "act",
    OpRole.ROTATION: "rotate",
    OpRole.SCALED_ROTATION: "scaled-rotate",
    OpRole.EXPERT_BIAS: "expert-bias",
    OpRole.CLAMP: "clamp",
}
"""Kinds of operations of the other families, by what they do."""


def kind_of(op: Op) -> str:
    """The kind of a pass over memory."""
    if op.family in KINDS:
        return op.family
    return BY_ROLE.get(op.role, "other")


def passes(kind: str, fused: bool) -> Passes:
    """The traffic of a kind under a compiler, or without."""
    table = FUSED if fused else PLAIN
    return table.get(kind, table["other"])
