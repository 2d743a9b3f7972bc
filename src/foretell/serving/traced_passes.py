"""Serving of a traced module: forward passes of its batch, many for one sample of a diffusion model.

    sample = steps x passes x pass + what runs once (text encoders, the decoder of latents)

A pass is simulated as a training step's is: the host starts operations, the GPU runs them (training/
traced_rows.py). Every GPU is a replica that takes one batch after the other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretell.kernels.memory import framework_bytes
from foretell.records import dataclass
from foretell.specs.plan import Plan
from foretell.specs.software import Software
from foretell.specs.system import System
from foretell.trace.graph import TracedModel
from foretell.training.traced_memory import live_bytes, workspace_bytes
from foretell.training.traced_rows import (
    HOST,
    UNKNOWN,
    TracedJob,
    of_kind,
    ranges_of,
    speed_of,
    steady_seconds,
    timed_rows,
)

FORMS = ("inference", "inference-as-is")
"""Forms of a trace that are served: forward alone in 16 bits, or as it was given where it does not run so."""
LOST = 0.08
"""Share of what a pass holds that the allocator loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPass:
    """One forward pass of a traced batch on one GPU."""

    seconds: float
    """Time of a pass behind others."""
    range_s: Mapping[str, tuple[float, float]]
    """Level -> time where operations of which the bytes alone are known take the least and the most."""
    gpu_s: float
    """Time that the GPU is busy."""
    by_kind: Mapping[str, float]
    """Seconds of the GPU by family of kernels."""
    weight_bytes: float
    """Parameters and buffers, as they are held."""
    live_bytes: float
    """The most that a pass holds besides."""
    notes: tuple[str, ...]
    """What was assumed."""


def served_pass(
    model: TracedModel, system: System, software: Software, plan: Plan, *, compiled: bool
) -> ServedPass:
    """One forward pass of a model; it has a form of FORMS."""
    form = next(one for one in FORMS if one in model.graphs)
    graph = model.graphs[form]
    job = TracedJob(
        system=system, software=software, plan=plan, form=form, compiled=compiled, update="fused",
        micro_batches=1,
    )  # fmt: skip
    gpu, host, notes = timed_rows(graph, job)
    sync, unsure = of_kind(graph, "sync"), of_kind(graph, "unknown")
    start_s = HOST.pass_s / speed_of(job)

    def taken_s(factor: float = 1.0, host_factor: float = 1.0) -> float:
        slower = np.append(np.where(unsure, factor * gpu, gpu), 0.0)
        starts = host_factor * np.append(host, start_s)
        return steady_seconds(slower, starts, np.append(sync, False))

    seconds = taken_s()
    by_kind: dict[str, float] = {}
    for row, spent in zip(graph.op, gpu, strict=True):
        kind = graph.ops[row].kind
        by_kind[kind] = by_kind.get(kind, 0.0) + float(spent)
    held = [t for t in model.tensors if t.kind != "input"]
    half = form == FORMS[0]
    narrow = [t.bytes / (2.0 if half and t.dtype == "fp32" else 1.0) for t in held]
    return ServedPass(
        seconds=seconds,
        range_s=ranges_of(taken_s),
        gpu_s=float(gpu.sum()),
        by_kind=by_kind,
        weight_bytes=float(sum(narrow)),
        live_bytes=float(live_bytes(graph).max()) + workspace_bytes(graph, job),
        notes=notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledService:
    """Samples of a traced model: images, videos, or results of one pass."""

    model: str
    """Its name."""
    system: str
    """Where it runs."""
    gpus: int
    """Replicas of one GPU each."""
    batch: int
    """Rows that pass together: the traced inputs'."""
    steps: int
    """Steps of a sample; 1: one pass is the answer."""
    passes: int
    """Passes of the model in a step."""
    rows: int
    """Rows of the batch that a sample takes."""
    pass_s: float
    """One pass."""
    once_s: float
    """What runs once for a batch."""
    latency_s: float
    """From a request to its samples, none waiting."""
    images_per_s: float
    """Samples of all GPUs."""
    images_per_s_per_gpu: float
    """Of one."""
    wanted_per_s: float | None
    """Samples that are asked for; None: as many as can be."""
    gpus_needed: int | None
    """GPUs that give them; None where none are asked for."""
    usd_per_1000: float | None
    """Rent of 1,000 samples at full load; None where no rent is known."""
    busy: float
    """Share of a pass in which the GPU works; the host starts its kernels in the rest."""
    allocated_bytes: float
    """Tensors at the peak: weights of all that runs, and what a pass holds."""
    peak_memory_bytes: float
    """The same with what allocator and driver hold."""
    memory_capacity_bytes: float
    """The GPU's memory."""
    limited_by: str
    """The family of kernels that takes the most, or the host."""
    interval: Mapping[str, tuple[float, float]]
    """p50 and p90 of the latency."""
    breakdown: Mapping[str, float]
    """Seconds of a pass by family of kernels, and what it waits for the host."""
    assumptions: tuple[str, ...]
    """What was assumed."""


def sampled(
    main: ServedPass, once: Sequence[ServedPass], asked: Mapping[str, Any], rent_usd_per_s: float
) -> SampledService:
    """The numbers of a service, beside what is asked of it (its names, counts and capacity)."""
    once_s = sum(one.seconds for one in once)
    many = asked["steps"] * asked["passes"]
    latency_s = many * main.seconds + once_s
    each = asked["batch"] / asked["rows"] / latency_s
    weights = sum(one.weight_bytes for one in (main, *once))
    live = max(one.live_bytes for one in (main, *once))
    own = float(framework_bytes(np.array([0.0]))[0])
    waiting_s = max(main.seconds - main.gpu_s, 0.0)
    breakdown = {**main.by_kind, "waiting for the host": waiting_s}
    wanted = asked["wanted_per_s"]
    return SampledService(
        **asked,
        pass_s=main.seconds,
        once_s=once_s,
        latency_s=latency_s,
        images_per_s=asked["gpus"] * each,
        images_per_s_per_gpu=each,
        gpus_needed=None if wanted is None else int(np.ceil(wanted / each - 1e-9)),
        usd_per_1000=1000.0 * rent_usd_per_s / each if rent_usd_per_s > 0.0 else None,
        busy=min(main.gpu_s / main.seconds, 1.0),
        allocated_bytes=weights + live,
        peak_memory_bytes=weights + (1.0 + LOST) * live + own,
        limited_by=max(breakdown, key=lambda name: breakdown[name]),
        interval={
            level: (
                many * main.range_s[level][0] + sum(one.range_s[level][0] for one in once),
                many * main.range_s[level][1] + sum(one.range_s[level][1] for one in once),
            )
            for level in UNKNOWN
        },
        breakdown=breakdown,
    )
