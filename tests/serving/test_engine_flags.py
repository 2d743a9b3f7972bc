"""Flags of engines as the engines mean them: what an imported command says, and what it does to an answer."""

import pytest

import foretell
from foretell.api.launches import read_launch
from foretell.catalog.engines import IN_TURN_S
from foretell.catalog.engines import profile as profile_for
from foretell.catalog.systems import named_system

VLLM, SGLANG = "vllm serve some/model", "python -m sglang.launch_server --model-path some/model"
TRTLLM = "trtllm-serve some/model"

READ = [
    # vllm/engine/arg_utils.py and vllm/config (v0.12 to v0.24)
    (VLLM, "--max-num-batched-tokens 4096", "max_tokens=4096"),
    (VLLM, "--max-num-seqs 64", "max_batch=64"),
    (VLLM, "--stream-interval 20", "stream_interval=20"),
    (VLLM, "--async-scheduling", "overlap"),
    (VLLM, "--no-async-scheduling", "no-overlap"),
    (VLLM, "--no-enable-chunked-prefill", "no-chunked"),
    (VLLM, "--enforce-eager", "no-graph"),
    (VLLM, "--compilation-config '{\"cudagraph_capture_sizes\": [1, 8, 256]}'", "graph_batch=256"),
    (VLLM, "--compilation-config '{\"cudagraph_mode\": \"NONE\"}'", "no-graph"),
    (VLLM, "--kv-cache-dtype fp8", "kv=fp8"),
    (VLLM, "--enable-eplb", "eplb"),
    (VLLM, "--enable-dbo", "tbo"),
    (VLLM, "--all2all-backend deepep_low_latency", "dispatch=deepep-low-latency"),
    (VLLM, "--cpu-offload-gb 10", "offload_gb=10"),
    (VLLM, "--enable-lora --max-loras 8 --max-lora-rank 32", "adapters=8 adapter_rank=32"),
    (VLLM, "--enable-lora --max-loras 8 --max-cpu-loras 64", "adapters=64 adapter_slots=8"),
    (VLLM, "--quantization awq", "weights=int4"),
    (VLLM, "--quantization gptq", "weights=int4"),
    (VLLM, "--quantization fp8", "weights=fp8"),
    (VLLM, "--quantization modelopt_fp4", "weights=nvfp4"),
    (VLLM, "--speculative-config '{\"method\": \"eagle3\", \"num_speculative_tokens\": 3}'",
     "draft_tokens=3 drafter=eagle3"),
    # python/sglang/srt/server_args.py and managers/scheduler_recv_skipper.py (v0.5.9)
    (SGLANG, "--scheduler-recv-interval 30", "receive_steps=30"),
    (SGLANG, "--num-continuous-decode-steps 4", "decode_steps=4"),
    (SGLANG, "--stream-interval 10", "stream_interval=10"),
    (SGLANG, "--disable-overlap-schedule", "no-overlap"),
    (SGLANG, "--enable-mixed-chunk", "mixed"),
    (SGLANG, "--chunked-prefill-size 4096", "max_tokens=4096"),
    (SGLANG, "--chunked-prefill-size -1", "no-chunked"),
    (SGLANG, "--cuda-graph-max-bs 128", "graph_batch=128"),
    (SGLANG, "--max-running-requests 256", "max_batch=256"),
    (SGLANG, "--tp 8 --dp 8 --enable-dp-attention", "dp8"),
    (SGLANG, "--enable-two-batch-overlap", "tbo"),
    (SGLANG, "--enable-eplb --ep-num-redundant-experts 32", "eplb redundant_experts=32"),
    (SGLANG, "--moe-a2a-backend deepep --deepep-mode low_latency", "dispatch=deepep-low-latency"),
    (SGLANG, "--cpu-offload-gb 20", "offload_gb=20"),
    (SGLANG, "--lora-paths a=b --max-loras-per-batch 4 --max-lora-rank 64",
     "adapters=1 adapter_slots=4 adapter_rank=64"),
    (SGLANG, ("--speculative-algorithm EAGLE3 --speculative-draft-model-path d "
     "--speculative-num-draft-tokens 4"), "draft_tokens=3 drafter=eagle3"),
    # tensorrt_llm/llmapi/llm_args.py (1.x)
    (TRTLLM, "--max_num_tokens 8192", "max_tokens=8192"),
    (TRTLLM, "--max_batch_size 64", "max_batch=64"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "flag", "words"), READ, ids=lambda value: str(value)[:60])
