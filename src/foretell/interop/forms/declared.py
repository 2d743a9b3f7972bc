"""Servers and tasks that a document declares by keys of its own: charts, operators' objects, jobs of clouds.

What each key says is a row of declared.toml: where the model is, which keys are flags of the engine, where
nodes, GPUs and copies are stated, and the script of a task. llm-d's model service and KServe's
LLMInferenceService have containers in two halves, applications of Ray Serve may be programs of their own.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path as File
from typing import Any

from foretell.interop.forms.containers import (
    gpus_at,
    processes_of,
    split_words,
    table,
    variables_at,
    words_at,
)
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
from foretell.interop.forms.trees import Path, Tree
from foretell.interop.package_tables import packaged_table
from foretell.interop.whole_numbers import whole_number

_TABLE = packaged_table(File(__file__).with_name("declared.toml"))
MODELS = frozenset({"MODEL", "MODEL_ID", "MODEL_NAME", "HF_MODEL_ID", "MODEL_PATH"})
"""Variables that programs of Ray Serve have the model by."""
VARIABLES = {
    **dict.fromkeys(("TENSOR_PARALLELISM", "TENSOR_PARALLEL_SIZE", "TP_SIZE"), "tensor-parallel-size"),
    **dict.fromkeys(("PIPELINE_PARALLELISM", "PIPELINE_PARALLEL_SIZE"), "pipeline-parallel-size"),
    **{name.upper().replace("-", "_"): name for name in
       ("max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "dtype")},
}  # fmt: skip
"""Others, and vLLM's flags."""
PARALLELISM = {"tensor": "tensor-parallel-size", "data": "data-parallel-size",
               "pipeline": "pipeline-parallel-size", "dataLocal": "data-parallel-size-local"}  # fmt: skip
"""Keys of `parallelism` of llm-d and KServe and vLLM's flags."""
_MEMORY = re.compile(r"\d+GB(?:\.\.(?:\d+GB)?)?|\.\.\d+GB", re.IGNORECASE)
_PROFILE = re.compile(r"(?:(?:nvidia|amd)-gpu-([\w-]+)|google-(tpu-\w+)-\w+|(cpu)):?(\d*)")
_VALUE = re.compile(r"\"?\{\{-?\s*(?:tpl\s+)?\.Values\.([\w.]+)\s*-?\}\}\"?")
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def read_declared(tree: Tree, open_file: Callable[[str], str | None]) -> LaunchContents | None:
    """What a document declares; None where it is none that is known here."""
    value = table(tree.value)
    for row in _TABLE["tasks"]:
        script, _ = _told(value, (), row["script"])
        kind = list if row["script"] == "commands" else str
        if isinstance(script, kind) and _is_one(value, row):
            return _task(tree, row, open_file)
    if isinstance(value.get("tasks"), list) and "budget" in value:
        return LaunchContents(form="task", processes=tuple(_beaker(tree)))
    if isinstance(value.get("applications"), list) or _is_ray_model(value):
        return LaunchContents(form="ray-serve", processes=tuple(applications(tree)))
    stack = table(value.get("servingEngineSpec")).get("modelSpec")
    if isinstance(stack, list) or {"modelArtifacts", "catalog"} & {*value}:
        tree = replace(tree, value=_filled(value, value))
        halves = _model_service(tree) if "modelArtifacts" in value else ()
        return LaunchContents(form="helm", processes=(*declared_servers(tree), *halves))
    return None


