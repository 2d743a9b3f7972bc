"""The cache as an engine reports it when it starts, and what fits: context, sequences, the largest model.

vLLM lays layers of one kind (whole attention, a window, a state) into groups of as many layers each, and
gives every group blocks of one size out of one pool:

    blocks       cache / (bytes of a block of one layer x layers of a group)
    a request    ceil(length / tokens of a block) of each group of whole attention, those of the window of a
                 group with one, one of a group of states
    concurrency  blocks / blocks of a request
    tokens       blocks / groups x tokens of a block, from 0.20 on concurrency x length
                 (v1/core/kv_cache_utils.py: get_max_concurrency_for_kv_cache_config, get_kv_cache_capacity)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.catalog.engines import profile, release_of_profile
from foretell.catalog.model_names import model_entries
from foretell.catalog.models import catalogue_model
from foretell.records import JsonRecord, as_json, dataclass
from foretell.serving.memory import (
    ANY_LENGTH,
    Memory,
    longest_contexts,
    memory_of,
    mixer_bytes,
    sequences_that_fit,
)
from foretell.serving.step_costs import kinds_of
from foretell.specs.arrays import Array
from foretell.specs.block import MixerBlock
from foretell.specs.deployment import Deployment, Format
from foretell.specs.deployment_text import deployment_text
from foretell.specs.engine import EngineProfile, EngineRelease
from foretell.specs.mixers import Attention
from foretell.specs.model import Model
from foretell.specs.system import System

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


ENGINES = ("vllm", "sglang", "trtllm", "llamacpp")
"""Engines that are asked."""
PRECISIONS: tuple[Format, ...] = ("bf16", "fp8", "int4")
"""Formats of weights in which the largest model is looked for; llama.cpp has int8 in the place of fp8."""
LONGEST = int(ANY_LENGTH)
"""Tokens of a context that nobody asks for."""
BITS = {"bf16": 16.0, "fp8": 8.0, "int8": 8.5, "int4": 4.5}
"""Bits of a weight of each, its share of the scales included."""
TRIED = 12
"""Models of the catalogue that are looked at for each format, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFit(JsonRecord):
    """What one engine fits on the chips of an instance."""

    engine: str
    """Its name."""
    release: str
    """First version that sizes its cache so; empty: any."""
    plan: str
    """The layout, as words."""
    fits: bool
    """Whether the model starts, with a cache for one request."""
    weight_bytes: float
    """Weights of one chip."""
    kv_bytes: float
    """Cache of one chip; negative where it does not start."""
    kv_cache_tokens: int
    """Tokens of the cache of one data-parallel rank."""
    max_context: int
    """Longest context of one sequence."""
    max_sequences: int
    """Most sequences of the request's length at once, the engine's own limit set aside."""
    largest_models: dict[str, str]
    """Format of the weights -> the largest model of the catalogue that starts and holds one request."""

    to_dict = as_json()


def largest_where(allowed: Callable[[int], bool], most: int) -> int:
    """The largest whole number from 0 to `most` that a rule allows, where it allows all below it."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def engine_fits(
    model: Model, system: System, asked: tuple[Deployment, EngineProfile], request_tokens: float
) -> tuple[EngineFit, ...]:
    """The engine that was asked for first, then the others at their newest release."""
    layout, own = asked
    every = [own, *(profile(name, system.chip) for name in ENGINES if name != own.engine)]
    return tuple(engine_fit(model, system, (layout, each), request_tokens) for each in every)


def engine_fit(
    model: Model, system: System, asked: tuple[Deployment, EngineProfile], request_tokens: float
) -> EngineFit:
    """One engine; llama.cpp lays layers over several chips."""
    layout, p = asked
    d = layer_split(layout) if p.engine == "llamacpp" else layout
    memory = memory_of(model, system, d, p)
    many = float(np.min(sequences_that_fit(memory, model, d, p, request_tokens)))
    starts = memory.fits and many >= 1.0
    report = cache_report(memory, model, d, p)

    def holds(tokens: int) -> bool:
        return float(np.min(sequences_that_fit(memory, model, d, p, tokens))) >= 1.0

    longest = largest_where(holds, LONGEST) if memory.fits else 0
    return EngineFit(
        engine=p.engine,
        release=release_of_profile(p).release,
        plan=deployment_text(d),
        fits=starts,
        weight_bytes=memory.weight_bytes,
        kv_bytes=float(np.min(memory.kv_bytes)),
        kv_cache_tokens=int(np.min(report.kv_cache_tokens)) if memory.fits else 0,
        max_context=longest if longest < LONGEST else model.max_positions,
        max_sequences=int(many) if starts else 0,
        largest_models=largest_models(system, (d, p), request_tokens),
    )


def layer_split(d: Deployment) -> Deployment:
    """The layout with one stage for each chip."""
    return replace(d, tp=1, pp=d.gpus, dp=1, ep=1, cp=1)


def largest_models(
    system: System, asked: tuple[Deployment, EngineProfile], request_tokens: float
) -> dict[str, str]:
    """Format of the weights -> the largest model of the catalogue that starts and holds one request."""
    layout, p = asked
    card = float(np.min(np.asarray(system.chip.memory_bytes)))
    found: dict[str, str] = {}
    for precision in PRECISIONS:
        form: Format = "int8" if precision == "fp8" and p.engine == "llamacpp" else precision
        most = 8.0 * card * layout.gpus / BITS[form]
        for name in candidates(most):
            model = catalogue_model(name)
            plain = replace(layout, weights=form, experts=form, ep=1)
            memory = memory_of(model, system, plain, p)
            held = sequences_that_fit(memory, model, plain, p, request_tokens)
            if memory.fits and float(np.min(held)) >= 1.0:
                found[form] = name
                break
    return found


def candidates(most: float, tried: int | None = TRIED) -> Sequence[str]:
    """Models with at most so many parameters in print, the largest first; None: all of them."""
    counts = [(entry.published, entry.id) for entry in model_entries() if entry.published]
    return [name for count, name in sorted(counts, reverse=True) if count <= most][:tried]
