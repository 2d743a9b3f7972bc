"""Measured mixture-of-experts layers as rows of the `experts` family.

Tables give one layer on one GPU: num_tokens tokens, each with topk of num_experts experts, of which the
GPU holds one in moe_ep_size and of each a moe_tp_size-th; the GPU timed is the most loaded one.
`distribution` is `balanced` or `power_law_a`. A site, which is left out as a whole, is a model's shape
(hidden, inter, top_k, experts); where a table has one shape only, it is a layout (tp, ep) of it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.kernels.families.base import DTYPES, Array
from foretell.lab.calibrate.cells import numbers
from foretell.lab.calibrate.surfaces import KernelRows

NAMES: Mapping[str, str] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "mxfp8": "mxfp8",
    "int8": "int8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4_wo": "int4",
    "w4a16_mxfp4": "w4a16-mxfp4",
    "w4a8_mxfp4_mxfp8": "w4a8-mxfp4",
    "w4afp8": "w4afp8",
}
"""Formats as tables spell them, and as the project does."""
SIZES: Mapping[str, str] = {
    "tokens": "num_tokens",
    "hidden": "hidden_size",
    "inter": "inter_size",
    "top_k": "topk",
    "experts": "num_experts",
    "tp": "moe_tp_size",
    "ep": "moe_ep_size",
}
"""Dims, and the columns they come from; tp and ep are 1 where their column is missing."""


STEEPEST = 10.0
"""Exponent of a power law above which one expert has every token."""


def rows_of(
    table: Mapping[str, list[str]], chip: str, software: str, version: str
) -> list[KernelRows]:
    """The rows that can be predicted, by format and kernel."""
    count = len(table["num_tokens"])
    sizes = {name: _numbers(table.get(column), count) for name, column in SIZES.items()}
    seconds = _numbers(table.get("latency_ms") or table.get("latency"), count) * 1e-3
    skew = np.array([skew_of(text) for text in table.get("distribution") or ["balanced"] * count])
    good = (seconds > 0.0) & np.isfinite(seconds + skew + sum(sizes.values()))
    good &= np.min(list(sizes.values()), axis=0) >= 1.0
    sources = table.get("kernel_source") or [""] * count
    formats = [NAMES.get(text, "") for text in table["moe_dtype"]]
    names = [software_of(software, source) for source in sources]
    ids = table.get("id") or [str(i) for i in range(1, count + 1)]
    keys = np.array([f"{f}|{n}" for f, n in zip(formats, names, strict=True)])
    found = []
    for key in sorted(set(keys.tolist())):
        dtype, name = key.split("|")
        mine = np.flatnonzero(good & (keys == key))
        if dtype not in DTYPES or not mine.size:
            continue
        dims = {label: values[mine] for label, values in sizes.items()} | {"skew": skew[mine]}
        routed = _as_routed(dims, [sources[i] for i in mine], dtype)
        rows = KernelRows(
            family="experts",
            dtype=dtype,
            chip=chip,
            software=name,
            version=version,
            ids=tuple(ids[i] for i in mine),
            dims=routed,
            measured_s=seconds[mine],
            site=_sites(dims),
        )
        found.append(rows)
    return found


def _numbers(column: list[str] | None, count: int) -> Array:
    """A column as numbers: 1 where it is missing, nan where a cell cannot be read."""
    if not column:
        return np.ones(count)
    return numbers(column)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def skew_of(distribution: str) -> float:
    """0 for `balanced`, a for `power_law_a`, nan for anything else."""
    if distribution in ("balanced", ""):
        return 0.0
    skew = _number(distribution.removeprefix("power_law_"))
    return skew if 0.0 <= skew <= STEEPEST else float("nan")


def software_of(software: str, source: str) -> str:
    """Kernels that software has beside its usual ones go by a name of their own.

    `-gen`: TensorRT-LLM's for small batches. `-cutlass`: FlashInfer's in vLLM on Hopper, whose time falls
    with more tokens (3.9 ms at 16, 2.2 ms at 2048 for 128 experts in fp8): nothing to carry over.
    """
    if "min_latency" in source:
        return f"{software}-gen"
    return f"{software}-cutlass" if "flashinfer_cutlass" in source else software


def _as_routed(dims: Mapping[str, Array], sources: Sequence[str], dtype: str) -> dict[str, Array]:
    """Dims as the kernels saw them.

    Kernels that route by groups (4 of 8) met the tables' artificial logits, which tie: of a token's
    balanced experts they kept the half in the first groups and took the first experts of all for the
    rest, and of eight experts always the first two. It shows in the times: as long on 2 ranks as on 1,
    and on 64 still half of that.
    """
    grouped = np.array(["min_latency" in source for source in sources])
    # vLLM's kernels that route themselves do so for DeepSeek-V3's 256 experts only.
    inside = np.array(["expertsmonolithic" in s and "trtllm" in s for s in sources])
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


def _sites(dims: Mapping[str, Array]) -> NDArray[np.intp]:
    """Numbers of the sites."""
    shape = [dims[name] for name in ("hidden", "inter", "top_k", "experts")]
    found = np.unique(np.stack(shape, -1), axis=0, return_inverse=True)[1].ravel()
    if found.max() > 0:
        return np.asarray(found, dtype=np.intp)
    layout = np.stack([dims["tp"], dims["ep"]], -1)
    return np.asarray(np.unique(layout, axis=0, return_inverse=True)[1].ravel(), dtype=np.intp)
