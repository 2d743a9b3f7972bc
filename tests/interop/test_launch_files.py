"""Launch files as people have them, each with the truth worked out by hand: no difference may be silent.

What a file leaves to the command line is given beside it, as a user would. Weights are of the model's own formula
(GPT: 12 L h^2 + 13 L h + (V + S) h + 2 h) or as published; batches, chips and degrees by the tool's documentation.
"""

from pathlib import Path
from typing import Any

import pytest

from foretell.api.launches import LaunchQuestion, read_launch, read_question
from foretell.catalog import model as catalog_model
from foretell.interop.launch import TOOLS
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.model import Model
from foretell.specs.plan import parse_plan
from foretell.workload.parameters import count

FOLDER = Path(__file__).parent / "launches"
LLAMA_8B = 8_030_261_248
Truth = dict[str, Any]

TRAINED: dict[str, tuple[dict[str, Any], Truth]] = {
    "megatron_gpt3_175b.sh": ({}, {
        "tool": "megatron", "weights": 174_615_846_912, "gpus": 1024, "batch": 1536, "seq_len": 2048,
        "tp": 8, "pp": 16, "vpp": 1, "dp": 8, "zero": 1, "micro_batch": 1, "precision": "bf16", "sp": True}),
    "megatron_llama3_8b_fp8.slurm": ({}, {
        "tool": "megatron", "model": "llama-3-8b", "weights": LLAMA_8B, "gpus": 32, "batch": 128, "seq_len": 8192,
        "tp": 1, "cp": 2, "dp": 16, "zero": 1, "precision": "fp8", "gather": "fp8", "system": "h100-sxm"}),
    "megatron_mixtral.sh": ({}, {
        "tool": "megatron", "weights": 46_702_792_704, "gpus": 64, "batch": 256, "seq_len": 4096, "tp": 1, "pp": 4,
        "vpp": 1, "dp": 16, "ep": 8, "etp": 1, "zero": 1, "precision": "bf16", "experts": 8}),
    "megatron_deepseek_layout.sh": ({}, {
        "tool": "megatron", "gpus": 1024, "batch": 8192, "seq_len": 4096, "tp": 1, "pp": 8, "vpp": 4, "dp": 128,
        "ep": 64, "etp": 1, "zero": 1, "layout": "3,2*29,0*2", "dispatch": "dedup", "recompute": "up+mlp",
        "precision": "bf16", "experts": 256, "layers": 61}),
    "megatron_405b_first_last.sh": ({}, {
        "tool": "megatron", "model": "llama-3.1-405b", "weights": 405_853_388_800, "gpus": 512, "batch": 256,
        "seq_len": 8192, "tp": 8, "pp": 16, "dp": 4, "layout": "even", "layers": 126, "tp_overlap": "on"}),
    "megatron_bridge_overrides.sh": ({}, {
        "tool": "megatron", "model": "qwen3-32b", "gpus": 32, "batch": 256, "seq_len": 4096, "tp": 8, "dp": 4,
        "zero": 1, "micro_batch": 1, "precision": "bf16", "gradients": "bf16", "sp": True}),
    "megatron_no_global_batch.sh": ({}, {
        "tool": "megatron", "model": "megatron-48x6144", "weights": 22_561_861_632, "gpus": 128, "batch": 8,
        "seq_len": 4096, "tp": 4, "pp": 4, "dp": 8, "zero": 1, "precision": "fp16", "recompute": "selective"}),
    "nemo_llama2_70b.yaml": ({}, {
        "tool": "nemo", "weights": 68_989_231_104, "gpus": 128, "batch": 512, "seq_len": 4096, "tp": 8, "pp": 4,
        "vpp": 5, "dp": 4, "zero": 1, "micro_batch": 1, "precision": "bf16", "sp": True}),
    "torchtitan_llama3_8b.toml": ({"gpus": 8}, {
        "tool": "torchtitan", "model": "llama-3.1-8b", "weights": LLAMA_8B, "gpus": 8, "batch": 8, "seq_len": 8192,
        "tp": 1, "dp": 8, "zero": 3, "micro_batch": 1, "recompute": "products", "fused": True}),
    "torchtitan_minus_one.toml": ({"gpus": 64}, {
        "tool": "torchtitan", "gpus": 64, "batch": 32, "seq_len": 4096, "tp": 2, "dp": 32, "zero": 3,
        "micro_batch": 1, "recompute": "full", "fused": False}),
    "torchtitan_70b_flags.sh": ({}, {
        "tool": "torchtitan", "model": "llama-3.1-70b", "gpus": 64, "batch": 64, "seq_len": 8192, "tp": 4,
        "dp": 16, "zero": 3, "micro_batch": 4, "recompute": "full", "fused": True}),
    "torchtitan_config.py": ({}, {
        "tool": "torchtitan", "model": "qwen3-32b", "gpus": 128, "batch": 256, "seq_len": 4096, "tp": 4, "pp": 2,
        "dp": 16, "zero": 3, "shard": 8, "micro_batch": 2, "recompute": "full", "layout": "even"}),
    "deepspeed_zero3.json": ({"gpus": 64, "model": "llama-3.1-8b", "seq_len": 4096}, {
        "tool": "deepspeed", "gpus": 64, "batch": 512, "seq_len": 4096, "dp": 64, "zero": 3, "micro_batch": 2,
        "precision": "bf16"}),
    "deepspeed_launch.sh": ({"model": "llama-3.1-8b", "seq_len": 2048}, {
        "tool": "deepspeed", "gpus": 32, "batch": 128, "dp": 32, "zero": 2, "micro_batch": 2, "precision": "fp16",
        "offload": "optimizer"}),
    "accelerate_fsdp2.yaml": ({"model": "qwen3-8b", "plan": "mbs1"}, {
        "tool": "accelerate", "gpus": 16, "batch": 16, "dp": 16, "zero": 3, "recompute": "full",
        "precision": "bf16", "micro_batch": 1}),
    "accelerate_zero3.yaml": ({"model": "qwen3-8b", "plan": "mbs2"}, {
        "tool": "accelerate", "gpus": 8, "batch": 128, "dp": 8, "zero": 3, "micro_batch": 2, "precision": "bf16"}),
    "trl_sft.sh": ({}, {
        "tool": "trl", "model": "qwen3-8b", "gpus": 8, "batch": 128, "seq_len": 4096, "dp": 8, "zero": 0,
        "micro_batch": 2, "recompute": "full", "precision": "bf16"}),
    "trl_lora.yaml": ({"gpus": 8}, {
        "tool": "trl", "model": "llama-3.1-8b", "gpus": 8, "batch": 64, "seq_len": 2048, "micro_batch": 4,
        "lora": 32, "adapters": "all", "recompute": "none", "precision": "bf16", "zero": 0}),
    "trainer_clm.sh": ({}, {
        "tool": "trainer", "model": "llama-3.2-1b", "gpus": 4, "batch": 64, "seq_len": 2048, "micro_batch": 8,
        "recompute": "full", "precision": "bf16", "zero": 0}),
    "axolotl_lora.yml": ({"gpus": 8}, {
        "tool": "axolotl", "model": "llama-3.1-8b", "gpus": 8, "batch": 64, "seq_len": 4096, "micro_batch": 2,
        "lora": 16, "adapters": "all", "optimizer": "adam8bit", "recompute": "full", "precision": "bf16"}),
    "axolotl_fft_zero3.yml": ({"gpus": 16}, {
        "tool": "axolotl", "model": "qwen3-14b", "gpus": 16, "batch": 16, "seq_len": 8192, "micro_batch": 1,
        "zero": 3, "recompute": "full", "precision": "bf16", "lora": 0}),
    "llamafactory_full.yaml": ({"gpus": 8}, {
        "tool": "llamafactory", "model": "qwen2.5-7b", "gpus": 8, "batch": 16, "seq_len": 4096, "micro_batch": 1,
        "zero": 3, "recompute": "full", "precision": "bf16", "lora": 0}),
    "llamafactory_lora.yaml": ({"gpus": 4}, {
        "tool": "llamafactory", "model": "llama-3-8b", "gpus": 4, "batch": 32, "seq_len": 2048, "micro_batch": 1,
        "lora": 8, "adapters": "all", "recompute": "full", "zero": 0, "precision": "bf16"}),
    "torchtune_full.yaml": ({"gpus": 8}, {
        "tool": "torchtune", "model": "llama-3.1-8b", "gpus": 8, "batch": 64, "seq_len": 8192, "micro_batch": 2,
        "zero": 3, "recompute": "full", "precision": "bf16", "master": "none"}),
    "litgpt_pretrain.yaml": ({}, {
        "tool": "litgpt", "model": "llama-3.2-1b", "gpus": 16, "batch": 512, "seq_len": 2048, "micro_batch": 4,
        "zero": 3, "precision": "bf16"}),
    "nanotron_1b.yaml": ({}, {
        "tool": "nanotron", "weights": 1_235_814_400, "gpus": 64, "batch": 512, "seq_len": 4096, "tp": 2, "pp": 2,
        "dp": 16, "zero": 1, "micro_batch": 4, "sp": True, "gradients": "fp32", "precision": "bf16"}),
    "maxtext_llama2_70b.sh": ({"gpus": 64}, {
        "tool": "maxtext", "model": "llama-2-70b", "gpus": 64, "batch": 128, "seq_len": 4096, "tp": 4, "dp": 16,
        "zero": 3, "recompute": "full", "precision": "bf16"}),
    "verl_grpo.sh": ({}, {
        "tool": "verl", "model": "qwen3-8b", "gpus": 8, "batch": 1280, "seq_len": 1536, "micro_batch": 32,
        "zero": 3, "recompute": "full",
        "post": {"algorithm": "grpo", "prompts": 1024, "samples": 5, "isl": 512, "max_osl": 1024, "updates": 4,
                 "rollout_plan": "tp2 memory_fraction=0.6"}}),
    "nemo_rl_grpo.yaml": ({}, {
        "tool": "nemo-rl", "model": "llama-3.1-8b", "gpus": 16, "batch": 512, "seq_len": 4096, "micro_batch": 1,
        "tp": 2, "dp": 8, "zero": 3, "recompute": "full",
        "post": {"algorithm": "grpo", "prompts": 64, "samples": 16, "max_osl": 2048, "updates": 2}}),
    "openrlhf_ppo.sh": ({}, {
        "tool": "openrlhf", "model": "llama-3.1-8b", "gpus": 8, "batch": 128, "seq_len": 2048, "micro_batch": 4,
        "zero": 3, "recompute": "full", "offload": "optimizer",
        "post": {"prompts": 128, "samples": 8, "isl": 1024, "max_osl": 1024, "updates": 8}}),
    "skypilot_torchtitan.yaml": ({}, {
        "tool": "torchtitan", "model": "llama-3.1-8b", "gpus": 32, "batch": 32, "seq_len": 4096, "dp": 32,
        "zero": 3, "micro_batch": 1, "recompute": "products", "system": "h100-sxm"}),
    "kubernetes_pytorchjob.yaml": ({}, {
        "tool": "megatron", "model": "llama-3.1-70b", "gpus": 32, "batch": 128, "seq_len": 8192, "tp": 8, "dp": 4,
        "zero": 1, "precision": "bf16", "sp": True, "system": "h200-sxm"}),
}  # fmt: skip
SERVED: dict[str, Truth] = {
    "vllm_70b.sh": {"tool": "vllm", "model": "llama-3.1-70b", "gpus": 4, "tp": 4, "kv": "fp8", "max_batch": 256,
                    "max_tokens": 8192, "memory_fraction": 0.92},
    "vllm_deepseek.yaml": {"tool": "vllm", "model": "deepseek-v3", "gpus": 16, "tp": 1, "dp": 16, "ep": 16,
                           "max_batch": 1024},
    "sglang_deepep.sh": {"tool": "sglang", "model": "deepseek-v3", "gpus": 16, "tp": 1, "dp": 16, "ep": 16,
                         "max_batch": 512, "max_tokens": 4096},
    "sglang_8b.sh": {"tool": "sglang", "model": "llama-3.1-8b", "gpus": 4, "tp": 2, "weights": "fp8", "kv": "fp8"},
    "trtllm_qwen.sh": {"tool": "trtllm", "model": "qwen3-235b-a22b", "gpus": 8, "tp": 1, "dp": 8, "ep": 8,
                       "kv": "fp8", "max_batch": 1024, "memory_fraction": 0.85},
    "dynamo_vllm.sh": {"tool": "vllm", "model": "qwen3-32b", "gpus": 2, "tp": 2, "kv": "fp8", "max_batch": 128},
    "llmd_values.yaml": {"tool": "llm-d", "model": "llama-3.1-70b", "gpus": 8, "tp": 4},
    "tgi.sh": {"tool": "tgi", "model": "llama-3.1-8b", "gpus": 2, "tp": 2, "weights": "fp8", "max_batch": 128},
    "llama_cpp.sh": {"tool": "llama.cpp", "model": "qwen3-8b", "gpus": 1, "weights": "int4", "max_batch": 4},
    "skypilot_vllm.yaml": {"tool": "vllm", "model": "llama-3.1-8b", "gpus": 2, "tp": 2,
                           "system": "a100-sxm-80gb"},
    "kubernetes_vllm.yaml": {"tool": "vllm", "model": "mistral-7b-v0.3", "gpus": 1, "tp": 1, "max_tokens": 1024,
                             "system": "h100-sxm"},
}  # fmt: skip