def test_a_flag_is_read_as_its_engine_means_it(tool: str, flag: str, words: str) -> None:
    launch = read_launch(f"{tool} {flag}")
    assert set(words.split()) <= set(launch.plan.split()), launch.plan
    name = flag.split()[0].lstrip("-").replace("-", "_")
    assert name not in {*launch.ignored, *launch.unknown}


YAML = """cat > extra.yml <<'EOF'
disable_overlap_scheduler: true
stream_interval: 20
cuda_graph_config:
  max_batch_size: 256
speculative_config:
  decoding_type: MTP
  num_nextn_predict_layers: 3
EOF
trtllm-serve some/model --config extra.yml"""


def test_options_in_a_file_are_read_too() -> None:
    """tensorrt_llm/llmapi/llm_args.py: TorchLlmArgs."""
    words = set(read_launch(YAML).plan.split())
    assert {"no-overlap", "stream_interval=20", "graph_batch=256", "draft_tokens=3"} <= words


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (f"{VLLM} --attention-backend FLASHINFER", "attention_backend"),
        (f"{SGLANG} --schedule-conservativeness 0.3", "schedule_conservativeness"),
        (f"{SGLANG} --enable-hierarchical-cache", "enable_hierarchical_cache"),
    ],
)
def test_a_flag_that_bears_on_latency_and_is_not_modelled_is_a_warning(
    command: str, name: str
) -> None:
    launch = read_launch(command)
    assert name in launch.unmodelled
    assert any(name in text for text in launch.warnings())
    assert name not in launch.ignored


@pytest.mark.parametrize(
    "command", [f"{SGLANG} --disaggregation-mode decode",
                f"{VLLM} --kv-transfer-config '{{\"kv_role\": \"kv_consumer\"}}'"],
)  # fmt: skip
def test_an_instance_of_one_side_says_how_the_other_is_given(command: str) -> None:
    assert any("--prefill-gpus" in text for text in read_launch(command).notes)


LOAD = {"system": "h100-sxm", "gpus": 1, "isl": 1000, "osl": 200, "concurrency": 32, "spread": 0.8}


def served(words: str, simulate: bool = False) -> tuple[float, float]:
    options = {"simulate": {"requests": 320}} if simulate else {}
    found = foretell.serve("llama-3.1-8b", **LOAD, plan=f"tp1 {words}", **options)
    return found.ttft_ms.mean, found.tpot_ms.mean


@pytest.mark.parametrize("simulate", [False, True])
def test_the_first_token_is_streamed_at_once(simulate: bool) -> None:
    """vllm/v1/engine/output_processor.py:226 (v0.14),
    sglang scheduler_output_processor_mixin.py:968 (v0.5.9):
    a chunk leaves at the first token whatever the interval."""
    assert served("stream_interval=20", simulate) == served("", simulate)


@pytest.mark.parametrize("simulate", [False, True])
def test_requests_wait_half_of_the_interval_between_two_looks(simulate: bool) -> None:
    """sglang managers/scheduler_recv_skipper.py (v0.5.9): requests are read every N decode steps."""
    plain, late = served("", simulate), served("receive_steps=30", simulate)
    step = plain[1]
    assert late[0] - plain[0] == pytest.approx(0.5 * 29 * step, rel=0.3)
    assert late[1] == pytest.approx(plain[1], rel=0.08)


def test_continuous_decode_steps_share_the_scheduler() -> None:
    """sglang server_args.py: num_continuous_decode_steps."""
    plain, many = served(""), served("decode_steps=4")
    assert many[0] > plain[0]
    assert many[1] < plain[1]


def test_without_overlap_the_host_shows_and_the_token_is_a_step_sooner() -> None:
    """vLLM's blog of 2026-02-01; sglang server_args.py: disable_overlap_schedule."""
    plain, bare = served(""), served("no-overlap")
    assert bare[1] - plain[1] == pytest.approx(1e3 * IN_TURN_S, rel=0.1)
    assert bare[0] < plain[0]


