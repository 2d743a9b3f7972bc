"""Python that starts something: engines made by a call (`LLM(model=...)`), commands handed to a shell; cells
of a notebook with their lines, and shell commands of `!` and `%%bash`.

The text is parsed, never run. Names that the program sets once to a literal stand for it.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from foretell.interop.forms.containers import processes_of
from foretell.interop.forms.records import (
    LaunchContents,
    LaunchedProcess,
    LauncherLayer,
    StatedFact,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.script import read_script
from foretell.interop.forms.trees import bad
from foretell.interop.python_configs import parsed

ENGINES: Mapping[str, tuple[str, ...]] = {
    "LLM": ("vllm", "serve"), "AsyncEngineArgs": ("vllm", "serve"), "EngineArgs": ("vllm", "serve"),
    "Engine": ("sglang.launch_server",), "ServerArgs": ("sglang.launch_server",),
}  # fmt: skip
"""Calls that make an engine, and the command that does the same."""
INSTANCE_GPUS: Mapping[str, int] = {
    "p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "p3dn.24xlarge": 8, "p4d.24xlarge": 8,
    "p4de.24xlarge": 8, "p5.4xlarge": 1, "p5.48xlarge": 8, "p5e.48xlarge": 8, "p5en.48xlarge": 8,
    "p6-b200.48xlarge": 8, "g4dn.12xlarge": 4, "g5.xlarge": 1, "g5.2xlarge": 1, "g5.4xlarge": 1,
    "g5.8xlarge": 1, "g5.12xlarge": 4, "g5.16xlarge": 1, "g5.24xlarge": 4, "g5.48xlarge": 8,
    "g6.12xlarge": 4, "g6.48xlarge": 8, "g6e.12xlarge": 4, "g6e.48xlarge": 8,
}  # fmt: skip
"""GPUs of AWS instances (https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html)."""
_RUNS = ("run", "Popen", "check_call", "check_output", "call", "system")


def python_processes(text: str) -> list[LaunchedProcess]:
    """Processes that a program starts; none where it cannot be parsed."""
    tree = parsed(text)
    known = _literals(tree)
    found: list[LaunchedProcess] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += _of_call(node, known, text)
    return found


def _of_call(call: ast.Call, known: Mapping[str, Any], text: str) -> Iterator[LaunchedProcess]:
    name = ast.unparse(call.func).rpartition(".")[2] if len(call.keywords) < 200 else ""
    if name in ENGINES and ("vllm" in text or "sglang" in text or "tensorrt_llm" in text):
        yield _engine(name, call, known, "tensorrt_llm" in text and "vllm" not in text)
    elif any(one.arg == "instance_count" for one in call.keywords):
        yield from _estimator(call, known)
    elif name in _RUNS and call.args and ast.unparse(call.func).startswith(("subprocess", "os")):
        first = call.args[0]
        if isinstance(first, ast.List):
            words = [plain_word(str(value), one.lineno)
                     for one in first.elts if (value := _value(one, known)) is not None]  # fmt: skip
            yield from processes_of(words, {}, (), layer="subprocess")
        elif isinstance(value := _value(first, known), str):
            yield from read_script(value, first_line=first.lineno).processes


def _estimator(call: ast.Call, known: Mapping[str, Any]) -> Iterator[LaunchedProcess]:
    """SageMaker's estimators: `PyTorch(entry_point=..., instance_count=2, hyperparameters={...})`."""
    words = {one.arg: one.value for one in call.keywords if one.arg}
    entry = words.get("entry_point") or words.get("source_script")
    program = "" if entry is None else str(_value(entry, known) or "")
    argv = [plain_word(program, call.lineno)]
    told = words.get("hyperparameters")
    for key, node in zip(told.keys, told.values, strict=True) if isinstance(told, ast.Dict) else ():
        name, value = (None if key is None else _value(key, known)), _value(node, known)
        if name is not None:
            text = str(value) if value is not None else f"${{{ast.unparse(node)[:60]}}}"
            unset = () if value is not None else (ast.unparse(node)[:60],)
            argv += [Word(text=f"--{name}", line=node.lineno, raw=str(name)),
                     Word(text=text, line=node.lineno, raw=text, unknown=unset)]  # fmt: skip
    facts = []
    nodes = _value(words["instance_count"], known)
    if isinstance(nodes, int):
        facts.append(stated("nodes", nodes, words["instance_count"].lineno, "instance_count"))  # fmt: skip
    kind = _value(words["instance_type"], known) if "instance_type" in words else None
    if isinstance(kind, str):
        line, plain = words["instance_type"].lineno, kind.removeprefix("ml.")
        facts.append(stated("accelerator", plain, line, "instance_type"))
        if plain in INSTANCE_GPUS:
            facts.append(stated("gpus_per_node", INSTANCE_GPUS[plain], line, "instance_type"))  # fmt: skip
    if program:
        yield LaunchedProcess(program=program, argv=tuple(argv), facts=tuple(facts),
                              layers=(LauncherLayer(name="sagemaker"),))  # fmt: skip


