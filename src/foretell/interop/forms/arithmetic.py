"""Whole-number arithmetic of a shell: `$((A * B))`, `((i < 8))`, `expr`; nothing is run."""

import ast
import re
from collections.abc import Callable

LARGEST = 10**18
"""Results beyond this are not worked out."""
_TERNARY = re.compile(r"([^?]+)\?([^:]+):(.+)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])0+(?=\d)")


def worked_out(text: str, value_of: Callable[[str], int | None]) -> int | None:
    """The number of an expression; None where a name has no number or the text is no expression."""
    text = text.strip()
    if match := _TERNARY.fullmatch(text):
        condition = worked_out(match[1], value_of)
        if condition is None:
            return None
        return worked_out(match[2] if condition else match[3], value_of)
    spelt = text.replace("&&", " and ").replace("||", " or ")
    spelt = re.sub(r"!(?!=)", " not ", spelt)
    spelt = _NUMBER.sub("", spelt).replace("\n", " ").strip()
    if not spelt or len(spelt) > 2000:
        return 0 if not spelt else None
    try:
        return _number(ast.parse(spelt, mode="eval").body, value_of)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError, OverflowError):
        return None


def _number(node: ast.expr, value_of: Callable[[str], int | None]) -> int | None:
    if isinstance(node, ast.Constant):
        return int(node.value) if isinstance(node.value, int | float) else None
    if isinstance(node, ast.Name):
        return value_of(node.id)
    if isinstance(node, ast.UnaryOp):
        inner = _number(node.operand, value_of)
        if inner is None:
            return None
        return {"USub": -inner, "UAdd": inner, "Not": int(not inner), "Invert": ~inner}[
            type(node.op).__name__
        ]
    if isinstance(node, ast.BoolOp):
        parts = [_number(one, value_of) for one in node.values]
        if None in parts:
            return None
        return int(all(parts) if isinstance(node.op, ast.And) else any(parts))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _number(node.left, value_of), _number(node.comparators[0], value_of)
        if left is None or right is None:
            return None
        signs = {"Lt": left < right, "LtE": left <= right, "Gt": left > right,
                 "GtE": left >= right, "Eq": left == right, "NotEq": left != right}  # fmt: skip
        return int(signs[type(node.ops[0]).__name__])
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left, value_of), _number(node.right, value_of)
        return None if left is None or right is None else _joined(node.op, left, right)
    return None


def _joined(sign: ast.operator, left: int, right: int) -> int | None:
    if isinstance(sign, ast.Div | ast.FloorDiv):
        found = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    elif isinstance(sign, ast.Mod):
        found = abs(left) % abs(right) * (1 if left >= 0 else -1)
    elif isinstance(sign, ast.Pow):
        found = left**right if 0 <= right < 64 and abs(left) < 1000 else LARGEST + 1
    else:
        simple = {
            "Add": left + right, "Sub": left - right, "Mult": left * right, "BitAnd": left & right,
            "BitOr": left | right, "BitXor": left ^ right,
        }  # fmt: skip
        name = type(sign).__name__
        if name in ("LShift", "RShift") and 0 <= right < 64:
            simple[name] = left << right if name == "LShift" else left >> right
        if name not in simple:
            return None
        found = simple[name]
    return found if abs(found) <= LARGEST else None
