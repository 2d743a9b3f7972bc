"""Programs that train and serve nothing are refused; adapters behind a switch; blanks to fill in."""

import pytest

from foretell.api.launches import read_launch
from foretell.errors import BadInput

PRETRAIN = (
    "pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
    "--seq-length 64 --micro-batch-size 1 --global-batch-size 8"
)
NEMO_RL = (
    "policy:\n  model_name: meta-llama/Llama-3.1-8B\n  train_global_batch_size: 128\n"
    "  max_total_sequence_length: 4096\n"
    "  dtensor_cfg: {enabled: false}\n  generation:\n    vllm_kwargs: {moe_backend: triton}\n"
    "  megatron_cfg: {enabled: true, peft: {enabled: %s, dim: 128}}\nsft: {max_num_steps: 9}\n"
    "cluster: {gpus_per_node: 8, num_nodes: 1}\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "swift deploy --model Qwen/Qwen3-8B --infer_backend sglang --sglang_tp_size 2",
        "swift infer --adapters out/checkpoint-1 --stream true --max_batch_size 1",
        "llamafactory-cli export --model_name_or_path Qwen/Qwen3-8B --template qwen --export_dir out",
        "python tools/preprocess_data.py --input a.json --tokenizer-type GPT2BPETokenizer --workers 8",
        "python3 -m verl.trainer.main_generation trainer.n_gpus_per_node=8 model.path=Qwen/Qwen3-8B",
        "torchrun --nproc_per_node 8 -m examples.inference.offline_inference --tensor-model-parallel-size 2",
        "torchrun --nproc_per_node 8 tasks/msdp/main.py --tensor-model-parallel-size 2 --bf16",
        "python -m openrlhf.cli.serve_rm --reward_pretrain OpenRLHF/Llama-3-8b-rm-700k --port 5000 --bf16",
        "model:\n  model_name: Qwen/Qwen3-8B\n\nengine: VLLM\ngeneration: {max_new_tokens: 64}\n",
        "infinity_emb v2 --model-name-or-path BAAI/bge-small-en-v1.5 --port 80",
        "torchrun examples/export/text_generation_ptq.py --calib-batch-size 4 --tensor-model-parallel-size 2",
        "helm install vllm vllm/vllm-stack -f values.yaml",
        "python3 entrypoints/launch.py --model_path /models/HunyuanDiT-v1.2-Diffusers",
    ],
)
def test_another_verb_of_a_trainer_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_launch(text)


@pytest.mark.parametrize(
    "text",
    [
        f"torchrun --nproc_per_node 8 {PRETRAIN.replace('_gpt', '_t5')} --decoder-seq-length 32 --bf16",
        f"torchrun --nproc_per_node 8 {PRETRAIN} --hybrid-override-pattern M-M*- --bf16",
        f"torchrun --nproc_per_node 8 {PRETRAIN.replace('pretrain_gpt', 'examples/multimodal/train')} --bf16",
    ],
)
def test_another_network_than_a_decoder_is_asked_for(text: str) -> None:
    launch = read_launch(text)
    assert launch.table is None
    assert any("MODEL" in ask for ask in launch.asks)


@pytest.mark.parametrize(("enabled", "there"), [("true", True), ("false", False)])
def test_adapters_behind_a_switch(enabled: str, there: bool) -> None:
    launch = read_launch(NEMO_RL % enabled)
    assert ("lora=128" in launch.plan.split()) is there
    assert "policy.generation.vllm_kwargs.moe_backend" in launch.unmodelled
    assert not launch.not_understood


def test_places_that_the_user_fills_in_are_asked_for() -> None:
    launch = read_launch(
        "#!/bin/bash\n#SBATCH --nodes=your_own_num_nodes\n#SBATCH --ntasks-per-node=<tasks>\n"
        f"#SBATCH --gres=gpu:your_own_gpus\nsrun python {PRETRAIN}\n"
    )
    assert launch.gpus is None
    assert any("your_own" in ask and "--gpus" in ask for ask in launch.asks)


@pytest.mark.parametrize(
    "name", ["/path/to/hf_checkpoint", "YOUR_MODEL", "<your-org/model>", "/mnt/models"]
)
def test_a_name_that_stands_for_a_model_is_asked_for(name: str) -> None:
    launch = read_launch(f"vllm serve '{name}' --tensor-parallel-size 2")
    assert any("MODEL" in ask for ask in launch.asks)