def _engine(name: str, call: ast.Call, known: Mapping[str, Any], trtllm: bool) -> LaunchedProcess:
    """The command that an engine's call stands for: keywords as flags."""
    start = ("trtllm-serve",) if trtllm else ENGINES[name]
    argv = [Word(text=one, line=call.lineno, raw=name) for one in start]
    facts: list[StatedFact] = []
    words = [(one.arg, one.value) for one in call.keywords if one.arg]
    if call.args:
        words.insert(0, ("model", call.args[0]))
    for key, node in words:
        value = _value(node, known)
        line = node.lineno
        flag = Word(text=f"--{key.replace('_', '-')}", line=line, raw=key)
        if value is False or value is None:
            if isinstance(node, ast.Constant):
                continue
            text = f"${{{ast.unparse(node)[:60]}}}"
            argv += [
                flag,
                Word(text=text, line=line, raw=ast.unparse(node)[:60], unknown=(text[2:-1],)),
            ]
        elif value is True:
            argv.append(flag)
        else:
            argv += [flag, plain_word(str(value), line)]
    return LaunchedProcess(program=start[0], argv=tuple(argv), facts=tuple(facts))


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal, or what a name stands for; None where it is computed."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.JoinedStr):
        parts = [
            part.value if isinstance(part, ast.Constant) else known.get(ast.unparse(part.value))
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        ]
        return None if None in parts else "".join(str(part) for part in parts)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _literals(tree: ast.AST) -> dict[str, Any]:
    """Names that the program sets to a literal; a name that is set twice stands for nothing."""
    found: dict[str, Any] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    twice |= {target.id} & {*found}
                    found[target.id] = node.value.value
    return {name: value for name, value in found.items() if name not in twice}


_MAGIC = re.compile(r"\s*[%?]")


def is_notebook(value: Any) -> bool:
    """Whether a JSON document is a notebook."""
    return isinstance(value, dict) and isinstance(value.get("cells"), list) and "nbformat" in value


def read_notebook(text: str) -> LaunchContents:
    """The Python of a notebook, as one text whose lines are those of the file, and what its shell starts.

    A source line of a notebook is on a line of its own in the file, so that its number is known.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise bad("is no notebook: not JSON") from None
    rows = text.splitlines()
    python = [""] * (len(rows) + 1)
    shell = [""] * (len(rows) + 1)
    files: dict[str, str] = {}
    at = 0
    for cell in value["cells"]:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source")
        lines = source if isinstance(source, list) else str(source or "").splitlines(keepends=True)
        first = str(lines[0]).strip() if lines else ""
        if first.startswith("%%writefile"):
            files[first.split()[-1]] = "".join(map(str, lines[1:]))
            continue
        whole = first.startswith(("%%bash", "%%sh", "!%%"))
        going = False
        for line in lines:
            spelt = json.dumps(str(line), ensure_ascii=False)[1:-1]
            other = json.dumps(str(line))[1:-1]
            found = (i for i in range(at, len(rows)) if spelt in rows[i] or other in rows[i])
            place = next(found, at) if spelt else at
            at = place if place >= at else at
            plain = str(line).rstrip("\n")
            if whole or going or plain.lstrip().startswith("!"):
                shell[at] += plain.lstrip().removeprefix("!") + "\n"
                going = plain.endswith("\\")
            elif not _MAGIC.match(plain):
                python[at] += plain + "\n" if python[at] else plain
    script = "\n".join(one.rstrip("\n") for one in shell)
    inner = read_script(script) if script.strip() else LaunchContents(form="notebook")
    return LaunchContents(
        form="notebook",
        python="\n".join(python),
        processes=inner.processes,
        files={**inner.files, **files},
    )
