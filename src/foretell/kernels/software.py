"""What each framework's generation holds beside the tensors that the arithmetic asks for.

loss        Unfused, cross-entropy in 32 bits holds 12 bytes a score: the scores, a copy in 32 bits, the
            gradient, rounded again. Fused into one kernel, or compiled, it holds the scores and their
            gradient in 16 bits: 4. The loss of torchtitan is not compiled where the vocabulary is cut (16
            bytes: DTensors in 32 bits, operation by operation), and until early 2025 nowhere.
            Where nothing is in 32 bits, plain kernels hold scores, their log-softmax and the gradients of
            both in 16 bits: 8 (steps of five translation models on one H200, peaks of the allocator).
gradients   Transformer Engine adds the gradients of weights to their sums inside the products and hands
            PyTorch an empty tensor in their place: one for every shape of a matrix, kept (get_dummy_wgrad),
            and Megatron's head has one of its own in its backward pass. DistributedDataParallel keeps
            buckets of all gradients in the weights' dtype beside sums in 32 bits (nanotron logs 20 bytes a
            weight at the end of a step, and 18 without replicas).
            Plain PyTorch makes a gradient when the backward pass comes to its weight and gives it up after
            the update: with one micro-batch and no replicas it never meets all activations
            (training/late_gradients.py). Elsewhere a buffer holds it through the step: sums over
            micro-batches, buckets of replicas, Megatron's main_grad. FSDP's shards are made late too, but
            on a stream of their own, and the allocator gives a stream nothing of what another's tensors
            left.
weights     FSDP holds one copy, that of the master weights, and rounds what it gathers. After an update
            nanotron's ZeRO 1 holds the gathered weights and its own part of them beside the working ones (it
            logs 10 + 14 / z bytes a weight at the end of a step, z ranks), and gives them up before the next
            passes (what it had reserved by then is often no more than that).
narrow      Transformer Engine keeps inputs of linear maps and copies of the weights in the narrow format;
            torchao keeps both in 16 bits and rounds them again where they are used.
"""

from collections.abc import Mapping

from foretell.catalog.frameworks import framework as catalogued
from foretell.records import dataclass
from foretell.specs.plan import DTYPE_BYTES, Plan

PLAIN_LOSS_BYTES, NARROW_LOSS_BYTES, FUSED_LOSS_BYTES = 12.0, 8.0, 4.0
"""Bytes held for each score, the score itself included."""
DTENSOR_LOSS_BYTES = 16.0
"""The same where PyTorch's loss_parallel runs over a cut vocabulary, operation by operation: log-softmax, its
gradient, their exponentials and the sum, in 32 bits (counted storage by storage on a group of eight)."""
LEFT_OUT = "~"
"""Between a framework's name and a source that is left out (catalog/frameworks.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What one framework holds."""

    loss_fused: bool = False
    """Cross-entropy in one kernel that reads and writes 16 bits."""
    loss_fused_cut: bool = False
    """The same where tensor parallelism cuts the vocabulary."""
    loss_cut_bytes: float = PLAIN_LOSS_BYTES
    """Bytes held for each score where it does and the loss is not fused."""
    placeholders: bool = False
    """An empty gradient in the weights' dtype for every shape of a matrix, and for the head."""
    buckets: bool = False
    """All gradients once more in the weights' dtype, where there are replicas."""
    late_gradients: bool = False
    """With one micro-batch and no replicas, gradients are made while activations are given back."""
    gathered_stay: bool = False
    """With ZeRO 1, gathered weights and this rank's part of them beside the working ones after an update."""
    one_copy: bool = False
    """With ZeRO 3 the shared weights are the master copy."""
    plain_share: float = 0.1
    """What the allocator reserves beyond what tensors take, as a share of that, where modules are plain."""
    narrow: bool = False
    """Inputs of linear maps are kept in the narrow format, and so are copies of their weights."""
    gathered_kept: bool = False
    """Inputs that sequence parallelism gathered may stay kept, in the place of a rank's part: a version or an
    option decides, so that the peak is as said or higher (uncertainty/memory.py)."""


PLAIN = Software()
"""Nothing special."""
BY_FRAMEWORK: Mapping[str, Software] = {
    "generic": Software(narrow=True),
    "megatron": Software(),
    "megatron-te": Software(loss_fused=True, loss_fused_cut=True, placeholders=True, narrow=True),
    "megatron-core": Software(loss_fused=True, loss_fused_cut=True, placeholders=True, narrow=True),
    "megatron-graphs": Software(
        loss_fused=True, loss_fused_cut=True, placeholders=True, narrow=True
    ),
    "megatron-deepspeed": Software(),
    # Its versions differ in whether they keep inputs that sequence parallelism gathered: 14 % has both.
    "nanotron": Software(buckets=True, gathered_stay=True, plain_share=0.14, gathered_kept=True),
    "flash-attn": Software(loss_fused=True, loss_fused_cut=True),
    "fsdp": Software(one_copy=True),
    "fsdp-compiled": Software(loss_fused=True, one_copy=True),
    "torchtitan": Software(
        loss_fused=True, loss_cut_bytes=DTENSOR_LOSS_BYTES, one_copy=True, gathered_kept=True
    ),
    "torchtitan-2024": Software(
        loss_cut_bytes=DTENSOR_LOSS_BYTES, one_copy=True, gathered_kept=True
    ),
    "internevo": Software(),
    "jax": Software(loss_fused=True, loss_fused_cut=True),
    "neuronx": Software(loss_fused=True, loss_fused_cut=True),
    "pytorch-eager": Software(late_gradients=True),
    "pytorch-compiled": Software(loss_fused=True, late_gradients=True),
}
"""By the framework's name in a plan. The fused loss and the placeholders are read off runs of Megatron-LM and
Transformer Engine on B200 that print allocated bytes, buckets and gathered weights off the bytes that
nanotron logs at the end of a step; the rest is from the frameworks' code, recalled. Gathered inputs: nanotron
has the option `tp_recompute_allgather`, and PyTorch's DTensors keep what they gathered."""


def software(framework: str) -> Software:
    """What a plan's framework holds; nothing special where its name is not known."""
    return BY_FRAMEWORK.get(framework.partition(LEFT_OUT)[0], PLAIN)


def plain_where_cut(framework: str) -> bool:
    """Whether the loss is plain kernels over a cut vocabulary though one kernel over a whole one."""
    held = software(framework)
    return held.loss_fused and not held.loss_fused_cut


def narrow_loss(plan: Plan) -> bool:
    """Whether the loss runs in 16 bits: no copy of the weights is in 32, and they are not themselves."""
    return plan.master == "none" and DTYPE_BYTES[plan.weights] < 4.0


def spared_loss_bytes(framework: str, *, fused: bool, narrow: bool = False) -> tuple[float, float]:
    """Of a score's 12 bytes what a fused loss, or one in 16 bits, spares: whole vocabulary, and cut by tensor
    parallelism. A framework whose loss is a kernel of its own has it in plain runs too (loss_fused in
    catalog/frameworks.toml)."""
    spared, held = PLAIN_LOSS_BYTES - FUSED_LOSS_BYTES, software(framework)
    own = catalogued(framework).loss_fused
    least = PLAIN_LOSS_BYTES - (NARROW_LOSS_BYTES if narrow else PLAIN_LOSS_BYTES)
    least_cut = PLAIN_LOSS_BYTES - (NARROW_LOSS_BYTES if narrow else held.loss_cut_bytes)
    return (
        spared if own or (fused and held.loss_fused) else least,
        spared if own or (fused and held.loss_fused_cut) else least_cut,
    )
