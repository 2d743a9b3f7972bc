"""Rows of kernel families from the columns of published tables: matrix products, attention, experts, passes.

READERS has one line for each kind of table: the columns that tell it, and the function that gives format,
software, sizes, seconds and site of every row. Rows that cannot be read or modelled are left out. A site is
what a model brings and a table may lack, and is left out as a whole: (n, k) of a product, a set of heads of
attention, a model's shape of experts (or a layout, where the table has one shape), an operator of one width.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.names import exists
from foretell.catalog.systems import named_system
from foretell.kernels.families.base import DTYPES
from foretell.lab.calibrate.cells import numbers
from foretell.lab.calibrate.surfaces import KernelRows
from foretell.records import dataclass
from foretell.specs.arrays import Array

Table = Mapping[str, list[str]]
"""Columns by name, all cells as text."""
Words = NDArray[np.str_]
PRODUCTS: Mapping[str, str] = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16",
    "tf32": "tf32", "float32": "fp32", "fp32": "fp32",
    "fp8": "fp8", "fp8_static": "fp8", "fp8_per_tensor": "fp8", "fp8_ootb": "fp8",
    "fp8_block": "fp8-block", "fp8-block": "fp8-block", "mxfp8": "mxfp8",
    "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4",
    "int8": "int8", "sq": "int8", "w8a8": "int8",
    "int4": "int4", "int4_wo": "int4", "w4a16": "int4", "w4a16_mxfp4": "w4a16-mxfp4",
}  # fmt: skip
"""Formats of products as tables spell them, and as the project does. Others (int8_wo, w4a8...) are not
modelled."""
EXPERTS: Mapping[str, str] = {
    "bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "fp8_block": "fp8-block", "mxfp8": "mxfp8",
    "int8": "int8", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "int4_wo": "int4",
    "w4a16_mxfp4": "w4a16-mxfp4", "w4a8_mxfp4_mxfp8": "w4a8-mxfp4", "w4afp8": "w4afp8",
}  # fmt: skip
"""Formats of experts."""
HEADS: Mapping[str, str] = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16", "auto": "",
    "fp8": "fp8", "fp8_e4m3": "fp8", "e4m3": "fp8", "float8": "fp8",
}  # fmt: skip
"""Formats of attention; `auto` is that of the queries."""
CACHE_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes of one element of the cache."""
LATENT, ROPE, NOPE, VALUE = 512.0, 64.0, 128.0, 128.0
"""Sizes of DeepSeek's latent attention: the tables name none."""
EXPERT_SIZES: Mapping[str, str] = {
    "tokens": "num_tokens", "hidden": "hidden_size", "inter": "inter_size", "top_k": "topk",
    "experts": "num_experts", "tp": "moe_tp_size", "ep": "moe_ep_size",
}  # fmt: skip
"""Dims of experts, and the columns they come from; tp and ep are 1 where their column is missing."""
STEEPEST = 10.0
"""Exponent of a power law above which one expert has every token."""
ITEM = 2.0
"""Bytes of an element of a pass over memory."""
OLD = "vllm-2023"
"""Software of the norms, rope and activation of Vidur's tables, which read two bytes at a time."""
NORM_LAUNCHES = 3.0
"""Softmax launches whose host time a layer norm called as a module takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """What a table says of its rows."""

    family: str
    """The kernel family."""
    ids: Sequence[str]
    """Id of each."""
    dtype: Words
    """Format of each; empty where it is not modelled."""
    software: Words
    """What ran each."""
    chip: Words
    """Catalogue id of the chip of each."""
    dims: Mapping[str, Array]
    """Sizes."""
    seconds: Array
    """Measured seconds."""
    good: NDArray[np.bool_]
    """What can be predicted, as far as sizes and seconds that are no numbers do not tell."""
    sites: Sequence[Sequence[Array]]
    """What tells sites apart; further ways where the first tells of one site alone."""


def rows_of(table: Table, chip: str, software: str, version: str) -> list[KernelRows]:
    """Rows of one table, a group for each chip, format and software; none where it is of no known kind."""
    reader = next((read for needs, read in READERS if needs <= table.keys()), None)
    if reader is None:
        return []
    told = reader(table, chip, software)
    good = told.good & (told.dtype != "") & (told.seconds > 0.0)
    good &= np.all(np.isfinite([told.seconds, *told.dims.values()]), axis=0)
    keys = np.stack([told.chip, told.dtype, told.software], axis=1)
    found = []
    for key in sorted({tuple(key) for key in keys[good].tolist()}):
        keep = good & np.all(keys == key, axis=1)
        found.append(
            KernelRows(
                family=told.family,
                dtype=key[1],
                chip=key[0],
                software=key[2],
                version=version,
                ids=tuple(np.asarray(told.ids)[keep].tolist()),
                dims={name: values[keep] for name, values in told.dims.items()},
                measured_s=told.seconds[keep],
                site=_site([[part[keep] for part in way] for way in told.sites]),
            )
        )
    return found


def _site(ways: Sequence[Sequence[Array]]) -> NDArray[np.intp]:
    """Numbers of sites by the first way that tells several."""
    first, *others = ways
    found = np.unique(np.stack(first, -1), axis=0, return_inverse=True)[1].reshape(-1)
    if others and not found.any():
        return _site(others)
    return np.asarray(found, dtype=np.intp)


def _ids(table: Table, count: int) -> list[str]:
    return table.get("id") or [str(i) for i in range(1, count + 1)]


def _words(text: str, count: int) -> Words:
    return np.full(count, text)


def _milliseconds(table: Table) -> Array:
    return numbers(table["latency_ms" if "latency_ms" in table else "latency"])


def _products(table: Table, chip: str, software: str) -> TableRows:
    """gemm_dtype, m, n, k, latency_ms or latency (ms), and batch where there."""
    dtype = np.asarray([PRODUCTS.get(text.strip().lower(), "") for text in table["gemm_dtype"]])
    dims = {name: numbers(table[name]) for name in ("m", "n", "k")}
    dims["batch"] = numbers(table["batch"]) if "batch" in table else np.ones(len(dtype))
    return TableRows(
        family="gemm",
        ids=_ids(table, len(dtype)),
        dtype=dtype,
        software=_words(software, len(dtype)),
        chip=_words(chip, len(dtype)),
        dims=dims,
        seconds=1e-3 * _milliseconds(table),
        good=np.min(list(dims.values()), axis=0, initial=np.inf) >= 1.0,
        sites=[(dims["n"], dims["k"])],
    )


def _attention(table: Table, chip: str, software: str) -> TableRows:
    """Attention of prompts or of decode steps; `step` are the keys before the new tokens.

    Heads are those of the rank: times follow num_heads and not tp_size. Beams share caches in ways that
    tables do not tell. An 8-bit cache makes the row fp8: libraries run the products of 16-bit queries on it
    in fp8 too.
    """
    latent = "mla_dtype" in table
    dtype, cache = _head_formats(table, "mla_dtype" if latent else "attn_dtype")
    cells = _head_cells(table, shared=not latent)
    decode = bool(np.all(cells["step"] >= 1.0))
    q, kv, width = cells["isl"], cells["isl"] + cells["step"], cells["head_dim"]
    window = np.where(cells["window"] > 0.0, cells["window"], np.inf)
    seen = {"q_len": np.ones_like(kv), "kv_len": np.minimum(kv, window)}
    if not decode:
        seen = {"q_len": q, "kv_len": kv, "pairs": causal_pairs(q, kv, np.minimum(window, kv))}
    sizes = (LATENT + ROPE, LATENT) if decode else (NOPE + ROPE, VALUE)
    wide = [np.full_like(kv, size) for size in sizes] if latent else [width, width]
    dims = {name: cells[name] for name in ("batch", "heads", "kv_heads")} | seen
    dims |= {"qk_dim": wide[0], "v_dim": wide[1], "kv_bytes": cache}
    whole = np.min([cells[n] for n in ("batch", "isl", "heads", "head_dim")], axis=0) >= 1.0
    kind = "decode" if decode else "prefill"
    return TableRows(
        family=f"mla-{kind}" if latent else kind,
        ids=_ids(table, len(dtype)),
        dtype=dtype,
        software=_words(software, len(dtype)),
        chip=_words(chip, len(dtype)),
        dims=dims,
        seconds=1e-3 * cells["taken_ms"],
        good=np.all(np.isfinite(list(cells.values())), axis=0) & whole & (cells["beams"] == 1.0),
        sites=[(dims["heads"], dims["kv_heads"], dims["qk_dim"])],
    )


def _head_formats(table: Table, column: str) -> tuple[Words, Array]:
    """What the products run in, empty where it is not modelled, and bytes of an element of the cache."""
    query = [HEADS.get(text.strip().lower(), "") for text in table[column]]
    held = table.get("kv_cache_dtype") or ["auto"] * len(query)
    told = [HEADS.get(text.strip().lower(), "?") for text in held]
    cache = [name or own for name, own in zip(told, query, strict=True)]
    runs = [
        "" if c == "?" else "fp8" if q and c == "fp8" else q
        for q, c in zip(query, cache, strict=True)
    ]
    return np.asarray(runs), np.asarray([CACHE_BYTES.get(name, np.nan) for name in cache])


def _head_cells(table: Table, *, shared: bool) -> dict[str, Array]:
    """The numbers of a table of attention, with what a missing column means."""
    size = len(table["batch_size"])

    def column(name: str, otherwise: float) -> Array:
        return numbers(table[name]) if name in table else np.full(size, otherwise)

    heads = numbers(table["num_heads"])
    kv = column("num_key_value_heads", 0.0) if shared else heads
    return {
        "batch": numbers(table["batch_size"]),
        "isl": numbers(table["isl"]),
        "step": column("step", 0.0) + column("prefix", 0.0),
        "heads": heads,
        "kv_heads": np.where(kv > 0.0, kv, heads),
        "head_dim": column("head_dim", 128.0),
        "window": column("window_size", 0.0),
        "beams": column("beam_width", 1.0),
        "taken_ms": _milliseconds(table),
    }


def causal_pairs(q: Array, kv: Array, window: Array) -> Array:
    """Pairs that a causal mask leaves: row i of q sees min(window, past + i + 1) keys."""
    past = kv - q
    growing = np.clip(window - past, 0.0, q)
    rising = growing * past + 0.5 * growing * (growing + 1.0)
    return np.asarray(rising + (q - growing) * np.minimum(window, kv))


def _experts(table: Table, chip: str, software: str) -> TableRows:
    """One layer on one GPU: num_tokens tokens, each with topk of num_experts experts, of which the GPU holds
    one in moe_ep_size and of each a moe_tp_size-th; the GPU timed is the most loaded one."""
    count = len(table["num_tokens"])
    sizes = {
        name: numbers(table[column]) if table.get(column) else np.ones(count)
        for name, column in EXPERT_SIZES.items()
    }
    spread = table.get("distribution") or ["balanced"] * count
    sources = table.get("kernel_source") or [""] * count
    formats = [EXPERTS.get(text, "") for text in table["moe_dtype"]]
    dtype = np.asarray([name if name in DTYPES else "" for name in formats])
    dims = sizes | {"skew": np.array([skew_of(text) for text in spread])}
    shape = [dims[name] for name in ("hidden", "inter", "top_k", "experts")]
    return TableRows(
        family="experts",
        ids=_ids(table, count),
        dtype=dtype,
        software=np.asarray([software_of(software, source) for source in sources]),
        chip=_words(chip, count),
        dims=_as_routed(dims, sources, dtype),
        seconds=1e-3 * _milliseconds(table),
        good=np.min(list(sizes.values()), axis=0) >= 1.0,
        sites=[shape, (dims["tp"], dims["ep"])],
    )


def skew_of(distribution: str) -> float:
    """0 for `balanced`, a for `power_law_a`, nan for anything else."""
    if distribution in ("balanced", ""):
        return 0.0
    skew = float(numbers([distribution.removeprefix("power_law_")])[0])
    return skew if 0.0 <= skew <= STEEPEST else float("nan")


def software_of(software: str, source: str) -> str:
    """Kernels that software has beside its usual ones go by a name of their own.

    `-gen`: TensorRT-LLM's for small batches. `-cutlass`: FlashInfer's in vLLM on Hopper, whose time falls
    with more tokens (3.9 ms at 16, 2.2 ms at 2048 for 128 experts in fp8): nothing to carry over.
    """
    if "min_latency" in source:
        return f"{software}-gen"
    return f"{software}-cutlass" if "flashinfer_cutlass" in source else software


def _as_routed(dims: Mapping[str, Array], sources: Sequence[str], dtype: Words) -> dict[str, Array]:
    """Dims as the kernels saw them.

    Kernels that route by groups (4 of 8) met the tables' artificial logits, which tie: of a token's
    balanced experts they kept the half in the first groups and took the first experts of all for the
    rest, and of eight experts always the first two. It shows in the times: as long on 2 ranks as on 1,
    and on 64 still half of that.
    """
    grouped = np.array(["min_latency" in source for source in sources], bool)
    # vLLM's kernels that route themselves do so for DeepSeek-V3's 256 experts only.
    inside = np.array(["expertsmonolithic" in s and "trtllm" in s for s in sources], bool)
    inside &= (dims["experts"] == 256.0) & (dtype != "w4a16-mxfp4")
    tied = (grouped | inside) & (dims["top_k"] > 4.0) & (dims["skew"] == 0.0)
    first = grouped & (dims["experts"] == 8.0)
    gated = np.array(["nongated" not in source for source in sources])
    return {
        **dims,
        "experts": np.where(tied, dims["experts"] / 2.0, dims["experts"]),
        "ep": np.where(tied, np.maximum(dims["ep"] / 2.0, 1.0), dims["ep"]),
        "pinned": np.where(tied, 4.0, np.where(first, 2.0, 0.0)),
        "gated": gated.astype(np.float64),
    }


def _layer_passes(table: Table, chip: str, _: str) -> TableRows:
    """Vidur's operators of a layer in columns, in 16 bits on a tensor-parallel rank.

    Residual addition and embedding are PyTorch's; norms, rope and activation are vLLM's of 2023, whose norms
    read their input twice.
    """
    names = ("num_tokens", "n_embd", "n_expanded_embd", "n_head", "n_kv_head")
    tokens, hidden, inner, heads, kv = (numbers(table[name]) for name in names)
    tp = numbers(table["num_tensor_parallel_workers"])
    tp, heads = (np.where(held >= 1.0, held, np.nan) for held in (tp, heads))
    gates = 1.0 + np.array([text == "True" for text in table["use_gated_mlp"]])
    one, wide = tokens * hidden * ITEM, tokens * inner / tp * ITEM
    turned = tokens * (heads + kv) / tp * (hidden / heads) * ITEM
    none = np.zeros_like(one)
    # Software, and what each reads, writes and fetches by index.
    moves = {
        "add_ms": ("torch", 2.0 * one, one, none),
        "emb_ms": ("torch", none, none, 2.0 * one),
        "input_layernorm_ms": (OLD, 2.0 * one, one, none),
        "post_attention_layernorm_ms": (OLD, 2.0 * one, one, none),
        "attn_rope_ms": (OLD, turned, turned, none),
        "mlp_act_ms": (OLD, gates * wide, wide, none),
    }
    count, ops = len(tokens), len(moves)
    return _passes(
        chip=_words(chip, count * ops),
        software=np.repeat([move[0] for move in moves.values()], count),
        ids=[f"{i}:{op}" for op in moves for i in range(1, count + 1)],
        moved=[np.concatenate([move[part] for move in moves.values()]) for part in (1, 2, 3)],
        seconds=np.concatenate([numbers(table[op]) for op in moves]) * 1e-3,
        kernels=np.ones(count * ops),
        place=[np.repeat(np.arange(float(ops)), count), np.tile(hidden / tp, ops)],
    )


def _device_passes(table: Table, _chip: str, _software: str) -> TableRows:
    """LLMCompass's softmax and layer norm by device in billions of elements a second, launched one by one
    from the host; matrix products are left to others."""
    wanted = [op in ("softmax", "layernorm") for op in table["op"]]
    mine = [i for i, device in enumerate(table["device"]) if wanted[i] and exists(device)]
    chips = {device: named_system(device).chip.id for device in {table["device"][i] for i in mine}}
    pairs = [([*table["dims"][i].split("x"), "", ""])[:2] for i in mine]
    rows, width = (numbers([pair[side] for pair in pairs]) for side in (0, 1))
    rate = numbers([table["rate"][i] for i in mine])
    softmax = np.array([table["op"][i] == "softmax" for i in mine])
    ids, moved = _ids(table, len(wanted)), rows * width * ITEM
    return _passes(
        chip=np.asarray([chips[table["device"][i]] for i in mine]),
        software=_words("torch-eager", len(mine)),
        ids=[ids[i] for i in mine],
        moved=[moved, moved, np.zeros_like(moved)],
        seconds=rows * width / (np.where(rate > 0.0, rate, np.nan) * 1e9),
        kernels=np.where(softmax, 1.0, NORM_LAUNCHES),
        place=[softmax.astype(np.float64), width],
    )


def _passes(
    *, chip: Words, software: Words, ids: list[str], moved: list[Array], seconds: Array,
    kernels: Array, place: list[Array],
) -> TableRows:  # fmt: skip
    """Memory-bound kernels: bytes that each reads, writes and fetches by index; `place` tells the site."""
    dims = dict(zip(("bytes_read", "bytes_written", "bytes_gathered"), moved, strict=True))
    return TableRows(
        family="pointwise",
        ids=ids,
        dtype=_words("bf16", len(ids)),
        software=software,
        chip=chip,
        dims={**dims, "flop": np.zeros_like(seconds), "kernels": kernels},
        seconds=seconds,
        good=np.all(np.isfinite(place), axis=0),
        sites=[place],
    )


READERS: tuple[tuple[frozenset[str], Callable[[Table, str, str], TableRows]], ...] = (
    (frozenset({"num_tokens", "inter_size", "num_experts"}), _experts),
    (frozenset({"mla_dtype"}), _attention),
    (frozenset({"attn_dtype"}), _attention),
    (frozenset({"gemm_dtype", "m", "n", "k"}), _products),
    (frozenset({"num_tokens", "n_embd"}), _layer_passes),
    (frozenset({"op", "device", "dims"}), _device_passes),
)
"""Columns that tell a table, and what reads it; the first that fits."""
