"""Trainers on top of Hugging Face transformers: TrainingArguments, TRL, PEFT, accelerate, axolotl,
LLaMA-Factory.

They share what a step is: sequences of each GPU x accumulation x replicas, sharded by FSDP or DeepSpeed or
copied. What they do not share is in DIALECTS: names of keys and defaults. Names as of transformers 5
(training_args.py), trl 1.16 (trainer/*_config.py), accelerate 1 (its YAML), axolotl 0.12 and LLaMA-Factory
0.9.

A file of DeepSpeed's that is named is not opened; its stage is read from its name, as these tools name theirs
(zero3.json, ds_z3_config.json), and said.
"""

import re
from collections.abc import Callable, Mapping

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import CHIP_KEYS, Keys, node_size, plan_words, read_back, world_size
from foretell.interop.launch import Known, Launch, Tool
from foretell.interop.policy_step import STEP_VALUES
from foretell.records import dataclass
from foretell.specs.plan_words import CHOICES
from foretell.specs.post_training import usual_prompt

MODEL = (
    "model_name_or_path",
    "base_model",
    "model_name",
    "model_id",
    "model",
    "model_args.model_name_or_path",
)
MICRO = (
    "per_device_train_batch_size",
    "micro_batch_size",
    "train_batch_size_per_gpu",
    "per_gpu_train_batch_size",
)
STEPS = ("gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps")
LENGTH = (
    "max_length",
    "max_seq_length",
    "sequence_len",
    "cutoff_len",
    "block_size",
    "model_max_length",
)
RANK = ("lora_r", "lora_rank", "peft_config.r", "r", "lora.r")
TARGETS = ("lora_target_modules", "lora_target", "peft_config.target_modules", "target_modules")
STAGED = re.compile(r"(?:zero|z|stage)[-_]?([0-3])", re.IGNORECASE)
"""How names of DeepSpeed's files say their stage."""
OPTIMIZERS = {
    "adamw": "adam", "adamw_torch": "adam", "adamw_torch_fused": "adam", "adamw_apex_fused": "adam",
    "adamw_hf": "adam", "adamw_bnb_8bit": "adam8bit", "adamw_8bit": "adam8bit",
    "paged_adamw_8bit": "adam8bit",
    "paged_adamw": "adam", "paged_adamw_32bit": "adam", "adamw_torch_8bit": "adam8bit",
    "adafactor": "adafactor",
    "sgd": "sgd", "muon": "muon", "adam": "adam",
}  # fmt: skip
"""optim and our optimizers."""
QV = ("q_proj", "v_proj")
"""PEFT's own modules of a Llama-like model where none are named."""
MIXERS = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "out_proj")
"""Modules of the attention."""
IGNORED = frozenset(
    """learning_rate lr weight_decay adam_* max_grad_norm num_train_epochs max_steps num_epochs
    lr_scheduler* warmup_* logging_* log_* save_* eval_* output_dir overwrite_* report_to run_name seed
    data_seed dataset* datasets* dataloader_* data_files text_column preprocessing_* tokenizer*
    chat_template* template trust_remote_code push_to_hub hub_* wandb_* do_train do_eval load_best_*
    metric_for_* remove_unused_columns ddp_* local_rank plot_loss resume_* special_tokens* val_set_size
    test_datasets* strict save_total_limit early_stopping* lora_alpha lora_dropout lora_modules_to_save
    loraplus_* train_on_inputs group_by_length debug weight_* xformers* neftune_* model_revision model_type
    tokenizer_type is_* loss_type label_smoothing* dpo_* kto_* pref_* simpo_* compute_environment debug
    downcast_bf16 enable_cpu_affinity machine_rank main_* rdzv_backend same_network tpu_* use_cpu
    deepspeed_multinode_launcher deepspeed_hostfile zero3_* deepspeed_config.zero3_* fsdp_config.fsdp_*
    fsdp_config.activation_checkpointing fsdp_config.offload_params deepspeed_config.* config_file config m
    dpo_beta hf_use_auth_token gradient_checkpointing_kwargs* gradient_checkpointing_use_reentrant
    torch_empty_cache_steps completion_only_loss assistant_only_loss packing_strategy pad_token eos_token
    attn_implementation flash_attn* flash_attention* sdp_attention eager_attention bf16_full_eval do_predict
    predict_with_generate max_samples overwrite_cache stage finetuning_type adapter lora_target_linear
    use_peft peft_type task_type dtype torch_dtype low_cpu_mem_usage bnb_4bit_* use_bnb_nested_quant
    quantization_method double_quantization lora_fan_in_fan_out sample_packing pad_to_sequence_len packing
    peft_config.* lora_bias train_file validation_file dataset_dir create_reference_model
    sequence_parallel_mode fsdp_config.* accelerator_config.* logging_first_step tf32 ddp_timeout
    loss_watchdog_* flash_optimum unfrozen_parameters save_safetensors saves_per_epoch evals_per_epoch
    load_in_8bit lora_on_cpu ref_model enable_thinking save_only_model fsdp_version include_*
    full_determinism average_tokens_across_devices mixed_precision distributed_type num_processes
    num_machines gradient_clipping gpu_ids beta num_generations max_completion_length max_prompt_length
    vllm_* use_vllm temperature top_p top_k min_p num_iterations epsilon* scale_rewards reward_weights
    steps_per_generation generation_batch_size mask_truncated_completions trainer_type
    precompute_ref_log_probs reward_* benchmarks callbacks system_prompt cosine_* log_completions
    num_completions* e2b_* morph_* wandb_log_unique_prompts repetition_* shuffle_dataset sync_ref_model
    ref_model_*""".split()
)
"""Arguments that change no time, memory or cost that is told here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one of the trainers does where a file says nothing."""

    micro: int
    """Sequences of a GPU."""
    length: int | None
    """Tokens of a sequence; None: the model's own."""
    checkpoints: bool
    """Whether activations are recomputed."""
    brain: bool
    """Whether it trains in bf16."""


