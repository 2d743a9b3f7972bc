"""Tables of measured attention as rows of the `prefill`, `decode`, `mla-prefill` and `mla-decode` families.

Columns: attn_dtype or mla_dtype, kv_cache_dtype, batch_size, isl, step, num_heads, num_key_value_heads,
latency_ms or latency (both ms); where there, head_dim, window_size, beam_width, prefix, id. `step` are the
keys before the new tokens: a table of prompts has rows without any, one of decode steps has none, and its
cache holds isl + step keys. Heads are those of the rank: times follow num_heads and not tp_size.

A site is a set of heads, (heads, key-value heads, head size): what a model brings and a table may lack.
An 8-bit cache makes the row fp8: libraries run the products of 16-bit queries on it in fp8 too.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.families.base import Array
from foretell.lab.calibrate.cells import numbers
from foretell.lab.calibrate.surfaces import KernelRows

Table = Mapping[str, list[str]]
FORMATS: Mapping[str, str] = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16", "auto": "",
    "fp8": "fp8", "fp8_e4m3": "fp8", "e4m3": "fp8", "float8": "fp8",
}  # fmt: skip
"""Formats as tables spell them; `auto` is that of the queries. Others are not modelled."""
CACHE_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes of one element of the cache."""
LATENT, ROPE, NOPE, VALUE = 512.0, 64.0, 128.0, 128.0
"""Sizes of DeepSeek's latent attention: the tables name none."""


def rows_of(table: Table, chip: str, software: str, version: str) -> list[KernelRows]:
    """Rows of one table, a group per format; rows that cannot be read or modelled are left out."""
    latent = "mla_dtype" in table
    dtype, cache = _formats(table, "mla_dtype" if latent else "attn_dtype")
    cells = _cells(table, latent)
    decode = bool(np.all(cells["step"] >= 1.0))
    dims = _decode_dims(cells) if decode else _prefill_dims(cells)
    if latent:
        dims = _latent_dims(dims, decode)
    dims["kv_bytes"] = np.asarray([CACHE_BYTES.get(name, np.nan) for name in cache])
    kind = "decode" if decode else "prefill"
    known = np.asarray([bool(name) for name in dtype], dtype=bool)
    good = known & _sound(cells, dims)
    ids = np.asarray(table.get("id") or [str(i) for i in range(1, len(dtype) + 1)])
    groups = []
    for name in sorted(set(dtype) - {""}):
        keep = good & (np.asarray(dtype) == name)
        if keep.any():
            mine = {size: values[keep] for size, values in dims.items()}
            groups.append(
                KernelRows(
                    family=f"mla-{kind}" if latent else kind,
                    dtype=name,
                    chip=chip,
                    software=software,
                    version=version,
                    ids=tuple(ids[keep].tolist()),
                    dims=mine,
                    measured_s=1e-3 * cells["taken_ms"][keep],
                    site=_sites(mine),
                )
            )
    return groups


def _formats(table: Table, column: str) -> tuple[list[str], list[str]]:
    """What the products run in, and what the cache holds; empty where not modelled."""
    query = [FORMATS.get(text.strip().lower(), "") for text in table[column]]
    held = table.get("kv_cache_dtype") or ["auto"] * len(query)
    cache = [
        FORMATS.get(text.strip().lower(), "?") or own for text, own in zip(held, query, strict=True)
    ]
    both = zip(query, cache, strict=True)
    return ["" if "?" in (q, c) or not q else "fp8" if c == "fp8" else q for q, c in both], cache


def _cells(table: Table, latent: bool) -> dict[str, Array]:
    """The numbers of a table, with what a missing column means."""
    size = len(table["batch_size"])

    def column(name: str, otherwise: float) -> Array:
        return numbers(table[name]) if name in table else np.full(size, otherwise)

    heads = numbers(table["num_heads"])
    shared = heads if latent else column("num_key_value_heads", 0.0)
    return {
        "batch": numbers(table["batch_size"]),
        "isl": numbers(table["isl"]),
        "step": column("step", 0.0) + column("prefix", 0.0),
        "heads": heads,
        "kv_heads": np.where(shared > 0.0, shared, heads),
        "head_dim": column("head_dim", 128.0),
        "window": column("window_size", 0.0),
        "beams": column("beam_width", 1.0),
        "taken_ms": numbers(table["latency_ms" if "latency_ms" in table else "latency"]),
    }


def _prefill_dims(cells: Mapping[str, Array]) -> dict[str, Array]:
    q, kv = cells["isl"], cells["isl"] + cells["step"]
    window = np.where(cells["window"] > 0.0, np.minimum(cells["window"], kv), kv)
    return {
        "batch": cells["batch"],
        "heads": cells["heads"],
        "kv_heads": cells["kv_heads"],
        "q_len": q,
        "kv_len": kv,
        "pairs": causal_pairs(q, kv, window),
        "qk_dim": cells["head_dim"],
        "v_dim": cells["head_dim"],
    }


def _decode_dims(cells: Mapping[str, Array]) -> dict[str, Array]:
    kv = cells["isl"] + cells["step"]
    window = np.where(cells["window"] > 0.0, cells["window"], np.inf)
    return {
        "batch": cells["batch"],
        "heads": cells["heads"],
        "kv_heads": cells["kv_heads"],
        "q_len": np.ones_like(kv),
        "kv_len": np.minimum(kv, window),
        "qk_dim": cells["head_dim"],
        "v_dim": cells["head_dim"],
    }


def _latent_dims(dims: dict[str, Array], decode: bool) -> dict[str, Array]:
    like = np.ones_like(dims["batch"])
    sizes = (LATENT + ROPE, LATENT) if decode else (NOPE + ROPE, VALUE)
    return {**dims, "qk_dim": like * sizes[0], "v_dim": like * sizes[1]}


def causal_pairs(q: Array, kv: Array, window: Array) -> Array:
    """Pairs that a causal mask leaves: row i of q sees min(window, past + i + 1) keys."""
    past = kv - q
    growing = np.clip(window - past, 0.0, q)
    rising = growing * past + 0.5 * growing * (growing + 1.0)
    return np.asarray(rising + (q - growing) * np.minimum(window, kv))


def _sound(cells: Mapping[str, Array], dims: Mapping[str, Array]) -> NDArray[np.bool_]:
    """Rows that can be read; beams share caches in ways that tables do not tell."""
    finite = np.all(np.isfinite([*cells.values(), *dims.values()]), axis=0)
    sized = np.min([cells[n] for n in ("batch", "isl", "heads", "head_dim")], axis=0) >= 1.0
    return np.asarray(finite & sized & (cells["taken_ms"] > 0.0) & (cells["beams"] == 1.0))


def _sites(dims: Mapping[str, Array]) -> NDArray[np.intp]:
    heads = np.stack([dims[name] for name in ("heads", "kv_heads", "qk_dim")], axis=1)
    return np.asarray(np.unique(heads, axis=0, return_inverse=True)[1].reshape(-1))