def question(name: str, beside: dict[str, Any], *, serving: bool) -> LaunchQuestion:
    return read_question(FOLDER / name, {"model": None, "plan": None, **beside}, serving=serving)


def shape(asked: LaunchQuestion) -> Model:
    given = asked.arguments["model"]
    return given if isinstance(given, Model) else catalog_model(given)


def test_every_file_has_its_truth_and_every_tool_a_file() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {*TRAINED, *SERVED}
    assert len(names) >= 40
    read = {truth["tool"] for _, truth in TRAINED.values()} | {truth["tool"] for truth in SERVED.values()}
    assert read == {*TOOLS} - {"dynamo"}  # which is read as the engine inside it


@pytest.mark.parametrize("name", TRAINED)
def test_training(name: str) -> None:
    beside, truth = TRAINED[name]
    asked = question(name, beside, serving=False)
    launch, told = asked.launch, asked.arguments
    assert (launch.tool, launch.unknown, launch.doubts) == (truth["tool"], (), ())
    plan = parse_plan(told["plan"], launch.gpus)
    model = shape(asked)
    found: Truth = {
        "tool": launch.tool, "gpus": launch.gpus, "batch": told.get("global_batch"),
        "seq_len": told.get("seq_len"), "model": model.id, "weights": count(model).total,
        "layers": len(model.stack.layers), "system": told.get("system"),
        "experts": getattr(model.stack.layers[-1].ffn, "experts", 0),
    }  # fmt: skip
    for key, value in truth.items():
        if key == "post":
            assert launch.post_training is not None
            assert {k: launch.post_training[k] for k in value} == value
        else:
            assert found.get(key, getattr(plan, key, None)) == value, key
    # dp, tp, pp and cp make up the chips, and every word of the plan says where it comes from.
    assert plan.gpus == launch.gpus
    assert {row.name for row in asked.rows} >= {"model", "parameters", "gpus", "global_batch", "seq_len", "zero"}
    assert all(row.key for row in asked.rows if row.origin == "file"), asked.rows


