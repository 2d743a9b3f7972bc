"""Measured memory-bound kernels as rows of the `pointwise` family.

Two kinds of table. One (Vidur's) has the operators of a transformer layer in columns, in 16 bits on a
tensor-parallel rank: residual addition and embedding are PyTorch's; norms, rope and activation are vLLM's
of 2023, which read two bytes at a time, so they are software of their own (`vllm-2023`). The other
(LLMCompass's) has softmax and layer norm by device in billions of elements a second, launched one by one
from the host. A site is an operator of one width.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.names import exists
from foretell.catalog.systems import named_system
from foretell.kernels.families.base import Array
from foretell.lab.calibrate.cells import numbers
from foretell.lab.calibrate.surfaces import KernelRows

ITEM = 2.0
"""Bytes of an element."""
OLD = "vllm-2023"
"""Software of the norms, rope and activation."""
NORM_LAUNCHES = 3.0
"""Softmax launches whose host time a layer norm called as a module takes."""


def rows_of(
    table: Mapping[str, list[str]], chip: str, software: str, version: str
) -> list[KernelRows]:
    """The rows that can be predicted, by chip and software."""
    if "n_embd" in table:
        return _layer_rows(table, chip, version)
    return _device_rows(table, version)


def _layer_rows(table: Mapping[str, list[str]], chip: str, version: str) -> list[KernelRows]:
    """Operators in columns."""
    names = ("num_tokens", "n_embd", "n_expanded_embd", "n_head", "n_kv_head")
    tokens, hidden, inner, heads, kv = (numbers(table[name]) for name in names)
    tp = numbers(table["num_tensor_parallel_workers"])
    tp, heads = (np.where(held >= 1.0, held, np.nan) for held in (tp, heads))
    gates = 1.0 + np.array([text == "True" for text in table["use_gated_mlp"]])
    one, wide = tokens * hidden * ITEM, tokens * inner / tp * ITEM
    turned = tokens * (heads + kv) / tp * (hidden / heads) * ITEM
    none = np.zeros_like(one)
    # What each reads, writes and fetches by index; these norms read their input twice.
    moves = {
        "torch": {"add_ms": (2.0 * one, one, none), "emb_ms": (none, none, 2.0 * one)},
        OLD: {
            "input_layernorm_ms": (2.0 * one, one, none),
            "post_attention_layernorm_ms": (2.0 * one, one, none),
            "attn_rope_ms": (turned, turned, none),
            "mlp_act_ms": (gates * wide, wide, none),
        },
    }
    count = len(tokens)
    return [
        _rows(
            chip,
            name,
            version,
            [f"{i}:{op}" for op in ops for i in range(1, count + 1)],
            [np.concatenate([move[part] for move in ops.values()]) for part in range(3)],
            np.concatenate([numbers(table[op]) for op in ops]) * 1e-3,
            np.ones(count * len(ops)),
            np.repeat(np.arange(float(len(ops))), count) * 1e6 + np.tile(hidden / tp, len(ops)),
        )
        for name, ops in moves.items()
    ]


def _device_rows(table: Mapping[str, list[str]], version: str) -> list[KernelRows]:
    """Operators by device; matrix products are left to others."""
    devices = sorted({d for d in table["device"] if exists(d)})
    found = []
    for device in devices:
        mine = [
            i
            for i, (op, name) in enumerate(zip(table["op"], table["device"], strict=True))
            if name == device and op in ("softmax", "layernorm")
        ]
        pairs = [([*table["dims"][i].split("x"), "", ""])[:2] for i in mine]
        sizes = np.stack([numbers([pair[side] for pair in pairs]) for side in (0, 1)], axis=-1)
        elements = sizes[:, 0] * sizes[:, 1]
        rate = numbers([table["rate"][i] for i in mine])
        seconds = elements / (np.where(rate > 0.0, rate, np.nan) * 1e9)
        softmax = np.array([table["op"][i] == "softmax" for i in mine])
        ids = table.get("id") or [str(i + 1) for i in range(len(table["op"]))]
        read = elements * ITEM
        found.append(
            _rows(
                named_system(device).chip.id,
                "torch-eager",
                version,
                [ids[i] for i in mine],
                [read, read, np.zeros_like(read)],
                seconds,
                np.where(softmax, 1.0, NORM_LAUNCHES),
                softmax * 1e6 + sizes[:, 1],
            )
        )
    return found


def _rows(
    chip: str,
    software: str,
    version: str,
    ids: list[str],
    moves: list[Array],
    seconds: Array,
    kernels: Array,
    place: Array,
) -> KernelRows:
    """Rows of one chip and software; those that cannot be read left out."""
    good = np.isfinite(seconds + sum(moves) + place) & (seconds > 0.0)
    read, written, gathered = (part[good] for part in moves)
    site: NDArray[np.intp] = np.unique(place[good], return_inverse=True)[1].astype(np.intp)
    return KernelRows(
        family="pointwise",
        dtype="bf16",
        chip=chip,
        software=software,
        version=version,
        ids=tuple(np.asarray(ids)[good].tolist()),
        dims={
            "bytes_read": read,
            "bytes_written": written,
            "bytes_gathered": gathered,
            "flop": np.zeros_like(read),
            "kernels": kernels[good],
        },
        measured_s=seconds[good],
        site=site,
    )
