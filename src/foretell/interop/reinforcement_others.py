"""Reinforcement learning: slime's flags, SkyRL's overrides, AReaL's YAML, prime-rl's TOML.

slime      train.py and train_async.py of THUDM/slime (0.2): Megatron-LM's flags, --rollout-batch-size,
           --n-samples-per-prompt, --rollout-num-gpus-per-engine, --colocate
skyrl      skyrl_train.entrypoints (0.2): trainer.*, generator.*, trainer.placement.*
areal      AReaL (0.5): allocation_mode (sglang:d4p1t1+d4p1t1 is the engine's pool and the trainer's),
           gconfig.*, actor.*, train_dataset.batch_size, rollout.max_head_offpolicyness
prime-rl   rl.toml (0.3): [model], [orchestrator], [trainer], [inference]; a batch counts answers
"""

import re

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys
from foretell.interop.launch import Known, Launch
from foretell.interop.policy_step import PolicyStep, launch_of_step

SLIME_IGNORED = frozenset(
    """ref_load load save save_interval prompt_data input_key label_key apply_chat_template rollout_shuffle
    rm_type num_rollout rollout_temperature rollout_top_* balance_data eval_* n_samples_per_eval_prompt
    kl_* entropy_coef eps_clip* lr* weight_decay adam_* optimizer use_wandb wandb_* attention_*
    hidden_dropout accumulate_allreduce_grads_in_fp32 address runtime_env_json recompute_method
    recompute_num_layers num_gpus disable_usage_stats dashboard_* head node_ip_address no_rope_fusion
    num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups group_query_attention
    swiglu disable_bias_linear normalization norm_epsilon rotary_base vocab_size kv_channels qk_layernorm
    use_rotary_position_embeddings untie_embeddings_and_output_weights moe_* make_vocab_size_divisible_by
    reward_key custom_* over_sampling_* dynamic_sampling_* partial_rollout use_tis use_fault_tolerance
    rollout_seed seed metadata_key tool_key rollout_function_path sglang_* ref_ckpt_step num_epoch
    expert_tensor_parallel_size update_weight_* optimizer_cpu_offload overlap_cpu_optimizer_d2h_h2d
    use_precision_aware_optimizer calculate_per_token_loss use_rollout_logprobs train_backend debug_*
    rollout_stop* group_rm rewards_normalization buffer_filter_path data_pad_size_multiplier""".split()
)
SKYRL_IGNORED = frozenset(
    "data.* trainer.* generator.* environment.* isolated extra with m env_file project".split()
)
AREAL_IGNORED = frozenset(
    """experiment_name trial_name seed enable_offload total_train_epochs tokenizer_path cluster.* scheduler.*
    rollout.* gconfig.* actor.* ref.* sglang.* vllm.* train_dataset.* valid_dataset.* saver.* recover.*
    evaluator.* stats_logger.* perf_tracer.* checkpointer.* launcher.* async_training critic.* config workflow
    total_train_steps eval_gconfig.* swanlab.* wandb.*""".split()
)
PRIME_IGNORED = frozenset(
    """ckpt* output_dir wandb* log* bench clean max_steps model.* orchestrator.* trainer.* inference.*
    weight_broadcast.* env.* dump_config slurm.* deployment.*""".split()
)
_POOL = re.compile(r"(?:[a-z]+[:.])?\(?(?:attn:)?((?:[dptce]\d+)+)", re.IGNORECASE)
_DEGREE = re.compile(r"([dptce])(\d+)", re.IGNORECASE)


