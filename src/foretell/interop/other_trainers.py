"""torchtune, litgpt, nanotron and MaxText: what their files say.

torchtune   recipes' YAML (0.6): batch_size of a GPU, gradient_accumulation_steps, FSDP over all GPUs
litgpt      its YAML (0.5): train.global_batch_size, train.micro_batch_size, devices x num_nodes
nanotron    its YAML (0.4): parallelism, tokens, model.model_config, optimizer
maxtext     base.yml and its overrides (2025): per_device_batch_size, ici_ and dcn_ degrees
"""

from collections.abc import Mapping
from math import prod

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import CHIP_KEYS, Keys, plan_words, read_back, world_size
from foretell.interop.launch import Known, Launch, Tool

TUNE_IGNORED = frozenset(
    """output_dir tokenizer.* checkpointer.* resume_from_checkpoint dataset.* dataset_val.* seed shuffle
    loss.* max_steps_per_epoch epochs clip_grad_norm optimizer.* lr_scheduler.* metric_logger.* log_*
    profiler.* device model.lora_* model.apply_lora* model.quantize_base model.use_dora optimizer_in_bwd
    device_map cudnn_* run_* save_* async_* enable_async_checkpointing m config model._component_ log_level
    custom_sharded_layers master_addr master_port""".split()
)
LIT_IGNORED = frozenset(
    """out_dir data.* eval.* optimizer.* logger_name seed tokenizer_dir resume checkpoint_dir
    train.save_interval train.log_interval train.epochs train.max_steps train.max_tokens train.max_norm
    train.min_lr train.lr_* train.tie_embeddings initial_checkpoint_dir access_token optimizer lora_alpha
    lora_dropout quantize train.max_additional_steps data m log.*""".split()
)
NANO_IGNORED = frozenset(
    """checkpoints.* data_stages* general.* logging.* lighteval.* profiler tokenizer.* optimizer.* tokens.*
    model.* parallelism.* s3_upload metrics_logging.* config_file""".split()
)
MAX_IGNORED = frozenset(
    """run_name base_output_directory dataset_* steps enable_checkpointing async_checkpointing
    checkpoint_period learning_rate* adam_* tokenizer_* vocab_size log_period profiler* upload_*
    reuse_example_batch enable_goodput* monitor_goodput skip_first_n_* save_config_to_gcs packing
    gcs_metrics hardware attention use_iota_embed scan_layers logits_dot_in_fp32 cosine_* warmup_* eval_*
    grain_* hf_* base_config override_model_config m config num_epoch enable_single_controller opt_type sa_*
    logits_* jax_cache_dir compile_topology* compiled_trainstep_file* max_logging* tensorboard* megablox
    sparse_matmul capacity_factor""".split()
)
SCHEDULES = {"1f1b": None, "afab": "gpipe"}


