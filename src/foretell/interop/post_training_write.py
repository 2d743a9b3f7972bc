"""A recommended post-training configuration as text for verl, NeMo-RL or TRL."""

from dataclasses import replace

from foretell.errors import BadInput, unknown
from foretell.interop.launch import ToolArguments
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.plan import Plan, parse_plan
from foretell.specs.post_training import PostTrainingEstimate

POST_TRAINING = ("verl", "nemo-rl", "trl")
"""Loops that a configuration is written for."""


def write_configuration(found: PostTrainingEstimate, tool: str, model: str = "") -> ToolArguments:
    """The configuration of an answer; what the loop cannot be told is a note. `model` is the repository that
    the loop loads, else the model's id."""
    writers = {"verl": _verl, "nemo-rl": _nemo_rl, "trl": _trl}
    if tool not in writers:
        raise BadInput([unknown("export", tool, POST_TRAINING)])
    plan = parse_plan(found.plan)
    text, notes = writers[tool](replace(found, model=model or found.model), plan)
    return ToolArguments(tool=tool, text=text, notes=tuple(notes))


def _verl(found: PostTrainingEstimate, plan: Plan) -> tuple[str, list[str]]:
    layout = parse_deployment(found.rollout_plan) if found.rollout_plan else None
    megatron = plan.framework.startswith("megatron")
    nodes = max(found.trainer_gpus // 8, 1)
    sequences = max(found.trajectories // max(found.updates, 1) // max(found.samples, 1), 1)
    keys: dict[str, object] = {
        "algorithm.adv_estimator": "gae" if found.algorithm == "ppo" else "grpo",
        "data.train_batch_size": found.prompts,
        "data.max_prompt_length": round(4 * found.prompt_tokens),
        "data.max_response_length": round(found.max_answer_tokens),
        "actor_rollout_ref.model.path": found.model,
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": plan.recompute != "none",
        "actor_rollout_ref.model.lora_rank": plan.lora,
        "actor_rollout_ref.actor.strategy": "megatron" if megatron else "fsdp2",
        "actor_rollout_ref.actor.ppo_mini_batch_size": sequences,
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": max(
            16_384, round(found.max_answer_tokens + 4 * found.prompt_tokens)
        ),
        "actor_rollout_ref.actor.use_kl_loss": _has_reference(found),
        "actor_rollout_ref.actor.fsdp_config.param_offload": "weights" in found.offload,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload": "optimizer" in found.offload,
        "trainer.balance_batch": True,
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": min(found.trainer_gpus, 8),
    }
    if megatron:
        for part in ("param", "optimizer"):
            name = f"{part}_offload"
            kept = keys.pop(f"actor_rollout_ref.actor.fsdp_config.{name}")
            keys[f"actor_rollout_ref.actor.megatron.{name}"] = kept
        for name, word in (
            ("tensor", "tp"),
            ("pipeline", "pp"),
            ("context", "cp"),
            ("expert", "ep"),
        ):
            keys[f"actor_rollout_ref.actor.megatron.{name}_model_parallel_size"] = getattr(
                plan, word
            )
    if layout is not None:
        keys |= {
            "actor_rollout_ref.rollout.name": "vllm",
            "actor_rollout_ref.rollout.n": found.samples,
            "actor_rollout_ref.rollout.tensor_model_parallel_size": layout.tp,
            "actor_rollout_ref.rollout.gpu_memory_utilization": layout.memory_fraction or 0.6,
            "actor_rollout_ref.rollout.max_num_seqs": layout.max_batch or 256,
            "actor_rollout_ref.rollout.enforce_eager": not layout.graph,
        }
    notes = []
    if found.placement == "async":
        keys |= {
            "rollout.nnodes": max(found.rollout_gpus // 8, 1),
            "rollout.n_gpus_per_node": min(found.rollout_gpus, 8),
            "async_training.staleness_threshold": round(found.staleness, 2),
        }
        notes.append("asynchronous runs start by recipe/fully_async_policy")
    lines = [f"    {key}={_shown(value)} \\" for key, value in keys.items()]
    return "python3 -m verl.trainer.main_ppo \\\n" + "\n".join(lines)[:-2], notes


def _has_reference(found: PostTrainingEstimate) -> bool:
    """Whether a frozen reference is passed."""
    return any(phase.name == "ref_logprob" for phase in found.phases)


def _shown(value: object) -> str:
    return str(value) if isinstance(value, bool) or not isinstance(value, float) else f"{value:g}"


def _yaml(value: bool) -> str:
    return str(value).lower()


def _nemo_rl(found: PostTrainingEstimate, plan: Plan) -> tuple[str, list[str]]:
    layout = parse_deployment(found.rollout_plan) if found.rollout_plan else None
    megatron = plan.framework.startswith("megatron")
    colocated = found.placement == "colocated"
    nodes, age = max(found.gpus // 8, 1), max(round(found.staleness), 1)
    lines = [
        "grpo:",
        f"  num_prompts_per_step: {found.prompts}",
        f"  num_generations_per_prompt: {found.samples}",
        f"  async_grpo: {{enabled: {_yaml(found.placement == 'async')}, max_trajectory_age_steps: {age}}}",
        "policy:",
        f"  model_name: {found.model}",
        f"  train_global_batch_size: {max(found.trajectories // max(found.updates, 1), 1)}",
        f"  train_micro_batch_size: {plan.micro_batch}",
        f"  max_total_sequence_length: {round(found.prompt_tokens + found.max_answer_tokens)}",
        "  sequence_packing: {enabled: true}",
    ]
    if megatron:
        lines += [
            "  megatron_cfg:",
            "    enabled: true",
            f"    tensor_model_parallel_size: {plan.tp}",
            f"    pipeline_model_parallel_size: {plan.pp}",
            f"    context_parallel_size: {plan.cp}",
            f"    expert_model_parallel_size: {plan.ep}",
        ]
    else:
        lines += [
            "  dtensor_cfg:",
            "    enabled: true",
            f"    tensor_parallel_size: {plan.tp}",
            f"    activation_checkpointing: {str(plan.recompute != 'none').lower()}",
        ]
    if layout is not None:
        own = max(found.rollout_gpus // 8, 1), min(found.rollout_gpus, 8)
        apart = f", resources: {{num_nodes: {own[0]}, gpus_per_node: {own[1]}}}"
        share = layout.memory_fraction or 0.6
        lines += [
            "  generation:",
            "    backend: vllm",
            f"    colocated: {{enabled: {_yaml(colocated)}{'' if colocated else apart}}}",
            f"    max_new_tokens: {round(found.max_answer_tokens)}",
            "    vllm_cfg:",
            f"      tensor_parallel_size: {layout.tp}",
            f"      gpu_memory_utilization: {share:g}",
            f"      enforce_eager: {_yaml(not layout.graph)}",
        ]
    lines += ["cluster:", f"  num_nodes: {nodes}", f"  gpus_per_node: {min(found.gpus, 8)}"]
    return "\n".join(lines), []


def _trl(found: PostTrainingEstimate, plan: Plan) -> tuple[str, list[str]]:
    layout = parse_deployment(found.rollout_plan) if found.rollout_plan else None
    config = {"sft": "SFTConfig", "dpo": "DPOConfig", "reward": "RewardConfig"}.get(
        found.algorithm, "GRPOConfig"
    )
    per_step = found.trajectories // max(found.updates, 1)
    accumulate = max(per_step // max(plan.dp * plan.micro_batch, 1), 1)
    words: dict[str, object] = {
        "per_device_train_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": accumulate,
        "gradient_checkpointing": plan.recompute != "none",
        "bf16": plan.precision == "bf16",
    }
    if config == "GRPOConfig":
        words |= {
            "num_generations": found.samples,
            "max_completion_length": round(found.max_answer_tokens),
            "use_vllm": True,
            "vllm_mode": "colocate" if found.placement == "colocated" else "server",
            "vllm_tensor_parallel_size": layout.tp if layout else 1,
            "vllm_gpu_memory_utilization": (layout.memory_fraction if layout else None) or 0.3,
            "beta": 0.04 if _has_reference(found) else 0.0,
        }
    else:
        words["max_length"] = round(found.prompt_tokens + found.max_answer_tokens)
    text = f"{config}(\n" + "".join(f"    {k}={v!r},\n" for k, v in words.items()) + ")"
    if plan.lora:
        dora = plan.method == "dora"
        text += f"\nLoraConfig(r={plan.lora}, target_modules={_targets(plan)!r}, use_dora={dora})"
    if plan.weights in ("nf4", "nf4-dq"):
        twice = plan.weights == "nf4-dq"
        text += "\nBitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', "
        text += f"bnb_4bit_use_double_quant={twice})"
    notes = (
        ["TRL has no PPO with a critic on vLLM; GRPOConfig is written"]
        if found.algorithm == "ppo"
        else []
    )
    if plan.tp * plan.pp > 1:
        notes.append("TRL shards by FSDP or DeepSpeed alone: the plan's tp and pp are not written")
    return text, notes


def _targets(plan: Plan) -> object:
    from foretell.specs.plan_forms import adapter_targets

    names = {
        "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj",
        "up": ("gate_proj", "up_proj"), "down": "down_proj",
    }  # fmt: skip
    targets = adapter_targets(plan.adapters)
    if targets >= adapter_targets("all"):
        return "all-linear"
    found: list[str] = []
    for name, value in names.items():
        if name in targets:
            found += [value] if isinstance(value, str) else list(value)
    return found
