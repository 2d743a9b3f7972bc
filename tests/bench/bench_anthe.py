"""Anthe and its baselines: step time, memory and gradient bytes, measured and predicted, side by side.

    PYTHONPATH=src:. python tests/bench/bench_anthe.py --out anthe.json   # one GPU, 2 to 3 minutes
    PYTHONPATH=src:. python tests/bench/bench_anthe.py --device cpu --small --out cpu.json

A step is forward, cross-entropy, backward and AdamW on random ids of WMT's lengths (source 100, target
101, no padding, no dropout). Times are medians by CUDA events (the host's clock on a CPU) after a
warm-up; memory is the allocator's peak. `--no-predict` leaves the predictions out, `--predict FILE`
adds them to a file that was measured elsewhere. On a CPU give `--system` the file that `foretell calibrate
fit` wrote for it.
"""

import argparse
import datetime
import json
import platform
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foretell.catalog.models import model as catalogue
from foretell.lab.translate.settings import TranslationSizes, resize_model, with_form
from foretell.specs.block import MapShape
from foretell.specs.model import Model
from foretell.workload.parameters import count

SOURCE, TARGET = 100, 101
FORMS = {
    "transformer-base-tied": ("auto",),
    "transformer-base-untied": ("auto",),
    "anthe-no-tc": ("auto",),
    "anthe-tc-ffn": ("build", "contract"),
    "anthe": ("auto", "build", "contract"),
}
PLANS: dict[str, str | None] = {
    "bf16": "weights=bf16 gradients=bf16 master=none states=bf16",
    "bf16-autocast": "weights=fp32 gradients=fp32 master=none states=fp32",
    "fp32": None,
}
"""Plan words of each precision; a GPU's products in 32 bits are not predicted."""
SMALL = TranslationSizes(width=64, layers=2, heads=4, ffn=256, vocab=1024)
SHAPES = {
    "qkv 0.07": (512, 512, 0.07),
    "ffn up 0.005": (512, 1365, 0.005),
    "ffn down 0.005": (1365, 512, 0.005),
    "ffn up 0.1": (512, 1365, 0.1),
}
WARM, MOST, PATIENCE_S = 4, 40, 2.0
ALIGNED = 2052
"""Feed-forward width whose two thirds, 1368, are a multiple of 8: the paper's 1365 is odd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model in one form, at one batch and precision."""

    model: str
    form: str
    batch: int
    precision: str
    small: bool
    ffn: int | None = None


def record_of(case: Case) -> Model:
    found = catalogue(case.model)
    found = resize_model(found, SMALL if case.small else TranslationSizes(ffn=case.ffn))
    return found if case.form == "auto" else with_form(found, case.form)


def cases(device: str, small: bool, batches: list[int], precisions: list[str]) -> list[Case]:
    found = [
        Case(model=name, form=form, batch=batch, precision=precision, small=small)
        for precision in precisions
        for batch in batches
        for name, forms in FORMS.items()
        for form in forms
    ]
    if small:
        return found
    aligned = [case for case in found if case.model == "anthe-no-tc" and case.precision == "bf16"]
    return found + [replace(case, ffn=ALIGNED) for case in aligned]


def seconds(torch: Any, device: str, call: Any) -> list[float]:
    """Seconds of single calls, after a warm-up."""
    for _ in range(WARM):
        call()
    times, start = [], time.perf_counter()
    while len(times) < MOST and (len(times) < 5 or time.perf_counter() - start < PATIENCE_S):
        if device == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            first.record()
            call()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        else:
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
    return times


