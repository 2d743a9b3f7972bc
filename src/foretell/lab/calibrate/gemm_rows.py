"""Tables of measured matrix products as rows of the `gemm` family.

Columns: gemm_dtype, m, n, k, latency_ms or latency (both ms); where there, `batch`, `id`, and
kernel_source, power_w, power_limit, which tell nothing that the formula needs.
"""

from collections.abc import Mapping

import numpy as np

from foretell.lab.calibrate.cells import numbers
from foretell.lab.calibrate.surfaces import KernelRows

DTYPES: Mapping[str, str] = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16",
    "tf32": "tf32", "float32": "fp32", "fp32": "fp32",
    "fp8": "fp8", "fp8_static": "fp8", "fp8_per_tensor": "fp8", "fp8_ootb": "fp8",
    "fp8_block": "fp8-block", "fp8-block": "fp8-block", "mxfp8": "mxfp8",
    "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4",
    "int8": "int8", "sq": "int8", "w8a8": "int8",
    "int4": "int4", "int4_wo": "int4", "w4a16": "int4", "w4a16_mxfp4": "w4a16-mxfp4",
}  # fmt: skip
"""Formats as tables spell them, and as the project does. Others (int8_wo, w4a8...) are not modelled."""


def rows_of(
    table: Mapping[str, list[str]], chip: str, software: str, version: str
) -> list[KernelRows]:
    """Rows of one table, a group per format; rows that cannot be read or modelled are left out."""
    named = [DTYPES.get(text.strip().lower(), "") for text in table["gemm_dtype"]]
    m, n, k = (numbers(table[name]) for name in ("m", "n", "k"))
    batch = numbers(table["batch"]) if "batch" in table else np.ones(len(named))
    taken_ms = numbers(table["latency_ms" if "latency_ms" in table else "latency"])
    ids = np.asarray(table.get("id") or [str(i) for i in range(1, len(named) + 1)])
    sound = np.all(np.isfinite([m, n, k, batch, taken_ms]), axis=0)
    sound &= np.min([m, n, k, batch], axis=0, initial=np.inf) >= 1.0
    sound &= taken_ms > 0.0
    groups = []
    for dtype in sorted(set(named) - {""}):
        keep = sound & (np.asarray(named) == dtype)
        if not keep.any():
            continue
        pairs = np.stack([n[keep], k[keep]], axis=1)
        groups.append(
            KernelRows(
                family="gemm",
                dtype=dtype,
                chip=chip,
                software=software,
                version=version,
                ids=tuple(ids[keep].tolist()),
                dims={"m": m[keep], "n": n[keep], "k": k[keep], "batch": batch[keep]},
                measured_s=1e-3 * taken_ms[keep],
                site=np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1),
            )
        )
    return groups
