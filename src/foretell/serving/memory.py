"""What an instance holds on one chip, and how much of it each engine gives to the cache.

    vLLM           fraction x whole card - weights - peak of a profiled step - what libraries hold
    TensorRT-LLM   fraction x (whole card - weights - peak of a step - what libraries hold)
    SGLang         fraction x (whole card - what libraries hold) - weights (the rest is for steps and graphs)
    no engine      whole card - weights - peak of a step - what libraries hold

vLLM's --gpu-memory-utilization is of the whole card, TensorRT-LLM's free_gpu_memory_fraction of what is
left once the weights are there, SGLang's --mem-fraction-static covers weights and cache together. Steps,
libraries, communicators and graphs are those of the engine's release (serving/boot_memory.py).
"""

from dataclasses import replace
from typing import Any

import numpy as np

from foretell.records import dataclass
from foretell.serving.boot_memory import (
    default_fraction,
    expert_padding,
    held_bytes,
    profiled_bytes,
    rotary_bytes,
    seen_bytes,
)
from foretell.serving.engine_options import adapter_bytes
from foretell.serving.formats import is_narrow, narrow_dense, weight_width
from foretell.serving.step_costs import kinds_of
from foretell.serving.step_ops import is_routed
from foretell.serving.wide_experts import slots_of
from foretell.sharding.tensor import tensor_parallel
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.block import MixerBlock
from foretell.specs.deployment import KV_BYTES, Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, DeltaNet, LatentAttention, Mamba2, Mixer
from foretell.specs.model import Layer, Model
from foretell.specs.system import System
from foretell.workload.graph import Tokens
from foretell.workload.layer import layer_graph
from foretell.workload.ops import Gemm
from foretell.workload.roles import OpRole

STATE_BYTES = 2.0
"""Bytes of one element of a recurrence's state: 16 bits, as engines keep it by default."""
PAGE = 16.0
"""Tokens of a page of the cache: half of one is lost on the mean for each sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One chip of an instance; bytes."""

    card_bytes: float
    """Memory that software can allocate; of a batch of systems an array, as reserve and cache."""
    weight_bytes: float
    """Weights of the fullest stage."""
    step_bytes: float
    """Activations and scores of the largest step."""
    reserve_bytes: float
    """Libraries, communicators, and graphs where they are captured before the cache is sized."""
    kv_bytes: float
    """The cache; negative where weights and steps leave nothing."""

    @property
    def fits(self) -> bool:
        """Whether anything is left for a cache, on every system."""
        return bool(np.all(np.asarray(self.kv_bytes) > 0.0))


def memory_of(
    model: Model, system: System, deployment: Deployment, profile: EngineProfile
) -> Memory:
    """The memory of one chip by the engine's rule."""
    card: Any = seen_bytes(system.chip)
    padding = expert_padding(model, deployment, profile)
    weights = weight_bytes(model, deployment, padding) + rotary_bytes(model, profile)
    slots = deployment.adapter_slots
    many = deployment.adapters if slots is None or not deployment.adapters else slots
    weights += many * adapter_bytes(model, deployment.adapter_rank) / deployment.stage
    weights = max(weights - 1e9 * deployment.offload_gb - host_bytes(model, system, profile), 0.0)
    step = profiled_bytes(model, deployment, profile)
    reserve = held_bytes(model, system.chip, deployment, profile)
    given = deployment.memory_fraction
    usual = default_fraction(model, system.chip, deployment, profile)
    fraction = usual if given is None else given
    held = cache_bytes(
        profile.memory_rule, fraction, card=card, weights=weights, step=step, reserve=reserve
    )
    held = held * system.corrections.cache_capacity
    return Memory(
        card_bytes=card,
        weight_bytes=weights,
        step_bytes=step,
        reserve_bytes=reserve,
        kv_bytes=given_cache(model, deployment, held, card - weights - step - reserve),
    )


def host_bytes(model: Model, system: System, profile: EngineProfile) -> float:
    """The table of embeddings where it stays in the host's memory: llama.cpp looks it up there, unless it is
    the head as well or the memory is one (src/llama-model.cpp: dev_input)."""
    apart = profile.engine == "llamacpp" and system.chip.vendor != "Apple"
    if not apart or model.head.tied:
        return 0.0
    return 2.0 * model.embedding.vocab * (model.embedding.width or model.stack.hidden)


