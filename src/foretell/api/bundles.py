"""`--export bundle DIR`: launch files, a README with the predicted numbers, and a benchmark that is read
back.

The benchmark of a training run writes measured.csv, whose columns are those of `foretell validate
training`; of a service it is the engine's own, whose JSON `--measured` takes.
"""

import re
from pathlib import Path
from typing import Any

from foretell.api.answers import Estimate, scenario_of
from foretell.api.exports import export_plan
from foretell.api.service_answers import ServeAnswer
from foretell.api.sizing_answer import Sizing
from foretell.errors import bad_input
from foretell.interop.launch import ToolArguments
from foretell.interop.launchers import collect_script
from foretell.interop.user_files import user_file, write_whole
from foretell.search.frameworks import launchable_with, launcher_of
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Model
from foretell.workload.parameters import count

LAUNCH_FILES = {
    "torchrun": "launch.sh",
    "slurm": "launch.sbatch",
    "kubernetes": "kubernetes.yaml",
    "skypilot": "skypilot.yaml",
}
"""Files of a training run, by what starts it."""
BENCHMARK = """#!/bin/bash
# Runs the launch on this node and reads its log; measured.csv is for
#   foretell validate training measured.csv
set -o pipefail
bash launch.sh 2>&1 | tee run.log
python3 collect.py run.log
"""
"""Runs the launch, and keeps what it logs."""
TOOLS = {
    "megatron-core": "megatron",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "transformers": "deepspeed",
}
"""Launchers and the tool whose files are written."""


def training_bundle(result: Estimate, folder: str, tool: str | None = None) -> tuple[str, ...]:
    """Write the files of a training run; the names of those that were written."""
    place = _folder(folder)
    chosen = tool or tool_of(result)
    files = {
        name: _shebang(export_plan(result, chosen, how).text, name)
        for how, name in LAUNCH_FILES.items()
    }
    plain = export_plan(result, chosen)
    files["collect.py"] = collect_script(row_of(result))
    files["benchmark.sh"] = BENCHMARK
    files["README.md"] = _readme(result, plain)
    return _write(place, files)


def serving_bundle(found: ServeAnswer, written: ToolArguments, folder: str) -> tuple[str, ...]:
    """Write the files of a service; the names of those that were written."""
    place = _folder(folder)
    load = (
        f"--model {_repository(written.text, found.model)} --dataset-name random "
        f"--random-input-len {found.isl:.0f} "
        f"--random-output-len {found.osl:.0f} --max-concurrency {found.concurrency:.0f} "
        f"--num-prompts {max(int(found.concurrency) * 8, 64)}"
    )
    files = {
        "launch.sh": _shebang(written.text, "launch.sh"),
        "benchmark.sh": _benchmark(written.tool, load),
        "README.md": _service_readme(found, written),
    }
    return _write(place, files)


def sizing_bundle(found: Sizing, folder: str) -> tuple[str, ...]:
    """Write the files of a sized service, both halves of a split one; their names."""
    place, best, wanted = _folder(folder), found.best, found.wanted
    engine = found.profile.partition("-")[0]
    files = {
        name: _shebang(found.export(engine, None if how == "torchrun" else how).text, name)
        for how, name in LAUNCH_FILES.items()
    }
    plain = found.export(engine)
    assert found.question is not None
    model = found.question.model.id
    load = (
        f"--model {_repository(plain.text, model)} --dataset-name random --random-input-len {wanted.isl:.0f} "
        f"--random-output-len {wanted.osl:.0f} --request-rate {wanted.rate:g} "
        f"--num-prompts {max(round(wanted.rate * 60), 64)}"
    )
    files["benchmark.sh"] = _benchmark(engine, load)
    rows = [
        (f"TTFT, {found.percentile}", f"{best.ttft_ms:,.0f} ms (target {wanted.ttft_ms:g})"),
        (f"TPOT, {found.percentile}", f"{best.tpot_ms:.2f} ms (target {wanted.tpot_ms:g})"),
        ("requests per second that it can answer", f"{best.option.requests_per_s:.2f}"),
    ]
    if best.usd_per_hour is not None:
        rows.append(("rent", f"{best.usd_per_hour:,.2f} USD per hour ({found.price_source})"))
    notes = "".join(f"- {text}\n" for text in plain.notes) or "- none\n"
    table = "".join(f"| {name} | {value} |\n" for name, value in rows)
    files["README.md"] = f"""# {found.model} on {best.option.gpus} x {found.system}

Written for {plain.called}: {best.option.name()}

Predicted at {wanted.rate:g} requests/s, {wanted.isl:.0f} tokens in and {wanted.osl:.0f} out:

| what | value |
|---|---|
{table}
`bash launch.sh` on every node (with NODE_RANK and HOSTS) starts the service, `bash benchmark.sh` measures
it: result.json is for `--measured`. launch.sbatch, kubernetes.yaml and skypilot.yaml start the same by
Slurm, Kubernetes and SkyPilot.

Not expressed by these files:
{notes}"""
    return _write(place, files)


def _repository(text: str, model: str) -> str:
    """The model's name as a command has it."""
    found = re.search(r"(?:serve|--model-path)\s+(\S+/\S+)", text)
    return found[1] if found else model


def _benchmark(engine: str, load: str) -> str:
    """A script that measures a service by the engine's own benchmark."""
    bench = {
        "sglang": f"python -m sglang.bench_serving --backend sglang {load} --output-file result.json",
    }.get(engine, f"vllm bench serve {load} --save-result --result-filename result.json")
    return f"#!/bin/bash\n# Against the service; result.json is for --measured\n{bench}\n"


