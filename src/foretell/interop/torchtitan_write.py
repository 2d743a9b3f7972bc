"""A plan as torchtitan's configuration, which torchtitan.py reads back.

0.3 is configured by a Python function that takes one of torchtitan's own configurations and sets the plan
on it (`--module planned --config planned`), 0.2 by a TOML file. Both count batches in sequences: with
pipeline stages a rank's whole share of the batch is local_batch_size, without them one micro-batch is.
"""

from typing import Any

from foretell.errors import bad_input
from foretell.interop.launch import ToolArguments, Training
from foretell.interop.launchers import LaunchJob, wrapped
from foretell.interop.megatron_write import job_name
from foretell.interop.releases import release_of
from foretell.interop.tool_tables import own_configurations
from foretell.specs.plan import WIDE_PRECISIONS
from foretell.specs.plan_forms import even_sizes, layout_sizes, offloads

OWN = own_configurations("torchtitan_configs.toml")
"""torchtitan's configurations and flavors of models."""
THEIRS = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
}
"""Schedules that they have."""
CLASSES = {"none": "None", "full": "FullAC.Config()"}
"""Recomputation by class; any other is by operation."""


def write(run: Training) -> ToolArguments:
    """The configuration alone, or with a launcher the script that writes and runs it."""
    release = release_of(
        f"torchtitan@{run.version}" if run.version else "torchtitan", serving=False
    )
    old = not release.at_least(0, 3)
    values = _values(run, old=old)
    flavor = _flavor(run)
    if old:
        values = {**flavor, **values}
        name, config = "planned.toml", toml_text(values)
        program = f"-m torchtitan.train --job.config_file {name}"
    else:
        name, config = "planned.py", _python_text(run, values)
        program = "-m torchtitan.train --module planned --config planned"
    known = flavor if old else _own(run)
    place = "name its model.name and model.flavor" if old else "put one in base()"
    notes = () if known else (
        f"torchtitan has no configuration of its own for {run.model.id}: {place}",
    )  # fmt: skip
    if not run.launcher:
        return ToolArguments(tool="torchtitan", text=config, notes=notes)
    nodes, each = run.places
    job = LaunchJob(
        name=job_name(run.model.id),
        program=program,
        nodes=nodes,
        each=each,
        chip=run.chip,
        environment={"PYTHONPATH": "."},
        files={name: config},
    )
    return ToolArguments(tool="torchtitan", text=wrapped(job, run.launcher), notes=notes)


def _own(run: Training) -> str | None:
    """torchtitan's own configuration of a model, by its repository."""
    wanted = (run.repository or run.model.id).rpartition("/")[2].lower()
    for name, keys in OWN["configs"].items():
        if str(keys["hf_assets_path"]).rpartition("/")[2].lower() == wanted:
            return str(name)
    return None


def _flavor(run: Training) -> dict[str, str]:
    """The model as a file of 0.2 names it; nothing where it has none such."""
    wanted = (run.repository or run.model.id).rpartition("/")[2]
    found = next((v for name, v in OWN["flavors"].items() if name.lower() == wanted.lower()), None)
    if found is None:
        return {}
    assets = f"./assets/hf/{wanted}"
    return {"model.name": found[0], "model.flavor": found[1], "model.hf_assets_path": assets}


