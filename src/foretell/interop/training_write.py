"""A plan as the arguments of Megatron-LM, torchtitan or DeepSpeed: rows of the tool's table (`written`).

    written = [
        { text = "--tensor-model-parallel-size {tp}" },
        { when = "cp>1", text = "--context-parallel-size {cp}" },
        { when = "fused", set = { "compile.enable" = true } },
    ]

A row whose conditions hold (rules.py) writes a line of flags, or keys of a file. Names are the fields of the
plan and what is counted from them below. torchtitan 0.3 is configured by a Python function that takes one of
its own configurations and sets the plan on it, 0.2 by a TOML file; both count batches in sequences: with
pipeline stages a rank's whole share of the batch is local_batch_size, without them one micro-batch is.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

from foretell.errors import bad_input
from foretell.interop.arguments import parse_arguments
from foretell.interop.edited_launch import with_own
from foretell.interop.launch import NO_TOOL, TRAINING, Known, Launch, Tool, ToolArguments, Training
from foretell.interop.launchers import LaunchJob, wrapped
from foretell.interop.layouts import megatron_text, word_of
from foretell.interop.own_model import read_table
from foretell.interop.releases import release_of
from foretell.interop.rules import rows_that_hold
from foretell.interop.tool_tables import own_configurations, table_of
from foretell.interop.tools import reader_of
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Model
from foretell.specs.plan import WIDE_PRECISIONS, Plan, parse_plan
from foretell.specs.plan_forms import (
    EVEN,
    even_sizes,
    layout_sizes,
    offloads,
    recompute_layers,
    recompute_modules,
)
from foretell.specs.software import EVERYWHERE
from foretell.workload.parameters import count

OWN = own_configurations("torchtitan_configs.toml")
"""torchtitan's configurations and flavors of models."""
SAME_OVERLAP = ("auto", "on")
"""One flag where the framework overlaps exchanges by itself."""
PLACEHOLDERS = ("--mock-data", "--train-iters 20", "--lr 1.0e-4")
"""What of a written command stands for a run's own."""


def write_training(tool: Tool, run: Training) -> ToolArguments:
    """A plan as a training tool's arguments, and what these do not say of it."""
    if tool not in TRAINING:
        raise bad_input("export", tool, NO_TOOL, ", ".join(TRAINING))
    plain = write_plan(tool, replace(run, launcher=""))
    written = plain if not run.launcher else write_plan(tool, run)
    launch = reader_of(tool)(parse_arguments(plain.text), Known(layers=run.layers, gpus=run.gpus))
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


def _differences(run: Training, back: Plan) -> list[str]:
    """Fields of a plan that came back otherwise, as `key=value (comes back as other)`."""
    told, plan = [], run.plan
    for field in fields(Plan):
        name, given, read = field.name, getattr(plan, field.name), getattr(back, field.name)
        if given == read or _silent(run, name, given, read):
            continue
        shown = [",".join(v) if isinstance(v, tuple) else v for v in (given, read)]
        told.append(f"{name}={shown[0]} (comes back as {shown[1]})")
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
        return plan.ep == 1 and (not plan.fused or "spread" not in run.software.passes)
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


def write_plan(tool: str, run: Training) -> ToolArguments:
    """The arguments of a training tool, as its launcher starts it where one is named."""
    return {"megatron": _megatron, "torchtitan": _torchtitan, "deepspeed": _deepspeed}[tool](run)


def job_name(model: str) -> str:
    """A name that Slurm and Kubernetes take."""
    plain = "".join(c if c.isalnum() else "-" for c in model.lower())
    return "-".join(part for part in plain.split("-") if part)[:50] or "foretell"


def _lines(tool: str, values: Mapping[str, Any]) -> list[str]:
    """Lines of flags of the rows that hold."""
    rows = rows_that_hold(table_of(tool).written, values)
    return [str(row["text"]).format_map(values) for row in rows]


