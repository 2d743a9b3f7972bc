"""torchtitan's configurations: `[parallelism]` in TOML of v0.2, and the Python tree of 2026.

Both as TOML, JSON, `--section.key value` or `config.section.key = value` lines. v0.2 counts batches in
sequences (`local_batch_size`, `global_batch_size`, `seq_len`), the later tree in tokens
(`num_tokens_per_microbatch_per_dp_rank`, `num_tokens_per_train_step`, `max_context_length`). Names as of
torchtitan/config/{job_config,training,parallelism}.py.
"""

from dataclasses import replace
from math import ceil

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys, world_size
from foretell.interop.launch import Known, Launch
from foretell.interop.layouts import plan_word
from foretell.interop.tool_fields import launch_of, translate
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.torchtitan_registry import REGISTRY
from foretell.interop.whole_numbers import whole_number

WORDS = table_of("torchtitan").words
"""Their words and ours."""
ASYNC = ("parallelism.enable_async_tensor_parallel", "compile.enable_async_tensor_parallel")
"""Where the switch of overlapped tensor parallelism is: of 0.2, and of 0.3."""


def read_torchtitan(given: ArgumentTable, known: Known, table: ToolTable) -> Launch:
    """What the configuration says; layers of the model give virtual stages."""
    sectioned = _sectioned(given)
    completed = _with_registry(sectioned)
    saved = ("activation_checkpoint", "activation_checkpoint.mode")
    off = any(key in saved and value is None for key, value in completed.pairs)
    told = translate(completed, table)
    keys = told.keys
    keys.defaults = frozenset(
        key for key, _ in completed.pairs[: len(completed.pairs) - len(sectioned.pairs)]
    )
    degree = {
        name: known.over(name, keys.whole(f"parallelism.{long}_parallel_degree") or 1)
        for name, long in (
            ("tp", "tensor"),
            ("pp", "pipeline"),
            ("cp", "context"),
            ("ep", "expert"),
        )
    }
    chips = world_size(keys, known)
    dp, zero, shard = _data(keys, chips, degree)
    schedule, vpp = _pipeline(keys, degree["pp"], known.layers)
    micro, batch, seq_len = _batches(keys, dp, degree["pp"], known)
    tp, pp, cp, ep = degree.values()
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": vpp if pp > 1 else None, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": ep if ep > 1 else None, "zero": zero, "micro_batch": micro, "shard": shard,
        "sp": keys.flag("parallelism.enable_sequence_parallel") is not False if tp > 1 else None,
        "reshard": _reshard(keys, zero, pp), "schedule": schedule,
        "layout": _layout(keys, pp, vpp, known.layers, schedule),
        "recompute": "none" if off else _recompute(keys, known.layers, pp),
        "cp_mode": "allgather" if cp > 1 else None, "fused": _fused(keys),
        "tp_overlap": "on" if keys.flag(*ASYNC) else None,
        "offload": "optimizer+weights" if keys.flag("training.enable_cpu_offload") else None,
        "reduce": "step" if keys.flag("parallelism.fsdp_defer_gradient_reduction") else None,
        "framework": "torchtitan",
    }  # fmt: skip
    if cp > 1 and keys.text("parallelism.context_parallel_rotate_method") == "alltoall":
        values["cp_mode"] = "ring"
    values |= _precision(keys)
    if zero == 0 and cp == 1:
        values |= _without_fsdp(keys, values, tp * pp > 1)
    models = _models(keys)
    keys.raise_problems()
    gpus = chips if chips is not None or dp is None else tp * pp * cp * dp
    name = next(iter(models), None)
    job = {"model": name, "gpus": gpus, "global_batch": batch, "seq_len": seq_len}
    return launch_of(told, given, table, job, values, table.sources, models=models)


def _with_registry(given: ArgumentTable) -> ArgumentTable:
    """The keys, above those of the function of torchtitan's own that a command names."""
    named = next((str(value) for key, value in given.pairs if key == "config"), "")
    own = REGISTRY.get(named)
    if own is None:
        return given
    said = {key for key, _ in given.pairs}
    if "activation_checkpoint.mode" in said:
        said.add("activation_checkpoint")
    before = [(key, value) for key, value in own.items() if key not in said]
    return replace(given, pairs=(*before, *given.pairs))


def _layout(keys: Keys, pp: int, vpp: int, layers: int | None, schedule: str | None) -> str | None:
    """Layers of each stage: the first and the last have some fewer, one each unless stated
    (pipeline_parallel.py, generate_llm_fqn_per_model_part); what does not divide goes to the earlier
    stages."""
    first, last = (
        keys.whole(f"parallelism.pipeline_parallel_{end}_stage_less_layers", low=0)
        for end in ("first", "last")
    )
    if pp == 1 or layers is None or schedule not in (None, "gpipe"):
        return None
    first, last = 1 if first is None else first, 1 if last is None else last
    chunks = pp * vpp
    whole, rest = divmod(layers + first + last, chunks)
    sizes = [whole + (at < rest) for at in range(chunks)]
    sizes[0] -= first
    sizes[-1] -= last
    if min(sizes) < 0:
        keys.problem(
            "parallelism.pipeline_parallel_degree", f"leaves stages without layers ({layers})", pp
        )
        return None
    return plan_word(sizes)


