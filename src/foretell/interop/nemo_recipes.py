"""NeMo 2: `llm.llama3_70b.pretrain_recipe(...)` with what is set on it, or `nemo llm pretrain --factory`.

A recipe is Megatron's flags under NeMo's names: its own values first (nemo_recipes.toml), then what the
script sets. The text is parsed, never run. A recipe that is not in the table is stated as unknown.
"""

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.interop.package_tables import packaged_table
from foretell.interop.python_calls import dotted_name, parsed, plain

FILE = Path(__file__).with_suffix(".toml")
SEQ_LEN, BATCH, MICRO_BATCH = 8192, 512, 1
"""Of every recipe in the table: MockDataModule(seq_length=8192, global_batch_size=512, ...)."""
DEGREES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size", "sp": "sequence_parallel",
}  # fmt: skip
_FACTORY = re.compile(
    r"nemo\s+llm\s+(\w+)\s[^\n]{0,2000}?--factory[ =]+(?:\"([^\"]+)\"|'([^']+)'|(\S+))"
)
_OVERRIDE = re.compile(r"(?<=\s)([a-z_]+(?:\.[a-z_]+)+)=(\S+)")


@lru_cache(maxsize=1)
def recipes() -> dict[str, dict[str, Any]]:
    """Every recipe of the table, by its name."""
    return packaged_table(FILE)


def read_recipe(text: str) -> tuple[tuple[str, Any], ...]:
    """Keys of a recipe and of what is set on it; none where the text has no recipe."""
    if match := _FACTORY.search(text):
        kind, call = match[1], match[2] or match[3] or match[4]
        name, _, rest = call.partition("(")
        words = dict(re.findall(r"(\w+)\s*=\s*([^,()\s]+)", rest))
        over = dict(_OVERRIDE.findall(text))
        return _pairs(name, f"{kind}_recipe", words, over)
    if "_recipe(" not in text:
        return ()
    tree = parsed(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in reversed(calls):
        parts = dotted_name(call.func).split(".")
        if parts[-1].endswith("_recipe") and len(parts) > 1:
            words = {one.arg: plain(one.value) for one in call.keywords if one.arg}
            return _pairs(parts[-2], parts[-1], words, _assigned(tree))
    return ()


def _assigned(tree: ast.AST) -> dict[str, Any]:
    """`recipe.trainer.strategy.tensor_model_parallel_size = 4` as its dotted name without the variable."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            found[dotted_name(node.targets[0]).partition(".")[2]] = plain(node.value)
    return found


def _pairs(
    name: str, kind: str, words: dict[str, Any], over: dict[str, Any]
) -> tuple[tuple[str, Any], ...]:
    """Keys of the recipe, the call's words above them, what is set last."""
    recipe = recipes().get(name) if kind == "pretrain_recipe" else None
    nodes, each = words.get("num_nodes"), words.get("num_gpus_per_node", 8)
    found: dict[str, Any] = {"trainer.num_nodes": nodes or 1, "trainer.devices": each}
    if recipe is None:
        found[f"{kind} {name}"] = True
    else:
        found |= {
            "trainer.num_nodes": nodes or recipe["nodes"],
            "model.hf_model_id": recipe["model"],
            "optim.use_distributed_optimizer": True,
            "plugins.bf16": True,
            "data.seq_length": SEQ_LEN,
            "data.global_batch_size": BATCH,
            "data.micro_batch_size": MICRO_BATCH,
        }
        strategy = {long: recipe[short] for short, long in DEGREES.items() if short in recipe}
        found |= {f"trainer.strategy.{long}": value for long, value in strategy.items()}
    return tuple({**found, **over}.items())
