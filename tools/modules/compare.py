"""Predicted steps of the modules beside this file, and how far measured ones are from them.

`python tools/modules/compare.py cases|library|later|newer|latest PREDICTED.jsonl` predicts every step on one H200;
`python tools/modules/compare.py PREDICTED.jsonl MEASURED.jsonl` prints the errors.
"""

import importlib
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

WORDS = {
    "fp32": "precision=fp32",
    "tf32": "precision=tf32",
    "autocast": "precision=bf16",
    "fp16": "precision=fp16",
    "bf16": "precision=bf16 weights=bf16",
}
"""Words of a plan for the ways that a step is computed."""


def predicted(kind, out):
    import foretell

    name = "bench_modules" if kind == "cases" else f"{kind}_modules"
    bench, traces = importlib.import_module(name), {}
    with tempfile.TemporaryDirectory() as folder, Path(out).open("w") as rows:
        for factory, precision, compiled, micro, update in bench.CASES:
            row = {"case": [factory, precision, compiled, micro, update]}
            try:
                if factory not in traces:
                    traces[factory] = Path(folder) / f"{factory}.foretell.json"
                    foretell.trace(getattr(bench, factory)).save(traces[factory])
                model = json.loads(traces[factory].read_text())
                found = foretell.estimate(
                    str(traces[factory]),
                    gpus="1xH200",
                    plan=WORDS[precision]
                    + (" compile=on" if compiled else "")
                    + (" optimizer=sgd" if update == "sgd" else ""),
                    set=[] if update == "sgd" else [f"trace.update={update}"],
                    global_batch=micro * model["batch"],
                )
                row |= {"step_s": found.step_s, "allocated_bytes": found.allocated_bytes}
                row["interval_s"] = list(found.interval["p90"])
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"
            print(row, flush=True)
            rows.write(json.dumps(row) + "\n")


def middle(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def compared(first, second):
    rows = {str(r["case"]): r for r in map(json.loads, Path(first).read_text().splitlines())}
    times, busy, memory, inside = [], {}, [], []
    for measured in map(json.loads, Path(second).read_text().splitlines()):
        own = rows[str(measured["case"])]
        if "error" in own or "error" in measured:
            print(measured["case"], own.get("error"), measured.get("error"))
            continue
        off = own["step_s"] / measured["loop_s"] - 1.0
        used = own["allocated_bytes"] / measured["allocated_bytes"] - 1.0
        times.append(abs(off))
        memory.append(abs(used))
        kind = (
            "compiled"
            if measured["case"][2]
            else "GPU busy"
            if measured["host_s"] < 0.9 * measured["synced_s"]
            else "host"
        )
        busy.setdefault(kind, []).append(abs(off))
        low, high = own["interval_s"]
        inside.append(low <= measured["loop_s"] <= high)
        print(f"{measured['case']!s:60} {1e3 * measured['loop_s']:8.1f} ms {100 * off:+6.1f} %"
              f"  memory {100 * used:+6.1f} %  {kind}")  # fmt: skip
    for name, values in {"time": times, **busy, "memory": memory}.items():
        print(f"{name}: {len(values)} steps, median {100 * statistics.median(values):.1f} %, p90 "
              f"{100 * middle(values, 0.9):.1f} %")  # fmt: skip
    print(f"inside 90 %: {sum(inside)} of {len(inside)}")


if __name__ == "__main__":
    (predicted if sys.argv[1] in ("cases", "library", "later", "newer", "latest") else compared)(
        *sys.argv[1:3]
    )