def _sectioned(given: ArgumentTable) -> ArgumentTable:
    """Keys with their section: one that is given alone is where the tree has it."""
    pairs = []
    for key, value in given.pairs:
        if "." not in key:
            found = next((s for part, s in WORDS["section"].items() if part in key), None)
            key = f"{found}.{key}" if found else key
        pairs.append((key, value))
    return replace(given, pairs=tuple(pairs))


def _data(
    keys: Keys, chips: int | None, degree: dict[str, int]
) -> tuple[int | None, int, int | None]:
    """Replicas, ZeRO's stage, and ranks that share where replicas are beside them; context-parallel ranks
    share too."""
    copies = keys.whole("parallelism.data_parallel_replicate_degree") or 1
    told = keys.whole("parallelism.data_parallel_shard_degree", low=-1)
    others = degree["tp"] * degree["pp"] * degree["cp"] * copies
    parts = told if told is not None and told > 0 else None
    if parts is None and chips is not None:
        parts = max(chips // others, 1)
    if parts is None:
        keys.note("data_parallel_shard_degree is what is left of the GPUs, which are not named")
        return None, 3, None
    ranks = parts * degree["cp"]
    return copies * parts, 3 if ranks > 1 else 0, ranks if ranks > 1 and copies > 1 else None


def _pipeline(keys: Keys, pp: int, layers: int | None) -> tuple[str | None, int]:
    """Schedule and virtual stages."""
    told = keys.text("parallelism.pipeline_parallel_schedule") or "1F1B"
    plain = told.strip("\"'").lower()
    each = keys.whole("parallelism.pipeline_parallel_layers_per_stage")
    split = ("parallelism.pipeline_parallel_split_points", "parallelism.module_fqns_per_model_part")
    if pp > 1 and keys.raw(*split):
        keys.doubt("modules of a stage are given by name: not followed")
    if pp == 1:
        return None, 1
    if plain not in WORDS["schedule"]:
        keys.problem("parallelism.pipeline_parallel_schedule", "is no schedule known here", told,
                     "1F1B, GPipe, Interleaved1F1B, ZBVZeroBubble")  # fmt: skip
        return None, 1
    schedule = WORDS["schedule"][plain]
    if plain in WORDS["near"]:
        keys.doubt(f"schedule {WORDS['near'][plain]} is taken as {schedule}")
    if schedule != "interleaved":
        return (None if schedule == "1f1b" else schedule), 1
    if each is None or layers is None:
        keys.note("interleaved: two virtual stages on every rank, as torchtitan has it by itself")
        return None, 2
    return None, max(ceil((layers + 2) / each) // pp, 1)


def _batches(
    keys: Keys, dp: int | None, pp: int, known: Known
) -> tuple[int, int | None, int | None]:
    """Micro-batch, global batch and sequence length, in sequences and tokens."""
    seq_len = keys.whole("training.max_context_length", "training.seq_len")
    tokens = keys.whole("training.num_tokens_per_microbatch_per_dp_rank")
    step = keys.whole("training.num_tokens_per_train_step", low=-1)
    several = (keys.whole("parallelism.num_pp_microbatches") or 1) if pp > 1 else 1
    if tokens is not None:
        seq_len = seq_len or 2048
        micro = _sequences(keys, "num_tokens_per_microbatch_per_dp_rank", tokens, seq_len)
        if step is not None and step > 0:
            return micro, _sequences(keys, "num_tokens_per_train_step", step, seq_len), seq_len
        return micro, None if dp is None else micro * several * dp, seq_len
    local = keys.whole("training.local_batch_size", "training.batch_size") or LOCAL_BATCH
    seq_len = seq_len or SEQUENCE
    piece = keys.whole("parallelism.pipeline_parallel_microbatch_size") or 1
    if pp == 1:
        local = known.over("micro_batch", local)
    batch = keys.whole("training.global_batch_size", low=-1)
    if batch is None or batch < 1:
        batch = None if dp is None else local * dp
    return (piece if pp > 1 else local), batch, seq_len


LOCAL_BATCH, SEQUENCE = 8, 2048
"""Defaults of local_batch_size and seq_len (config/configs.py of 0.3, job_config.py of 0.2)."""


def _sequences(keys: Keys, name: str, tokens: int, seq_len: int) -> int:
    """Sequences in so many tokens; a part of one is rounded, and reported."""
    whole = max(round(tokens / seq_len), 1)
    if whole * seq_len != tokens:
        keys.note(
            f"{name} {tokens} is {tokens / seq_len:.3g} sequences of {seq_len}: {whole} taken"
        )
    return whole


def _reshard(keys: Keys, zero: int, pp: int) -> bool | None:
    """Whether gathered weights are freed after the forward pass: by default not within pipelines."""
    told = (keys.text("parallelism.fsdp_reshard_after_forward") or "default").strip("\"'").lower()
    if zero != 3:
        return None
    return False if told == "never" or (told == "default" and pp > 1) else None


def _recompute(keys: Keys, layers: int | None, pp: int) -> str:
    """Activation checkpointing: its mode, or the class that is named.

    v0.2 is selective by itself, and recomputes every second layer whole unless selective_ac_option says `op`;
    a class is of 0.3, whose SelectiveAC works operation by operation.
    """
    whole = keys.text("activation_checkpoint")
    told = keys.text("activation_checkpoint.mode")
    option = keys.text("activation_checkpoint.selective_ac_option")
    name = (
        (told or (whole or "selective").rpartition(".")[0] or whole or "selective")
        .strip("\"'()")
        .lower()
    )
    name = name.removesuffix(".config")
    if name not in WORDS["checkpoint"]:
        keys.problem(
            "activation_checkpoint.mode", "is none of the modes", name, "none, selective, full"
        )
        return "none"
    if name in ("memory_budget", "memorybudgetac"):
        keys.doubt("activation checkpointing by a memory budget is taken as by operation")
    by_layer = name == "selective" and (told is not None or option is not None)
    every = 2 if option is None else whole_number(option) or 0
    if by_layer and every:
        if layers is None:
            keys.doubt(f"one layer in {every} is recomputed: how many needs the model's layers")
            return "none"
        return f"full:{max(layers // pp // every, 1)}" if every > 1 else "full"
    return WORDS["checkpoint"][name]


def _fused(keys: Keys) -> bool | None:
    """Whether layers are compiled: not by default."""
    told = keys.flag("compile.enable", "training.compile")
    return None if told else False


def _precision(keys: Keys) -> dict[str, object]:
    """Dtype of products, weights and gradients."""
    values: dict[str, object] = {}
    named = keys.raw("model.converters")
    words = named if isinstance(named, list) else str(named or "").split(",")
    for word in words:
        name = str(word).strip().lower().rpartition(".")[2]
        if name in WORDS["converter"]:
            values["precision"] = WORDS["converter"][name]
        elif name:
            keys.doubt(f"model converter {name[:40]} is not known here: ignored")
    recipe = keys.text("float8.recipe_name", "quantize.linear.float8.recipe_name") or ""
    if values.get("precision") == "fp8" and recipe.startswith("rowwise"):
        values["scaling"] = "row"
    gather = "float8.enable_fsdp_float8_all_gather"
    gathered = keys.flag(gather, f"quantize.linear.{gather}")
    values["gather"] = "fp8" if gathered and values.get("precision") == "fp8" else None
    if keys.text("training.dtype") == "bfloat16":
        values |= {"master": "none", "gradients": "bf16", "states": "bf16"}
    elif keys.text("training.mixed_precision_param") == "float32":
        keys.note("mixed_precision_param float32: 32-bit training, GEMMs without TF32")
        values["precision"] = values.get("precision", "fp32")
    if keys.text("training.mixed_precision_reduce") == "bfloat16":
        values["gradients"] = "bf16"
    name = (keys.text("optimizer.name") or "adamw").lower()
    if name.startswith("muon"):
        values["optimizer"] = "muon"
    elif name == "sgd":
        values["optimizer"] = "sgd"
    return values


def _without_fsdp(keys: Keys, values: dict[str, object], cut: bool) -> dict[str, object]:
    """Mixed precision where fully_shard does not run it: autocast over 32-bit weights, which v0.2, known by
    batches in sequences, did not run beside tensor or pipeline parallelism (maybe_enable_amp)."""
    if values.get("master") == "none" or values.get("precision") == "fp32":
        return {}
    if cut and keys.has("training.local_batch_size", "training.batch_size", "training.seq_len"):
        keys.note("tp or pp without FSDP: v0.2 has no mixed precision there, 32-bit training")
        return {"precision": values.get("precision", "fp32"), "weights": "fp32", "master": "none"}
    keys.note("without FSDP weights are in 32 bits, and cast where GEMMs use them")
    return {"weights": "fp32", "master": "none"}


def _models(keys: Keys) -> tuple[str, ...]:
    """Names that may be the model's: the assets' folder, module and flavour."""
    family, flavor = keys.text("model.name", "module"), keys.text("model.flavor")
    config = keys.text("config")
    path = keys.text("model.hf_assets_path", "hf_assets_path", "job.hf_assets_path") or ""
    spec = keys.text("model_spec.first")
    flavor = flavor or spec
    names = [path.rstrip("/").rpartition("/")[2]]
    if family and flavor:
        stem = family.replace("llama3", "llama-3.1").replace("_", "-")
        names = [names[0], f"{stem}-{flavor}", f"{family}-{flavor}", *names[1:]]
    if config:
        names += [config.replace("llama3_", "llama-3.1-").replace("_", "-"), config]
    return tuple(dict.fromkeys(name.strip("\"'") for name in names if name.strip("\"'")))
