"""Configurations that are Python: `Trainer.Config(training=TrainingConfig(seq_len=8192))` as dotted keys.

The text is parsed, never run. A function that sets fields of a configuration it was given
(`config.training.seq_len = 8192`) is read line by line elsewhere (arguments.py).
"""

import ast
from typing import Any

ENDS = ("Config", "Args", "Arguments", "Plan")
"""How the names of classes that hold a configuration end."""


def read_calls(text: str) -> tuple[tuple[str, Any], ...]:
    """Keywords of the last call that makes a whole configuration; none where the text has no such call."""
    if "Config(" not in text or "=" not in text:
        return ()
    tree = parsed(text)
    roots = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node).endswith("Trainer.Config")
    ]
    if not roots:
        return ()
    found = dict(_keywords(roots[-1], ""))
    found |= _assigned(tree)
    return tuple(found.items())


def parsed(text: str) -> ast.Module:
    """A program's tree, which is never run; an empty one where it cannot be parsed."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _keywords(call: ast.Call, prefix: str) -> list[tuple[str, Any]]:
    """Keywords of a call as dotted keys, calls inside them opened."""
    pairs: list[tuple[str, Any]] = []
    for word in call.keywords:
        if word.arg is None:
            continue
        key = prefix + word.arg
        value = word.value
        if isinstance(value, ast.Call):
            name = _name(value)
            pairs.append((key, f"{name}()") if not value.keywords else (f"{key}.class", name))
            if name.rpartition(".")[2].endswith(ENDS):
                pairs += _keywords(value, f"{key}.")
            pairs += _places(value, key)
        else:
            pairs.append((key, plain(value)))
    return pairs


def _places(call: ast.Call, key: str) -> list[tuple[str, Any]]:
    """Values that a call takes by their place: `model_registry("8B")`."""
    words = [plain(one) for one in call.args]
    return [(f"{key}.first", words[0])] if words and isinstance(words[0], str) else []


def _assigned(tree: ast.AST) -> dict[str, Any]:
    """Fields that are set on a configuration after it was made."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            parts = dotted_name(node.targets[0]).split(".")
            if parts[0] in ("config", "cfg", "job_config") and len(parts) > 1:
                found[".".join(parts[1:])] = plain(node.value)
    return found


def plain(node: ast.expr) -> Any:
    """A literal's value; of anything else its text."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ast.unparse(node)[:200]


def _name(call: ast.Call) -> str:
    return dotted_name(call.func)


def dotted_name(node: ast.expr) -> str:
    """`a.b.c` of an attribute; empty where it is something else."""
    if isinstance(node, ast.Attribute):
        before = dotted_name(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""
