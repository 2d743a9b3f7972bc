"""Configurations that are Python programs, as keys: the text is parsed, never run.

    Trainer.Config(training=TrainingConfig(seq_len=8192))   torchtitan: calls inside calls as dotted keys
    SFTConfig(per_device_train_batch_size=2)                Hugging Face, TRL, PEFT, Unsloth: keywords by call
    model = dict(type=..., llm=dict(...))                   xtuner: names that a module sets
    TransformerTrainModuleConfig(rank_microbatch_size=...)  OLMo-core: keywords under the class's name
    llm.llama3_70b.pretrain_recipe(num_nodes=4)             NeMo 2: a recipe's own values (nemo_recipes.toml)

Names that a program sets once to a literal stand for it; what is computed otherwise stays as its text. A
recipe that is not in the table is stated as unknown. Fields that lines set on a configuration
(`cfg.model.seq_length = 4096`) are read elsewhere (arguments.py).
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.interop.package_tables import packaged_table

Pairs = tuple[tuple[str, Any], ...]
"""Keys and values."""
CONFIGS = ("Config", "Args", "Arguments", "Plan", "dict")
"""How the names of calls that hold a configuration end."""
SIGNS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b if b else 0,
}  # fmt: skip
"""Arithmetic of literals."""
_TABLE = packaged_table(Path(__file__).with_name("python_configs.toml"))
METHODS: Mapping[str, str] = _TABLE["methods"]
"""Classes of a training's arguments, and the method that each is for."""
OLMO: Mapping[str, str] = _TABLE["olmo"]
"""Classes of OLMo-core's configurations, and what their fields are under."""
CALLS = {kind: tuple(names.split()) for kind, names in _TABLE["calls"].items()}
"""Other calls that a step depends on, by what they do."""
KEYWORDS = {kind: tuple(names.split()) for kind, names in _TABLE["keywords"].items()}
"""Their keywords that it depends on."""
OWNERS = ("args", "self", "common", "opts", "cfg", "config", "params", "FLAGS")
"""Names of objects whose fields somebody else sets."""
DEGREES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size", "sp": "sequence_parallel",
}  # fmt: skip
"""Degrees of NeMo's recipes and their names there."""
OF_RECIPES: Mapping[str, Any] = {
    "optim.use_distributed_optimizer": True, "plugins.bf16": True, "data.seq_length": 8192,
    "data.global_batch_size": 512, "data.micro_batch_size": 1,
}  # fmt: skip
"""What every recipe of the table has: MockDataModule(seq_length=8192, global_batch_size=512, ...)."""
_FACTORY = re.compile(
    r"nemo\s+llm\s+(\w+)\s[^\n]{0,2000}?--factory[ =]+(?:\"([^\"]+)\"|'([^']+)'|(\S+))"
)
_OVERRIDE = re.compile(r"(?<=\s)([a-z_]+(?:\.[a-z_]+)+)=(\S+)")


def program_pairs(text: str) -> Pairs:
    """Keys of a program, by the first form that it has; none where it has none."""
    for read in (_module, _olmo, _calls, _trainer_script, read_recipe):
        found = tuple(read(text))
        if found:
            return found
    return ()


