"""Attention over long chunks, and one layer of a long-sequence ViT, on one CUDA GPU.

    python tests/bench/bench_long_attention.py --out long.jsonl          # under 5 minutes on an H200
    python tests/bench/bench_long_attention.py --out cpu.jsonl --device cpu --small

Needs torch alone. One JSON line a case: forward and backward seconds (medians by CUDA events), what was
asked for, and the clock and watts at the end of the case. Cases:

    square    causal and whole attention over 4k to 128k tokens, heads of 64 and 128, with grouped keys
    chunk     q rows against a longer or shorter run of keys, unmasked: the blocks of a ring of context
              ranks under the zigzag cut (own square causal, then half keys or half queries), and the
              rows of a rank that has gathered all keys
    merge     adding a block's output to the running one by its log-sum-exp, as ring steps do
    vit       a whole layer (norms, projections, attention, MLP of GELU) of 64,800 tokens, whole and as one
              rank of tensor, 2-D tensor and context groups holds it
"""

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Row = dict[str, Any]
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
VIT_TOKENS, VIT_WIDTH, VIT_HEADS = 64_800, 12_288, 64
LENGTHS = (4096, 8192, 16_384, 32_768, 65_536, 131_072)


def smi() -> Row:
    """SM clock and board power now, where nvidia-smi answers."""
    query = "--query-gpu=clocks.sm,power.draw,power.limit"
    try:
        text = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout
        clock, watts, limit = (float(part) for part in text.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {"sm_mhz": clock, "watts": watts, "limit_watts": limit}


class Timer:
    """Times of one callable: a warm-up, then repeats up to a share of a second."""

    def __init__(self, device: str, patience_s: float, most: int) -> None:
        self.cuda, self.patience_s, self.most = device == "cuda", patience_s, most

    def once(self, work: Callable[[], Any]) -> float:
        if not self.cuda:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def median(self, work: Callable[[], Any]) -> float:
        first = [self.once(work), self.once(work)]
        repeats = max(3, min(self.most, int(self.patience_s / max(first[-1], 1e-6))))
        return statistics.median(self.once(work) for _ in range(repeats))


def attention_case(
    timer: Timer, device: str, backend: str, shape: tuple[int, int, int, int, int], causal: bool
) -> Row:
    """Forward and backward of one attention call; shape = (q rows, keys, heads, key heads, head size)."""
    rows, keys, heads, groups, size = shape
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    q = torch.randn(1, heads, rows, size, device=device, dtype=kind, requires_grad=True)
    k = torch.randn(1, groups, keys, size, device=device, dtype=kind, requires_grad=True)
    v = torch.randn(1, groups, keys, size, device=device, dtype=kind, requires_grad=True)
    up = torch.randn_like(q)
    chosen = BACKENDS[backend] if device == "cuda" else SDPBackend.MATH
    with sdpa_kernel(chosen):

        def forward() -> torch.Tensor:
            grouped = groups != heads
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

        with torch.no_grad():
            forward_s = timer.median(forward)
        out = forward()
        backward_s = timer.median(
            lambda: torch.autograd.grad(out, (q, k, v), up, retain_graph=True)
        )
    square = 4.0 * rows * keys * heads * size
    return {
        "rows": rows,
        "keys": keys,
        "heads": heads,
        "kv_heads": groups,
        "head_dim": size,
        "causal": causal,
        "backend": backend,
        "forward_s": forward_s,
        "backward_s": backward_s,
        "forward_tflops": square * (0.5 if causal else 1.0) / forward_s / 1e12,
        "backward_tflops": 2.5 * square * (0.5 if causal else 1.0) / backward_s / 1e12,
    }


def merge_case(timer: Timer, device: str, rows: int, heads: int, size: int) -> Row:
    """One correction of a running output by a block's: the elementwise work between ring steps."""
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    total = torch.randn(1, heads, rows, size, device=device, dtype=torch.float32)
    part = torch.randn(1, heads, rows, size, device=device, dtype=kind)
    old = torch.randn(1, heads, rows, device=device)
    new = torch.randn(1, heads, rows, device=device)

    def merge() -> None:
        both = torch.logaddexp(old, new)
        total.mul_(torch.exp(old - both).unsqueeze(-1))
        total.add_(part * torch.exp(new - both).unsqueeze(-1).to(kind))

    return {"rows": rows, "heads": heads, "head_dim": size, "forward_s": timer.median(merge)}


class VitShard(torch.nn.Module):
    """What one rank holds of a ViT layer: some heads, some of the MLP, some rows against all keys."""

    def __init__(self, width: int, heads: int, size: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.query = torch.nn.Linear(width, heads * size)
        self.keys = torch.nn.Linear(width, 2 * heads * size)
        self.out = torch.nn.Linear(heads * size, width)
        self.up, self.down = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor, others: torch.Tensor | None) -> torch.Tensor:
        """`others` are rows of further ranks' keys and values, already gathered."""
        normed = self.first(x)
        q = self._split(self.query(normed))
        k, v = (self._split(part) for part in self.keys(normed).chunk(2, dim=-1))
        if others is not None:
            k, v = torch.cat([k, others], dim=2), torch.cat([v, others], dim=2)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, self.size)).transpose(1, 2)