def read_torchtune(given: ArgumentTable, known: Known) -> Launch:
    """A recipe's YAML, or `tune run` with overrides."""
    keys = Keys(given, tool="torchtune")
    gpus = world_size(keys, known)
    tp = known.over("tp", keys.whole("tensor_parallel_dim") or 1)
    cp = known.over("cp", keys.whole("context_parallel_dim") or 1)
    dp = None if gpus is None else max(gpus // (tp * cp), 1)
    micro = known.over("micro_batch", keys.whole("batch_size") or 1)
    steps = keys.whole("gradient_accumulation_steps") or 1
    rank = keys.whole("model.lora_rank") or 0
    component = keys.text("model._component_") or ""
    kind = (keys.text("optimizer._component_") or "").lower()
    narrow = (keys.text("dtype") or "bf16").lower() == "bf16"
    single = gpus == 1 or "single_device" in " ".join(keys.words)
    values: dict[str, object] = {
        "tp": tp, "pp": 1, "dp": dp, "cp": cp if cp > 1 else None, "zero": 0 if single else 3,
        "micro_batch": micro, "lora": rank or None,
        "recompute": "full" if keys.flag("enable_activation_checkpointing") else "none",
        "offload": "activations" if keys.flag("enable_activation_offloading") else
                   "optimizer+weights" if keys.flag("fsdp_cpu_offload") else None,
        "optimizer": "adam8bit" if "8bit" in kind else None,
        "precision": "bf16" if narrow else "fp32",
        "framework": "torchtune-compiled" if keys.flag("compile") else "torchtune",
    }  # fmt: skip
    if narrow:
        values |= {"master": "none", "gradients": "bf16", "states": "bf16"}
    if keys.flag("model.quantize_base"):
        keys.doubt("quantize_base keeps the frozen weights in 4 bits: taken as bf16")
    seq_len = keys.whole("tokenizer.max_seq_len")
    batch = None if dp is None else micro * steps * dp
    name = component.rpartition(".")[2].removeprefix("lora_").removeprefix("qlora_")
    folder = (keys.text("checkpointer.checkpoint_dir") or "").rstrip("/").rpartition("/")[2]
    models = tuple(one for one in (folder, _dashed(name)) if one)
    sources = {
        "model": ("model._component_", "checkpointer.checkpoint_dir"), "gpus": CHIP_KEYS, "dp": CHIP_KEYS,
        "micro_batch": ("batch_size",), "global_batch": ("batch_size", "gradient_accumulation_steps"),
        "seq_len": ("tokenizer.max_seq_len",), "lora": ("model.lora_rank",), "precision": ("dtype",),
        "recompute": ("enable_activation_checkpointing",), "framework": ("compile",),
        "tp": ("tensor_parallel_dim",), "optimizer": ("optimizer._component_",),
    }  # fmt: skip
    return _launch(
        keys, given, "torchtune", models, (gpus, batch, seq_len), values, sources, TUNE_IGNORED
    )


def read_litgpt(given: ArgumentTable, known: Known) -> Launch:
    """`litgpt pretrain|finetune` and its YAML."""
    keys = Keys(given, tool="litgpt")
    devices = keys.whole("devices")
    nodes = keys.whole("num_nodes") or 1
    gpus = known.gpus or (devices * nodes if devices else world_size(keys, known))
    micro = known.over("micro_batch", keys.whole("train.micro_batch_size") or 4)
    told = keys.whole("train.global_batch_size")
    rank = keys.whole("lora_r") or 0
    precision = (keys.text("precision") or "bf16-mixed").lower()
    values: dict[str, object] = {
        "tp": 1, "pp": 1, "dp": gpus, "zero": 3 if gpus and gpus > 1 else 0, "micro_batch": micro,
        "lora": rank or None, "precision": "fp32" if precision.startswith("32") else
        "fp16" if precision.startswith("16") else "bf16",
        "framework": "litgpt",
    }  # fmt: skip
    if precision == "bf16-true":
        values |= {"master": "none", "gradients": "bf16", "states": "bf16"}
    seq_len = keys.whole("train.max_seq_length")
    models = tuple(one for one in [keys.text("model_name", "checkpoint_dir")] if one)
    sources = {
        "model": ("model_name", "checkpoint_dir"), "gpus": ("devices", "num_nodes"), "dp": ("devices",
        "num_nodes"),
        "micro_batch": ("train.micro_batch_size",), "global_batch": ("train.global_batch_size",),
        "seq_len": ("train.max_seq_length",), "precision": ("precision",), "zero": ("devices", "num_nodes"),
    }  # fmt: skip
    return _launch(
        keys, given, "litgpt", models, (gpus, told or 512, seq_len), values, sources, LIT_IGNORED
    )


def read_nanotron(given: ArgumentTable, known: Known) -> Launch:
    """nanotron's YAML: the model is described in it."""
    keys = Keys(given, tool="nanotron")
    degree = {name: keys.whole(f"parallelism.{name}") or 1 for name in ("dp", "tp", "pp")}
    cp = keys.whole("parallelism.context_parallel_size") or 1
    ep = keys.whole("parallelism.expert_parallel_size") or 1
    tp, pp = known.over("tp", degree["tp"]), known.over("pp", degree["pp"])
    dp = degree["dp"] if known.gpus is None else max(known.gpus // (tp * pp * cp), 1)
    micro = known.over("micro_batch", keys.whole("tokens.micro_batch_size") or 1)
    steps = keys.whole("tokens.batch_accumulation_per_replica") or 1
    engine = keys.choice(["parallelism.pp_engine"], {"1f1b": "1f1b", "afab": "gpipe"})
    mode = (keys.text("parallelism.tp_mode") or "ALL_REDUCE").upper()
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": 1 if pp > 1 else None, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": ep if ep > 1 else None, "zero": keys.whole("optimizer.zero_stage", low=0, high=1) or 0,
        "micro_batch": micro, "sp": mode == "REDUCE_SCATTER" if tp > 1 else None,
        "schedule": "gpipe" if engine == "gpipe" and pp > 1 else None,
        "tp_overlap": "on" if keys.flag("parallelism.tp_linear_async_communication") and tp > 1 and
        mode == "REDUCE_SCATTER" else None,
        "recompute": "full" if keys.flag("parallelism.recompute_layer") else "none",
        "gradients": "fp32" if keys.flag("optimizer.accumulate_grad_in_fp32") else "bf16",
        "precision": "bf16" if (keys.text("model.dtype") or "bfloat16") == "bfloat16" else "fp32",
        "framework": "nanotron",
    }  # fmt: skip
    batch, seq_len = micro * steps * dp, keys.whole("tokens.sequence_length")
    table = _llama(keys)
    gpus = dp * tp * pp * cp
    sources = {
        "model": ("model.model_config.hidden_size", "model.model_config.num_hidden_layers"),
        "gpus": ("parallelism.dp", "parallelism.tp", "parallelism.pp"), "dp": ("parallelism.dp",),
        "tp": ("parallelism.tp",), "pp": ("parallelism.pp",), "ep": ("parallelism.expert_parallel_size",),
        "micro_batch": ("tokens.micro_batch_size",), "seq_len": ("tokens.sequence_length",),
        "global_batch": ("tokens.micro_batch_size", "tokens.batch_accumulation_per_replica"),
        "zero": ("optimizer.zero_stage",), "sp": ("parallelism.tp_mode",),
        "schedule": ("parallelism.pp_engine",), "recompute": ("parallelism.recompute_layer",),
        "gradients": ("optimizer.accumulate_grad_in_fp32",), "precision": ("model.dtype",),
        "tp_overlap": ("parallelism.tp_linear_async_communication",),
    }  # fmt: skip
    return _launch(
        keys,
        given,
        "nanotron",
        (),
        (gpus, batch, seq_len),
        values,
        sources,
        NANO_IGNORED,
        table=table,
    )


def _llama(keys: Keys) -> dict[str, object] | None:
    """model.model_config as a Hugging Face config, whose names it has."""
    names = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "vocab_size", "max_position_embeddings", "rope_theta", "rms_norm_eps",
    )  # fmt: skip
    found: dict[str, object] = {}
    for name in names:
        value = keys.number(f"model.model_config.{name}", high=1e9)
        if value is not None:
            found[name] = int(value) if float(value).is_integer() else value
    tied = keys.flag("model.model_config.tie_word_embeddings")
    if not {"hidden_size", "num_hidden_layers", "num_attention_heads"} <= {*found}:
        return None
    if keys.flag("model.model_config.is_moe") or keys.has(
        "model.model_config.moe_config.num_experts"
    ):
        keys.doubt("experts of nanotron's model_config are not read: taken as dense")
    found |= {"model_type": "llama", "tie_word_embeddings": bool(tied), "hidden_act": "silu"}
    return found


