"""Every flag of the newest engines: a word of the plan, a warning, or of no bearing; none stops an import."""

import json
from pathlib import Path

import pytest

from foretell.api.launches import read_launch
from foretell.interop.launch import Launch
from foretell.interop.tool_tables import table_of

RELEASES = json.loads((Path(__file__).parent / "release_flags.json").read_text(encoding="utf-8"))
COMMANDS = {
    "vllm": "vllm serve some/model",
    "sglang": "python -m sglang.launch_server --model-path some/model",
    "trtllm": "trtllm-serve some/model",
}
VALUES = {
    "gpu_memory_utilization": "0.8", "kv_cache_dtype": "fp8", "quantization": "fp8",
    "mem_fraction_static": "0.8",
    "spec_method": "mtp", "spec_model": "m --spec-tokens 2", "moe_a2a_backend": "deepep",
    "attn_cp_size": "2 --tp 2", "attn_dp_size": "2 --tp 2", "speculative_algorithm": "NEXTN",
}  # fmt: skip
"""Values of flags that do not take a 2."""
TRTLLM_OPTIONS = """dtype tensor_parallel_size pipeline_parallel_size context_parallel_size gpus_per_node
    moe_cluster_parallel_size moe_expert_parallel_size enable_attention_dp enable_lm_head_tp_in_adp
    pp_partition cp_config load_format enable_lora enable_chunked_prefill guided_decoding_backend
    iter_stats_max_iterations peft_cache_config scheduler_config cache_transceiver_config
    sparse_attention_config kv_cache_compression_config max_batch_size max_input_len max_seq_len
    max_beam_width max_num_tokens gather_generation_logits num_postprocess_workers attention_dp_config
    disable_overlap_scheduler moe_config nvfp4_gemm_config dwdp_config encoder_max_batch_size
    encoder_max_num_tokens attn_backend enable_mla_skip_correction mla_skip_correction_threshold
    sampler_force_async_worker enable_in_graph_sampling enable_speculative_beam_history_d2h
    enable_early_first_token_response enable_low_latency_host_dispatch enable_iter_perf_stats
    enable_iter_req_stats print_iter_log batch_wait_timeout_ms batch_wait_timeout_iters
    batch_wait_max_tokens_ratio torch_compile_config prefill_cuda_graph_backend prefill_capture_num_tokens
    enable_autotuner use_fine_grained_sync enable_layerwise_nvtx_marker enable_min_latency stream_interval
    force_dynamic_quantization allreduce_strategy checkpoint_format checkpoint_io_policy mx_config
    gms_config post_processor_hook model_kwargs tokenizer_mode custom_tokenizer skip_tokenizer_init
    trust_remote_code revision""".split()
"""Fields of BaseLlmArgs and TorchLlmArgs (tensorrt_llm/llmapi/llm_args.py at commit 0004396)."""
SWITCHED = frozenset(name for name in TRTLLM_OPTIONS if name.split("_")[0] in ("enable", "disable"))


def flags_of(tool: str) -> dict[str, bool]:
    """Flags of the newest release, and whether each takes no value."""
    if tool == "trtllm":
        return {name: name in SWITCHED for name in TRTLLM_OPTIONS}
    (flags,) = RELEASES[tool].values()
    public = {name: default for name, default in flags.items() if not name.startswith("_")}
    return {name: isinstance(default, bool) for name, default in public.items()}


def told(tool: str, name: str, alone: bool) -> Launch:
    value = "" if alone else f" {VALUES.get(name, '2')}"
    return read_launch(f"{COMMANDS[tool]} --{name.replace('_', '-')}{value}")


@pytest.mark.parametrize("tool", COMMANDS)
def test_no_flag_of_the_newest_release_stops_an_import(tool: str) -> None:
    for name, alone in flags_of(tool).items():
        launch = told(tool, name, alone)
        assert not launch.unknown, name
        assert not launch.doubts, (name, launch.doubts)


