"""A recommended post-training configuration as text for verl, NeMo-RL or TRL: the values below put behind the
keys of the loop's table (`writes` in interop/tools)."""

from collections.abc import Mapping

from foretell.errors import BadInput, unknown
from foretell.interop.launch import ToolArguments
from foretell.interop.training_write import written_keys
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.plan import Plan, parse_plan
from foretell.specs.plan_forms import adapter_targets
from foretell.specs.post_training import PostTrainingEstimate

POST_TRAINING = ("verl", "nemo-rl", "trl")
"""Loops that a configuration is written for."""
TARGETS = {
    "q": ("q_proj",), "k": ("k_proj",), "v": ("v_proj",), "o": ("o_proj",), "up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}  # fmt: skip
"""Maps that have adapters, as PEFT calls them."""
CONFIGS = {"sft": "SFTConfig", "dpo": "DPOConfig", "reward": "RewardConfig"}
"""TRL's class of each method."""


def write_configuration(found: PostTrainingEstimate, tool: str, model: str = "") -> ToolArguments:
    """The configuration of an answer; what the loop cannot be given is a note. `model` is the repository that
    the loop loads, else the model's id."""
    writers = {"verl": _verl, "nemo-rl": _nemo_rl, "trl": _trl}
    if tool not in writers:
        raise BadInput([unknown("export", tool, POST_TRAINING)])
    plan = parse_plan(found.plan)
    keys = written_keys(tool, _values(found, plan) | {"model": model or found.model})
    text, notes = writers[tool](found, plan, keys)
    return ToolArguments(tool=tool, text=text, notes=tuple(notes))


def _values(found: PostTrainingEstimate, plan: Plan) -> dict[str, object]:
    """What a table may write, by name; None is left out."""
    layout = parse_deployment(found.rollout_plan) if found.rollout_plan else None
    megatron, apart = plan.framework.startswith("megatron"), found.placement == "async"
    update = found.trajectories // max(found.updates, 1)
    answer, prompt = round(found.max_answer_tokens), round(4 * found.prompt_tokens)
    grouped = found.algorithm not in CONFIGS
    reference = any(phase.name == "ref_logprob" for phase in found.phases)
    return {
        "algorithm": found.algorithm, "estimator": "gae" if found.algorithm == "ppo" else "grpo",
        "grouped": grouped, "asynchronous": apart, "colocated": found.placement == "colocated",
        "megatron": megatron, "strategy": "megatron" if megatron else "fsdp2",
        "prompts": found.prompts, "samples": found.samples, "longest_prompt": prompt,
        "longest_answer": answer, "longest": round(found.prompt_tokens + found.max_answer_tokens),
        "update": max(update, 1), "update_prompts": max(update // max(found.samples, 1), 1),
        "micro_batch": plan.micro_batch, "rank_tokens": max(16_384, answer + prompt),
        "accumulation": max(update // max(plan.dp * plan.micro_batch, 1), 1),
        "bf16": plan.precision == "bf16", "checkpointing": plan.recompute != "none",
        "lora": plan.lora, "tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "ep": plan.ep,
        "weights": "weights" in found.offload, "optimizer": "optimizer" in found.offload,
        "reference": reference, "beta": 0.04 if reference else 0.0,
        "age": max(round(found.staleness), 1), "staleness": round(found.staleness, 2),
        "trainer_nodes": max(found.trainer_gpus // 8, 1), "trainer_node_gpus": min(found.trainer_gpus, 8),
        "nodes": max(found.gpus // 8, 1), "node_gpus": min(found.gpus, 8),
        "pool_nodes": max(found.rollout_gpus // 8, 1), "pool_node_gpus": min(found.rollout_gpus, 8),
        "engine": "vllm" if layout else None, "rollout_tp": layout.tp if layout else 1,
        "fraction": (layout.memory_fraction if layout else None) or 0.6,
        "trl_fraction": (layout.memory_fraction if layout else None) or 0.3,
        "sequences": (layout.max_batch if layout else None) or 256,
        "eager": not (layout and layout.graph),
        "vllm_mode": "colocate" if found.placement == "colocated" else "server",
    }  # fmt: skip


Written = tuple[str, list[str]]
"""A text and what it does not say."""


def _verl(found: PostTrainingEstimate, plan: Plan, keys: Mapping[str, object]) -> Written:
    lines = [f"    {key}={_shown(value)} \\" for key, value in keys.items()]
    started = "asynchronous runs start by recipe/fully_async_policy"
    notes = [started] if found.placement == "async" else []
    return "python3 -m verl.trainer.main_ppo \\\n" + "\n".join(lines)[:-2], notes


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nemo_rl(found: PostTrainingEstimate, plan: Plan, keys: Mapping[str, object]) -> Written:
    lines, open_ = list[str](), tuple[str, ...]()
    for key, value in keys.items():
        *sections, last = key.split(".")
        for deep, name in enumerate(sections):
            if open_[: deep + 1] != tuple(sections[: deep + 1]):
                lines.append(f"{'  ' * deep}{name}:")
                open_ = tuple(sections[: deep + 1])
        open_ = tuple(sections)
        text = str(value).lower() if isinstance(value, bool) else _shown(value)
        lines.append(f"{'  ' * len(sections)}{last}: {text}")
    return "\n".join(lines), []


def _trl(found: PostTrainingEstimate, plan: Plan, keys: Mapping[str, object]) -> Written:
    config = CONFIGS.get(found.algorithm, "GRPOConfig")
    text = f"{config}(\n" + "".join(f"    {key}={value!r},\n" for key, value in keys.items()) + ")"
    if plan.lora:
        named = f"target_modules={_targets(plan)!r}, use_dora={plan.method == 'dora'}"
        text += f"\nLoraConfig(r={plan.lora}, {named})"
    if plan.weights in ("nf4", "nf4-dq"):
        twice = plan.weights == "nf4-dq"
        text += "\nBitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', "
        text += f"bnb_4bit_use_double_quant={twice})"
    notes = []
    if found.algorithm == "ppo":
        notes.append("TRL has no PPO with a critic on vLLM; GRPOConfig is written")
    if plan.tp * plan.pp > 1:
        notes.append("TRL shards by FSDP or DeepSpeed alone: the plan's tp and pp are not written")
    return text, notes


def _targets(plan: Plan) -> object:
    targets = adapter_targets(plan.adapters)
    if targets >= adapter_targets("all"):
        return "all-linear"
    return [one for name, own in TARGETS.items() if name in targets for one in own]
