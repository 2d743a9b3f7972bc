"""Which tool a text of arguments is for, and its reader; every writer, with what it could not say.

A writer's text is read back by the tool's own reader: each field of the plan that comes back otherwise is
told in a note, so that nothing is lost in silence.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace

from foretell.errors import BadInput, Problem
from foretell.interop import (
    deepspeed,
    local_servers,
    megatron,
    megatron_write,
    openrlhf,
    other_servers,
    other_trainers,
    reinforcement,
    reinforcement_others,
    sglang,
    torchtitan,
    torchtitan_write,
    trainers,
    trtllm,
    vllm,
)
from foretell.interop.arguments import ArgumentTable, parse_arguments
from foretell.interop.kept_flags import keep_flags
from foretell.interop.launch import (
    SERVING,
    TOOLS,
    TRAINING,
    Known,
    Launch,
    Tool,
    ToolArguments,
    Training,
)
from foretell.interop.layouts import word_of
from foretell.interop.named_files import with_files
from foretell.interop.own_model import read_table
from foretell.interop.serving_words import Serving
from foretell.interop.several_servers import read_servers
from foretell.interop.whole_numbers import whole_number
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.plan import Plan, parse_plan
from foretell.specs.plan_forms import EVEN, even_sizes, offloads
from foretell.specs.software import EVERYWHERE
from foretell.workload.parameters import count

READERS: Mapping[Tool, Callable[[ArgumentTable, Known], Launch]] = {
    "megatron": megatron.read,
    "nemo": megatron.read_nemo,
    "torchtitan": torchtitan.read,
    "deepspeed": deepspeed.read,
    "accelerate": trainers.reader("accelerate"),
    "trainer": trainers.reader("trainer"),
    "trl": trainers.reader("trl"),
    "axolotl": trainers.reader("axolotl"),
    "llamafactory": trainers.reader("llamafactory"),
    "torchtune": other_trainers.read_torchtune,
    "litgpt": other_trainers.read_litgpt,
    "nanotron": other_trainers.read_nanotron,
    "maxtext": other_trainers.read_maxtext,
    "verl": reinforcement.read_verl,
    "nemo-rl": reinforcement.read_nemo_rl,
    "openrlhf": openrlhf.read_openrlhf,
    "slime": reinforcement_others.read_slime,
    "skyrl": reinforcement_others.read_skyrl,
    "areal": reinforcement_others.read_areal,
    "prime-rl": reinforcement_others.read_prime,
    "vllm": vllm.read,
    "sglang": sglang.read,
    "trtllm": trtllm.read,
    "dynamo": other_servers.read_dynamo,
    "llm-d": other_servers.read_llm_d,
    "tgi": other_servers.read_tgi,
    "llama.cpp": local_servers.read_llama_cpp,
    "ollama": local_servers.read_ollama,
    "mlx": local_servers.read_mlx,
}
"""Readers by tool."""
TRAINERS: Mapping[Tool, Callable[[Training], ToolArguments]] = {
    "megatron": megatron_write.write,
    "torchtitan": torchtitan_write.write,
    "deepspeed": deepspeed.write,
}
"""Writers of training runs."""
ENGINES: Mapping[Tool, Callable[[Serving], str]] = {
    "vllm": vllm.write,
    "sglang": sglang.write,
    "trtllm": trtllm.write,
}
"""Writers of deployments."""
FLAGS: Mapping[Tool, Mapping[str, tuple[str, ...]]] = {
    "vllm": vllm.SOURCES,
    "sglang": sglang.SOURCES,
    "trtllm": trtllm.SOURCES,
}
"""The flags of each value of a deployment."""
PROGRAMS: tuple[tuple[str, Tool], ...] = (
    ("verl.", "verl"), ("openrlhf", "openrlhf"), ("nemo_rl", "nemo-rl"), ("run_grpo", "nemo-rl"),
    ("skyrl", "skyrl"), ("areal", "areal"), ("prime_rl", "prime-rl"), ("slime", "slime"),
    ("dynamo.", "dynamo"), ("dynamo/", "dynamo"), ("text-generation", "tgi"), ("llama-server", "llama.cpp"),
    ("llama.cpp:", "llama.cpp"), ("ollama", "ollama"), ("mlx_lm", "mlx"),
    ("llamafactory", "llamafactory"), ("axolotl", "axolotl"), ("nanotron", "nanotron"), ("run_train.py",
    "nanotron"),
    ("maxtext", "maxtext"), ("litgpt", "litgpt"), ("tune run", "torchtune"), ("megatron_gpt", "nemo"),
    ("pretrain_", "megatron"), ("megatron", "megatron"), ("torchtitan", "torchtitan"),
    ("run_train.sh", "torchtitan"), ("sglang", "sglang"), ("trtllm", "trtllm"), ("tensorrt_llm", "trtllm"),
    ("vllm", "vllm"), ("trl ", "trl"), ("sft.py", "trl"), ("dpo.py", "trl"), ("run_clm", "trainer"),
    ("accelerate launch", "accelerate"), ("deepspeed", "deepspeed"),
)  # fmt: skip
"""What a program's name has in it, the surest first."""
MARKS: tuple[tuple[str, Tool], ...] = (
    ("actor_rollout_ref", "verl"), ("policy.generation", "nemo-rl"), ("policy.dtensor_cfg", "nemo-rl"),
    ("policy.megatron_cfg", "nemo-rl"), ("policy.train_global_batch_size", "nemo-rl"),
    ("model.partial_pretrain", "verl"), ("grpo.num_prompts_per_step", "nemo-rl"),
    ("rollout_max_response_len", "slime"), ("n_samples_per_prompt", "slime"),
    ("trainer.policy.model.path", "skyrl"),
    ("allocation_mode", "areal"), ("orchestrator.rollouts_per_example", "prime-rl"),
    ("orchestrator.batch_size", "prime-rl"),
    ("trainer.devices", "nemo"), ("trainer.num_nodes", "nemo"), ("modelArtifacts", "llm-d"),
    ("parallelism.pp_engine", "nanotron"), ("tokens.batch_accumulation_per_replica", "nanotron"),
    ("tokens.micro_batch_size", "nanotron"), ("per_device_batch_size", "maxtext"),
    ("ici_fsdp_parallelism", "maxtext"),
    ("base_model", "axolotl"), ("finetuning_type", "llamafactory"), ("cutoff_len", "llamafactory"),
    ("model._component_", "torchtune"), ("train.max_seq_length", "litgpt"), ("train.max_tokens",
    "litgpt"), ("compute_environment", "accelerate"),
    ("distributed_type", "accelerate"), ("max_length", "trl"), ("per_device_train_batch_size", "trainer"),
)  # fmt: skip
"""Keys, or their beginnings, that one tool alone has, the surest first."""
SIGNS: Mapping[Tool, tuple[str, ...]] = {
    "megatron": (
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size", "global_batch_size",
        "use_distributed_optimizer", "sequence_parallel", "recompute_granularity", "context_parallel_size",
        "expert_model_parallel_size", "seq_length", "num_attention_heads", "hidden_size",
        "virtual_pipeline_model_parallel_size",
    ),
    "torchtitan": (
        "tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree",
        "data_parallel_shard_degree", "data_parallel_replicate_degree", "expert_parallel_degree",
        "local_batch_size", "num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step",
        "max_context_length", "fsdp_reshard_after_forward", "activation_checkpoint",
    ),
    "deepspeed": (
        "stage", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        "zero_optimization", "enabled", "autotp_size", "offload_optimizer",
    ),
    "vllm": (
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_num_seqs",
        "gpu_memory_utilization", "max_model_len", "enable_expert_parallel", "max_num_batched_tokens",
    ),
    "sglang": (
        "mem_fraction_static", "tp_size", "dp_size", "chunked_prefill_size", "max_running_requests",
        "enable_dp_attention", "model_path", "context_length",
    ),
    "trtllm": (
        "max_batch_size", "max_num_tokens", "enable_attention_dp", "free_gpu_memory_fraction",
        "kv_cache_free_gpu_memory_fraction", "cuda_graph_config", "kv_cache_config", "batch_sizes",
        "moe_expert_parallel_size", "tensor_parallel_size", "tp_size", "pp_size", "ep_size", "decoding_type",
    ),
}  # fmt: skip
"""Keys by which arguments without a program are known."""
SAME_OVERLAP = ("auto", "on")
"""One flag where the framework overlaps exchanges by itself."""


