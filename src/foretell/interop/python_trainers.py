"""Scripts that train with Hugging Face's classes, as keys: TrainingArguments, TRL's configs, PEFT, Unsloth.

The text is parsed, never run. Keywords of the calls that a step depends on become keys of the same names as
in a file; names that the script sets to a literal stand for it. What is computed otherwise stays as its text.
"""

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretell.interop.package_tables import packaged_table
from foretell.interop.python_calls import dotted_name, parsed, plain

SIGNS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b if b else 0,
}  # fmt: skip
"""Arithmetic of literals."""
_TABLE = packaged_table(Path(__file__).with_name("python_trainers.toml"))
METHODS: Mapping[str, str] = _TABLE["methods"]
"""Classes of a training's arguments, and the method that each is for."""
OLMO: Mapping[str, str] = _TABLE["olmo"]
"""Classes of OLMo-core's configurations, and what their fields are under."""
CALLS = {kind: tuple(names.split()) for kind, names in _TABLE["calls"].items()}
"""Other calls that a step depends on, by what they do."""
KEYWORDS = {kind: tuple(names.split()) for kind, names in _TABLE["keywords"].items()}
"""Their keywords that it depends on."""


def read_trainer_script(text: str) -> tuple[tuple[str, Any], ...]:
    """Keys of a script; none where it has no call that holds a training's arguments."""
    if not any(f"{name}(" in text for name in METHODS):
        return ()
    tree = parsed(text)
    known = _literals(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found: dict[str, Any] = {}
    # A script loads its model first and what it trained again later; of several trainings the last is meant.
    for node in sorted(calls, key=lambda one: (one.lineno, one.col_offset)):
        told = _keys(node, known)
        if _last_part(node) in METHODS:
            found = {
                key: value for key, value in found.items() if key in KEYWORDS["outside"]
            } | told
        else:
            found = told | found
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
    tree = parsed(text)
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


OWNERS = ("args", "self", "common", "opts", "cfg", "config", "params", "FLAGS")
"""Names of objects whose fields somebody else sets."""


def read_olmo(text: str) -> tuple[tuple[str, Any], ...]:
    """Keys of a training script of OLMo-core: keywords of its configurations, and the model by its name."""
    if "olmo_core" not in text:
        return ()
    tree = parsed(text)
    known = _literals(tree)
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        owner, _, last = dotted_name(node.func).rpartition(".")
        if owner.endswith("TransformerConfig"):
            found.setdefault("model.name", last)
        if last in OLMO:
            told = {one.arg: _value(one.value, known) for one in node.keywords if one.arg}
            found |= {f"{OLMO[last]}.{key}": value for key, value in told.items()}
    return tuple(found.items()) if "train_module.rank_microbatch_size" in found else ()


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


def _last_part(call: ast.Call) -> str:
    return dotted_name(call.func).rpartition(".")[2]


def _keys(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that one call gives."""
    whole = dotted_name(call.func)
    name = whole.rpartition(".")[2]
    words = {word.arg: _value(word.value, known) for word in call.keywords if word.arg}
    for word in call.keywords:
        more = (
            known.get(word.value.id)
            if word.arg is None and isinstance(word.value, ast.Name)
            else None
        )
        words = {**_flat(more), **words} if isinstance(more, dict) else words
    first = _value(call.args[0], known) if call.args else None
    if name in METHODS:
        method = METHODS[name]
        return {**words, **({"trainer_type": method} if method else {})}
    if name in CALLS["adapters"]:
        return _adapter_keys(words)
    if name in CALLS["quantised"]:
        return {key: words[key] for key in KEYWORDS["quantised"] if key in words}
    if name in CALLS["loaders"] and not any(one in whole for one in CALLS["not_models"]):
        model = words.get("model_name", words.get("pretrained_model_name_or_path", first))
        told = {key: words[key] for key in KEYWORDS["loaders"] if key in words}
        return {**({"model_name_or_path": model} if isinstance(model, str) else {}), **told}
    if name in CALLS["trainers"] and isinstance(words.get("model"), str):
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


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A dictionary as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = isinstance(value, dict) and value
        found |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal, what a name stands for, the last part of `torch.bfloat16`, or the text; a name that the
    script
    does not set is asked for as a variable of a shell is."""
    if isinstance(node, ast.Name):
        return known.get(node.id, f"${{{node.id}}}")
    if isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        return known.get(node.attr, f"${{{node.attr}}}") if owner.endswith(OWNERS) else node.attr
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return _value(node.values[-1], known)  # what counts where nothing is given
    if isinstance(node, ast.BinOp):
        sides = [_value(one, known) for one in (node.left, node.right)]
        sign = SIGNS.get(type(node.op))
        if sign and all(isinstance(one, int | float) for one in sides):
            return sign(*sides)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, known)
    if isinstance(node, ast.Call):
        name = dotted_name(node.func)
        if name.endswith("is_bfloat16_supported"):
            return True  # every chip that is predicted has it
        if name in ("os.getenv", "os.environ.get", "getenv") and len(node.args) > 1:
            return plain(node.args[1])
        if name in ("int", "float", "str") and node.args:
            return _value(node.args[0], known)
    return plain(node)


def _literals(tree: ast.AST) -> dict[str, Any]:
    """Names that the script sets to a literal; a name that is set twice stands for nothing."""
    found: dict[str, Any] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_part(node) == "add_argument" and node.args:
            name = plain(node.args[0])
            told = [plain(word.value) for word in node.keywords if word.arg == "default"]
            if isinstance(name, str) and told:
                found.setdefault(name.lstrip("-").replace("-", "_"), told[0])
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and isinstance(
                node.value, ast.Constant | ast.Dict | ast.Call | ast.BinOp | ast.BoolOp
            ):
                told = _dictionary(node.value, found)
                if isinstance(node.value, ast.Call) and not _is_set(node.value):
                    continue
                twice |= {target.id} & set(found)
                found[target.id] = told
    return {name: value for name, value in found.items() if name not in twice}


def _is_set(call: ast.Call) -> bool:
    """Whether a call only reads the environment, or turns what it read into a number."""
    name = dotted_name(call.func)
    if name in ("int", "float", "str") and call.args and isinstance(call.args[0], ast.Call):
        return _is_set(call.args[0])
    return name in ("os.getenv", "os.environ.get", "getenv") and len(call.args) > 1


def _dictionary(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal, or a dictionary with what is known of its values."""
    if isinstance(node, ast.Call | ast.BinOp | ast.BoolOp):
        return _value(node, known)
    if not isinstance(node, ast.Dict):
        return plain(node)
    return {
        str(plain(key)): _dictionary(value, known)
        if isinstance(value, ast.Dict)
        else _value(value, known)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is not None
    }


def _imports(node: ast.AST, module: str) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == module
    return isinstance(node, ast.Import) and any(
        one.name.partition(".")[0] == module for one in node.names
    )