MOVES = {
    "vllm": """attention_backend moe_backend offload_group_size prefill_schedule_interval performance_mode
        decode_context_parallel_size mm_encoder_tp_mode max_num_queued_reqs linear_backend watermark
        kv_offloading_size hf_overrides mamba_ssm_cache_dtype use_replayssm fully_sharded_loras""",
    "sglang": """moe_runner_backend enable_hisparse enable_dp_lm_head prefill_decode_interval dcp_size
        enable_lmcache offload_group_size kt_num_gpu_experts enable_pdmux prefill_max_requests
        fp4_gemm_runner_backend enable_kv_cache_sharding swa_full_tokens_ratio pp_max_micro_batch_size""",
    "trtllm": """attn_backend allreduce_strategy enable_early_first_token_response batch_wait_timeout_ms
        moe_config kv_cache_compression_config prefill_cuda_graph_backend enable_in_graph_sampling""",
}
"""Flags that move latency or memory by the words of their own help, and are not modelled."""


@pytest.mark.parametrize("tool", COMMANDS)
def test_a_flag_that_moves_latency_or_memory_is_a_warning(tool: str) -> None:
    flags = flags_of(tool)
    for name in MOVES[tool].split():
        launch = told(tool, name, flags[name])
        assert name in launch.unmodelled, name
        assert any(name in text for text in launch.warnings())
        assert name not in launch.ignored


@pytest.mark.parametrize("tool", COMMANDS)
def test_no_flag_is_both_of_bearing_and_of_none(tool: str) -> None:
    flags = table_of(tool)
    assert not flags.bears & flags.quiet
    assert flags.source


READ = [
    # vllm 0.32.0: vllm/engine/arg_utils.py, vllm/config/{cache,scheduler,vllm,speculative,parallel}.py
    ("vllm", "--kv-cache-memory-bytes 40000000000", "cache_gb=40"),
    ("vllm", "--num-gpu-blocks-override 1000", "cache_tokens=16000"),
    ("vllm", "--num-gpu-blocks-override 1000 --block-size 32", "cache_tokens=32000"),
    ("vllm", "--max-num-seqs 256 --max-num-active-seqs 64", "max_batch=64"),
    ("vllm", "--max-num-batched-tokens 8192 --max-num-scheduled-tokens 4096", "max_tokens=4096"),
    ("vllm", "-O0", "no-graph"),
    ("vllm", "--optimization-level 0", "no-graph"),
    ("vllm", "-cc.cudagraph_mode NONE", "no-graph"),
    ("vllm", "--compilation-config.max_cudagraph_capture_size 256", "graph_batch=256"),
    ("vllm", "--max-cudagraph-capture-size 128", "graph_batch=128"),
    ("vllm", "--cudagraph-capture-sizes 1 2 64", "graph_batch=64"),
    ("vllm", "--spec-method eagle3 --spec-model d --spec-tokens 3", "draft_tokens=3 drafter=eagle3"),
    ("vllm", "-sc '{\"method\": \"mtp\"}'", "draft_tokens=1"),
    ("vllm", "--speculative-config.method ngram --speculative-config.num_speculative_tokens 4",
     "draft_tokens=4 drafter=ngram"),
    ("vllm", ("--speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 3, "
              "\"rejection_sample_method\": \"synthetic\", \"synthetic_acceptance_length\": 2.5}'"),
     "draft_tokens=3 accepted=1.5"),
    ("vllm", "--enable-eplb --eplb-config '{\"num_redundant_experts\": 32}'", "redundant_experts=32"),
    ("vllm", "--all2all-backend flashinfer_nvlink_one_sided", "dispatch=nvlink-one-sided"),
    ("vllm", "--all2all-backend deepep_v2", "dispatch=deepep-2"),
    ("vllm", "--quantization fp8_per_block", "weights=fp8-block"),
    ("vllm", "--quantization experts_int8", "experts=int8"),
    ("vllm", "--kv-cache-dtype int8_per_token_head", "kv=int8"),
    ("vllm", "--enable-lora --lora-modules a=/x b=/y c=/z --max-loras 2",
     "adapters=3 adapter_slots=2 adapter_rank=16"),
    ("vllm", "--lora-modules '{\"name\": \"a\", \"path\": \"/x\"}' '{\"name\": \"b\", \"path\": \"/y\"}'",
     "adapters=2 adapter_slots=1"),
    # sglang 0.5.23: srt/arg_groups/fields/{memory,exec_,spec,lora}.py
    ("sglang", "--max-total-tokens 100000", "cache_tokens=100000"),
    ("sglang", "--disable-decode-cuda-graph", "no-graph"),
    ("sglang", "--cuda-graph-max-bs-decode 64", "graph_batch=64"),
    ("sglang", "--cuda-graph-backend-decode disabled", "no-graph"),
    ("sglang", "--speculative-algorithm NGRAM --speculative-num-draft-tokens 5",
     "draft_tokens=4 drafter=ngram"),
    ("sglang", ("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
                "--speculative-num-draft-tokens 4"), "draft_tokens=3"),
    ("sglang", "--lora-paths a=/x b=/y --max-loras-per-batch 4", "adapters=2 adapter_slots=4"),
    ("sglang", "--enable-lora --max-loaded-loras 64", "adapters=64 adapter_slots=8"),
    ("sglang", "--quantization w4afp8", "weights=int4"),
    ("sglang", "--moe-a2a-backend flashinfer --tp 4", "ep4 dispatch=nvlink-one-sided"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "flags", "words"), READ, ids=lambda value: str(value)[:70])
