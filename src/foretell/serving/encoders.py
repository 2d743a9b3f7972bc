"""Images and audio before a prompt: tokens that they become, and what their encoder takes.

    patches = (width / patch) (height / patch)         of an image; audio has frames in their place
    tokens  = patches / merge^2                        that join the prompt

The encoder's layers run by the same kernels as the model's, in 16 bits, on the tensor-parallel ranks
together; these are launched one by one. Its time is part of the steps that read the prompt.
"""

import math
import re
from dataclasses import replace
from typing import Literal

import numpy as np

from foretell.errors import BadInput, Problem
from foretell.records import dataclass
from foretell.serving.kernels import Kernels, PowerLimitedCost
from foretell.serving.launches import layer_launches
from foretell.serving.steps import EAGER_LAYER_S, kernel_side
from foretell.serving.tables import (
    WHOLE,
    TablePoints,
    kinds_of,
    links_of,
    sequence_cost,
    token_costs,
)
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model, Stack, Tower
from foretell.specs.system import System
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
WHISPER_S, WHISPER_POSITIONS = 30.0, 1500
"""Whisper reads stretches of 30 s as 1,500 positions each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedInput:
    """What images and audio add to every request."""

    tokens: float = 0.0
    """Tokens of the prompt."""
    seconds: float = 0.0
    """Time of the encoders."""
    joules: float = 0.0
    """Energy of all ranks in it, above idling."""
    whole: bool = False
    """Whether these tokens are all that the model's own encoder reads (Whisper), in the place of a prompt."""
    said: tuple[str, ...] = ()
    """What to tell of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """How one image or stretch of audio goes through its encoder."""

    sequences: float
    """Tiles, or stretches, that do not attend to one another."""
    length: float
    """Patches or frames of each."""
    tokens: float
    """Tokens that all of them become."""


def read_images(text: str) -> tuple[int, int, int]:
    """Images, width and height of a text such as 1024x1024 or 2x1280x720."""
    match = _IMAGES.fullmatch(text.strip().lower())
    if match is None or min(int(match[2]), int(match[3])) < 1 or match[1] == "0":
        raise BadInput(
            [Problem(path="images", value=text, message="is no size of images",
                     allowed="WIDTHxHEIGHT in pixels, or COUNTxWIDTHxHEIGHT")]
        )  # fmt: skip
    return int(match[1] or 1), int(match[2]), int(match[3])


def image_pieces(tower: Tower, wide: int, high: int) -> Pieces:
    """One image as its family's processor cuts it."""
    if tower.image_side:
        across, down = (math.ceil(side / tower.image_side) for side in (wide, high))
        tiles = min(across * down, tower.most_tiles)
        tiles += 1 if tiles > 1 else 0
        patches = float((tower.image_side // tower.patch) ** 2)
        return Pieces(
            sequences=float(tiles), length=patches, tokens=tiles * patches / tower.merge**2
        )
    step = tower.patch * tower.merge
    cells = [max(round(side / step), 1) for side in (wide, high)]
    tokens = float(cells[0] * cells[1])
    if tower.most_tokens:
        tokens = min(tokens, float(tower.most_tokens))
    return Pieces(sequences=1.0, length=tokens * tower.merge**2, tokens=tokens)


def audio_pieces(tower: Tower, seconds: float) -> Pieces:
    """Some seconds of audio."""
    frames = tower.frames_per_s * seconds
    tokens = math.ceil(frames / tower.merge)
    if not tower.stretch_s:
        return Pieces(sequences=1.0, length=max(frames, 1.0), tokens=tokens)
    stretches = math.ceil(seconds / tower.stretch_s)
    length = tower.frames_per_s * tower.stretch_s
    return Pieces(sequences=float(stretches), length=length, tokens=tokens)


def encoded_input(
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
    images: str | None,
    audio_s: float | None,
) -> EncodedInput:
    """Tokens and time of the images and the audio of a request."""
    found, where = EncodedInput(), (model, system, deployment, profile)
    if images is not None:
        count, wide, high = read_images(images)
        tower = _tower(model, "vision", images)
        one = image_pieces(tower, wide, high)
        pieces = replace(one, sequences=count * one.sequences, tokens=count * one.tokens)
        found = _with(found, (tower, pieces), where, images)
    if audio_s and _reads_audio(model):
        return _whisper(audio_s)
    if audio_s:
        tower = _tower(model, "audio", audio_s)
        pieces = audio_pieces(tower, audio_s)
        said = f"{audio_s:g} s of audio"
        found = _with(found, (tower, pieces), where, said)
    return found


def _with(
    before: EncodedInput,
    read: tuple[Tower, Pieces],
    where: tuple[Model, System, Deployment, EngineProfile],
    name: str,
) -> EncodedInput:
    """What was found before, and one more encoder's input."""
    tower, pieces = read
    seconds, joules = encoder_cost(read, *where)
    text = f"{name}: {pieces.tokens:.0f} tokens, {1e3 * seconds:.1f} ms in the {tower.name} encoder"
    return EncodedInput(
        tokens=before.tokens + pieces.tokens,
        seconds=before.seconds + seconds,
        joules=before.joules + joules,
        said=(*before.said, text),
    )


def _reads_audio(model: Model) -> bool:
    """Whether audio is what the model's own encoder reads."""
    own = model.encoder_embedding
    return model.encoder is not None and own is not None and not own.vocab


def _whisper(audio_s: float) -> EncodedInput:
    """The positions of Whisper's encoder, which is a part of the model."""
    positions = WHISPER_POSITIONS * math.ceil(audio_s / WHISPER_S)
    text = f"{audio_s:g} s of audio: {positions} positions of the encoder, in the place of --isl"
    return EncodedInput(tokens=float(positions), whole=True, said=(text,))


def _tower(model: Model, name: str, value: object) -> Tower:
    flag = {"vision": "images", "audio": "audio"}[name]
    nearest = {"vision": "qwen2.5-vl-7b", "audio": "whisper-large-v3"}[name]
    for tower in model.towers:
        if tower.name == name and tower.stack and (tower.patch or tower.frames_per_s):
            return tower
    raise BadInput(
        [Problem(path=flag, value=value, message=f"{model.id} has no {name} encoder that is known",
                 allowed=f"a model that has one, such as {nearest}")]
    )  # fmt: skip


def encoder_cost(
    read: tuple[Tower, Pieces],
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
) -> tuple[float, float]:
    """Seconds of an encoder for all pieces at once, and joules of the ranks."""
    tower, pieces = read
    stack = tower.stack
    assert stack is not None
    own = replace(deployment, dp=1, cp=1, pp=1, ep=1, weights=FORMAT, experts=FORMAT, kv=FORMAT,
                  draft_tokens=0)  # fmt: skip
    engine = replace(kernel_side(profile), window_used=True, fused=False)
    kernels = Kernels(chip=system.chip, deployment=own, profile=engine)
    links = links_of(system, own, engine)
    points = _points(pieces)
    token, _ = token_costs(model, stack, kernels, links, points)
    attention = sequence_cost(model, stack, kernels, "prefill", points)
    between = _projector(tower, stack, pieces, kernels)
    costs = (token, attention, between)
    seconds = sum(float(cost.seconds.ravel()[0]) for cost in costs)
    if tower.turned and not profile.fused:
        seconds += _turned_s(stack, pieces, system)
    joules = sum(float(cost.joules.ravel()[0]) for cost in costs)
    return max(seconds, _launched_s(model, stack, own, profile)), joules


def _points(pieces: Pieces) -> TablePoints:
    """Tables of this one load."""
    rows, length = np.array([pieces.sequences * pieces.length]), np.array([pieces.length])
    return replace(
        WHOLE,
        tokens=rows,
        prompts=np.array([pieces.sequences]),
        lengths=length,
        pasts=np.zeros(1),
    )


def _projector(tower: Tower, stack: Stack, pieces: Pieces, kernels: Kernels) -> PowerLimitedCost:
    """What is not of the layers, most of it maps from merged patches to the text's width."""
    rest = max(tower.parameters - len(stack.layers) * _layer_weights(stack), 0.0)
    inputs = float(stack.hidden * tower.merge ** (1 if tower.frames_per_s else 2))
    rows, outputs = np.array([pieces.tokens]), rest / inputs / kernels.deployment.tp
    product = Gemm(
        name="encoder.projector", m=rows, n=max(outputs, 1.0), k=inputs, role=OpRole.UP,
        region=Region.EMBEDDING,
    )  # fmt: skip
    return kernels.held(kernels.cost([product], [1.0], 1))


def _turned_s(stack: Stack, pieces: Pieces, system: System) -> float:
    """Sums and norms of layers whose states lie channel by channel: modules of plain PyTorch keep what a
    convolution left, so that each of two sums reads across and each of two norms copies first."""
    moved = 2.0 * (2.0 * 3.0 + 2.0 * 2.0) * stack.hidden * pieces.sequences * pieces.length
    bytes_per_s = float(system.chip.memory_bandwidth_bytes_per_s)
    return len(stack.layers) * moved / bytes_per_s * (1.0 / TURNED_SHARE - 1.0)


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
