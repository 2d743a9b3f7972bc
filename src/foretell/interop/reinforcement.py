"""Reinforcement learning: verl's overrides, NeMo-RL's YAML, OpenRLHF's flags.

As a training run, what is read is one update of the policy: the sequences of a mini-batch, prompt and answer
together. `Launch.post_training` has the whole step by the names of a post-training question: prompts,
answers to each, lengths, updates, the trainer's plan and the engine's.

    verl       data.*, actor_rollout_ref.{model,actor,rollout}.*, trainer.* (0.5; ppo_trainer.yaml)
    nemo-rl    policy.*, grpo.*, cluster.* (0.3; examples/configs/grpo_math_1B.yaml)
    openrlhf   openrlhf.cli.train_ppo_ray (0.8): --actor_num_nodes, --rollout_batch_size,
               --n_samples_per_prompt
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys, plan_words, read_back
from foretell.interop.launch import Known, Launch, ReadValue, Tool
from foretell.records import dataclass
from foretell.specs.post_training import USUAL_PROMPT

VERL_IGNORED = frozenset(
    """data.* algorithm.* trainer.* reward_model.* custom_reward_function.* critic.* ray_init.*
    global_profiler.* actor_rollout_ref.actor.* actor_rollout_ref.rollout.* actor_rollout_ref.ref.*
    actor_rollout_ref.model.* actor_rollout_ref.hybrid_engine actor_rollout_ref.nccl_timeout m config_path
    config_name hydra.* ray_kwargs.* transfer_queue.*""".split()
)
NEMO_IGNORED = frozenset(
    """grpo.* policy.* data.* env.* logger.* cluster.* checkpointing.* loss_fn.* dpo.* sft.* defaults config
    teacher.* distillation.*""".split()
)
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
    aux_loss_coef ring_head_stride""".split()
)
ALGORITHMS = {"grpo": "grpo", "gae": "ppo", "ppo": "ppo", "dapo": "dapo", "rloo": "grpo", "reinforce": "grpo",
              "group_norm": "grpo", "reinforce_plus_plus": "grpo", "dr_grpo": "grpo",
              "remax": "grpo"}  # fmt: skip
"""Advantage estimators and the algorithm whose step is theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """What all of them say, under one name each."""

    model: str | None
    """The policy."""
    gpus: int | None
    """Chips of the trainer, and where they are shared of all."""
    prompts: int
    """Prompts of a step."""
    samples: int
    """Answers to each."""
    mini: int
    """Sequences of one optimizer update."""
    prompt_len: int
    """Longest prompt."""
    answer_len: int
    """Longest answer."""
    algorithm: str
    """Its estimator of advantages."""
    rollout_tp: int
    """Tensor-parallel ranks of the engine."""
    fraction: float | None
    """Share of the memory that the engine takes."""
    micro_tokens: int | None
    """Tokens of a micro-batch, where it is packed by them."""
    colocated: bool = True
    """Whether trainer and engine share chips."""
    rollout_gpus: int | None = None
    """Chips of the engine's own, where they are not shared."""
    staleness: float | None = None
    """Batches that generation may be ahead of the trainer, where it runs beside it; None: in turn."""
    engine: str | None = None
    """The engine that generates, where it is named."""
    turns: int = 1
    """Turns of a trajectory."""
    steps: int | None = None
    """Steps of the run."""
    reference: bool = True
    """Whether a frozen copy of the policy passes over the answers, where the algorithm has one."""
    offload: str | None = None
    """What the trainer moves to the host while the engine generates."""