def test_a_newer_flag_is_read_as_its_engine_means_it(tool: str, flags: str, words: str) -> None:
    launch = read_launch(f"{COMMANDS[tool]} {flags}")
    assert set(words.split()) <= set(launch.plan.split()), launch.plan
    assert not launch.unknown
    assert not launch.unmodelled


OPTIONS = """cat > extra.yml <<'EOF'
enable_chunked_prefill: false
quant_config:
  quant_algo: FP8
  kv_cache_quant_algo: FP8
kv_cache_config:
  max_tokens: 200000
  enable_block_reuse: false
  host_cache_size: 1000000000
moe_config:
  backend: TRTLLM
speculative_config:
  decoding_type: MTP
lora_config:
  lora_dir: [a, b, c]
  max_loras: 2
EOF
trtllm-serve some/model --tp_size 4 --config extra.yml"""


def test_options_of_tensorrt_llm_in_a_file() -> None:
    """tensorrt_llm/llmapi/llm_args.py: QuantConfig, KvCacheConfig, MoeConfig, MTPDecodingConfig."""
    launch = read_launch(OPTIONS)
    assert {
        "weights=fp8", "kv=fp8", "cache_tokens=200000", "no-chunked", "draft_tokens=1", "adapters=3",
        "adapter_slots=2",
    } <= set(launch.plan.split())  # fmt: skip
    assert {"moe_config.backend", "kv_cache_config.host_cache_size"} <= set(launch.unmodelled)
    assert any("prefix caching is off" in text for text in launch.notes)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("vllm serve m --all2all-backend nixl_ep", "all2all_backend=nixl_ep"),
        ("vllm serve m --compilation-config '{\"cudagraph_mode\": \"PIECEWISE\"}'", "cudagraph_mode"),
        ("vllm serve m --compilation-config '{\"custom_ops\": [\"all\"]}'", "compilation_config.custom_ops"),
        ("vllm serve m --dtype float32", "dtype=float32"),
        ("vllm serve m --kv-cache-dtype turboquant_k8v4", "kv_cache_dtype=turboquant_k8v4"),
        ("vllm serve m --kv-transfer-config '{\"kv_connector\": \"OffloadingConnector\"}'",
         "kv_transfer_config"),
        ("vllm serve m -sc '{\"method\": \"dflash\", \"num_speculative_tokens\": 7}'", "dflash"),
        ("python -m sglang.launch_server --model m --moe-a2a-backend mooncake", "moe_a2a_backend=mooncake"),
        ("python -m sglang.launch_server --model m --speculative-algorithm DFLASH", "DFLASH"),
        ("python -m sglang.launch_server --model m --speculative-algorithm EAGLE --speculative-eagle-topk 4",
         "speculative_eagle_topk"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_modelled_is_a_warning(command: str, name: str) -> None:
    assert any(name in text for text in read_launch(command).warnings())


def test_a_table_beats_a_name_that_is_alike() -> None:
    """`backend` says nothing of trtllm-serve, `moe_config.backend` names kernels."""
    verdict = table_of("trtllm").verdict
    names = ("moe_config.backend", "backend", "nonsense")
    assert [verdict(name) for name in names] == ["bears", "quiet", None]
