"""Fit the families of dispatch kernels to measured exchanges; judge them with a library left out.

Each direction of a family has a few coefficients (network/dispatch.py), fitted to ln(predicted / measured)
with Cauchy's loss and a weak pull to where a fit begins, a shape (chip, ranks, width, experts) counting as
one however many rows it has. Left out, a library's rows are predicted by what the other libraries of its kind
(one row for each expert, or one for each rank or node) are fitted to: links, launches and cores are the
chip's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.files import toml_value
from foretell.lab.calibrate.dispatch_rows import DispatchRow, own_kernels, read_dispatches
from foretell.network.dispatch import DispatchKernels, DispatchLoad, DispatchPass, pass_seconds

Array = NDArray[np.float64]

START = DispatchPass(core_bytes_per_s=1.5e10, lane_bytes_per_s=3e9, hop_s=1e-6)
"""Where a fit begins."""
BOUNDS: Mapping[str, tuple[float, float]] = {
    "launch_s": (2e-6, 2e-4),
    "hop_s": (1e-9, 3e-5),
    "far_hop_s": (1e-8, 3e-4),
    "expert_s": (1e-11, 2e-7),
    "row_s_per_byte": (1e-13, 4e-9),
    "near_share": (0.1, 1.0),
    "far_share": (0.02, 1.0),
    "core_bytes_per_s": (2e9, 6e10),
    "lane_bytes_per_s": (3e8, 1e11),
}
"""Least and most of a coefficient."""
PULL = 0.15
"""Weight of the pull to the start, in logarithms."""
SAME, KIN, FAR = 8.0, 4.0, 1.0
"""Weight of a library's rows for a family that is left out: of the same family, one that sends the same to
the same end, and any other."""
FIRM = 3.0
"""The same where a family is fitted to others."""
UNIT = 0.1
"""Error that counts as one."""
KINDS: Mapping[str, tuple[str, str]] = {
    "deepep": ("node", "throughput"),
    "deepep-2": ("node", "few cores"),
    "deepep-low-latency": ("expert", "latency"),
    "nvlink-one-sided": ("rank", "throughput"),
    "nvlink-two-sided": ("rank", "throughput"),
    "mori": ("node", "throughput"),
    "mori-low-latency": ("rank", "latency"),
    "pplx": ("expert", "latency"),
    "pplx-proxy": ("expert", "latency"),
}
"""Family -> what it sends a row for, and what it is made for."""
CORES: Mapping[str, float] = {"deepep": 20.0, "deepep-2": 12.0, "mori": 80.0}
"""Cores that a family occupies by default (DeepEP: Buffer.num_sms)."""


AICONFIGURATOR = "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator, systems/data)"
"""Whose tables most families were measured in."""
SOURCES: Mapping[str, str] = {
    "deepep": f"{AICONFIGURATOR}: DeepEP under SGLang on H100, H200, GB200; DeepEP README",
    "deepep-2": "DeepEP README of 2026-04-30 (github.com/deepseek-ai/DeepEP), version 2",
    "deepep-low-latency": f"{AICONFIGURATOR}: DeepEP under SGLang on H100, H200, GB200; DeepEP README (H800)",
    "nvlink-one-sided": f"{AICONFIGURATOR}: TensorRT-LLM NVLinkOneSided on GB200",
    "nvlink-two-sided": f"{AICONFIGURATOR}: TensorRT-LLM NVLinkTwoSided on GB200",
    "mori": "MORI README (github.com/ROCm/mori): MI300X",
    "mori-low-latency": "MORI README (github.com/ROCm/mori): MI300X",
    "pplx": "pplx-kernels README of 2025-08-06 (github.com/ppl-ai/pplx-kernels), GPU-initiated RDMA",
    "pplx-proxy": "pplx-kernels README of 2025-08-06, RDMA through the host",
}
"""Family -> what its numbers were read from."""
PREPARE_S: Mapping[str, float] = {"nvlink-two-sided": 1.4e-5}
"""What a family's own kernel before a dispatch takes (TensorRT-LLM's moe_prepare on GB200: 12 to 17 us)."""
NOTIFY_S: Mapping[str, float] = {"deepep": 2.8e-5, "deepep-2": 2.8e-5, "mori": 2.8e-5}
"""What agreeing on numbers of tokens takes for each doubling of the nodes (DeepEP's notify on 2, 4 and 8
nodes of H100: 30, 52 and 75 us)."""


def kernels_of(
    name: str, going: DispatchPass = START, back: DispatchPass = START
) -> DispatchKernels:
    """A family with these coefficients."""
    agreed = NOTIFY_S.get(name, 0.0)
    return DispatchKernels(
        id=name, unit=KINDS[name][0], cores=CORES.get(name, 0.0),
        dispatch=replace(going, notify_s=agreed), combine=replace(back, notify_s=agreed),
        prepare_s=PREPARE_S.get(name, 0.0),
        graph=KINDS[name][1] == "latency" or name.startswith("nvlink"),
    )  # fmt: skip


def stack_loads(rows: Sequence[DispatchRow]) -> DispatchLoad:
    """The loads of rows as one of arrays."""
    return DispatchLoad(
        **{
            f.name: np.array([float(np.asarray(getattr(row.load, f.name))) for row in rows])
            for f in fields(DispatchLoad)
        }
    )


def predicted_s(rows: Sequence[DispatchRow], passes: Mapping[str, DispatchPass]) -> Array:
    """Seconds of rows; `passes` by their op."""
    found = np.zeros(len(rows))
    for places in sorted_groups(rows):
        first = rows[places[0]]
        kernels = own_kernels(first, kernels_of(first.family))
        load = stack_loads([rows[i] for i in places])
        found[places] = pass_seconds(kernels, passes[first.op], load)
    return found


def sorted_groups(rows: Sequence[DispatchRow]) -> list[list[int]]:
    """Places of rows of the same family, op and use of links."""
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault((row.family, row.op, row.near_used), []).append(i)
    return list(groups.values())


def weights_of(rows: Sequence[DispatchRow], family: str = "") -> Array:
    """Each shape of a library counts as one; for another `family`, each library as one by its nearness."""

    def key(row: DispatchRow) -> tuple[object, ...]:
        load = row.load
        sizes = (load.ranks, load.hidden, load.top_k, load.experts, load.cores)
        return (row.library, row.system.chip.id, *(float(np.asarray(v)) for v in sizes))

    many = Counter(key(row) for row in rows)
    found = np.array([1.0 / np.sqrt(many[key(row)]) for row in rows])
    if not family:
        return found
    groups = [(row.library, row.family) for row in rows]
    for group in set(groups):
        mine = np.array([one == group for one in groups])
        found[mine] *= nearness(group[1], family) / np.sqrt((found[mine] ** 2).sum())
    return found


def nearness(one: str, other: str) -> float:
    """How much the rows of one family tell of another."""
    if one == other:
        return SAME
    (unit, kind), (their_unit, their_kind) = KINDS[one], KINDS[other]
    return KIN if (unit, kind) == (their_unit, their_kind) else FAR


def fit_pass(rows: Sequence[DispatchRow], op: str, family: str = "") -> DispatchPass:
    """Coefficients of one direction that meet the rows best; for a `family` that has none of them."""
    from scipy.optimize import least_squares

    mine = [row for row in rows if row.op == op]
    if not mine:
        return START
    names = list(BOUNDS)
    low, high = (np.log([BOUNDS[name][i] for name in names]) for i in range(2))
    first = np.clip(np.log([max(getattr(START, n), 1e-12) for n in names]), low, high)
    weights = weights_of(mine, family)
    measured = np.log([row.seconds for row in mine])
    groups = [
        (places, own_kernels(mine[places[0]], kernels_of(mine[places[0]].family)),
         stack_loads([mine[i] for i in places]))
        for places in sorted_groups(mine)
    ]  # fmt: skip

    def at(x: Array) -> DispatchPass:
        return DispatchPass(**dict(zip(names, np.exp(x).tolist(), strict=True)))

    def residuals(x: Array) -> Array:
        one = at(x)
        found = np.zeros(len(mine))
        for places, kernels, load in groups:
            found[places] = pass_seconds(kernels, one, load)
        loss = (np.log(found) - measured) / UNIT
        loss = np.sign(loss) * np.sqrt(np.log1p(loss**2)) * weights
        return np.concatenate([loss, (FIRM if family else PULL) * (x - first)])

    return at(least_squares(residuals, first, bounds=(low - 1e-9, high + 1e-9), max_nfev=60).x)


def left_out(rows: Sequence[DispatchRow], library: str, family: str) -> dict[str, DispatchPass]:
    """Coefficients of a library's family, fitted to the other libraries."""
    others = [row for row in rows if row.library != library]
    return {op: fit_pass(others, op, family) for op in ("dispatch", "combine")}