DIALECTS: Mapping[Tool, Dialect] = {
    "trainer": Dialect(micro=8, length=None, checkpoints=False, brain=False),
    "trl": Dialect(micro=8, length=1024, checkpoints=True, brain=True),
    "accelerate": Dialect(micro=8, length=None, checkpoints=False, brain=False),
    "axolotl": Dialect(micro=1, length=512, checkpoints=False, brain=True),
    "llamafactory": Dialect(micro=8, length=2048, checkpoints=True, brain=False),
}
"""Defaults: TrainingArguments; TRL's _BaseConfig and SFTConfig; axolotl's config schema; LLaMA-Factory's
hparams, which checkpoint unless disable_gradient_checkpointing says otherwise."""
SOURCES: Mapping[str, tuple[str, ...]] = {
    "model": MODEL, "gpus": CHIP_KEYS, "dp": CHIP_KEYS, "global_batch": (*MICRO, *STEPS), "seq_len": LENGTH,
    "micro_batch": MICRO,
    "zero": ("fsdp", "fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_reshard_after_forward",
             "deepspeed_config.zero_stage", "deepspeed", "zero_optimization.stage", "distributed_type",
             "fsdp_config.reshard_after_forward", "deepspeed_config.deepspeed_config_file"),
    "shard": ("fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy", "fsdp"),
    "reshard": ("fsdp_config.fsdp_reshard_after_forward", "fsdp_config.fsdp_sharding_strategy"),
    "recompute": ("gradient_checkpointing", "disable_gradient_checkpointing",
                  "fsdp_config.fsdp_activation_checkpointing", "fsdp_config.activation_checkpointing"),
    "precision": ("bf16", "fp16", "mixed_precision", "tf32", "dtype", "torch_dtype"),
    "weights": ("bf16", "fp16", "mixed_precision", "load_in_4bit", "quantization_bit"),
    "master": ("bf16", "mixed_precision"), "lora": RANK, "adapters": (*TARGETS, "lora_target_linear"),
    "optimizer": ("optim", "optimizer"),
    "offload": ("deepspeed_config.offload_optimizer_device", "deepspeed_config.offload_param_device",
                "fsdp_config.fsdp_offload_params", "deepspeed", "deepspeed_config.deepspeed_config_file"),
    "framework": ("torch_compile", "use_liger_kernel", "deepspeed", "deepspeed_config.zero_stage"),
    "cp": ("context_parallel_size", "sequence_parallel_degree", "parallelism_config.cp_size"),
    "tp": ("tensor_parallel_size", "parallelism_config.tp_size"),
    "algorithm": ("stage", "rl", "trainer_type"), "prompts": (*MICRO, *STEPS, "num_generations"),
    "samples": ("num_generations",), "isl": ("max_prompt_length", *LENGTH),
    "max_osl": ("max_completion_length",),
    "updates": ("num_iterations",), "placement": ("vllm_mode",), "reference": ("beta",),
    "rollout_plan": ("vllm_tensor_parallel_size", "vllm_gpu_memory_utilization", "use_vllm"),
}  # fmt: skip
"""The keys that each value is from."""


