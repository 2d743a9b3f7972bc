"""DeepSpeed's JSON: batch sizes, `zero_optimization`, dtypes, AutoTP and AutoEP.

Keys as of docs/_pages/config-json.md. train_batch_size = micro-batch x accumulation x replicas; the third
of them follows where two are given. Sequence length and model are the script's own, not this file's. Where
neither fp16 nor bf16 is enabled weights stay as the script made them: 32 bits, products as PyTorch has them.
"""

import json
from collections.abc import Mapping
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys, world_size
from foretell.interop.launch import Known, Launch, ToolArguments, Training
from foretell.interop.launchers import LaunchJob, wrapped
from foretell.interop.megatron_write import job_name
from foretell.interop.tool_fields import launch_of, translate
from foretell.interop.tool_tables import ToolTable
from foretell.specs.plan import WIDE_PRECISIONS, Plan
from foretell.specs.plan_forms import offloads

BRAIN = ("bf16.enabled", "bfloat16.enabled", "bf16")
"""How bf16 is enabled, in the file or beside it."""


def read_deepspeed(given: ArgumentTable, known: Known, table: ToolTable) -> Launch:
    """What the file says; of a command, the file beside it."""
    told = translate(given, table)
    keys, words = told.keys, table.words
    tp = keys.whole("tensor_parallel.autotp_size", "tensor_parallel.tp_size") or 1
    pp = keys.whole("pipeline.stages") or 1
    cp = keys.whole("sequence_parallel_size") or 1
    ep = keys.whole("expert_parallel.autoep_size") or 1
    etp = keys.whole("expert_parallel.expert_tensor_parallel_size") or 1
    tp, pp, cp = known.over("tp", tp), known.over("pp", pp), known.over("cp", cp)
    micro = known.degrees.get("micro_batch") or keys.whole("train_micro_batch_size_per_gpu")
    batch, steps = keys.whole("train_batch_size"), keys.whole("gradient_accumulation_steps")
    chips = world_size(keys, known)
    replicas = None if chips is None else max(chips // (tp * pp * cp), 1)
    dp, micro, batch = _batches(keys, replicas, micro, batch, steps)
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp if cp > 1 else None, "ep": ep if ep > 1 else None,
        "etp": etp if ep > 1 and etp > 1 else None, "zero": _stage(keys), "micro_batch": micro,
        "sp": False if tp > 1 else None, "cp_mode": "ulysses" if cp > 1 else None,
    }  # fmt: skip
    values |= (
        _sharing(keys, None if dp is None else dp * cp)
        | _bucket(keys)
        | _precision(keys, given, words["autocast"])
        | dict(told.plan)
    )
    values["offload"] = _offload(keys)
    saved = any(key.startswith("activation_checkpointing") for key, _ in given.pairs)
    if saved and "recompute" not in values:
        keys.note("activation_checkpointing only says how: recompute=full says that layers are")
    keys.note("sequence length and model are the script's own: --seq-len and MODEL say them")
    keys.raise_problems()
    gpus = chips if chips is not None or dp is None else tp * pp * cp * dp
    job = {"gpus": gpus, "global_batch": batch}
    return launch_of(told, given, table, job, values, {**table.sources, **told.sources})


def _batches(
    keys: Keys, dp: int | None, micro: int | None, batch: int | None, steps: int | None
) -> tuple[int | None, int | None, int | None]:
    """Replicas, micro-batch and global batch: what two of the three sizes leave of the rest."""
    if dp is not None and micro and batch and steps and micro * steps * dp != batch:
        message = f"is not micro-batch {micro} x accumulation {steps} x replicas {dp}"
        keys.problem("train_batch_size", message, batch)
    if dp is None and micro and batch and steps:
        if batch % (micro * steps):
            message = f"is no multiple of micro-batch {micro} x accumulation {steps}"
            keys.problem("train_batch_size", message, batch)
        dp = max(batch // (micro * steps), 1)
    if micro is None and batch and dp:
        micro = max(batch // (dp * (steps or 1)), 1)
    if micro is None:
        keys.ask("the sequences of one GPU are not in the file: mbs in --plan says them")
        return dp, None, batch
    if batch is None and dp is not None:
        batch = micro * dp * (steps or 1)
    return dp, micro, batch


def _stage(keys: Keys) -> int:
    return keys.whole("zero_optimization.stage", low=0, high=3) or 0


def _sharing(keys: Keys, ranks: int | None) -> dict[str, object]:
    """Nearer sharings (MiCS, ZeRO++) than over all ranks."""
    near = keys.whole("zero_optimization.mics_shard_size", low=-1)
    second = keys.whole("zero_optimization.zero_hpz_partition_size")
    values: dict[str, object] = {
        "shard": near if near is not None and near > 0 and near != ranks else None,
        "secondary": second if second is not None and second > 1 else None,
    }
    return values


def _bucket(keys: Keys) -> dict[str, object]:
    """Millions of weights that are joined until a message is full: with stage 3 what is gathered ahead, below
    it what is reduced at once. Nothing stated, or auto, is as the plan has it."""
    stage = _stage(keys)
    names = ("stage3_prefetch_bucket_size", "prefetch_bucket_size")
    found = [keys.raw(f"zero_optimization.{name}") for name in names]
    found = found if stage == 3 else [keys.raw("zero_optimization.reduce_bucket_size")]
    for value in found:
        try:
            many = round(float(str(value)) / 1e6)
        except (ValueError, OverflowError):
            continue
        if stage and 1 <= many < 10**6:
            return {"bucket": many}
    return {}


def _precision(keys: Keys, given: ArgumentTable, words: Mapping[str, str]) -> dict[str, object]:
    """Dtype of the products, and of the weights where it is another."""
    half, brain = keys.flag("fp16.enabled", "fp16"), keys.flag(*BRAIN)
    if half or brain:
        return {"precision": "fp16" if half else "bf16"}
    if keys.flag("torch_autocast.enabled"):
        narrow = keys.choice(["torch_autocast.dtype"], words) or "bf16"
        keys.note("torch_autocast: weights in 32 bits are cast where GEMMs use them")
        return {"precision": narrow, "weights": "fp32", "master": "none"}
    left = any(key in ("fp16.enabled", *BRAIN) and value == "auto" for key, value in given.pairs)
    if left or given.words:
        where = "is left to the trainer" if left else "is enabled beside the command"
        keys.note(f"neither bf16 nor fp16 {where}: the chip's usual precision")
        return {}
    keys.note("neither bf16 nor fp16 is enabled: 32-bit training, GEMMs without TF32")
    return {"precision": "fp32"}


def _offload(keys: Keys) -> str | None:
    """What lives in the host: optimizer, weights, activations."""
    host = []
    for part, name in (("offload_optimizer", "optimizer"), ("offload_param", "weights")):
        device = keys.text(f"zero_optimization.{part}.device")
        if device == "nvme":
            keys.doubt(f"{part} on nvme is taken as in the host's memory")
        if device in ("cpu", "nvme"):
            host.append(name)
    if keys.flag("zero_optimization.cpu_offload") and "optimizer" not in host:
        host.append("optimizer")
    if keys.flag("activation_checkpointing.cpu_checkpointing"):
        host.insert(1 if "optimizer" in host else 0, "activations")
    return "+".join(host) or None


# ---- writing ------------------------------------------------------------------------------------


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