def given_cache(model: Model, d: Deployment, held: Any, free: Any) -> Any:
    """The cache where its size is given by hand: as given where the card has the room, at most its tokens."""
    if d.cache_gb is not None:
        wanted = 1e9 * d.cache_gb
        # Nothing is left for a cache that the card has no room for: the engine does not start.
        held = np.where(np.asarray(free) >= wanted, wanted, np.asarray(free) - wanted)
    if d.cache_tokens is not None:
        held = np.minimum(held, kv_bytes(model, d, float(d.cache_tokens), windows=False))
    return held if np.ndim(held) else float(held)


def cache_bytes(
    rule: str, fraction: Num, *, card: Any, weights: float, step: float, reserve: Any
) -> Any:
    """What a rule leaves to the cache."""
    match rule:
        case "vllm":
            return fraction * card - weights - step - reserve
        case "trtllm":
            return fraction * (card - weights - step - reserve)
        case "sglang":
            free = card - reserve
            found = np.minimum(fraction * free - weights, free - weights)
            return found if np.ndim(found) else float(found)
        case _:
            return card - weights - step - reserve


def fraction_for(rule: str, memory: Memory) -> float:
    """The fraction with which a rule leaves the cache as large as it is: `cache_bytes` turned around.

    vLLM's is of the whole card, TensorRT-LLM's of what is left, SGLang's holds weights and cache.
    """
    other = memory.step_bytes + memory.reserve_bytes
    match rule:
        case "trtllm":
            free = memory.card_bytes - memory.weight_bytes - other
            share = memory.kv_bytes / max(free, 1.0)
        case "sglang":
            free = memory.card_bytes - memory.reserve_bytes
            share = (memory.kv_bytes + memory.weight_bytes) / free
        case _:
            share = (memory.kv_bytes + memory.weight_bytes + other) / memory.card_bytes
    return min(max(share, 0.01), 1.0)


def fraction_alike(
    model: Model, system: System, d: Deployment, engines: tuple[EngineProfile, EngineProfile]
) -> float:
    """The fraction by which a second engine's cache is as large as a first one's, with its own steps and
    libraries beside it."""
    first, second = engines
    held = memory_of(model, system, d, first).kv_bytes
    other = memory_of(model, system, replace(d, memory_fraction=None), second)
    return round(fraction_for(second.memory_rule, replace(other, kv_bytes=held)), 4)


def weight_bytes(model: Model, deployment: Deployment, padding: float = 1.0) -> float:
    """Weights on a chip of the fullest stage: its layers, and the table or the head.

    `padding` is what experts take over their own bytes.
    """
    d = deployment
    layers = sum(
        many * layer_bytes(layer, model, d, padding=padding)
        for layer, many in kinds_of(model.stack)
    )
    if model.encoder is not None:
        hidden = model.encoder.hidden
        layers += sum(
            many * layer_bytes(layer, model, d, hidden) for layer, many in kinds_of(model.encoder)
        )
    width = model.embedding.width or model.stack.hidden
    table = 2.0 * model.embedding.vocab * width / d.tp
    head = 0.0 if model.head.tied and d.pp == 1 else 2.0 * model.head.outputs * width / d.tp
    ends = table + head if d.pp == 1 else max(table, head)
    extra = 2.0 * (model.extra_parameters + sum(tower.parameters for tower in model.towers))
    return layers / d.pp + ends + extra / d.stage


def layer_bytes(
    layer: Layer, model: Model, d: Deployment, hidden: int | None = None, *, padding: float = 1.0
) -> float:
    """Weights of one layer on a rank: dense matrices and experts in their formats, the rest in 16 bits."""
    tokens = Tokens(batch=1.0, q_len=1.0, kv_len=1.0, phase="prefill")
    graph = layer_graph(layer, hidden or model.stack.hidden, tokens)
    total, narrow = 0.0, narrow_dense(model, d)
    copies = padding
    if isinstance(layer.ffn, Experts) and d.ep > 1 and d.stage > d.tp:
        copies *= slots_of(layer.ffn, d) / layer.ffn.experts
    for whole, op in zip(graph.ops, tensor_parallel(graph, float(d.tp), 0.0).ops, strict=True):
        if is_routed(op):
            # Biases of experts keep their 16 bits.
            bias = float(op.groups * op.n) if isinstance(op, Gemm) and op.bias else 0.0
            each = weight_width(d.experts) * (float(whole.parameters) - bias) + 2.0 * bias
            total += each / d.stage * copies
        elif op.family == "gemm" and op.role is not OpRole.ROUTER:
            later = narrow and is_narrow(op)
            total += float(op.parameters) * weight_width(d.experts if later else d.weights)
        else:
            total += 2.0 * float(op.parameters)
    return total


