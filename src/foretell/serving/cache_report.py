"""The cache as an engine reports it when it starts: tokens, and requests of the longest kind at once.

vLLM lays layers of one kind (whole attention, a window, a state) into groups of as many layers each, and
gives every group blocks of one size out of one pool:

    blocks       cache / (bytes of a block of one layer x layers of a group)
    a request    ceil(length / tokens of a block) of each group of whole attention, those of the window of a
                 group with one, one of a group of states
    concurrency  blocks / blocks of a request
    tokens       blocks / groups x tokens of a block, from 0.20 on concurrency x length
                 (v1/core/kv_cache_utils.py: get_max_concurrency_for_kv_cache_config, get_kv_cache_capacity)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.engines import release_of_profile
from foretell.records import dataclass
from foretell.serving.memory import (
    ANY_LENGTH,
    Memory,
    longest_contexts,
    mixer_bytes,
    sequences_that_fit,
)
from foretell.serving.step_costs import kinds_of
from foretell.specs.block import MixerBlock
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile, EngineRelease
from foretell.specs.mixers import Attention
from foretell.specs.model import Model

Array = NDArray[np.float64]

ALIKE = 1.25
"""Layers of the most frequent kind over those of the rarest below which a group takes the former."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers of one rank whose caches are alike."""

    layers: float
    """How many."""
    token_bytes: float
    """Bytes of a token in one of them; 0: a state alone."""
    state_bytes: float
    """Bytes of a sequence, whatever its length."""
    window: int | None
    """Tokens that it keeps at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReport:
    """What an engine reports of its cache; arrays of a batch of systems."""

    kv_cache_tokens: Any
    """Tokens of the cache of one data-parallel rank: vLLM's "GPU KV cache size"."""
    max_context: Any
    """The longest sequence that the cache of an instance holds."""
    max_model_len: Any
    """The longest request that the engine is started for."""
    max_concurrency: Any
    """Requests of that length at once: vLLM's "Maximum concurrency"."""


def cache_report(memory: Memory, model: Model, d: Deployment, p: EngineProfile) -> CacheReport:
    """The report of one rank, for the longest request asked for, or that model and cache allow."""
    release = release_of_profile(p)
    fits = longest_contexts(memory, model, d)
    fits = np.where(fits < ANY_LENGTH - 1.0, fits, float(model.max_positions))
    longest = np.asarray(d.max_context or np.minimum(fits, model.max_positions), float)
    longest = np.maximum(longest, 1.0)
    kinds = [] if p.engine != "vllm" else layer_kinds(model, d, p)
    if not kinds:
        many = sequences_that_fit(memory, model, d, p, longest) / (d.dp * d.cp)
        tokens = np.floor(many * longest / release.block_tokens) * release.block_tokens
        return CacheReport(
            kv_cache_tokens=tokens, max_context=fits, max_model_len=longest, max_concurrency=many
        )
    room = np.asarray(memory.kv_bytes, float)
    tokens, many = grouped_tokens(kinds, room, longest, d, (p, release))
    return CacheReport(
        kv_cache_tokens=tokens, max_context=fits, max_model_len=longest, max_concurrency=many
    )


def layer_kinds(model: Model, d: Deployment, p: EngineProfile) -> list[LayerKind]:
    """Kinds of layers of a rank; none where a block's cache is its own affair."""
    found: dict[tuple[float, float, int | None], float] = {}
    for layer, many in kinds_of(model.stack):
        for mixer in layer.mixers:
            if isinstance(mixer, MixerBlock) or (isinstance(mixer, Attention) and mixer.cross):
                return []
            state = float(mixer_bytes(mixer, d, 0.0, windows=False, cross=0.0))
            token = float(mixer_bytes(mixer, d, 1.0, windows=False, cross=0.0)) - state
            window = mixer.window if isinstance(mixer, Attention) and p.window_saved else None
            if token or state:
                key = (token, state, window)
                found[key] = found.get(key, 0.0) + many / d.pp
    return [
        LayerKind(layers=many, token_bytes=token, state_bytes=state, window=window)
        for (token, state, window), many in found.items()
    ]


def grouped_tokens(
    kinds: Sequence[LayerKind],
    room: Array,
    longest: Array,
    d: Deployment,
    engine: tuple[EngineProfile, EngineRelease],
) -> tuple[Array, Array]:
    """Tokens and concurrency of blocks that groups of layers share."""
    profile, release = engine
    most, least = (pick(kind.layers for kind in kinds) for pick in (max, min))
    group = most if most < ALIKE * least else least
    token = max(kind.token_bytes for kind in kinds)
    block = float(release.block_tokens)
    state = max(kind.state_bytes for kind in kinds)
    if token and state:  # a block of attention is made as large as a state
        block = max(np.ceil(state / token / block) * block, block)
    page = token * block if token else state
    blocks = np.floor(np.maximum(room, 0.0) / (page * group))
    each: Any = 0.0
    groups = 0.0
    for kind in kinds:
        many = float(np.ceil(kind.layers / group))
        groups += many
        kept: Any = longest
        if kind.window is not None:
            step = float(d.max_tokens or profile.max_tokens)
            kept = np.minimum(longest, kind.window - 1.0 + step)
        used = np.ceil(kept / block) + (1.0 if kind.window is not None else 0.0)
        each = each + many * (used if kind.token_bytes else 1.0)
    concurrency = d.cp * blocks / each
    tokens = d.cp * np.floor(blocks / groups) * block
    if release.token_report == "concurrency":
        tokens = np.floor(concurrency * longest)
    return tokens, concurrency