def test_keys_of_one_trainer_say_which_of_them_runs() -> None:
    launch = read_launch(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct "
        "actor_rollout_ref.actor.ppo_mini_batch_size=256 trainer.n_gpus_per_node=8 "
        "actor_rollout_ref.rollout.n=5 actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"
    )
    assert {"tp2", "dp4", "framework=megatron-core"} <= {*launch.plan.split()}


def test_an_engine_with_a_section_of_its_own_is_read_there() -> None:
    launch = read_launch(
        NEMO_RL.replace(
            "vllm_kwargs: {moe_backend: triton}", f"backend: trtllm\n    {ENGINES}"
        ).replace(
            "sft: {max_num_steps: 9}",
            "grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 8}",
        )
        % "false"
    )
    assert launch.post_training is not None
    assert launch.post_training["rollout_plan"] == "tp4 memory_fraction=0.7"


ENGINES = (
    "vllm_cfg: {tensor_parallel_size: 1, gpu_memory_utilization: 0.6}\n"
    "    trtllm_cfg: {tensor_parallel_size: 4, gpu_memory_utilization: 0.7}"
)


def test_easyr1_is_not_verl_and_an_unknown_adapter_is_said() -> None:
    easy = "python3 -m verl.trainer.main config=a/config.yaml worker.actor.model.model_path=Qwen/Qwen3-8B"
    assert read_launch(easy).tool == "easyr1"
    swift = read_launch(
        "NPROC_PER_NODE=2 swift sft --model Qwen/Qwen3-8B --tuner_type reft --dataset d --max_length 2048"
    )
    assert any("reft" in doubt for doubt in swift.not_understood)


def test_colossal_chat_and_a_dense_model_of_one_expert() -> None:
    chat = read_launch(
        "colossalai run --nproc_per_node 4 train_sft.py --pretrain meta-llama/Llama-3.1-8B "
        "--tokenizer_dir t --dataset d --plugin zero2 --batch_size 8 --max_len 4096 --grad_checkpoint"
    )
    assert (chat.tool, chat.seq_len) == ("colossalai", 4096)
    assert {"zero2", "mbs8", "recompute=full"} <= {*chat.plan.split()}
    dense = read_launch(
        f"torchrun --nproc_per_node 4 {PRETRAIN} --num-experts 1 --topk 2 --vocab-size 100"
    )
    assert dense.table is not None
    assert not dense.not_understood


def test_of_many_open_values_those_of_the_plan_are_one_question() -> None:
    launch = read_launch(
        "torchrun --nproc_per_node $NGPU train.py --deepspeed $DS --per_device_train_batch_size $MBS "
        "--lora_r $R --gradient_accumulation_steps $STEPS --model_name_or_path $MODEL --bf16 true "
        "--model_max_length $LENGTH"
    )
    assert len(launch.asks) <= 5
    joined = next(ask for ask in launch.asks if "words of --plan" in ask)
    assert {"MBS", "STEPS"} <= {*joined.replace(",", "").split()}


def test_the_gpus_of_a_node_that_a_hybrid_strategy_needs_are_asked_for() -> None:
    launch = read_launch(
        "fsdp: hybrid_shard auto_wrap\nmodel_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\n"
        "gradient_checkpointing: true\nbf16: true\nmax_length: 2048\nlearning_rate: 1e-5\noutput_dir: o\n"
    )
    assert any("hybrid sharding" in ask for ask in launch.asks)
    assert not launch.not_understood


@pytest.mark.parametrize(
    ("first", "more", "used"),
    [
        ('ARGS="--bf16"', 'ARGS="$ARGS {}"', "$ARGS"),
        ("ARGS=(--bf16)", "ARGS+=({})", '"${ARGS[@]}"'),
    ],
)
@pytest.mark.parametrize(("flags", "asks"), [("--recompute-granularity full", 1), ("--save /x", 0)])
def test_flags_behind_an_undecided_test_are_asked_for(
    first: str, more: str, used: str, flags: str, asks: int
) -> None:
    told = more.format(flags)
    launch = read_launch(
        f"#!/bin/bash\n{first}\nif [ $(hostname) == foo ]; then\n  {told}\nfi\n"
        f"torchrun --nproc_per_node 8 {PRETRAIN} {used}\n"
    )
    assert "precision=bf16" in launch.plan.split()
    assert sum("line 3" in ask for ask in launch.asks) == asks