@lru_cache(maxsize=2)
def parsed(text: str) -> ast.Module:
    """A program's tree, which is never run; an empty one where it cannot be parsed."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


# ---- torchtitan, xtuner, OLMo-core, NeMo --------------------------------------------------------


def _calls(text: str) -> Pairs:
    """Keywords of the last call that makes a whole configuration, and what is set on it afterwards."""
    if "Config(" not in text or "=" not in text:
        return ()
    tree = parsed(text)
    roots = [one for one in _every_call(tree) if dotted_name(one.func).endswith("Trainer.Config")]
    if not roots:
        return ()
    set_later = {key: value for owner, key, value in _set_fields(tree)
                 if owner in ("config", "cfg", "job_config")}  # fmt: skip
    return tuple({**dict(_keywords(roots[-1], "", plain)), **set_later}.items())


def _module(text: str) -> Pairs:
    """Names that a module sets (xtuner, mmengine), and dict(...) calls inside."""
    if "xtuner" not in text or "dict(" not in text:
        return ()
    known: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for node in parsed(text).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if isinstance(node.value, ast.Call) and dotted_name(node.value.func) == "dict":
            found |= _keywords(node.value, f"{name}.", lambda one: _value(one, known))
        else:
            known[name] = found[name] = _value(node.value, known)
    return tuple(found.items()) if "model.llm.type" in found or "model.type" in found else ()


def _olmo(text: str) -> Pairs:
    """Keywords of OLMo-core's configurations, and the model by its name."""
    if "olmo_core" not in text:
        return ()
    tree = parsed(text)
    known = _literals(tree)
    found: dict[str, Any] = {}
    for node in _every_call(tree):
        owner, _, last = dotted_name(node.func).rpartition(".")
        if owner.endswith("TransformerConfig"):
            found.setdefault("model.name", last)
        if last in OLMO:
            told = {one.arg: _value(one.value, known) for one in node.keywords if one.arg}
            found |= {f"{OLMO[last]}.{key}": value for key, value in told.items()}
    return tuple(found.items()) if "train_module.rank_microbatch_size" in found else ()


def read_recipe(text: str) -> Pairs:
    """A recipe of NeMo 2 with what is set on it, in a program or of `nemo llm pretrain --factory`."""
    if match := _FACTORY.search(text):
        name, _, rest = (match[2] or match[3] or match[4]).partition("(")
        words = dict(re.findall(r"(\w+)\s*=\s*([^,()\s]+)", rest))
        return _recipe(name, f"{match[1]}_recipe", words, dict(_OVERRIDE.findall(text)))
    if "_recipe(" not in text:
        return ()
    tree = parsed(text)
    for call in reversed([*_every_call(tree)]):
        parts = dotted_name(call.func).split(".")
        if parts[-1].endswith("_recipe") and len(parts) > 1:
            words = {one.arg: plain(one.value) for one in call.keywords if one.arg}
            over = {key: value for _, key, value in _set_fields(tree)}
            return _recipe(parts[-2], parts[-1], words, over)
    return ()


def _recipe(name: str, kind: str, words: dict[str, Any], over: dict[str, Any]) -> Pairs:
    """Keys of the recipe, the call's words above them, what is set last."""
    own = _recipes().get(name) if kind == "pretrain_recipe" else None
    nodes, each = words.get("num_nodes"), words.get("num_gpus_per_node", 8)
    found: dict[str, Any] = {"trainer.num_nodes": nodes or 1, "trainer.devices": each}
    if own is None:
        found[f"{kind} {name}"] = True
    else:
        found |= {"trainer.num_nodes": nodes or own["nodes"], "model.hf_model_id": own["model"]}
        strategy = {long: own[short] for short, long in DEGREES.items() if short in own}
        found |= OF_RECIPES
        found |= {f"trainer.strategy.{long}": value for long, value in strategy.items()}
    return tuple({**found, **over}.items())


@lru_cache(maxsize=1)
def _recipes() -> dict[str, dict[str, Any]]:
    """Every recipe of the table, by its name."""
    return packaged_table(Path(__file__).with_name("nemo_recipes.toml"))


