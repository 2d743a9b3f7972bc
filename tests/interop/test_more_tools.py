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


@pytest.mark.parametrize("name", FILES)
def test_a_tool_is_one_table(name: str) -> None:
    check_launch(**{"tool": name, **FILES[name]})


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


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("accelerate launch --num_processes 8 -m axolotl.cli.train a/fft-8b.yaml", "a/fft-8b.yaml"),
        (
            "tune run --nproc_per_node 4 lora_finetune_distributed --config llama3_1/8B_lora",
            "8B_lora",
        ),
        ("torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file c/l.toml", "c/l.toml"),
        ("llamafactory-cli train b/sft.yaml", "b/sft.yaml"),
        (
            "python scripts/performance/setup_experiment.py -mr llama3_70b --num_gpus 64",
            "llama3_70b",
        ),
    ],
)
def test_nothing_is_taken_from_a_configuration_that_is_not_at_hand(text: str, file: str) -> None:
    launch = read_launch(text)
    assert any(file in ask for ask in launch.asks), launch.asks
    assert (launch.seq_len, launch.global_batch) == (None, None)
    assert not {word for word in launch.plan.split() if word.startswith(("tp", "mbs", "recompute"))}


def test_a_configuration_beside_its_command_is_opened(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(
        "model_name_or_path: Qwen/Qwen3-8B\ncutoff_len: 4096\nstage: sft\n"
    )
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\nFORCE_TORCHRUN=1 llamafactory-cli train sft.yaml\n"
    )
    launch = read_launch(tmp_path / "run.sh")
    assert (launch.named, launch.seq_len) == ("Qwen/Qwen3-8B", 4096)


def test_the_steps_of_megatron_bridge_are_its_recipes() -> None:
    launch = read_launch(
        "python scripts/performance/setup_experiment.py --model_recipe_name llama3_70b --gpu h100 "
        "--num_gpus 64 --tensor_model_parallel_size 4 --pipeline_model_parallel_size 8 "
        "--global_batch_size 256 --gpus_per_node 8 "
        "--micro_batch_size 1 --seq_length 8192 --compute_dtype fp8_cs"
    )
    assert (launch.tool, launch.gpus) == ("megatron-bridge", 64)
    assert {"tp4", "pp8", "dp2", "zero1", "sp", "precision=fp8", "framework=megatron-core"} <= {
        *launch.plan.split()
    }


def test_nemo_trains_in_fp8_where_its_model_says_so() -> None:
    text = (
        "trainer: {devices: 8, num_nodes: 2, precision: bf16}\n"
        "exp_manager: {create_checkpoint_callback: true}\n"
    )
    model = "model: {micro_batch_size: 1, global_batch_size: 16, fp8: FLAG, fp8_hybrid: true}\n"
    for flag, word in (("true", "precision=fp8"), ("false", "precision=bf16")):
        assert word in read_launch(text + model.replace("FLAG", flag)).plan.split()
