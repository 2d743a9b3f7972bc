"""Nothing that a user gives can become code: no pickle, eval, exec, unsafe YAML or shell anywhere."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "foretell"
MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "shelve",
    "marshal",
    "joblib",
    "yaml",
    "jsonpickle",
}
"""Modules that make objects, or code, of bytes."""
CALLS = {"eval", "exec", "compile", "__import__"}
"""Builtins that run text."""
ATTRIBUTES = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
"""Calls that run a shell."""
RUNNERS = {"run", "call", "check_call", "check_output", "Popen"}
"""Functions of subprocess whose `shell` does so."""
ALLOWED = {
    (
        "records.py",
        "calls compile",
    ): "one function of a record, from the names of its fields in our code",
    (
        "lab/translate/text.py",
        "imports pickle",
    ): "for the error that torch.load raises; weights_only is set",
    ("interop/documents.py", "imports yaml"): "its safe loader alone, which makes no objects",
}
"""What was looked at, and why it is none: Dask's own messages between its processes are not in our code."""
SIGNS = re.compile(
    r"pickle|eval|exec\(|yaml|shell|os\.|(?<![\w.])compile\(|__import__|\.load\(|marshal|shelve|dill|joblib"
    r"|subprocess"
)
"""A file without any of these is not looked through."""


def files() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if SIGNS.search(text):
            yield path.relative_to(SOURCE).as_posix(), ast.parse(text)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a call's function."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def found_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of what could run text, or make objects of bytes."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.partition(".")[0] in MODULES:
                        yield node.lineno, f"imports {alias.name}"
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                yield node.lineno, f"imports {module}"
            case ast.Call(func=func, keywords=keywords):
                fault = of_call(dotted(func), {word.arg: word.value for word in keywords})
                if fault:
                    yield node.lineno, fault
            case _:
                pass


def of_call(called: str, given: Mapping[str | None, ast.expr]) -> str:
    """What is wrong with a call; empty where nothing is."""
    if called in CALLS or called in ATTRIBUTES:
        return f"calls {called}"
    if called.rpartition(".")[2] in RUNNERS and not _is(given.get("shell"), None, False):
        return f"calls {called} with a shell"
    if called == "torch.load" and not _is(given.get("weights_only"), True):
        return "calls torch.load without weights_only=True"
    if called in ("np.load", "numpy.load") and not _is(given.get("allow_pickle"), None, False):
        return f"calls {called} with allow_pickle"
    return ""


def _is(node: ast.expr | None, *values: object) -> bool:
    """Whether an argument is one of some constants; None: it is not given."""
    if node is None:
        return None in values
    return isinstance(node, ast.Constant) and any(node.value is value for value in values)


def test_nothing_runs_what_it_reads() -> None:
    told = {(name, fault) for name, tree in files() for _, fault in found_in(tree)}
    assert told == set(ALLOWED)


def test_the_walk_finds_what_it_looks_for() -> None:
    text = """import pickle
from yaml import load
eval('1')
exec('x')
os.system('ls')
subprocess.run('ls', shell=True)
torch.load('x')
np.load('x', allow_pickle=True)
torch.load('x', weights_only=True)
subprocess.run(['ls'])
re.compile('x')
compile('1', 'a', 'eval')
Popen('x', shell=1)
generate_completion(shell='bash')
"""
    told = {line for line, _ in found_in(ast.parse(text))}
    assert told == {1, 2, 3, 4, 5, 6, 7, 8, 12, 13}
    assert SIGNS.search(text)
