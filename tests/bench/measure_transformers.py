"""Training steps of Hugging Face transformers on one GPU, one JSON line per point.

    python tests/bench/measure_transformers.py --list
    python tests/bench/measure_transformers.py --out rows.jsonl --budget-s 540
    python tests/bench/measure_transformers.py --out more.jsonl --skip rows.jsonl --budget-s 540
    python tests/bench/measure_transformers.py --out kernels.jsonl --profile
    python tests/bench/measure_transformers.py --out tiny.jsonl --tiny      (every path, on a CPU)

Models are built from their configs with random weights; the points are in transformers_points.py. The
hand-written loop does what transformers.Trainer does in a step: batches copied from pinned memory, the
model's own loss with labels and num_items_in_batch, the loss read by the host after each micro-batch,
clipping, AdamW in two groups, gradients set to None. The copies and the reading make the host wait for
the GPU twice a step; points with check=False do neither.
Needs torch and transformers; peft where it is installed.
"""

import argparse
import ctypes
import gc
import importlib.metadata
import importlib.util
import inspect
import json
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from transformers_points import PROFILES, Point, config_fields, estimate_s, plan

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
WARM_UP = 3
PHASES = ("data", "forward", "backward", "check", "clip", "optimizer")
Mark = Callable[[str], None]
RESERVED: list[int] = []
"""Most bytes that torch's allocator took, one entry per reset of the counters in a point."""


def wait() -> None:
    """Wait until the GPU has done all its work."""
    if CUDA:
        torch.cuda.synchronize()


def now() -> Any:
    """A time stamp in the GPU's queue, or the host's clock where there is no GPU."""
    if not CUDA:
        return perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between_ms(begin: Any, end: Any) -> float:
    """Milliseconds between two stamps of now()."""
    return begin.elapsed_time(end) if CUDA else (end - begin) * 1e3


# The model, its adapters and its optimizer.


