"""Encoders of images and audio: tokens as the families' processors make them, and time by kernels."""

from dataclasses import replace
from typing import Any

import pytest

import foretell
from foretell.catalog.engines import profiles
from foretell.catalog.models import catalogue_model
from foretell.catalog.systems import named_system
from foretell.errors import BadInput
from foretell.serving.encoders import encoder_cost
from foretell.specs.deployment import Deployment
from foretell.specs.model import EncoderLoad, Tower
from foretell.workload.parameters import layer_weights
from foretell.workload.towers import audio_load, image_load

ASKED: dict[str, Any] = {"gpus": "1xH200", "plan": "tp1", "isl": 100, "osl": 50, "concurrency": 1}
ON_ONE = Deployment(tp=1, weights="bf16", experts="bf16", kv="bf16")


def tower_of(name: str) -> Tower:
    """The only tower of a catalogue model."""
    (tower,) = catalogue_model(name).towers
    return tower


@pytest.mark.parametrize(
    ("name", "size", "tokens"),
    [
        ("qwen2.5-vl-7b", (1024, 1024), 37 * 37),
        ("qwen3-vl-8b", (1024, 768), 32 * 24),
        ("qwen3-vl-8b", (20000, 20000), 16384),
        ("gemma-3-27b", (1024, 1024), 256),
        ("gemma-3-27b", (64, 64), 256),
        ("gemma-4-31b", (2000, 2000), 280),
        ("kimi-k2.6", (1024, 1024), 37 * 37),
        ("llama-4-scout", (336, 336), 144),
        ("llama-4-scout", (672, 672), 5 * 144),
        ("llama-4-scout", (4000, 4000), 17 * 144),
    ],
)
def test_tokens_of_an_image(name: str, size: tuple[int, int], tokens: int) -> None:
    """As the released processors say; each rule is cited in interop/huggingface/families.toml."""
    assert image_load(tower_of(name), *size).tokens == tokens


@pytest.mark.parametrize("name", ["gemma-3-4b", "qwen2.5-vl-7b", "qwen3-vl-8b", "llama-4-scout",
                                  "kimi-k2.6", "kimi-k3", "gemma-4-31b"])  # fmt: skip
def test_layers_hold_most_of_the_weights_that_are_counted(name: str) -> None:
    """The layers that are timed are those whose weights were counted by the family's own formula."""
    from foretell.workload.graph import Tokens
    from foretell.workload.layer import layer_graph

    tower = tower_of(name)
    assert tower.stack is not None
    one = Tokens(batch=1.0, q_len=1.0, kv_len=1.0, phase="prefill")
    held = len(tower.stack.layers) * layer_weights(
        layer_graph(tower.stack.layers[0], tower.stack.hidden, one)
    )
    assert 0.6 * tower.parameters < held <= 1.001 * tower.parameters


def seconds(tower: Tower, batch: float, length: float, engine: str = "transformers-4") -> float:
    """Kernels of an encoder on one H200, none waiting for its launch."""
    profile = replace(profiles()[engine], launch_s=1e-12)
    tokens = batch * length / tower.merge**2
    load = EncoderLoad(tower=tower, sequences=batch, length=length, tokens=tokens)
    model, system = catalogue_model("gemma-3-4b"), named_system("dgx-h200")
    return float(encoder_cost(load, model, system, ON_ONE, profile)[0][0])


@pytest.mark.parametrize(
    ("batch", "length", "measured_ms"),
    [(1, 256, 2.11), (4, 256, 3.84), (1, 1024, 4.06), (4, 1024, 12.03), (1, 4096, 16.34),
     (4, 4096, 62.53), (1, 9216, 50.99), (1, 20736, 197.76), (4, 20736, 796.77)],
)  # fmt: skip
def test_siglip_as_measured(batch: int, length: int, measured_ms: float) -> None:
    """SigLIP-So400m, replayed from a graph on one H200 (tests/bench/measure_encoders.py, 2026-11-16)."""
    assert 1e3 * seconds(tower_of("gemma-3-4b"), batch, length) == pytest.approx(
        measured_ms, rel=0.2
    )


