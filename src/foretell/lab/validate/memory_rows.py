"""Runs that ran out of memory, as rows of the same form as those that ran.

A table of such runs has the shape, the split and the micro-batch of each; what it does not say is what the
published sweep was: nanotron on H100 80 GB, bf16 with gradients, master copy and states in 32 bits, no
recomputation, fused attention.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from foretell.catalog.files import csv_rows
from foretell.errors import BadInput, bad_input, unknown
from foretell.lab.validate.training_rows import NEEDED, TrainingRow, row_of, table_text

OOM_NEEDED = ("layers", "hidden", "tp", "pp", "dp", "micro_batch")
"""Columns without which a file is no table of runs out of memory."""
SWEEP = {
    "chip_id": "h100-sxm",
    "framework_id": "nanotron",
    "precision_id": "bf16",
    "flash_attn": "yes",
    "recompute": "none",
    "cp": "1",
    "vpp": "1",
    "sp": "yes",
}
"""What every run of the sweep had."""
OUTCOMES = ("ran", "oom")
"""What a table may say of a run in its column `outcome`."""
FEWER_KV = 8
"""Key and value heads of the sweep's models with grouped attention."""


def read_memory_rows(path: Path) -> list[TrainingRow]:
    """Rows of a table of training runs, or of runs that ran out of memory; BadInput for other tables."""
    have, rows = csv_rows(table_text(path), str(path))
    if all(name in have for name in NEEDED):
        return checked_outcomes(
            [row_of(cells, str(n)) for n, cells in enumerate(rows, start=1)], path
        )
    missing = [name for name in OOM_NEEDED if name not in have]
    if missing:
        message = f"is no table of training runs: it has no column {', '.join(missing)}"
        raise bad_input(str(path), None, message)
    return checked_outcomes(
        [failed_row(cells, str(n)) for n, cells in enumerate(rows, start=1)], path
    )


def checked_outcomes(rows: list[TrainingRow], path: Path) -> list[TrainingRow]:
    """The rows, each with an outcome of OUTCOMES or none; BadInput for others."""
    made = [replace(row, outcome=row.outcome.lower()) for row in rows]
    problems = [
        unknown(f"{path}: outcome of {row.id}", row.outcome, OUTCOMES)
        for row in made
        if row.outcome and row.outcome not in OUTCOMES
    ]
    if problems:
        raise BadInput(problems)
    return made


def failed_row(cells: Mapping[str, str | None], number: str) -> TrainingRow:
    """A run of the sweep from its cells: batch from accumulation, kv_heads from the weights in print."""
    given = {name: text or "" for name, text in cells.items()}
    named = {
        "id": given.get("job_id", "") or number,
        "source": "runs out of memory",
        "model": "nanotron Llama-style",
        "family": "dense",
        "n_params_b": given.get("params_b", ""),
        "outcome": given.get("outcome", "") or ("oom" if given.get("status") == "OOM" else ""),
    }
    row = row_of({**given, **{k: v for k, v in SWEEP.items() if not given.get(k)}, **named}, number)
    batch = (row.dp or 1) * (row.micro_batch or 1) * (row.grad_accum or 1)
    changes = {"global_batch": str(row.global_batch or batch)}
    changes["n_gpus"] = str(row.gpus or (row.dp or 1) * (row.tp or 1) * (row.pp or 1))
    changes["kv_heads"] = str(row.kv_heads or _kv_heads(row))
    return row_of({**SWEEP, **given, **named, **changes}, number)


def _kv_heads(row: TrainingRow) -> int:
    """As many as heads, or eight, by which reproduces the weights in print, tied or not."""
    heads, hidden = row.heads or 1, row.hidden or 1
    if row.params_b is None or heads % FEWER_KV:
        return heads

    def misses(kv: int) -> float:
        attention = 2 * hidden * hidden * (1.0 + kv / heads)
        layers = (row.layers or 1) * (attention + 3 * hidden * (row.ffn or 4 * hidden))
        table = (row.vocab or 0) * hidden
        printed = (row.params_b or 1.0) * 1e9
        return min(abs(math.log((layers + n * table) / printed)) for n in (1, 2))

    return min((heads, FEWER_KV), key=misses)