def measure(torch: Any, device: str, case: Case) -> dict[str, Any]:
    """One step's seconds, peak bytes and gradient bytes."""
    from torch.nn import functional

    from foretell import zoo

    record = record_of(case)
    torch.manual_seed(0)
    half = torch.bfloat16
    with torch.device(device):
        module = zoo.build(record, fused=True)
    if case.precision == "bf16":
        module = module.to(half)
    cast = torch.autocast(device, half, enabled=case.precision == "bf16-autocast")
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=device == "cuda")
    vocab = record.embedding.vocab
    ids = torch.randint(0, vocab, (case.batch, SOURCE + 2 * TARGET), device=device)
    source, target, wanted = ids.split((SOURCE, TARGET, TARGET), dim=1)
    source, target, wanted = source.contiguous(), target.contiguous(), wanted.reshape(-1)
    gradient_bytes = 0

    def step() -> None:
        nonlocal gradient_bytes
        with cast:
            scores = module(target, source).scores
            loss = functional.cross_entropy(scores.flatten(0, 1), wanted)
        loss.backward()
        if not gradient_bytes:
            gradient_bytes = sum(
                p.grad.numel() * p.grad.element_size() for p in module.parameters()
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    cuda = device == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    times = seconds(torch, device, step)
    return {
        "step_s": statistics.median(times),
        "fastest_s": min(times),
        "slowest_s": max(times),
        "steps": len(times),
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "reserved_bytes": torch.cuda.max_memory_reserved() if cuda else None,
        "gradient_bytes": gradient_bytes,
        "weights": sum(p.numel() for p in module.parameters()),
    }


def measure_map(torch: Any, device: str, name: str, rows: int) -> dict[str, Any]:
    """Forward and backward of one map: dense, built and contracted."""
    from foretell.workload.blocks.tensor_chain import TensorChain, best_steps
    from foretell.zoo.layers import map_module

    inputs, outputs, ratio = SHAPES[name]
    shape = MapShape(name="map", inputs=inputs, outputs=outputs, bias=True)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    chain = TensorChain(ratio=ratio).chain(shape)
    found: dict[str, Any] = {
        "map": name, "rows": rows, "dense_macs": inputs * outputs, "bond": chain.bond,
        "contract_macs": best_steps(chain).macs,
    }  # fmt: skip
    for form in ("dense", "build", "contract"):
        factor = None if form == "dense" else TensorChain(ratio=ratio, form=form)
        with torch.device(device):
            module = map_module(shape, factor).to(dtype)
        x = torch.randn(rows, inputs, device=device, dtype=dtype, requires_grad=True)
        grown = torch.randn(rows, outputs, device=device, dtype=dtype)

        def both(module: Any = module, x: Any = x, grown: Any = grown) -> None:
            module(x).backward(grown)

        found[f"{form}_s"] = statistics.median(seconds(torch, device, both))
    return found


def predict(case: Case, system: str) -> dict[str, Any]:
    """The same by `foretell.estimate`, as plain PyTorch runs it."""
    import foretell

    record, words = record_of(case), PLANS[case.precision]
    if words is None and system.endswith(
        ".toml"
    ):  # a CPU's, whose kernels were measured in 32 bits
        words = PLANS["bf16-autocast"]
    told: dict[str, Any] = {"weights": count(record).total, "step_s": None, "peak_bytes": None}
    if words is None:
        return {**told, "gradient_bytes": 4.0 * count(record).total}
    found = foretell.estimate(
        record,
        system=system,
        gpus=1,
        plan=f"dp1 mbs{case.batch} framework=pytorch-eager no-fused {words}",
        global_batch=case.batch,
        seq_len=SOURCE,
        target_len=TARGET,
    )
    held = {leaf["name"]: leaf["value"] for leaf in found.to_dict()["memory"]["children"]}
    tensors = sum(value for name, value in held.items() if name != "lost")
    return {
        **told,
        "step_s": found.step_s,
        "interval": found.to_dict()["interval"],
        "peak_bytes": tensors,
        "reserved_bytes": found.peak_memory_bytes,
        # Of the weights' dtype; at the peak the backward pass may not have made them yet.
        "gradient_bytes": held["weights"],
        "limited_by": found.limited_by,
        "memory": held,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """A table of both, and how far apart they are."""
    heads = ["ms", "predicted", "off", "GiB", "predicted", "off"]
    print(
        f"{'model':26}{'form':>10}{'batch':>6} {'precision':14}"
        + "".join(f"{h:>10}" for h in heads)
    )
    for row in rows:
        case, got, told = row["case"], row.get("measured") or {}, row.get("predicted") or {}
        cells = []
        for name, scale in (("step_s", 1e-3), ("peak_bytes", 2.0**30)):
            a, b = got.get(name), told.get(name)
            cells += [f"{x / scale:.2f}" if x else "-" for x in (a, b)]
            cells.append(f"{100 * (b / a - 1):+.1f}%" if a and b else "-")
        wide = f" {case['ffn']}" if case.get("ffn") else ""
        names = (
            f"{case['model'] + wide:26}{case['form']:>10}{case['batch']:6} {case['precision']:14}"
        )
        print(names + "".join(f"{cell:>10}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", required=True)
    parser.add_argument("--batches", default="64,256")
    parser.add_argument("--precisions", help="default: all three; on a CPU fp32")
    parser.add_argument("--system", default="h200-sxm")
    parser.add_argument("--small", action="store_true", help="small widths, for a CPU")
    parser.add_argument("--no-predict", action="store_true")
    parser.add_argument("--predict", metavar="FILE", help="predict what FILE measured")
    given = parser.parse_args()
    given.precisions = given.precisions or ("fp32" if given.device == "cpu" else ",".join(PLANS))
    if given.predict:
        told = json.loads(Path(given.predict).read_text())
    else:
        told = measured(given)
    if not given.no_predict:
        for row in told["rows"]:
            row["predicted"] = predict(Case(**row["case"]), given.system)
    Path(given.out).write_text(json.dumps(told, indent=1) + "\n")
    show(told["rows"])


def measured(given: Any) -> dict[str, Any]:
    import torch

    cuda = given.device == "cuda"
    batches = [int(word) for word in given.batches.split(",")]
    todo = cases(given.device, given.small, batches, given.precisions.split(","))
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()
    for case in todo:
        try:
            found = measure(torch, given.device, case)
        except torch.OutOfMemoryError:
            found = {"failed": "out of memory"}
        if cuda:
            torch.cuda.empty_cache()
        rows.append({"case": asdict(case), "measured": found})
        print(case, found, f"{time.perf_counter() - start:.0f} s", flush=True)
    maps = []
    if not given.small:
        maps = [measure_map(torch, given.device, n, r) for n in SHAPES for r in (6400, 25600)]
    return {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "source_len": SOURCE,
        "target_len": TARGET,
        "rows": rows,
        "maps": maps,
    }


if __name__ == "__main__":
    main()
