"""Encoders of images and audio (Hugging Face modules, random weights, bf16) on one GPU, a JSON line each.

    python tests/bench/measure_encoders.py --out encoders.jsonl
    python tests/bench/measure_encoders.py --out tiny.jsonl --tiny        (every path, on a CPU)

Each is timed as it is called (host included) and as a replayed graph (kernels alone): the least of several
calls after one that warms up. Windows of Qwen2.5-VL take one call of attention each in this library, where
engines have one kernel for all; its row without windows and the time of a window's attention tell them apart.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

CUDA = torch.cuda.is_available()
QWEN3 = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16,
         "out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]}  # fmt: skip
QWEN25 = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14,
          "out_hidden_size": 3584, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]}  # fmt: skip
SIGLIP = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
          "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False}  # fmt: skip
WHISPER = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20,
           "encoder_ffn_dim": 5120, "num_mel_bins": 128}  # fmt: skip
SIDES = (224, 448, 896, 1344, 2016)
"""Sides of square images, in pixels."""
BATCHES = (1, 4)
"""Images, or stretches of 30 s of audio, at once."""


def place(module: Any) -> Any:
    """A module in bf16 on the device."""
    return module.to(device="cuda" if CUDA else "cpu", dtype=torch.bfloat16).eval()


def tensor(*shape: int) -> torch.Tensor:
    """Random numbers on the device."""
    return torch.randn(*shape, device="cuda" if CUDA else "cpu", dtype=torch.bfloat16)


def siglip(tiny: bool) -> Iterator[tuple[str, int, int, Callable[[], Any]]]:
    """SigLIP-So400m (Gemma-3, Qwen3-VL's ancestor) at several sides."""
    for side in SIDES[: 1 if tiny else None]:
        fields = SIGLIP | ({"num_hidden_layers": 2} if tiny else {})
        config = transformers.SiglipVisionConfig(**fields, image_size=side)
        model = place(transformers.SiglipVisionModel(config))
        for batch in BATCHES:
            pixels = tensor(batch, 3, side, side)
            yield "siglip", batch, (side // 14) ** 2, lambda m=model, x=pixels: m(x)


def qwen(name: str, tiny: bool) -> Iterator[tuple[str, int, int, Callable[[], Any]]]:
    """The towers of Qwen2.5-VL and Qwen3-VL, which take patches of all images in one sequence."""
    if name == "qwen3-vl":
        from transformers.models.qwen3_vl import configuration_qwen3_vl as c
        from transformers.models.qwen3_vl import modeling_qwen3_vl as m

        fields = QWEN3 | ({"depth": 2, "deepstack_visual_indexes": [1]} if tiny else {})
        model = place(m.Qwen3VLVisionModel._from_config(c.Qwen3VLVisionConfig(**fields)))
        side = 16
    else:
        from transformers.models.qwen2_5_vl import configuration_qwen2_5_vl as c
        from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as m

        fields = QWEN25 | ({"depth": 2, "fullatt_block_indexes": [1]} if tiny else {})
        if name == "qwen2.5-vl-whole":
            fields |= {"fullatt_block_indexes": list(range(32))}
        config = c.Qwen2_5_VLVisionConfig(**fields)
        model = place(m.Qwen2_5_VisionTransformerPretrainedModel._from_config(config))
        side = 14
    values = 3 * 2 * side * side
    for pixels in SIDES[: 1 if tiny else None]:
        for batch in BATCHES:
            across = pixels // (2 * side) * 2
            grid = torch.tensor([[1, across, across]] * batch, device=model.device)
            patches = tensor(batch * across * across, values)
            yield name, batch, across * across, lambda x=patches, g=grid, t=model: t(x, grid_thw=g)


def whisper(tiny: bool) -> Iterator[tuple[str, int, int, Callable[[], Any]]]:
    """Whisper large-v3's encoder over 30 s."""
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    fields = WHISPER | ({"encoder_layers": 2} if tiny else {})
    model = place(WhisperEncoder(transformers.WhisperConfig(**fields)))
    for batch in (1, 4, 16):
        frames = tensor(batch, 128, 3000)
        yield "whisper-large-v3", batch, 1500, lambda x=frames: model(x)


def windows() -> Iterator[tuple[str, int, int, Callable[[], Any]]]:
    """Attention in windows of 64 patches, 16 heads of 80, as one call."""
    attend = torch.nn.functional.scaled_dot_product_attention
    for many in (16, 100, 400):
        q = tensor(many, 16, 64, 80)
        yield "window-attention", many, 64, lambda q=q: attend(q, q, q)


def wait() -> None:
    """Until the GPU has done its work."""
    if CUDA:
        torch.cuda.synchronize()


def seconds(call: Callable[[], Any], repeats: int = 8) -> float:
    """Least time of one call."""
    found = []
    for _ in range(repeats):
        wait()
        begin = perf_counter()
        call()
        wait()
        found.append(perf_counter() - begin)
    return min(found)


def replayed(name: str, call: Callable[[], Any]) -> float | None:
    """Least time of the call as a graph; Qwen's towers read sizes back from the device and have none."""
    if not CUDA or name.startswith("qwen"):
        return None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return seconds(graph.replay, 12)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="", help="names that begin so")
    given = parser.parse_args()
    tiny = given.tiny
    found = [siglip(tiny), whisper(tiny), windows()]
    found += [qwen(name, tiny) for name in ("qwen3-vl", "qwen2.5-vl", "qwen2.5-vl-whole")]
    with torch.inference_mode(), given.out.open("a") as file:
        for points in found:
            for name, batch, tokens, call in points:
                if not name.startswith(given.only):
                    continue
                call()
                eager = seconds(call)
                kernels = replayed(name, call)
                row = {
                    "name": name, "batch": batch, "tokens": tokens, "ms": 1e3 * eager,
                    "graph_ms": None if kernels is None else 1e3 * kernels,
                    "torch": torch.__version__, "transformers": transformers.__version__,
                    "device": torch.cuda.get_device_name() if CUDA else "cpu",
                }  # fmt: skip
                file.write(json.dumps(row) + "\n")
                file.flush()
                sys.stdout.write(f"{name} {batch} x {tokens}: {row['ms']:.2f} {row['graph_ms']}\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