def test_async_scheduling_is_the_default_from_0_14_on() -> None:
    """vLLM PR 27614 (2025-12-29, v0.14.0): on by default; v0.10 to v0.13 have it as an option."""
    chips = {name: named_system(name).chip for name in ("h100-sxm", "b200-sxm")}
    assert profile_for("vllm", chips["h100-sxm"], "0.18").overlapped
    assert not profile_for("vllm", chips["b200-sxm"], "0.11").overlapped


def test_batches_beyond_the_largest_graph_are_launched_kernel_by_kernel() -> None:
    """vllm/config/vllm.py: no full graph beyond the largest captured size."""
    assert served("graph_batch=64") == served("")
    assert served("graph_batch=16")[1] >= served("")[1]
    small = {**LOAD, "concurrency": 4}
    plain, beyond = (
        foretell.serve("llama-3.1-8b", **small, plan=f"tp1 weights=int4 {words}").tpot_ms.mean
        for words in ("", "graph_batch=2")
    )
    assert beyond > 1.1 * plain


def test_whole_prompts_take_one_step_each() -> None:
    """vllm/config/scheduler.py: enable_chunked_prefill."""
    asked = {**LOAD, "isl": 30_000, "concurrency": 2}
    cut, whole = (
        foretell.serve("llama-3.1-8b", **asked, plan=f"tp1 max_tokens=512 {words}").ttft_ms.mean
        for words in ("", "no-chunked")
    )
    assert whole < cut


def test_prompts_beside_decoding_or_in_steps_of_their_own() -> None:
    """sglang server_args.py: enable_mixed_chunk."""
    assert served("mixed")[1] != served("no-mixed")[1]


def test_adapters_take_memory_and_time() -> None:
    """vllm/lora: weights of every adapter, two small products beside every matrix."""
    plain, adapted = (
        foretell.serve("llama-3.1-8b", **LOAD, plan=f"tp1 {words}")
        for words in ("", "adapters=16 adapter_rank=16")
    )
    # Llama-3.1-8B has 41.9 million parameters of rank 16 in all linear maps.
    assert adapted.weight_bytes - plain.weight_bytes == pytest.approx(16 * 2 * 41.9e6, rel=0.02)
    assert 1.02 < adapted.tpot_ms.mean / plain.tpot_ms.mean < 1.4


def test_weights_on_the_host_are_read_in_every_step() -> None:
    """vLLM --cpu-offload-gb: the weights come over PCIe in every forward pass."""
    plain, moved = (
        foretell.serve("llama-3.1-8b", **LOAD, plan=f"tp1 {words}")
        for words in ("", "offload_gb=5")
    )
    assert plain.weight_bytes - moved.weight_bytes == pytest.approx(5e9)
    assert moved.tpot_ms.mean - plain.tpot_ms.mean > 5e9 / 63e9 * 1e3


@pytest.mark.parametrize(
    ("word", "same"), [("awq", "int4"), ("gptq", "int4"), ("fp8", "fp8"), ("w8a8", "int8")]
)
def test_formats_have_the_names_of_engines(word: str, same: str) -> None:
    assert served(f"weights={word}") == served(f"weights={same}")


@pytest.mark.parametrize("word", ["nvfp4", "mxfp4"])
def test_four_bit_formats_are_words(word: str) -> None:
    found = foretell.serve(
        "llama-3.1-8b", system="b200-sxm", gpus=1, concurrency=1, plan=f"tp1 weights={word}"
    )
    assert f"weights={word}" in found.plan


def test_drafts_of_an_imported_command_never_slow_it_down() -> None:
    """Acceptance is the drafter's curve where nobody says it, never nothing."""
    from foretell.api.launches import merge_launch

    command = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8"
    drafts = f"{command} --speculative-algorithm EAGLE --speculative-num-draft-tokens 4"
    found = []
    for text in (command, drafts):
        asked = merge_launch(read_launch(text), "", {"system": "h200-sxm", "concurrency": 4})
        found.append(foretell.serve(**asked).tpot_ms.mean)
    assert found[1] < 0.7 * found[0]
