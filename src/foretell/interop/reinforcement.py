"""Reinforcement learning: verl's overrides and NeMo-RL's YAML; and their fine-tuning.

As a training run, what is read is one update of the policy: the sequences of a mini-batch, prompt and answer
together. `Launch.post_training` has the whole step by the names of a post-training question: prompts,
answers to each, lengths, updates, the trainer's plan and the engine's (policy_step.py).

    verl       data.*, actor_rollout_ref.{model,actor,rollout}.*, trainer.*, async_training.* (0.7;
               ppo_trainer.yaml); its SFT trainer: model.partial_pretrain, data.max_length
    nemo-rl    policy.*, grpo.*, sft.*, dpo.*, cluster.* (0.3; examples/configs/grpo_math_1B.yaml)
"""

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys, world_size
from foretell.interop.launch import Known, Launch
from foretell.interop.policy_step import PolicyStep, launch_of_step, prompt_room
from foretell.interop.whole_numbers import whole_number

VERL_IGNORED = frozenset(
    """data.* algorithm.* trainer.* reward_model.* custom_reward_function.* critic.* ray_init.*
    global_profiler.* actor_rollout_ref.actor.* actor_rollout_ref.rollout.* actor_rollout_ref.ref.*
    actor_rollout_ref.model.* actor_rollout_ref.hybrid_engine actor_rollout_ref.nccl_timeout m config_path
    config_name hydra.* model.* optim.* engine.* use_remove_padding ulysses_*
    ray_kwargs.* transfer_queue.* defaults defaults.* async_training.* rollout.* no_wait standalone
    nproc_per_node submission_id runtime_env_json working_dir address""".split()
)
NEMO_IGNORED = frozenset(
    """grpo.* policy.* data.* env.* logger.* cluster.* checkpointing.* loss_fn.* dpo.* sft.* defaults config
    teacher.* distillation.*""".split()
)
SYNCED = "trigger_parameter_sync_step"
"""The key of mini-batches between two synchronisations."""