def vit_case(timer: Timer, device: str, backend: str, scale: tuple[int, int], small: bool) -> Row:
    """Forward and backward of the layer as one of tp x cp ranks holds it; scale = (tp, cp)."""
    tp, cp = scale
    shrink = 32 if small else 1
    tokens, width = VIT_TOKENS // cp // shrink, VIT_WIDTH // shrink
    size = width // VIT_HEADS
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    layer = VitShard(width, VIT_HEADS // tp, size, 4 * width // tp).to(device, kind)
    x = torch.randn(1, tokens, width, device=device, dtype=kind, requires_grad=True)
    rest = (cp - 1) * tokens
    shape = (1, VIT_HEADS // tp, rest, size)
    others = torch.randn(shape, device=device, dtype=kind, requires_grad=True) if rest else None
    wanted = [x, *layer.parameters()] + ([others] if others is not None else [])
    chosen = BACKENDS[backend] if device == "cuda" else SDPBackend.MATH
    with sdpa_kernel(chosen):
        with torch.no_grad():
            forward_s = timer.median(lambda: layer(x, others))
        out = layer(x, others)
        up = torch.randn_like(out)
        backward_s = timer.median(lambda: torch.autograd.grad(out, wanted, up, retain_graph=True))
    products = 24.0 * tokens * width * width / tp
    square = 4.0 * tokens * (tokens + rest) * width / tp
    return {
        "tokens": tokens,
        "keys": tokens + rest,
        "width": width,
        "heads": VIT_HEADS // tp,
        "head_dim": size,
        "tp": tp,
        "cp": cp,
        "backend": backend,
        "gemm_flops": products,
        "attention_flops": square,
        "forward_s": forward_s,
        "backward_s": backward_s,
    }


def cases(timer: Timer, device: str, small: bool) -> Iterator[tuple[str, Callable[[], Row]]]:
    """All cases, the most useful first: the script may be stopped by its limit."""
    lengths = (256, 512) if small else LENGTHS
    backends = ("flash", "cudnn")
    for backend in backends:
        for size, heads, groups in ((128, 32, 8), (128, 32, 32), (64, 32, 32)):
            for length in lengths:
                shape = (length, length, heads, groups, size)
                yield "square", _bind(attention_case, timer, device, backend, shape, True)
        for length in lengths[:-1]:
            shape = (length, length, 32, 8, 128)
            yield "square", _bind(attention_case, timer, device, backend, shape, False)
    for backend in backends:
        for scale in ((1, 1), (8, 1), (4, 4), (1, 8), (16, 1)):
            yield "vit", _bind(vit_case, timer, device, backend, scale, small)
    chunks = (128, 256) if small else (1024, 2048, 4096, 8192, 16_384)
    for backend in backends:
        for heads, groups in ((32, 8), (8, 2)):
            for rows in chunks:
                for keys in (rows // 2, rows, 2 * rows, 4 * rows, 16 * rows):
                    if rows * keys > 2**33 or keys > LENGTHS[-1]:
                        continue
                    shape = (rows, keys, heads, groups, 128)
                    yield "chunk", _bind(attention_case, timer, device, backend, shape, False)
    for rows in chunks:
        yield "merge", _bind(merge_case, timer, device, rows, 32, 128)


def _bind(work: Callable[..., Row], *given: Any) -> Callable[[], Row]:
    return lambda: work(*given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to try the script")
    parser.add_argument("--limit-s", type=float, default=280.0, help="stop after so many seconds")
    parser.add_argument("--patience-s", type=float, default=0.15, help="seconds of repeats a case")
    given = parser.parse_args()
    timer = Timer(given.device, given.patience_s, most=30)
    name = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    about = {"device": name, "torch": torch.__version__}
    start = time.perf_counter()
    with given.out.open("w") as file:
        for kind, work in cases(timer, given.device, given.small):
            if time.perf_counter() - start > given.limit_s:
                print("stopped at the limit")
                break
            try:
                row = {"case": kind, **work(), **smi(), **about}
            except (RuntimeError, torch.OutOfMemoryError) as error:
                row = {"case": kind, "error": str(error).splitlines()[0][:200], **about}
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(json.dumps(row))
            if given.device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
