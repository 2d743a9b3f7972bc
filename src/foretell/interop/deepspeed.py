"""DeepSpeed's JSON: batch sizes, `zero_optimization`, dtypes, AutoTP and AutoEP.

Keys as of docs/_pages/config-json.md. train_batch_size = micro-batch x accumulation x replicas; the third
of them follows where two are given. Sequence length and model are the script's own, not this file's. Where
neither fp16 nor bf16 is enabled weights stay as the script made them: 32 bits, products as PyTorch has them.
"""

import json
from typing import Any

from foretell.interop.launch import ToolArguments, Training
from foretell.interop.launchers import LaunchJob, wrapped
from foretell.interop.megatron_write import job_name
from foretell.specs.plan import WIDE_PRECISIONS, Plan
from foretell.specs.plan_forms import offloads


def write(run: Training) -> ToolArguments:
    """The JSON file, or with a launcher the script that writes and uses it."""
    plan = run.plan
    zero: dict[str, Any] = {"stage": plan.zero, "overlap_comm": True, "contiguous_gradients": True}
    host = offloads(plan.offload)
    if "optimizer" in host:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if "weights" in host:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if plan.zero == 3 and plan.shard:
        zero["mics_shard_size"] = plan.shard
    if plan.zero and plan.bucket:
        name = "stage3_prefetch_bucket_size" if plan.zero == 3 else "reduce_bucket_size"
        zero[name] = 1_000_000 * plan.bucket
    if plan.zero == 3 and plan.secondary:
        zero["zero_hpz_partition_size"] = plan.secondary
    if plan.zero == 3 and plan.gather == "fp8":
        zero["zero_quantized_weights"] = True
    table: dict[str, Any] = {
        "train_batch_size": run.micro_batches * plan.micro_batch * plan.dp,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": run.micro_batches,
        "zero_optimization": zero,
        **_precision_table(plan),
        "data_types": {"grad_accum_dtype": plan.gradients},
        "optimizer": {"type": _named(plan.optimizer), "params": {"lr": "auto"}},
    }
    if plan.wire != "auto":
        table["communication_data_type"] = "bfp16" if plan.wire == "bf16" else plan.wire
    table |= _groups(run)
    text = json.dumps(table, indent=2)
    if not run.launcher:
        return ToolArguments(tool="deepspeed", text=text)
    nodes, each = run.places
    model = run.repository or run.model.id
    job = LaunchJob(
        name=job_name(run.model.id),
        program=f"train.py --model_name_or_path {model} --deepspeed ds_config.json",
        nodes=nodes,
        each=each,
        chip=run.chip,
        environment={},
        files={"ds_config.json": text},
    )
    note = "train.py is yours: a script of the Hugging Face Trainer, or one that calls deepspeed.initialize"
    return ToolArguments(tool="deepspeed", text=wrapped(job, run.launcher), notes=(note,))


def _precision_table(plan: Plan) -> dict[str, Any]:
    """How products run; nothing is 32 bits."""
    if plan.precision in WIDE_PRECISIONS:
        return {}
    if plan.weights == "fp32" and plan.master == "none":
        name = "float16" if plan.precision == "fp16" else "bfloat16"
        return {"torch_autocast": {"enabled": True, "dtype": name}}
    if plan.precision == "fp16":
        return {"fp16": {"enabled": True}}
    brain = {"enabled": True}
    if plan.master == "bf16" and plan.gradients == "bf16":
        brain["bf16_master_weights_and_grads"] = True
    if plan.states == "bf16":
        brain["bf16_optimizer_states"] = True
    return {"bf16": brain}


def _groups(run: Training) -> dict[str, Any]:
    """Groups beside data parallelism, and checkpointing."""
    plan, table = run.plan, dict[str, Any]()
    if plan.tp > 1:
        table["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.pp > 1:
        table["pipeline"] = {"stages": plan.pp}
    if plan.cp > 1:
        table["sequence_parallel_size"] = plan.cp
    if plan.ep > 1:
        sizes = {"autoep_size": plan.ep, "expert_tensor_parallel_size": plan.etp}
        table["expert_parallel"] = {"enabled": True, **sizes}
    checkpointing: dict[str, Any] = {}
    if plan.recompute == "full":
        checkpointing["number_checkpoints"] = run.layers
    if "activations" in offloads(plan.offload):
        checkpointing["cpu_checkpointing"] = True
    return table | ({"activation_checkpointing": checkpointing} if checkpointing else {})


def _named(optimizer: str) -> str:
    """DeepSpeed's own and torch's optimizers; what they lack is AdamW, and is stated as a difference."""
    return {"muon": "Muon", "sgd": "SGD", "adafactor": "Adafactor"}.get(optimizer, "AdamW")
