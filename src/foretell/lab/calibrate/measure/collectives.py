"""Collectives among the processes that torchrun started: NCCL (or RCCL) on GPUs, gloo on CPUs.

`bytes` is the buffer as nccl-tests counts it: what every rank holds for all_reduce, broadcast, all_to_all
and send_recv, what a rank has in the end for all_gather, what it begins with for reduce_scatter. All ranks
time the same number of operations; the first rank's clock counts.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from foretell.lab.calibrate.measure.bench import Bench
from foretell.lab.calibrate.measure.file import HostMachine, MeasurePoint, planned

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
REPEATS, WARM, STRETCH_S, MOST_OPS = 7, 3, 5e-3, 200


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine; none where one process runs alone."""
    if host.world < 2:
        return []
    form = "short_sizes" if host.short else "cpu_sizes" if host.device == "cpu" else "sizes"
    return sorted(_all(host, planned("collectives")[form]), key=lambda point: point.level)


def _all(host: HostMachine, sizes: Sequence[Sequence[int]]) -> Iterator[MeasurePoint]:
    groups = [1 << i for i in range(1, 12) if 1 << i < host.world]
    for ranks, later in [(host.world, 0), *((ranks, 1) for ranks in groups)]:
        for level, some in enumerate(sizes):
            for op in OPS:
                for size in some:
                    yield MeasurePoint(
                        group="collectives",
                        family=op,
                        variant="nccl" if host.device == "cuda" else "gloo",
                        dims={"ranks": ranks, "bytes": size},
                        dtype="fp32",
                        level=level + later,
                        memory_bytes=3.0 * size + 1e8,
                        cost_s=0.5,
                    )


class BenchWorld:
    """The processes: which point is next, and groups among them."""

    def __init__(self, bench: Bench) -> None:
        dist = bench.torch.distributed
        dist.init_process_group("nccl" if bench.device == "cuda" else "gloo")
        self.dist, self.rank, self.size = dist, dist.get_rank(), dist.get_world_size()
        self._groups: dict[int, Any] = {self.size: None}

    def agree(self, value: Any) -> Any:
        """The first rank's value, for all."""
        box = [value]
        self.dist.broadcast_object_list(box, src=0)
        return box[0]

    def group(self, ranks: int) -> Any:
        """The first `ranks` processes; all processes ask for it together."""
        if ranks not in self._groups:
            self._groups[ranks] = self.dist.new_group(list(range(ranks)))
        return self._groups[ranks]


def measure(point: MeasurePoint, bench: Bench, world: BenchWorld) -> dict[str, Any]:
    """Seconds of one operation; ranks outside the group wait."""
    ranks = point.dims["ranks"]
    group = world.group(ranks)
    inside = world.rank < ranks
    call = _call(point, bench, world, group) if inside else None
    guess = _timed(bench, call, WARM) if call is not None else 0.0
    guess = _timed(bench, call, WARM) if call is not None else guess
    count = world.agree(int(min(max(STRETCH_S / max(guess, 1e-7), 1), MOST_OPS)))
    times = [_timed(bench, call, count) for _ in range(REPEATS) if call is not None]
    world.dist.barrier()
    if not times:
        return {}
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
    return {
        "seconds": float(middle),
        "spread": round(float((high - low) / middle), 5),
        "repeats": REPEATS,
        "calls": count,
        "launch_used": "eager",
        "nodes": nodes(ranks),
    }


def nodes(ranks: int) -> int:
    """Machines that the first `ranks` processes are on, as torchrun deals them."""
    import os

    each = int(os.environ.get("LOCAL_WORLD_SIZE", str(ranks)))
    return -(-ranks // each)


def _timed(bench: Bench, call: Callable[[], object], count: int) -> float:
    bench.clock.sync()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    bench.clock.sync()
    return (time.perf_counter() - begin) / count


def _call(point: MeasurePoint, bench: Bench, world: BenchWorld, group: Any) -> Callable[[], object]:
    ranks, dist = point.dims["ranks"], world.dist
    count = max(point.dims["bytes"] // 4 // ranks, 1) * ranks
    whole, part = bench.random(count, dtype="fp32"), bench.random(count // ranks, dtype="fp32")
    other = bench.torch.empty_like(whole)
    match point.family:
        case "all_reduce":
            return lambda: dist.all_reduce(whole, group=group)
        case "broadcast":
            return lambda: dist.broadcast(whole, src=0, group=group)
        case "all_gather":
            return lambda: dist.all_gather_into_tensor(whole, part, group=group)
        case "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
        case "all_to_all":
            return lambda: dist.all_to_all_single(other, whole, group=group)
        case _:
            return _ring(world, group, whole, other, ranks)


def _ring(
    world: BenchWorld, group: Any, whole: Any, other: Any, ranks: int
) -> Callable[[], object]:
    """Every rank sends to the next and takes from the one before."""
    dist = world.dist
    behind, ahead = (world.rank - 1) % ranks, (world.rank + 1) % ranks

    def run() -> None:
        ops = [
            dist.P2POp(dist.isend, whole, ahead, group),
            dist.P2POp(dist.irecv, other, behind, group),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()

    return run