def test_a_comment_that_ends_a_command_is_told() -> None:
    text = (
        "#!/bin/bash\npython3 -m verl.trainer.main_ppo data.train_batch_size=64 \\\n"
        "    actor_rollout_ref.model.path=Qwen/Qwen3-8B \\\n    # where it is saved\n"
        "    trainer.n_gpus_per_node=4 \\\n    trainer.nnodes=2\n"
    )
    (doubt,) = read_launch(text).doubts
    assert doubt.startswith("a comment in line 4 ends the command: trainer.n_gpus_per_node")
    inside = (
        "#!/bin/bash\nARGS=(\n  --bf16 \\\n  # a comment in an array\n  --micro-batch-size 2\n)\n"
    )
    array = read_launch(f"{inside}torchrun --nproc_per_node 8 pretrain_gpt.py ${{ARGS[@]}}\n")
    assert array.doubts == ()


def test_frozen_layers_stop_a_training() -> None:
    text = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen3-8B --freeze_llm {}"
    assert any("freeze_llm" in doubt for doubt in read_launch(text.format("True")).doubts)
    assert read_launch(text.format("False")).doubts == ()


def test_servers_of_a_trainer_are_no_training() -> None:
    text = "uv run -m skyrl.train.entrypoints.serve trainer.policy.model.path=Qwen/Qwen2.5-1.5B"
    with pytest.raises(BadInput):
        read_launch(text)


def test_an_open_number_of_processes_is_asked_for_and_not_the_default_of_the_tool() -> None:
    text = (
        "torchrun --standalone --nproc_per_node=$1 -m verl.trainer.fsdp_sft_trainer "
        "model.partial_pretrain=google/gemma-2b-it data.micro_batch_size=8"
    )
    launch = read_launch(f"#!/bin/bash\n{text}\n")
    assert launch.gpus is None
    assert any("--gpus" in ask for ask in launch.asks)


def test_what_a_launcher_file_decides_is_asked_for() -> None:
    launch = read_launch(
        "accelerate launch --config_file fsdp2.yaml --num_processes 8 train.py "
        "--model_name_or_path openai/gpt-oss-20b --per_device_train_batch_size 2"
    )
    assert "precision=" not in launch.plan
    assert any("precision, which fsdp2.yaml may state" in ask for ask in launch.asks)


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nprco_per_node 8 pretrain_gpt.py --bf16 --seq-length 64",
        "#!/bin/bash\n#SBATCH --gpus-pre-node=8\ntorchrun pretrain_gpt.py --bf16 --seq-length 64",
    ],
)
def test_options_that_a_launcher_does_not_have_are_named(text: str) -> None:
    launch = read_launch(text)
    assert any("nprco_per_node" in one or "gpus_pre_node" in one for one in launch.doubts)


def test_nodes_alone_are_no_gpus_where_another_file_has_those_of_a_node() -> None:
    launch = read_launch(
        "defaults: ../grpo.yaml\npolicy:\n  model_name: Qwen/Qwen3-8B\n  megatron_cfg:\n"
        "    tensor_model_parallel_size: 2\ngrpo:\n  num_prompts_per_step: 64\ncluster:\n  num_nodes: 4\n"
    )
    assert launch.gpus is None


def test_a_stage_that_is_asked_for_has_no_value() -> None:
    launch = read_launch(
        "deepspeed --num_gpus 8 train.py --deepspeed_config config/mine.json --model_name_or_path gpt2 "
        "--per_device_train_batch_size 2"
    )
    assert any("zero in --plan" in ask for ask in launch.asks)
    assert not {"zero0", "precision=fp32"} & {*launch.plan.split()}


def test_a_key_of_a_chart_that_no_list_has_is_named() -> None:
    launch = read_launch(
        "servingEngineSpec:\n  modelSpec:\n  - name: m\n    modelURL: Qwen/Qwen3-8B\n    requestGPU: 1\n"
        "    replicaCount: 1\n    vllmConfig:\n      maxModelLen: 4096\n      maxNumberSeqs: 64\n"
    )
    assert any("max" in one and "number" in one for one in (*launch.doubts, *launch.unknown))
