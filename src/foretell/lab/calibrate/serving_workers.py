"""Disaggregated rows: prefill and decode workers as their cells say.

chips       of one worker: those of its side over its workers
attention   a rank count (`dp_attn`), or a flag in rows that record a benchmark's own run: then all ranks of
            a worker have sequences of their own
a degree    of one beside attention data parallelism stands for all chips of the worker (dynamo-sglang)
no count    of workers on either side: the row cannot be predicted
"""

from dataclasses import replace

from foretell.lab.calibrate.serving_rows import ServingRow, WorkerCells
from foretell.specs.deployment import Deployment


def missing_workers(row: ServingRow) -> str:
    """Why a disaggregated row cannot be predicted; empty where it can."""
    sides = {"prefill": row.prefill, "decode": row.decode}
    blank = [name for name, side in sides.items() if not side.gpus or not side.workers]
    if blank:
        return f"disaggregated: the row does not tell how many chips and workers do {' and '.join(blank)}"
    uneven = [name for name, side in sides.items() if (side.gpus or 0) % (side.workers or 1)]
    return f"disaggregated: chips of {uneven[0]} are no whole workers" if uneven else ""


def worker_layout(row: ServingRow, side: WorkerCells, base: Deployment) -> Deployment:
    """The layout of one worker of a side; formats and options as in `base`."""
    chips = (side.gpus or 1) // (side.workers or 1)
    tp, dp, ep = side.tp or 1, side.dp or 0, side.ep or 1
    if row.run or "0" in (str(row.prefill.dp), str(row.decode.dp)):
        apart = dp > 0  # a flag
    else:
        apart = dp > 1 or (dp == 1 and tp == 1 and chips > 1)
    ranks = chips if apart and (dp <= 1 or row.run) else max(dp, 1)
    ranks = ranks if apart and chips % ranks == 0 else (chips if apart else 1)
    spread = chips if ep == 1 and tp == 1 and apart else ep
    return replace(
        base, tp=chips // ranks, pp=1, cp=1, dp=ranks,
        ep=spread if chips % spread == 0 else 1,
    )  # fmt: skip