def tool_of(result: Estimate) -> str:
    """The tool of a plan's framework, else of the first that can run it."""
    own = launcher_of(result.plan.framework)
    names = (own[0],) if own else launchable_with(scenario_of(result), result.plan)
    return next((TOOLS[name] for name in names if name in TOOLS), "megatron")


def row_of(result: Estimate) -> dict[str, Any]:
    """The run as a row of `foretell validate training`, what is measured left blank."""
    plan, model = result.plan, scenario_of(result).model
    return {
        "id": "bundle-1",
        "source": "benchmark of a bundle",
        "model": model.id,
        **_shape(model),
        "seq_len": result.seq_len,
        "chip_id": scenario_of(result).system.chip.id,
        "n_gpus": result.gpus,
        "precision_id": plan.precision,
        "framework_id": plan.framework.partition("@")[0],
        "dp": plan.dp,
        "zero_stage": plan.zero,
        "tp": plan.tp,
        "sp": "yes" if plan.sp else "no",
        "cp": plan.cp,
        "pp": plan.pp,
        "vpp": plan.vpp,
        "ep": plan.ep,
        "micro_batch": plan.micro_batch,
        "global_batch": result.global_batch,
        "grad_accum": max(result.global_batch // (plan.dp * plan.micro_batch), 1),
        "recompute": plan.recompute,
        "flash_attn": "yes" if plan.flash else "no",
        "quality": "A",
        "score_step_time_s": "",
        "score_tokens_per_s_per_gpu": "",
        "peak_mem_gb": "",
        "fast_domain_gpus": "",
        "notes": str(plan),
    }


def _shape(model: Model) -> dict[str, Any]:
    """Columns that describe the model."""
    layer = model.stack.layers[-1]
    mixer = next((one for one in layer.mixers if isinstance(one, Attention)), None)
    ffn = layer.ffn
    routed = ffn if isinstance(ffn, Experts) else None
    width = ffn.width if isinstance(ffn, Dense | Experts) else None
    return {
        "family": "moe" if routed else "dense",
        "n_params_b": f"{count(model).total / 1e9:.4f}",
        "layers": len(model.stack.layers),
        "hidden": model.stack.hidden,
        "heads": mixer.heads if mixer else None,
        "kv_heads": mixer.kv_heads if mixer else None,
        "ffn_hidden": width,
        "n_experts": routed.experts if routed else None,
        "top_k": routed.top_k if routed else None,
        "vocab": model.embedding.vocab or None,
    }


def _readme(result: Estimate, written: ToolArguments) -> str:
    """What is in the folder, what was predicted, and how to hold it to the benchmark."""
    low, high = (result.interval or {"p90": (result.step_s, result.step_s)})["p90"]
    notes = "".join(f"- {text}\n" for text in written.notes) or "- none\n"
    peak, room = result.peak_memory_bytes / 2**30, result.memory_capacity_bytes / 2**30
    tensors = result.allocated_bytes / 2**30
    return f"""# {result.model} on {result.gpus} x {result.system}

Written for {written.called}. Plan: `{result.plan}`

| predicted | value | nine in ten cases |
|---|---|---|
| step | {result.step_s:.4f} s | {low:.4f} to {high:.4f} s |
| tokens per second | {result.tokens_per_s:,.0f} | |
| tokens per second and GPU | {result.tokens_per_s_per_gpu:,.1f} | |
| TFLOP/s per GPU | {result.tflops_per_gpu:.1f} | |
| MFU | {result.mfu:.1%} | |
| memory of a GPU, held by the process | {peak:.1f} GiB of {room:.1f} | |
| memory of a GPU, allocated by tensors | {tensors:.1f} GiB | |

| file | for |
|---|---|
| launch.sh | torchrun, on every node |
| launch.sbatch | `sbatch launch.sbatch` |
| kubernetes.yaml | `kubectl apply -f kubernetes.yaml`, a PyTorchJob |
| skypilot.yaml | `sky launch skypilot.yaml` |
| benchmark.sh | `bash benchmark.sh` runs it; collect.py writes measured.csv from its log |

`foretell validate training measured.csv` lays the measurement beside the prediction.

Not expressed by these files:
{notes}"""


def _service_readme(found: ServeAnswer, written: ToolArguments) -> str:
    notes = "".join(f"- {text}\n" for text in written.notes) or "- none\n"
    return f"""# {found.model} on {found.gpus} x {found.system}

Written for {written.called}. {found.replicas} instance(s) of `{found.plan}`

Predicted for {found.isl:.0f} tokens in, {found.osl:.0f} out, {found.concurrency:.0f} requests at a time:

| what | value |
|---|---|
| TTFT, mean | {found.ttft_ms.mean:.1f} ms |
| TPOT, mean | {found.tpot_ms.mean:.2f} ms |
| output tokens per second | {found.output_tokens_per_s:,.0f} |
| requests per second | {found.requests_per_s:.2f} |

`bash launch.sh` starts the service, `bash benchmark.sh` measures it: result.json is for `--measured`.

Not expressed by these files:
{notes}"""


def _shebang(text: str, name: str) -> str:
    script = name.endswith(".sh") and not text.startswith("#!")
    return ("#!/bin/bash\n" if script else "") + text.rstrip("\n") + "\n"


def _folder(name: str) -> Path:
    """The folder, made where it is not there."""
    path = user_file(name, "export", "a tool")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot be made: {error.strerror or error}"
        raise bad_input("export", name, message, "a folder") from None
    return path


def _write(place: Path, files: dict[str, str]) -> tuple[str, ...]:
    for name, text in files.items():
        write_whole(place / name, text)
    return tuple(str(place / name) for name in files)
