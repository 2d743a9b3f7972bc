"""What a launch trains with, and on what: cases that 40 further public repositories showed, each held here.

The method is that of the program, of a key or of a section; where none of them says it, it is not made up.
"""

from pathlib import Path
from typing import Any

import pytest

from foretell import BadInput, read_launch
from foretell.api.launches import read_question
from foretell.interop.huggingface import read_model
from foretell.interop.launch import Launch
from foretell.workload.parameters import count


def read(folder: Path, text: str, name: str = "launch.yaml") -> Launch:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_launch(path)


def method(launch: Launch) -> Any:
    return (launch.post_training or {}).get("algorithm")


TRL = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 8\nmax_length: 1024\nbf16: true\n"


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ("packing: true\n", "sft"),
        ("beta: 0.01\nmax_prompt_length: 512\n", "dpo"),
        ("beta: 0.01\nnum_generations: 8\nmax_completion_length: 512\n", "grpo"),
        ("trainer_type: kto\n", "kto"),
        ("trainer_type: orpo\n", "orpo"),
    ],
)
def test_the_method_of_trl_by_the_keys_that_it_alone_has(
    tmp_path: Path, more: str, kind: str
) -> None:
    launch = read(tmp_path, TRL + more)
    assert method(launch) == kind
    assert any("says that the method" in note for note in launch.notes) == (kind in ("dpo", "grpo"))


def test_a_loss_of_pairs_is_the_method_of_llama_factory(tmp_path: Path) -> None:
    own = "model_name_or_path: Qwen/Qwen3-8B\nstage: dpo\nfinetuning_type: full\ncutoff_len: 2048\n"
    found = [
        method(read(tmp_path, own + loss))
        for loss in ("", "pref_loss: sigmoid\n", "pref_loss: simpo\n")
    ]
    assert found == ["dpo", "dpo", "simpo"]


def test_a_command_of_the_shell_is_no_method(tmp_path: Path) -> None:
    text = (
        "tune run --nproc_per_node 8 lora_finetune_distributed --config llama3_1/8B_lora\n"
        "rm /tmp/model/*.pt\n"
    )
    assert method(read(tmp_path, text, "run.sh")) == "sft"


@pytest.mark.parametrize(("program", "kind"), [("train_kto", "kto"), ("train_dpo", "dpo")])
def test_programs_of_openrlhf(tmp_path: Path, program: str, kind: str) -> None:
    text = (
        f"deepspeed --num_gpus 8 --module openrlhf.cli.{program} --pretrain Qwen/Qwen3-8B "
        "--train_batch_size 64 --micro_train_batch_size 1 --max_len 8192 --zero_stage 3\n"
    )
    launch = read(tmp_path, text, "run.sh")
    assert (launch.tool, method(launch), launch.global_batch) == ("openrlhf", kind, 64)


def test_step_two_of_deepspeed_chat_is_a_reward_model(tmp_path: Path) -> None:
    text = (
        "deepspeed --num_gpus 8 main.py --data_split 2,4,4 --model_name_or_path facebook/opt-350m "
        "--num_padding_at_beginning 1 --per_device_train_batch_size 4 --zero_stage 0\n"
    )
    assert method(read(tmp_path, text, "run.sh")) == "reward"


def test_overrides_without_a_section_name_no_method(tmp_path: Path) -> None:
    own = "defaults: ./parent.yaml\npolicy:\n  dtensor_cfg:\n    tensor_parallel_size: 2\n"
    assert method(read(tmp_path, own)) is None
    assert method(read(tmp_path, own + "grpo:\n  num_prompts_per_step: 8\n")) == "grpo"
    assert method(read(tmp_path, own + "dpo:\n  max_num_steps: 8\n")) == "dpo"
    few = read(tmp_path, "defaults: ./parent.yaml\ncheckpointing:\n  checkpoint_dir: results\n")
    assert (few.tool, method(few)) == ("nemo-rl", None)


