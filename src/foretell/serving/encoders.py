"""Images and audio before a prompt: tokens that they become, and what their encoder takes.

    patches = (width / patch) (height / patch)         of an image; audio has frames in their place
    tokens  = patches / merge^2                        that join the prompt

The encoder's layers run by the same kernels as the model's, in 16 bits, on the tensor-parallel ranks
together; these are launched one by one. Its time is part of the steps that read the prompt.
"""

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from foretell.errors import BadInput, Problem
from foretell.records import dataclass
from foretell.serving.kernels import Array, Kernels, PowerLimitedCost
from foretell.serving.launches import EAGER_LAYER_S, layer_launches
from foretell.serving.tables import (
    WHOLE,
    TablePoints,
    kinds_of,
    links_of,
    sequence_cost,
    token_costs,
)
from foretell.specs._base import Num
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import EncoderLoad, Model, Stack, Tower
from foretell.specs.system import System
from foretell.specs.system_batch import system_count
from foretell.workload.build import layer_graph
from foretell.workload.graph import Tokens
from foretell.workload.ops import Gemm
from foretell.workload.parameters import layer_weights
from foretell.workload.roles import OpRole, Region

_IMAGES = re.compile(r"(?:([0-9]{1,4})x)?([0-9]{1,5})x([0-9]{1,5})")
FORMAT: Literal["bf16"] = "bf16"
"""Encoders keep their 16 bits where the text model's weights are narrower."""
TURNED_SHARE = 0.18
"""Share of the memory's bandwidth of passes that read across: 0.18 to 0.2 (Whisper) and 0.14 (SigLIP) on one
H200 (tests/bench/measure_encoders.py, 2026-11-16)."""
WHISPER_HZ = 50.0
"""Positions of a second of audio that Whisper's encoder reads."""
EXAMPLES = {"vision": "qwen2.5-vl-7b", "audio": "whisper-large-v3, qwen2-audio-7b"}
"""Models of the catalogue that read images, and audio."""


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


def read_images(text: str) -> tuple[int, int, int]:
    """Images, width and height of a text such as 1024x1024 or 2x1280x720."""
    match = _IMAGES.fullmatch(text.strip().lower())
    if match is None or min(int(match[2]), int(match[3])) < 1 or match[1] == "0":
        raise BadInput(
            [Problem(path="images", value=text, message="is no size of images",
                     allowed="WIDTHxHEIGHT in pixels, or COUNTxWIDTHxHEIGHT")]
        )  # fmt: skip
    return int(match[1] or 1), int(match[2]), int(match[3])


