"""What holds of the whole source: imports by name, names of modules, classes and functions."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "foretell"
BARE = frozenset(
    """
    again allocated alone along among answered around asked assembled assumed at attending behind
    beside between billed blended both bought broken carried changed checked chosen clipped compared
    compiled completed crowded cut dealt deployed designed divided done drafted drawn estimated
    evaluated exported failed far few filled finished firsts fitted given grouped grows held inside
    joined judged kept laid late launched left lettered listening locked made meant measured merged
    met missing mixed moved named needed normed numbered offloaded optimised outdated owned packed
    padded paid pairs parts passed placed played predicted prepared priced quiet ranked recomputed
    redesigned renamed replanned resized rotated rounded routed said scripted seen sent settled
    shared shown shuffled signed sized sliced spaced spelled stacked stored stretched sure sustained
    swept thinned tied together told traced trained turned uncaptured understood undisturbed
    unheeded unpacked unzipped varied wanted watched where wide wish written yearly
    """.split()
)
"""Words that say what was done, or where, and not what a thing is or does: no name by themselves."""
FIELD = {"Parts": "training: the parts of a model, as its layer costs have them"}
"""Names that are such a word and a noun of the field, each with what it means."""


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """Path in the package and syntax tree of every module."""
    paths = sorted(SOURCE.rglob("*.py"))
    return tuple((p.relative_to(SOURCE).as_posix(), ast.parse(p.read_text("utf-8"))) for p in paths)


def imports_by_name(tree: ast.AST) -> Iterator[int]:
    """Lines of calls of `import_module` or `__import__` whose name begins with a literal `foretell`."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        name: ast.expr = node.args[0]
        if isinstance(name, ast.JoinedStr) and name.values:
            name = name.values[0]
        literal = isinstance(name, ast.Constant) and str(name.value).startswith("foretell")
        if called in ("import_module", "__import__") and literal:
            yield node.lineno


def test_no_module_of_ours_is_imported_by_its_name() -> None:
    """A room that needs one above it is in the wrong place: joining engines is the work of api/."""
    assert [f"{name}:{line}" for name, tree in trees() for line in imports_by_name(tree)] == []


def test_the_walk_finds_imports_by_name() -> None:
    text = """import_module("foretell.api")
importlib.import_module(f"foretell.blocks.{name}")
__import__("foretell")
import_module(f"{__name__}.{name}")
import_module("numpy")
import_module(WHERE[name])
print("foretell")
"""
    assert list(imports_by_name(ast.parse(text))) == [1, 2, 3]


def classes(tree: ast.AST) -> Iterator[str]:
    """Names of a module's classes, those inside functions and classes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name


def test_one_class_name_means_one_thing() -> None:
    where: dict[str, list[str]] = {}
    for name, tree in trees():
        for found in classes(tree):
            where.setdefault(found, []).append(name)
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def test_the_walk_finds_classes() -> None:
    text = "class A:\n    class B: pass\ndef make():\n    class _C: pass\nD = type('D', (), {})\n"
    assert sorted(classes(ast.parse(text))) == ["A", "B", "_C"]


def public_names(name: str, tree: ast.Module) -> Iterator[str]:
    """A module's own name, its classes and its public functions."""
    yield Path(name).stem
    yield from classes(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            yield node.name


def test_names_are_nouns_or_verbs_of_the_field() -> None:
    bare = {
        f"{name}: {found}"
        for name, tree in trees()
        for found in public_names(name, tree)
        if found.lower() in BARE and found not in FIELD
    }
    assert bare == set()


def test_the_walk_finds_bare_words() -> None:
    tree = ast.parse(
        "class Held: pass\ndef told(): pass\ndef _said(): pass\ndef held_bytes(): pass\n"
    )
    assert list(public_names("lab/beside.py", tree)) == ["beside", "Held", "told", "held_bytes"]
    assert {name for name in public_names("a/b.py", tree) if name.lower() in BARE} == {
        "Held",
        "told",
    }


LONGEST_FUNCTION, LONGEST_FILE, MANY_LINES = 87, 515, 60
"""Lines of the longest function and file, and those above which a function is long; nothing new grows to
it."""
MOST_LONG = 20
"""Functions that are long: fewer with time, never more."""
LIBRARIES = ("get", "pop", "append", "set", "fromkeys", "fill_null", "getattr", "object")
"""Calls that take a value by place: those of other libraries."""


def test_functions_and_files_stay_readable() -> None:
    """CONTRIBUTING asks for 40 lines of a function and 400 of a file; what is longer is counted down."""
    long: dict[str, int] = {}
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > MANY_LINES:
                    long[f"{name}: {node.name}"] = lines
    assert {name: lines for name, lines in long.items() if lines > LONGEST_FUNCTION} == {}
    assert len(long) <= MOST_LONG, long
    files = {p.name: p.read_text("utf-8").count("\n") for p in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in files.items() if lines > LONGEST_FILE} == {}


def given_by_place(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of functions of ours with a bare True or False among their arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(
            isinstance(one, ast.Constant) and isinstance(one.value, bool) for one in node.args
        ):
            called = ast.unparse(node.func)
            if called.rpartition(".")[2] not in LIBRARIES and not called.startswith(
                ("np.", "aten.")
            ):
                yield node


def test_truths_are_given_by_name() -> None:
    found = {
        f"{name}:{call.lineno}: {ast.unparse(call)[:80]}"
        for name, tree in trees()
        for call in given_by_place(tree)
        if ast.unparse(call.func) != "bad_input"  # its second argument is the value that is wrong
    }
    assert found == set()


def test_the_walk_finds_truths_by_place() -> None:
    text = "f(1, True)\nf(1, wide=True)\nt.get('a', False)\nx.make(False)\n"
    assert [call.lineno for call in given_by_place(ast.parse(text))] == [1, 4]
