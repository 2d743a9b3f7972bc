"""Disaggregated rows: prefill and decode workers as their cells say.

chips       of one worker: those of its side over its workers
attention   a rank count (`dp_attn`), or a flag in rows that record a benchmark's own run: then all ranks of
            a worker have sequences of their own
a degree    of one beside attention data parallelism stands for all chips of the worker (dynamo-sglang)
no count    of workers on either side: the row cannot be predicted
places      of a decode worker: a concurrency a little above a power of two for each worker (1,075 for 1,024)
            is how benchmarks keep workers full whose largest batch is that power: the rest of it queues
"""

import math
from dataclasses import replace

from foretell.lab.calibrate.serving_rows import ServingRow, WorkerCells
from foretell.specs.deployment import Deployment

FULL, ROUND = 1.13, 1.32
"""Concurrency of a worker over its largest batch at most: of any, and of numbers that are not round (no
multiple of an eighth of it)."""
LEAST_PLACES = 8
"""Largest batch from which a concurrency above it tells it."""


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


def decode_worker(row: ServingRow, base: Deployment, engine: str, said: list[str]) -> Deployment:
    """A decode worker with what a disaggregated row does not print but its benchmark has."""
    places = worker_places(row)
    if places is not None:
        base = replace(base, max_batch=max(places // base.dp, 1))
        said.append("largest batch of a decode worker: the power of two below its concurrency")
    if engine == "trtllm" and base.is_wide:
        # Its load balancer is off unless a configuration has one (MoeConfig.load_balancer).
        base = replace(base, eplb=False)
        said.append("experts are not balanced by load: off by default in TensorRT-LLM")
    return base


def worker_places(row: ServingRow) -> int | None:
    """Sequences of one decode worker, where the concurrency tells them; None: as many as the engine takes."""
    each = (row.batch or 0.0) / (row.decode.workers or 1)
    if each <= LEAST_PLACES:
        return None
    places = 2 ** math.floor(math.log2(each))
    over = each / places
    uneven = each % (places / 8.0) > 0.0
    return places if 1.0 < over <= (ROUND if uneven else FULL) else None
