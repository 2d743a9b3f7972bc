"""Writes docs/api.md from the docstrings: `python tools/api_reference.py`. A test holds the page to it."""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
import typing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
ANSWERS = ("foretell.specs.result", "foretell.specs.run", "foretell.specs.service")
"""Modules of records that are parts of answers."""
HEADER = """\
# Python reference

Generated from the docstrings by `python tools/api_reference.py`: do not edit. These are the names of
`foretell.__all__` and the records that its functions give back. Every record's `to_dict()` is the JSON of
the command line, each key an attribute too; names end in their unit.
"""


def public() -> list[str]:
    """Names of the package, in its own order."""
    import foretell

    return [name for name in foretell.__all__ if not name.startswith("__")]


def hints_of(thing: Any) -> dict[str, Any]:
    """Resolved annotations, names that only type checkers import included."""
    module = sys.modules[thing.__module__]
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("foretell"):
            source = importlib.import_module(str(node.module))
            for alias in node.names:
                names.setdefault(alias.asname or alias.name, getattr(source, alias.name, Any))
    return typing.get_type_hints(thing, names)


def records_of(functions: list[Any]) -> list[type]:
    """Records that functions give back, and those in them that stand in the same module or in specs/."""
    found: list[type] = []
    waiting = [(hints_of(function).get("return"), "") for function in functions]
    while waiting:
        one, owner = waiting.pop(0)
        if isinstance(one, type):
            one = answers().get(one.__name__, one)
        waiting += [(part, owner) for part in typing.get_args(one)]
        if not (isinstance(one, type) and dataclasses.is_dataclass(one)) or one in found:
            continue
        if owner and one.__module__ != owner and not one.__module__.startswith(ANSWERS):
            continue
        found.append(one)
        waiting += [(hint, one.__module__) for hint in hints_of(one).values()]
    return sorted(found, key=lambda record: record.__name__)


def field_types(record: type) -> dict[str, str]:
    """Field -> its type, as the record and those that it inherits from write it."""
    found: dict[str, str] = {}
    for node in _lines_of(record):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = ast.unparse(node.annotation).strip("'")
            for plain, answer in answers().items():
                text = re.sub(rf"\b{plain}\b", answer.__name__, text)
            found[node.target.id] = text
    return found


def answers() -> dict[str, type]:
    """Name of an engine's record -> the answer of api/ that users get in its place."""
    made = vars(importlib.import_module("foretell.api.answers")).values()
    own = [
        one for one in made if isinstance(one, type) and one.__module__ == "foretell.api.answers"
    ]
    return {one.__mro__[1].__name__: one for one in own}


def _lines_of(record: type) -> list[ast.stmt]:
    """Statements of a record's body, after those of the records that it inherits from."""
    found: list[ast.stmt] = []
    for one in reversed([base for base in record.__mro__ if dataclasses.is_dataclass(base)]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        assert isinstance(tree, ast.ClassDef)
        found += tree.body
    return found


def field_texts(record: type) -> dict[str, str]:
    """Field -> the sentence under it."""
    texts: dict[str, str] = {}
    name = ""
    for node in _lines_of(record):
        match node:
            case ast.AnnAssign(target=ast.Name(id=found)):
                name = found
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                texts[name] = " ".join(text.split())
                name = ""
            case _:
                name = ""
    return texts


def _plain(annotation: object) -> str:
    """A type as a reader knows it."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    for module in ("foretell.", "typing.", "collections.abc.", "pathlib.", "os."):
        text = text.replace(module, "")
    words = [word.rpartition(".")[2] if "." in word else word for word in text.split(" | ")]
    return " | ".join(words)


def function_section(name: str, function: Any) -> str:
    """Heading, signature, docstring."""
    signature = inspect.signature(function)
    lines = []
    for parameter in signature.parameters.values():
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in lines:
            lines.append("*")
        lines.append(f"{star}{parameter.name}{default}")
    call = f"foretell.{name}({', '.join(lines)})"
    wrapped = textwrap.fill(call, 100, subsequent_indent="    ", break_on_hyphens=False)
    back = _plain(signature.return_annotation)
    text = inspect.cleandoc(function.__doc__ or "")
    return f"## {name}\n\n```text\n{wrapped}\n    -> {back}\n```\n\n{text}\n"


def arguments_section(functions: dict[str, Any]) -> str:
    """Every argument once, as the questions have it, and the functions that take it."""
    from foretell.specs.questions import question_type
    from foretell.specs.questions.flags import fields_of

    takers: dict[tuple[str, str], list[str]] = {}
    for name, function in functions.items():
        record = (
            question_type("scaling") if name == "scaling" else getattr(function, "question", None)
        )
        for field in () if record is None else fields_of(record):
            takers.setdefault((field.name, field.flag.help), []).append(name)
    rows = [
        f"| `{name}` | {text.replace('|', chr(92) + '|')} | {', '.join(names)} |"
        for (name, text), names in sorted(takers.items())
    ]
    return "\n".join(["## Arguments\n", "| argument | | of |", "|---|---|---|", *rows]) + "\n"


def _members(record: type) -> dict[str, Any]:
    """What a record has, after what the records have that it inherits from."""
    bases = [base for base in reversed(record.__mro__) if dataclasses.is_dataclass(base)]
    return {name: one for base in bases for name, one in vars(base).items()}


def record_section(record: type, title: str) -> str:
    """Heading, docstring, fields."""
    doc = inspect.cleandoc(record.__doc__ or "").strip()
    lines = [f"{title}\n\n{doc}\n"]
    texts, types = field_texts(record), field_types(record)
    rows = [
        f"| `{field.name}` | {types[field.name].replace('|', chr(92) + '|')} | {texts.get(field.name, '')} |"
        for field in dataclasses.fields(record)
    ]
    if rows:
        lines.append("\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n")
    extra = [
        f"* `{name}`: {' '.join(inspect.cleandoc(member.__doc__).split())}"
        for name, member in _members(record).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property))
        and member.__doc__
    ]
    if extra:
        lines.append("\n".join(extra) + "\n")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    import foretell

    made = {name: getattr(foretell, name) for name in public()}
    functions = {name: one for name, one in made.items() if inspect.isfunction(one)}
    classes = {name: one for name, one in made.items() if inspect.isclass(one)}
    parts = [HEADER]
    parts += [function_section(name, one) for name, one in functions.items()]
    parts.append(arguments_section(functions))
    for name, one in classes.items():
        if dataclasses.is_dataclass(one):
            parts.append(record_section(one, f"## {name}"))
        else:
            parts.append(f"## {name}\n\n{inspect.cleandoc(one.__doc__ or '')}\n")
    parts.append("## Records that come back\n")
    known = set(classes.values())
    parts += [
        record_section(one, f"### {one.__name__}")
        for one in records_of(list(functions.values()))
        if one not in known
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: {len(page().splitlines())} lines\n")