def reader(tool: Tool) -> Callable[[ArgumentTable, Known], Launch]:
    """The reader of one of the trainers."""

    def read(given: ArgumentTable, known: Known) -> Launch:
        return _read(given, known, tool)

    return read


def _read(given: ArgumentTable, known: Known, tool: Tool) -> Launch:
    keys = Keys(given, tool=tool)
    own = DIALECTS[tool]
    tp = known.over("tp", keys.whole("tensor_parallel_size", "parallelism_config.tp_size") or 1)
    cp = keys.whole(
        "context_parallel_size", "sequence_parallel_degree", "parallelism_config.cp_size"
    )
    cp = known.over("cp", cp or 1)
    gpus = world_size(keys, known)
    if gpus is not None and gpus % (tp * cp):
        keys.problem("num_processes", f"is no multiple of tp x cp = {tp * cp}", gpus)
    dp = None if gpus is None else max(gpus // (tp * cp), 1)
    told = keys.whole(*MICRO)
    if told is None and tool == "accelerate" and "micro_batch" not in known.degrees:
        keys.doubt("accelerate's file has no batch: mbs in --plan says a GPU's sequences")
    micro = known.over("micro_batch", told or own.micro)
    steps = keys.whole(*STEPS) or 1
    zero, engine, hybrid = _sharing(keys, dp)
    rank = _rank(keys)
    values: dict[str, object] = {
        "tp": tp, "pp": 1, "dp": dp, "cp": cp if cp > 1 else None, "zero": zero, "micro_batch": micro,
        "sp": False if tp > 1 else None, "reshard": _reshard(keys, zero),
        "recompute": "full" if _checkpoints(keys, own) else "none",
        "lora": rank or None, "adapters": _adapters(keys) if rank else None,
        "optimizer": _optimizer(keys), "offload": _offload(keys),
        "shard": _node_shard(keys, gpus, dp) if hybrid else None,
        **_precision(keys, own, frozen=bool(rank)), **_attention(keys),
    }  # fmt: skip
    values["framework"] = "deepspeed" if engine == "deepspeed" else _framework(keys)
    if engine == "deepspeed" and not str(values.get("weights")).startswith("nf4"):
        # Its own 16-bit engine: weights in 16 bits, a master copy and states in 32.
        for dtype in ("weights", "master", "gradients", "states"):
            values.pop(dtype, None)
    models = _names(keys.text(*MODEL))
    seq_len = keys.whole(*LENGTH) or own.length
    batch = None if dp is None else micro * steps * dp
    quiet, unknown = keys.rest(IGNORED)
    keys.raise_problems()
    name = next(iter(models), None)
    job: dict[str, int | str | None] = {
        "model": name,
        "gpus": gpus,
        "global_batch": batch,
        "seq_len": seq_len,
    }
    # Dtypes of adapters and their states are as PEFT makes them.
    own_values = {
        k: v for k, v in values.items() if not rank or k not in ("master", "gradients", "states")
    }
    post = _method(keys, job, _without_replicas(own_values), tool)
    step = {name: post[name] for name in STEP_VALUES if name in post}
    return Launch(
        tool=tool,
        models=models,
        gpus=gpus,
        global_batch=batch,
        seq_len=seq_len,
        plan=plan_words(values),
        values=read_back(keys, {**job, **values, **step}, SOURCES),
        accelerator=given.accelerator,
        post_training=post,
        notes=tuple(keys.notes),
        doubts=tuple(keys.doubts),
        ignored=quiet,
        unknown=unknown,
    )


def _node_shard(keys: Keys, gpus: int | None, dp: int | None) -> int | None:
    """Ranks that a hybrid strategy of FSDP shares over: those of a node; None where all are on one."""
    each = node_size(keys, gpus)
    if each is None or dp is None or dp % each:
        keys.doubt("hybrid sharding shares over the GPUs of a node: shard= in --plan says how many")
        return None
    return each if 1 < each < dp else None


def _sharing(keys: Keys, dp: int | None) -> tuple[int, str, bool]:
    """(ZeRO's stage, what shards, whether within nodes alone): FSDP's, DeepSpeed's, or copies."""
    kind = (keys.text("distributed_type") or "").upper()
    told = keys.whole("deepspeed_config.zero_stage", "zero_optimization.stage", low=0, high=3)
    file = keys.text("deepspeed", "deepspeed_config.deepspeed_config_file", "deepspeed_config")
    launched = keys.text("config_file") or ""
    if not file and not kind and launched:
        kind, own = _by_name(keys, launched)
        file = own or file
    if told is not None or kind == "DEEPSPEED" or file:
        if told is None and file:
            match = STAGED.search(file.rpartition("/")[2])
            if match is None:
                keys.doubt(f"the stage of {file[:60]} is not known: the file is not opened")
            else:
                keys.note(f"ZeRO stage {match[1]} by the name of {file[:60]}, which is not opened")
            told = int(match[1]) if match else 0
        return (told if told is not None else 2), "deepspeed", False
    flags = keys.raw("fsdp")
    words = (" ".join(map(str, flags)) if isinstance(flags, list) else str(flags or "")).lower()
    on = kind == "FSDP" or (bool(words) and words not in ("false", "none"))
    strategy = (
        keys.text("fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy") or ""
    ).upper()
    if not on and not strategy:
        return 0, "copies", False
    named = f"{strategy} {words.upper()}"
    if "NO_SHARD" in named:
        return 0, "copies", False
    numbered = {"4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}.get(strategy, "")
    stage = 2 if "GRAD_OP" in named or "ZERO2" in named + numbered or strategy == "2" else 3
    return stage, "fsdp", "HYBRID" in named + numbered


def _by_name(keys: Keys, file: str) -> tuple[str, str | None]:
    """(distributed_type, DeepSpeed's file) by the name of accelerate's own file, as examples are named."""
    name = file.rpartition("/")[2].lower()
    if STAGED.search(name):
        return "DEEPSPEED", file
    if "fsdp" in name:
        keys.note(f"FSDP by the name of {file[:60]}, which is not opened")
        return "FSDP", None
    if "multi" in name or "ddp" in name or "single" in name:
        keys.note(f"copies (DDP) by the name of {file[:60]}, which is not opened")
        return "MULTI_GPU", None
    keys.doubt(f"config_file {file[:60]} is a file of its own, which is not opened")
    return "", None


def _reshard(keys: Keys, zero: int) -> bool | None:
    names = ("fsdp_config.fsdp_reshard_after_forward", "fsdp_config.reshard_after_forward")
    told = str(keys.raw(*names)).lower()
    return False if told == "false" and zero == 3 else None


def _checkpoints(keys: Keys, own: Dialect) -> bool:
    """Whether whole layers are recomputed."""
    if keys.flag("disable_gradient_checkpointing"):
        return False
    told = keys.raw("gradient_checkpointing")
    if isinstance(told, str) and told.lower() in ("unsloth", "offload", "true"):
        if told.lower() == "offload":
            keys.doubt(
                "gradient_checkpointing: offload keeps inputs of layers in the host's memory"
            )
        return True
    flag = keys.flag("gradient_checkpointing")
    inside = keys.flag(
        "fsdp_config.fsdp_activation_checkpointing", "fsdp_config.activation_checkpointing"
    )
    if flag is None and inside is None:
        return own.checkpoints
    return bool(flag) or bool(inside)


def _rank(keys: Keys) -> int:
    """Rank of the adapters; 0 where all weights are trained."""
    kind = (keys.text("adapter", "finetuning_type") or "").lower()
    used = keys.flag("use_peft")
    rank = keys.whole(*RANK)
    if kind == "freeze":
        keys.doubt("finetuning_type freeze trains some layers alone: taken as all of them")
    if kind in ("full", "freeze") or (used is False and not kind):
        return 0
    if kind in ("lora", "qlora", "dora") or used or rank:
        return rank or {"llamafactory": 8, "trl": 16}.get(keys.tool, 8)
    return 0


def _adapters(keys: Keys) -> str | None:
    """Which maps have an adapter."""
    if keys.flag("lora_target_linear"):
        return "all"
    told = keys.raw(*TARGETS)
    names = told if isinstance(told, list) else str(told or "").replace(",", " ").split()
    plain = {str(name).strip().lower() for name in names}
    if not plain:
        return "all" if keys.tool == "llamafactory" else "qv"
    if plain & {"all", "all-linear"} or plain - set(MIXERS):
        return "all"
    if plain == set(QV):
        return "qv"
    return "attention" if plain & {"o_proj", "out_proj"} else "qkv"


def _optimizer(keys: Keys) -> str | None:
    told = (keys.text("optim", "optimizer") or "adamw_torch").lower()
    if told not in OPTIMIZERS:
        keys.doubt(f"optimizer {told[:40]} is not known here: taken as adam")
    kind = OPTIMIZERS.get(told, "adam")
    return None if kind == "adam" else kind


def _offload(keys: Keys) -> str | None:
    host = []
    for part, name in (("optimizer", "optimizer"), ("param", "weights")):
        device = keys.text(f"deepspeed_config.offload_{part}_device")
        if device and device.lower() == "nvme":
            keys.doubt(f"offload of the {name} to nvme is taken as to the host's memory")
        host += [name] if device and device.lower() in ("cpu", "nvme") else []
    if keys.flag("fsdp_config.fsdp_offload_params", "fsdp_config.offload_params"):
        host = ["optimizer", "weights"]
    file = keys.text("deepspeed", "deepspeed_config.deepspeed_config_file", "config_file") or ""
    if not host and "offload" in file.lower() and not keys.has("deepspeed_config.zero_stage"):
        host = (
            ["optimizer", "weights"] if re.search(r"3", file.rpartition("/")[2]) else ["optimizer"]
        )
        keys.note(
            f"{' and '.join(host)} on the host by the name of {file[:60]}, which is not opened"
        )
    return "+".join(host) or None


def _precision(keys: Keys, own: Dialect, *, frozen: bool) -> dict[str, object]:
    """Dtypes: mixed precision over 32-bit weights, weights loaded in 16 bits, or in 4."""
    mixed = (keys.text("mixed_precision") or "").lower()
    raw = keys.raw("bf16")
    auto = isinstance(raw, str) and raw.lower() in ("auto", "full")
    half, brain = keys.flag("fp16"), True if auto else keys.flag("bf16")
    name = (
        "fp16" if half or mixed == "fp16" else "bf16" if brain or mixed in ("bf16", "fp8") else None
    )
    if name is None and brain is None and half is None and not mixed and own.brain:
        name = "bf16"
    if mixed == "fp8":
        keys.doubt("mixed_precision fp8 needs its recipe: taken as bf16")
    loaded = (keys.text("dtype", "torch_dtype", "model_dtype") or "").lower()
    four = keys.flag("load_in_4bit") or keys.whole("quantization_bit") == 4 or (
        (keys.text("adapter") or "").lower() == "qlora"
    )  # fmt: skip
    if four:
        if "nf4" not in CHOICES["weights"]:
            keys.doubt("weights in 4 bits are not known here: taken as bf16")
            return {"precision": name or "bf16"}
        twice = keys.flag(
            "bnb_4bit_use_double_quant", "double_quantization", "use_bnb_nested_quant"
        )
        stored = "nf4-dq" if twice else "nf4"
        return {"precision": name or "bf16", "weights": stored}
    if keys.flag("load_in_8bit") or keys.whole("quantization_bit") == 8:
        keys.doubt("weights in 8 bits are not known here: taken as 16")
    narrow = loaded in ("bfloat16", "bf16", "float16", "fp16") or keys.tool in (
        "axolotl",
        "llamafactory",
    )
    if name is None:
        keys.note("neither bf16 nor fp16: 32-bit training")
        return {"precision": "fp32"}
    if narrow or frozen:
        return {
            "precision": name,
            "weights": name,
            "master": "none",
            "gradients": name,
            "states": "bf16",
        }
    return {"precision": name, "weights": "fp32", "master": "none"}


def _attention(keys: Keys) -> dict[str, object]:
    """Attention kernels where a file names them."""
    told = (keys.text("attn_implementation", "flash_attn") or "").lower()
    if told == "eager" or keys.flag("eager_attention"):
        return {"flash": False}
    two = told in ("flash_attention_2", "fa2") or keys.flag("flash_attention") is True
    three = told in ("flash_attention_3", "fa3")
    return {"attention": "fa3" if three else "fa2"} if two or three else {}


def _framework(keys: Keys) -> str:
    compiled = keys.flag("torch_compile")
    if keys.flag("use_liger_kernel", "liger_kernel", "enable_liger_kernel"):
        return "liger"
    if keys.flag("use_unsloth"):
        return "unsloth"
    return "transformers-compiled" if compiled else "transformers"


def _names(model: str | None) -> tuple[str, ...]:
    """The model's name, and without what says that its weights are stored in 4 bits."""
    return () if not model else tuple(dict.fromkeys((model, STORED.sub("", model))))


STORED = re.compile(r"(?:-unsloth)?-bnb-4bit$|-(?:GPTQ|AWQ)(?:-Int[48])?$", re.IGNORECASE)
"""How names end of repositories with quantised weights."""


def _without_replicas(values: Mapping[str, object]) -> str:
    """The plan's words but dp, which follows from the chips."""
    return plan_words({name: value for name, value in values.items() if name != "dp"})


METHODS = {
    "dpo": "dpo",
    "kto": "dpo",
    "orpo": "dpo",
    "grpo": "grpo",
    "rloo": "grpo",
    "ppo": "ppo",
    "reward": "reward",
}
"""Methods of these trainers, and the algorithm whose step is theirs."""


LOOPS = {"trl": "trl", "trainer": "transformers", "axolotl": "axolotl", "llamafactory": "llama-factory",
         "unsloth": "unsloth"}  # fmt: skip
"""Tools, and the words of their loops."""


def _method(
    keys: Keys, launch: Mapping[str, int | str | None], plan: str, tool: str
) -> dict[str, object]:
    """Arguments of a post-training question: algorithm, sequences of a step, the trainer's plan."""
    told = (keys.text("stage", "rl", "trainer_type") or "").lower()
    run = keys.given.text.lower()
    kind = next(
        (one for one in METHODS if one in told or re.search(rf"[\s/]{one}(?:\.py)?\s", run)), ""
    )
    if not kind and keys.has("num_generations", "max_completion_length"):
        kind = "grpo"  # a GRPOConfig's own
    found: dict[str, object] = {
        "algorithm": METHODS.get(kind, "sft"),
        "model": launch["model"],
        "gpus": launch["gpus"],
        "prompts": launch["global_batch"],
        "isl": launch["seq_len"],
        "plan": plan,
        "framework": LOOPS.get(tool, "generic"),
    }
    if found["algorithm"] in ("grpo", "ppo"):
        found |= _generation(keys, launch["global_batch"])
    if found["algorithm"] == "dpo" and keys.flag("precompute_ref_log_probs"):
        found["reference"] = "cached"
    return {name: value for name, value in found.items() if value is not None}


def _generation(keys: Keys, answers: object) -> dict[str, object]:
    """What TRL's GRPO adds: a batch counts answers, several to each prompt (GRPOConfig, trl 1.16)."""
    samples = keys.whole("num_generations") or 8
    fraction = keys.number("vllm_gpu_memory_utilization", high=1.0) or 0.3
    tp = keys.whole("vllm_tensor_parallel_size") or 1
    prompt = keys.whole("max_prompt_length") or 512
    return {
        "prompts": max(int(str(answers)) // samples, 1) if answers else None,
        "samples": samples,
        "isl": usual_prompt(prompt),
        "max_osl": keys.whole("max_completion_length") or 256,
        "updates": keys.whole("num_iterations") or 1,
        "rollout_plan": f"tp{tp} memory_fraction={fraction:g}" if keys.flag("use_vllm") else None,
        "reference": "pass" if keys.number("beta") else "none",
        "placement": "split" if (keys.text("vllm_mode") or "") == "server" else "colocated",
    }
