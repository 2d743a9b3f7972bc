"""Fit the families of dispatch kernels to measured exchanges.

Each direction of a family has a few coefficients (network/dispatch.py), fitted to ln(predicted / measured)
with Cauchy's loss and a weak pull to where a fit begins, a shape (chip, ranks, width, experts) counting as
one however many rows it has. What other libraries tell of one that is left out: dispatch_kin.py.
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
from foretell.records import dataclass

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
UNIT = 0.1
"""Error that counts as one."""
STEP = 1e-3
"""Step of a slope, in logarithms."""
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
    "nccl": ("expert", "throughput"),
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
    "nccl": "pplx-kernels README of 2025-08-06: torch.distributed's all-to-all beside its own kernels",
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
    """Places of rows of the same family, op, unit and use of links."""
    groups: dict[tuple[str, str, str, bool], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault((row.family, row.op, row.unit, row.near_used), []).append(i)
    return list(groups.values())


def weights_of(rows: Sequence[DispatchRow]) -> Array:
    """Each shape of a library counts as one."""

    def key(row: DispatchRow) -> tuple[object, ...]:
        load = row.load
        sizes = (load.ranks, load.hidden, load.top_k, load.experts, load.cores)
        return (row.library, row.system.chip.id, *(float(np.asarray(v)) for v in sizes))

    many = Counter(key(row) for row in rows)
    return np.array([1.0 / np.sqrt(many[key(row)]) for row in rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPass:
    """Coefficients of one direction, and how firmly the rows tell them."""

    logs: Array
    """Logarithms of the coefficients, in the order of BOUNDS."""
    information: Array
    """Second derivatives of half the sum of squares over these, the pull left out."""


NAMES = tuple(BOUNDS)
"""Coefficients that are fitted."""
LOW, HIGH = (np.log([BOUNDS[name][i] for name in NAMES]) for i in range(2))
"""Logarithms of their least and most."""
FIRST = np.clip(np.log([max(getattr(START, name), 1e-12) for name in NAMES]), LOW, HIGH)
"""Those of where a fit begins."""


def pass_at(logs: Array) -> DispatchPass:
    """A direction with these coefficients."""
    return DispatchPass(**dict(zip(NAMES, np.exp(np.clip(logs, LOW, HIGH)).tolist(), strict=True)))


def fit_rows(rows: Sequence[DispatchRow]) -> FittedPass:
    """Coefficients that meet rows of one direction best."""
    from scipy.optimize import least_squares

    weights, measured = weights_of(rows), np.log([row.seconds for row in rows])
    groups = [
        (places, own_kernels(rows[places[0]], kernels_of(rows[places[0]].family)),
         stack_loads([rows[i] for i in places]))
        for places in sorted_groups(rows)
    ]  # fmt: skip

    def errors(x: Array) -> Array:
        one, found = pass_at(x), np.zeros(len(rows))
        for places, kernels, load in groups:
            found[places] = pass_seconds(kernels, one, load)
        return np.asarray((np.log(found) - measured) / UNIT)

    def residuals(x: Array) -> Array:
        loss = errors(x)
        return np.concatenate(
            [np.sign(loss) * np.sqrt(np.log1p(loss**2)) * weights, PULL * (x - FIRST)]
        )

    best = least_squares(residuals, FIRST, bounds=(LOW - 1e-9, HIGH + 1e-9), max_nfev=60).x
    sides = np.eye(len(NAMES)) * STEP
    slopes = np.array([(errors(best + s) - errors(best - s)) / (2.0 * STEP) for s in sides])
    slopes = slopes * weights
    return FittedPass(logs=best, information=slopes @ slopes.T)


def fit_pass(rows: Sequence[DispatchRow], op: str) -> DispatchPass:
    """Coefficients of one direction that meet the rows best; a direction without rows is as the other."""
    return pass_at(fit_rows([row for row in rows if row.op == op] or rows).logs)


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
