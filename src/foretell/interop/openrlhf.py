"""OpenRLHF: openrlhf.cli.train_ppo_ray (0.8, flags with underscores; 0.9, in sections) and its fine-tuning.

train_ppo_ray                   --actor_num_nodes or --actor.num_nodes, --rollout_batch_size,
                                --n_samples_per_prompt
train_sft, train_dpo, train_rm  --pretrain, --train_batch_size, --max_len, --zero_stage
"""

import re

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys, world_size
from foretell.interop.launch import Known, Launch
from foretell.interop.policy_step import PolicyStep, launch_of_step, prompt_room

OPEN_IGNORED = frozenset(
    """save_* ckpt_* load_checkpoint logging_* eval_* actor_learning_rate critic_learning_rate lr_*
    init_kl_coef prompt_data* input_key label_key output_key apply_chat_template normalize_reward use_wandb
    wandb_* use_tensorboard disable_ds_ckpt save_hf_ckpt seed max_epochs num_episodes max_ckpt_* gamma lambd
    eps_clip* kl_* use_kl_* l2 adam_betas max_norm temperature top_p reward_pretrain* remote_rm_url
    ref_num_* reward_num_* critic_* value_clip ptx_coef runtime_env_json working_dir address
    dynamic_filtering* freezing_actor_steps no_advantage* packing_samples flash_attn attn_implementation
    vllm_sync_* vllm_enable_sleep deepspeed_enable_sleep vllm_num_engines ref_reward_offload enforce_eager
    enable_prefix_caching colocate_* async_train overlap_comm m reward_* advantage_estimator
    train_batch_size rollout_batch_size generate_max_len prompt_max_len n_samples_per_prompt max_samples zpg
    bf16 adam_offload actor_num_nodes full_determinism micro_rollout_batch_size vllm_generate_batch_size
    aux_loss_coef ring_head_stride no_wait module num_gpus hostfile include beta
    nll_* submission_id verbose agent_func_path policy_loss_type
    async_queue_size partial_rollout_enable vllm_max_model_len use_dynamic_batch rollout_max_tokens_per_gpu
    data.* eval.* logger.* ckpt.* ref.* reward.* critic.* actor.* algo.* train.* rollout.* vllm.*
    ds.*""".split()
)
OPEN_NAMES = {
    "pretrain": ("actor.model_name_or_path", "actor.pretrain", "model.pretrain"),
    "critic_pretrain": ("critic.model_name_or_path", "critic.pretrain"),
    "reward_pretrain": ("reward.model_name_or_path", "reward.pretrain"),
    "generate_max_len": ("rollout.max_new_tokens", "max_new_tokens"),
    "micro_train_batch_size": ("train.micro_batch_size",),
    "train_max_tokens_per_gpu": ("train.max_tokens_per_gpu",),
    "colocate_all_models": ("train.colocate_all",),
    "async_train": ("train.async_enable",),
    "async_queue_size": ("train.async_queue_size",),
    "partial_rollout_enable": ("train.partial_rollout_enable",),
    "zero_stage": ("ds.zero_stage",),
    "adam_offload": ("ds.adam_offload",),
    "ring_attn_size": ("ds.ring_attn_size",),
    "ds_tensor_parallel_size": ("ds.tensor_parallel_size",),
    "lora_rank": ("ds.lora.rank", "lora.rank"),
    "gradient_checkpointing": ("actor.gradient_checkpointing", "ds.gradient_checkpointing"),
    "enforce_eager": ("vllm.enforce_eager",),
    "advantage_estimator": ("algo.advantage.estimator", "algo.advantage_estimator"),
    "init_kl_coef": ("algo.kl.init_coef", "algo.init_kl_coef"),
    "n_samples_per_prompt": ("rollout.n_samples_per_prompt",),
    "max_len": ("data.max_len",),
}
"""OpenRLHF's flags before its sections, and what they are called in these."""


def _open(name: str) -> tuple[str, ...]:
    """Names of an argument, of releases before the sections and after."""
    section, _, rest = name.partition("_")
    return (name, *OPEN_NAMES.get(name, (f"{section}.{rest}",)))