def read_verl(given: ArgumentTable, known: Known) -> Launch:
    """`python -m verl.trainer.main_ppo` and its overrides."""
    keys = Keys(given, tool="verl")
    if "sft_trainer" in given.text or keys.has("model.partial_pretrain"):
        return _verl_tuning(keys, given, known)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    nodes, each = keys.whole("trainer.nnodes") or 1, keys.whole("trainer.n_gpus_per_node") or 8
    gpus = known.gpus or nodes * each
    samples = keys.whole(f"{rollout}.n") or 1
    mini = keys.whole(f"{actor}.ppo_mini_batch_size") or 256
    prompts = keys.whole("data.train_batch_size", low=0)
    if prompts == 0:  # fully asynchronous: what passes between two synchronisations
        times = [keys.whole(f"async_training.{n}") or 1 for n in ("require_batches", SYNCED)]
        prompts = mini * times[0] * times[1]
    prompts = prompts or 1024
    megatron = (keys.text(f"{actor}.strategy") or "fsdp").lower() == "megatron"
    mine = f"{actor}.megatron"
    degree = {
        "tp": keys.whole(f"{mine}.tensor_model_parallel_size") if megatron else None,
        "pp": keys.whole(f"{mine}.pipeline_model_parallel_size") if megatron else None,
        "cp": keys.whole(f"{mine}.context_parallel_size") if megatron else
        keys.whole(f"{actor}.ulysses_sequence_parallel_size"),
        "ep": keys.whole(f"{mine}.expert_model_parallel_size") if megatron else None,
    }  # fmt: skip
    dynamic = keys.flag(f"{actor}.use_dynamic_bsz")
    pool, staleness = _verl_pool(keys)
    step = PolicyStep(
        model=keys.text("actor_rollout_ref.model.path"),
        gpus=gpus,
        colocated=pool is None,
        rollout_gpus=pool,
        staleness=staleness if pool is not None else None,
        partial=pool is not None and bool(keys.flag("async_training.partial_rollout")),
        critic=keys.text("critic.model.path"),
        rollout_words=_engine_words(keys, rollout),
        prompts=prompts,
        samples=samples,
        mini=mini * samples,
        prompt_len=keys.whole("data.max_prompt_length") or 512,
        answer_len=keys.whole("data.max_response_length") or 512,
        algorithm=(keys.text("algorithm.adv_estimator") or "gae").lower(),
        rollout_tp=keys.whole(f"{rollout}.tensor_model_parallel_size") or 2,
        fraction=keys.number(f"{rollout}.gpu_memory_utilization", high=1.0) or 0.5,
        micro_tokens=keys.whole(f"{actor}.ppo_max_token_len_per_gpu") if dynamic else None,
        engine=_engine(keys, f"{rollout}.name"),
        turns=keys.whole(
            f"{rollout}.multi_turn.max_assistant_turns", f"{rollout}.multi_turn.max_turns"
        )
        or 1,
        steps=keys.whole("trainer.total_training_steps"),
        reference=bool(
            keys.flag(f"{actor}.use_kl_loss") or keys.flag("algorithm.use_kl_in_reward")
        ),
        offload=_offload(keys, "megatron" if megatron else "fsdp_config"),
    )
    saved = keys.flag("actor_rollout_ref.model.enable_gradient_checkpointing")
    more: dict[str, object] = {
        "micro_batch": keys.whole(f"{actor}.ppo_micro_batch_size_per_gpu") or 1,
        "recompute": "none" if saved is False else "full",
        "lora": keys.whole("actor_rollout_ref.model.lora_rank", low=0) or None,
    }  # fmt: skip
    if megatron:
        more |= {"zero": 1, "framework": "megatron-core"}
    else:
        more |= {
            "zero": 3,
            "framework": "fsdp2",
            "cp_mode": "ulysses" if (degree["cp"] or 1) > 1 else None,
        }
    sources = {
        "model": ("actor_rollout_ref.model.path",), "gpus": ("trainer.n_gpus_per_node", "trainer.nnodes"),
        "dp": ("trainer.n_gpus_per_node", "trainer.nnodes"),
        "global_batch": (f"{actor}.ppo_mini_batch_size", f"{rollout}.n"),
        "seq_len": ("data.max_prompt_length", "data.max_response_length"),
        "micro_batch": (f"{actor}.ppo_micro_batch_size_per_gpu",), "zero": (f"{actor}.strategy",),
        "tp": (f"{mine}.tensor_model_parallel_size",), "pp": (f"{mine}.pipeline_model_parallel_size",),
        "recompute": ("actor_rollout_ref.model.enable_gradient_checkpointing",),
        "offload": (f"{actor}.fsdp_config.param_offload", f"{actor}.fsdp_config.optimizer_offload"),
        "algorithm": ("algorithm.adv_estimator",), "prompts": ("data.train_batch_size",),
        "samples": (f"{rollout}.n",), "isl": ("data.max_prompt_length",),
        "max_osl": ("data.max_response_length",),
        "updates": ("data.train_batch_size", f"{actor}.ppo_mini_batch_size"),
        "rollout_plan": (f"{rollout}.tensor_model_parallel_size", f"{rollout}.gpu_memory_utilization"),
        "micro_tokens": (f"{actor}.ppo_max_token_len_per_gpu",), "engine": (f"{rollout}.name",),
        "steps": ("trainer.total_training_steps",), "critic": ("critic.model.path",),
        "placement": ("rollout.nnodes", "actor_rollout_ref.rollout.nnodes"),
        "rollout_gpus": ("rollout.nnodes", "rollout.n_gpus_per_node", "actor_rollout_ref.rollout.nnodes"),
        "staleness": ("async_training.staleness_threshold",),
        "partial": ("async_training.partial_rollout",),
        "reference": (f"{actor}.use_kl_loss", "algorithm.use_kl_in_reward"),
    }  # fmt: skip
    return launch_of_step(keys, given, known, "verl", step, degree, more, sources, VERL_IGNORED)


