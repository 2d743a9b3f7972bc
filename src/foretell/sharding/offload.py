"""Offloading: weights, activations or the optimizer's states live in the host's memory.

The link to the host carries both directions at once; what it carries hides behind the pass it belongs to,
and what is longer is exposed (ZeRO-Offload and ZeRO-Infinity, Rajbhandari et al. 2021):

    forward    activations out, weights in
    backward   activations and weights in
    update     states in and out; new weights out where they live there

    exposed = max(0, bytes of the busier direction / link - pass)

States in the host's memory are updated by its cores (training/update.py), but for those in 8 bits, which come
to the chip and go layer by layer. What stays on the chip of something offloaded is two layers' worth of it:
one in use and one on its way.
"""

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan_forms import offloads

LINK_SHARE = 0.85
"""Share of the nominal link that copies from pinned memory reach: some 54 of PCIe 5.0's 63 GB/s, 26 of
PCIe 4.0's 31.5 (recalled, not measured here)."""
BUFFERED = 2.0
"""Layers on the chip of something that lives in the host's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """What one rank of a stage has of each, wherever it lives; arrays are (plans, stages)."""

    weight_bytes: Num
    """Working weights of this rank."""
    state_bytes: Num
    """Master copy and states of this rank."""
    kept_bytes: Num
    """Activations kept for one micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Bytes over the host link, in the busier direction."""

    forward_bytes: Array
    """In the forward pass of one micro-batch."""
    backward_bytes: Array
    """In its backward pass."""
    update_bytes: Array
    """In the update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedCopies:
    """Seconds of copies that nothing hides."""

    forward_s: Array
    """In the forward pass of one micro-batch."""
    backward_s: Array
    """In its backward pass."""
    update_s: Array
    """In the update."""
    usual_s: Array
    """In the backward pass of every micro-batch but the last, which may wait for messages besides."""
    inputs_s: Array
    """In a backward pass to the inputs that runs apart."""


def host_copies(offload: str, held: StateBytes, backward_gathers: bool = True) -> Copies:
    """Bytes of the copies of one micro-batch's passes and of the update.

    `backward_gathers` is False where weights stay on the chip between the passes (no-reshard): they are
    not brought in again.
    """
    names = offloads(offload)
    nothing = np.zeros(np.broadcast(held.weight_bytes, held.state_bytes, held.kept_bytes).shape)
    weights = nothing + (held.weight_bytes if "weights" in names else 0.0)
    kept = nothing + (held.kept_bytes if "activations" in names else 0.0)
    states = nothing + (held.state_bytes if "optimizer" in names else 0.0)
    return Copies(
        forward_bytes=np.maximum(kept, weights),
        backward_bytes=kept + (weights if backward_gathers else 0.0),
        update_bytes=states + weights,
    )


def link_seconds(size: Array, chip: Chip) -> Array:
    """Seconds that the host link takes for these bytes; 0 for none, whatever the link."""
    # A link of unknown speed is refused before this; without copies it does not matter.
    bytes_per_s = LINK_SHARE * chip.host_bytes_per_s
    return np.divide(size, bytes_per_s, out=np.zeros_like(size), where=size > 0.0)


def exposed_copies(
    copies: Copies,
    chip: Chip,
    forward_s: Num,
    backward_s: Num,
    update_s: Num,
    *,
    usual_s: Num | None = None,
    inputs_s: Num | None = None,
) -> ExposedCopies:
    """What of the copies is longer than the pass they hide behind; `usual_s` is the backward pass of every
    micro-batch but the last, `inputs_s` the one to the inputs alone, where they differ from `backward_s`."""
    usual_s = backward_s if usual_s is None else usual_s
    inputs_s = backward_s if inputs_s is None else inputs_s

    def beyond(size: Array, behind_s: Num) -> Array:
        return np.asarray(np.maximum(link_seconds(size, chip) - behind_s, 0.0))

    return ExposedCopies(
        forward_s=beyond(copies.forward_bytes, forward_s),
        backward_s=beyond(copies.backward_bytes, backward_s),
        update_s=beyond(copies.update_bytes, update_s),
        usual_s=beyond(copies.backward_bytes, usual_s),
        inputs_s=beyond(copies.backward_bytes, inputs_s),
    )


def on_chip(offload: str, name: str, all_bytes: Num, layer_bytes: Num) -> Array:
    """Bytes of `name` (optimizer, activations, weights) that the chip's memory holds.

    `all_bytes` is the whole of it, `layer_bytes` the largest layer's share.
    """
    if name not in offloads(offload):
        return np.asarray(all_bytes, float)
    return np.asarray(np.minimum(all_bytes, BUFFERED * layer_bytes))
