"""Images and audio before a prompt: tokens by each family's processor, and their encoder's time."""

from typing import Any

import pytest

import foretell
from foretell.catalog.models import catalogue_model
from foretell.errors import BadInput
from foretell.serving.encoders import audio_frames, encoder_flop, image_patches
from foretell.specs.model import Model, Tower

LOAD: dict[str, Any] = {
    "system": "h100-sxm", "gpus": 1, "plan": "tp1", "isl": 100, "osl": 50, "concurrency": 1,
}  # fmt: skip


def tower_of(model: Model) -> Tower:
    return model.towers[0]


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("qwen2.5-vl-7b", (1024, 1024), 37 * 37),  # 28 pixels to a token
        ("qwen3-vl-8b", (1024, 1024), 32 * 32),  # 32 pixels
        ("kimi-k2.6", (280, 140), 10 * 5),  # 14 pixels, two by two
        (
            "gemma-3-27b",
            (64, 64),
            256,
        ),  # whatever the size: 896 x 896, four by four patches to a token
        ("gemma-3-27b", (4000, 3000), 256),
        ("gemma-4-31b", (1024, 1024), 280),  # max_soft_tokens
        ("llama-4-scout", (300, 300), 144),  # one tile of 336
        ("llama-4-scout", (672, 672), 5 * 144),  # four, and the whole image
        ("llama-4-scout", (9000, 9000), 17 * 144),  # 16 at most
    ],
)
def test_tokens_of_an_image(model: str, size: tuple[int, int], tokens: int) -> None:
    tower = tower_of(catalogue_model(model))
    each, tiles = image_patches(tower, *size)
    assert each * tiles == tokens * tower.merge**2
    width, height = size
    chips = {**LOAD, "system": "b200-sxm", "gpus": 8, "plan": "tp8"}
    seen = foretell.serve(model, **chips, images=f"{width}x{height}")
    assert seen.isl == 100 + tokens


@pytest.mark.parametrize(
    ("model", "seconds", "tokens", "encoded"),
    [
        ("qwen2-audio-7b", 10.0, 250, 1500),  # 25 tokens a second; the window is padded to 30 s
        ("qwen2-audio-7b", 45.0, 1125, 3000),
        ("voxtral-mini-3b", 10.0, 375, 1500),  # 12.5 tokens a second, of the padding too
        ("voxtral-mini-3b", 60.0, 750, 3000),
    ],
)
def test_tokens_of_audio(model: str, seconds: float, tokens: int, encoded: int) -> None:
    """transformers: Qwen2AudioProcessor, VoxtralProcessor; both have WhisperFeatureExtractor's windows."""
    frames, windows = audio_frames(tower_of(catalogue_model(model)), seconds)
    assert frames * windows == encoded
    assert foretell.serve(model, **LOAD, audio=seconds).isl == 100 + tokens


def test_an_encoder_takes_time_of_the_chips() -> None:
    """What an encoder takes is not there for prompts and answers: throughput falls, and a larger chip or
    more ranks bring it back."""
    busy = {**LOAD, "concurrency": 256}
    seen = foretell.serve("qwen2.5-vl-7b", **busy, images="1024x1024")
    longer = foretell.serve("qwen2.5-vl-7b", **{**busy, "isl": 100 + 37 * 37})
    assert seen.requests_per_s < 0.8 * longer.requests_per_s
    one, two = (
        foretell.serve("qwen2.5-vl-7b", **{**LOAD, "gpus": n, "plan": f"tp{n}"}, images="2048x2048")
        for n in (1, 2)
    )
    assert two.ttft_ms.mean < 0.75 * one.ttft_ms.mean


def test_whisper_hears_one_window() -> None:
    """Whisper pads what it hears to 30 s: 1,500 frames, whatever is said of a prompt."""
    found = [foretell.serve("whisper-large-v3", **LOAD, audio=s) for s in (1.0, 30.0)]
    assert found[0].isl == found[1].isl == 1500
    assert found[0].ttft_ms == found[1].ttft_ms
    with pytest.raises(BadInput, match="30 s at once"):
        foretell.serve("whisper-large-v3", **LOAD, audio=31.0)
    with pytest.raises(BadInput, match="reads text"):
        foretell.serve("t5-11b", **LOAD, audio=3.0)


def test_windows_spare_pairs_of_patches() -> None:
    """Qwen2.5-VL: four of 32 layers see the whole image, the others 8 x 8 patches."""
    tower = tower_of(catalogue_model("qwen2.5-vl-7b"))
    assert (tower.window, tower.full_layers) == (64, 4)
    patches = 10_000.0
    linear = 2.0 * tower.parameters * patches
    pairs = encoder_flop(tower, patches) - linear
    assert pairs == pytest.approx(4.0 * tower.hidden * patches * (4 * patches + 28 * 64))
    assert encoder_flop(tower, patches, 3.0) == pytest.approx(3.0 * encoder_flop(tower, patches))


def test_a_service_of_images_takes_more_chips() -> None:
    asked: dict[str, Any] = {
        "model": "qwen2.5-vl-7b", "system": "h100-sxm", "rate": 30.0, "isl": 100, "osl": 50,
        "simulate": False, "gpus": 2,
    }  # fmt: skip
    plain, seen = (foretell.size(**asked, images=images) for images in (None, "1024x1024"))
    assert seen.best.option.gpus > plain.best.option.gpus
    assert seen.wanted.isl == 100 + 37 * 37