def written_keys(tool: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of the rows that hold, each with its value: of a name alone as it is, None left out."""
    found: dict[str, Any] = {}
    for row in rows_that_hold(table_of(tool).written, values):
        for key, value in row["set"].items():
            name = str(value).strip("{}")
            found[key] = values[name] if value == f"{{{name}}}" else value
    return {key: value for key, value in found.items() if value is not None}


def _values(run: Training) -> dict[str, Any]:
    """Fields of the plan and of the job, and what tools count from them."""
    plan, ranks = run.plan, run.plan.dp * run.plan.cp
    host = offloads(plan.offload)
    blocks, modules = recompute_layers(plan.recompute), recompute_modules(plan.recompute)
    theirs = [
        name for name, ours in table_of("megatron").words["modules"].items() if ours in modules
    ]
    shared = bool(plan.zero and plan.shard and ranks % plan.shard == 0 and plan.shard != ranks)
    inner = min(max(plan.shard // plan.cp, 1), plan.dp) if plan.zero and plan.shard else plan.dp
    shards = inner if plan.zero else 1
    laid = plan.layout != EVEN and plan.pp > 1
    sizes = layout_sizes(plan.layout) or even_sizes(run.layers, plan.pp * plan.vpp)
    # Gradients are reduced after the passes: Megatron without its overlaps.
    own = run.software.overlap_stage > plan.zero and plan.grad_overlap == "auto"
    late = run.software.sums_fused and (plan.grad_overlap == "off" or own) and plan.zero < 2
    return {
        **{field.name: getattr(plan, field.name) for field in fields(plan)},
        "global_batch": run.global_batch, "seq_len": run.seq_len, "layers": run.layers,
        "micro_batches": run.micro_batches, "share": run.global_batch // plan.dp,
        "step_batch": run.micro_batches * plan.micro_batch * plan.dp, "late": late,
        "wide": plan.precision in WIDE_PRECISIONS, "no_flash": not plan.flash,
        "layout_text": megatron_text(plan.layout) if laid else None,
        "instances": ranks // plan.shard if shared else None, "shards": shards,
        "copies": plan.dp // shards, "kept": "never" if not plan.reshard or plan.zero < 3 else "always",
        "blocks": max(blocks // plan.vpp, 1) if blocks else None,
        "modules": " ".join(theirs), "only_core": modules == ("core",),
        "first_wide": plan.wide_layers // 2, "last_wide": plan.wide_layers - plan.wide_layers // 2,
        **{f"{part}_on_host": part in host for part in ("optimizer", "weights", "activations")},
        "swapped": plan.order == ("tp", "cp", "pp", "dp"), "bucket_weights": 1_000_000 * plan.bucket,
        "inner_layers": max(sizes), "first_less": max(sizes) - sizes[0],
        "last_less": max(sizes) - sizes[-1],
    }  # fmt: skip


def _job(run: Training, program: str, **more: Any) -> LaunchJob:
    """The program on its nodes."""
    nodes, each = run.places
    made: dict[str, Any] = {"environment": {}, "files": {}, **more}
    return LaunchJob(
        name=job_name(run.model.id), program=program, nodes=nodes, each=each, chip=run.chip, **made
    )


# ---- Megatron-LM --------------------------------------------------------------------------------


def _megatron(run: Training) -> ToolArguments:
    """`pretrain_gpt.py` with the flags of model and plan."""
    plan, shape = run.plan, _shape(run.model, run.plan.tp, run.repository)
    notes = [] if run.repository else ["no tokenizer is known: NullTokenizer, for mock data"]
    if shape is None:
        notes = [f"Add the model flags (--num-layers ...) of {run.model.id}"]
    values = {**_values(run), "shape": shape is not None, **(shape or {})}
    flags = with_own(_lines("megatron", values), run.own)
    # One connection to the device where exchanges of tensor or context parallelism are to run behind
    # products, which Megatron insists on; not with FSDP, which it forbids (arguments.py, validate_args).
    sharp = (plan.tp > 1 or plan.cp > 1) and plan.zero < 2
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if sharp else {}
    job = _job(run, " \\\n  ".join(["pretrain_gpt.py", *flags]), environment=environment)
    if any(text in line for text in PLACEHOLDERS for line in flags):
        notes = [*notes, "data, learning rate and number of steps are placeholders of a benchmark"]
    return ToolArguments(
        tool="megatron", text=wrapped(job, run.launcher or "torchrun"), notes=tuple(notes)
    )


def _shape(model: Model, tp: int, repository: str | None) -> dict[str, Any] | None:
    """What flags describe of a model: a decoder of equal attention layers, dense or with experts from some
    layer on, latent attention too; None where Megatron has no flags for its kind."""
    layers = model.stack.layers
    mixers = {mixer for layer in layers for mixer in layer.mixers}
    plain = len(mixers) == 1 and all(len(layer.mixers) == 1 for layer in layers)
    mixer = next(iter(mixers), None)
    if model.encoder is not None or not plain or not isinstance(mixer, Attention | LatentAttention):
        return None
    if isinstance(mixer, Attention) and (mixer.cross or mixer.indexer is not None):
        return None
    dense = next((layer.ffn for layer in layers if isinstance(layer.ffn, Dense)), None)
    routed = next((layer.ffn for layer in layers if isinstance(layer.ffn, Experts)), None)
    kinds = [int(isinstance(layer.ffn, Experts)) for layer in layers]
    runs = "+".join(f"[{kind}]*{len(list(same))}" for kind, same in groupby(kinds))
    vocab, multiple = model.embedding.vocab, 128
    while multiple > 1 and vocab % (multiple * max(tp, 8)):
        multiple //= 2
    found: dict[str, Any] = {
        "hidden": model.stack.hidden, "heads": mixer.heads,
        "rms": model.stack.final_norm == "rms", "untied": not model.head.tied,
        "position": "learned_absolute" if model.embedding.positions else "rope",
        "repository": repository, "rows_multiple": multiple,
        "rows": vocab if repository else vocab - 1,  # NullTokenizer adds the end of a document
    }  # fmt: skip
    if isinstance(mixer, LatentAttention):
        names = ("q_rank", "kv_rank", "nope_dim", "rope_dim", "value_dim")
        found |= {"latent": True, **{name: getattr(mixer, name) for name in names}}
    else:
        found |= {
            "kv_heads": mixer.kv_heads if mixer.kv_heads != mixer.heads else None,
            "head_dim": mixer.head_dim if mixer.head_dim * mixer.heads != model.stack.hidden else None,
            "head_norm": mixer.qk_norm == "head", "only_qkv_bias": mixer.q_bias and not mixer.o_bias,
        }  # fmt: skip
    some = dense or routed
    if some is not None:
        found |= {"width": some.width, "gated": some.gated}
        found |= {"no_bias": not (isinstance(some, Dense) and some.up_bias)}
    if routed is not None:
        found |= {"experts": routed.experts, "top_k": routed.top_k, "expert_width": routed.width}
        found |= {
            "shared_width": routed.shared_width,
            "expert_layers": runs if 0 in kinds else None,
        }
    return found


# ---- torchtitan ---------------------------------------------------------------------------------


def _torchtitan(run: Training) -> ToolArguments:
    """The configuration alone, or with a launcher the script that writes and runs it."""
    version = f"torchtitan@{run.version}" if run.version else "torchtitan"
    old = not release_of(version, serving=False).at_least(0, 3)
    values = written_keys("torchtitan", {**_values(run), "old": old})
    flavor, own = _flavor(run), _own(run)
    if old:
        name, config = "planned.toml", toml_text({**flavor, **values})
        program = f"-m torchtitan.train --job.config_file {name}"
    else:
        name, config = "planned.py", _python_text(run, own, values)
        program = "-m torchtitan.train --module planned --config planned"
    place = "name its model.name and model.flavor" if old else "put one in base()"
    notes = () if (flavor if old else own) else (
        f"torchtitan has no configuration of its own for {run.model.id}: {place}",
    )  # fmt: skip
    job = _job(run, program, environment={"PYTHONPATH": "."}, files={name: config})
    text = wrapped(job, run.launcher) if run.launcher else config
    return ToolArguments(tool="torchtitan", text=text, notes=notes)


def _own(run: Training) -> str | None:
    """torchtitan's own configuration of a model, by its repository."""
    wanted = (run.repository or run.model.id).rpartition("/")[2].lower()
    for name, keys in OWN["configs"].items():
        if str(keys["hf_assets_path"]).rpartition("/")[2].lower() == wanted:
            return str(name)
    return None


def _flavor(run: Training) -> dict[str, str]:
    """The model as a file of 0.2 names it; nothing where it has none such."""
    wanted = (run.repository or run.model.id).rpartition("/")[2]
    found = next((v for name, v in OWN["flavors"].items() if name.lower() == wanted.lower()), None)
    if found is None:
        return {}
    assets = f"./assets/hf/{wanted}"
    return {"model.name": found[0], "model.flavor": found[1], "model.hf_assets_path": assets}


def _python_text(run: Training, own: str | None, values: dict[str, Any]) -> str:
    """planned.py: torchtitan's own configuration with the plan on it."""
    base = own or "llama3_debugmodel"
    module = OWN["modules"].get(base.partition("_")[0], "llama3")
    kind = OWN["checkpoint_classes"].get(run.plan.recompute, "SelectiveAC.Config()")
    lines = [f"    config.{key} = {value!r}" for key, value in values.items()]
    body = "\n".join([*lines, f"    config.activation_checkpoint = {kind}"])
    used = kind.partition(".")[0]
    classes = f"from torchtitan.distributed.activation_checkpoint import {used}\n"
    return (
        f"{classes if kind != 'None' else ''}"
        f"from torchtitan.models.{module}.config_registry import {base} as base\n\n\n"
        f'def planned():\n    """{run.model.id} on {run.gpus} GPUs."""\n'
        f"    config = base()\n{body}\n    return config"
    )


def toml_text(values: dict[str, Any]) -> str:
    """Dotted keys as TOML, by tomli-w."""
    try:
        import tomli_w
    except ImportError:
        raise bad_input(
            "export", None, "TOML needs tomli-w", 'pip install "foretell[interchange]"'
        ) from None
    return str(tomli_w.dumps(_nested(values))).rstrip()


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as tables inside one another."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return found


# ---- DeepSpeed ----------------------------------------------------------------------------------


def _deepspeed(run: Training) -> ToolArguments:
    """The JSON file, or with a launcher the script that writes and uses it."""
    text = json.dumps(_nested(written_keys("deepspeed", _values(run))), indent=2)
    if not run.launcher:
        return ToolArguments(tool="deepspeed", text=text)
    model = run.repository or run.model.id
    program = f"train.py --model_name_or_path {model} --deepspeed ds_config.json"
    job = _job(run, program, files={"ds_config.json": text})
    note = "train.py is yours: a script of the Hugging Face Trainer, or one that calls deepspeed.initialize"
    return ToolArguments(tool="deepspeed", text=wrapped(job, run.launcher), notes=(note,))