def read_slime(given: ArgumentTable, known: Known) -> Launch:
    """slime's train.py, Megatron-LM's flags beside its own."""
    keys = Keys(given, tool="slime")
    nodes, each = keys.whole("actor_num_nodes") or 1, keys.whole("actor_num_gpus_per_node") or 8
    gpus = known.gpus or nodes * each
    shared = bool(keys.flag("colocate"))
    prompts = keys.whole("rollout_batch_size") or 32
    samples = keys.whole("n_samples_per_prompt") or 1
    per_step = keys.whole("num_steps_per_rollout")
    mini = keys.whole("global_batch_size") or prompts * samples // (per_step or 1)
    dynamic = keys.flag("use_dynamic_batch_size")
    tokens = keys.whole("max_tokens_per_gpu")
    step = PolicyStep(
        model=_folder(keys.text("hf_checkpoint")),
        gpus=gpus,
        prompts=prompts,
        samples=samples,
        mini=mini,
        prompt_len=keys.whole("rollout_max_prompt_len") or 512,
        answer_len=keys.whole("rollout_max_response_len") or 1024,
        algorithm=(keys.text("advantage_estimator") or "grpo").lower(),
        rollout_tp=keys.whole("rollout_num_gpus_per_engine") or 1,
        fraction=keys.number("sglang_mem_fraction_static", high=1.0),
        micro_tokens=tokens if dynamic else None,
        colocated=shared,
        rollout_gpus=keys.whole("rollout_num_gpus"),
        staleness=1.0 if "train_async" in given.text else None,
        engine="sglang",
        reference=bool(keys.flag("use_kl_loss")) or bool(keys.number("kl_coef")),
    )
    long = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
    }
    fsdp = (keys.text("train_backend") or "megatron").lower() == "fsdp"
    granularity = keys.text("recompute_granularity")
    more: dict[str, object] = {
        "micro_batch": keys.whole("micro_batch_size") or 1,
        "recompute": granularity or ("full" if keys.flag("gradient_checkpointing") else "none"),
        "zero": 3 if fsdp else 1,
        "framework": "fsdp2" if fsdp else "megatron-core",
        "sp": keys.flag("sequence_parallel"),
        "offload": "optimizer" if keys.flag("optimizer_cpu_offload") else None,
    }
    sources = {
        "model": ("hf_checkpoint",), "gpus": ("actor_num_nodes", "actor_num_gpus_per_node"),
        "dp": ("actor_num_nodes", "actor_num_gpus_per_node"), "global_batch": ("global_batch_size",),
        "prompts": ("rollout_batch_size",), "samples": ("n_samples_per_prompt",),
        "isl": ("rollout_max_prompt_len",), "max_osl": ("rollout_max_response_len",),
        "seq_len": ("rollout_max_response_len",),
        "updates": ("rollout_batch_size", "global_batch_size", "num_steps_per_rollout"),
        "rollout_plan": ("rollout_num_gpus_per_engine", "sglang_mem_fraction_static"),
        "rollout_gpus": ("rollout_num_gpus",), "placement": ("colocate",),
        "algorithm": ("advantage_estimator",), "reference": ("use_kl_loss", "kl_coef"),
        "micro_tokens": ("max_tokens_per_gpu",),
        "micro_batch": ("micro_batch_size",), "recompute": ("recompute_granularity",),
        "sp": ("sequence_parallel",), **{name: (key,) for name, key in long.items()},
    }  # fmt: skip
    degree = {name: keys.whole(key) for name, key in long.items()}
    return launch_of_step(keys, given, known, "slime", step, degree, more, sources, SLIME_IGNORED)


