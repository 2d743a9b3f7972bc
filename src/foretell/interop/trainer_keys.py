"""A plan in the own keys of trainers, as trainers.py and other_trainers.py read them: what to set in a file.

They run data-parallel replicas, copied or shared out by FSDP or DeepSpeed: nothing else of a layout. Where a
value has several keys, the one that the launch says it by is kept.
"""

from collections.abc import Mapping

from foretell.interop.launch import Launch, Tool
from foretell.interop.tool_tables import table_of
from foretell.specs.plan import Plan

TRAINER_FIELDS: Mapping[Tool, tuple[str, ...]] = {
    **dict.fromkeys(
        ("trainer", "trl", "accelerate", "axolotl", "llamafactory"),
        ("zero", "micro_batch", "recompute"),
    ),
    "torchtune": ("micro_batch", "recompute"),
    "litgpt": ("micro_batch",),
}
"""Trainers whose own file is changed, and the fields of a plan that their keys say."""
STRATEGIES = {2: "shard_grad_op", 3: "full_shard"}
"""FSDP's word for a stage."""


def trainer_keys(launch: Launch, plan: Plan, global_batch: int) -> dict[str, str]:
    """Keys and values that say a plan: batch, accumulation, checkpointing, sharding."""
    tool = launch.tool
    if tool == "litgpt":  # its global batch is a key of its own
        return {"train.micro_batch_size": f"{plan.micro_batch}"}
    if tool == "torchtune":
        return {
            "batch_size": f"{plan.micro_batch}",
            "gradient_accumulation_steps": f"{max(global_batch // (plan.dp * plan.micro_batch), 1)}",
            "enable_activation_checkpointing": _truth(plan.recompute != "none"),
        }
    said = {key for row in launch.values for key in row.key.split(", ")}
    steps = max(global_batch // (plan.dp * plan.micro_batch), 1)
    staged = plan.framework.partition("@")[0] == "deepspeed"
    inside = "deepspeed_config." if tool == "accelerate" and staged else ""
    batch = "micro_batch_size" if tool == "axolotl" else "per_device_train_batch_size"
    return {
        next(
            (name for name in table_of(tool).fields["micro_batch"] if name in said), batch
        ): f"{plan.micro_batch}",
        f"{inside}gradient_accumulation_steps": f"{steps}",
        **_checkpoints(tool, plan.recompute != "none", said),
        **(_stage(tool, plan.zero) if staged else _strategy(tool, plan.zero, said)),
    }


def _checkpoints(tool: Tool, on: bool, said: set[str]) -> dict[str, str]:
    inside = next(
        (
            name
            for name in table_of(tool).fields["inner_checkpointing"]
            if "." in name and name in said
        ),
        None,
    )
    if inside is not None and "gradient_checkpointing" not in said:
        return {inside: _truth(on)}
    if tool == "llamafactory":
        return {"disable_gradient_checkpointing": _truth(not on)}
    return {"gradient_checkpointing": _truth(on)}


def _stage(tool: Tool, zero: int) -> dict[str, str]:
    """DeepSpeed's stage, in accelerate's file or in DeepSpeed's own that the others name."""
    name = "deepspeed_config.zero_stage" if tool == "accelerate" else "zero_optimization.stage"
    return {name: f"{zero}"}


def _strategy(tool: Tool, zero: int, said: set[str]) -> dict[str, str]:
    """FSDP's strategy, which its second version calls whether weights go back after the forward pass."""
    again = next((name for name in table_of(tool).fields["reshard"] if name in said), None)
    if again is not None and zero in STRATEGIES:
        return {again: _truth(zero == 3)}
    name = "fsdp_config.fsdp_sharding_strategy"
    if tool != "accelerate" and name in said and zero in STRATEGIES:
        return {name: STRATEGIES[zero].upper()}
    if tool != "accelerate":
        return {"fsdp": f"{STRATEGIES[zero]} auto_wrap"} if zero in STRATEGIES else {}
    if zero not in STRATEGIES:
        return {"distributed_type": "MULTI_GPU"}
    return {"distributed_type": "FSDP", name: STRATEGIES[zero].upper()}


def _truth(on: bool) -> str:
    return "true" if on else "false"
