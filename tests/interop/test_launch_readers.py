"""Launch commands, scripts and configurations as people write them."""

import json

import pytest

from foretell.api.launches import merge_launch, read_launch
from foretell.catalog import model as catalog_model
from foretell.errors import BadInput
from foretell.interop.arguments import LARGEST_TEXT, parse_arguments
from foretell.interop.documents import read_documents
from foretell.interop.tools import read_arguments
from foretell.specs.plan import parse_plan
from foretell.workload.parameters import count

GPT3 = r"""
#!/bin/bash
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=8   # of one node
PP=${PP:-16}
MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
    --vocab-size 50257
)
TRAIN="--micro-batch-size 1 --global-batch-size 1536 --lr 6.0e-5 --bf16"
srun torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    "${MODEL_ARGS[@]}" $TRAIN \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
    --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel \
    --recompute-granularity selective --not-a-flag 3
"""


def test_a_megatron_script() -> None:
    launch = read_launch(GPT3)
    assert (launch.tool, launch.gpus, launch.global_batch, launch.seq_len) == (
        "megatron",
        512,
        1536,
        2048,
    )
    plan = parse_plan(launch.plan, launch.gpus)
    assert (plan.tp, plan.pp, plan.vpp, plan.dp, plan.sp) == (8, 16, 3, 4, True)
    assert (plan.recompute, plan.framework) == ("selective", "megatron-te")
    assert launch.unknown == ("not_a_flag",)
    assert launch.ignored == ("lr",)
    assert any("not known here: not_a_flag" in said for said in launch.said())


def test_a_model_that_arguments_describe_has_its_weights() -> None:
    table = read_launch(GPT3).table
    assert table is not None
    model = catalog_model(table)
    assert count(model).total == pytest.approx(175e9, rel=0.01)
    assert len(model.stack.layers) == 96


def test_a_mixture_that_arguments_describe() -> None:
    text = """pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --swiglu
    --num-attention-heads 32 --group-query-attention --num-query-groups 8 --normalization RMSNorm
    --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights
    --vocab-size 32000 --make-vocab-size-divisible-by 1 --num-experts 8 --moe-router-topk 2
    --expert-model-parallel-size 8 --micro-batch-size 1 --moe-layer-freq '([0]*1+[1]*31)'"""
    launch = read_launch(text)
    assert launch.table is not None
    model = catalog_model(launch.table)
    assert "ep8" in launch.plan
    dense = count(catalog_model("mixtral-8x7b")).total - 7 * 3 * 4096 * 14336 - 8 * 4096
    assert count(model).total == dense


BRIDGE = """
model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 5
  context_parallel_size: 2
  sequence_parallel: true
  seq_length: 8192
  recompute_granularity: null   # none
train: {global_batch_size: 128, micro_batch_size: 1}
ddp:
  use_distributed_optimizer: true
  grad_reduce_in_fp32: false
mixed_precision: bf16_with_fp8_current_scaling_mixed
"""


@pytest.mark.parametrize(
    "text",
    [
        BRIDGE,
        (
            "model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=2 "
            "model.virtual_pipeline_model_parallel_size=5 model.context_parallel_size=2 "
            "model.sequence_parallel=true model.seq_length=8192 train.global_batch_size=128 "
            "train.micro_batch_size=1 ddp.use_distributed_optimizer=true ddp.grad_reduce_in_fp32=False "
            "mixed_precision=bf16_with_fp8_current_scaling_mixed"
        ),
        (
            "cfg.model.tensor_model_parallel_size = 4  # said\ncfg.model.pipeline_model_parallel_size = 2\n"
            "cfg.model.virtual_pipeline_model_parallel_size = 5\ncfg.model.context_parallel_size = 2\n"
            "cfg.model.sequence_parallel = True\ncfg.model.seq_length = 8192\n"
            "cfg.train.global_batch_size = 128\n"
            "cfg.train.micro_batch_size = 1\n"
            "cfg.ddp.use_distributed_optimizer = True\n"
            "cfg.ddp.grad_reduce_in_fp32 = False\n"
            'cfg.mixed_precision = "bf16_with_fp8_current_scaling_mixed"'
        ),
    ],
    ids=["yaml", "overrides", "python"],
)
def test_megatron_bridge(text: str) -> None:
    launch = read_arguments(text)
    plan = parse_plan(launch.plan, 64)
    assert launch.tool == "megatron"
    assert (plan.tp, plan.pp, plan.vpp, plan.cp, plan.dp, plan.sp, plan.zero) == (
        4,
        2,
        5,
        2,
        4,
        True,
        1,
    )
    assert (plan.precision, plan.gradients, plan.framework) == ("fp8", "bf16", "megatron-core")
    assert (launch.global_batch, launch.seq_len) == (128, 8192)


