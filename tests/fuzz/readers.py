"""Every reader of what users give, with inputs that are right to begin with."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell import catalog
from foretell.api.launches import merge_launch, read_launch
from foretell.catalog.model_names import FOLDER
from foretell.catalog.prices import price_file
from foretell.inputs.question import ask, plan_of
from foretell.lab.calibrate.measured_rows import groups_of
from foretell.lab.calibrate.measured_rows import read as read_measurements
from foretell.lab.characterize.config import read_config
from foretell.serving.requests.traces import read_trace
from foretell.specs.deployment_text import deployment_problems, parse_deployment
from foretell.specs.plan import parse_plan, plan_problems
from foretell.studies.study_file import read_study
from foretell.units import parse as parse_unit
from tests.catalog.known_designs import KNOWN
from tests.lab.characterize.kineto import collective, copied, kernel, launch, note, op, trace
from tests.surfaces.command import TOY, TOY_SYSTEM

ROWS = 3
"""Rows of a published table that an input has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Something that reads what a user gives."""

    name: str
    """What is read."""
    seeds: tuple[bytes, ...]
    """Inputs that are right."""
    read: Callable[[bytes], object]
    """Reads one."""


def in_file(folder: Path, name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A reader of files, given bytes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)

    def of(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return of


def as_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """A reader of arguments, given bytes: what is no text comes as a shell passes it on."""
    return lambda content: read(content.decode("utf-8", "surrogateescape"))


STUDY = """
[study]
kind = "training"
plan = "tp2 dp4"
mode = "product"
[base]
model = "llama-3.1-8b"
system = "h100-sxm"
gpus = 8
[vary]
"chip.memory_bandwidth_bytes_per_s" = { low = "2 TB/s", high = "5 TB/s", steps = 3, scale = "log" }
seq_len = [2048, 4096]
[objectives]
step_s = "min"
[limits]
peak_memory_bytes = 80e9
"""
PRICES = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone\n"
    "p5.48xlarge,H100,8,192,2048,98.32,20.1,us-east-1,us-east-1a\n"
    "tpu,tpu-v5p-8,1,,,16.8,,us-central1,us-central1-a\nm5.large,,,2,8,0.1,,us-east-1,\n"
)
ARRIVALS = "arrival_s,input_tokens,output_tokens\n0.0,100,20\n0.5,2000,1\n1.25,30,300\n"
ZONED = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,100,20\n"
    "2024-05-10T02:00:01.0099301+02:00,100,20\n2024-05-09T20:00:02-0400,7,1\n"
)
ARRIVAL_LINES = "\n".join(
    json.dumps({"arrival_s": at, "input_tokens": 100, "output_tokens": 20})
    for at in (0.0, 0.5, 2.5)
)
_POINT = {
    "kind": "point", "status": "done", "group": "gemm", "family": "gemm", "variant": "", "dtype": "bf16",
    "dims": {"m": 1024, "n": 4096, "k": 4096}, "pass": "forward", "mode": "burst", "launch": "graph",
    "launch_used": "graph", "chip": "a card", "software": "torch", "seconds": 1e-4, "flop": 3.4e10,
    "bytes": 5e7, "rotated_bytes": 1e9, "at": "2026-11-15T07:00:00+00:00",
}  # fmt: skip
_COPY = {**_POINT, "family": "copy", "group": "copies", "variant": "copy", "dims": {"bytes": 65536}}
MEASURED = "\n".join(
    json.dumps(line)
    for line in (
        {"kind": "environment", "device": "cuda", "torch": "2.11"},
        _POINT,
        {**_COPY, "dtype": "bytes"},
    )
)
_EVENT = {"ph": "X", "pid": 0, "tid": 7, "ts": 100.0, "dur": 50.0}
TRACE = json.dumps(
    {
        "schemaVersion": 1,
        "distributedInfo": {"rank": 0, "world_size": 1},
        "traceEvents": [
            {**_EVENT, "ph": "M", "name": "process_name", "args": {"name": "python"}},
            {**_EVENT, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 80, "dur": 300, "tid": 1},
            {**_EVENT, "cat": "cpu_op", "name": "aten::mm", "tid": 1, "args": {"External id": 5}},
            {**_EVENT, "cat": "kernel", "name": "gemm", "args": {"stream": 7, "correlation": 5}},
            {**_EVENT, "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 160, "tid": 8,
             "args": {"stream": 8, "correlation": 6, "Collective name": "allreduce", "In msg nelems": 64}},
        ],
    },
    indent=1,
)  # fmt: skip
KINETO = json.dumps(
    trace([
        note("ProfilerStep#3", 0.0, 900.0), op("aten::mm", 10.0, 30.0), launch(20.0, 5.0, 1),
        kernel("sm90_gemm", 60.0, 200.0, key=1), copied(300.0, 20.0),
        collective("allreduce", 330.0, 100.0, elements=64, members=2),
    ])
)  # fmt: skip
PLANS = (
    "tp8 pp4 vpp2 dp16 cp2 ep8 etp1 zero1 mbs1 sp no-flash recompute=core+norm schedule=interleaved",
    "tp2 dp4 zero3 mbs2 precision=fp8 scaling=block order=tp,cp,dp,pp capacity=1.25 offload=optimizer",
)
LAYOUTS = ("tp8 ep8 weights=fp8 kv=fp8 max_batch=256 memory_fraction=0.9 no-graph draft_tokens=2",)
SETTINGS = (
    "network.node.bandwidth_bytes_per_s=400 Gbit/s",
    "chip.matrix_flop_per_s.bf16=500 TFLOP/s",
    "model.num_hidden_layers=16",
    "plan.recompute=full",
    "job.seq_len=4096",
    "prices.pue=1.1",
)
UNITS = ("400 Gbit/s", "3.35 TB/s", "1e9", "80 GiB/s", "5")
LAUNCHES: dict[str, tuple[str, ...]] = {
    "megatron": (
        (
            "NODES=8\nARGS=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096)\n"
            "torchrun --nnodes $NODES --nproc_per_node ${G:-8} pretrain_gpt.py ${ARGS[@]} --bf16 \\\n"
            "  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --micro-batch-size 1 \\\n"
            "  --global-batch-size 128 --use-distributed-optimizer --recompute-modules core_attn mlp\n"
        ),
        (
            "model:\n  tensor_model_parallel_size: 4\n  seq_length: 8192\ntrain: {global_batch_size: 128}\n"
            "ddp:\n  use_distributed_optimizer: true\nnames:\n- a\n- [1, {b: c}]\n"
        ),
        "model.tensor_model_parallel_size=4 train.global_batch_size=512 mixed_precision=bf16_mixed",
    ),
    "torchtitan": (
        (
            '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n'
            "[parallelism]\ndata_parallel_shard_degree = 16\npipeline_parallel_degree = 2\n"
            'pipeline_parallel_schedule = "Interleaved1F1B"\n[activation_checkpoint]\nmode = "full"\n'
        ),
        (
            "config.training.num_tokens_per_microbatch_per_dp_rank = 8192\n"
            "config.training.max_context_length = 4096\nconfig.parallelism.tensor_parallel_degree = 4\n"
            "config.activation_checkpoint = FullAC.Config()\n"
        ),
    ),
    "deepspeed": (
        (
            '{"train_batch_size": 512, "train_micro_batch_size_per_gpu": 2, '
            '"gradient_accumulation_steps": 4,\n'
            ' "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},'
            ' "bf16": {"enabled": true}}'
        ),
    ),
    "vllm": (
        (
            "vllm serve meta-llama/Llama-3.1-8B -tp 2 -dp=4 --max-num-seqs 64 --kv-cache-dtype fp8 "
            """--speculative-config '{"method": "mtp", "num_speculative_tokens": 2}' --enforce-eager"""
        ),
    ),
    "sglang": (
        (
            "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --dp 4 "
            "--enable-dp-attention --mem-fraction-static 0.8 --chunked-prefill-size 8192"
        ),
    ),
    "trtllm": (
        (
            "cat > e.yml << EOF\nenable_attention_dp: true\nkv_cache_config:\n  dtype: fp8\nEOF\n"
            "trtllm-serve Qwen/Qwen3-235B-A22B --max_batch_size 64 --tp_size=8 --ep_size=8 --config e.yml\n"
        ),
    ),
}


def read_measured(path: Path) -> object:
    """All that a fit does with a file but for the fitting itself."""
    from foretell.lab.calibrate import fit

    measured = read_measurements(path)
    facts = fit.facts_of(measured, "h200-sxm")
    groups = groups_of(measured, facts.chip.id)
    left = fit._untold(measured, groups), fit._unfitted_groups(measured)
    return left, list(fit.unfitted_collectives(measured, kept=facts.new))


def read_breakdown(path: Path) -> object:
    """A trace, broken down and printed as JSON."""
    from foretell.lab.characterize.traces.run import characterize_trace

    return json.dumps(characterize_trace(path).to_dict(), allow_nan=False)


def read_any_measured(path: Path) -> object:
    from foretell.api.measured_files import read_measured as of_files

    return of_files(path)


MEASURED_ROWS = "\n".join(
    json.dumps(row)
    for row in (
        {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8, "plan": "tp2", "step_s": 1.25,
         "global_batch": 64, "seq_len": 4096, "at": "2026-11-15T07:00:00+00:00"},
        {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8, "isl": 1000, "osl": 100,
         "concurrency": 4, "ttft_ms": 80.0, "tpot_ms": 9.0},
    )
)  # fmt: skip
POST_LOG = "\n".join(
    json.dumps({"step": i, "timing_s/gen": 30.0 + i, "timing_s/update_actor": 12.5,
                "response_length/mean": 900, "perf/throughput": 1000.0})
    for i in range(3)
)  # fmt: skip
LENGTHS = "100\n2000\n" + json.dumps({"osl": 300}) + "\n"
WORDS = (
    "turns=8 pause=5 new=500",
    "host:1TB@50GB/s ssd:8TB@6GB/s",
    "min=1 max=16 start=120 target=0.7",
)
TYPED = (
    "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256",
    "gpt:layers=12,hidden=768,heads=12,vocab=50257,name=small",
    "llama:layers=4,hidden=1024,heads=8,ffn=512,experts=8,top_k=2,shared=1,latent=yes,dense_layers=1",
)


def _words(text: str) -> object:
    """Texts of sessions, tiers and autoscalers."""
    from foretell.errors import BadInput
    from foretell.serving.requests.prefixes import read_tiers
    from foretell.serving.requests.routing import read_autoscale
    from foretell.serving.requests.sessions import read_sessions

    found, wrong = [], []
    for read in (read_sessions, read_tiers, read_autoscale):
        try:
            found.append(read(text))
        except BadInput as error:
            wrong += error.problems
    if not found:
        raise BadInput(wrong)
    return found


def _post_log(path: Path) -> object:
    from foretell.interop.post_training_logs import log_of
    from foretell.interop.user_files import user_text

    return log_of(user_text(path, "log"))


def _lengths(path: Path) -> object:
    from foretell.serving.requests.arrivals import read_lengths

    return read_lengths(str(path))


def _launched(text: str) -> object:
    launch = read_launch(text, files=False)
    return merge_launch(launch, "llama-3.1-8b", {"gpus": None, "plan": None})


def _planned(text: str) -> object:
    plan = parse_plan(text, 64)
    assert not plan_problems(plan)
    return parse_plan(str(plan)) == plan


def _laid_out(text: str) -> object:
    return deployment_problems(parse_deployment(text), 64)


def _set(text: str) -> object:
    scenario = ask(model=TOY_MODEL, system="h100-sxm", gpus=8, set=[text])
    return plan_of(scenario, None, [text])


TOY_MODEL: Any = TOY


def _systems() -> list[str]:
    """Systems whose chip stands in the file itself: on top of another, and as a design."""
    rest = TOY_SYSTEM.partition("[network.node]")[2]
    based = '[chip]\nbase = "h100-sxm"\nmemory_bytes = "120 GB"\n'
    design = "".join(f"{key} = {_toml(value)}\n" for key, value in KNOWN["a100-sxm-80gb"].items())
    return [f"{based}\n[network.node]{rest}", f"[design]\n{design}"]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(held)}" for key, held in value.items()) + " }"
    return json.dumps(value)


def _swept(folder: Path) -> list[Reader]:
    """A folder of a sweep: its manifest, and a shard under its own hash or another's."""
    from foretell.studies.sweep.export import export
    from foretell.studies.sweep.run import sweep
    from foretell.studies.sweep.shards import SHARDS, file_name, read_folder, read_manifest

    made = folder / "swept"
    sweep(tomllib.loads(STUDY), out=made)
    manifest = (made / "manifest.json").read_bytes()
    [shard] = (made / SHARDS).glob("*.parquet")
    content = shard.read_bytes()

    def of_manifest(given: bytes) -> object:
        (made / "manifest.json").write_bytes(given)
        return read_manifest(made)

    def of_shard(given: bytes) -> object:
        (made / "manifest.json").write_bytes(manifest)
        for path in (made / SHARDS).iterdir():
            path.unlink()
        named = shard.name if len(given) % 2 else file_name(0, given)
        (made / SHARDS / named).write_bytes(given)
        found = read_folder(made)
        assert (0 in found.whole) is (named == file_name(0, given))
        return export(made, out=folder / "out.csv")

    return [
        Reader(name="sweep manifest", seeds=(manifest,), read=of_manifest),
        Reader(name="sweep shard", seeds=(content,), read=of_shard),
    ]