def read_skyrl(given: ArgumentTable, known: Known) -> Launch:
    """`python -m skyrl_train.entrypoints.main_base` and its overrides."""
    keys = Keys(given, tool="skyrl")
    place, engine = "trainer.placement", "generator"
    each = keys.whole(f"{place}.policy_num_gpus_per_node") or 4
    gpus = known.gpus or each * (keys.whole(f"{place}.policy_num_nodes") or 1)
    samples = keys.whole(f"{engine}.n_samples_per_prompt") or 5
    prompts = keys.whole("trainer.train_batch_size") or 1024
    shared = keys.flag(f"{place}.colocate_all") is not False
    tp = keys.whole(f"{engine}.inference_engine_tensor_parallel_size") or 1
    strategy = (keys.text("trainer.strategy") or "fsdp2").lower()
    mine = "trainer.policy.megatron_config"
    megatron = strategy == "megatron"
    ahead = "fully_async" in given.text or "async_trainer" in given.text
    step = PolicyStep(
        model=keys.text("trainer.policy.model.path"),
        gpus=gpus,
        prompts=prompts,
        samples=samples,
        mini=(keys.whole("trainer.policy_mini_batch_size") or 256) * samples,
        prompt_len=keys.whole("trainer.max_prompt_length") or 512,
        answer_len=keys.whole(f"{engine}.sampling_params.max_generate_length") or 1024,
        algorithm=(keys.text("trainer.algorithm.advantage_estimator") or "grpo").lower(),
        rollout_tp=tp,
        fraction=keys.number(f"{engine}.gpu_memory_utilization", high=1.0) or 0.8,
        micro_tokens=None,
        colocated=shared,
        rollout_gpus=None if shared else (keys.whole(f"{engine}.num_inference_engines") or 1) * tp,
        staleness=1.0 if ahead else None,
        engine=(keys.text(f"{engine}.backend") or "vllm").lower(),
        turns=keys.whole(f"{engine}.max_turns") or 1,
        reference=keys.flag("trainer.algorithm.use_kl_loss") is not False,
    )
    long = {
        "tp": f"{mine}.tensor_model_parallel_size",
        "pp": f"{mine}.pipeline_model_parallel_size",
        "cp": f"{mine}.context_parallel_size",
        "ep": f"{mine}.expert_model_parallel_size",
    }
    degree = {name: keys.whole(key) if megatron else None for name, key in long.items()}
    if not megatron:
        degree["cp"] = keys.whole("trainer.policy.sequence_parallel_size")
    more: dict[str, object] = {
        "micro_batch": keys.whole("trainer.micro_train_batch_size_per_gpu") or 1,
        "recompute": "none" if keys.flag("trainer.gradient_checkpointing") is False else "full",
        "zero": 1 if megatron else 3,
        "framework": "megatron-core" if megatron else "fsdp2" if strategy == "fsdp2" else "fsdp",
        "cp_mode": "ulysses" if not megatron and (degree["cp"] or 1) > 1 else None,
        "lora": keys.whole("trainer.policy.model.lora.rank", low=0) or None,
    }
    sources = {
        "model": ("trainer.policy.model.path",), "gpus": (f"{place}.policy_num_gpus_per_node",),
        "dp": (f"{place}.policy_num_gpus_per_node",), "prompts": ("trainer.train_batch_size",),
        "global_batch": ("trainer.policy_mini_batch_size", f"{engine}.n_samples_per_prompt"),
        "samples": (f"{engine}.n_samples_per_prompt",), "isl": ("trainer.max_prompt_length",),
        "max_osl": (f"{engine}.sampling_params.max_generate_length",),
        "seq_len": ("trainer.max_prompt_length", f"{engine}.sampling_params.max_generate_length"),
        "updates": ("trainer.train_batch_size", "trainer.policy_mini_batch_size"),
        "rollout_plan": (f"{engine}.inference_engine_tensor_parallel_size",
                         f"{engine}.gpu_memory_utilization"),
        "rollout_gpus": (f"{engine}.num_inference_engines",), "placement": (f"{place}.colocate_all",),
        "algorithm": ("trainer.algorithm.advantage_estimator",),
        "reference": ("trainer.algorithm.use_kl_loss",), "engine": (f"{engine}.backend",),
        "micro_batch": ("trainer.micro_train_batch_size_per_gpu",), "turns": (f"{engine}.max_turns",),
        "framework": ("trainer.strategy",), "zero": ("trainer.strategy",),
    }  # fmt: skip
    return launch_of_step(keys, given, known, "skyrl", step, degree, more, sources, SKYRL_IGNORED)