TITAN = {
    "toml": """
        [model]
        name = "llama3"
        flavor = "8B"
        [optimizer]
        lr = 3e-4
        [training]
        local_batch_size = 2
        seq_len = 8192
        [parallelism]
        data_parallel_replicate_degree = 2
        data_parallel_shard_degree = 16
        tensor_parallel_degree = 2
        fsdp_reshard_after_forward = "never"
        [activation_checkpoint]
        mode = "full"
        [compile]
        enable = false
        """,
    "tokens": json.dumps(
        {
            "model": {"name": "llama3", "flavor": "8B"},
            "training": {
                "num_tokens_per_microbatch_per_dp_rank": 16384,
                "num_tokens_per_train_step": 64 * 8192,
                "max_context_length": 8192,
            },
            "parallelism": {
                "data_parallel_replicate_degree": 2,
                "data_parallel_shard_degree": 16,
                "tensor_parallel_degree": 2,
                "fsdp_reshard_after_forward": "never",
            },
            "activation_checkpoint": "FullAC.Config()",
            "compile": {"enable": False},
        }
    ),
    "flags": "torchrun --nproc_per_node 8 --nnodes 8 -m torchtitan.train --module llama3 --config llama3_8b "
    "--training.local-batch-size 2 --training.seq-len=8192 --parallelism.data_parallel_replicate_degree 2 "
    "--parallelism.data_parallel_shard_degree -1 --parallelism.tensor_parallel_degree 2 "
    "--parallelism.fsdp_reshard_after_forward never --activation_checkpoint.mode full --compile.enable false",
}


@pytest.mark.parametrize("form", TITAN)
def test_torchtitan(form: str) -> None:
    launch = read_launch(TITAN[form])
    assert (launch.tool, launch.gpus, launch.global_batch, launch.seq_len) == (
        "torchtitan",
        64,
        64,
        8192,
    )
    assert launch.unknown == ()
    plan = parse_plan(launch.plan, 64)
    assert (plan.tp, plan.dp, plan.zero, plan.shard, plan.reshard) == (2, 32, 3, 16, False)
    assert (plan.micro_batch, plan.recompute, plan.fused, plan.sp) == (2, "full", False, True)
    assert catalog_model(launch.models[0]).id == "llama-3.1-8b"


def test_torchtitan_rounds_tokens_to_sequences_and_says_so() -> None:
    text = (
        '{"training": {"num_tokens_per_microbatch_per_dp_rank": 10000, "max_context_length": 4096}}'
    )
    launch = read_arguments(text)
    assert "mbs2" in launch.plan
    assert any("2.44 sequences of 4096" in note for note in launch.notes)


MEGATRON_RUN = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 "
STEP = '"train_micro_batch_size_per_gpu": 2'
TITAN_RUN = "torchrun --nproc_per_node 8 -m torchtitan.train "


@pytest.mark.parametrize(
    ("text", "precision", "weights", "master", "said"),
    [
        (MEGATRON_RUN + "--bf16", "bf16", "bf16", "fp32", ""),
        (MEGATRON_RUN, "tf32", "fp32", "none", "32-bit training, GEMMs in TF32"),
        (MEGATRON_RUN + "--transformer-impl local", "fp32", "fp32", "none", "without TF32"),
        (MEGATRON_RUN + "$PRECISION", "bf16", "bf16", "fp32", "the chip's usual precision"),
        ("tensor_model_parallel_size=2 train.micro_batch_size=2", "bf16", "bf16", "fp32", "usual"),
        (f'{{{STEP}, "bf16": {{"enabled": true}}}}', "bf16", "bf16", "fp32", ""),
        (f'{{{STEP}, "bf16": {{"enabled": false}}}}', "fp32", "fp32", "none", "32-bit training"),
        (f'{{{STEP}, "zero_optimization": {{"stage": 2}}}}', "fp32", "fp32", "none", "without TF32"),
        (f'{{{STEP}, "bf16": {{"enabled": "auto"}}}}', "bf16", "bf16", "fp32", "left to the trainer"),
        ("deepspeed --num_gpus 8 train.py --deepspeed_config f.json", "bf16", "bf16", "fp32", "usual"),
        ("deepspeed --num_gpus 8 train.py --fp16 true", "fp16", "fp16", "fp32", ""),
        (
            f'{{{STEP}, "torch_autocast": {{"enabled": true, "dtype": "float16"}}}}',
            "fp16", "fp32", "none", "cast where GEMMs use them",
        ),
        (TITAN_RUN, "bf16", "bf16", "fp32", ""),
        (TITAN_RUN + "--training.dtype bfloat16", "bf16", "bf16", "none", ""),
        (
            TITAN_RUN + "--training.mixed_precision_param float32",
            "fp32", "fp32", "none", "32-bit training",
        ),
        (
            TITAN_RUN + "--parallelism.data_parallel_shard_degree 1 "
            "--parallelism.data_parallel_replicate_degree 8",
            "bf16", "fp32", "none", "without FSDP",
        ),
        (
            TITAN_RUN + "--parallelism.data_parallel_shard_degree 1 --training.local_batch_size 2 "
            "--parallelism.tensor_parallel_degree 8",
            "fp32", "fp32", "none", "no mixed precision",
        ),
    ],
)  # fmt: skip
def test_what_no_word_of_precision_means(
    text: str, precision: str, weights: str, master: str, said: str
) -> None:
    """Each tool's own default, and never silently."""
    launch = read_arguments(text)
    plan = parse_plan(launch.plan, 8)
    assert (plan.precision, plan.weights, plan.master) == (precision, weights, master)
    assert not said or any(said in note for note in launch.notes), launch.notes


