"""Weights from the trainer to the rollout engine: Y = fixed + bytes / rate + tensors x c.

ipc         the same cards: each tensor is gathered from the trainer's layout, cut to the engine's, loaded
broadcast   one trainer rank gathers and sends bucket by bucket; the wire or the software is slower
p2p         buckets are sent and loaded side by side (checkpoint engines, RDMA reads of one's own shards)
delta       every trainer rank sends the values that changed: comparing its shard takes longest
file        written to shared storage and read back

Weights that live on the host are loaded first; a receiver that narrows them takes as long again. With
adapters alone their bytes are sent. FSDP names every tensor, an expert's too; Megatron joins those of a
layer.
"""

from foretell.catalog.post_training import PostTrainingLoop
from foretell.records import dataclass
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.specs.post_training import SyncName
from foretell.specs.system import System

BYTES = 2.0
"""Bytes of a weight on its way."""
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
    """Whether the trainer joins the experts of a layer (Megatron)."""
    narrow: bool
    """Whether the receiver narrows the weights to 8 bits."""
    split: bool
    """Whether trainer and engine have cards of their own."""


def sync_seconds(q: SyncQuestion, loop: PostTrainingLoop, system: System) -> float:
    """Seconds from the last update to the engine's next token."""
    size = BYTES * q.sent_parameters
    rate = {
        "ipc": loop.sync_ipc_bytes_per_s,
        "broadcast": loop.sync_broadcast_bytes_per_s,
        "p2p": loop.sync_p2p_bytes_per_s,
        "file": 0.5 * loop.sync_file_bytes_per_s,
    }
    if q.mechanism == "delta":
        seconds = loop.sync_delta_s_per_weight * q.sent_parameters / max(q.trainer_gpus, 1)
    else:
        limit = rate[q.mechanism]
        if q.split and q.mechanism in ("broadcast", "p2p"):
            wire = NETWORK_SHARE * float(system.network.tiers[-1].bandwidth_bytes_per_s)
            limit = min(limit, wire) if len(system.network.tiers) > 1 else limit
        seconds = size / limit
        if q.mechanism in ("ipc", "broadcast"):
            seconds += loop.sync_tensor_s * tensor_count(q.model, q.joined)
    if q.offloaded:
        # Of changed values every node loads its own shards.
        nodes = max(q.trainer_gpus / NODE_CHIPS, 1.0) if q.mechanism == "delta" else 1.0
        seconds += size / nodes / loop.sync_offload_bytes_per_s
    if q.narrow:
        seconds *= loop.sync_quantise
    return loop.sync_fixed_s + seconds


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
