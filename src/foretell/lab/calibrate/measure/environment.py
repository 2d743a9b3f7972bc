"""The first line of a file: what was measured on, and with what."""

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench, cpu_name
from foretell.lab.calibrate.measure.file import FORMAT


def environment(bench: Bench) -> dict[str, Any]:
    """Chip, driver, libraries and clocks; nothing that tells whose machine it is."""
    return {
        "kind": "environment",
        "format": FORMAT,
        "foretell": _own_version(),
        "chip": bench.host.chip,
        "software": bench.host.software,
        "device": bench.device,
        "world": bench.host.world,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": _host(bench.torch),
        "libraries": _libraries(bench.torch, bench.device),
        "card": _card(bench) if bench.device == "cuda" else {},
        "buffers": "random numbers, rotated over several caches' worth of buffers",
        "dims_of_gemm": "those of the forward product y[m,n] = x[m,k] W[n,k]^T, in every pass",
    }


def _own_version() -> str:
    """Ours, where installed; a copy of the source has none."""
    try:
        return version("foretell")
    except PackageNotFoundError:
        return ""


def _host(torch: Any) -> dict[str, Any]:
    import os

    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _libraries(torch: Any, device: str) -> dict[str, Any]:
    found: dict[str, Any] = {"torch": torch.__version__}
    for name in ("cuda", "hip", "git_version"):
        found[name] = getattr(torch.version, name, None)
    for name in ("numpy", "triton"):
        module = sys.modules.get(name)
        found[name] = getattr(module, "__version__", None) or _installed(name)
    if device == "cuda":
        found["cudnn"] = torch.backends.cudnn.version()
        found["nccl"] = _nccl(torch)
        for name in ("nvidia-cublas-cu12", "nvidia-cublas", "nvidia-cudnn-cu13"):
            found[name] = _installed(name)
    else:
        found["mkl"] = torch.backends.mkl.is_available()
        found["onednn"] = torch.backends.mkldnn.is_available()
        found["isa"] = torch.backends.cpu.get_cpu_capability()
    return {name: value for name, value in found.items() if value is not None}


def _installed(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _nccl(torch: Any) -> str | None:
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError, TypeError):
        return None


def _card(bench: Bench) -> dict[str, Any]:
    facts = bench.torch.cuda.get_device_properties(bench.torch.cuda.current_device())
    told: dict[str, Any] = {
        "memory_bytes": facts.total_memory,
        "cores": facts.multi_processor_count,
        "l2_bytes": getattr(facts, "L2_cache_size", None),
        "sram_bytes_per_core": getattr(facts, "shared_memory_per_multiprocessor", None),
        "capability": f"{facts.major}.{facts.minor}",
        "architecture": getattr(facts, "gcnArchName", None),
    }
    if bench.meter.source is not None:
        told |= bench.meter.source.facts()
        told["idle"] = bench.meter.now()
    return {name: value for name, value in told.items() if value is not None}