def test_deepspeed_with_values_left_to_the_trainer() -> None:
    text = json.dumps(
        {
            "train_batch_size": 512,
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 4,
            "bf16": {"enabled": "auto"},
            "zero_optimization": {
                "stage": 3,
                "offload_optimizer": {"device": "cpu"},
                "zero_hpz_partition_size": 8,
                "stage3_prefetch_bucket_size": "auto",
            },
            "made_up": 1,
        }
    )
    launch = read_arguments(text)
    plan = parse_plan(launch.plan)
    assert (launch.gpus, plan.dp, plan.zero, plan.secondary, plan.offload) == (
        64,
        64,
        3,
        8,
        "optimizer",
    )
    assert launch.unknown == ("made_up",)
    assert launch.seq_len is None


def test_vllm() -> None:
    launch = read_launch(
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve --enable-expert-parallel Qwen/Qwen3-30B-A3B -tp 2 -dp=4 "
        "--max-num-seqs 64 --kv-cache-dtype fp8 --quantization fp8 --gpu-memory-utilization 0.92 --port 80 "
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 2}' --enforce-eager --new"""
    )
    assert (launch.tool, launch.gpus, launch.models) == ("vllm", 8, ("Qwen/Qwen3-30B-A3B",))
    words = set(launch.plan.split())
    assert {
        "tp2",
        "dp4",
        "ep8",
        "kv=fp8",
        "weights=fp8",
        "max_batch=64",
        "memory_fraction=0.92",
    } <= words
    assert {"draft_tokens=2", "no-graph"} <= words
    assert (launch.ignored, launch.unknown) == (("port",), ("new",))


def test_sglang_copies_and_attention_data_parallel() -> None:
    start = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --dp 4 "
    apart = read_arguments(start + "--enable-dp-attention --mem-fraction-static 0.8")
    assert (apart.gpus, apart.plan) == (16, "tp4 pp1 dp4 memory_fraction=0.8")
    copies = read_arguments(start)
    assert (copies.gpus, copies.plan) == (64, "tp16 pp1")
    assert any("4 copies" in note for note in copies.notes)


