"""Images and audio before a prompt: tokens that they become, and the time of their encoder.

    patches = (width / patch) (height / patch)             of an image, or of each of its tiles
    frames  = 50 a second (Whisper), in windows of 30 s    of audio
    tokens  = patches / merge^2, frames / merge            that join the prompt
    FLOP    = 2 weights p + 4 hidden p (full p + (layers - full) min(window, p))

An encoder runs before its prompt's first step, whole on every tensor-parallel rank's share of it. Whisper and
its like have the encoder as a part of the model: there the frames are the prompt.
"""

import math
import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.errors import BadInput, Problem
from foretell.records import dataclass
from foretell.specs.model import Model, Tower
from foretell.specs.system import System

ENCODER_SHARE = 0.4
"""Share of the 16-bit peak that vision transformers reach: heads of 72 or 80 and short products
(recalled)."""
LAYER_S = 1.2e-4
"""Least time of one layer of an encoder, its kernels launched one by one (kernels/fusion.py)."""
FRAMES_HZ = 50.0
"""Frames of an audio encoder a second where its config does not say (Whisper: hops of 10 ms, one convolution
of stride two)."""
EXAMPLES = {"vision": "qwen2.5-vl-7b", "audio": "whisper-large-v3, qwen2-audio-7b"}
"""Models of the catalogue that read images, and audio."""
_IMAGES = re.compile(r"(?:([0-9]{1,4})x)?([0-9]{1,5})x([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedInput:
    """What images and audio add to every request."""

    tokens: float = 0.0
    """Tokens of the prompt."""
    flop: float = 0.0
    """FLOP of the encoders before it."""
    waits_s: float = 0.0
    """What launching their kernels takes beyond that."""
    said: tuple[str, ...] = ()
    """What to tell of it."""
    whole_prompt: bool = False
    """Whether these tokens are the prompt, not only a part of it."""


def read_images(text: str) -> tuple[int, int, int]:
    """Images, width and height of a text such as 1024x1024 or 2x1280x720."""
    match = _IMAGES.fullmatch(text.strip().lower())
    if match is None or min(int(match[2]), int(match[3])) < 1 or match[1] == "0":
        raise BadInput(
            [Problem(path="images", value=text, message="is no size of images",
                     allowed="WIDTHxHEIGHT in pixels, or COUNTxWIDTHxHEIGHT")]
        )  # fmt: skip
    return int(match[1] or 1), int(match[2]), int(match[3])


def encoded_input(
    model: Model, system: System, images: str | None, audio_s: float | None
) -> EncodedInput:
    """Tokens and time of the images and the audio of a request."""
    found = EncodedInput()
    if images is not None:
        count, wide, high = read_images(images)
        tower = _tower(model, "vision", images)
        each, tiles = image_patches(tower, wide, high)
        tokens = count * tiles * each / tower.merge**2
        found = _encoded(tower, system, float(each), float(count * tiles), tokens)
        text = f"{images}: {tokens:.0f} tokens of images, {_shown(found, system)} in their encoder"
        if tower.tile or tower.budget:
            text += "; the model brings every image to a size of its own"
        found = replace(found, said=(text,))
    if not audio_s:
        return found
    if model.kind == "encoder-decoder":
        return _source_frames(model, audio_s)
    tower = _tower(model, "audio", audio_s)
    frames, windows = audio_frames(tower, audio_s)
    own = math.ceil((tower.frames_hz or FRAMES_HZ) * audio_s / tower.merge)
    tokens = windows * tower.budget if tower.budget else float(own)
    heard = _encoded(tower, system, frames, windows, tokens)
    text = f"{audio_s:g} s of audio: {tokens:.0f} tokens, {_shown(heard, system)} in its encoder"
    if windows * frames > (tower.frames_hz or FRAMES_HZ) * audio_s:
        text += f", padded to {windows:g} x {frames / (tower.frames_hz or FRAMES_HZ):g} s"
    return EncodedInput(
        tokens=found.tokens + tokens, flop=found.flop + heard.flop,
        waits_s=found.waits_s + heard.waits_s, said=(*found.said, text),
    )  # fmt: skip


def _encoded(
    tower: Tower, system: System, patches: float, many: float, tokens: float
) -> EncodedInput:
    """So many images, tiles or stretches of audio of one request, all at once through their encoder."""
    flop = encoder_flop(tower, patches, many)
    least = tower.layers * LAYER_S - flop / float(np.max(encoder_rate(system)))
    return EncodedInput(tokens=tokens, flop=flop, waits_s=max(least, 0.0))


def _shown(one: EncodedInput, system: System) -> str:
    """Milliseconds of an encoder on one chip."""
    seconds = one.flop / float(np.max(encoder_rate(system))) + one.waits_s
    return f"{1e3 * seconds:.1f} ms on one chip"


def image_patches(tower: Tower, wide: int, high: int) -> tuple[int, int]:
    """(patches of one tile of an image, tiles); an image that keeps its size is one tile."""
    side = tower.patch * tower.merge
    if tower.budget:
        return tower.budget * tower.merge**2, 1
    if not tower.tile:
        return math.ceil(wide / side) * math.ceil(high / side) * tower.merge**2, 1
    tiles = min(math.ceil(wide / tower.tile) * math.ceil(high / tower.tile), tower.tiles)
    return (tower.tile // side) ** 2 * tower.merge**2, tiles + (tiles > 1)


def audio_frames(tower: Tower, seconds: float) -> tuple[float, float]:
    """(frames of one stretch, stretches) of audio: whole windows where it is padded to them."""
    frames = (tower.frames_hz or FRAMES_HZ) * seconds
    if not tower.padded or not tower.window:
        return frames, 1.0
    return float(tower.window), float(math.ceil(frames / tower.window))


def _source_frames(model: Model, audio_s: float) -> EncodedInput:
    """Audio of a model whose encoder reads it (Whisper): one window of frames, whatever it holds."""
    window = float(model.encoder_embedding.positions) if model.encoder_embedding else 0.0
    if not window or not model.encoder_embedding or not model.encoder_embedding.projections:
        raise BadInput(
            [Problem(path="audio", value=audio_s, message=f"{model.id} reads text",
                     allowed="--isl, the tokens of its source")]
        )  # fmt: skip
    longest = window / FRAMES_HZ
    if audio_s > longest:
        raise BadInput(
            [Problem(path="audio", value=audio_s, message=f"{model.id} hears {longest:g} s at once",
                     allowed=f"at most {longest:g}: engines send longer audio as several requests")]
        )  # fmt: skip
    text = (
        f"{audio_s:g} s of audio: {window:.0f} frames, padded to {longest:g} s, are what the encoder reads; "
        "--isl is not used"
    )
    return EncodedInput(tokens=window, said=(text,), whole_prompt=True)


def _tower(model: Model, name: str, value: object) -> Tower:
    flag = {"vision": "images", "audio": "audio"}[name]
    for tower in model.towers:
        if tower.name == name and (name == "audio" or tower.patch):
            return tower
    raise BadInput(
        [Problem(path=flag, value=value, message=f"{model.id} has no {name} encoder that is known",
                 allowed=f"a model with one, such as {EXAMPLES[name]}")]
    )  # fmt: skip


def encoder_flop(tower: Tower, patches: float, many: float = 1.0) -> float:
    """FLOP of an encoder for so many images, tiles or stretches of audio."""
    seen = min(float(tower.window), patches) if tower.window else patches
    local = tower.layers - tower.full_layers if tower.window else 0
    pairs = patches * (local * seen + (tower.layers - local) * patches)
    return many * (2.0 * tower.parameters * patches + 4.0 * tower.hidden * pairs)


def encoder_rate(system: System) -> NDArray[np.float64]:
    """FLOP a second that an encoder reaches on one chip."""
    peaks = system.chip.matrix_flop_per_s
    peak = peaks.get("bf16") or peaks.get("fp16") or system.chip.vector_flop_per_s
    return ENCODER_SHARE * np.asarray(peak, float)
