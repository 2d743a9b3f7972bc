"""Every flag that is written, and every default that is read, held to the sources of pinned releases.

release_flags.json is made by tools/flag_tables.py from the archives on the package index. Where these are at
hand (FORETELL_RELEASES names a folder of them), the table is made again and must be the same.
"""

import importlib.util
import json
import os
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from foretell.catalog import model as catalog_model
from foretell.catalog.software import software
from foretell.interop.arguments import parse_arguments
from foretell.interop.launch import Known, Training
from foretell.interop.releases import RELEASES, release_of
from foretell.interop.service_write import Serving, write_command
from foretell.interop.tool_tables import table_of
from foretell.interop.tools import reader_of
from foretell.interop.training_write import write_training
from foretell.specs.deployment import Deployment
from foretell.specs.plan import Plan, parse_plan

FLAGS: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "release_flags.json").read_text(encoding="utf-8")
)
PINNED = {
    "megatron": "megatron-core",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "vllm": "vllm",
    "sglang": "sglang",
}
"""Tools whose sources are on the package index, and what they are called there."""
ARGUMENTS = frozenset(
    """micro_batch_size global_batch_size seq_length max_position_embeddings train_iters lr log_interval
    log_throughput eval_interval eval_iters mock_data split tokenizer_type tokenizer_model vocab_size
    make_vocab_size_divisible_by position_embedding_type untie_embeddings_and_output_weights swiglu
    group_query_attention num_virtual_stages_per_pipeline_rank num_experts disable_bias_linear fp8_format
    fp8_param_gather fp4_format no_gradient_accumulation_fusion ckpt_format use_megatron_fsdp transformer_impl
    normalization grad_reduce_in_bf16 use_tp_pp_dp_mapping num_distributed_optimizer_instances
    multi_latent_attention moe_expert_capacity_factor nnodes nproc_per_node node_rank master_addr master_port
    moe_layer_freq attention_backend expert_tensor_parallel_size enable_cuda_graph cuda_graph_impl
    cuda_graph_scope use_distributed_optimizer add_qkv_bias optimizer""".split()
)
"""Flags of Megatron-LM's megatron/training/arguments.py (read at commit 000c4ac, Core 0.15) that are no field
of Core's configurations, and torchrun's own."""
FRONT = {"vllm": {"port"}, "sglang": {"m", "model_path"}}
"""Flags of the servers' front ends, which are declared apart from their engines'."""
TRTLLM = frozenset(
    """model tokenizer custom_tokenizer host port backend custom_module_dirs log_level max_beam_width
    max_batch_size max_num_tokens max_seq_len tensor_parallel_size tp_size pipeline_parallel_size pp_size
    context_parallel_size cp_size moe_expert_parallel_size ep_size moe_cluster_parallel_size cluster_size
    gpus_per_node free_gpu_memory_fraction kv_cache_free_gpu_memory_fraction num_postprocess_workers
    trust_remote_code revision config extra_llm_api_options reasoning_parser tool_parser
    metadata_server_config_file server_role fail_fast_on_attention_window_too_large otlp_traces_endpoint
    disagg_cluster_uri enable_chunked_prefill media_io_kwargs chat_template""".split()
)
"""Options that `trtllm-serve` declares (tensorrt_llm/commands/serve.py at commit 00209af, 1.3)."""
TRTLLM_FILE = frozenset(
    """enable_attention_dp attention_dp_config disable_overlap_scheduler moe_config attn_backend
    cuda_graph_config kv_cache_config stream_interval batch_wait_timeout_ms batch_wait_timeout_iters
    batch_wait_max_tokens_ratio torch_compile_config allreduce_strategy sampler_type load_format
    enable_min_latency enable_lm_head_tp_in_adp pp_partition cp_config print_iter_log
    enable_iter_perf_stats enable_autotuner speculative_config scheduler_config lora_config
    cache_transceiver_config dtype decoding_type num_nextn_predict_layers""".split()
)
"""Keys of its file of options that bear on speed or memory: fields of TorchLlmArgs, KvCacheConfig and
MTPDecodingConfig (tensorrt_llm/llmapi/llm_args.py, 1.2)."""
MODELS = ("llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v3")
PLANS = (
    "tp8 pp2 zero1 mbs1 recompute=selective",
    "tp4 pp4 vpp2 zero1 mbs2 precision=fp8",
    "zero3 mbs1 recompute=full",
    "tp2 cp2 zero1 cp_mode=ulysses mbs1",
    "tp2 zero1 master=bf16 states=bf16 gradients=bf16",
    "zero1 offload=optimizer mbs1",
    "tp2 zero0 precision=fp16 mbs1",
    "zero3 no-reshard recompute=products",
    "zero2 precision=mxfp8",
    "pp4 zero1 layout=19,21*2,19",
)