def read_verl(given: ArgumentTable, known: Known) -> Launch:
    """`python -m verl.trainer.main_ppo` and its overrides."""
    keys = Keys(given, tool="verl")
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    nodes, each = keys.whole("trainer.nnodes") or 1, keys.whole("trainer.n_gpus_per_node") or 8
    gpus = known.gpus or nodes * each
    prompts = keys.whole("data.train_batch_size") or 1024
    samples = keys.whole(f"{rollout}.n") or 1
    mini = keys.whole(f"{actor}.ppo_mini_batch_size") or 256
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
    step = PolicyStep(
        model=keys.text("actor_rollout_ref.model.path"),
        gpus=gpus,
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
        offload=_offload(keys, mine if megatron else f"{actor}.fsdp_config"),
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
        "steps": ("trainer.total_training_steps",),
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
    step = PolicyStep(
        model=keys.text("policy.model_name"),
        gpus=gpus,
        prompts=prompts,
        samples=samples,
        mini=mini,
        prompt_len=_room(total, keys.whole("policy.generation.max_new_tokens") or total // 2),
        answer_len=keys.whole("policy.generation.max_new_tokens") or total // 2,
        algorithm="grpo",
        rollout_tp=keys.whole(f"{engine}.tensor_parallel_size") or 1,
        fraction=keys.number(f"{engine}.gpu_memory_utilization", high=1.0),
        micro_tokens=keys.whole("policy.sequence_packing.train_mb_tokens"),
        colocated=not split,
        rollout_gpus=pool,
        staleness=float(keys.whole("grpo.async_grpo.max_trajectory_age_steps") or 1)
        if ahead
        else None,
        engine=_engine(keys, "policy.generation.backend"),
        steps=keys.whole("grpo.max_num_steps"),
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


def read_openrlhf(given: ArgumentTable, known: Known) -> Launch:
    """`python -m openrlhf.cli.train_ppo_ray`."""
    keys = Keys(given, tool="openrlhf")
    each = keys.whole("actor_num_gpus_per_node") or 8
    gpus = known.gpus or (keys.whole("actor_num_nodes") or 1) * each
    samples = keys.whole("n_samples_per_prompt") or 1
    shared = bool(keys.flag("colocate_all_models"))
    pool = (keys.whole("vllm_num_engines") or 0) * (
        keys.whole("vllm_tensor_parallel_size") or 1
    ) or None
    step = PolicyStep(
        model=keys.text("pretrain"),
        gpus=gpus,
        prompts=keys.whole("rollout_batch_size") or 1024,
        samples=samples,
        mini=keys.whole("train_batch_size") or 128,
        prompt_len=keys.whole("prompt_max_len") or 1024,
        answer_len=keys.whole("generate_max_len") or 1024,
        algorithm=(keys.text("advantage_estimator") or "gae").lower(),
        rollout_tp=keys.whole("vllm_tensor_parallel_size") or 1,
        fraction=keys.number("vllm_gpu_memory_utilization", high=1.0),
        micro_tokens=keys.whole("train_max_tokens_per_gpu"),
        colocated=shared,
        rollout_gpus=None if shared else pool,
        staleness=1.0 if keys.flag("async_train") else None,
        engine="vllm",
        reference=keys.number("init_kl_coef") != 0.0,
    )
    degree = {"tp": keys.whole("ds_tensor_parallel_size"), "cp": keys.whole("ring_attn_size")}
    more: dict[str, object] = {
        "micro_batch": keys.whole("micro_train_batch_size") or 8,
        "zero": keys.whole("zero_stage", low=0, high=3) if keys.has("zero_stage") else 2,
        "recompute": "full" if keys.flag("gradient_checkpointing") else "none",
        "offload": "optimizer" if keys.flag("adam_offload") else None,
        "lora": keys.whole("lora_rank", low=0) or None,
        "framework": "deepspeed",
    }
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
        "micro_tokens": ("train_max_tokens_per_gpu",),
    }  # fmt: skip
    return launch_of_step(keys, given, known, "openrlhf", step, degree, more, sources, OPEN_IGNORED)


def _engine(keys: Keys, name: str) -> str | None:
    """The engine that generates: vllm or sglang; another is what the framework's profile has."""
    told = (keys.text(name) or "").lower()
    return told if told in ("vllm", "sglang", "trtllm") else None


def _offload(keys: Keys, part: str) -> str | None:
    host = [
        name
        for key, name in (("optimizer_offload", "optimizer"), ("param_offload", "weights"))
        if keys.flag(f"{part}.{key}")
    ]
    return "+".join(host) or None


def launch_of_step(
    keys: Keys,
    given: ArgumentTable,
    known: Known,
    tool: Tool,
    step: PolicyStep,
    degree: Mapping[str, int | None],
    more: Mapping[str, object],
    sources: Mapping[str, tuple[str, ...]],
    ignored: frozenset[str],
) -> Launch:
    """One update of the policy as a training run, and the whole step beside it.

    `sources` names the arguments of each value, of the update and of the step."""
    tp, pp, cp = (known.over(name, degree.get(name) or 1) for name in ("tp", "pp", "cp"))
    ep = degree.get("ep") or 1
    if step.gpus is not None and step.gpus % (tp * pp * cp):
        keys.problem("gpus", f"are no multiple of tp x pp x cp = {tp * pp * cp}", step.gpus)
    dp = None if step.gpus is None else max(step.gpus // (tp * pp * cp), 1)
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": 1 if pp > 1 else None, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": ep if ep > 1 else None, **more,
    }  # fmt: skip
    if tp > 1 and values.get("sp") is None:
        values["sp"] = values.get("zero") == 1
    keys.note(ONE_UPDATE)
    quiet, unknown = keys.rest(ignored)
    keys.raise_problems()
    seq_len = step.prompt_len + step.answer_len
    record = _record(step, tool, values)
    job = {"model": step.model, "gpus": step.gpus, "global_batch": step.mini, "seq_len": seq_len}
    return Launch(
        tool=tool,
        models=_names(step.model),
        gpus=step.gpus,
        global_batch=step.mini,
        seq_len=seq_len,
        plan=plan_words(values),
        values=_with_limits(step, read_back(keys, {**job, **values, **_apart(record)}, sources)),
        accelerator=given.accelerator,
        post_training=record,
        notes=tuple(keys.notes),
        doubts=tuple(keys.doubts),
        ignored=quiet,
        unknown=unknown,
    )


def _names(model: str | None) -> tuple[str, ...]:
    """What may name the policy: the repository or folder, and its last part."""
    return tuple(dict.fromkeys((model, model.rpartition("/")[2]))) if model else ()


ONE_UPDATE = (
    "one update of the policy is read as the training step: post-train takes the whole step"
)
"""What a training question is told of such a launch."""
STEP_VALUES = (
    "algorithm", "prompts", "samples", "isl", "max_osl", "updates", "rollout_plan", "rollout_gpus",
    "placement", "staleness", "engine", "micro_tokens", "turns", "steps", "reference", "offload",
)  # fmt: skip
"""Values of a step that an update alone does not have, as the read-back table names them."""


def _apart(record: Mapping[str, Any]) -> dict[str, object]:
    """What a step has beyond its update, for the read-back table."""
    return {name: record[name] for name in STEP_VALUES if name in record}


def _with_limits(step: PolicyStep, rows: tuple[ReadValue, ...]) -> tuple[ReadValue, ...]:
    """Rows, a prompt's length marked as assumed where the launch has only a higher limit."""
    assumed = step.prompt_len > USUAL_PROMPT
    return tuple(
        replace(row, origin="assumed") if assumed and row.name == "isl" else row for row in rows
    )


def _room(total: int, answer: int) -> int:
    """Longest prompt that a limit of the whole sequence leaves beside one of the answer; half of it where
    both are alike."""
    return total - answer if total > answer else max(total // 2, 1)


def _record(step: PolicyStep, tool: Tool, values: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of a post-training question; what is unknown is left out."""
    rollout = f"tp{step.rollout_tp}"
    if step.fraction is not None:
        rollout += f" memory_fraction={step.fraction:g}"
    plan = {name: value for name, value in values.items() if name != "dp"}
    if step.micro_tokens is not None:  # micro-batches are filled by tokens, not by sequences
        plan.pop("micro_batch", None)
    apart = not step.colocated
    found = {
        "algorithm": ALGORITHMS.get(step.algorithm, "grpo"),
        "model": step.model,
        "gpus": step.gpus if not apart or step.rollout_gpus is None else None,
        "trainer_gpus": step.gpus if apart and step.rollout_gpus is not None else None,
        "rollout_gpus": step.rollout_gpus if apart else None,
        "prompts": step.prompts,
        "samples": step.samples,
        "isl": min(step.prompt_len, USUAL_PROMPT),
        "max_osl": step.answer_len,
        "updates": max(step.prompts * step.samples // max(step.mini, 1), 1),
        "plan": plan_words(plan),
        "rollout_plan": rollout,
        "framework": tool,
        "reference": None if step.reference else "none",
        "offload": step.offload,
        "placement": "colocated" if not apart else "split" if not step.staleness else "async",
        "staleness": step.staleness if apart and step.staleness else None,
        "engine": step.engine,
        "micro_tokens": step.micro_tokens,
        "turns": step.turns if step.turns > 1 else None,
        "steps": step.steps,
    }
    return {name: value for name, value in found.items() if value is not None}
