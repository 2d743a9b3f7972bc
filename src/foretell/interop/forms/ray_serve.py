"""Ray Serve LLM: `llm_configs` of a Serve configuration as the vLLM servers that they start."""

from collections.abc import Iterator, Mapping
from typing import Any

from foretell.interop.forms.containers import table
from foretell.interop.forms.records import (
    LaunchContents,
    LaunchedProcess,
    LauncherLayer,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.trees import Path, Tree

MODELS = frozenset({"MODEL", "MODEL_ID", "MODEL_NAME", "HF_MODEL_ID", "MODEL_PATH"})
"""Variables that programs of their own have the model by."""
VARIABLES = {
    **dict.fromkeys(("TENSOR_PARALLELISM", "TENSOR_PARALLEL_SIZE", "TP_SIZE"), "tensor-parallel-size"),
    **dict.fromkeys(("PIPELINE_PARALLELISM", "PIPELINE_PARALLEL_SIZE"), "pipeline-parallel-size"),
    **{name.upper().replace("-", "_"): name for name in
       ("max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "dtype")},
}  # fmt: skip
"""Others, and vLLM's flags."""


def is_serve(value: Any) -> bool:
    """Whether a document configures Ray Serve, or one of its models."""
    if not isinstance(value, Mapping):
        return False
    return isinstance(value.get("applications"), list) or _is_model(value)


def _is_model(value: Mapping[str, Any]) -> bool:
    return "model_loading_config" in value or (
        "engine_config" in value and "deployment_config" in value
    )


def read_serve(tree: Tree) -> LaunchContents:
    """Servers of a Serve configuration."""
    return LaunchContents(form="ray-serve", processes=tuple(applications(tree)))


def applications(tree: Tree, offset: int = 0) -> Iterator[LaunchedProcess]:
    """Servers of every application; `offset` is the line before the text in its file."""
    value = tree.value
    if isinstance(value, Mapping) and _is_model(value):
        yield _server(tree, value, (), offset)
        return
    several = table(value).get("applications")
    for at, one in enumerate(several if isinstance(several, list) else ()):
        path: Path = ("applications", str(at))
        args = table(table(one).get("args"))
        configs = args.get("llm_configs")
        for index, config in enumerate(configs if isinstance(configs, list) else ()):
            if isinstance(config, Mapping):
                yield _server(tree, config, (*path, "args", "llm_configs", str(index)), offset)
        if not configs:
            yield _program(tree, table(one), path, offset)


def _program(tree: Tree, one: Mapping[str, Any], path: Path, offset: int) -> LaunchedProcess:
    """An application of its own code: the program by its import path, with its variables."""
    name = str(one.get("import_path") or one.get("name") or "")
    line = offset + tree.line(*path, "import_path")
    env = {
        str(key): plain_word(
            str(value), offset + tree.line(*path, "runtime_env", "env_vars", str(key))
        )
        for key, value in table(table(one.get("runtime_env")).get("env_vars")).items()
    }
    if "vllm" in name.lower() and MODELS & {*env}:
        return _of_variables(name, env)
    argv = [plain_word(name, line)]
    argv += [plain_word(f"{key}={value}", line)
             for key, value in table(one.get("args")).items() if not isinstance(value, Mapping)]  # fmt: skip
    return LaunchedProcess(program=name, argv=tuple(argv), env=env, layers=(LauncherLayer(name="ray serve"),),
                   name=str(one.get("name") or ""))  # fmt: skip


def _of_variables(name: str, env: Mapping[str, Word]) -> LaunchedProcess:
    """A server of vLLM whose program takes its arguments from variables."""
    model = next(value for key, value in env.items() if key in MODELS)
    argv = [plain_word(text, model.line) for text in ("vllm", "serve", model.text)]
    for key, value in env.items():
        flag = VARIABLES.get(key)
        argv += [Word(text=f"--{flag}", line=value.line, raw=key), value] if flag else []
    return LaunchedProcess(program="vllm", argv=tuple(argv), env=dict(env), name=name,
                           layers=(LauncherLayer(name="ray serve"),))  # fmt: skip


def _server(tree: Tree, config: Mapping[str, Any], path: Path, offset: int) -> LaunchedProcess:
    """A model as `vllm serve` with the keywords of its engine."""
    loading = table(config.get("model_loading_config"))
    key = "model_source" if isinstance(loading.get("model_source"), str) else "model_id"
    model = str(loading.get(key) or table(config.get("engine_config")).get("model_id") or "")
    where = offset + tree.line(*path, "model_loading_config", key)
    argv = [plain_word("vllm", where), plain_word("serve", where),
            plain_word(model, where)]  # fmt: skip
    engine = config.get("engine_kwargs") or table(config.get("engine_config")).get("engine_kwargs")
    for name, value in table(engine).items():
        line = offset + tree.line(*path, "engine_kwargs", str(name))
        flag = f"--{str(name).replace('_', '-')}"
        if value is False:
            argv.append(Word(text=f"--no-{flag[2:]}", line=line, raw=str(name)))
        else:
            argv.append(Word(text=flag, line=line, raw=str(name)))
            if value is not True:
                argv.append(plain_word(str(value), line))
    facts = []
    chip = config.get("accelerator_type")
    if chip:
        facts.append(
            stated(
                "accelerator",
                str(chip),
                offset + tree.line(*path, "accelerator_type"),
                "accelerator_type",
            )
        )
    deployed = table(config.get("deployment_config"))
    many = deployed.get("num_replicas") or table(deployed.get("autoscaling_config")).get(
        "min_replicas"
    )
    if isinstance(many, int) and many > 0:
        facts.append(
            stated("replicas", many, offset + tree.line(*path, "deployment_config"), "min_replicas")
        )
    return LaunchedProcess(
        program="vllm",
        argv=tuple(argv),
        facts=tuple(facts),
        layers=(LauncherLayer(name="ray serve"),),
        name=str(loading.get("model_id") or ""),
    )