AXES = ("data", "fsdp", "tensor", "pipeline", "context", "sequence", "expert")
"""Parallelisms of MaxText, each inside a slice (ici) and between slices (dcn)."""


def read_maxtext(given: ArgumentTable, known: Known) -> Launch:
    """`python -m MaxText.train base.yml key=value`."""
    keys = Keys(given, tool="maxtext")
    degrees, open_axis = dict[str, int](), ""
    for axis in AXES:
        inner = keys.whole(f"ici_{axis}_parallelism", low=-1)
        outer = keys.whole(f"dcn_{axis}_parallelism", low=-1)
        inner = inner if inner is not None else (-1 if axis == "fsdp" else 1)
        outer = outer if outer is not None else (-1 if axis == "data" else 1)
        slices = keys.whole("num_slices") or 1
        outer = slices if outer == -1 else outer
        open_axis = axis if inner == -1 else open_axis
        degrees[axis] = max(inner, 1) * outer
    gpus = world_size(keys, known) or keys.whole("num_devices")
    told = prod(degrees.values())
    if open_axis and gpus is None:
        keys.doubt(
            f"ici_{open_axis}_parallelism is what is left of the chips, which are not named: --gpus"
        )
    if open_axis and gpus:
        degrees[open_axis] *= max(gpus // told, 1)
    gpus = gpus or prod(degrees.values())
    tp, pp = degrees["tensor"], degrees["pipeline"]
    cp = degrees["context"] * degrees["sequence"]
    dp = max(gpus // (tp * pp * cp), 1)
    each = keys.number("per_device_batch_size", high=1e6) or 12.0
    accumulation = keys.whole("gradient_accumulation_steps") or 1
    batch = max(round(each * gpus * accumulation), 1)
    micro = max(batch // (dp * accumulation), 1)
    shared = degrees["fsdp"] * degrees["expert"]
    policy = (keys.text("remat_policy") or "full").lower()
    known_policies = {
        "none": "none",
        "full": "full",
        "minimal": "products",
        "minimal_flash": "products",
    }
    if policy not in known_policies:
        keys.doubt(f"remat_policy {policy[:40]} is taken as full")
    quantised = (keys.text("quantization") or "").lower()
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": degrees["expert"] if degrees["expert"] > 1 else None, "zero": 3 if shared > 1 else 0,
        "shard": shared if 1 < shared < dp else None, "micro_batch": micro,
        "recompute": known_policies.get(policy, "full"),
        "precision": "fp8" if quantised.startswith("fp8") else "bf16", "framework": "maxtext",
    }  # fmt: skip
    if quantised and not quantised.startswith("fp8"):
        keys.doubt(f"quantization {quantised[:40]} is not known here: taken as bf16")
    seq_len = keys.whole("max_target_length") or 2048
    models = tuple(one for one in [keys.text("model_name")] if one and one != "default")
    sources = {
        "model": ("model_name",), "gpus": CHIP_KEYS, "seq_len": ("max_target_length",),
        "global_batch": ("per_device_batch_size", "gradient_accumulation_steps"),
        "micro_batch": ("per_device_batch_size",),
        "tp": ("ici_tensor_parallelism", "dcn_tensor_parallelism"),
        "pp": ("ici_pipeline_parallelism", "dcn_pipeline_parallelism"),
        "dp": ("ici_fsdp_parallelism", "dcn_data_parallelism", "ici_data_parallelism"),
        "zero": ("ici_fsdp_parallelism", "dcn_fsdp_parallelism"), "recompute": ("remat_policy",),
        "precision": ("quantization",), "ep": ("ici_expert_parallelism",), "cp": ("ici_context_parallelism",),
    }  # fmt: skip
    return _launch(
        keys, given, "maxtext", models, (gpus, batch, seq_len), values, sources, MAX_IGNORED
    )


def _dashed(name: str) -> str:
    """`llama3_1_8b` as llama-3.1-8b."""
    return name.replace("llama3_1_", "llama-3.1-").replace("llama3_2_", "llama-3.2-").replace(
        "llama3_3_", "llama-3.3-").replace("llama3_", "llama-3-").replace("_", "-")  # fmt: skip


def _launch(
    keys: Keys,
    given: ArgumentTable,
    tool: Tool,
    models: tuple[str, ...],
    job: tuple[int | None, int | None, int | None],
    values: dict[str, object],
    sources: Mapping[str, tuple[str, ...]],
    ignored: frozenset[str],
    table: dict[str, object] | None = None,
) -> Launch:
    """The record of what was read."""
    gpus, batch, seq_len = job
    quiet, unknown = keys.rest(ignored)
    keys.raise_problems()
    name = next(iter(models), None) or ("as described" if table else None)
    told = {"model": name, "gpus": gpus, "global_batch": batch, "seq_len": seq_len}
    return Launch(
        tool=tool,
        models=models,
        table=table,
        gpus=gpus,
        global_batch=batch,
        seq_len=seq_len,
        plan=plan_words(values),
        values=read_back(keys, {**told, **values}, sources),
        accelerator=given.accelerator,
        notes=tuple(keys.notes),
        doubts=tuple(keys.doubts),
        ignored=quiet,
        unknown=unknown,
    )
