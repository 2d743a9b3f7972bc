"""Answers of Hugging Face transformers (model.generate) on one GPU, one JSON line per point.

    python tests/bench/measure_generate.py --out generate.jsonl
    python tests/bench/measure_generate.py --out tiny.jsonl --tiny       (every path, on a CPU)

Models are built from their configs with random weights, bf16, greedy, no end token before the limit. The time
to the first token is that of generate with one new token; TPOT is what each of the further ones adds. Each is
the least of several calls after a first that warms up. Start it on one core (taskset -c 4): threads that move
between cores doubled the host's time.
"""

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers_points import MODELS

CUDA = torch.cuda.is_available()
NAMES = (
    "llama-3.1-8b",
    "llama-3.2-1b",
    "qwen3-8b",
    "mistral-7b",
    "gemma-2-2b",
    "gpt2-xl",
    "qwen3-30b-a3b",
)
"""Models by their ids in the catalogue; transformers_points.py has their shapes."""
LOADS = ((1, 128), (1, 2048), (8, 512), (32, 512), (64, 1024), (1, 8192))
"""Sequences and prompt tokens."""
NEW = 48
"""Tokens of an answer."""
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "num_experts": 4,
         "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_embd": 64, "n_head": 4,
         "n_layer": 2}  # fmt: skip


def build(name: str, tiny: bool) -> Any:
    """The model with random weights."""
    fields = dict(MODELS[name])
    if tiny:
        fields |= {key: value for key, value in SMALL.items() if key in fields}
    config = transformers.AutoConfig.for_model(**fields)
    with torch.device("cuda" if CUDA else "cpu"):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.AutoModelForCausalLM.from_config(config)
        torch.set_default_dtype(torch.float32)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


def seconds(model: Any, tokens: torch.Tensor, new: int, repeats: int) -> float:
    """Least time of one call that answers with so many tokens."""
    found = []
    mask = torch.ones_like(tokens)
    for _ in range(repeats):
        wait()
        begin = perf_counter()
        model.generate(
            tokens, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False
        )
        wait()
        found.append(perf_counter() - begin)
    return min(found)


def wait() -> None:
    """Until the GPU has done its work."""
    if CUDA:
        torch.cuda.synchronize()


def rows(names: list[str], tiny: bool) -> Iterator[dict[str, Any]]:
    """A row for each model and load that fits."""
    for name in names:
        model = build(name, tiny)
        for batch, prompt in LOADS:
            length = min(prompt, 64) if tiny else prompt
            if length + NEW >= model.config.max_position_embeddings:
                continue
            vocabulary = model.config.vocab_size
            tokens = torch.randint(1, vocabulary, (batch, length), device=model.device)
            try:
                seconds(model, tokens, 4, 1)
                first = seconds(model, tokens, 1, 6)
                whole = seconds(model, tokens, NEW + 1, 4)
            except torch.cuda.OutOfMemoryError:
                continue
            peak = torch.cuda.max_memory_allocated() if CUDA else 0
            yield {
                "model": name, "batch": batch, "isl": length, "osl": NEW + 1,
                "ttft_ms": 1e3 * first, "tpot_ms": 1e3 * (whole - first) / NEW, "peak_bytes": peak,
                "torch": torch.__version__, "transformers": transformers.__version__,
                "device": torch.cuda.get_device_name() if CUDA else "cpu",
            }  # fmt: skip
        del model
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=list(NAMES))
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    with torch.inference_mode(), given.out.open("a") as file:
        for row in rows(given.models, given.tiny):
            file.write(json.dumps(row) + "\n")
            file.flush()
            sys.stdout.write(f"{row['model']} {row['batch']} x {row['isl']}: "
                             f"{row['ttft_ms']:.1f} ms, {row['tpot_ms']:.2f} ms\n")  # fmt: skip
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
