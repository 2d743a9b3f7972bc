"""Launches of tools that have nothing but a table: what they say, where it is, and what is not known."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from foretell.api.launches import read_launch
from foretell.interop.launch import Launch
from foretell.interop.tool_tables import may_matter, resembles, table_of, tool_names
from foretell.testing.tool import check_launch, check_table

FILES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "more_tools.toml").read_text("utf-8")
)


@pytest.mark.parametrize("tool", FILES)
def test_a_tool_is_one_table(tool: str) -> None:
    check_launch(tool, **FILES[tool])


@pytest.mark.parametrize("tool", tool_names())
def test_every_key_has_one_verdict_and_none_is_a_wildcard(tool: str) -> None:
    check_table(tool)


def test_megatron_behind_verl_is_not_fsdp() -> None:
    launch = read_launch(
        "python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' "
        "actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=256 "
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 actor_rollout_ref.rollout.n=5 "
        "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 trainer.n_gpus_per_node=8"
    )
    assert {"tp2", "pp2", "dp2", "framework=megatron-core"} <= {*launch.plan.split()}
    rows = {row.name: row for row in launch.values}
    assert rows["tp"].key == "actor_rollout_ref.actor.megatron.tensor_model_parallel_size"


def test_a_parent_that_is_not_at_hand_is_asked_for() -> None:
    launch = read_launch(
        "defaults: ../grpo_math_1B.yaml\npolicy:\n  model_name: Qwen/Qwen2.5-1.5B\n  dtensor_cfg:\n"
        "    tensor_parallel_size: 2\ngrpo:\n  num_prompts_per_step: 64\n"
    )
    assert any("../grpo_math_1B.yaml" in ask for ask in launch.asks)
    assert (launch.gpus, launch.seq_len) == (None, None)
    assert "tp2" in launch.plan
    assert "zero" not in launch.plan


def test_what_an_unset_variable_decides_is_left_out() -> None:
    launch = read_launch(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size $TP --bf16 --num-layers 2 "
        "--hidden-size 64 --num-attention-heads 2 --seq-length 128 --global-batch-size 16"
    )
    assert launch.asks == ("TP is not set in the file (tensor_model_parallel_size): tp in --plan",)
    assert not {"tp1", "dp8"} & {*launch.plan.split()}
    assert launch.global_batch == 16


def planted(launch: Launch, key: str) -> bool:
    """Whether a key is named as unknown, and not as of no bearing."""
    named = key in launch.unknown or any(key in text for text in launch.not_understood)
    return named and key not in launch.ignored


def test_unknown_and_misspelt_keys_are_named() -> None:
    text = FILES["ms-swift"]["text"].strip()
    launch = read_launch(
        f"{text} --flux_capacitor 3 --gradient_acumulation_steps 4 --shiny_batch_rule 2"
    )
    for key in ("flux_capacitor", "gradient_acumulation_steps", "shiny_batch_rule"):
        assert planted(launch, key), key
    stops = " ".join(launch.not_understood)
    assert "misspelling of gradient_accumulation_steps" in stops
    assert "shiny_batch_rule" in stops
    assert "flux_capacitor" not in stops


def test_what_sounds_like_time_or_memory_may_matter() -> None:
    assert may_matter("new.tensor_parallel_size")
    assert not may_matter("wandb_project_name")
    assert (
        resembles("per_device_train_batch_sise", table_of("trl")) == "per_device_train_batch_size"
    )
    assert resembles("learning_rate", table_of("trl")) is None