def _asked(content: bytes) -> object:
    """A study in the body of a request, as the server looks at it."""
    from foretell.errors import BadInput, Problem
    from foretell.web.limits import TooMuch
    from foretell.web.names import safe_study

    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):  # which the server says before it comes to this
        raise BadInput([Problem(path="study", value=None, message="no object")])
    try:
        return read_study(safe_study(body))
    except TooMuch as error:
        raise BadInput(error.problems) from None


def own_readers(folder: Path) -> list[Reader]:
    """Readers whose inputs stand in this file."""
    configs = [json.dumps(TOY, indent=1).encode()]
    names = (
        "deepseek-ai--DeepSeek-V3",
        "openai--gpt-oss-120b",
        "Qwen--Qwen3.5-27B",
        "google--gemma-3-12b-pt",
    )
    configs += [
        (FOLDER / f"{name}.json").read_bytes()
        for name in names
        if (FOLDER / f"{name}.json").is_file()
    ]
    toml = [
        path.read_bytes() for path in sorted(FOLDER.glob("*.toml")) if path.stat().st_size < 4000
    ][:3]
    examples = Path(__file__).parents[2] / "examples"
    runs = [path.read_bytes() for path in sorted(examples.glob("characterize*.toml"))]
    studies = [
        path.read_bytes()
        for path in sorted(examples.glob("*small.toml"))
        if "charac" not in path.name
    ]
    inline = tomllib.loads(STUDY)
    inline["base"] |= {"model": TOY, "system": tomllib.loads(TOY_SYSTEM)}
    found = [
        (
            "config.json",
            configs,
            in_file(folder, "hf/config.json", lambda p: catalog.model(str(p))),
        ),
        ("model TOML", toml, in_file(folder, "model.toml", lambda p: catalog.model(str(p)))),
        (
            "system TOML",
            [TOY_SYSTEM],
            in_file(folder, "system.toml", lambda p: catalog.system(str(p))),
        ),
        ("chip TOML", _systems(), in_file(folder, "chip.toml", lambda p: catalog.system(str(p)))),
        ("study TOML", [STUDY, *studies], in_file(folder, "study.toml", read_study)),
        ("study of a request", [json.dumps(inline, indent=1)], _asked),
        ("run TOML", runs, in_file(folder, "run.toml", read_config)),
        ("measured lines", [MEASURED], in_file(folder, "measured.jsonl", read_measured)),
        ("price list", [PRICES], in_file(folder, "vms.csv", price_file)),
        ("arrivals CSV", [ARRIVALS], in_file(folder, "arrivals.csv", read_trace)),
        ("arrivals lines", [ARRIVAL_LINES], in_file(folder, "arrivals.jsonl", read_trace)),
        ("trace", [TRACE, KINETO], in_file(folder, "trace.json", read_breakdown)),
        ("measured rows", [MEASURED_ROWS], in_file(folder, "rows.jsonl", read_any_measured)),
        ("post-training log", [POST_LOG], in_file(folder, "log.jsonl", _post_log)),
        ("lengths", [LENGTHS], in_file(folder, "lengths.txt", _lengths)),
        ("zoned arrivals", [ZONED], in_file(folder, "zoned.csv", read_trace)),
        ("words of requests", WORDS, as_text(_words)),
        ("model text", TYPED, as_text(catalog.model)),
        ("plan text", PLANS, as_text(_planned)),
        ("deployment text", LAYOUTS, as_text(_laid_out)),
        ("--set text", SETTINGS, as_text(_set)),
        ("units", UNITS, as_text(lambda text: parse_unit(text, "bytes_per_s", "x"))),
        *((f"{tool} arguments", texts, as_text(_launched)) for tool, texts in LAUNCHES.items()),
    ]
    made = [
        Reader(
            name=name,
            seeds=tuple(s if isinstance(s, bytes) else s.encode() for s in seeds),
            read=read,
        )
        for name, seeds, read in found
    ]
    return [*made, *_swept(folder)]


