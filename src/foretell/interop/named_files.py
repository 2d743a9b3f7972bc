"""Files with further arguments that a launch names, once somebody has opened them (api/launch_files.py).

What is in such a file counts before the launch's own flags are put over it, as accelerate, vLLM and
torchtitan do; TensorRT-LLM does it the other way round. Of a DeepSpeed file that a trainer on transformers
names, stage and offloading count: the trainer says the rest.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from foretell.errors import BadInput
from foretell.interop.arguments import ArgumentTable, written_pairs
from foretell.interop.launch import NamedFile, Tool

KEYS = (
    "config_file", "job.config_file", "deepspeed", "deepspeed_config", "deepspeed_config_file", "config",
    "extra_llm_api_options", "yaml_cfg", "params_file",
)  # fmt: skip
"""Arguments that may name such a file."""
OF_DEEPSPEED = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
_NAMED = re.compile(
    rf"(?:--(?P<flag>{'|'.join(map(re.escape, KEYS))})[ =]+|^[ \t]*(?P<key>{'|'.join(OF_DEEPSPEED)}):[ \t]+)"
    r"['\"]?(?P<name>[\w./-]{1,200}\.(?:json|ya?ml|toml))['\"]?(?=\s|$)",
    re.MULTILINE,
)
_ALONE = re.compile(
    r"(?<=[\w\"'])[ \t]+(?:\\\n[ \t]*)?['\"]?(?P<name>[\w./-]{1,200}\.(?:ya?ml|toml|json))['\"]?(?=\s|$)"
)
"""A configuration that a command has as a word of its own: `axolotl train config.yaml`."""


def named_files(text: str) -> list[tuple[str, str]]:
    """(argument, name) of every file with further arguments that a text names; those it writes are none."""
    found = [(one["flag"] or one["key"], one["name"]) for one in _NAMED.finditer(text)]
    of_flags = {name for _, name in found}
    found += [("", one["name"]) for one in _ALONE.finditer(text) if one["name"] not in of_flags]
    return [
        (key, name)
        for key, name in dict.fromkeys(found)
        if not re.search(rf">\s*\S*{re.escape(name.rpartition('/')[2])}", text)
    ]


def with_files(given: ArgumentTable, files: Sequence[NamedFile], tool: Tool) -> ArgumentTable:
    """Arguments with those of the files that they name, in the order in which the tool counts them."""
    more: list[tuple[str, Any]] = []
    for one in files:
        if not one.key and one.name not in given.words:
            continue
        try:
            pairs = written_pairs(one.content)
        except BadInput:
            continue
        whole = one.key not in OF_DEEPSPEED or tool == "deepspeed"
        more += pairs if whole else _of_deepspeed(dict(pairs))
    if not more:
        return given
    pairs = (*given.pairs, *more) if tool == "trtllm" else (*more, *given.pairs)
    return replace(given, pairs=tuple(pairs))


def _of_deepspeed(table: dict[str, Any]) -> list[tuple[str, Any]]:
    """A DeepSpeed file in the keys that accelerate has for it."""
    names = {
        "zero_optimization.stage": "deepspeed_config.zero_stage",
        "zero_optimization.offload_optimizer.device": "deepspeed_config.offload_optimizer_device",
        "zero_optimization.offload_param.device": "deepspeed_config.offload_param_device",
    }
    return [(ours, table[theirs]) for theirs, ours in names.items() if theirs in table]
