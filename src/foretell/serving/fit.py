"""What fits on the chips of an instance: the longest context, the most sequences, the largest model.

`largest_where` finds the largest number that a rule allows; whoever has a memory of their own (an engine's
cache, a tuned model's activations) asks it.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretell.catalog.engines import profile, release_of_profile
from foretell.catalog.model_names import model_entries
from foretell.catalog.models import catalogue_model
from foretell.records import JsonRecord, dataclass
from foretell.serving.cache_report import cache_report
from foretell.serving.memory import ANY_LENGTH, memory_of, sequences_that_fit
from foretell.specs.deployment import Deployment, Format
from foretell.specs.deployment_text import deployment_text
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

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

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


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