def version_of(tool: str, release: str) -> str:
    """The pinned release that a written one stands for."""
    found = [one for one in FLAGS[PINNED[tool]] if one.startswith(f"{release}.")]
    return found[-1]


@lru_cache
def run(model: str, words: str) -> Training | None:
    plan = parse_plan(words, 64)
    record = catalog_model(model)
    if plan.layout != "even" and len(record.stack.layers) != 80:
        return None
    if len(record.stack.layers) != 61 and "qwen3-30b" in model and plan.cp == 1:
        plan = replace(plan, ep=4, etp=1, sp=plan.tp > 1)
    return Training(
        model=record,
        plan=plan,
        software=software("megatron-core"),
        gpus=64,
        global_batch=512,
        seq_len=4096,
        repository="meta-llama/Llama-3.1-70B",
        chip="h100-sxm",
    )


@pytest.mark.parametrize("release", RELEASES["megatron"])
def test_every_flag_for_megatron_is_one_of_its_own(release: str) -> None:
    known = {*FLAGS["megatron-core"][version_of("megatron", release)]} | ARGUMENTS
    for model in MODELS:
        for words in PLANS:
            one = run(model, words)
            if one is None:
                continue
            written = write_training("megatron", replace(one, version=release))
            names = {key for key, _ in parse_arguments(written.text).pairs}
            assert names <= known, (words, names - known)


@pytest.mark.parametrize("release", RELEASES["torchtitan"])
def test_every_key_for_torchtitan_is_one_of_its_own(release: str) -> None:
    if release == "0.2":
        pytest.importorskip("tomli_w")
    known = {*FLAGS["torchtitan"][version_of("torchtitan", release)]} | {"activation_checkpoint"}
    for words in (
        "tp8 zero3 mbs1",
        "tp2 pp2 vpp2 zero3 mbs1 no-reshard",
        "zero3 recompute=full offload=optimizer+weights",
        "tp2 zero3 tp_overlap=on",
        "cp2 zero3 recompute=products",
    ):
        one = run("llama-3.1-70b", words)
        assert one is not None
        written = write_training("torchtitan", replace(one, version=release))
        names = {key for key, _ in parse_arguments(written.text).pairs}
        assert names <= known, (words, names - known)


def test_every_key_for_deepspeed_is_one_of_its_own() -> None:
    known = {*FLAGS["deepspeed"][version_of("deepspeed", "0.19")]}
    known |= {
        "type",
        "params",
        "lr",
        "device",
        "pin_memory",
        "number_checkpoints",
        "cpu_checkpointing",
        "stages",
        "grad_accum_dtype",
        "enabled",
        "dtype",
        "autotp_size",
        "autoep_size",
        "pipeline",
        "sequence_parallel_size",
    }
    for words in PLANS[:6]:
        one = run("llama-3.1-70b", words)
        assert one is not None
        table = json.loads(write_training("deepspeed", one).text)
        names = {part for key in _keys(table) for part in key.split(".")}
        assert names <= known, names - known