def table_readers(folder: Path, data: Path) -> list[Reader]:
    """Readers of published tables: their first rows are the inputs."""
    from foretell.lab.validate.cost import score_cost
    from foretell.lab.validate.hardware import score_collectives, score_kernels
    from foretell.lab.validate.memory import score_memory
    from foretell.lab.validate.serving import score_serving
    from foretell.lab.validate.training import score_training

    found: list[Reader] = []
    kinds: list[tuple[str, str, Callable[[Path], object]]] = [
        ("collectives table", "network/*.csv*", score_collectives),
        ("kernels table", "kernels/*.csv*", score_kernels),
        ("training table", "training/*.csv*", score_training),
        ("memory table", "training/*.csv*", score_memory),
        ("serving table", "inference/*.csv*", score_serving),
        ("cost table", "cost/*.csv*", score_cost),
    ]
    for name, pattern, score in kinds:
        seen: set[bytes] = set()
        for path in sorted(data.glob(pattern)):
            head = _first_rows(path)
            columns = head.partition(b"\n")[0]
            if columns in seen:
                continue
            seen.add(columns)
            read = in_file(folder, f"{name}/{path.name.removesuffix('.gz')}", score)
            try:
                read(head)
            except Exception:  # noqa: BLE001 - a table of another kind in the same folder
                continue
            found.append(Reader(name=f"{name} {path.name}", seeds=(head,), read=read))
    return found


def _first_rows(path: Path) -> bytes:
    from foretell.catalog.files import read_bytes

    return b"\n".join(read_bytes(path).split(b"\n")[: ROWS + 1]) + b"\n"