def read_arguments(
    text: str, layers: int | None = None, tool: Tool | None = None, known: Known | None = None
) -> Launch:
    """What a text of arguments says, with what is known beside it; BadInput where no tool is known by it, or
    where it is wrong."""
    beside = known or Known(layers=layers)
    several = read_servers(text, lambda one: _read_one(one, tool, beside))
    return several if several is not None else _read_one(text, tool, beside)


def _read_one(text: str, tool: Tool | None, beside: Known) -> Launch:
    alone = parse_arguments(text)
    whose = tool or _whose(alone, beside)
    given = with_files(alone, beside.files, whose)
    launch = _instances(READERS[whose](given, beside), given, beside)
    opened = [f"{one.key} {one.name} was opened" for one in beside.files]
    closed = _not_opened(given, {one.name for one in beside.files})
    return replace(
        launch,
        notes=(*launch.notes, *opened),
        doubts=(*launch.doubts, *closed, *_behind(given, launch)),
    )


def _whose(given: ArgumentTable, beside: Known) -> Tool:
    """The tool of a text, by what it names where it does not say so itself."""
    try:
        return recognise(given)
    except BadInput:
        if not beside.files:
            raise
        return recognise(with_files(given, beside.files, "trainer"))


def _instances(launch: Launch, given: ArgumentTable, known: Known) -> Launch:
    """A server on every node that a task or object starts it on: as many instances as fit."""
    nodes, each = (given.variables.get(name, "") for name in ("nnodes", "gpus_per_node"))
    if not (launch.serves and launch.gpus and known.gpus is None and given.wrapped):
        return launch
    many, inside = whole_number(nodes), whole_number(each)
    if many is None or not inside:
        return launch
    spans = -(-launch.gpus // inside)
    copies = many // spans
    if copies < 2:
        return launch
    place = f"{spans} nodes" if spans > 1 else "node"
    note = f"{copies} instances, one on every {place} that it is started on"
    total = launch.gpus * copies
    values = tuple(
        replace(row, value=str(total), key=", ".join(filter(None, (row.key, "replicas"))))
        if row.name == "gpus"
        else row
        for row in launch.values
    )
    return replace(launch, gpus=total, values=values, notes=(*launch.notes, note))


FILES = (
    "job.config_file",
    "deepspeed_config",
    "config",
    "extra_llm_api_options",
    "yaml_cfg",
    "fsdp_config",
)
"""Arguments that may name a file with more arguments."""
ENDINGS = (".json", ".yaml", ".yml", ".toml")
_BEHIND = re.compile(
    r"\$\{?(\w*(?:ARGS|OPTIONS|OPTS|FLAGS|PARAMS)\w*)(?:\[[@*]\])?\}?", re.IGNORECASE
)


def _not_opened(given: ArgumentTable, opened: Collection[str] = ()) -> list[str]:
    """Files that hold further arguments and that the text itself does not write."""
    named = [(key, str(value)) for key, value in given.pairs if key in FILES]
    return [
        f"{key} {value[:60]} is a file of its own, which is not opened: import that one"
        for key, value in named
        if value.endswith(ENDINGS)
        and value not in opened
        and "$" not in value
        and not re.search(rf">\s*\S*{re.escape(value.rpartition('/')[2])}", given.text)
    ]


def _behind(given: ArgumentTable, launch: Launch) -> list[str]:
    """Variables of flags that the text does not set; slime's models are a file of flags, known by name."""
    values = (
        one for _, value in given.pairs for one in (value if isinstance(value, list) else [value])
    )
    words = dict.fromkeys(str(word) for word in (*given.words, *values))
    found = [match[1] for word in words if (match := _BEHIND.fullmatch(word))]
    named = launch.tool == "slime" and launch.models
    return [
        f"${name[:40]} is not set in the text: flags may be behind it"
        for name in found
        if not (named and name == "MODEL_ARGS")
    ]


def recognise(given: ArgumentTable) -> Tool:
    """The tool: by the program that is run, else by the keys."""
    module = next((str(value) for key, value in given.pairs if key in ("m", "module")), "")
    behind = [str(one) for _, value in given.pairs if isinstance(value, list) for one in value[1:]]
    program = " ".join(word[:200] for word in (*given.words[:200], module, *behind[:200])).lower()
    named = {key for key, _ in given.pairs}
    for name, tool in PROGRAMS:
        if name in program:
            return _nearer(tool, named)
    for mark, tool in MARKS:
        if any(key == mark or key.startswith(f"{mark}.") for key in named):
            return _nearer(tool, named)
    keys = {part for key, _ in given.pairs for part in key.split(".")}
    scores = {tool: len(keys & set(SIGNS.get(tool, ()))) for tool in TOOLS}
    best = max(scores.values(), default=0)
    likely = [tool for tool in TOOLS if scores[tool] == best]
    if best and len(likely) == 1:
        return likely[0]
    message = "is of no tool known here" if not best else f"could be for {' or '.join(likely)}"
    allowed = f"arguments of {', '.join(TOOLS)}; the command before them says whose"
    shown = ", ".join(sorted(keys)[:8])[:200] or None
    raise BadInput([Problem(path="import", value=shown, message=message, allowed=allowed)])


def _nearer(tool: Tool, named: set[str]) -> Tool:
    """Of trainers that share most keys, the one whose own a file has: TRL's among TrainingArguments'."""
    own = {"max_length", "use_peft", "dataset_text_field", "packing", "trainer_type", "num_generations",
           "max_completion_length", "reward_funcs"}  # fmt: skip
    if tool == "trainer" and named & own:
        return "trl"
    if tool == "deepspeed" and "per_device_train_batch_size" in named:
        return "trainer"
    if tool == "accelerate" and named & {"max_length", "use_peft"}:
        return "trl"
    return tool


def write_training(tool: Tool, run: Training) -> ToolArguments:
    """A plan as a training tool's arguments, and what these do not say of it."""
    if tool not in TRAINERS:
        raise no_tool(tool, TRAINING)
    plain = TRAINERS[tool](replace(run, launcher=""))
    written = plain if not run.launcher else TRAINERS[tool](run)
    launch = READERS[tool](parse_arguments(plain.text), Known(layers=run.layers, gpus=run.gpus))
    back = parse_plan(launch.plan, run.gpus)
    notes = [f"{tool} has no flag for {text}" for text in _differences(run, back)]
    if launch.seq_len not in (None, run.seq_len) or (
        launch.seq_len is None and tool == "deepspeed"
    ):
        notes.append(
            f"{tool} takes no sequence length here: set {run.seq_len} where the data is prepared"
        )
    if launch.global_batch not in (None, run.global_batch):
        notes.append(f"{tool} runs {launch.global_batch} sequences a step, not {run.global_batch}")
    notes += written.notes
    notes += _shape_notes(run, launch)
    return replace(written, notes=tuple(notes))


def _shape_notes(run: Training, launch: Launch) -> list[str]:
    """How far the model that the arguments describe is from the one that is meant, in weights."""
    if launch.table is None:
        return []
    told, meant = (
        count(one).total for one in (read_table(dict(launch.table), id="export"), run.model)
    )
    if abs(told - meant) <= 0.002 * meant:
        return []
    return [f"the model's arguments describe {told:,} weights, {run.model.id} has {meant:,}"]


def write_serving(tool: Tool, serving: Serving) -> ToolArguments:
    """A deployment as an engine's command, and what it does not say."""
    if tool not in ENGINES:
        raise no_tool(tool, SERVING)
    text = ENGINES[tool](serving)
    if serving.own and serving.as_read is not None:
        as_read = ENGINES[tool](replace(serving, deployment=serving.as_read, batch=None))
        text = keep_flags(serving.own, as_read, text, FLAGS[tool], alone=serving.alone)
    launch = READERS[tool](parse_arguments(text), Known())
    meant = serving.deployment
    back = parse_deployment(launch.plan)
    notes = []
    for field in fields(Deployment):
        given, read = getattr(meant, field.name), getattr(back, field.name)
        if field.name == "max_batch":
            given = serving.rank_sequences
        if field.name == "accepted" or _close(given, read):
            continue
        if field.name in ("weights", "experts"):
            if given != "bf16" and not (field.name == "experts" and given == meant.weights):
                notes.append(
                    f"{field.name}={given}: {tool} takes it from a checkpoint in this format"
                )
            continue
        notes.append(f"{tool} writes {field.name}={read}, not {given}")
    return ToolArguments(tool=tool, text=text, notes=tuple(notes))


def no_tool(tool: str, allowed: tuple[Tool, ...]) -> BadInput:
    """A tool that does something else, or none at all."""
    message = "is no tool that this can be written for"
    return BadInput(
        [Problem(path="export", value=tool, message=message, allowed=", ".join(allowed))]
    )


def _differences(run: Training, back: Plan) -> list[str]:
    """Fields of a plan that came back otherwise, as `key=value (reads back as other)`."""
    told, plan = [], run.plan
    for field in fields(Plan):
        name, given, read = field.name, getattr(plan, field.name), getattr(back, field.name)
        if given == read or _silent(run, name, given, read):
            continue
        shown = [",".join(v) if isinstance(v, tuple) else v for v in (given, read)]
        told.append(f"{name}={shown[0]} (reads back as {shown[1]})")
    return told


def _silent(run: Training, name: str, given: object, read: object) -> bool:
    """Differences that change no answer for this plan."""
    plan = run.plan
    if name == "tp_overlap":
        same = run.software.pieces_on == EVERYWHERE and {given, read} <= {*SAME_OVERLAP}
        return plan.tp == 1 or not plan.sp or same
    if name in ("cp_mode", "cp_cut"):
        return plan.cp == 1
    if name == "layout":
        chunks = plan.pp * plan.vpp
        even = word_of(list(even_sizes(run.layers, chunks)))
        return plan.pp == 1 or {given, read} <= {EVEN, even}
    if name == "dispatch":
        # A layer of whole experts is sorted once more before an all-to-all, with no other rank too.
        return plan.ep == 1 and (not plan.fused or run.software.sorts == "once")
    if name == "ep_overlap":
        return plan.ep == 1
    if name == "routing":
        # Whole groups have all rows, however these fall on their experts; tiles are full only if even.
        return plan.ep == 1 and "even" not in (given, read)
    if name == "reshard":
        return plan.zero < 3 and "weights" not in offloads(plan.offload)
    if name == "gather":
        return plan.zero == 0
    if name == "shard":
        # Experts that are spread have replicas of their own, which a number shares otherwise than 0 does.
        return plan.ep == 1 and {given, read} <= {0, plan.dp * plan.cp}
    return name == "sp" and plan.tp == 1


def _close(given: object, read: object) -> bool:
    """Equal, or numbers that print alike."""
    if isinstance(given, float) and isinstance(read, float):
        return abs(given - read) <= 1e-3 * max(abs(given), 1e-9)
    return given == read
