"""Copies within the device, and between host and device; reads and writes alone.

bytes_moved counts bytes read and bytes written: twice the size for a copy within the device, once for one
over the link between host and device.
"""

from collections.abc import Callable, Iterator

from foretell.lab.calibrate.measure.bench import Bench, free_host_bytes
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.file import HostMachine, MeasurePoint, planned

PLANNED = planned("copies")

MIB, GIB = 1 << 20, 1 << 30
WITHIN = ("copy", "copy-cached", "read", "write")
"""Forms within a device; copy-cached stays on one pair of buffers, which a cache may serve."""
ACROSS = ("to-device-pinned", "to-host-pinned", "to-device-pageable", "to-host-pageable")
"""Forms between host and device."""


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine."""
    if host.short:
        return [_point(host, form, 16 * MIB, 0) for form in ("copy", "read")]
    if host.device == "cpu":
        return list(_all(host, WITHIN, "cpu_sizes"))
    long = MeasurePoint(
        group="copies",
        family="copy",
        variant="copy",
        dims={"bytes": GIB},
        dtype="bytes",
        mode="sustained",
        launch="graph",
        memory_bytes=5.0 * GIB,
        cost_s=2.6,
    )
    return [*_all(host, WITHIN, "sizes"), *_all(host, ACROSS, "link_sizes"), long]


def _all(host: HostMachine, forms: tuple[str, ...], sizes: str) -> Iterator[MeasurePoint]:
    for level, some in enumerate(PLANNED[sizes]):
        for form in forms:
            for size in some:
                yield _point(host, form, size, level)


def _point(host: HostMachine, form: str, size: int, level: int) -> MeasurePoint:
    across = form in ACROSS
    return MeasurePoint(
        group="copies",
        family="host_copy" if across else "copy",
        variant=form,
        dims={"bytes": size},
        dtype="bytes",
        launch="eager" if across else host.bare,
        level=level,
        memory_bytes=(2.0 if across else 4.0) * size + 6e8,
        cost_s=0.5 if across else 0.1,
    )


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Buffers and calls of a point."""
    size, form = point.dims["bytes"], point.variant
    if form in ACROSS:
        return _across(bench, size, form)
    moved = size * (2.0 if form.startswith("copy") else 1.0)
    if form == "copy-cached":
        calls = [_within(bench, size, form)]
    else:
        calls = bench.rotate(moved, lambda: _within(bench, size, form))
    return TimedWork(calls=calls, bytes_moved=moved, rotated_bytes=moved * len(calls))


def _within(bench: Bench, size: int, form: str) -> Callable[[], object]:
    source = bench.random(size // 4, dtype="fp32")
    if form == "read":
        return lambda: bench.torch.sum(source)
    if form == "write":
        return lambda: source.fill_(1.0)
    target = bench.torch.empty_like(source)
    return lambda: target.copy_(source)


def _across(bench: Bench, size: int, form: str) -> TimedWork:
    if 4.0 * size > free_host_bytes():
        raise MemoryError(f"the host has no room for a buffer of {size} bytes")
    pinned = form.endswith("pinned")
    away = bench.torch.empty(size // 4, dtype=bench.torch.float32).normal_()
    away = away.pin_memory() if pinned else away
    near = bench.random(size // 4, dtype="fp32")
    to, of = (near, away) if form.startswith("to-device") else (away, near)
    return TimedWork(
        calls=[lambda: to.copy_(of, non_blocking=pinned)],
        bytes_moved=float(size),
        rotated_bytes=float(size),
        timed_by="device" if pinned else "host-end",
    )
