"""The `--json` of a fixed list of questions, every verb among them: recorded, and compared later.

    python -m tests.answers record FOLDER            # one file a question
    python -m tests.answers compare FOLDER           # asks again, and lists every difference

For changes that must not move a number: record with the old tree, compare with the new one. What a clock
makes (seconds that a search took) is left out of both.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

LLAMA_70B = "llama-3.1-70b --gpus 512xH100 --global-batch 1024 --seq-len 8192"

QUESTIONS = {
    "estimate_plan": f"estimate {LLAMA_70B} --plan 'tp8 pp4 zero1 mbs1'",
    "estimate_best": "estimate llama-3.1-70b --system h100-sxm --gpus 512",
    "estimate_megatron": f"estimate {LLAMA_70B} --plan 'tp8 pp4 vpp5 zero1 mbs1 framework=megatron'",
    "estimate_moe": "estimate deepseek-v3 --gpus 2048xH800 --global-batch 15360 --seq-len 4096"
    " --plan 'pp16 ep64 mbs1 zero1 precision=fp8 schedule=dualpipe'",
    "estimate_zero3": "estimate llama-2-7b --gpus 64xA100 --global-batch 256 --seq-len 4096"
    " --plan 'zero3 mbs2 recompute=full framework=fsdp'",
    "estimate_lora": "estimate llama-3.1-8b --gpus 8xH100 --global-batch 32 --seq-len 2048"
    " --plan 'zero3 mbs1 lora=16'",
    "estimate_cp": "estimate llama-3.1-8b --gpus 64xH100 --global-batch 16 --seq-len 131072"
    " --plan 'tp4 cp8 zero1 mbs1 recompute=full'",
    "estimate_gpt2": "estimate gpt2 --gpus 1xH100 --global-batch 8 --plan mbs1",
    "estimate_run": "estimate llama-3.1-8b --gpus 256xH100 --global-batch 512 --tokens 1T"
    " --plan 'tp2 zero1 mbs1'",
    "estimate_encoder_decoder": "estimate t5-11b --gpus 64xA100 --global-batch 128 --seq-len 512"
    " --target-len 128 --plan 'tp4 zero1 mbs2'",
    "estimate_wrong": "estimate llama-3.1-8b --gpus 8xH100 --plan 'tp3 pp5 bogus=1'",
    "estimate_nofit": "estimate llama-3.1-70b --gpus 8xH100 --global-batch 8 --plan 'tp8 mbs1'",
    "search": "search qwen3-32b --system dgx-h200 --gpus 96 --global-batch 768 --top 5",
    "search_moe": "search mixtral-8x7b --gpus 64xH100 --global-batch 256 --top 3",
    "explain": "explain llama-3.1-70b --gpus 512xH100 --plan 'tp8 pp4 zero1 mbs1'",
    "memory": "memory llama-3.1-70b --gpus 64xH100 --global-batch 32 --plan 'tp8 pp4 zero1 mbs1'",
    "simulate": "simulate llama-3.1-8b --gpus 64xH100 --plan 'tp2 pp4 zero1 mbs1'",
    "simulate_moe": "simulate qwen3-30b-a3b --gpus 32xH100 --global-batch 64"
    " --plan 'pp2 ep8 zero1 mbs1'",
    "sensitivity": "sensitivity llama-3.1-70b --gpus 512xH100 --plan 'tp8 pp4 zero1 mbs1'",
    "serve": "serve llama-3.1-70b --gpus 8xH200 --isl 4000 --osl 500 --concurrency 64",
    "serve_rate": "serve qwen3-32b --gpus 4xH100 --isl 2000 --osl 200 --rate 5 --simulate",
    "serve_moe": "serve deepseek-v3 --gpus 16xH200 --isl 2000 --osl 500 --concurrency 128",
    "size": "size qwen3-32b --system h200-sxm --rate 20 --isl 4000 --osl 500 --ttft 2000 --tpot 30",
    "compare": "compare hgx-h100 dgx-b200 --model llama-3.1-70b --budget 10M --seq-len 8192",
    "scaling": "scaling llama-3.1-8b --system h100-sxm --gpus 8..64"
    " --strategies 'zero1,zero3,tp4 zero1'",
    "network": "network dgx-h100 --collective all-reduce --bytes 64MiB --group 16",
    "cost_chip": "cost chip h100-sxm",
    "cost_package": "cost package h100-sxm",
    "cost_system": "cost system hgx-h100 --gpus 64",
    "cost_run": "cost run llama-3.1-8b --gpus 64xH100 --tokens 100B --plan 'tp2 zero1 mbs1'",
    "cost_token": "cost token llama-3.1-70b --gpus 8xH200 --isl 4000 --osl 500 --concurrency 64",
    "reference_search": "reference search --model gpt3-1t --strategy 1d --chip b200 --fast-domain 8"
    " --gpus 1024",
    "codesign": "codesign examples/codesign_small.toml",
    "catalog_chips": "catalog chips",
    "catalog_show": "catalog show h100-sxm",
    "catalog_models": "catalog models",
    "catalog_systems": "catalog systems",
    "import_megatron": "estimate --import examples/launch_megatron.sh --gpus 64xH100",
    "validate_training": "validate training ../shared/data/training/measured_runs.csv.gz",
    "validate_serving": "validate serving ../shared/data/inference/measured_serving.csv.gz",
    "validate_collectives": "validate collectives ../shared/data/network/nccl_multinode.csv.gz",
    "validate_cost": "validate cost ../shared/data/cost/reference_die_cost_chiplet_actuary.csv",
}


def ask(words: str) -> dict[str, Any]:
    """Exit code and output of a question, as a user gets it with --json."""
    done = subprocess.run(
        [sys.executable, "-m", "foretell", *shlex.split(words), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return {"exit": done.returncode, "out": timeless(done.stdout), "err": timeless(done.stderr)}


def timeless(text: str) -> str:
    """A text without what a clock made."""
    return re.sub(
        r'("(?:search_s|evaluation_seconds|wall_s|elapsed_s|took_s|seconds)": )[0-9.e+-]+',
        r"\1null",
        text,
    )


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Where two JSON values differ, one line each."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from differences(old.get(key, "-"), new.get(key, "-"), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{path}[{i}]")
    elif old != new:
        yield f"{path}: {old!r:.120} -> {new!r:.120}"


def parsed(text: str) -> Any:
    """A text as JSON where it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(verb: str, folder: Path, *names: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    same = 0
    for name in names or QUESTIONS:
        file, answer = folder / f"{name}.json", ask(QUESTIONS[name])
        if verb == "record":
            file.write_text(json.dumps(answer))
            print(name, answer["exit"], len(answer["out"]), answer["err"][:150].strip())
            continue
        kept = json.loads(file.read_text())
        lines = [
            line
            for key in ("exit", "out", "err")
            if kept[key] != answer[key]
            for line in differences(parsed(str(kept[key])), parsed(str(answer[key])), key)
            or [f"{key}: same values, other bytes"]
        ]
        same += not lines and kept == answer
        print(name, "same" if kept == answer else f"DIFFERS in {len(lines)} places")
        for line in lines[:12]:
            print("   ", line)
    print(
        f"{same} of {len(names or QUESTIONS)} byte-identical" if verb == "compare" else "recorded"
    )
    return 0 if verb == "record" or same == len(names or QUESTIONS) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