def read_openrlhf(given: ArgumentTable, known: Known) -> Launch:
    """`python -m openrlhf.cli.train_ppo_ray`, flags with underscores or in sections, and train_sft, train_dpo
    and train_rm."""
    keys = Keys(given, tool="openrlhf")
    tuned = re.search(r"train_(sft|dpo|rm)\b", given.text)
    if tuned:
        return _tuning(keys, given, known, {"rm": "reward"}.get(tuned[1], tuned[1]))
    each = keys.whole(*_open("actor_num_gpus_per_node")) or 8
    gpus = known.gpus or (keys.whole(*_open("actor_num_nodes")) or 1) * each
    samples = keys.whole(*_open("n_samples_per_prompt")) or 1
    shared = bool(keys.flag(*_open("colocate_all_models")))
    rollout_tp = keys.whole(*_open("vllm_tensor_parallel_size")) or 1
    pool = (keys.whole(*_open("vllm_num_engines")) or 0) * rollout_tp or None
    answer, total = keys.whole(*_open("generate_max_len")) or 1024, keys.whole(*_open("max_len"))
    ahead = keys.whole(*_open("async_queue_size")) or 1
    step = PolicyStep(
        model=keys.text(*_open("pretrain")),
        gpus=gpus,
        prompts=keys.whole(*_open("rollout_batch_size")) or 1024,
        samples=samples,
        mini=keys.whole(*_open("train_batch_size")) or 128,
        prompt_len=keys.whole("prompt_max_len") or (prompt_room(total, answer) if total else 1024),
        answer_len=answer,
        algorithm=(keys.text(*_open("advantage_estimator")) or "gae").lower(),
        rollout_tp=rollout_tp,
        fraction=keys.number(*_open("vllm_gpu_memory_utilization"), high=1.0),
        micro_tokens=keys.whole(*_open("train_max_tokens_per_gpu")),
        colocated=shared,
        rollout_gpus=None if shared else pool,
        staleness=float(ahead) if keys.flag(*_open("async_train")) else None,
        partial=bool(keys.flag(*_open("partial_rollout_enable"))),
        engine="vllm",
        critic=keys.text(*_open("critic_pretrain")) or keys.text(*_open("reward_pretrain")),
        rollout_words="no-graph" if keys.flag(*_open("enforce_eager")) else "",
        reference=keys.number(*_open("init_kl_coef")) != 0.0,
    )
    degree, more = _trainer(keys)
    sources = {
        "model": ("pretrain",), "gpus": ("actor_num_gpus_per_node", "actor_num_nodes"),
        "global_batch": ("train_batch_size",), "seq_len": ("prompt_max_len", "generate_max_len"),
        "micro_batch": ("micro_train_batch_size",), "zero": ("zero_stage",),
        "recompute": ("gradient_checkpointing",), "offload": ("adam_offload",),
        "dp": ("actor_num_gpus_per_node", "actor_num_nodes"),
        "algorithm": ("advantage_estimator",), "prompts": ("rollout_batch_size",),
        "samples": ("n_samples_per_prompt",), "isl": ("prompt_max_len",), "max_osl": ("generate_max_len",),
        "updates": ("rollout_batch_size", "train_batch_size"),
        "rollout_plan": ("vllm_tensor_parallel_size", "vllm_gpu_memory_utilization"),
        "rollout_gpus": ("vllm_num_engines", "vllm_tensor_parallel_size"),
        "placement": ("colocate_all_models", "async_train"),
        "micro_tokens": ("train_max_tokens_per_gpu",), "critic": ("critic_pretrain", "reward_pretrain"),
    }  # fmt: skip
    sources = {
        name: tuple(x for one in given_as for x in _open(one)) for name, given_as in sources.items()
    }
    return launch_of_step(keys, given, known, "openrlhf", step, degree, more, sources, OPEN_IGNORED)


def _tuning(keys: Keys, given: ArgumentTable, known: Known, algorithm: str) -> Launch:
    """Fine-tuning, a preference or a reward model by DeepSpeed."""
    length = keys.whole(*_open("max_len")) or 2048
    step = PolicyStep(
        model=keys.text(*_open("pretrain")),
        gpus=world_size(keys, known),
        prompts=1,
        samples=1,
        mini=keys.whole(*_open("train_batch_size")) or 128,
        prompt_len=length,
        answer_len=0,
        algorithm=algorithm,
        rollout_tp=1,
        fraction=None,
        micro_tokens=None,
    )
    degree, more = _trainer(keys)
    told = {
        "model": "pretrain", "global_batch": "train_batch_size", "seq_len": "max_len", "isl": "max_len",
        "prompts": "train_batch_size", "micro_batch": "micro_train_batch_size", "zero": "zero_stage",
        "recompute": "gradient_checkpointing", "offload": "adam_offload", "lora": "lora_rank",
    }  # fmt: skip
    sources = {name: _open(one) for name, one in told.items()}
    return launch_of_step(keys, given, known, "openrlhf", step, degree, more, sources, OPEN_IGNORED)


def _trainer(keys: Keys) -> tuple[dict[str, int | None], dict[str, object]]:
    """Degrees and the other values of DeepSpeed's plan, which every program of OpenRLHF names alike."""
    degree = {
        "tp": keys.whole(*_open("ds_tensor_parallel_size")),
        "cp": keys.whole(*_open("ring_attn_size")),
    }
    stage = keys.whole(*_open("zero_stage"), low=0, high=3)
    more: dict[str, object] = {
        "micro_batch": keys.whole(*_open("micro_train_batch_size")) or 8,
        "zero": 2 if stage is None else stage,
        "recompute": "full" if keys.flag(*_open("gradient_checkpointing")) else "none",
        "offload": "optimizer" if keys.flag(*_open("adam_offload")) else None,
        "lora": keys.whole(*_open("lora_rank"), low=0) or None,
        "framework": "deepspeed",
    }
    return degree, more