def kv_bytes(
    model: Model, deployment: Deployment, context: Num, *, windows: bool = True, cross: Num = 0.0
) -> Array:
    """Bytes that one sequence of `context` tokens has in the cache of one rank of a stage.

    MHA, GQA: layers x 2 x max(kv_heads / tp, 1) x head_dim a token, at most the window's tokens; MLA:
    layers x (rank + rotary key), whole on every rank; recurrences: their state, whatever the context.
    """
    total: Num = 0.0
    for layer, many in kinds_of(model.stack):
        for mixer in layer.mixers:
            if isinstance(mixer, MixerBlock):
                kept = mixer.cache_elements(model.stack.hidden, np.asarray(context, float), cross)
                total = total + many * kept * KV_BYTES[deployment.kv] / deployment.tp
                continue
            total = total + many * mixer_bytes(
                mixer, deployment, context, windows=windows, cross=cross
            )
    return np.asarray(total / deployment.pp)


def mixer_bytes(mixer: Mixer, d: Deployment, context: Num, *, windows: bool, cross: Num) -> Num:
    """What one mixer keeps of one sequence on one rank."""
    element, tp = KV_BYTES[d.kv], float(d.tp)
    match mixer:
        case Attention():
            if not mixer.owns_kv:
                return 0.0
            width = mixer.head_dim + (
                0 if mixer.value_is_key else mixer.value_dim or mixer.head_dim
            )
            kept: Num = np.asarray(cross if mixer.cross else context, float)
            if windows and mixer.window is not None and not mixer.cross:
                kept = np.minimum(kept, float(mixer.window))
                if mixer.compress_ratio is not None:
                    kept = kept + np.asarray(context) / mixer.compress_ratio
            return max(mixer.kv_heads / tp, 1.0) * width * element * kept + index(mixer, context)
        case LatentAttention():
            return (mixer.kv_rank + mixer.rope_dim) * element * np.asarray(context, float) + index(
                mixer, context
            )
        case Mamba2():
            inner = mixer.heads * mixer.head_dim
            taps = (inner + 2.0 * mixer.groups * mixer.state) * (mixer.conv_kernel - 1.0)
            return STATE_BYTES * (inner * mixer.state + taps) / tp
        case DeltaNet():
            keys = mixer.key_heads * mixer.key_dim
            values = mixer.value_heads * mixer.value_dim
            taps = (2.0 * keys + values) * (mixer.conv_kernel - 1.0)
            return STATE_BYTES * (values * mixer.key_dim + taps) / tp
        case _:
            return 0.0


def index(mixer: Attention | LatentAttention, context: Num) -> Num:
    """Keys of an indexer: one byte an element and a scale of four for each."""
    if mixer.indexer is None or not mixer.indexer.owns_weights:
        return 0.0
    return (mixer.indexer.head_dim + 4.0) * np.asarray(context, float) / mixer.indexer.ratio


def sequences_that_fit(
    memory: Memory, model: Model, deployment: Deployment, profile: EngineProfile, context: Num
) -> Array:
    """Sequences of so many tokens each that the caches of an instance hold together."""
    each = kv_bytes(
        model, deployment, np.asarray(context) + PAGE / 2.0, windows=profile.window_saved
    )
    room = np.maximum(memory.kv_bytes, 0.0) / np.maximum(each, 1e-9)
    return np.asarray(room * deployment.dp * deployment.cp)


ANY_LENGTH = 2.0**31
"""Tokens at which the search for the longest sequence ends: caches of windows or states hold any."""


def longest_context(
    memory: Memory, model: Model, deployment: Deployment, batch: float = 1.0
) -> int:
    """Most tokens that each of `batch` sequences may have, the model's own limit set aside."""
    return int(longest_contexts(memory, model, deployment, batch))


def longest_contexts(
    memory: Memory, model: Model, deployment: Deployment, batch: float = 1.0
) -> Array:
    """The same of every system of a batch."""
    ranks = deployment.dp * deployment.cp
    room = np.asarray(memory.kv_bytes, float)
    low, high = np.zeros_like(room), np.full_like(room, ANY_LENGTH)
    while (high - low).max() > 1.0:
        middle = np.floor((low + high) / 2.0)
        fits = kv_bytes(model, deployment, middle) * max(batch / ranks, 1.0) <= room
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low
