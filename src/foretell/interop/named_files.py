"""Files with further arguments that a launch names: accelerate's, DeepSpeed's, an engine's YAML.

They are opened where the launch itself is a file of the user's, and only inside its folder. A server opens
none: there a launch is a text.

What is in such a file counts before the launch's own flags are put over it, as accelerate, vLLM and
torchtitan do; TensorRT-LLM does it the other way round. Of a DeepSpeed file that a trainer on transformers
names, stage and offloading count: the trainer says the rest.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.errors import BadInput
from foretell.interop.arguments import LARGEST_TEXT, ArgumentTable, written_pairs
from foretell.interop.launch import NamedFile, Tool
from foretell.interop.user_files import are_read, is_there

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


MOST_FILES = 4
"""Files that a launch and the files it names may name."""


def files_beside(text: str, launch: Path) -> tuple[NamedFile, ...]:
    """What the files say that a launch file names, where they lie beside it or below."""
    if not are_read():
        return ()
    folder = launch.resolve().parent
    found: list[NamedFile] = []
    texts = [text]
    while texts and len(found) < MOST_FILES:
        for key, name in named_files(texts.pop(0)):
            content = _content(folder, name)
            if content is not None and all(one.name != name for one in found):
                found.append(NamedFile(key=key, name=name, content=content))
                texts.append(content)
    return tuple(found[:MOST_FILES])


def _content(folder: Path, name: str) -> str | None:
    """The text of a file in the folder of the launch; None where it is elsewhere, or no text."""
    path = (folder / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(folder):
        return None
    if not is_there(path, folder=False):
        return None
    try:
        if path.stat().st_size > LARGEST_TEXT:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