def image_load(tower: Tower, wide: int, high: int, many: int = 1) -> EncoderLoad:
    """Images as their family's processor cuts them."""
    sequences, per_token = 1.0, float(tower.merge**2)
    if tower.image_side:
        across, down = (math.ceil(side / tower.image_side) for side in (wide, high))
        tiles = min(across * down, tower.most_tiles)
        sequences = float(tiles + (tiles > 1))
        tokens = (tower.image_side // tower.patch) ** 2 / per_token
    elif tower.budget:
        tokens = float(tower.budget)
    else:
        step = tower.patch * tower.merge
        cells = [max(round(side / step), 1) for side in (wide, high)]
        tokens = float(min(cells[0] * cells[1], tower.most_tokens or math.inf))
    return EncoderLoad(
        tower=tower,
        sequences=many * sequences,
        length=tokens * per_token,
        tokens=many * sequences * tokens,
    )


def audio_load(tower: Tower, seconds: float) -> EncoderLoad:
    """Some seconds of audio, in whole stretches where its tower pads them."""
    frames = tower.frames_per_s * seconds
    stretches, length = 1, max(frames, 1.0)
    if tower.stretch_s:
        stretches = math.ceil(seconds / tower.stretch_s)
        length = tower.frames_per_s * tower.stretch_s
    tokens = stretches * tower.budget if tower.budget else math.ceil(frames / tower.merge)
    return EncoderLoad(tower=tower, sequences=float(stretches), length=length, tokens=float(tokens))


def encoded_input(
    model: Model, isl: float, images: str | None, audio_s: float | None
) -> EncodedInput:
    """The prompt of a request with its images and its audio."""
    if audio_s and model.kind == "encoder-decoder":
        return _source_frames(model, audio_s)
    loads, names = [], []
    if images is not None:
        count, wide, high = read_images(images)
        loads.append(image_load(_tower(model, "vision", images), wide, high, count))
        names.append(images)
    if audio_s:
        loads.append(audio_load(_tower(model, "audio", audio_s), audio_s))
        names.append(f"{audio_s:g} s of audio")
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
        raise BadInput(
            [Problem(path="audio", value=audio_s, message=f"{model.id} reads text",
                     allowed="--isl, the tokens of its source")]
        )  # fmt: skip
    longest = own.positions / WHISPER_HZ
    if audio_s > longest:
        raise BadInput(
            [Problem(path="audio", value=audio_s, message=f"{model.id} hears {longest:g} s at once",
                     allowed=f"at most {longest:g}: engines send longer audio as several requests")]
        )  # fmt: skip
    text = (
        f"{audio_s:g} s of audio: {own.positions} frames, padded to {longest:g} s, are what the encoder "
        "reads; --isl is not used"
    )
    return EncodedInput(prompt=float(own.positions), said=(text,))


def _tower(model: Model, name: str, value: object) -> Tower:
    flag = {"vision": "images", "audio": "audio"}[name]
    for tower in model.towers:
        if tower.name == name and tower.stack and (tower.patch or tower.frames_per_s):
            return tower
    raise BadInput(
        [Problem(path=flag, value=value, message=f"{model.id} has no {name} encoder that is known",
                 allowed=f"a model with one, such as {EXAMPLES[name]}")]
    )  # fmt: skip


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
    Those of a single system are remembered."""
    if system_count(system) > 1:
        return _new_cost(load, model, system, deployment, profile)
    return _known_cost(load, model, system, deployment, profile)


def _new_cost(
    load: EncoderLoad,
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
) -> tuple[Array, Array]:
    """The same, computed."""
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
    costs = (token, attention, _projector(load, stack, kernels))
    seconds = np.asarray(sum(cost.seconds.ravel() for cost in costs))
    joules = np.asarray(sum(cost.joules.ravel() for cost in costs))
    if load.tower.turned and not profile.fused:
        seconds = seconds + _turned_s(load, stack, system)
    return np.maximum(seconds, _launched_s(model, stack, own, profile)), joules


_known_cost = lru_cache(maxsize=256)(_new_cost)
"""The same, kept: a service asks for its steps more than once."""


def _points(load: EncoderLoad) -> TablePoints:
    """Tables of this one load."""
    rows, length = np.array([load.sequences * load.length]), np.array([load.length])
    return replace(
        WHOLE,
        tokens=rows,
        prompts=np.array([load.sequences]),
        lengths=length,
        pasts=np.zeros(1),
    )


def _projector(load: EncoderLoad, stack: Stack, kernels: Kernels) -> PowerLimitedCost:
    """What is not of the layers, most of it maps from merged patches to the text's width."""
    tower = load.tower
    rest = max(tower.parameters - len(stack.layers) * _layer_weights(stack), 0.0)
    inputs = float(stack.hidden * tower.merge ** (1 if tower.frames_per_s else 2))
    outputs = max(rest / inputs / kernels.deployment.tp, 1.0)
    kernels, (rows,) = kernels.along(np.array([load.tokens]))
    product = Gemm(
        name="encoder.projector", m=rows, n=outputs, k=inputs, role=OpRole.UP,
        region=Region.EMBEDDING,
    )  # fmt: skip
    return kernels.held(kernels.cost([product], [1.0], len(rows)))


def _turned_s(load: EncoderLoad, stack: Stack, system: System) -> Array:
    """Sums and norms of layers whose states lie channel by channel: modules of plain PyTorch keep what a
    convolution left, so that each of two sums reads across and each of two norms copies first."""
    moved = 2.0 * (2.0 * 3.0 + 2.0 * 2.0) * stack.hidden * load.sequences * load.length
    bytes_per_s = np.asarray(system.chip.memory_bandwidth_bytes_per_s, float)
    return np.asarray(len(stack.layers) * moved / bytes_per_s * (1.0 / TURNED_SHARE - 1.0))


def _layer_weights(stack: Stack) -> float:
    """Weights of one layer; windows have none."""
    one = Tokens(batch=1.0, q_len=1.0, kv_len=1.0, phase="prefill")
    return layer_weights(layer_graph(stack.layers[0], stack.hidden, one))


def _launched_s(model: Model, stack: Stack, d: Deployment, profile: EngineProfile) -> float:
    """Host time of launching every kernel of the layers."""
    each = profile.launch_s or profile.eager_kernel_s
    if not each:
        return (profile.eager_layer_s or EAGER_LAYER_S) * len(stack.layers)
    formats = FORMAT, FORMAT
    return each * sum(
        many * layer_launches(layer, stack, model, d, formats) for layer, many in kinds_of(stack)
    )
