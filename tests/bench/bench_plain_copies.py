"""Copies that plain PyTorch makes beside products, against one long read and write: on one GPU,
`python tests/bench/bench_plain_copies.py` prints each as a multiple of the time of its least bytes.

The multiples stand in catalog/software (joins_heads, joins_halves, repeats_keys) and cost/fusion.py
(COMPOSED_NORM, REPEATED, `clamp`), counted from code: this says how near the counts are. The numbers in
brackets are those that are used.
"""

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch

TOKENS, HIDDEN, HEADS, KV, INNER = 8192, 4096, 32, 8, 14336
"""One sequence of Llama 3 8B."""


def spent_s(work: Callable[[], Any], device: str, repeats: int = 20) -> float:
    """Median seconds of a call, the device waited for."""
    times = []
    for _ in range(repeats + 3):
        begin = perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(perf_counter() - begin)
    return median(times[3:])


def back_s(make: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, device: str) -> float:
    """Seconds of the backward pass of make(x)."""
    y = make(x)
    grad = torch.randn_like(y)
    return spent_s(lambda: torch.autograd.grad(y, x, grad, retain_graph=True), device)


def rms(x: torch.Tensor) -> torch.Tensor:
    """An RMS norm of plain operations in 32 bits."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * 1.5


def clamped(x: torch.Tensor) -> torch.Tensor:
    """Both halves clamped and joined, as Megatron-Core does before a fused activation."""
    gate, up = x.chunk(2, dim=-1)
    return torch.cat((gate.clamp(max=7.0), up.clamp(-7.0, 7.0)), dim=-1)


def by_rows(x: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values as slices of rows; added up, so that each has a gradient."""
    q, k, v = x.split((HIDDEN, KV * 128, KV * 128), dim=-1)
    return torch.cat((q * 2.0, k * 2.0, v * 2.0), dim=-1)


def by_heads(x: torch.Tensor) -> torch.Tensor:
    """The same split behind a transposition, as the runner's layers have it."""
    split = x.view(1, -1, HEADS + 2 * KV, 128).transpose(1, 2)
    q, k, v = split.split((HEADS, KV, KV), dim=1)
    return torch.cat((q * 2.0, k * 2.0, v * 2.0), dim=1)


def main() -> None:
    """Print the table."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens = TOKENS if device == "cuda" else 64

    def some(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=device, dtype=torch.bfloat16, requires_grad=True)

    long = torch.empty(2**28 if device == "cuda" else 2**20, device=device, dtype=torch.bfloat16)
    rate = 4.0 * long.numel() / spent_s(long.clone, device)
    print(
        f"{torch.__version__} {device}: a copy of {2 * long.numel():,} bytes at {rate / 1e12:.2f} TB/s"
    )
    x, qkv, inner = (
        some(tokens, HIDDEN),
        some(tokens, HIDDEN + 2 * KV * 128),
        some(tokens, 2 * INNER),
    )
    keys = some(1, tokens, KV, 128)
    repeats = HEADS // KV
    with torch.no_grad():
        repeat_s = spent_s(lambda: keys.repeat_interleave(repeats, dim=2), device)
    rows = (
        ("plain RMS norm, forward (9)", 2 * x.numel(), spent_s(lambda: rms(x), device)),
        ("plain RMS norm, backward (14)", 3 * x.numel(), back_s(rms, x, device)),
        ("clamps, forward (2)", 2 * inner.numel(), spent_s(lambda: clamped(inner), device)),
        ("clamps, backward (1.7)", 3 * inner.numel(), back_s(clamped, inner, device)),
        ("slices by rows, backward, scaled (1, and 2)", 2 * qkv.numel(), back_s(by_rows, qkv, device)),
        ("slices by heads, the same (4, and 2)", 2 * qkv.numel(), back_s(by_heads, qkv, device)),
        ("keys for every head, forward (1)", (repeats + 1) * keys.numel(), repeat_s),
    )  # fmt: skip
    for name, elements, seconds in rows:
        print(f"{name:58s} {1e6 * seconds:9.1f} us  {seconds * rate / (2.0 * elements):5.2f}")


if __name__ == "__main__":
    sys.exit(main())