def read_nemo_rl(given: ArgumentTable, known: Known) -> Launch:
    """NeMo-RL's YAML and overrides."""
    keys = Keys(given, tool="nemo-rl")
    nodes, each = keys.whole("cluster.num_nodes") or 1, keys.whole("cluster.gpus_per_node") or 1
    gpus = known.gpus or nodes * each
    prompts = keys.whole("grpo.num_prompts_per_step") or 32
    samples = keys.whole("grpo.num_generations_per_prompt") or 16
    mini = keys.whole("policy.train_global_batch_size") or prompts * samples
    total = keys.whole("policy.max_total_sequence_length") or 512
    megatron = bool(keys.flag("policy.megatron_cfg.enabled"))
    part = "policy.megatron_cfg" if megatron else "policy.dtensor_cfg"
    names = {
        "tp": "tensor_model_parallel_size" if megatron else "tensor_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
    }
    degree = {name: keys.whole(f"{part}.{long}") for name, long in names.items()}
    engine = "policy.generation.vllm_cfg"
    apart = "policy.generation.colocated.resources"
    split = keys.flag("policy.generation.colocated.enabled") is False
    pool = None
    if split:
        pool = (keys.whole(f"{apart}.num_nodes") or 1) * (
            keys.whole(f"{apart}.gpus_per_node") or each
        )
        gpus = max(gpus - pool, 1) if known.gpus is None else gpus
    ahead = keys.flag("grpo.async_grpo.enabled")
    kinds = [
        kind for kind in ("sft", "dpo", "rm") if any(k.startswith(f"{kind}.") for k in keys.pairs)
    ]
    method = kinds[0] if kinds and not any(k.startswith("grpo.") for k in keys.pairs) else "grpo"
    method = {"rm": "reward"}.get(method, method)
    answer = (
        (keys.whole("policy.generation.max_new_tokens") or total // 2) if method == "grpo" else 0
    )
    step = PolicyStep(
        model=keys.text("policy.model_name"),
        gpus=gpus,
        prompts=prompts,
        samples=samples,
        mini=mini,
        prompt_len=prompt_room(total, answer) if answer else total,
        answer_len=answer,
        algorithm=method,
        rollout_tp=keys.whole(f"{engine}.tensor_parallel_size") or 1,
        fraction=keys.number(f"{engine}.gpu_memory_utilization", high=1.0),
        micro_tokens=_nemo_tokens(keys, total, packs=method == "grpo"),
        rollout_words=_engine_words(keys, engine),
        colocated=not split,
        rollout_gpus=pool,
        staleness=float(keys.whole("grpo.async_grpo.max_trajectory_age_steps") or 1)
        if ahead
        else None,
        engine=_engine(keys, "policy.generation.backend"),
        steps=keys.whole(f"{method}.max_num_steps"),
        reference=keys.number("loss_fn.reference_policy_kl_penalty") != 0.0,
    )
    saved = keys.flag(f"{part}.activation_checkpointing")
    more: dict[str, object] = {
        "micro_batch": keys.whole("policy.train_micro_batch_size") or 1,
        "recompute": "full" if saved else "none",
        "zero": 1 if megatron else 3,
        "framework": "megatron-core" if megatron else "fsdp2",
        "sp": keys.flag(f"{part}.sequence_parallel"),
    }
    sources = {
        "model": ("policy.model_name",), "gpus": ("cluster.gpus_per_node", "cluster.num_nodes"),
        "global_batch": ("policy.train_global_batch_size", "grpo.num_prompts_per_step"),
        "seq_len": ("policy.max_total_sequence_length",), "micro_batch": ("policy.train_micro_batch_size",),
        "tp": (f"{part}.{names['tp']}",), "pp": (f"{part}.{names['pp']}",), "zero": (f"{part}.enabled",),
        "recompute": (f"{part}.activation_checkpointing",),
        "prompts": ("grpo.num_prompts_per_step",), "samples": ("grpo.num_generations_per_prompt",),
        "isl": ("policy.max_total_sequence_length",), "max_osl": ("policy.generation.max_new_tokens",),
        "updates": ("grpo.num_prompts_per_step", "policy.train_global_batch_size"),
        "rollout_plan": (f"{engine}.tensor_parallel_size", f"{engine}.gpu_memory_utilization"),
        "rollout_gpus": (f"{apart}.gpus_per_node", f"{apart}.num_nodes"),
        "placement": ("policy.generation.colocated.enabled", "grpo.async_grpo.enabled"),
        "staleness": ("grpo.async_grpo.max_trajectory_age_steps",), "steps": ("grpo.max_num_steps",),
        "micro_tokens": ("policy.sequence_packing.train_mb_tokens",),
    }  # fmt: skip
    return launch_of_step(keys, given, known, "nemo-rl", step, degree, more, sources, NEMO_IGNORED)


def _verl_tuning(keys: Keys, given: ArgumentTable, known: Known) -> Launch:
    """verl's SFT trainer: FSDP over all chips."""
    length = keys.whole("data.max_length") or 1024
    step = PolicyStep(
        model=keys.text("model.partial_pretrain", "model.path"),
        gpus=world_size(keys, known),
        prompts=1,
        samples=1,
        mini=keys.whole("data.train_batch_size") or 256,
        prompt_len=length,
        answer_len=0,
        algorithm="sft",
        rollout_tp=1,
        fraction=None,
        micro_tokens=None,
        steps=keys.whole("trainer.total_training_steps"),
    )
    saved = keys.flag("model.enable_gradient_checkpointing")
    cp = keys.whole("ulysses_sequence_parallel_size", "engine.ulysses_sequence_parallel_size")
    more: dict[str, object] = {
        "micro_batch": keys.whole("data.micro_batch_size_per_gpu", "data.micro_batch_size") or 4,
        "recompute": "none" if saved is False else "full",
        "lora": keys.whole("model.lora_rank", low=0) or None,
        "zero": 3,
        "framework": "fsdp2",
        "cp_mode": "ulysses" if (cp or 1) > 1 else None,
    }
    sources = {
        "model": ("model.partial_pretrain", "model.path"), "global_batch": ("data.train_batch_size",),
        "prompts": ("data.train_batch_size",), "seq_len": ("data.max_length",), "isl": ("data.max_length",),
        "micro_batch": ("data.micro_batch_size_per_gpu",), "lora": ("model.lora_rank",),
        "recompute": ("model.enable_gradient_checkpointing",),
    }  # fmt: skip
    return launch_of_step(keys, given, known, "verl", step, {"cp": cp}, more, sources, VERL_IGNORED)


def _nemo_tokens(keys: Keys, total: int, *, packs: bool) -> int | None:
    """Tokens of a micro-batch: packed or batched by tokens unless both are off (`packs`: the default), as
    many as a micro-batch of the longest sequences has."""
    parts = ("policy.sequence_packing", "policy.dynamic_batching")
    told = [keys.flag(f"{part}.enabled") for part in parts]
    if not any(told) and (not packs or False in told):
        return None
    each = total * (keys.whole("policy.train_micro_batch_size") or 1)
    named = [keys.text(f"{part}.train_mb_tokens") for part in parts]
    return next((many for one in named if (many := whole_number(one))), each)


def _engine(keys: Keys, name: str) -> str | None:
    """The engine that generates: vllm or sglang; another is what the framework's profile has."""
    told = (keys.text(name) or "").lower()
    return told if told in ("vllm", "sglang", "trtllm") else None


def _engine_words(keys: Keys, part: str) -> str:
    """What an engine's section says beside its layout: graphs, sequences at once, formats of the weights."""
    words = ["no-graph"] if keys.flag(f"{part}.enforce_eager") else []
    most = keys.whole(f"{part}.max_num_seqs")
    words += [f"max_batch={most}"] if most else []
    narrow = (keys.text(f"{part}.quantization", f"{part}.precision") or "").lower()
    words += ["weights=fp8"] if narrow.startswith("fp8") else []
    return " ".join(words)


def _verl_pool(keys: Keys) -> tuple[int | None, float]:
    """Chips of an engine of its own (one step off, fully asynchronous), and how far ahead it may be."""
    nodes = keys.whole("rollout.nnodes", "actor_rollout_ref.rollout.nnodes", low=0)
    each = keys.whole("rollout.n_gpus_per_node", "actor_rollout_ref.rollout.n_gpus_per_node")
    ahead = keys.number("async_training.staleness_threshold")
    pool = nodes * (each or 8) if nodes else None
    return pool, 1.0 if ahead is None else ahead


def _offload(keys: Keys, part: str) -> str:
    """What the trainer keeps on the host while the engine generates; verl moves nothing unless it is told."""
    actor, reference = f"actor_rollout_ref.actor.{part}", f"actor_rollout_ref.ref.{part}"
    parts = {
        "weights": keys.flag(f"{actor}.param_offload"),
        "optimizer": keys.flag(f"{actor}.optimizer_offload"),
        "reference": keys.flag(f"{reference}.param_offload"),
    }
    return "+".join(name for name, away in parts.items() if away) or "none"
