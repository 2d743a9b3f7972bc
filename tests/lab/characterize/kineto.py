"""Traces as the PyTorch profiler writes them, made by hand: its keys, categories and names."""

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
BASE_US = 5_331_122_334_455.0
"""Where a clock stands: its microseconds need thirteen digits."""
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(...)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16> >(...)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(...)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
PROCESS, DEVICE = 4711, 0


def kernel(
    name: str, start: float, length: float, *, stream: int = 7, key: int = -1, **more: Any
) -> Event:
    """A kernel on the accelerator; `key` is the correlation with its launch."""
    args = {
        "External id": 1, "queued": 0, "device": DEVICE, "context": 1, "stream": stream, "correlation": key,
        "registers per thread": 128, "shared memory": 49152, "blocks per SM": 1.5, "warps per SM": 12.0,
        "grid": [216, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 19, **more,
    }  # fmt: skip
    return _slice("kernel", name, DEVICE, stream, start, length, args)


def collective(
    name: str,
    start: float,
    length: float,
    *,
    elements: int,
    members: int,
    out: int | None = None,
    **more: Any,
) -> Event:
    """A collective's kernel with what the profiler knows of it."""
    args = {
        "Collective name": name, "In msg nelems": elements, "Out msg nelems": out or elements,
        "Group size": members, "dtype": "BFloat16", "Process Group Name": "0",
        "Process Group Description": "default_pg", "Process Group Ranks": str([*range(members)]), **more,
    }  # fmt: skip
    return kernel(REDUCE, start, length, stream=20, **args)


def launch(
    start: float, length: float, key: int, *, name: str = "cudaLaunchKernel", thread: int = 1
) -> Event:
    """A call into the driver."""
    args = {"External id": 1, "cbid": 211, "correlation": key}
    return _slice("cuda_runtime", name, PROCESS, thread, start, length, args)


def op(
    name: str, start: float, length: float, *, thread: int = 1, number: int = 1, dims: Any = None
) -> Event:
    """An operation on the host."""
    args = {"External id": number, "Record function id": 0, "Ev Idx": number}
    return _slice(
        "cpu_op",
        name,
        PROCESS,
        thread,
        start,
        length,
        args | ({"Input Dims": dims} if dims else {}),
    )


def note(name: str, start: float, length: float, *, on_gpu: bool = False) -> Event:
    """An annotation: of the profiler's steps, of the optimizer's, of one's own."""
    place = ("gpu_user_annotation", DEVICE, 7) if on_gpu else ("user_annotation", PROCESS, 1)
    return _slice(place[0], name, place[1], place[2], start, length, {"External id": 1})


def copied(start: float, length: float, *, fill: bool = False) -> Event:
    """A copy from the host, or a fill."""
    kind, name = (
        ("gpu_memset", "Memset (Device)")
        if fill
        else ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)")
    )
    return _slice(
        kind, name, DEVICE, 7, start, length, {"bytes": 4096, "stream": 7, "correlation": -1}
    )


def _slice(
    category: str, name: str, pid: Any, tid: Any, start: float, length: float, args: Event
) -> Event:
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    return {**event, "ts": round(BASE_US + start, 3), "dur": length, "args": args}


def trace(events: list[Event], *, rank: int | None = 0, world: int = 1) -> Event:
    """A whole file, with the events that have no length beside those that have."""
    told = {"ph": "M", "ts": BASE_US, "tid": 0}
    arrow = {"id": 9, "cat": "ac2g", "name": "ac2g"}
    names: list[Event] = [
        {**told, "name": "process_name", "pid": PROCESS, "args": {"name": "python"}},
        {**told, "name": "process_labels", "pid": DEVICE, "args": {"labels": "GPU 0"}},
        {**arrow, "ph": "s", "pid": PROCESS, "tid": 1, "ts": BASE_US},
        {**arrow, "ph": "f", "pid": DEVICE, "tid": 7, "ts": BASE_US + 1, "bp": "e"},
        _slice(
            "Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", 0.0, 1e6, {"Op count": 0}
        ),
        {
            "ph": "i",
            "s": "g",
            "name": "Record Window End",
            "pid": "",
            "tid": "",
            "ts": BASE_US + 1e6,
        },
    ]
    head: Event = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
    }
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    return {
        **head,
        "displayTimeUnit": "ms",
        "traceEvents": names + events,
        "traceName": "trace.json",
    }


def written(path: Path, found: Event | list[Event]) -> Path:
    """The trace as a file, gzipped where its name says so."""
    text = json.dumps(found).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