def read_areal(given: ArgumentTable, known: Known) -> Launch:
    """AReaL's YAML: two pools by allocation_mode, generation ahead of the trainer by its staleness."""
    keys = Keys(given, tool="areal")
    mode = keys.text("allocation_mode") or ""
    pools = [dict(_degrees_of(one)) for one in re.split(r"[+|]", mode) if _POOL.search(one)]
    engine, trainer = (pools[0], pools[-1]) if pools else ({}, {})
    if not pools:
        keys.doubt("allocation_mode, which says how chips are shared out, is not understood")
    shared = len(pools) < 2 or "|" in mode
    each = keys.whole("cluster.n_gpus_per_node") or 8
    every = known.gpus or each * (keys.whole("cluster.n_nodes") or 1)
    pool = _chips(engine) if not shared else None
    gpus = _chips(trainer) if pools and known.gpus is None else every - (pool or 0)
    samples = keys.whole("gconfig.n_samples") or 1
    prompts = keys.whole("train_dataset.batch_size") or 32
    parts = keys.whole("actor.ppo_n_minibatches") or 4
    ahead = keys.whole("rollout.max_head_offpolicyness", low=0)
    name = "sglang" if mode.startswith("sglang") else "vllm"
    fraction = "sglang.mem_fraction_static" if name == "sglang" else "vllm.gpu_memory_utilization"
    step = PolicyStep(
        model=keys.text("actor.path"),
        gpus=max(gpus, 1),
        prompts=prompts,
        samples=samples,
        mini=max(prompts * samples // parts, 1),
        prompt_len=keys.whole("train_dataset.max_length") or 1024,
        answer_len=keys.whole("gconfig.max_new_tokens") or 1024,
        algorithm="ppo" if keys.has("critic.path") else "grpo",
        rollout_tp=engine.get("t", 1),
        fraction=keys.number(fraction, high=1.0),
        micro_tokens=keys.whole("actor.mb_spec.max_tokens_per_mb"),
        colocated=shared,
        rollout_gpus=pool,
        staleness=float(ahead) if ahead else None,
        engine=name,
        reference=keys.has("ref.path") and keys.number("actor.kl_ctl") != 0.0,
    )
    degree = {
        name: trainer.get(mark)
        for name, mark in (("tp", "t"), ("pp", "p"), ("cp", "c"), ("ep", "e"))
    }
    megatron = "megatron" in mode or (trainer.get("p", 1) > 1)
    more: dict[str, object] = {
        "micro_batch": 1,
        "recompute": "full" if keys.flag("actor.gradient_checkpointing") is not False else "none",
        "zero": 1 if megatron else 3,
        "framework": "megatron-core" if megatron else "fsdp2",
    }
    split = ("allocation_mode",)
    sources = {
        "model": ("actor.path",), "gpus": split, "dp": split, "tp": split, "pp": split,
        "global_batch": ("train_dataset.batch_size", "gconfig.n_samples", "actor.ppo_n_minibatches"),
        "prompts": ("train_dataset.batch_size",), "samples": ("gconfig.n_samples",),
        "isl": ("train_dataset.max_length",), "max_osl": ("gconfig.max_new_tokens",),
        "seq_len": ("train_dataset.max_length", "gconfig.max_new_tokens"),
        "updates": ("actor.ppo_n_minibatches",), "rollout_plan": (*split, fraction), "rollout_gpus": split,
        "placement": split, "reference": ("actor.kl_ctl", "ref.path"),
        "staleness": ("rollout.max_head_offpolicyness",), "engine": split,
        "micro_tokens": ("actor.mb_spec.max_tokens_per_mb",),
        "recompute": ("actor.gradient_checkpointing",), "framework": split, "zero": split,
    }  # fmt: skip
    return launch_of_step(keys, given, known, "areal", step, degree, more, sources, AREAL_IGNORED)


def read_prime(given: ArgumentTable, known: Known) -> Launch:
    """prime-rl's rl.toml: trainer and engine apart, generation ahead by async_level."""
    keys = Keys(given, tool="prime-rl")
    engine_gpus = _many(keys, "inference_gpu_ids", "deployment.num_infer_gpus")
    trainer_gpus = _many(keys, "trainer_gpu_ids", "deployment.num_train_gpus")
    tp = keys.whole("inference.parallel.tp") or 1
    pool = engine_gpus or (keys.whole("inference.parallel.dp") or 1) * tp
    samples = keys.whole("orchestrator.rollouts_per_example") or 1
    answers = keys.whole("orchestrator.batch_size") or 128
    length = keys.whole("orchestrator.seq_len", "seq_len", "trainer.model.seq_len") or 2048
    longest = keys.whole("orchestrator.sampling.max_tokens") or length
    level = keys.whole(
        "max_async_level", "orchestrator.max_async_level", "orchestrator.async_level", low=0
    )
    step = PolicyStep(
        model=keys.text("model.name", "trainer.model.name", "orchestrator.model.name"),
        gpus=known.gpus or trainer_gpus or 1,
        prompts=max(answers // samples, 1),
        samples=samples,
        mini=answers,
        prompt_len=max(length - longest, 1) if longest < length else min(length, 512),
        answer_len=longest,
        algorithm="grpo",
        rollout_tp=tp,
        fraction=keys.number("inference.gpu_memory_utilization", high=1.0) or 0.9,
        micro_tokens=length,
        colocated=False,
        rollout_gpus=pool,
        staleness=float(1 if level is None else level) or None,
        engine="vllm",
        steps=keys.whole("max_steps", "trainer.max_steps"),
        reference=False,
    )
    degree = {
        "tp": keys.whole("trainer.model.tp"),
        "cp": keys.whole("trainer.model.cp"),
        "ep": keys.whole("trainer.model.ep"),
    }
    saved = keys.has("trainer.model.ac", "trainer.model.ac.freq", "trainer.model.ac.mode")
    more: dict[str, object] = {
        "micro_batch": 1,
        "recompute": "full" if saved else "none",
        "zero": 3,
        "framework": "fsdp2",
        "lora": keys.whole("trainer.model.lora.rank", "trainer.model.experimental.lora.rank")
        or None,
    }
    sources = {
        "model": ("model.name", "trainer.model.name"),
        "gpus": ("trainer_gpu_ids", "deployment.num_train_gpus"),
        "dp": ("trainer_gpu_ids", "deployment.num_train_gpus"), "global_batch": ("orchestrator.batch_size",),
        "prompts": ("orchestrator.batch_size", "orchestrator.rollouts_per_example"),
        "samples": ("orchestrator.rollouts_per_example",), "max_osl": ("orchestrator.sampling.max_tokens",),
        "isl": ("orchestrator.seq_len",), "seq_len": ("orchestrator.seq_len",),
        "rollout_plan": ("inference.parallel.tp", "inference.gpu_memory_utilization"),
        "rollout_gpus": ("inference_gpu_ids", "deployment.num_infer_gpus", "inference.parallel.dp"),
        "staleness": ("max_async_level", "orchestrator.async_level"), "steps": ("max_steps",),
        "micro_tokens": ("orchestrator.seq_len",),
    }  # fmt: skip
    return launch_of_step(
        keys, given, known, "prime-rl", step, degree, more, sources, PRIME_IGNORED
    )


def _degrees_of(text: str) -> list[tuple[str, int]]:
    """d4p1t2 as its degrees."""
    match = _POOL.search(text.strip())
    return [(mark.lower(), int(n)) for mark, n in _DEGREE.findall(match[1])] if match else []


def _chips(degrees: dict[str, int]) -> int:
    """Chips of a pool: its degrees but the experts', which share those of the others."""
    found = 1
    for mark, number in degrees.items():
        found *= number if mark != "e" else 1
    return found


def _many(keys: Keys, ids: str, count: str) -> int | None:
    """GPUs of a pool: a list of their numbers, or how many."""
    told = keys.raw(ids)
    if isinstance(told, list):
        return len(told)
    if isinstance(told, str) and told.strip():
        return len(told.strip("[]").split(","))
    return keys.whole(count)


def _folder(name: str | None) -> str | None:
    """A checkpoint's folder without a trailing slash: its last part names the model."""
    return None if name is None else name.rstrip("/")