def test_trtllm_with_the_file_it_writes() -> None:
    text = """
EXTRA=/tmp/extra.yml
cat > $EXTRA << EOF
enable_attention_dp: true
cuda_graph_config:
    enable_padding: true
    batch_sizes: [1, 2, 4]
kv_cache_config:
    dtype: fp8
    free_gpu_memory_fraction: 0.8
speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}
EOF
mpirun -n 1 --allow-run-as-root trtllm-serve Qwen/Qwen3-235B-A22B --port=8000 \\
    --max_batch_size 64 --tp_size=8 --ep_size=8 --extra_llm_api_options=$EXTRA
"""
    launch = read_launch(text)
    assert (launch.tool, launch.gpus, launch.models) == ("trtllm", 8, ("Qwen/Qwen3-235B-A22B",))
    words = set(launch.plan.split())
    assert {
        "tp1",
        "dp8",
        "ep8",
        "kv=fp8",
        "max_batch=64",
        "memory_fraction=0.8",
        "draft_tokens=3",
    } <= words
    assert launch.unknown == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("x" * (LARGEST_TEXT + 1), "longer than"),
        ("hello there", "is of no tool known here"),
        ("tensor_parallel_size: 8", "could be for trtllm or vllm"),
        ("{", "is not JSON"),
        ("[a]\nb", "is not TOML"),
        ('{"zero_optimization": {"stage": 7}}', "zero_optimization.stage: is out of range"),
        (
            "pretrain_gpt.py --tensor-model-parallel-size eight",
            "tensor_model_parallel_size: is not a whole",
        ),
        ("vllm serve m -tp 0", "tp: is out of range"),
        ("vllm serve m --kv-cache-dtype fp9", "kv_cache_dtype: is none of the values"),
        (
            "vllm serve m --gpu-memory-utilization nan",
            "gpu_memory_utilization: is not a usable number",
        ),
        ("vllm serve m --speculative-config {x", "speculative_config: is not JSON"),
        (
            "enable_attention_dp: maybe\nmax_batch_size: 4",
            "enable_attention_dp: is neither true nor false",
        ),
        ("kv_cache_config: *nothing\n", "line 1"),
        (
            "a: &a [x, x]\n"
            + "".join(
                f"b{i}: &b{i} [{','.join(['*' + ('a' if i == 0 else f'b{i - 1}')] * 9)}]\n"
                for i in range(9)
            ),
            "expands to more than",
        ),
        ("kv_cache_config: !!python/object:os.system\nmax_batch_size: 2", "line 1"),
        ("no/such/file.json", "there is no such file"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_launch(text)


def test_all_faults_come_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        read_arguments("vllm serve m -tp x -pp 0 --max-num-seqs -3 --quantization what")
    assert len(caught.value.problems) == 4


def test_flags_by_hand_come_first() -> None:
    launch = read_launch(
        "pretrain_gpt.py --tensor-model-parallel-size 8 --micro-batch-size 2 --bf16 "
        "--global-batch-size 64 --nproc_per_node 8 --nnodes 4 --tokenizer-model llama-3.1-8b"
    )
    told = launch.arguments()
    assert told["gpus"] == 32
    assert told["model"] == "llama-3.1-8b"
    question = {"gpus": None, "global_batch": None, "seq_len": 4096, "plan": "tp4 recompute=full"}
    both = merge_launch(launch, None, question)
    assert (both["gpus"], both["global_batch"], both["seq_len"]) == (32, 64, 4096)
    plan = parse_plan(both["plan"], 32)
    assert (plan.tp, plan.dp, plan.micro_batch, plan.recompute) == (4, 8, 2, "full")
    more = merge_launch(launch, "llama-3.1-70b", {**question, "gpus": 64, "plan": None})
    assert (more["model"], parse_plan(more["plan"], 64).dp) == ("llama-3.1-70b", 8)


def test_yaml_of_options() -> None:
    text = "a: 1\nb:\n  c: 'x: y'  # said\n  d: [1, two, {e: 3.5}]\nf:\n- 1\n- true\ng: ~\nh: {}\n"
    assert read_documents(text)[0] == {
        "a": 1, "b": {"c": "x: y", "d": [1, "two", {"e": 3.5}]}, "f": [1, True], "g": None, "h": {},
    }  # fmt: skip
    assert parse_arguments("a: 1\nb:\n  c: 2\n").pairs == (("a", 1), ("b.c", 2))


def test_both_flags_of_recomputation_are_known() -> None:
    text = "pretrain_gpt.py --recompute-activations --recompute-granularity selective --bf16"
    launch = read_arguments(text)
    assert (launch.unknown, launch.doubts) == ((), ())
    assert "recompute=selective" in launch.plan.split()


@pytest.mark.parametrize(
    ("strategy", "nodes", "words"),
    [
        ("HYBRID_SHARD", 4, "zero3 shard=8"),
        ("4", 4, "zero3 shard=8"),
        ("HYBRID_SHARD_ZERO2", 4, "zero2 shard=8"),
        ("HYBRID_SHARD", 1, "zero3"),
        ("FULL_SHARD", 4, "zero3"),
    ],
)
def test_hybrid_sharding_is_over_a_nodes_chips(strategy: str, nodes: int, words: str) -> None:
    """torch.distributed.fsdp.ShardingStrategy: HYBRID_SHARD shards within a node and replicates across."""
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n"
        f"  fsdp_sharding_strategy: {strategy}\nnum_machines: {nodes}\nnum_processes: {8 * nodes}\n"
    )
    plan = read_arguments(text).plan.split()
    assert [word for word in plan if word.startswith(("zero", "shard"))] == words.split()


def test_a_sweep_in_a_loop_is_said() -> None:
    text = (
        "for MBS in 1 2 4; do\n  torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size $MBS --bf16 "
        "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 128 --global-batch-size 64\n"
        "done\n"
    )
    launch = read_arguments(text)
    assert "mbs1" in launch.plan.split()
    assert (
        "a loop starts 3 runs, of which the first is read (micro_batch_size: 1, 2, 4)"
        in launch.notes
    )
