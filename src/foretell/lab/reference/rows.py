"""Rows of the published tables: names, order and units of `best_plans.csv`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

import numpy as np

from foretell.lab.reference.iteration import ReferenceMemory, ReferenceQuestion, Times
from foretell.lab.reference.records import Ints, Strategy
from foretell.lab.reference.space import ReferencePlans

Cell = str | int | float | None
"""One value of a row; None is an empty cell."""
Row = dict[str, Cell]
"""One plan, keyed by column."""

COLUMNS: tuple[str, ...] = (
    *("strategy", "model", "system", "nvs", "n_gpus", "rank", "gbs", "throughput", "mem"),
    *("dp", "tp", "tp1", "tp2", "pp", "mbs", "nb"),
    *("nv_tp", "nv_tp1", "nv_tp2", "nv_dp", "nv_pp"),
    *("t", "flops_per_gpu", "t_comp", "t_mem", "t_tp_comm", "t_dp_comm", "t_pp_comm", "t_bubble"),
    *("comp_frac", "tp_comm_frac", "dp_comm_frac", "pp_comm_frac", "bubble_frac", "mem_frac"),
    *("wts_mem", "wts_grad_mem", "wts_optimizer_states_mem", "acts_mem"),
)
"""Columns in their published order; memory in GB of 1e9 bytes, flops_per_gpu in TFLOP, times in seconds."""

PLAN_COLUMNS: tuple[str, ...] = COLUMNS[COLUMNS.index("dp") : COLUMNS.index("t")]
"""Columns that describe a plan: degrees, microbatch, panels and placement."""

_Arrays = TypeVar("_Arrays", ReferencePlans, ReferenceMemory, Times)


def take(record: _Arrays, index: Ints) -> _Arrays:
    """The record with only the entries named."""
    return type(record)(**{f.name: getattr(record, f.name)[index] for f in fields(record)})


def rows_of(
    question: ReferenceQuestion, plans: ReferencePlans, memory: ReferenceMemory, times: Times
) -> list[Row]:
    """One row per plan, ranked in the order given."""
    gpus = plans.gpus
    giga = {
        "mem": memory.total_bytes,
        "wts_mem": memory.weight_bytes,
        "wts_grad_mem": memory.weight_bytes,
        "wts_optimizer_states_mem": memory.optimizer_bytes,
        "acts_mem": memory.activation_bytes,
    }
    parts = {
        "comp": times.compute_s,
        "mem": times.memory_s,
        "tp_comm": times.tensor_comm_s,
        "dp_comm": times.data_comm_s,
        "pp_comm": times.stage_comm_s,
        "bubble": times.bubble_s,
    }
    reals = {
        "throughput": question.global_batch / times.total_s,
        "t": times.total_s,
        "flops_per_gpu": times.flop / 1e12,
        **{name: value / 1e9 for name, value in giga.items()},
        **{f"t_{name}": value for name, value in parts.items()},
        **{f"{name}_frac": value / times.total_s for name, value in parts.items()},
    }
    lists: dict[str, list[float]] = {name: value.tolist() for name, value in reals.items()}
    rows: list[Row] = []
    for i in range(len(gpus)):
        cells: Row = {
            "strategy": question.strategy,
            "model": question.model.name,
            "system": question.chip.name,
            "nvs": question.fast_domain,
            "n_gpus": int(gpus[i]),
            "rank": i + 1,
            "gbs": float(question.global_batch),
            **_degrees(question, plans, i),
            **{name: values[i] for name, values in lists.items()},
        }
        rows.append({name: cells[name] for name in COLUMNS})
    return rows


def _degrees(question: ReferenceQuestion, plans: ReferencePlans, i: int) -> Row:
    """Degrees and placement of one plan: 1d fills tp and nv_tp, the others tp1, tp2, nv_tp1 and nv_tp2."""
    two_dims = question.strategy != "1d"
    m1, m2, t1, t2 = (int(a[i]) for a in (plans.m1, plans.m2, plans.t1, plans.t2))
    return {
        "dp": int(plans.dp[i]),
        "tp": m1 * m2,
        "tp1": m1 if two_dims else None,
        "tp2": m2 if two_dims else None,
        "pp": int(plans.pp[i]),
        "mbs": int(plans.b[i]),
        "nb": int(plans.nb[i]) if question.strategy == "2d" else None,
        "nv_tp": None if two_dims else t1,
        "nv_tp1": t1 if two_dims else None,
        "nv_tp2": t2 if two_dims else None,
        "nv_dp": int(plans.nv_dp[i]),
        "nv_pp": int(plans.nv_pp[i]),
    }


def plans_of(rows: Sequence[Mapping[str, Cell]], strategy: Strategy) -> ReferencePlans:
    """The plans that rows describe; a column that is missing or empty is 1."""

    def column(name: str) -> Ints:
        return np.array([int(row.get(name) or 1) for row in rows], dtype=np.int64)

    one = np.ones(len(rows), dtype=np.int64)
    flat = strategy == "1d"
    return ReferencePlans(
        m1=column("tp" if flat else "tp1"),
        m2=one if flat else column("tp2"),
        pp=column("pp"),
        dp=column("dp"),
        b=column("mbs"),
        nb=column("nb") if strategy == "2d" else one,
        t1=column("nv_tp" if flat else "nv_tp1"),
        t2=one if flat else column("nv_tp2"),
        nv_dp=column("nv_dp"),
        nv_pp=column("nv_pp"),
    )