def _every_call(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _set_fields(tree: ast.AST) -> Iterator[tuple[str, str, Any]]:
    """(variable, dotted field, value) of every field that is set on a configuration."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            owner, _, key = dotted_name(node.targets[0]).partition(".")
            if key:
                yield owner, key, plain(node.value)


def _keywords(
    call: ast.Call, prefix: str, value_of: Callable[[ast.expr], Any]
) -> list[tuple[str, Any]]:
    """Keywords of a call as dotted keys, calls inside them opened: `key.class` is the call's name,
    `key.first` a text that it takes by its place."""
    pairs: list[tuple[str, Any]] = []
    for word in call.keywords:
        if word.arg is None:
            continue
        key, value = prefix + word.arg, word.value
        name = dotted_name(value.func) if isinstance(value, ast.Call) else ""
        if not isinstance(value, ast.Call) or (name != "dict" and value_of is not plain):
            pairs.append((key, value_of(value)))
            continue
        if name != "dict":
            pairs.append((f"{key}.class", name) if value.keywords else (key, f"{name}()"))
        if name.rpartition(".")[2].endswith(CONFIGS):
            pairs += _keywords(value, f"{key}.", value_of)
        first = plain(value.args[0]) if value.args else None
        pairs += [(f"{key}.first", first)] if isinstance(first, str) else []
    return pairs


# ---- Hugging Face's classes ---------------------------------------------------------------------


def _trainer_script(text: str) -> Pairs:
    """Keys of a script with a call that holds a training's arguments."""
    if not any(f"{name}(" in text for name in METHODS):
        return ()
    tree = parsed(text)
    known = _literals(tree)
    found: dict[str, Any] = {}
    # A script loads its model first and what it trained again later; of several trainings the last is meant.
    for node in sorted(_every_call(tree), key=lambda one: (one.lineno, one.col_offset)):
        told = _trainer_keys(node, known)
        if _last_part(node) in METHODS:
            outside = {key: value for key, value in found.items() if key in KEYWORDS["outside"]}
            found = outside | told
        else:
            found = told | found
    if not any(name in found for name in ("trainer_type", "per_device_train_batch_size")):
        return ()
    if any(_imports(node, "unsloth") for node in ast.walk(tree)):
        found["use_unsloth"] = True
    return tuple(found.items())


def _last_part(call: ast.Call) -> str:
    return dotted_name(call.func).rpartition(".")[2]


def _trainer_keys(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that one call gives."""
    name = _last_part(call)
    words = {word.arg: _value(word.value, known) for word in call.keywords if word.arg}
    for word in call.keywords:
        spread = word.arg is None and isinstance(word.value, ast.Name)
        more = known.get(word.value.id) if spread and isinstance(word.value, ast.Name) else None
        words = {**_flat(more), **words} if isinstance(more, dict) else words
    if name in METHODS:
        return {**words, **({"trainer_type": METHODS[name]} if METHODS[name] else {})}
    if name in CALLS["adapters"]:
        found = {key: words[key] for key in KEYWORDS["adapters"] if key in words}
        found |= {ours: words[key] for key, ours in _TABLE["renamed"].items() if key in words}
        return found
    if name in CALLS["quantised"]:
        return {key: words[key] for key in KEYWORDS["quantised"] if key in words}
    if name in CALLS["loaders"]:
        if any(one in dotted_name(call.func) for one in CALLS["not_models"]):
            return {}
        first = _value(call.args[0], known) if call.args else None
        model = words.get("model_name", words.get("pretrained_model_name_or_path", first))
        told = {key: words[key] for key in KEYWORDS["loaders"] if key in words}
        return {**({"model_name_or_path": model} if isinstance(model, str) else {}), **told}
    if name in CALLS["trainers"] and isinstance(words.get("model"), str):
        literal = next(one.value for one in call.keywords if one.arg == "model")
        named = not isinstance(literal, ast.Name) or literal.id in known
        return {"model_name_or_path": words["model"]} if named else {}
    return {}


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A dictionary as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = isinstance(value, dict) and value
        found |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


# ---- values -------------------------------------------------------------------------------------


def plain(node: ast.expr) -> Any:
    """A literal's value; of anything else its text."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ast.unparse(node)[:200]


def dotted_name(node: ast.expr) -> str:
    """`a.b.c` of an attribute; empty where it is something else."""
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""


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