def _keys(table: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in table.items():
        found.add(prefix + key)
        if isinstance(value, dict):
            found |= _keys(value, f"{prefix}{key}.")
    return found


@pytest.mark.parametrize("tool", ["vllm", "sglang"])
def test_every_flag_for_an_engine_is_one_of_its_own(tool: str) -> None:
    known = {*next(iter(FLAGS[tool].values()))} | FRONT[tool]
    deployments = (
        Deployment(tp=4, kv="fp8", max_batch=64, max_tokens=4096, memory_fraction=0.9),
        Deployment(tp=2, dp=4, ep=8, graph=False),
        Deployment(tp=2, pp=2, weights="fp8", draft_tokens=3, stream_interval=10),
        Deployment(tp=2, cp=2),
    )
    for one in deployments:
        text = write_command(tool, Serving(model="org/name", deployment=one))  # type: ignore[index]
        names = {key for key, _ in parse_arguments(text).pairs}
        assert names <= known, names - known


def test_every_flag_for_trtllm_is_one_of_its_own() -> None:
    pytest.importorskip("yaml")
    for one in (
        Deployment(tp=4, kv="fp8", max_batch=64, max_tokens=4096, memory_fraction=0.9),
        Deployment(dp=4, ep=4, graph=False, wait_steps=4),
        Deployment(tp=2, pp=2, draft_tokens=3, stream_interval=10),
        Deployment(tp=2, cp=2),
    ):
        text = write_command("trtllm", Serving(model="org/name", deployment=one))
        command = text.rpartition("trtllm-serve")[2]
        flags = set(re.findall(r"--(\w+)", command))
        assert flags <= TRTLLM, flags - TRTLLM
        names = {part for key, _ in parse_arguments(text).pairs for part in key.split(".")}
        assert names - flags <= TRTLLM_FILE, names - flags - TRTLLM_FILE


def test_every_option_of_trtllm_is_read_or_said() -> None:
    """No option that it declares is unknown to the reader."""
    for name in sorted(TRTLLM - {"model"}):
        launch = reader_of("trtllm")(parse_arguments(f"trtllm-serve m --{name} 1"), Known())
        assert name not in launch.unknown, name


def test_defaults_that_readers_take_are_the_tools_own() -> None:
    titan = FLAGS["torchtitan"]["0.3.0"]
    launch = reader_of("torchtitan")(
        parse_arguments("[training]\nsteps = 10\n[model]\nname = 'x'\n"), Known(gpus=4)
    )
    assert launch.seq_len == titan["training.seq_len"]
    assert launch.global_batch == titan["training.local_batch_size"] * 4
    assert titan["training.global_batch_size"] == -1
    plan = parse_plan(launch.plan, 4)
    assert (plan.fused, plan.tp, plan.pp) == (
        titan["compile.enable"],
        titan["parallelism.tensor_parallel_degree"],
        titan["parallelism.pipeline_parallel_degree"],
    )
    trl, own = FLAGS["trl"]["1.16.0"], table_of("trl").defaults
    assert (own["seq_len"], own["checkpointing"]) == (
        trl["max_length"],
        trl["gradient_checkpointing"],
    )
    core = FLAGS["megatron-core"]["0.16.1"]
    read = parse_plan(
        reader_of("megatron")(parse_arguments("pretrain_gpt.py --bf16"), Known(gpus=1)).plan, 1
    )
    for ours, theirs in (
        ("tp", "tensor_model_parallel_size"),
        ("pp", "pipeline_model_parallel_size"),
        ("cp", "context_parallel_size"),
        ("ep", "expert_model_parallel_size"),
    ):
        assert getattr(read, ours) == core[theirs]
    assert core["use_distributed_optimizer"] is (read.zero == 1)
    assert core["grad_reduce_in_fp32"] is False
    for tool in ("vllm", "sglang"):
        text = {"vllm": "vllm serve m", "sglang": "python -m sglang.launch_server --model-path m"}[
            tool
        ]
        gpus = reader_of(tool)(parse_arguments(text), Known()).gpus  # type: ignore[arg-type]
        assert gpus == 1


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("megatron", "megatron-core@0.16"),
        ("megatron-core@0.14", "megatron-core@0.14"),
        ("vllm@0.40", "vllm@0.32"),
        ("megatron-core@0.15.1", "megatron-core@0.15"),
        ("torchtitan@0.2", "torchtitan@0.2"),
    ],
)
def test_releases_by_name(text: str, called: str) -> None:
    assert release_of(text, serving=text.startswith("vllm")).called == called


def test_the_table_is_that_of_the_archives() -> None:
    folder = os.environ.get("FORETELL_RELEASES")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FORETELL_RELEASES names no folder of pinned archives (tools/flag_tables.py)")
    path = Path(__file__).parents[2] / "tools" / "flag_tables.py"
    spec = importlib.util.spec_from_file_location("flag_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.table_of(Path(folder))
    for tool, releases in made.items():
        for version, options in releases.items():
            assert FLAGS[tool][version] == json.loads(json.dumps(options)), (tool, version)


def test_pages_name_the_releases_that_were_checked() -> None:
    page = (Path(__file__).parents[2] / "docs" / "interchange.md").read_text(encoding="utf-8")
    for tool, releases in FLAGS.items():
        for version in releases:
            assert re.search(rf"`{re.escape(tool)}`[^\n]*{re.escape(version)}", page), (
                tool,
                version,
            )


def test_a_plan_knows_no_flag_twice() -> None:
    one = run("llama-3.1-70b", PLANS[0])
    assert one is not None
    names = [key for key, _ in parse_arguments(write_training("megatron", one).text).pairs]
    assert len(names) == len(set(names))
    assert isinstance(one.plan, Plan)
