"""Which family of kernels an operation of PyTorch belongs to, and the sizes of its kernel.

What is not listed is a pass over its inputs and results where PyTorch's tag `pointwise` says so. Any other,
as one of another library, is unknown, and charged by its bytes.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

Sizes = Mapping[str, float]
"""Sizes of a kernel by name."""

NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
"""Names of PyTorch and diffusers that a trace treats apart."""
NO_KERNEL = frozenset(NAMES["no_kernel"].split())
"""Operations that start no kernel, though some make a tensor."""
SKIPPED = frozenset(NAMES["skipped"].split())
"""What the tracer sees and a device never does."""
KINDS: Mapping[str, str] = {
    name: kind for kind, names in NAMES["kinds"].items() for name in names.split()
}
"""Name of an operation, without its overload -> its family; products are in PRODUCTS."""


def _mm(a: Any, b: Any) -> dict[str, float]:
    return {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1], "batch": 1.0}


def _bmm(a: Any, b: Any) -> dict[str, float]:
    return {"m": a.shape[1], "n": b.shape[2], "k": a.shape[2], "batch": a.shape[0]}


PRODUCTS: Mapping[str, Callable[..., dict[str, float]]] = {
    "mm": lambda a, b, *_, **__: _mm(a, b),
    "addmm": lambda _, a, b, *__, **___: _mm(a, b),
    "_addmm_activation": lambda _, a, b, *__, **___: _mm(a, b),
    "bmm": lambda a, b, *_, **__: _bmm(a, b),
    "baddbmm": lambda _, a, b, *__, **___: _bmm(a, b),
    "baddbmm_": lambda _, a, b, *__, **___: _bmm(a, b),
    "_scaled_mm": lambda a, b, *_, **__: _mm(a, b),
}
"""Matrix products -> their sizes from their arguments."""


def convolution_sizes(
    rows: Sequence[int],
    kernel: Sequence[int],
    results: Sequence[int],
    *,
    groups: int,
    transposed: bool,
    masks: Sequence[bool] = (),
) -> dict[str, float]:
    """Sizes of a convolution from the shapes of its input, its weights and its result; `masks` say which
    gradients a backward pass makes: of the input, of the weights, of the bias."""
    found: dict[str, float] = {
        "batch": rows[0],
        "inputs": rows[1],
        "outputs": results[1],
        "taps": prod(kernel[2:]),
        "width": kernel[-1],
        "in_points": prod(rows[2:]),
        "out_points": prod(results[2:]),
        "dimensions": len(rows) - 2,
        "groups": groups,
        "transposed": float(transposed),
    }
    for name, made in zip(("to_input", "to_weights", "to_bias"), masks, strict=False):
        found[name] = float(made)
    return found


def convolution_flops(sizes: Sizes) -> float:
    """Operations of one product of a convolution: forward, or one gradient."""
    points = sizes["in_points"] if sizes["transposed"] else sizes["out_points"]
    channels = sizes["inputs"] * sizes["outputs"] / sizes["groups"]
    return 2.0 * sizes["batch"] * points * channels * sizes["taps"]


def attention_sizes(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *, causal: bool, masked: bool
) -> dict[str, float]:
    """Sizes of fused attention from the shapes of its inputs, (batch, heads, tokens, channels)."""
    pairs: float = query[2] * key[2]
    if causal:
        short = min(query[2], key[2])
        pairs = short * (short + 1) / 2 + max(query[2] - short, 0) * key[2]
    return {
        "batch": query[0],
        "heads": query[1],
        "kv_heads": key[1],
        "q_len": query[2],
        "kv_len": key[2],
        "pairs": pairs,
        "qk_dim": query[3],
        "v_dim": value[3],
        "masked": float(masked),
    }


def attention_flops(sizes: Sizes, *, backward: bool) -> float:
    """Operations of fused attention: two products forward, five backward."""
    qk, v = (3.0, 2.0) if backward else (1.0, 1.0)
    each = qk * sizes["qk_dim"] + v * sizes["v_dim"]
    return 2.0 * sizes["batch"] * sizes["heads"] * sizes["pairs"] * each