class Adapter(torch.nn.Module):
    """A linear layer with a LoRA adapter as PEFT makes it: in fp32, its input cast to fp32."""

    def __init__(self, base: torch.nn.Linear, rank: int, alpha: int) -> None:
        super().__init__()
        self.base_layer, self.scaling = base, alpha / rank
        on = {"device": base.weight.device, "dtype": torch.float32, "bias": False}
        self.lora_A = torch.nn.Linear(base.in_features, rank, **on)
        self.lora_B = torch.nn.Linear(rank, base.out_features, **on)
        torch.nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        torch.nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The base layer's result plus the adapter's, in the type of the former."""
        result = self.base_layer(x)
        wide = x.to(self.lora_A.weight.dtype)
        return (result + self.lora_B(self.lora_A(wide)) * self.scaling).to(result.dtype)


def adapt(model: Any, targets: str) -> tuple[Any, str]:
    """The model with adapters of rank 16, alpha 8, and who made them: peft or this script."""
    if importlib.util.find_spec("peft"):
        import peft

        names: Any = "all-linear" if targets == "all" else ["q_proj", "v_proj"]
        config = peft.LoraConfig(r=16, task_type="CAUSAL_LM", target_modules=names)
        return peft.get_peft_model(model, config), "peft"
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            wanted = targets == "all" or name in ("q_proj", "v_proj")
            if isinstance(child, torch.nn.Linear) and name != "lm_head" and wanted:
                setattr(module, name, Adapter(child, 16, 8))
    return model, "script"


def build(point: Point, tiny: bool) -> Any:
    """The model with random weights on the device."""
    fields = config_fields(point, tiny)
    config = transformers.AutoConfig.for_model(**fields)
    config.use_cache = point.cache
    words: dict[str, Any] = {}
    words |= {"attn_implementation": point.attention} if point.attention else {}
    words |= {"experts_implementation": point.experts} if point.experts else {}
    major = int(transformers.__version__.split(".")[0])
    words["dtype" if major >= 5 else "torch_dtype"] = DTYPES[point.weights]
    make = transformers.AutoModelForCausalLM.from_config
    try:
        with DEVICE:
            model = make(config, **words)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:  # a version that mixes devices: slower, but the same model
        model = make(config, **words)
    return model.to(DEVICE).train()


def wrap_autocast(model: Any) -> None:
    """Run forward under autocast and return outputs in fp32, as accelerate prepares a model."""
    inner = model.forward
    context = torch.autocast(DEVICE.type, dtype=torch.bfloat16)

    def forward(*args: Any, **kwargs: Any) -> Any:
        with context:
            out = inner(*args, **kwargs)
        half = (torch.float16, torch.bfloat16)
        return type(out)(
            {k: v.float() if getattr(v, "dtype", None) in half else v for k, v in out.items()}
        )

    model.forward = forward


def make_optimizer(model: Any, kind: str) -> torch.optim.Optimizer:
    """AdamW with the Trainer's two groups: matrices decay, norms and biases do not."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    flat = [p for n, p in named if p.ndim < 2]
    groups = [
        {"params": [p for n, p in named if p.ndim >= 2], "weight_decay": 0.0},
        {"params": flat, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=5e-5, **{kind: True})


class Rig:
    """A model ready to train in the hand-written loop."""

    def __init__(self, point: Point, tiny: bool) -> None:
        self.point, self.tiny = point, tiny
        self.model = build(point, tiny)
        self.base = self.model
        self.lora_by = ""
        if point.checkpoint:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
            self.model.enable_input_require_grads()
        if point.lora:
            self.model, self.lora_by = adapt(self.model, point.lora)
        kinds = [p.kind for p in inspect.signature(self.base.forward).parameters.values()]
        self.takes_items = inspect.Parameter.VAR_KEYWORD in kinds
        self.call = self.model
        if not point.trainer:
            if point.autocast:
                wrap_autocast(self.model)
            if point.compile:
                self.call = torch.compile(self.model, backend="aot_eager" if tiny else "inductor")
        batch, seq = (min(point.batch, 2), 64) if tiny else (point.batch, point.seq)
        self.batches = [self.batch(batch, seq) for _ in range(4)]
        self.resident: list[dict[str, torch.Tensor]] | None = None
        self.optimizer: Any = None
        self.total = torch.zeros((), device=DEVICE)
        self.done = 0

    def batch(self, batch: int, seq: int) -> dict[str, torch.Tensor]:
        """Random tokens, labels and mask, in pinned memory."""
        ids = torch.randint(3, self.base.config.vocab_size, (batch, seq))
        out = {"input_ids": ids, "labels": ids.clone()}
        if self.point.mask != "none":
            out["attention_mask"] = torch.ones_like(ids)
        if self.point.mask == "padded":
            out["attention_mask"][:, -seq // 8 :] = 0
            out["labels"][:, -seq // 8 :] = -100
        return {name: value.pin_memory() for name, value in out.items()} if CUDA else out

    def fetch(self, batches: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
        """The batches on the device, with the number of tokens that count in all of them."""
        moved = [{name: value.to(DEVICE) for name, value in one.items()} for one in batches]
        items = sum(one["labels"][..., 1:].ne(-100).sum() for one in moved)
        words = {"num_items_in_batch": items} if self.takes_items else {}
        return [one | words for one in moved]

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Loss of one micro-batch; the other outputs are dropped, as in the Trainer."""
        loss = self.call(**batch).loss
        return loss if self.takes_items else loss / self.point.accumulate

    def step(self, mark: Mark = lambda name: None) -> None:
        """One optimizer step."""
        point = self.point
        mark("begin")
        if point.check or self.resident is None:
            wanted = [self.batches[(self.done + i) % 4] for i in range(point.accumulate)]
            self.resident = self.fetch(wanted)
        mark("data")
        for batch in self.resident:
            loss = self.forward(batch)
            mark("forward")
            loss.backward()
            loss = loss.detach()
            mark("backward")
            if point.check and (torch.isnan(loss) or torch.isinf(loss)):
                raise FloatingPointError("loss is not finite")
            self.total += loss
            mark("check")
        if point.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), point.clip)
        mark("clip")
        self.optimizer.step()
        self.model.zero_grad()
        mark("optimizer")
        self.done += 1


# What is read beside the clock.


def allocated() -> int:
    """Bytes that tensors have now."""
    return torch.cuda.memory_allocated() if CUDA else 0


def peak_allocated() -> int:
    """Most bytes that tensors had since the last reset."""
    if not CUDA:
        return 0
    peak = torch.cuda.max_memory_allocated()
    RESERVED.append(torch.cuda.max_memory_reserved())
    torch.cuda.reset_peak_memory_stats()
    return peak


class Meter:
    """NVML's energy counter, clocks and power; empty readings where there is no NVML."""

    def __init__(self) -> None:
        self.lib: Any = None
        self.handle = ctypes.c_void_p()
        with suppress(OSError):
            lib = ctypes.CDLL("libnvidia-ml.so.1")
            found = lib.nvmlInit_v2() == 0
            found = found and not lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle))
            self.lib = lib if found else None

    def _read(self, name: str, kind: Any, *args: Any) -> int | None:
        value = kind()
        if self.lib is None or getattr(self.lib, name)(self.handle, *args, ctypes.byref(value)):
            return None
        return int(value.value)

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded."""
        mj = self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)
        return None if mj is None else mj / 1e3

    def state(self) -> dict[str, Any]:
        """Clocks, power, temperature, and the reasons of lower clocks, now."""
        whole = ctypes.c_uint
        power = self._read("nvmlDeviceGetPowerUsage", whole)
        reasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
        return {
            "sm_mhz": self._read("nvmlDeviceGetClockInfo", whole, 1),
            "memory_mhz": self._read("nvmlDeviceGetClockInfo", whole, 2),
            "power_w": None if power is None else power / 1e3,
            "temperature_c": self._read("nvmlDeviceGetTemperature", whole, 0),
            "clock_reasons": self._read(reasons, ctypes.c_ulonglong),
        }


def machine() -> dict[str, Any]:
    """The GPU and the versions."""
    out: dict[str, Any] = {"torch": torch.__version__, "transformers": transformers.__version__}
    out |= {"cuda": torch.version.cuda, "python": sys.version.split()[0]}
    for name in ("accelerate", "peft", "triton", "flash_attn", "kernels"):
        with suppress(importlib.metadata.PackageNotFoundError):
            out[name] = importlib.metadata.version(name)
    if CUDA:
        version = Path("/proc/driver/nvidia/version")
        text = version.read_text() if version.exists() else ""
        driver = re.search(r"\d+\.\d+(\.\d+)?", text)
        out["gpu"] = torch.cuda.get_device_name()
        out["driver"] = driver.group() if driver else os.popen(
            "nvidia-smi --query-gpu=driver_version --format=csv,noheader").read().strip()  # fmt: skip
        out["gpu_bytes"] = torch.cuda.get_device_properties(0).total_memory
    return out


# One point.


def spread(times_ms: list[float]) -> dict[str, float]:
    """Median, least, mean and standard deviation of milliseconds, and how many."""
    return {
        "median_ms": statistics.median(times_ms),
        "min_ms": min(times_ms),
        "mean_ms": statistics.fmean(times_ms),
        "std_ms": statistics.pstdev(times_ms),
        "steps": len(times_ms),
    }


def stamped(rig: Rig, steps: int) -> dict[str, float]:
    """Median milliseconds of each phase, by stamps in the GPU's queue, nothing waited for."""
    rows = []
    for _ in range(steps):
        marks: list[tuple[str, Any]] = []
        rig.step(lambda name, marks=marks: marks.append((name, now())))
        rows.append(marks)
    wait()
    sums = []
    for marks in rows:
        one = dict.fromkeys(PHASES, 0.0)
        for (_, begin), (name, end) in pairwise(marks):
            one[name] += between_ms(begin, end)
        sums.append(one)
    return {name: statistics.median(one[name] for one in sums) for name in PHASES}


def host_ms(rig: Rig, steps: int) -> dict[str, float]:
    """Median milliseconds the host needs to launch each phase, the GPU idle at its start."""
    rows = []
    for _ in range(steps):
        one = dict.fromkeys(("begin", *PHASES), 0.0)
        last = [perf_counter()]

        def mark(name: str, one: dict[str, float] = one, last: list[float] = last) -> None:
            one[name] += (perf_counter() - last[0]) * 1e3
            wait()
            last[0] = perf_counter()

        wait()
        rig.step(mark)
        rows.append(one)
    return {name: statistics.median(row[name] for row in rows) for name in PHASES}


def small_host_ms(rig: Rig) -> dict[str, float]:
    """Host milliseconds of forward and backward at 64 tokens, where no queue is ever full."""
    batch = rig.fetch([rig.batch(1, 64)])[0]
    rows = []
    for _ in range(6):
        wait()
        begin = perf_counter()
        loss = rig.forward(batch)
        middle = perf_counter()
        wait()
        start = perf_counter()
        loss.backward()
        end = perf_counter()
        wait()
        rig.model.zero_grad()
        rows.append(((middle - begin) * 1e3, (end - start) * 1e3))
    forward, backward = (statistics.median(part) for part in zip(*rows[2:], strict=True))
    return {"forward": forward, "backward": backward}


def phase_peaks(rig: Rig) -> dict[str, int]:
    """Most bytes of tensors in each phase of a step."""
    peaks: dict[str, int] = {}

    def mark(name: str) -> None:
        peaks[name] = max(peaks.get(name, 0), peak_allocated())

    rig.step(mark)
    peaks.pop("begin")
    return peaks


def timed(rig: Rig, meter: Meter, row: dict[str, Any], target_s: float) -> None:
    """Warm up, then time whole steps; adds step, energy, clocks and memory to the row."""
    memory = row["memory"]
    begin = perf_counter()
    rig.step()
    wait()
    row["first_step_s"] = perf_counter() - begin
    memory["after_first_step"], memory["first_step_peak"] = allocated(), peak_allocated()
    for _ in range(WARM_UP - 1):
        begin = perf_counter()
        rig.step()
        wait()
    one = perf_counter() - begin
    steps = min(max(math.ceil(target_s / one), 5), 40)
    peak_allocated()
    stamps, energy, begin = [now()], meter.energy_j(), perf_counter()
    for _ in range(steps):
        rig.step()
        stamps.append(now())
    row["clocks"] = meter.state()
    wait()
    wall = perf_counter() - begin
    after = meter.energy_j()
    row["step"] = spread([between_ms(a, b) for a, b in pairwise(stamps)])
    row["wall_ms"] = wall * 1e3 / steps
    row["energy_j"] = None if energy is None or after is None else (after - energy) / steps
    memory["step_peak"] = peak_allocated()


def train_by_trainer(rig: Rig, row: dict[str, Any], target_s: float) -> None:
    """Time steps of transformers.Trainer on random data; adds step and memory to the row."""
    point, seen = rig.point, [now()]
    steps = 10 if rig.tiny else min(max(math.ceil(target_s / 0.2), 12), 30)

    class Stamps(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
            seen.append(now())
            if len(seen) == WARM_UP + 2:
                row["memory"]["first_step_peak"] = peak_allocated()

    class Data(torch.utils.data.Dataset):
        rows = [{k: v[0].cpu() for k, v in batch.items()} for batch in rig.batches]

        def __len__(self) -> int:
            return 1 << 16

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return self.rows[index % 4]

    with tempfile.TemporaryDirectory() as folder:
        words: dict[str, Any] = {
            "output_dir": folder,
            "per_device_train_batch_size": rig.batches[0]["input_ids"].shape[0],
            "gradient_accumulation_steps": point.accumulate,
            "max_steps": steps,
            "bf16": point.autocast,
            "gradient_checkpointing": point.checkpoint,
            "torch_compile": point.compile,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
        }
        if point.compile and rig.tiny:
            words["torch_compile_backend"] = "aot_eager"
        if not CUDA:
            words["use_cpu"] = True
        if point.checkpoint:
            words["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
        args = transformers.TrainingArguments(**words)
        row["trainer_optimizer"] = str(args.optim)
        trainer = transformers.Trainer(
            model=rig.model, args=args, train_dataset=Data(), callbacks=[Stamps()]
        )
        trainer.train()
    wait()
    pairs = list(pairwise(seen))[WARM_UP + 1 :]
    row["step"] = spread([between_ms(a, b) for a, b in pairs])
    row["memory"]["step_peak"] = peak_allocated()


def describe(rig: Rig, row: dict[str, Any]) -> None:
    """Add the model's size, types and chosen implementations to the row."""
    parameters = list(rig.model.parameters())
    trained = [p for p in parameters if p.requires_grad]
    config = rig.base.config
    row["parameters"] = sum(p.numel() for p in parameters)
    row["trained_parameters"] = sum(p.numel() for p in trained)
    row["trained_tensors"] = len(trained)
    row["weight_bytes"] = sum(p.numel() * p.element_size() for p in parameters)
    row["trained_type"] = str(trained[0].dtype)
    row["attention"] = getattr(config, "_attn_implementation", None)
    row["experts"] = getattr(config, "_experts_implementation", None)
    row["lora_by"] = rig.lora_by
    row["passes_num_items"] = rig.takes_items


def measure(point: Point, row: dict[str, Any], meter: Meter, args: Any) -> None:
    """Fill the row with everything measured at the point."""
    memory = row["memory"] = {"before": allocated()}
    peak_allocated()
    rig = Rig(point, args.tiny)
    describe(rig, row)
    memory["after_weights"] = allocated()
    if point.trainer:
        train_by_trainer(rig, row, args.target_s)
    else:
        rig.optimizer = make_optimizer(rig.model, point.optimizer)
        timed(rig, meter, row, args.target_s)
        row["phase_peaks"] = phase_peaks(rig)
        row["phases_ms"] = stamped(rig, 3)
        row["host_ms"] = host_ms(rig, 3)
        if not point.compile:
            row["small_host_ms"] = small_host_ms(rig)
    if CUDA:
        peak_allocated()
        stats = torch.cuda.memory_stats()
        free, total = torch.cuda.mem_get_info()
        memory["reserved_peak"] = max(RESERVED)
        memory["reserved"] = torch.cuda.memory_reserved()
        memory["device_used"] = total - free
        memory["alloc_retries"] = stats["num_alloc_retries"]
    row["loss"] = float(rig.total) / max(rig.done, 1)


# Profiles.


def device_us(event: Any) -> float:
    """Microseconds on the device of a profiler's row, itself alone; without a GPU, on the host."""
    names = ("self_device_time_total", "self_cuda_time_total") if CUDA else ("self_cpu_time_total",)
    return next((float(getattr(event, name)) for name in names if hasattr(event, name)), 0.0)


def profile(point: Point, row: dict[str, Any], args: Any) -> None:
    """Fill the row with tables of kernels and of operators by shape for one step."""
    rig = Rig(point, args.tiny)
    describe(rig, row)
    rig.optimizer = make_optimizer(rig.model, point.optimizer)
    for _ in range(WARM_UP):
        rig.step()
    wait()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if CUDA else []
    steps = 2
    with torch.profiler.profile(activities=kinds, record_shapes=True) as result:
        begin = perf_counter()
        for _ in range(steps):
            rig.step()
        wait()
        row["span_us"] = (perf_counter() - begin) * 1e6 / steps
    plain = result.key_averages()
    kind = "CUDA" if CUDA else "CPU"
    on_gpu = [e for e in plain if kind in str(getattr(e, "device_type", ""))]
    on_gpu = [e for e in on_gpu if not e.key.startswith(("ProfilerStep", "Optimizer."))]
    row["busy_us"] = sum(device_us(e) for e in on_gpu) / steps
    row["launches"] = sum(e.count for e in on_gpu) / steps
    row["kernels"] = [
        {"name": e.key[:240], "count": e.count / steps, "us": device_us(e) / steps}
        for e in sorted(on_gpu, key=device_us, reverse=True)[:60]
    ]
    shaped = result.key_averages(group_by_input_shape=True)
    ops = [e for e in shaped if e.key.startswith("aten::") or "::" in e.key]
    row["operators"] = [
        {"name": e.key, "shapes": str(e.input_shapes)[:200], "count": e.count / steps,
         "us": device_us(e) / steps}
        for e in sorted(ops, key=device_us, reverse=True)[:60]
    ]  # fmt: skip


# The run.


def free() -> None:
    """Give back all memory of the last point."""
    if hasattr(torch, "_dynamo"):
        torch._dynamo.reset()
    gc.collect()
    if not CUDA:
        return
    torch.cuda.synchronize()
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear:
        clear()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    RESERVED.clear()


@contextmanager
def outcomes(row: dict[str, Any]) -> Iterator[None]:
    """Note a point that does not fit or fails, and go on."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        row["oom"] = True
        row["error"] = str(error)[:300]
        row["peak_before_oom"] = peak_allocated()
    except Exception as error:  # noqa: BLE001 - one point must not end the run
        row["error"] = f"{type(error).__name__}: {error}"[:600]


def measure_point(point: Point, meter: Meter, about: dict[str, Any], args: Any) -> dict[str, Any]:
    """The row of a point, whatever happens."""
    row: dict[str, Any] = {"id": point.id, "words": point.words, "layers": point.layers}
    row |= {"point": point.fields(), "config": config_fields(point, args.tiny), "machine": about}
    row |= {"oom": False, "tiny": args.tiny}
    begin = perf_counter()
    if point.attention.startswith("flash") and not importlib.util.find_spec("flash_attn"):
        return row | {"skipped": "flash_attn is not installed"}
    free()
    torch.manual_seed(0)
    with outcomes(row):
        if args.profile:
            profile(point, row, args)
        else:
            measure(point, row, meter, args)
    row["took_s"] = perf_counter() - begin
    return row


def chosen(args: Any) -> list[Point]:
    """Points of the plan that --only, --profile and --skip leave."""
    points = [p for p in plan() if not args.only or re.search(args.only, p.id)]
    if args.profile:
        points = [p for p in points if (args.only or p.id in PROFILES) and not p.trainer]
    done: set[str] = set()
    for path in filter(os.path.exists, args.skip):
        done |= {json.loads(line)["id"] for line in Path(path).read_text().splitlines() if line}
    return [p for p in points if p.id not in done]


def parsed() -> Any:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="file to which JSON lines are appended")
    parser.add_argument("--budget-s", type=float, default=1e9, help="stop before so many seconds")
    parser.add_argument(
        "--target-s", type=float, default=1.2, help="seconds of timed steps a point"
    )
    parser.add_argument("--skip", action="append", default=[], help="leave out points of this file")
    parser.add_argument("--only", default="", help="points whose id matches this expression")
    parser.add_argument("--list", action="store_true", help="print the plan and stop")
    parser.add_argument("--profile", action="store_true", help="tables of kernels instead of times")
    parser.add_argument("--tiny", action="store_true", help="small widths, to try every path")
    return parser.parse_args()


def shown(row: dict[str, Any]) -> str:
    """The row in one line."""
    if "error" in row or "skipped" in row:
        text = "OOM" if row["oom"] else row.get("error") or row["skipped"]
        return f"{row['id']}: {text[:150]}"
    if "kernels" in row:
        return f"{row['id']}: busy {row['busy_us']:.0f} us of {row['span_us']:.0f} us"
    peak = row["memory"]["step_peak"] / 2**30
    return f"{row['id']}: {row['step']['median_ms']:.1f} ms, {peak:.1f} GiB, {row['took_s']:.1f} s"


def main() -> int:
    """Measure the chosen points in order."""
    args = parsed()
    points = chosen(args)
    if args.list:
        for point in points:
            print(f"{estimate_s(point):6.1f} s  {point.id}")
        print(f"{len(points)} points, about {sum(map(estimate_s, points)):.0f} s")
        return 0
    if not args.out:
        sys.exit("--out FILE is needed, or --list")
    transformers.logging.set_verbosity_error()
    begin, meter, about = perf_counter(), Meter(), machine()
    left = 0
    with Path(args.out).open("a") as out:
        for point in points:
            if perf_counter() - begin + 1.3 * estimate_s(point) + 2 > args.budget_s:
                left += 1
                continue
            row = measure_point(point, meter, about, args)
            row["at_s"] = perf_counter() - begin
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(shown(row), flush=True)
    print(f"{len(points) - left} points in {perf_counter() - begin:.0f} s, {left} left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
