"""Weights from the trainer to the rollout engine: Y = fixed + gather + tensors x c + wire.

gather      what the trainer keeps is gathered from its layout at the loop's rate: 32-bit weights under FSDP,
            16-bit ones of Megatron and of frozen weights; nothing where it is whole on the hosts
tensors     each is named, converted and loaded by Python code on both sides: c of the loop and its release,
            from tens of microseconds (buckets) to a call each
wire        ipc         the same cards: nothing leaves them
            broadcast   all bytes to every receiver, bucket by bucket: the scale-up fabric of one node, else
                        all ports of one; gathering goes on beside it, over the same ports where the trainer
                        has several nodes
            p2p         each receiver reads the shards that it keeps over its own port; a loop whose receivers
                        read only their part of a broadcast sends it besides
            delta       the values that changed: every trainer rank compares its shard with a copy of the last
                        one, and each tensor's sizes, places and values are exchanged, then loaded
            file        written to shared storage and read back

Weights that live on the host are loaded first; a receiver that narrows them takes as long again, and one that
gets them as they are stored gets fewer bytes. With adapters alone their bytes are sent. Engines load a
checkpoint's names, so that every expert has tensors of its own, whatever the trainer joins; changed values go
by the trainer's own tensors.
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
READERS = 16.0
"""Receivers that read a part each before it is broadcast to all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncQuestion:
    """One synchronisation."""

    model: Model
    """Whose weights."""
    sent_parameters: float
    """How many are sent: all, or those of adapters."""
    mechanism: SyncName
    """How."""
    trainer_gpus: int
    """Ranks that hold shards."""
    rollout_gpus: int
    """Ranks that receive."""
    replica_gpus: int
    """Ranks of one replica of the engine, which share the weights."""
    offloaded: bool
    """Whether the trainer's weights live on the host."""
    kept_bytes: float
    """Bytes of a weight as the trainer gathers it."""
    narrow: bool
    """Whether the engine keeps the weights in 8 bits."""
    split: bool
    """Whether trainer and engine have cards of their own."""


def kept_bytes(narrow: bool) -> float:
    """Bytes of a weight that is gathered: 16 bits of Megatron and of frozen weights, else the 32 of FSDP's
    and ZeRO's mixed precision."""
    return BYTES if narrow else 2.0 * BYTES


def sync_seconds(q: SyncQuestion, loop: PostTrainingLoop, system: System) -> float:
    """Seconds from the last update to the engine's next token."""
    stored = loop.sync_stored and q.narrow
    size = (1.0 if stored else BYTES) * q.sent_parameters
    gathered = 0.0 if loop.sync_stored else q.kept_bytes * q.sent_parameters
    # What is stored in 8 bits has tensors of scales besides.
    tensors_s = loop.sync_tensor_s * tensor_count(q.model, joined=False) * (2.0 if stored else 1.0)
    if q.mechanism == "delta":
        seconds = loop.sync_delta_s_per_weight * q.sent_parameters / max(q.trainer_gpus, 1)
        seconds += DELTA_CALLS * loop.sync_tensor_s * tensor_count(q.model, joined=True)
    elif q.mechanism == "file":
        # All nodes of the trainer write a part each; those of a replica read all of it.
        shares = [1.0 / max(n / NODE_CHIPS, 1.0) for n in (q.trainer_gpus, q.replica_gpus)]
        seconds = size * sum(shares) / loop.sync_file_bytes_per_s
    elif q.mechanism == "p2p":
        seconds = p2p_seconds(q, loop, system, size) + loop.sync_p2p_tensors * tensors_s
    elif q.mechanism == "ipc":
        seconds = gathered / loop.sync_ipc_bytes_per_s + tensors_s
    else:
        gather_s = gathered / loop.sync_broadcast_bytes_per_s
        # Shards of several nodes come over the same wire.
        spread = gathered if q.trainer_gpus > float(system.network.tiers[0].size) else 0.0
        seconds = max(gather_s, (size + spread) / broadcast_rate(q, system)) + tensors_s
    if q.offloaded:
        # Every node loads its own shards.
        nodes = max(q.trainer_gpus / NODE_CHIPS, 1.0)
        seconds += gathered / nodes / loop.sync_offload_bytes_per_s
    if q.narrow and not stored:
        seconds *= loop.sync_quantise
    return loop.sync_fixed_s + seconds


def p2p_seconds(q: SyncQuestion, loop: PostTrainingLoop, system: System, size: float) -> float:
    """Reads by the receivers, each of its part over its own port, beside the trainer's gathering."""
    port = port_rate(q, system)
    if loop.sync_p2p == "parts":
        # Some receivers read a part each, and broadcast it.
        readers = min(float(q.rollout_gpus), READERS)
        return size / (readers * port) + size / broadcast_rate(q, system)
    if loop.sync_p2p == "shards":
        return size / max(q.replica_gpus, 1) / port
    return max(size / loop.sync_p2p_bytes_per_s, size / max(q.replica_gpus, 1) / port)


def port_rate(q: SyncQuestion, system: System) -> float:
    """Bytes a second that one receiver reads from the other pool, or from other nodes."""
    tiers = system.network.tiers
    return NETWORK_SHARE * float(tiers[-1].bandwidth_bytes_per_s)


def broadcast_rate(q: SyncQuestion, system: System) -> float:
    """Bytes a second that reach every receiver: over the scale-up fabric where all are on one node, else
    over all ports of the sender's, which it reaches over the fabric."""
    tiers = system.network.tiers
    inside = NETWORK_SHARE * float(tiers[0].bandwidth_bytes_per_s)
    many = q.rollout_gpus + (q.trainer_gpus if q.split else 0)
    if len(tiers) < 2 or many <= float(tiers[0].size):
        return inside
    return min(inside, NODE_CHIPS * port_rate(q, system))


def tensor_count(model: Model, joined: bool) -> float:
    """Tensors that a model's weights are sent as."""
    total = 3.0
    for layer in model.stack.layers:
        total += DENSE_TENSORS
        if isinstance(layer.ffn, Experts):
            total += JOINED_EXPERTS if joined else EXPERT_TENSORS * layer.ffn.experts
    return total
