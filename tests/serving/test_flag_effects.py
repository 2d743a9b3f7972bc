"""What each flag of an engine's command does to the answer: its direction and its size.

Every test reads a command as a user pastes it (`--import`), asks `serve` with what it says, and names the
engine's source or documentation. Scheduling flags that tests/serving/test_engine_flags.py asks by plan words
(stream_interval, scheduler_recv_interval, overlap, graph sizes, LoRA, offload) are not repeated here.
"""

from typing import Any

import pytest

import foretell
from foretell.api.launches import merge_launch, read_launch

LLAMA = "vllm serve meta-llama/Llama-3.1-8B"
LOAD: dict[str, Any] = {"system": "h100-sxm", "gpus": 1, "isl": 1000, "osl": 200, "concurrency": 32}
R1 = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1"
R1_LOAD: dict[str, Any] = {
    "system": "h200-sxm",
    "gpus": 8,
    "isl": 1000,
    "osl": 1000,
    "concurrency": 64,
}


def answer(command: str, flags: str = "", **load: Any) -> Any:
    """The service that a command starts, under a load."""
    launch = read_launch(f"{command} {flags}")
    return foretell.serve(**merge_launch(launch, "", {**load}))


def llama(flags: str = "", **load: Any) -> Any:
    return answer(LLAMA, flags, **{**LOAD, **load})


def test_max_num_batched_tokens_trades_ttft_for_tpot() -> None:
    """vllm/config/scheduler.py, docs "Performance and tuning": a smaller budget gives better inter-token
    latency, as fewer prompt tokens slow a step; a larger one better TTFT."""
    small, large = (
        llama(f"--max-num-batched-tokens {n}", isl=6000, concurrency=8) for n in (512, 8192)
    )
    assert small.ttft_ms.mean > 1.05 * large.ttft_ms.mean
    assert small.ttft_ms.mean < 3.0 * large.ttft_ms.mean


def test_max_num_seqs_bounds_the_batch_and_others_wait() -> None:
    """vllm/v1/core/sched/scheduler.py: max_num_running_reqs."""
    free, bound = llama(), llama("--max-num-seqs 8")
    assert bound.max_batch == 8 < free.max_batch
    assert bound.tpot_ms.mean < free.tpot_ms.mean
    # Three quarters of 32 requests wait: three answers pass before one begins.
    assert bound.ttft_ms.mean == pytest.approx(3.0 * bound.e2e_ms.mean / 4.0, rel=0.1)


def test_gpu_memory_utilization_is_of_the_whole_card() -> None:
    """vllm/config/cache.py: gpu_memory_utilization; the cache gets the difference, weights stay."""
    less, more = (llama(f"--gpu-memory-utilization {share}") for share in (0.7, 0.9))
    assert more.weight_bytes == less.weight_bytes
    card = foretell.system("h100-sxm").chip.memory_bytes
    assert more.kv_bytes - less.kv_bytes == pytest.approx(0.2 * card, rel=0.02)


def test_without_graphs_the_host_launches_every_kernel() -> None:
    """vllm/config/model.py: enforce_eager; hundreds of launches a step, which show where it is short."""
    graphs, eager = (
        llama(f"--quantization awq {flags}", concurrency=1) for flags in ("", "--enforce-eager")
    )
    # 32 layers of 8 to 16 kernels, each of which takes a host 3 to 8 us.
    assert 32 * 8 * 3e-3 < eager.tpot_ms.mean - graphs.tpot_ms.mean < 32 * 16 * 8e-3


def test_a_cache_of_8_bits_holds_twice_the_tokens() -> None:
    """vllm/config/cache.py: cache_dtype fp8."""
    wide, narrow = (
        llama(f"--kv-cache-dtype {word}", isl=8000, concurrency=8) for word in ("auto", "fp8")
    )
    assert narrow.max_context == pytest.approx(2.0 * wide.max_context, rel=0.01)
    assert narrow.tpot_ms.mean < wide.tpot_ms.mean


def test_attention_data_parallel_keeps_one_copy_of_a_latent_cache() -> None:
    """SGLang docs, "DP attention": with tensor parallelism every rank has the whole cache of latent
    attention; with attention data parallel each has its own sequences."""
    cut, spread = (
        answer(R1, f"{flags} --mem-fraction-static 0.85", **R1_LOAD)
        for flags in ("--tp 8", "--tp 8 --dp 8 --enable-dp-attention")
    )
    # Attention's weights are on every rank then, which takes some of what is gained.
    assert 4.0 < spread.kv_bytes / cut.kv_bytes * 8.0 < 8.5


