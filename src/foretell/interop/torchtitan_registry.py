"""What torchtitan's own configurations set: `--module llama3 --config llama3_8b` is one of these functions.

Read from torchtitan 0.3.0, models/*/config_registry.py; what a function leaves out has the default of
config/configs.py. A flag beside it counts first.
"""

from collections.abc import Mapping
from typing import Any

SELECTIVE, FULL = "SelectiveAC.Config()", "FullAC.Config()"


def _set(
    assets: str, batch: int, seq_len: int, saved: str, *, tp: int = 1, ep: int = 1, **more: Any
) -> dict[str, Any]:
    """Keys of one function."""
    found: dict[str, Any] = {
        "hf_assets_path": f"./assets/hf/{assets}",
        "training.local_batch_size": batch,
        "training.seq_len": seq_len,
        "activation_checkpoint": saved,
    }
    found |= {"parallelism.tensor_parallel_degree": tp} if tp > 1 else {}
    found |= {"parallelism.expert_parallel_degree": ep} if ep > 1 else {}
    return found | {key.replace("__", "."): value for key, value in more.items()}


LOOPED: dict[str, Any] = {
    "parallelism__pipeline_parallel_schedule": "Interleaved1F1B",
    "compile__enable": True,
}
REGISTRY: Mapping[str, Mapping[str, Any]] = {
    "llama3_8b": _set("Llama-3.1-8B", 1, 8192, SELECTIVE),
    "llama3_70b": _set("Llama-3.1-70B", 8, 8192, FULL, tp=8),
    "llama3_405b": _set("Llama-3.1-405B", 2, 8192, FULL, tp=8, compile__enable=True),
    "deepseek_v3_16b": _set("deepseek-moe-16b-base", 4, 4096, SELECTIVE, ep=8, **LOOPED),
    "deepseek_v3_671b": _set("DeepSeek-V3.1-Base", 4, 4096, SELECTIVE, ep=2, **LOOPED),
    "gpt_oss_20b": _set("gpt-oss-20b", 1, 8192, FULL),
    "gpt_oss_120b": _set("gpt-oss-120b", 1, 8192, FULL),
    "qwen3_0_6b": _set("Qwen3-0.6B", 4, 4096, SELECTIVE),
    "qwen3_1_7b": _set("Qwen3-1.7B", 4, 4096, SELECTIVE),
    "qwen3_14b": _set("Qwen3-14B", 4, 4096, FULL),
    "qwen3_32b": _set("Qwen3-32B", 2, 4096, FULL),
    "qwen3_30b_a3b": _set("Qwen3-30B-A3B", 2, 4096, FULL),
    "sft_qwen3_8b_math": _set("Qwen3-8B", 1, 2048, SELECTIVE),
}
"""Functions and what they set."""

FLAVORS: Mapping[str, tuple[str, str]] = {
    "Llama-3.1-8B": ("llama3", "8B"), "Llama-3.1-70B": ("llama3", "70B"),
    "Llama-3.1-405B": ("llama3", "405B"), "deepseek-moe-16b-base": ("deepseek_v3", "16B"),
    "DeepSeek-V3.1-Base": ("deepseek_v3", "671B"), "DeepSeek-V3": ("deepseek_v3", "671B"),
    "gpt-oss-20b": ("gpt_oss", "20b"), "gpt-oss-120b": ("gpt_oss", "120b"),
    "Qwen3-0.6B": ("qwen3", "0.6B"), "Qwen3-1.7B": ("qwen3", "1.7B"), "Qwen3-4B": ("qwen3", "4B"),
    "Qwen3-8B": ("qwen3", "8B"), "Qwen3-14B": ("qwen3", "14B"), "Qwen3-32B": ("qwen3", "32B"),
    "Qwen3-30B-A3B": ("qwen3", "30B-A3B"), "Qwen3-235B-A22B": ("qwen3", "235B-A22B"),
}  # fmt: skip
"""Repository -> name and flavor that 0.2 has for it (models/*/__init__.py of 0.2.2)."""