PRIME = """
[model]
name = "Qwen/Qwen3-0.6B"
[orchestrator]
batch_size = 128
group_size = 16
[orchestrator.algo]
type = "KIND"
[orchestrator.sampling]
max_tokens = 128
"""
NEOX = """
{"train_impl": "dpo", "rotary_pct": 1, "no_weight_tying": true, "pipe_parallel_size": 0,
 "model_parallel_size": 4,
 "num_layers": 32,
 "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 1024, "train_micro_batch_size_per_gpu": 4}
"""
DISTILLED = """
distillation: {num_prompts_per_step: 128}
policy: {model_name: Qwen/Qwen3-1.7B-Base, train_global_batch_size: 64, max_total_sequence_length: 4096}
"""


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (PRIME.replace("KIND", "opd"), "rl.toml", "orchestrator.algo.type opd"),
        (NEOX, "neox.yml", "train_impl dpo"),
        (DISTILLED, "distillation.yaml", "distillation"),
    ],
)
def test_steps_that_are_not_computed_stop(tmp_path: Path, text: str, name: str, why: str) -> None:
    doubts = read(tmp_path, text, name).doubts
    assert [one for one in doubts if why in one and "another step" in one]


def test_a_loop_that_is_grpo_in_other_words_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, PRIME.replace("KIND", "max_rl"), "rl.toml").doubts == ()


def test_a_program_that_generates_alone_is_refused(tmp_path: Path) -> None:
    text = "model_name_or_path: Qwen/Qwen3-4B\ntemplate: qwen3\ninfer_backend: vllm\n"
    with pytest.raises(BadInput):
        read(tmp_path, text)


def test_the_rank_of_a_programs_own_adapters_is_asked_for(tmp_path: Path) -> None:
    text = (
        "python finetune.py --model_name_or_path Qwen/Qwen-7B --bf16 True "
        "--per_device_train_batch_size 2 --model_max_length 512 --use_lora\n"
    )
    launch = read(tmp_path, text, "run.sh")
    assert "lora" not in launch.plan
    assert any("lora in --plan" in ask for ask in launch.asks)


def test_rows_of_a_list_are_one_key(tmp_path: Path) -> None:
    rows = "".join(
        f"    - id: set/{at}\n      config: default\n      split: train\n      weight: 1.0\n"
        for at in range(30)
    )
    launch = read(tmp_path, f"{TRL}dataset_mixture:\n  datasets:\n{rows}")
    assert (launch.tool, launch.seq_len) == ("trainer", 1024)


def test_an_array_without_elements_is_no_word_of_a_command(tmp_path: Path) -> None:
    text = (
        'PROFILE=()\nPREFIX="uv run"\n$PREFIX "${PROFILE[@]}" python -m torch.distributed.run '
        "--nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
        "--seq-length 4096 --micro-batch-size 1 --global-batch-size 128\n"
    )
    assert read(tmp_path, text, "run.sh").gpus == 8


def test_degrees_inside_an_unknown_value_stop(tmp_path: Path) -> None:
    text = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 128 "
        '--component "language=tp=4,pp=2"\n'
    )
    assert any("component sets degrees" in one for one in read(tmp_path, text, "run.sh").doubts)


def test_an_engine_elsewhere_has_gpus_that_are_asked_for(tmp_path: Path) -> None:
    text = (
        "python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen3-8B "
        "trainer.placement.colocate_all=False trainer.placement.policy_num_gpus_per_node=4 "
        "trainer.policy_mini_batch_size=64 generator.n_samples_per_prompt=5\n"
    )
    asks = read(tmp_path, text, "run.sh").asks
    assert "the GPUs that generate are not in the file: --rollout-gpus" in asks


POD = """
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  containers:
  - name: vllm
    image: vllm/vllm-openaiKIND:v0.23.0
    args: [--model, Qwen/Qwen3-8B]
"""


@pytest.mark.parametrize(("kind", "stops"), [("", False), ("-cpu", True)])
def test_a_server_on_processors_alone_stops(tmp_path: Path, kind: str, stops: bool) -> None:
    launch = read(tmp_path, POD.replace("KIND", kind))
    assert bool(launch.doubts) is stops


def test_values_of_a_chart_refer_to_each_other(tmp_path: Path) -> None:
    text = (
        "modelArtifacts:\n  name: Qwen/Qwen3-8B\n  uri: 'hf://{{ .Values.modelArtifacts.name }}'\n"
        "accelerator:\n  type: nvidia\ndecode:\n  replicas: 2\n  containers:\n  - name: vllm\n"
        "    modelCommand: vllmServe\n    args: ['--max-model-len', '8192']\n"
    )
    launch = read(tmp_path, text)
    assert (launch.models, launch.gpus) == (("Qwen/Qwen3-8B",), 2)


