"""Lines that programs print, one record for each form: what marks a line, and what its numbers measure.

A new program is one record of `STEPS` (lines of training steps), or some figures of `SERVICE` (benchmarks and
engines), `DEVICES` (power and memory of chips) or `STATED` (what a log says of its job). `log_reader.py`
reads by these tables alone. Sources: the log statements of each program's own repository, named in comments.
"""

import re
from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

from foretell.records import dataclass

NUMBER = r"([0-9][0-9,]{0,24}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?(?:[KMBGT](?![A-Za-z]))?)"
"""1234.5, 1,234.5, 1.2e3 and 1.52K; bounded, so that no line takes long."""
GIB, MIB = 2.0**30, 2.0**20
Take = Literal["median", "largest", "first", "last"]
"""Which of a figure's values over a log counts."""


class Needs(Protocol):
    """An entry of a table that is looked for by a text."""

    @property
    def needs(self) -> str:
        """The text."""


Needing = TypeVar("Needing", bound=Needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFigure:
    """Numbers of a line."""

    pattern: re.Pattern[str]
    """One group for each number."""
    names: tuple[str, ...]
    """What each group measures."""
    factors: tuple[float, ...]
    """From the printed unit to that of the name."""
    take: Take = "median"
    """Which value counts, where several lines have one."""
    needs: str = ""
    """A text that every such line has: looked for first, since most lines of a log have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFormat:
    """Lines of one program, each of a training step."""

    name: str
    """The program."""
    needs: str
    """A text that every such line has."""
    mark: re.Pattern[str]
    """What such a line has, beside."""
    number: re.Pattern[str]
    """The number of its step, and in a second group of all steps where it is printed."""
    figures: tuple[LineFigure, ...]
    """What it prints of the step."""


def after(words: str, name: str, factor: float = 1.0, take: Take = "median") -> LineFigure:
    """A number behind some words and a colon or an equals sign."""
    pattern = re.compile(f"(?:{words})" + r"\s*[:=]?\s*" + NUMBER)
    return LineFigure(pattern=pattern, names=(name,), factors=(factor,), take=take)


def whole(pattern: str, *reads: tuple[str, float], take: Take = "median") -> LineFigure:
    """Numbers by a pattern of their own; <N> in it is a number, <:> what stands between words and it."""
    made = re.compile(pattern.replace("<N>", NUMBER).replace("<:>", r"[ \t:|*=]+"))
    names, factors = tuple(name for name, _ in reads), tuple(factor for _, factor in reads)
    return LineFigure(pattern=made, names=names, factors=factors, take=take, needs=literal(pattern))


def literal(pattern: str) -> str:
    """The longest text that every match of a pattern has."""
    plain = re.sub(r"\\([^a-zA-Z0-9])", lambda m: chr(0xE000 + ord(m[1])), pattern)
    plain = re.sub(r"\\[a-zA-Z]", "*", plain)
    while (fewer := re.sub(r"\([^()]*\)|\[[^]]*\]|<[N:]>", "*", plain)) != plain:
        plain = fewer
    parts = re.split(r".?[*?+]+|[.^$|{}]", plain)
    longest = max(parts, key=len)
    return "".join(chr(ord(c) - 0xE000) if ord(c) >= 0xE000 else c for c in longest)


def present(table: Sequence[Needing], text: str) -> tuple[Needing, ...]:
    """Those entries of a table that some line of a text can have."""
    return tuple(one for one in table if one.needs in text)


def _steps(name: str, needs: str, mark: str, number: str, *figures: LineFigure) -> StepFormat:
    return StepFormat(
        name=name,
        needs=needs,
        mark=re.compile(mark),
        number=re.compile(number),
        figures=figures,
    )


RATE, TOTAL, TFLOPS = "tokens_per_s_per_gpu", "tokens_per_s", "tflops_per_gpu"
HELD, TENSORS = "reserved_bytes", "allocated_bytes"
STEPS: tuple[StepFormat, ...] = (
    _steps(  # nanotron: src/nanotron/trainer.py, LogItem
        "nanotron", "elapsed_time_per_iteration_ms", "tokens_per_sec", r"iteration: ([0-9]+) / ([0-9]+)",
        after("elapsed_time_per_iteration_ms", "step_s", 1e-3), after("tokens_per_sec_per_gpu", RATE),
        after("model_tflops_per_gpu", TFLOPS), after("sequence_length", "seq_len"),
    ),  # its global_batch_size counts tokens
    _steps(  # Megatron-LM and its relatives: megatron/training/training.py, training_log
        "Megatron-LM", "elapsed", r"elapsed[ _]time[ _]per[ _]iteration",
        r"iteration\s*=?\s*([0-9]+)/\s*([0-9]+)",
        after(r"elapsed[ _]time[ _]per[ _]iteration[ _]\(?ms\)?", "step_s", 1e-3),
        after(r"TFLOP/s/GPU\)?|TFLOPs", TFLOPS), after(r"global[ _]batch[ _]size", "global_batch"),
        after(r"actual[ _]seqlen", "seq_len"),
        after(r"tokens per gpu per second ?\(tgs\)|\(tokens/s/GPU\)", RATE),
    ),
    _steps(  # Megatron-Bridge: training/utils/train_utils.py
        "Megatron-Bridge", "Step Time", r"Step Time\s*:", r"iteration\s+([0-9]+)/\s*([0-9]+)",
        whole(r"Step Time\s*:\s*<N>\s*s", ("step_s", 1.0)),
        whole(r"<N>\s*MODEL_TFLOP/s/GPU", (TFLOPS, 1.0)),
    ),
    _steps(  # NeMo: Lightning's progress lines
        "NeMo", "train_step_timing", "train_step_timing in s",
        r"(?:global_step:|iteration) ([0-9]+)(?:/([0-9]+))?",
        after("train_step_timing in s", "step_s"), after("global_batch_size", "global_batch"),
    ),
    _steps(  # torchtitan: components/metrics.py
        "torchtitan", "step:", r"step:\s*[0-9]+\s.*\b[tw]ps:", r"step:\s*([0-9]+)",
        after(r"\b[tw]ps", RATE), after("tflops", TFLOPS), after("mfu", "mfu", 0.01),
        after("memory", HELD, GIB, take="largest"),
    ),
    _steps(  # DeepSpeed: utils/timer.py, ThroughputTimer
        "DeepSpeed", "SamplesPerSec", "SamplesPerSec=", r"(?:global_step=|stop\] )([0-9]+)",
        after(r"(?<![A-Za-z])(?:Curr)?SamplesPerSec", "samples_per_s"),
        whole(r"MaxMemAllocated\s*=\s*<N>\s*GB", (TENSORS, GIB), take="largest"),
    ),
    _steps(  # DeepSpeed: its flops profiler, and DeepSpeed-Chat's throughput
        "DeepSpeed", "atency", r"iter latency:|Latency: [0-9.]+s, TFLOPs", r"profile step:\s*([0-9]+)",
        whole(r"iter latency:\s*<N> s", ("step_s", 1.0)), whole(r"iter latency:\s*<N> ms", ("step_s", 1e-3)),
        whole(r"Latency: <N>s, TFLOPs: <N>", ("step_s", 1.0), (TFLOPS, 1.0)),
    ),
    _steps(  # DeepSpeed: runtime/pipe/engine.py, under GPT-NeoX and Megatron-DeepSpeed
        "DeepSpeed pipeline", "iter time (s)", r"iter time \(s\)", r"steps?:? ([0-9]+)",
        after(r"iter time \(s\)", "step_s"),
    ),
    _steps(  # MaxText: common/metric_logger.py
        "MaxText", "completed step", "completed step: [0-9]+", "completed step: ([0-9]+)",
        after("seconds", "step_s"), after("TFLOP/s/device", TFLOPS), after("Tokens/s/device", RATE),
        after("total_weights", "step_tokens"),
    ),
    _steps(  # nanoGPT: train.py
        "nanoGPT", "iter ", r"iter [0-9]+: loss .*time", "iter ([0-9]+)",
        whole(r"time <N>\s*ms", ("step_s", 1e-3)),
    ),
    _steps(  # nanochat: scripts/base_train.py
        "nanochat", "dt:", r"step [0-9]+.*\bdt:", "step ([0-9]+)(?:/([0-9]+))?",
        whole(r"dt:\s*<N>\s*ms", ("step_s", 1e-3)), after("tok/sec", TOTAL),
    ),
    _steps(  # llm.c: train_gpt2.cu
        "llm.c", "tok/s", r"step\s+[0-9]+/[0-9]+ \|.* ms \|", r"step\s+([0-9]+)/([0-9]+)",
        whole(r"\| <N> ms \|", ("step_s", 1e-3)), whole(r"<N> tok/s", (TOTAL, 1.0)),
    ),
    _steps(  # modded-nanogpt: train_gpt.py prints the time since the clock was started
        "modded-nanogpt", "train_time:", r"step:[0-9]+/[0-9]+ .*train_time:", "step:([0-9]+)/([0-9]+)",
        whole(r"train_time:<N>ms", ("clock_s", 1e-3)),
    ),
    _steps(  # LitGPT: pretrain.py, finetune
        "LitGPT", "iter time", r"iter time:", "step ([0-9]+)",
        whole(r"iter time: <N> ms", ("step_s", 1e-3)),
    ),
    _steps(  # LLaMA-Factory: train/callbacks.py, trainer_log.jsonl
        "LLaMA-Factory", "current_steps", '"current_steps"', '"current_steps": ([0-9]+)',
    ),
    _steps(  # torchtune: metric loggers
        "torchtune", "tokens_per_second_per_gpu", r"Step [0-9]+ \|", r"Step ([0-9]+)",
        after("tokens_per_second_per_gpu", RATE),
        after("peak_memory_(?:reserved|active)", HELD, GIB, take="largest"),
    ),
    _steps(  # Composer (LLM Foundry) and OLMo-core
        "Composer", "throughput/device/", r"throughput/device/", r"step=([0-9]+)(?:/([0-9]+))?",
        after(r"throughput/device/(?:tokens_per_sec|TPS)", RATE),
    ),
    _steps(  # DeepSpeed: runtime/engine.py prints no time here, but its logger does
        "DeepSpeed", "[Rank 0] step=", r"\[Rank 0\] step=", r"step=([0-9]+)",
    ),
    _steps(
        "a training log", "time", r"(?:step|iter)[ _]?time",
        r"(?:step|iter(?:ation)?)[ :=]+([0-9]+)(?:/([0-9]+))?",
        whole(r"(?:step|iter)[ _]?time[ :=]+<N>\s*ms\b", ("step_s", 1e-3)),
        whole(r"(?:step|iter)[ _]?time[ :=]+<N>\s*s(?:ec)?\b", ("step_s", 1.0)),
        whole(r"(?:step|iter)[ _]?time(?:_s| \(s\))[ :=]+<N>", ("step_s", 1.0)),
        whole(r"(?:step|iter)[ _]?time(?:_ms| \(ms\))[ :=]+<N>", ("step_s", 1e-3)),
    ),
)  # fmt: skip
"""Lines of steps; a line is read by the first that it fits."""
DATED = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[,.]([0-9]{1,6}))?"
)
"""When a line was written."""
ELAPSED = re.compile(
    r'"elapsed_time": "(?:([0-9]{1,5}) days?, )?([0-9]{1,9}):([0-9]{2}):([0-9]{2})"'
)
"""Time since the start of LLaMA-Factory's lines."""
MEMORY: tuple[LineFigure, ...] = (
    whole(r"memory \(MB\).*max reserved: <N>", (HELD, MIB), take="largest"),
    whole(r"memory \(MB\).*max allocated: <N>", (TENSORS, MIB), take="largest"),
    whole(r"max allocated memory[^0-9]{0,20}<N>\s*GiB", (TENSORS, GIB), take="largest"),
)  # fmt: skip
"""Memory that training programs print on lines of their own."""
SERVICE: tuple[LineFigure, ...] = (
    # vLLM's and SGLang's serving benchmarks: means, which predictions are of, and the median of TPOT.
    whole(r"Mean TTFT \(ms\)<:><N>", ("ttft_ms", 1.0)),
    whole(r"Mean TPOT \(ms\)<:><N>", ("tpot_ms", 1.0)),
    whole(r"Median TTFT \(ms\)<:><N>", ("median_ttft_ms", 1.0)),
    whole(r"Median TPOT \(ms\)<:><N>", ("decode_step_s", 1e-3)),
    whole(r"Mean (?:E2EL|E2E Latency) \(ms\)<:><N>", ("e2e_ms", 1.0)),
    whole(r"Latency Mean \(s\)<:><N>", ("e2e_ms", 1e3)),
    whole(r"^\W*Output token throughput \(tok/s\)<:><N>", ("output_tokens_per_s", 1.0)),
    whole(r"Request throughput \(req/s\)<:><N>", ("requests_per_s", 1.0)),
    whole(r"Successful requests<:><N>", ("completed", 1.0)),
    whole(r"Total input tokens<:><N>", ("input_tokens", 1.0)),
    whole(r"Total generated tokens<:><N>", ("output_tokens", 1.0)),
    whole(r"Max(?:imum)? request concurrency<:><N>", ("concurrency", 1.0)),
    whole(r"[Rr]equest rate(?: configured \(RPS\))?<:><N>", ("rate", 1.0)),
    # vLLM's throughput and latency benchmarks.
    whole(r"Throughput: <N> requests/s, .*?<N> output tokens/s",
          ("requests_per_s", 1.0), ("output_tokens_per_s", 1.0)),
    whole(r"Avg latency: <N> seconds", ("e2e_ms", 1e3)),
    # SGLang's bench_one_batch.
    whole(r"Prefill\. latency: +<N> s", ("ttft_ms", 1e3), take="last"),
    whole(r"Decode\.\s+median latency: +<N> s", ("tpot_ms", 1e3), take="last"),
    # TensorRT-LLM's trtllm-bench.
    whole(r"Request Throughput \(req/sec\)<:><N>", ("requests_per_s", 1.0)),
    whole(r"Total Output Throughput \(tokens/sec\)<:><N>", ("output_tokens_per_s", 1.0)),
    whole(r"Average request latency \(ms\)<:><N>", ("e2e_ms", 1.0)),
    whole(r"Average time-to-first-token.*\(ms\)<:><N>", ("ttft_ms", 1.0)),
    whole(r"Average time-per-output-token.*\(ms\)<:><N>", ("tpot_ms", 1.0)),
    whole(r"Number of concurrent requests<:><N>", ("concurrency", 1.0)),
    whole(r"Average Input Length \(tokens\)<:><N>", ("isl", 1.0)),
    whole(r"Average Output Length \(tokens\)<:><N>", ("osl", 1.0)),
    # TensorRT-LLM's benchmarks in C++ and of single engines.
    whole(r"avg_time_to_first_token\(ms\) <N>", ("ttft_ms", 1.0)),
    whole(r"avg_inter_token_latency\(ms\) <N>", ("tpot_ms", 1.0)),
    whole(r"avg_sequence_latency\(ms\) <N>", ("e2e_ms", 1.0)),
    whole(r"seq_throughput\(seq/sec\) <N>", ("requests_per_s", 1.0)),
    whole(r"token_throughput\(token/sec\) <N>", ("output_tokens_per_s", 1.0)),
    whole(r"\[BENCHMARK\].* tokens_per_sec <N>", ("output_tokens_per_s", 1.0)),
    # NVIDIA's GenAI-Perf and AIPerf: a table whose first column is the mean.
    whole(r"[Tt]ime [Tt]o [Ff]irst [Tt]oken \(ms\)\s*[|│┃]\s*<N>", ("ttft_ms", 1.0)),
    whole(r"[Ii]nter [Tt]oken [Ll]atency \(ms\)\s*[|│┃]\s*<N>", ("tpot_ms", 1.0)),
    whole(r"[Rr]equest [Ll]atency \(ms\)\s*[|│┃]\s*<N>", ("e2e_ms", 1.0)),
    whole(r"[Oo]utput [Tt]oken [Tt]hroughput \((?:per |tokens/)sec\)\s*[|│┃]\s*<N>",
          ("output_tokens_per_s", 1.0)),
    whole(r"[Rr]equest [Tt]hroughput \((?:per |requests/)sec\)\s*[|│┃]\s*<N>", ("requests_per_s", 1.0)),
    whole(r"[Ii]nput [Ss]equence [Ll]ength(?: \(tokens\))?\s*[|│┃]\s*<N>", ("isl", 1.0)),
    whole(r"[Oo]utput [Ss]equence [Ll]ength(?: \(tokens\))?\s*[|│┃]\s*<N>", ("osl", 1.0)),
    # vLLM's engine, every ten seconds, and SGLang's, every few decode steps.
    whole(r"generation throughput: <N> tokens/s, Running: <N> reqs",
          ("engine_tokens_per_s", 1.0), ("running", 1.0)),
    whole(r"Decode batch.*#running-req: <N>.*gen throughput \(token/s\): <N>",
          ("running", 1.0), ("engine_tokens_per_s", 1.0)),
    # What engines hold once they are up: vLLM, SGLang, TensorRT-LLM.
    whole(r"GPU KV cache size: <N> tokens", ("kv_cache_tokens", 1.0), take="first"),
    whole(r"# (?:GPU|cuda) blocks: <N>", ("kv_blocks", 1.0), take="first"),
    whole(r"max_total_num_tokens=<N>", ("kv_cache_tokens", 1.0), take="first"),
    whole(r"KV Cache is allocated\..*#tokens: <N>", ("kv_cache_tokens", 1.0), take="first"),
    whole(r"max tokens in paged KV cache \(<N>\)", ("kv_cache_tokens", 1.0), take="first"),
    whole(r"Available KV cache memory: <N> GiB", ("kv_bytes", GIB), take="first"),
    whole(r"reserved for KV Cache is <N>\s*GiB", ("kv_bytes", GIB), take="first"),
    whole(r"kv_cache_size=<N>\s*GiB", ("kv_bytes", GIB), take="first"),
    whole(r"Maximum concurrency for <N> tokens per request: <N>x",
          ("request_tokens", 1.0), ("requests", 1.0)),
    whole(r"K size: <N> GB, V size: <N> GB", ("k_bytes", GIB), ("v_bytes", GIB), take="first"),
    whole(r"Model loading took <N> G[iB]", ("weight_bytes", GIB), take="first"),
    whole(r"model weights take <N>\s*GiB", ("weight_bytes", GIB), take="first"),
    whole(r"Loading model weights took <N> G[iB]", ("weight_bytes", GIB), take="first"),
    whole(r"Load weight end.*mem usage=<N> GB", ("weight_bytes", GIB), take="first"),
)  # fmt: skip
"""Lines of benchmarks and engines."""
DEVICES: tuple[LineFigure, ...] = (
    # nvidia-smi: the table, -q, and rows of --query-gpu without a head; DCGM's exporter.
    whole(r"<N>W\s*/\s*<N>W\s*\|\s*<N>MiB\s*/\s*<N>MiB\s*\|\s*<N>%", ("watts", 1.0), ("limit_watts", 1.0),
          ("used_bytes", MIB), ("memory_bytes", MIB), ("busy", 0.01)),
    whole(r"C\s+P[0-9]+\s+<N>W\s*/\s*<N>W", ("watts", 1.0), ("limit_watts", 1.0)),
    whole(r"(?:Instantaneous |Average )?Power Draw\s*: <N> W", ("watts", 1.0)),
    whole(r"^\s*Gpu\s*: <N> %", ("busy", 0.01)),
    whole(r"DCGM_FI_DEV_POWER_USAGE\{.*\} <N>", ("watts", 1.0)),
    whole(r"DCGM_FI_DEV_GPU_UTIL\{.*\} <N>", ("busy", 0.01)),
    whole(r"DCGM_FI_DEV_FB_USED\{.*\} <N>", ("used_bytes", MIB)),
    # rocm-smi and amd-smi.
    whole(r"(?:Average|Current Socket) Graphics Package Power \(W\): <N>", ("watts", 1.0)),
    whole(r"GPU use \(%\): <N>", ("busy", 0.01)),
    whole(r"(?:^|, ?)<N> W(?:,|$)", ("watts", 1.0)),
)  # fmt: skip
"""Power, memory and occupancy of chips."""
COLUMNS: dict[str, tuple[str, float]] = {
    "power.draw": ("watts", 1.0), "power.draw.instant": ("watts", 1.0), "power.draw.average": ("watts", 1.0),
    "utilization.gpu": ("busy", 0.01), "memory.used": ("used_bytes", MIB), "pwr": ("watts", 1.0),
    "sm": ("busy", 0.01), "fb": ("used_bytes", MIB), "power": ("watts", 1.0), "POWER": ("watts", 1.0),
    "gputl": ("busy", 0.01), "GPUTL": ("busy", 0.01), "FBUSD": ("used_bytes", MIB),
}  # fmt: skip
"""Heads of columns of `nvidia-smi --query-gpu ... --format=csv`, `nvidia-smi dmon` and `dcgmi dmon`."""
BUSY = 0.1
"""Share of the time that a chip is busy from which its power is that of the work."""
PAGE = 16
"""Tokens of a block of vLLM's cache where the log does not state them: its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedValue:
    """What a line says of the job or the plan."""

    needs: str
    """A text that every such line has."""
    pattern: re.Pattern[str]
    """One group for each value."""
    names: tuple[str, ...]
    """A name of a job (gpus, global_batch, model ...), or a word of a plan with {} for the value."""


def _states(needs: str, pattern: str, *names: str) -> StatedValue:
    return StatedValue(needs=needs, pattern=re.compile(pattern), names=names)


STATED: tuple[StatedValue, ...] = (
    # Megatron-LM: initialize.py, global_vars.py.
    _states("using world size", r"using world size: ([0-9]+)", "gpus"),
    _states("tensor-model-parallel size", r"tensor-model-parallel size: ([0-9]+)", "tp{}"),
    _states("pipeline-model-parallel size", r"pipeline-model-parallel size: ([0-9]+)", "pp{}"),
    _states("context-parallel size", r"context-parallel size: ([0-9]+)", "cp{}"),
    _states("tensor model parallel", r"initialized tensor model parallel with size ([0-9]+)", "tp{}"),
    _states("pipeline model parallel", r"initialized pipeline model parallel with size ([0-9]+)", "pp{}"),
    # torchtitan: train.py.
    _states(
        "global batch size", r"global batch size ([0-9]+), sequence length ([0-9]+)",
        "global_batch", "seq_len",
    ),
    _states("local batch size", r"with local batch size ([0-9]+)", "mbs{}"),
    _states("capacity:", r"capacity: (NVIDIA [A-Za-z0-9 .-]+?|AMD [A-Za-z0-9 .-]+?) with ", "system"),
    # Hugging Face Trainer: trainer.py.
    _states("Total train batch size", r"Total train batch size .*= ([0-9,]+)", "global_batch"),
    _states("Instantaneous batch size", r"Instantaneous batch size per device = ([0-9,]+)", "mbs{}"),
    # DeepSpeed: runtime/config.py prints its values, dots between.
    _states("train_batch_size", r"\btrain_batch_size \.* ?([0-9]+)\s*$", "global_batch"),
    _states("micro_batch_size_per_gpu", r"train_micro_batch_size_per_gpu \.* ?([0-9]+)\s*$", "mbs{}"),
    _states("zero_optimization_stage", r"zero_optimization_stage \.* ?([0-3])\s*$", "zero{}"),
    _states("world_size", r"\bworld_size(?: =|:)? \.* ?([0-9]+)\s*$", "gpus"),
    # nanotron: config.py, ParallelismArgs.
    _states(
        "ParallelismArgs(", r"\(dp=([0-9]+), *pp=([0-9]+), *tp=([0-9]+)", "dp{}", "pp{}", "tp{}",
    ),
    # TensorRT-LLM: bench/dataclasses/reporting.py.
    _states("Model:", r"^Model:\s+(\S+)\s*$", "model"),
    _states("TP Size:", r"TP Size:\s+([0-9]+)", "tp{}"),
    _states("PP Size:", r"PP Size:\s+([0-9]+)", "pp{}"),
    _states("EP Size:", r"EP Size:\s+([0-9]+)", "ep{}"),
    _states("NVIDIA ", r"^NVIDIA ([A-Za-z0-9 .-]+), memory ", "system"),
    # vLLM and SGLang print their arguments.
    _states("model", r"(?:\bmodel|model_path|'model'|'model_tag')[=:] ?'([^']+)'", "model"),
    _states("tensor_parallel_size", r"tensor_parallel_size'?[=:] ?([0-9]+)", "tp{}"),
    _states("pipeline_parallel_size", r"pipeline_parallel_size'?[=:] ?([0-9]+)", "pp{}"),
    _states("tp_size=", r"\btp_size=([0-9]+)", "tp{}"),
    _states("gpu_memory_utilization", r"gpu_memory_utilization'?[=:] ?([0-9.]+)", "memory_fraction={}"),
    _states("mem_fraction_static", r"mem_fraction_static=([0-9.]+)", "memory_fraction={}"),
    # nvidia-smi names the chips of a node, one a row.
    _states("| ", r"^\|\s+[0-9]+\s+(?:NVIDIA |AMD )?([A-Z][A-Za-z0-9 .-]+?)\s+(?:On|Off)\s", "chip_row"),
    _states("Backend:", r"^\W*Backend:\s+(vllm|sglang|trtllm)", "engine"),
)  # fmt: skip
"""What logs say of their jobs."""
ENGINES = (
    ("GPU KV cache size", "vllm"), ("vLLM API server", "vllm"), ("# GPU blocks:", "vllm"),
    ("max_total_num_tokens=", "sglang"), ("ServerArgs(", "sglang"), ("TensorRT LLM Version", "trtllm"),
    ("TensorRT-LLM Version", "trtllm"), ("[TRT-LLM]", "trtllm"),
)  # fmt: skip
"""Texts by which an engine's own log is known."""
BEGINS = re.compile(
    r"Serving Benchmark Result|-{5,} arguments -{5,}|^= PYTORCH BACKEND|API server version|server_args="
    r"|^[\s+$#]*(?:[A-Z_]+=\S+ +)*"
    r"(?:torchrun|deepspeed|accelerate launch|python3? (?:-m )?\S+|vllm (?:serve|bench)) .*-"
)
"""Lines with which another run begins: its command, its arguments, the head of a benchmark."""
COMMAND = re.compile(
    r"^[\s+$#]*((?:[A-Z_]+=\S+ +)*"
    r"(?:torchrun|deepspeed|accelerate launch|vllm serve|python3? (?:-m )?\S+) .*)"
)
"""A command that launches it."""