@pytest.mark.parametrize(("batch", "measured_ms"), [(1, 8.02), (4, 26.96), (16, 107.82)])
def test_whisper_encoder_as_measured(batch: int, measured_ms: float) -> None:
    """Whisper large-v3's encoder over 30 s, likewise."""
    model = catalogue_model("whisper-large-v3")
    tower = Tower(name="audio", parameters=637_000_000, merge=2, stack=model.encoder,
                  frames_per_s=50.0, stretch_s=30.0, turned=True)  # fmt: skip
    assert 1e3 * seconds(tower, batch, 1500.0) == pytest.approx(measured_ms, rel=0.25)


def test_windows_cost_less_than_whole_attention() -> None:
    """28 of Qwen2.5-VL's 32 layers attend in windows of 64 patches."""
    tower = tower_of("qwen2.5-vl-7b")
    assert tower.stack is not None
    whole = replace(tower, stack=replace(tower.stack, layers=(tower.stack.layers[7],) * 32))
    near, far = (seconds(one, 1.0, 20736.0) for one in (tower, whole))
    # Measured apart on one H200: 128 of these windows are read in a few hundredths of the whole's time.
    assert near < 0.6 * far
    assert seconds(tower, 1.0, 64.0) == pytest.approx(seconds(whole, 1.0, 64.0), rel=0.02)


def test_time_grows_with_images_and_shrinks_with_ranks() -> None:
    found = [
        foretell.serve("qwen3-vl-8b", **ASKED, images=f"{n}x1024x1024").ttft_ms.mean
        for n in (1, 2, 4, 8)
    ]
    assert found == sorted(found)
    wide = foretell.serve("qwen3-vl-8b", **{**ASKED, "gpus": "4xH200", "plan": "tp4"},
                          images="8x1024x1024")  # fmt: skip
    assert wide.ttft_ms.mean < found[-1]


def test_encoders_take_time_from_the_others() -> None:
    """Under load the encoder's work lowers throughput; it is no delay beside the steps."""
    busy = {**ASKED, "concurrency": 64}
    tokens = 1024
    plain = foretell.serve("qwen3-vl-8b", **{**busy, "isl": 100 + tokens})
    seen = foretell.serve("qwen3-vl-8b", **busy, images="1024x1024")
    assert seen.isl == plain.isl
    assert seen.output_tokens_per_s < 0.95 * plain.output_tokens_per_s
    assert seen.joules_per_token > plain.joules_per_token


@pytest.mark.parametrize(
    ("name", "seconds", "tokens", "encoded"),
    [
        ("qwen2-audio-7b", 10.0, 250, 1500),  # 25 tokens a second; the stretch is padded to 30 s
        ("qwen2-audio-7b", 45.0, 1125, 3000),
        ("voxtral-mini-3b", 10.0, 375, 1500),  # 12.5 tokens a second, of the padding too
        ("voxtral-mini-3b", 60.0, 750, 3000),
    ],
)
def test_tokens_of_audio(name: str, seconds: float, tokens: int, encoded: int) -> None:
    """transformers: Qwen2AudioProcessor, VoxtralProcessor; both have WhisperFeatureExtractor's stretches."""
    load = audio_load(tower_of(name), seconds)
    assert (load.sequences * load.length, load.tokens) == (encoded, tokens)
    assert foretell.serve(name, **ASKED, audio=seconds).isl == 100 + tokens


def test_whisper_hears_one_stretch() -> None:
    """Whisper pads what it hears to 30 s: 1,500 frames, whatever is said of a prompt."""
    found = [foretell.serve("whisper-large-v3", **ASKED, audio=s) for s in (1.0, 30.0)]
    assert found[0].isl == found[1].isl == 1500
    assert found[0].ttft_ms == found[1].ttft_ms
    with pytest.raises(BadInput, match="30 s at once"):
        foretell.serve("whisper-large-v3", **ASKED, audio=31.0)
    with pytest.raises(BadInput, match="reads text"):
        foretell.serve("t5-11b", **ASKED, audio=3.0)
    with pytest.raises(BadInput, match="whisper-large-v3"):
        foretell.serve("llama-3.1-8b", **ASKED, audio=3.0)


def test_a_service_of_images_takes_more_chips() -> None:
    asked: dict[str, Any] = {
        "model": "qwen2.5-vl-7b", "system": "h100-sxm", "rate": 30.0, "isl": 100, "osl": 50,
        "simulate": False, "gpus": 2,
    }  # fmt: skip
    plain, seen = (foretell.size(**asked, images=images) for images in (None, "1024x1024"))
    assert seen.best.option.gpus > plain.best.option.gpus
    assert seen.wanted.isl == 100 + 37 * 37
