"""Scripts that train with Hugging Face's classes, as keys: TrainingArguments, TRL's configs, PEFT, Unsloth.

The text is parsed, never run. Keywords of the calls that a step depends on become keys of the same names as
in a file; names that the script sets to a literal stand for it. What is computed otherwise stays as its text.
"""

import ast
from collections.abc import Mapping
from typing import Any

from foretell.interop.python_calls import dotted_name, plain

METHODS = {
    "TrainingArguments": "", "Seq2SeqTrainingArguments": "", "SFTConfig": "sft", "DPOConfig": "dpo",
    "ORPOConfig": "orpo", "KTOConfig": "kto", "GRPOConfig": "grpo", "RLOOConfig": "rloo", "PPOConfig": "ppo",
    "RewardConfig": "reward", "UnslothTrainingArguments": "sft",
}  # fmt: skip
"""Classes of a training's arguments, and the method that each is for."""
ADAPTERS = ("LoraConfig", "get_peft_model")
"""Calls that add adapters; Unsloth's takes their fields itself."""
STORED_IN = ("load_in_4bit", "load_in_8bit", "bnb_4bit_use_double_quant")
"""Keywords of these that a step depends on."""
QUANTISED = ("BitsAndBytesConfig",)
"""Calls that say how weights are loaded."""
LOADERS = ("from_pretrained",)
"""Calls that load a model."""
TRAINERS = (
    "Trainer",
    "SFTTrainer",
    "DPOTrainer",
    "GRPOTrainer",
    "RewardTrainer",
    "ORPOTrainer",
    "KTOTrainer",
)
"""Calls that join them; TRL's load a model by its name."""
LOADED = (
    "load_in_4bit",
    "load_in_8bit",
    "max_seq_length",
    "attn_implementation",
    "torch_dtype",
    "dtype",
)
"""Keywords of a loader that a step depends on."""
NOT_MODELS = ("Tokenizer", "Processor", "Config", "FeatureExtractor")
"""Classes that are loaded beside a model."""


def read_trainer_script(text: str) -> tuple[tuple[str, Any], ...]:
    """Keys of a script; none where it has no call that holds a training's arguments."""
    if not any(f"{name}(" in text for name in METHODS):
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    known = _literals(tree)
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found |= _keys(node, known)
    if not any(name in found for name in ("trainer_type", "per_device_train_batch_size")):
        return ()
    if "unsloth" in text and any(_imports(node, "unsloth") for node in ast.walk(tree)):
        found["use_unsloth"] = True
    return tuple(found.items())


def read_config_module(text: str) -> tuple[tuple[str, Any], ...]:
    """Keys of a configuration that is a module (xtuner, mmengine): names it sets, and dict(...) calls
    inside."""
    if "xtuner" not in text or "dict(" not in text:
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    known: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if isinstance(node.value, ast.Call) and dotted_name(node.value.func) == "dict":
            found |= _nested(node.value, known, f"{name}.")
        else:
            known[name] = found[name] = _value(node.value, known)
    return tuple(found.items()) if "model.llm.type" in found or "model.type" in found else ()


def read_engine(text: str) -> tuple[tuple[str, Any], ...]:
    """Keywords of the first call that makes an engine of vLLM: `LLM(model=..., tensor_parallel_size=2)`."""
    if "vllm" not in text or "LLM(" not in text:
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    known = _literals(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] == "LLM":
            words = {one.arg: _value(one.value, known) for one in node.keywords if one.arg}
            first = {"model": _value(node.args[0], known)} if node.args else {}
            return tuple((first | words).items())
    return ()


def _nested(call: ast.Call, known: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Keywords of dict(...) as dotted keys."""
    found: dict[str, Any] = {}
    for word in call.keywords:
        if word.arg is None:
            continue
        if isinstance(word.value, ast.Call) and dotted_name(word.value.func) == "dict":
            found |= _nested(word.value, known, f"{prefix}{word.arg}.")
        else:
            found[prefix + word.arg] = _value(word.value, known)
    return found


def _keys(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that one call gives."""
    whole = dotted_name(call.func)
    name = whole.rpartition(".")[2]
    words = {word.arg: _value(word.value, known) for word in call.keywords if word.arg}
    first = _value(call.args[0], known) if call.args else None
    if name in METHODS:
        method = METHODS[name]
        return {**words, **({"trainer_type": method} if method else {})}
    if name in ADAPTERS:
        return _adapter_keys(words)
    if name in QUANTISED:
        return {key: words[key] for key in STORED_IN if key in words}
    if name in LOADERS and not any(one in whole for one in NOT_MODELS):
        model = words.get("model_name", words.get("pretrained_model_name_or_path", first))
        told = {key: words[key] for key in LOADED if key in words}
        return {**({"model_name_or_path": model} if isinstance(model, str) else {}), **told}
    if name in TRAINERS and isinstance(words.get("model"), str):
        literal = next(one.value for one in call.keywords if one.arg == "model")
        text = isinstance(literal, ast.Constant) or isinstance(_value(literal, known), str)
        named = text and not (isinstance(literal, ast.Name) and literal.id not in known)
        return {"model_name_or_path": words["model"]} if named else {}
    return {}


def _adapter_keys(words: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of adapters under the names that files have them."""
    found = {f"lora_{key}" if key == "r" else key: value for key, value in words.items()
             if key in ("r", "target_modules", "lora_alpha", "lora_dropout", "use_dora")}  # fmt: skip
    if "use_gradient_checkpointing" in words:
        found["gradient_checkpointing"] = words["use_gradient_checkpointing"]
    return found


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal, what a name stands for, the last part of `torch.bfloat16`, or the text."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, known)
    if isinstance(node, ast.Call) and dotted_name(node.func).endswith("is_bfloat16_supported"):
        return True  # every chip that is predicted has it
    return plain(node)


def _literals(tree: ast.AST) -> dict[str, Any]:
    """Names that the script sets to a literal; a name that is set twice stands for nothing."""
    found: dict[str, Any] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
                twice |= {target.id} & set(found)
                found[target.id] = node.value.value
    return {name: value for name, value in found.items() if name not in twice}


def _imports(node: ast.AST, module: str) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == module
    return isinstance(node, ast.Import) and any(
        one.name.partition(".")[0] == module for one in node.names
    )
