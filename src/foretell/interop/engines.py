"""A deployment as the command that starts it: vLLM, SGLang, TensorRT-LLM.

Flags as the engines' own help names them (vLLM 0.10 and later, SGLang 0.5, TensorRT-LLM 1.0). The memory
fractions of the three mean different things and are written only where they were given.
"""

from collections.abc import Callable, Mapping, Sequence

from foretell.specs.deployment import Deployment

Words = Sequence[tuple[str, object]]


def vllm(model: str, d: Deployment, batch: int) -> str:
    """`vllm serve`."""
    words: list[tuple[str, object]] = [
        ("--tensor-parallel-size", d.tp),
        ("--pipeline-parallel-size", d.pp),
        ("--data-parallel-size", d.dp),
    ]
    if d.ep > 1:
        words.append(("--enable-expert-parallel", ""))
    words += [("--max-num-seqs", max(batch // d.dp, 1)), ("--max-num-batched-tokens", d.max_tokens)]
    words.append(("--gpu-memory-utilization", d.memory_fraction))
    words.append(("--quantization", {"fp8": "fp8", "fp8-block": "fp8"}.get(d.weights)))
    words.append(("--kv-cache-dtype", "fp8" if d.kv.startswith("fp8") else None))
    return command(f"vllm serve {model}", words, ones=("--tensor-parallel-size",))


def sglang(model: str, d: Deployment, batch: int) -> str:
    """`sglang.launch_server`; with attention data parallel its tp is all chips of the stage."""
    words: list[tuple[str, object]] = [("--tp", d.tp * d.dp), ("--pp-size", d.pp)]
    if d.dp > 1:
        words += [("--dp-size", d.dp), ("--enable-dp-attention", "")]
    words += [("--ep-size", d.ep), ("--max-running-requests", batch)]
    words += [
        ("--chunked-prefill-size", d.max_tokens),
        ("--mem-fraction-static", d.memory_fraction),
    ]
    words.append(("--quantization", {"fp8": "fp8", "fp8-block": "fp8"}.get(d.weights)))
    words.append(("--kv-cache-dtype", "fp8_e4m3" if d.kv.startswith("fp8") else None))
    return command(f"python -m sglang.launch_server --model-path {model}", words, ones=("--tp",))


def trtllm(model: str, d: Deployment, batch: int) -> str:
    """`trtllm-serve`; its tp is all chips of the stage, attention data parallel a switch of its file."""
    words: list[tuple[str, object]] = [
        ("--tp_size", d.tp * d.dp),
        ("--pp_size", d.pp),
        ("--ep_size", d.ep),
        ("--max_batch_size", batch),
        ("--max_num_tokens", d.max_tokens),
        ("--kv_cache_free_gpu_memory_fraction", d.memory_fraction),
    ]
    text = command(f"trtllm-serve {model}", words, ones=("--tp_size",))
    inside = []
    if d.dp > 1:
        inside.append("enable_attention_dp: true")
    if d.kv.startswith("fp8"):
        inside.append("kv_cache_config: {dtype: fp8}")
    if inside:
        lines = "\n".join(inside)
        text += f" --extra_llm_api_options extra.yml\n# extra.yml:\n{lines}"
    return text


def command(start: str, words: Words, ones: Sequence[str]) -> str:
    """A command line; degrees of one and what was not given are left out, but for `ones`."""
    said = [
        f"{flag} {value}".strip()
        for flag, value in words
        if value is not None and (value != 1 or flag in ones)
    ]
    return " ".join([start, *said])


EXPORTS: Mapping[str, Callable[[str, Deployment, int], str]] = {
    "vllm": vllm,
    "sglang": sglang,
    "trtllm": trtllm,
}
"""Engines by the name of `--export`."""
