"""Weights from the trainer to the rollout engine: Y = fixed + bytes / rate + tensors x c.

ipc         the same cards: each tensor is gathered from the trainer's layout, cut to the engine's, loaded
broadcast   one trainer rank gathers tensor by tensor, narrows, and sends bucket by bucket; gathering takes
            longest, and moves what the trainer keeps: 32-bit weights under FSDP, 16-bit ones of Megatron
p2p         buckets are sent and loaded side by side (checkpoint engines, RDMA reads of one's own shards)
delta       every trainer rank sends the values that changed: it compares its shard with a copy of the last
            one, and each tensor's sizes, places and values are exchanged, then loaded
file        written to shared storage and read back

Weights that live on the host are loaded first; a receiver that narrows them takes as long again. With
adapters alone their bytes are sent. Engines load a checkpoint's names, so that every expert has tensors of
its own, whatever the trainer joins; changed values go by the trainer's own tensors.
"""

from foretell.catalog.post_training import PostTrainingLoop
from foretell.records import dataclass
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.specs.post_training import SyncName
from foretell.specs.system import System

BYTES = 2.0
"""Bytes of a weight on its way."""
DELTA_CALLS = 4.0
"""Calls of a tensor of which changed values alone are sent: sizes, places, values, and loading."""
DENSE_TENSORS, JOINED_EXPERTS = 12.0, 8.0
"""Tensors of a dense layer, biases and norms among them; of one with joined experts."""
EXPERT_TENSORS = 3.0
"""Tensors of an expert: gate, up and down."""
NODE_CHIPS = 8.0
"""Chips that share a host."""
NETWORK_SHARE = 0.7
"""Share of a port's nominal rate that one stream reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncQuestion:
    """One synchronisation."""

    model: Model
    """Whose weights."""
    parameters: float
    """How many."""
    sent_parameters: float
    """How many are sent: all, or those of adapters."""
    mechanism: SyncName
    """How."""
    trainer_gpus: int
    """Ranks that hold shards."""
    offloaded: bool
    """Whether the trainer's weights live on the host."""
    joined: bool
    """Whether the engine gets the experts of a layer as one tensor."""
    kept_bytes: float
    """Bytes of a weight as the trainer gathers it."""
    narrow: bool
    """Whether the receiver narrows the weights to 8 bits."""
    split: bool
    """Whether trainer and engine have cards of their own."""


def kept_bytes(narrow: bool) -> float:
    """Bytes of a weight that is gathered: 16 bits of Megatron and of frozen weights, else the 32 of FSDP's
    and ZeRO's mixed precision."""
    return BYTES if narrow else 2.0 * BYTES


def sync_seconds(q: SyncQuestion, loop: PostTrainingLoop, system: System) -> float:
    """Seconds from the last update to the engine's next token."""
    size = BYTES * q.sent_parameters
    gathered = q.kept_bytes * q.sent_parameters
    if q.mechanism == "delta":
        seconds = loop.sync_delta_s_per_weight * q.sent_parameters / max(q.trainer_gpus, 1)
        seconds += DELTA_CALLS * loop.sync_tensor_s * tensor_count(q.model, joined=True)
    elif q.mechanism == "file":
        seconds = 2.0 * size / loop.sync_file_bytes_per_s
    elif q.mechanism == "p2p":
        seconds = size / min(loop.sync_p2p_bytes_per_s, wire_rate(q, system))
    else:
        ipc = q.mechanism == "ipc"
        rate = loop.sync_ipc_bytes_per_s if ipc else loop.sync_broadcast_bytes_per_s
        seconds = max(gathered / rate, size / wire_rate(q, system))
        seconds += loop.sync_tensor_s * tensor_count(q.model, q.joined)
    if q.offloaded:
        # Every node loads its own shards.
        nodes = max(q.trainer_gpus / NODE_CHIPS, 1.0)
        seconds += gathered / nodes / loop.sync_offload_bytes_per_s
    if q.narrow:
        seconds *= loop.sync_quantise
    return loop.sync_fixed_s + seconds


def wire_rate(q: SyncQuestion, system: System) -> float:
    """Bytes a second from one pool to the other; without a limit where both are on the same cards."""
    tiers = system.network.tiers
    if not q.split or len(tiers) < 2:
        return float("inf")
    return NETWORK_SHARE * float(tiers[-1].bandwidth_bytes_per_s)


def tensor_count(model: Model, joined: bool) -> float:
    """Tensors that a model's weights are sent as."""
    total = 3.0
    for layer in model.stack.layers:
        if isinstance(layer.ffn, Experts):
            each = JOINED_EXPERTS if joined else EXPERT_TENSORS * layer.ffn.experts
            total += DENSE_TENSORS + each
        else:
            total += DENSE_TENSORS
    return total