WIDE: dict[str, Any] = {
    "system": "h100-sxm", "gpus": 32, "isl": 500, "osl": 1000, "prefill_gpus": "32xH100",
    "prefill_plan": "dp32 ep32",
}  # fmt: skip
WIDE_PLAN = "dp32 ep32 dispatch=deepep"
WIDE_WORDS = "--tp 32 --dp 32 --ep 32 --enable-dp-attention --moe-a2a-backend deepep"


def test_eplb_levels_the_busiest_rank() -> None:
    """lmsys.org/blog/2025-05-05-large-scale-ep: 1.49 times in prefill at EP32, 2.54 in decode at EP72."""
    even = answer(R1, f"{WIDE_WORDS} --enable-eplb", **WIDE, concurrency=4096)
    plain = answer(R1, WIDE_WORDS, **WIDE, concurrency=4096, plan=f"{WIDE_PLAN} no-eplb")
    assert 1.2 < plain.tpot_ms.mean / even.tpot_ms.mean < 3.0


def test_two_batch_overlap_pays_for_large_batches_alone() -> None:
    """lmsys.org/blog/2025-05-05-large-scale-ep: decode 27 % slower at 32 tokens of a device, 25.5 % faster
    at 256."""
    found = {}
    for each in (16, 256):
        load = {**WIDE, "concurrency": 32 * each}
        found[each, True] = answer(R1, f"{WIDE_WORDS} --enable-two-batch-overlap", **load)
        found[each, False] = answer(R1, WIDE_WORDS, **load, plan=f"{WIDE_PLAN} no-tbo")
    times = {key: one.tpot_ms.mean for key, one in found.items()}
    assert times[16, True] > times[16, False]
    assert times[256, True] < times[256, False]


def test_disaggregation_keeps_prompts_out_of_decode_steps() -> None:
    """SGLang docs, "PD disaggregation": prefill batches interrupt decode batches where they share chips."""
    load = {**LOAD, "gpus": 2, "isl": 8000, "osl": 300, "plan": "tp1"}
    whole = foretell.serve("llama-3.1-8b", **load)
    apart = foretell.serve("llama-3.1-8b", **{**load, "gpus": 2}, prefill_gpus=1)
    assert apart.tpot_ms.p99 < 0.9 * whole.tpot_ms.p99
    assert apart.transfer_ms > 0.0


@pytest.mark.parametrize(
    ("word", "low", "high"),
    [("awq", 0.3, 0.6), ("gptq", 0.3, 0.6), ("fp8", 0.5, 0.75), ("modelopt_fp4", 0.3, 0.8)],
)
def test_narrow_weights_are_read_sooner(word: str, low: float, high: float) -> None:
    """vllm/model_executor/layers/quantization: at one sequence a step reads the weights once."""
    load = {"concurrency": 1, "isl": 100, "system": "b200-sxm" if "fp4" in word else "h100-sxm"}
    wide, narrow = llama(**load), llama(f"--quantization {word}", **load)
    assert low < narrow.tpot_ms.mean / wide.tpot_ms.mean < high
    assert narrow.weight_bytes < 0.65 * wide.weight_bytes


def test_mxfp4_of_experts_is_read_from_the_checkpoint() -> None:
    """openai/gpt-oss-120b, config.json: quant_method mxfp4 of the experts alone."""
    found = answer("vllm serve openai/gpt-oss-120b", system="h100-sxm", gpus=1, concurrency=8)
    assert "experts=mxfp4" in found.plan
    # vLLM logs 65.97 GiB on an H100, where Marlin pads the experts.
    assert found.weight_bytes == pytest.approx(65.97 * 2**30, rel=0.005)


def test_a_cache_on_the_host_is_a_warning_above_the_answer() -> None:
    """vllm --kv-offloading-size, sglang --enable-hierarchical-cache: their gain depends on what is asked
    again, which no command says; `--kv-tiers` with a trace does."""
    for command in (
        f"{LLAMA} --kv-offloading-size 100",
        f"{R1} --tp 8 --enable-hierarchical-cache",
    ):
        launch = read_launch(command)
        assert any("kv_offloading" in text or "hierarchical" in text for text in launch.warnings())