MPT = """
max_seq_len: 2048
model: {name: mpt_causal_lm, d_model: 4096, n_heads: 32, n_layers: 32, expansion_ratio: 4,
  vocab_size: 50368}
global_train_batch_size: 1024
device_train_microbatch_size: 8
max_duration: 10ba
precision: amp_bf16
fsdp_config: {sharding_strategy: FULL_SHARD, activation_checkpointing: true}
callbacks: {speed_monitor: {window_size: 1}, lr_monitor: {}}
train_loader: {name: text, dataset: {local: a, remote: b, split: train, shuffle: true}, drop_last: true}
"""
OLMO = """
model: {d_model: 4096, n_heads: 32, n_layers: 32, mlp_hidden_size: 22016, norm_after: true,
  rope_theta: 500000,
  weight_tying: false, embedding_size: 100352, max_sequence_length: 4096}
global_train_batch_size: 1024
device_train_microbatch_size: 2
precision: amp_bf16
fsdp: {wrapping_strategy: by_block_and_size, precision: mixed}
"""


@pytest.mark.parametrize(
    ("text", "tool", "weights"),
    # As published: MPT-7B with positions for ALiBi and 50,368 rows for 50,432; OLMo 2 7B.
    [(MPT, "llm-foundry", 6_649_286_656 + (2048 - 64) * 4096), (OLMO, "olmo", 7_298_617_344)],
)
def test_models_that_a_configuration_describes(
    tmp_path: Path, text: str, tool: str, weights: int
) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(text, encoding="utf-8")
    asked = read_question(path, {"model": None, "plan": None, "gpus": 64}, serving=False)
    launch = asked.launch
    assert (launch.tool, launch.gpus, launch.global_batch, launch.doubts) == (tool, 64, 1024, ())
    assert count(read_model(launch.table or {})).total == weights
    rows = {row.name: row.origin for row in launch.values}
    assert (rows["precision"], rows["zero"]) == (
        "file",
        "file" if tool == "llm-foundry" else "tool default",
    )


KUBEAI = """
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: m}
spec:
  url: hf://org/model
  engine: VLLM
  args: [--tensor-parallel-size=8]
  minReplicas: 2
  resourceProfile: nvidia-gpu-h100:8
"""
RUNTIME = """
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata: {name: m}
spec:
  model: {modelURL: org/model, maxModelLen: 4096}
  vllmConfig: {tensorParallelSize: 2}
  deploymentConfig: {replicas: 2, resources: {gpu: '2'}}
"""
CLAIM = """
apiVersion: model.aibrix.ai/v1alpha1
kind: ModelClaim
metadata: {name: m}
spec:
  artifactURL: huggingface://org/model
  engine: vllm
  replicas: 1
  engineConfig: {args: {--max-model-len: '2048'}}
"""


@pytest.mark.parametrize(
    ("text", "gpus", "chip", "words"),
    [
        (KUBEAI, 16, "h100", "tp8 pp1"),
        (RUNTIME, 4, None, "tp2 pp1 max_context=4096"),
        (CLAIM, 1, None, "tp1 pp1 max_context=2048"),
    ],
)
def test_objects_of_operators_are_servers(
    tmp_path: Path, text: str, gpus: int, chip: str | None, words: str
) -> None:
    launch = read(tmp_path, text)
    assert (launch.tool, launch.named, launch.gpus) == ("vllm", "org/model", gpus)
    assert (launch.accelerator, launch.plan, launch.doubts) == (chip, words, ())


def test_a_default_that_depends_on_the_release_is_asked_for(tmp_path: Path) -> None:
    text = (
        "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer data.train_batch_size=1024 "
        "actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct trainer.n_gpus_per_node=8 trainer.nnodes=1 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size"
    )
    old, new = (read(tmp_path, f"{text}{end}=64", "run.sh") for end in ("", "_per_gpu"))
    assert any("tp in --plan" in ask for ask in old.asks)
    assert not {"tp1", "dp8"} & {*old.plan.split(), *(old.post_training or {})["plan"].split()}
    assert {"tp1", "dp8"} <= {*new.plan.split()}