def _is_one(value: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether one of the keys is there that a row asks for."""
    return not row.get("is") or _told(value, (), row["is"])[0] is not None


def _told(node: Any, path: Path, names: str) -> tuple[Any, Path]:
    """(the first value at some places below a node, its path)."""
    for name in names.split():
        value, place = node, path
        for part in name.split("."):
            value, place = table(value).get(part), (*place, part)
        if value is not None:
            return value, place
    return None, path


# ---- servers ------------------------------------------------------------------------------------


def declared_servers(tree: Tree, kind: str = "", offset: int = 0) -> Iterator[LaunchedProcess]:
    """Servers of a document, or of a Kubernetes object of a kind; `offset` is the line before the text in its
    file."""
    for row in _TABLE["servers"]:
        if row.get("kind", "") != kind:
            continue
        for node, path in _places(tree.value, (), row["at"].split(".")):
            off = node.get("enabled") is False or (row.get("on") and not node.get(row["on"]))
            if not off and _is_one(node, row):
                yield _server(tree, row, node, path, offset)


def _places(node: Any, path: Path, parts: list[str]) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """(mapping, path) of a place in which `*` is every element."""
    if not parts:
        if isinstance(node, Mapping):
            yield node, path
        return
    inner = enumerate(node) if isinstance(node, list) else table(node).items()
    for key, one in inner:
        if parts[0] in ("*", str(key)):
            yield from _places(one, (*path, str(key)), parts[1:])


def _server(
    tree: Tree, row: Mapping[str, Any], node: Mapping[str, Any], path: Path, offset: int
) -> LaunchedProcess:
    """One server as the command of its engine."""
    uri, place = _told(node, path, row["model"])
    model = re.sub(r"^(?:hf|ollama|huggingface)://", "", str(uri or ""))
    engine = str(node.get(row.get("engine", "")) or "vllm")
    program = _TABLE["programs"].get(engine, engine.lower())
    line = offset + tree.line(*place)
    words = [plain_word(text, line) for text in (program, "serve", model)]
    for name in row.get("flags_in", "").split():
        held, inside = _told(node, path, name)
        for key, value in table(held).items():
            where = offset + tree.line(*inside, str(key))
            words += _flag(str(key), value, where, row.get("flags", {}), str(row.get("off", "")))
    for name in row.get("words", "").split():
        held, inside = _told(node, path, name)
        words += words_at(tree, inside, held)
    env, inside = _told(node, path, row.get("env", ""))
    label = _told(node, path, row.get("label", ""))[0] or node.get("name") or path[-1]
    return LaunchedProcess(
        program=program, argv=tuple(words), facts=tuple(_facts(tree, row, node, path, offset)),
        layers=(LauncherLayer(name=row.get("name", "helm")),), env=variables_at(tree, inside, env),
        image=str(node.get(row.get("image", "")) or ""), name=str(label),
    )  # fmt: skip


def _flag(key: str, value: Any, line: int, names: Mapping[str, str], off: str) -> Iterator[Word]:
    """A key of a server's table as a flag; a switch that is off is left out unless `off` begins its flag."""
    flag = names.get(key, _CAPITAL.sub(r"-\1", key).lower().replace("_", "-").lstrip("-"))
    if not flag or value is None or (value is False and not off):
        return
    yield Word(text=f"--{off if value is False else ''}{flag}", line=line, raw=key)
    if not isinstance(value, bool):
        yield plain_word(json.dumps(value) if isinstance(value, Mapping) else str(value), line)


def _facts(
    tree: Tree, row: Mapping[str, Any], node: Mapping[str, Any], path: Path, offset: int = 0
) -> Iterator[StatedFact]:
    """Nodes, GPUs, copies and the half of a split service that a row's keys state."""
    for name, places in row["facts"].items():
        value, place = _told(node, path, places)
        line = offset + tree.line(*place)
        source = ".".join(place[len(path) :]) if name == "chips" else "".join(place[-1:])
        if name in ("chips", "profile"):
            chip, many = _chips(value) if name == "chips" else _profile(value)
            yield from [stated("gpus_per_node", many, line, source)] if many else []
            yield from [stated("accelerator", chip, line, source)] if chip else []
        elif name == "role":
            if role := _TABLE["roles"].get(str(value)):
                yield stated("role", role, line, source)
        elif name == "accelerator":
            if isinstance(value, str) and value and "/" not in value:
                yield stated("accelerator", value, line, source)
        elif number := whole_number(value):
            yield stated(name, number, line, source)
    if "nodes" in row and _told(node, path, row["facts"]["nodes"])[0] is None:
        yield stated("nodes", 1, 0, row["nodes"])


def _chips(told: Any) -> tuple[str, int]:
    """(name, count) of `H100:8`, `{H100: 8}`, `[H100:8, A100:8]`, `H100:80GB:8` or `{name: L4, count: 2}`."""
    if isinstance(told, Mapping) and {"name", "count"} & {*told}:
        name = told.get("name")
        first = name[0] if isinstance(name, list) and name else name
        least = re.match(r"\d+", str(told.get("count") or 1))
        return str(first or ""), int(least[0]) if least else 1
    if isinstance(told, Mapping):
        told = [str(name) if many is None else f"{name}:{many}" for name, many in told.items()]
    if told is None or told == []:
        return "", 0
    text = str(told[0] if isinstance(told, list) else told)
    text = text.strip("{}[]' \"").split(",")[0] if "{" in text else text
    label, many = "", 1
    for part in (one.strip("'\" ") for one in text.split(":")):
        if match := re.fullmatch(r"(\d+)(?:\.\.\d*)?", part):
            many = int(match[1])
        elif part and not label and not _MEMORY.fullmatch(part):
            label = part.split(",")[0]
    return label, many


def _profile(told: Any) -> tuple[str, int]:
    """(name, count) of KubeAI's `nvidia-gpu-h100:8`."""
    match = _PROFILE.fullmatch(str(told))
    if match is None:
        return "", 0
    chip = match[1] or match[2] or match[3]
    return chip, 0 if chip == "cpu" else int(match[4] or 1)


# ---- charts with halves -------------------------------------------------------------------------


def _filled(node: Any, values: Any) -> Any:
    """A tree with `{{ .Values.a.b }}` put in from the values themselves."""
    if isinstance(node, Mapping):
        return {key: _filled(one, values) for key, one in node.items()}
    if isinstance(node, list):
        return [_filled(one, values) for one in node]
    if not isinstance(node, str):
        return node
    return _VALUE.sub(lambda match: str(_told(values, (), match[1])[0] or match[0]), node)


def _model_service(tree: Tree) -> Iterator[LaunchedProcess]:
    """llm-d's model service: decode and prefill with containers and parallelism."""
    value = tree.value
    start = _start(tree, ("modelArtifacts", "name"), table(value.get("modelArtifacts")))
    kind, place = _told(value, (), "accelerator.type")
    chip = [stated("accelerator", "cpu", tree.line(*place), "type")] if kind == "cpu" else []
    for role in ("decode", "prefill"):
        half = table(value.get(role))
        if half and half.get("create") is not False:
            yield from _half(tree, half, (role,), start, role, chip)


def inference_service(tree: Tree) -> Iterator[LaunchedProcess]:
    """KServe's LLMInferenceService: the model by its address, parallelism, and a prefill half of its own."""
    spec = table(tree.value.get("spec"))
    start = _start(tree, ("spec", "model", "uri"), table(spec.get("model")))
    prefill = table(spec.get("prefill"))
    yield from _half(tree, spec, ("spec",), start, "decode" if prefill else "")
    if prefill:
        yield from _half(tree, prefill, ("spec", "prefill"), start, "prefill")


def _start(tree: Tree, path: Path, node: Mapping[str, Any]) -> list[Word]:
    """The command of a model by its repository, else by its name."""
    uri = str(node.get("uri") or "")
    name = uri.removeprefix("hf://") if uri.startswith("hf://") else str(node.get("name") or uri)
    return [plain_word(text, tree.line(*path)) for text in ("vllm", "serve", name)]


def _half(
    tree: Tree, half: Mapping[str, Any], path: Path, start: list[Word], role: str,
    chip: list[StatedFact] | None = None,
) -> Iterator[LaunchedProcess]:  # fmt: skip
    """Servers of one half of a service, or of a whole one."""
    facts = [*(chip or ()), *([stated("role", role, tree.line(*path), role)] if role else [])]
    copies = half.get("replicas")
    if isinstance(copies, int):
        facts.append(stated("replicas", copies, tree.line(*path, "replicas"), "replicas"))
    flags: list[Word] = []
    for key, value in table(half.get("parallelism")).items():
        names = {**PARALLELISM, "expert": "enable-expert-parallel"}
        if key in names:
            flags += _flag(key, value, tree.line(*path, "parallelism", key), names, "")
    base: Path = (*path, "template", "containers") if "template" in half else (*path, "containers")
    containers = (
        table(half.get("template")).get("containers")
        if "template" in half
        else half.get("containers")
    )
    none: list[Any] = [{}] if path[0] == "spec" else []
    for at, one in enumerate(containers if isinstance(containers, list) and containers else none):
        node, place = table(one), (*base, str(at))
        gpus = gpus_at(tree, (*place, "resources"), node.get("resources"))
        ours = str(node.get("modelCommand") or "") in ("vllmServe", "imageDefault", "")
        words = words_at(tree, (*place, "command"), node.get("command")) or (start if ours else [])
        env = variables_at(tree, (*place, "env"), node.get("env"))
        words = [*words, *flags, *words_at(tree, (*place, "args"), node.get("args"))]
        if more := env.get("VLLM_ADDITIONAL_ARGS"):
            words += split_words(more.text, more.line)
        yield from processes_of(words, env, [*facts, *([gpus] if gpus else [])], layer="helm",
                                image=str(node.get("image") or ""), name=role)  # fmt: skip


# ---- Ray Serve ----------------------------------------------------------------------------------


def _is_ray_model(value: Mapping[str, Any]) -> bool:
    return "model_loading_config" in value or {"engine_config", "deployment_config"} <= {*value}


def applications(tree: Tree, offset: int = 0) -> Iterator[LaunchedProcess]:
    """Servers of every application of Ray Serve, or of one model; `offset` is the line before the text in its
    file."""
    value = table(tree.value)
    if _is_ray_model(value):
        row = next(one for one in _TABLE["servers"] if one.get("name") == "ray serve")
        yield _server(tree, row, value, (), offset)
        return
    yield from declared_servers(tree, offset=offset)
    several = value.get("applications")
    for at, one in enumerate(several if isinstance(several, list) else ()):
        if not table(table(one).get("args")).get("llm_configs"):
            yield _program(tree, table(one), ("applications", str(at)), offset)


def _program(tree: Tree, one: Mapping[str, Any], path: Path, offset: int) -> LaunchedProcess:
    """An application of its own code: the program by its import path, with its variables; a server of vLLM
    may take its arguments from these."""
    name = str(one.get("import_path") or one.get("name") or "")
    held, place = _told(one, path, "runtime_env.env_vars")
    env = {
        key: replace(word, line=offset + word.line)
        for key, word in variables_at(tree, place, held).items()
    }
    layers = (LauncherLayer(name="ray serve"),)
    model = next((word for key, word in env.items() if key in MODELS), None)
    if "vllm" in name.lower() and model is not None:
        argv = [plain_word(text, model.line) for text in ("vllm", "serve", model.text)]
        for key, value in env.items():
            if flag := VARIABLES.get(key):
                argv += [Word(text=f"--{flag}", line=value.line, raw=key), value]
        return LaunchedProcess(program="vllm", argv=tuple(argv), env=env, name=name, layers=layers)
    line = offset + tree.line(*path, "import_path")
    told = (
        f"{key}={value}"
        for key, value in table(one.get("args")).items()
        if not isinstance(value, Mapping)
    )
    argv = [plain_word(text, line) for text in (name, *told)]
    label = str(one.get("name") or "")
    return LaunchedProcess(program=name, argv=tuple(argv), env=env, layers=layers, name=label)


# ---- tasks --------------------------------------------------------------------------------------


def _task(
    tree: Tree, row: Mapping[str, Any], open_file: Callable[[str], str | None]
) -> LaunchContents:
    """A job of a cloud or platform: its script with the nodes and GPUs that it is given."""
    value = table(tree.value)
    facts = list(_facts(tree, row, value, ()))
    count = {fact.name: fact for fact in reversed(facts)}
    env: dict[str, Word] = {}
    for name in row["env"].split():
        env |= variables_at(tree, (name,), value.get(name))
    for name, parts in row.get("sets", {}).items():
        known = [count[part] for part in parts.split() if part in count]
        product = 1
        for fact in known:
            product *= int(fact.value)
        if known and (parts == "nodes" or "gpus_per_node" in count):
            env[name] = plain_word(str(product), known[-1].line)
    script, place = value[row["script"]], tree.line(row["script"])
    text = "\n".join(map(str, script)) if isinstance(script, list) else script
    inner = read_script(text, env=env, first_line=place + 1, open_file=open_file)
    files = dict(inner.files)
    if isinstance(value.get(row.get("file", "")), Mapping):
        files[f"{row['file']}.yaml"] = json.dumps(value[row["file"]], default=str)
    image = str(value.get(row.get("image", "")) or "")
    processes = tuple(
        replace(
            one, facts=(*one.facts, *facts), image=one.image or image, files={**one.files, **files}
        )
        for one in inner.processes
    )
    return replace(
        inner, form=row["form"], processes=processes, facts=(*inner.facts, *facts), files=files
    )


def _beaker(tree: Tree) -> Iterator[LaunchedProcess]:
    """Tasks of a Beaker experiment."""
    row = {"facts": {"nodes": "replicas", "gpus_per_node": "resources.gpuCount"}}
    for at, task in enumerate(tree.value["tasks"]):
        path, one = ("tasks", str(at)), table(task)
        words = [word for key in ("command", "arguments")
                 for word in words_at(tree, (*path, key), one.get(key))]  # fmt: skip
        env = variables_at(tree, (*path, "envVars"), one.get("envVars"))
        image = next((str(name) for name in table(one.get("image")).values()), "")
        facts = list(_facts(tree, row, one, path))
        yield from processes_of(
            words, env, facts, layer="beaker", image=image, name=str(one.get("name"))
        )
