"""Images and audio before a prompt: tokens that they become, and the time of their encoder.

    patches = (width / patch) (height / patch)             of an image; audio has frames in their place
    tokens  = patches / merge^2                            that join the prompt
    FLOP    = 2 weights patches + 4 layers hidden patches^2

An encoder runs before its prompt's first step, whole on every tensor-parallel rank's share of it.
"""

import math
import re

from foretell.errors import BadInput, Problem
from foretell.records import dataclass
from foretell.specs.deployment import Deployment
from foretell.specs.model import Model, Tower
from foretell.specs.system import System

ENCODER_SHARE = 0.4
"""Share of the 16-bit peak that vision transformers reach: heads of 72 or 80 and short products
(recalled)."""
LAYER_S = 1.2e-4
"""Least time of one layer of an encoder, its kernels launched one by one (kernels/fusion.py)."""
FRAMES_PER_S, FRAMES_PER_TOKEN = 50.0, 2.0
"""Frames of an audio encoder a second (Whisper: hops of 10 ms, one convolution of stride two), and frames
pooled into one token (Qwen2-Audio)."""
_IMAGES = re.compile(r"(?:([0-9]{1,4})x)?([0-9]{1,5})x([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedInput:
    """What images and audio add to every request."""

    tokens: float = 0.0
    """Tokens of the prompt."""
    seconds: float = 0.0
    """Time of the encoders before it."""
    said: tuple[str, ...] = ()
    """What to tell of it."""


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
    model: Model, system: System, d: Deployment, images: str | None, audio_s: float | None
) -> EncodedInput:
    """Tokens and time of the images and the audio of a request."""
    found = EncodedInput()
    if images is not None:
        count, wide, high = read_images(images)
        tower = _tower(model, "vision", images)
        side = tower.patch * tower.merge
        patches = math.ceil(wide / side) * math.ceil(high / side) * tower.merge**2
        tokens = count * patches / tower.merge**2
        seconds = count * encoder_s(tower, system, d, float(patches))
        text = f"{images}: {tokens:.0f} tokens of images, {1e3 * seconds:.1f} ms in their encoder"
        found = EncodedInput(tokens=tokens, seconds=seconds, said=(text,))
    if audio_s:
        tower = _tower(model, "audio", audio_s)
        frames = FRAMES_PER_S * audio_s
        seconds = encoder_s(tower, system, d, frames)
        tokens = frames / FRAMES_PER_TOKEN
        text = f"{audio_s:g} s of audio: {tokens:.0f} tokens, {1e3 * seconds:.1f} ms in its encoder"
        found = EncodedInput(
            tokens=found.tokens + tokens, seconds=found.seconds + seconds, said=(*found.said, text)
        )
    return found


def _tower(model: Model, name: str, value: object) -> Tower:
    flag = {"vision": "images", "audio": "audio"}[name]
    for tower in model.towers:
        if tower.name == name and (name == "audio" or tower.patch):
            return tower
    raise BadInput(
        [Problem(path=flag, value=value, message=f"{model.id} has no {name} encoder that is known",
                 allowed="a multimodal model, such as qwen2.5-vl-7b")]
    )  # fmt: skip


def encoder_s(tower: Tower, system: System, d: Deployment, patches: float) -> float:
    """Seconds of an encoder for one image or one stretch of audio."""
    flop = 2.0 * tower.parameters * patches + 4.0 * tower.layers * tower.hidden * patches**2
    peaks = system.chip.matrix_flop_per_s
    peak = float(peaks.get("bf16") or peaks.get("fp16") or system.chip.vector_flop_per_s)
    return max(flop / (ENCODER_SHARE * peak * d.tp), tower.layers * LAYER_S)