def _values(run: Training, *, old: bool) -> dict[str, Any]:
    """Dotted keys and values."""
    plan = run.plan
    inner = min(max(plan.shard // plan.cp, 1), plan.dp) if plan.zero and plan.shard else plan.dp
    shards = inner if plan.zero else 1
    share = run.global_batch // plan.dp
    found: dict[str, Any] = {
        "training.local_batch_size": share if plan.pp > 1 else plan.micro_batch,
        "training.global_batch_size": run.global_batch,
        "training.seq_len": run.seq_len,
        "parallelism.data_parallel_replicate_degree": plan.dp // shards,
        "parallelism.data_parallel_shard_degree": shards,
        "parallelism.tensor_parallel_degree": plan.tp,
        "parallelism.pipeline_parallel_degree": plan.pp,
        "parallelism.context_parallel_degree": plan.cp,
        "parallelism.expert_parallel_degree": plan.ep,
    }
    if plan.tp > 1 and not old:
        found["parallelism.enable_sequence_parallel"] = plan.sp
    if plan.tp > 1 and plan.tp_overlap == "on":
        section = "parallelism" if old else "compile"
        found[f"{section}.enable_async_tensor_parallel"] = True
    if plan.zero:
        kept = "never" if not plan.reshard or plan.zero < 3 else "always"
        found["parallelism.fsdp_reshard_after_forward"] = kept
    found |= _stages(run) if plan.pp > 1 else {}
    if set(offloads(plan.offload)) >= {"optimizer", "weights"}:
        found["training.enable_cpu_offload"] = True
    if plan.gradients == "bf16" and plan.master == "none" and plan.states == "bf16":
        found["training.dtype"] = "bfloat16"
    if plan.precision in WIDE_PRECISIONS:
        found["training.mixed_precision_param"] = "float32"
    found["compile.enable"] = plan.fused
    if old:
        found["activation_checkpoint.mode"] = {"none": "none", "full": "full"}.get(
            plan.recompute, "selective"
        )
        found["activation_checkpoint.selective_ac_option"] = "op"
    return found


def _stages(run: Training) -> dict[str, Any]:
    """Schedule, pieces and how many layers fewer the outer stages have."""
    plan = run.plan
    chunks = plan.pp * plan.vpp
    sizes = layout_sizes(plan.layout) or even_sizes(run.layers, chunks)
    inner = max(sizes)
    found: dict[str, Any] = {
        "parallelism.pipeline_parallel_schedule": THEIRS.get(plan.schedule, "1F1B"),
        "parallelism.pipeline_parallel_microbatch_size": plan.micro_batch,
        "parallelism.pipeline_parallel_first_stage_less_layers": inner - sizes[0],
        "parallelism.pipeline_parallel_last_stage_less_layers": inner - sizes[-1],
    }
    if plan.vpp > 1:
        found["parallelism.pipeline_parallel_layers_per_stage"] = inner
    return found


def _python_text(run: Training, values: dict[str, Any]) -> str:
    """planned.py: torchtitan's own configuration with the plan on it."""
    own = _own(run)
    module = (own or "llama3").partition("_")[0] if own else "llama3"
    folder = {
        "llama3": "llama3",
        "deepseek": "deepseek_v3",
        "gpt": "gpt_oss",
        "qwen3": "qwen3",
        "sft": "qwen3",
    }
    base = own or "llama3_debugmodel"
    lines = [f"    config.{key} = {value!r}" for key, value in values.items()]
    kind = CLASSES.get(run.plan.recompute, "SelectiveAC.Config()")
    lines.append(f"    config.activation_checkpoint = {kind}")
    body = "\n".join(lines)
    used = kind.partition(".")[0]
    classes = f"from torchtitan.distributed.activation_checkpoint import {used}\n"
    return (
        f"{classes if kind != 'None' else ''}"
        f"from torchtitan.models.{folder.get(module, module)}.config_registry import {base} as base\n\n\n"
        f'def planned():\n    """{run.model.id} on {run.gpus} GPUs."""\n'
        f"    config = base()\n{body}\n    return config"
    )


def toml_text(values: dict[str, Any]) -> str:
    """Dotted keys as TOML, by tomli-w."""
    try:
        import tomli_w
    except ImportError:
        raise bad_input(
            "export", None, "TOML needs tomli-w", 'pip install "foretell[interchange]"'
        ) from None
    tables: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        tables.setdefault(section, {})[name] = value
    return str(tomli_w.dumps(tables)).rstrip()