def fit_families(rows: Sequence[DispatchRow]) -> dict[str, DispatchKernels]:
    """Every family fitted to its own rows."""
    found = {}
    for name in dict.fromkeys(row.family for row in rows):
        mine = [row for row in rows if row.family == name]
        found[name] = kernels_of(name, fit_pass(mine, "dispatch"), fit_pass(mine, "combine"))
    return found


def kernels_text(found: Mapping[str, DispatchKernels]) -> str:
    """The families as the catalogue's file has them."""
    lines = [
        "# Dispatch and combine of mixtures by families of kernels (network/dispatch.py). Seconds and bytes.",
        "# Fitted values are written by foretell.lab.calibrate.dispatch_fit.",
    ]
    for name, kernels in found.items():
        lines += [
            "",
            "[[kernels]]",
            f"id = {toml_value(name)}",
            f"unit = {toml_value(kernels.unit)}",
        ]
        for field in ("prepare_s", "cores", "graph"):
            lines.append(f"{field} = {toml_value(getattr(kernels, field))}")
        lines.append(f"source = {toml_value(SOURCES.get(name, ''))}")
        for op in ("dispatch", "combine"):
            lines.append(f"[kernels.{op}]")
            one = getattr(kernels, op)
            lines += [
                f"{f.name} = {toml_value(float(f'{getattr(one, f.name):.4g}'))}"
                for f in fields(one)
            ]
    return "\n".join(lines) + "\n"


def refit(table: Path, target: Path) -> dict[str, DispatchKernels]:
    """Fit all families to a table and write the catalogue's file anew."""
    rows, _ = read_dispatches(table)
    found = fit_families(rows)
    target.write_text(kernels_text(found))
    return found