@pytest.mark.parametrize("name", SERVED)
def test_serving(name: str) -> None:
    truth = SERVED[name]
    asked = question(name, {}, serving=True)
    launch, told = asked.launch, asked.arguments
    assert (launch.tool, launch.unknown, launch.doubts) == (truth["tool"], (), ())
    deployment = parse_deployment(told["plan"])
    found: Truth = {"tool": launch.tool, "gpus": launch.gpus, "model": shape(asked).id, "system": told.get("system")}
    for key, value in truth.items():
        assert found.get(key, getattr(deployment, key, None)) == value, key


@pytest.mark.parametrize("name", [*TRAINED, *SERVED])
def test_lines_are_those_of_the_file(name: str) -> None:
    """The line of a value has its argument, in one of its spellings."""
    beside, _ = TRAINED.get(name, ({}, {}))
    kept = {key: value for key, value in beside.items() if key in ("model", "gpus", "plan")}
    launch = read_launch(FOLDER / name, **kept)
    lines = (FOLDER / name).read_text().splitlines()
    for row in launch.values:
        if row.line is not None:
            last = row.key.split(", ")[0].rpartition(".")[2]
            near = lines[row.line - 1].lower().replace("-", "_")
            assert any(part.rpartition(".")[2].lower() in near for part in row.key.split(", ")), (row, last, near)
