"""Images and audio before a prompt: tokens that they become, and what their encoder takes.

The encoder's layers run by the same kernels as the model's, in 16 bits, on the tensor-parallel ranks
together; these are launched one by one. Its time is part of the steps that read the prompt.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from foretell.errors import bad_input
from foretell.records import dataclass
from foretell.serving.kernel_costs import PowerLimitedCost
from foretell.serving.kernels import Kernels
from foretell.serving.launches import EAGER_LAYER_S, layer_launches
from foretell.serving.links import links_of
from foretell.serving.step_costs import kinds_of, sequence_cost, token_costs
from foretell.serving.table_points import WHOLE, TablePoints
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import EncoderLoad, Model, Stack
from foretell.specs.system import System, system_count
from foretell.workload.towers import projector, read_loads

FORMAT: Literal["bf16"] = "bf16"
"""Encoders keep their 16 bits where the text model's weights are narrower."""
TURNED_SHARE = 0.18
"""Share of the memory's bandwidth of passes that read across: 0.18 to 0.2 (Whisper) and 0.14 (SigLIP) on one
H200 (tests/bench/measure_encoders.py, 2026-11-16)."""
WHISPER_HZ = 50.0
"""Positions of a second of audio that Whisper's encoder reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedInput:
    """What images and audio make of every request's prompt."""

    prompt: float
    """Tokens of the prompt, theirs included."""
    loads: tuple[EncoderLoad, ...] = ()
    """What goes through the towers."""
    names: tuple[str, ...] = ()
    """What each of these is, as it was asked for."""
    said: tuple[str, ...] = ()
    """What to tell beside them."""


def encoded_input(
    model: Model, isl: float, images: str | None, audio_s: float | None
) -> EncodedInput:
    """The prompt of a request with its images and its audio."""
    if audio_s and model.kind == "encoder-decoder":
        return _source_frames(model, audio_s)
    named = read_loads(model, images, audio_s)
    loads, names = [load for _, load in named], [name for name, _ in named]
    prompt = isl + sum(load.tokens for load in loads)
    each = tuple(replace(load, prompt=prompt) for load in loads)
    return EncodedInput(prompt=prompt, loads=each, names=tuple(names))


def said_of_input(
    seen: EncodedInput,
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
) -> tuple[str, ...]:
    """Tokens of images and audio, and what their encoders take in this deployment."""
    told = []
    for name, load in zip(seen.names, seen.loads, strict=True):
        seconds, _ = encoder_cost(load, model, system, deployment, profile)
        spent_ms, what = 1e3 * float(seconds.max()), load.tower.name
        text = f"{name}: {load.tokens:.0f} tokens, {spent_ms:.1f} ms in the {what} encoder"
        if load.tower.image_side or load.tower.budget:
            text += ", whatever its size" if load.tower.most_tiles == 1 else ", by tiles"
        told.append(text)
    return (*told, *seen.said)


def _source_frames(model: Model, audio_s: float) -> EncodedInput:
    """Audio of a model whose encoder reads it (Whisper): one stretch of frames, whatever it holds."""
    own = model.encoder_embedding
    if own is None or not own.positions or not own.projections:
        raise bad_input(
            "audio", audio_s, f"{model.id} reads text", "--isl, the tokens of its source"
        )
    longest = own.positions / WHISPER_HZ
    if audio_s > longest:
        raise bad_input(
            "audio",
            audio_s,
            f"{model.id} hears {longest:g} s at once",
            f"at most {longest:g}: engines send longer audio as several requests",
        )
    text = (
        f"{audio_s:g} s of audio: {own.positions} frames, padded to {longest:g} s, are what the encoder "
        "reads; --isl is not used"
    )
    return EncodedInput(prompt=float(own.positions), said=(text,))


def encoder_costs(
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
) -> tuple[Num, Num]:
    """Seconds and joules of all encoders for one token of the prompts."""
    seconds: Num = 0.0
    joules: Num = 0.0
    for load in profile.encoders:
        own = encoder_cost(load, model, system, deployment, profile)
        seconds, joules = seconds + own[0] / load.prompt, joules + own[1] / load.prompt
    if profile.encoders and system_count(system) == 1:
        return float(np.max(seconds)), float(np.max(joules))
    return seconds, joules


def encoder_cost(
    load: EncoderLoad,
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
) -> tuple[Array, Array]:
    """Seconds of an encoder for all that a request brings, and joules of the ranks; one for each system.

    Those of a single system are kept: a service asks for its steps more than once.
    """
    cost = _cost if system_count(system) > 1 else _known_cost
    return cost(load, model, (system, deployment), profile)


def _cost(
    load: EncoderLoad, model: Model, place: tuple[System, Deployment], profile: EngineProfile
) -> tuple[Array, Array]:
    system, deployment = place
    stack = load.tower.stack
    assert stack is not None
    own = replace(deployment, dp=1, cp=1, pp=1, ep=1, weights=FORMAT, experts=FORMAT, kv=FORMAT,
                  draft_tokens=0)  # fmt: skip
    engine = replace(profile, window_used=True, fused=False)
    many = system_count(system)
    kernels = Kernels(chip=system.chip, deployment=own, profile=engine, systems=many)
    links = links_of(system, own, engine)
    points = _points(load)
    token, _ = token_costs(model, stack, kernels, links, points)
    attention = sequence_cost(model, stack, kernels, "prefill", points)
    costs = (token, attention, _projector(load, kernels))
    seconds = np.asarray(sum(cost.seconds.ravel() for cost in costs))
    joules = np.asarray(sum(cost.joules.ravel() for cost in costs))
    if load.tower.turned and not profile.fused:
        seconds = seconds + _turned_s(load, stack, system)
    return np.maximum(seconds, _launched_s(model, stack, own, profile)), joules


_known_cost = lru_cache(maxsize=256)(_cost)


def _points(load: EncoderLoad) -> TablePoints:
    """Tables of this one load."""
    n, length = load.sequences, np.array([load.length])
    return replace(
        WHOLE, tokens=n * length, prompts=np.array([n]), lengths=length, pasts=np.zeros(1)
    )


def _projector(load: EncoderLoad, kernels: Kernels) -> PowerLimitedCost:
    """What is not of the layers."""
    kernels, (rows,) = kernels.along(np.array([load.tokens]))
    product = projector(load, rows, float(kernels.deployment.tp))
    return kernels.held(kernels.cost([product], [1.0], len(rows)))


def _turned_s(load: EncoderLoad, stack: Stack, system: System) -> Array:
    """Sums and norms of layers whose states lie channel by channel: modules of plain PyTorch keep what a
    convolution left, so that each of two sums reads across and each of two norms copies first."""
    moved = 2.0 * (2.0 * 3.0 + 2.0 * 2.0) * stack.hidden * load.sequences * load.length
    bytes_per_s = np.asarray(system.chip.memory_bandwidth_bytes_per_s, float)
    return np.asarray(len(stack.layers) * moved / bytes_per_s * (1.0 / TURNED_SHARE - 1.0))


def _launched_s(model: Model, stack: Stack, d: Deployment, profile: EngineProfile) -> float:
    """Host time of launching every kernel of the layers."""
    each = profile.launch_s or profile.eager_kernel_s
    if not each:
        return (profile.eager_layer_s or EAGER_LAYER_S) * len(stack.layers)
    formats = FORMAT, FORMAT
    return each * sum(
        many * layer_launches(layer, stack, model, d, formats) for layer, many in kinds_of(stack)
    )
