"""Megatron-LM's arguments and Megatron-Bridge's overrides: `--tensor-model-parallel-size 8`,
`model.tensor_model_parallel_size=8`.

Names as of megatron/training/arguments.py (Core 0.13 and later) and Bridge's ConfigContainer, of whose
dotted keys the last part counts. Left to Megatron and so read: experts are cut by tp where no
expert_tensor_parallel_size is given; sequence parallelism is off unless asked for; neither bf16 nor fp16 is
32 bits (params_dtype), whose products Transformer Engine, Megatron's default, runs in TF32 (its
cublaslt_gemm.cu), and transformer_impl=local as PyTorch does: without it.
"""

from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.kept_flags import own_flags, quiet_flags
from foretell.interop.keys import Keys, drop_unset, enough_chips, plan_words, world_size
from foretell.interop.launch import Known, Launch
from foretell.interop.layouts import plan_word, sizes_of_text, uneven_sizes
from foretell.interop.megatron_model import model_table
from foretell.interop.recognition import program_of
from foretell.interop.tool_fields import launch_of, translate
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.training_launch import post_training
from foretell.specs.plan_forms import MODULES as ALL_MODULES
from foretell.specs.plan_forms import join_names

MODES = {"ring": "p2p", "allgather": "all_gather", "ulysses": "a2a"}
"""Our cp_mode and their cp_comm_type."""
WORDS = table_of("megatron").words
"""Their words and ours."""
UNSET = ("none", "null", "false", "0", "0.0", "")
"""Values of a key that leave it out."""
GRAPHS = ("enable", "impl", "scope")
"""Ends of the flags of CUDA graphs."""
NARROW = ("fp8", "mxfp8", "nvfp4")
"""Precisions beside which layers at both ends may stay in 16 bits."""


def read_megatron(given: ArgumentTable, known: Known, of: ToolTable) -> Launch:
    """What the arguments say, with what is known beside them."""
    translated, tool = translate(given, of), of.tool
    keys = translated.keys
    other = _other_network(given, of)
    table = None if other else model_table(keys)
    layers = keys.whole("num_layers") or known.layers
    tp = known.over("tp", keys.whole("tensor_model_parallel_size") or 1)
    pp = known.over("pp", keys.whole("pipeline_model_parallel_size") or 1)
    cp, ep = (keys.whole(f"{name}_parallel_size") or 1 for name in ("context", "expert_model"))
    cp = known.over("cp", cp)
    gpus = world_size(keys, known)
    told_nodes = given.started or keys.has("num_nodes", "nnodes", "nodes") or tool != "nemo"
    if gpus is not None and known.gpus is None and not told_nodes:
        keys.ask("the number of nodes is not in the file (trainer.num_nodes): --gpus")
        gpus = None
    gpus = enough_chips(keys, known, gpus, tp * pp * cp)
    dp = _replicas(keys, gpus, tp * pp * cp)
    layout, vpp = _layout(keys, pp, _virtual(keys, pp, layers), layers)
    micro = known.over("micro_batch", keys.whole("micro_batch_size") or 1)
    bridge = bool(of.options.get("bridge")) or _of_bridge(given)
    told_split = keys.flag("sequence_parallel")
    split = bool(of.options.get("recipe")) if told_split is None else told_split
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": vpp if pp > 1 else None, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": ep if ep > 1 else None, "etp": _expert_tensor(keys, tp, ep), "zero": _zero(keys),
        "micro_batch": micro, "layout": layout,
        "sp": split if tp > 1 else None,
        "capacity": keys.number("moe_expert_capacity_factor", high=100.0) or None,
    }  # fmt: skip
    values |= (
        _kernels(keys, cp)
        | _recompute(keys, vpp)
        | _precision(keys, given, bridge=bridge)
        | _dtypes(keys, bridge=bridge)
    )
    values |= _data(keys, None if dp is None else dp * cp) | _overlap(
        keys, sharp=tp > 1 and bool(values["sp"]), bridge=bridge
    )
    values |= translated.plan
    if tool == "nemo":
        values["framework"] = "nemo"
    if any(key.endswith("peft.dim") for key, _ in given.pairs):
        values["lora"] = keys.whole("dim")
    elif (keys.text("adapter") or "").startswith(("lora", "qlora")):
        values["lora"] = keys.whole("lora_rank")
    models = _named(keys, table is not None, other)
    batch, seq_len = (
        keys.whole("global_batch_size")
        or (None if dp is None else micro * (keys.whole("accumulation") or 1) * dp),
        keys.whole("seq_length", "encoder_seq_length", "sequence_length"),
    )
    keys.raise_problems()
    name = table["id"] if table is not None else next(iter(models), None)
    job: dict[str, Any] = {"model": name, "gpus": gpus, "global_batch": batch, "seq_len": seq_len}
    sources = {**of.sources, **translated.sources}
    drop_unset(keys, values, job, sources)
    flags = quiet_flags(own_flags(given, dict(given.pairs)), translated.left.quiet)
    post = None
    if of.options.get("loop") and keys.text("method"):
        own = {key: value for key, value in values.items() if key != "dp"}
        post = post_training(keys, job, plan_words(own), of)
    return launch_of(
        translated, given, of, job, values, sources, models=models, table=table, post_training=post,
        accelerator=given.accelerator or keys.text("accelerator"),
        flags=flags if "--" in given.text else (),
    )  # fmt: skip


def _other_network(given: ArgumentTable, of: ToolTable) -> str:
    """The program or key that makes another network than depth and width describe; empty where none does."""
    told = dict(given.pairs)
    program = f"{program_of(given)} {told.get('spec') or ''}"
    parts = (one for one in str(of.options.get("other_programs", "")).split() if one in program)
    marks = str(of.options.get("other_keys", "")).split()
    by_last = {key.rpartition(".")[2]: value for key, value in told.items()}
    keys = (one for one in marks if str(by_last.get(one)).lower() not in UNSET)
    return next(iter((*parts, *keys)), "")


def _named(keys: Keys, described: bool, other: str) -> tuple[str, ...]:
    """Names that may be the model's, which count where flags do not describe another (api/launches.py); a
    name whose shape is changed by a flag is in doubt, and another network has its own name alone."""
    whole = keys.text("hf_model_id", "hf_model_path", "hf_model", "restore_from_path")
    if other:
        if not whole:
            keys.ask(f"{other} makes a network that flags of a decoder do not describe: MODEL")
        return (whole,) if whole else ()
    kind = keys.text("type") or ""
    tokenizer = keys.text("tokenizer_model") or (kind if "/" in kind else None)
    changed = [name for name in ("num_layers", "hidden_size", "ffn_hidden_size") if keys.has(name)]
    if not described and changed:
        keys.doubt(f"{', '.join(changed)} change the model that is named: its shape is not known")
    return tuple(name for name in (whole, tokenizer) if name)


def _replicas(keys: Keys, gpus: int | None, ranks: int) -> int | None:
    """Data-parallel replicas; chips that the other degrees do not divide are what Megatron refuses."""
    if gpus is not None and gpus % ranks:
        message = f"tp x pp x cp = {ranks} does not divide {gpus} GPUs"
        keys.problem("tensor_model_parallel_size", message, ranks)
    return None if gpus is None else max(gpus // ranks, 1)


def _layout(keys: Keys, pp: int, vpp: int, layers: int | None) -> tuple[str | None, int]:
    """Layers of each chunk where they are stated, and virtual stages, which a layout counts too."""
    text = keys.text("pipeline_model_parallel_layout")
    ends = (
        keys.whole("num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"),
        keys.whole("num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"),
    )
    counted = (
        bool(keys.flag("account_for_embedding_in_pipeline_split")),
        bool(keys.flag("account_for_loss_in_pipeline_split")),
    )
    if text:
        sizes = sizes_of_text(text)
        if sizes is None or len(sizes) % pp:
            message = f"is no layout of a multiple of {pp} stages"
            keys.problem("pipeline_model_parallel_layout", message, text)
            return None, vpp
        return plan_word(sizes), len(sizes) // pp
    if pp == 1 or not (any(counted) or any(end is not None for end in ends)):
        return None, vpp
    if layers is None:
        keys.doubt("the layers of the first and last stage need the number of layers")
        return None, vpp
    sizes = uneven_sizes(layers, pp, vpp, ends, counted)
    if sizes is None:
        keys.problem("num_layers", f"cannot be dealt to {pp} x {vpp} chunks this way", layers)
        return None, vpp
    return plan_word(sizes), vpp


def _virtual(keys: Keys, pp: int, layers: int | None) -> int:
    """Virtual stages per rank, however they are stated."""
    told = keys.whole(
        "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"
    )
    each = keys.whole("num_layers_per_virtual_pipeline_stage")
    if told is not None or each is None:
        return told or 1
    if layers is None:
        keys.ask("the number of layers, which virtual stages need, is not in the file: MODEL")
        return 1
    if layers % (pp * each):
        message = f"{layers} layers over {pp} stages are no multiple of it"
        keys.problem("num_layers_per_virtual_pipeline_stage", message, each)
    return max(layers // (pp * each), 1)


def _expert_tensor(keys: Keys, tp: int, ep: int) -> int | None:
    """Ranks inside an expert: tp unless stated; without ep, tp cuts the experts here in any case."""
    told = keys.whole("expert_tensor_parallel_size")
    if ep == 1:
        if told not in (None, tp):
            keys.note(
                f"expert_tensor_parallel_size {told} without expert parallelism: tp {tp} cuts them"
            )
        return None
    etp = told or tp
    return etp if etp > 1 else None


def _zero(keys: Keys) -> int:
    """What data-parallel ranks share."""
    shared = (keys.text("name") or "") in ("distributed_fused_adam", "mcore_distributed_optim")
    plain = 1 if keys.flag("use_distributed_optimizer") or shared else 0
    fsdp = keys.flag("use_megatron_fsdp", "use_custom_fsdp")
    strategy = keys.choice(["data_parallel_sharding_strategy"], WORDS["sharding"])
    stage = keys.whole("zero_stage", low=0, high=3)
    if stage is not None:  # Megatron-DeepSpeed's
        return max(stage, plain)
    if keys.flag("use_torch_fsdp2"):
        return 3
    if fsdp and strategy is not None:
        return int(strategy)
    return 3 if fsdp else plain


def _data(keys: Keys, ranks: int | None) -> dict[str, object]:
    """Sharing over part of the data- and context-parallel ranks, offload, optimizer."""
    values: dict[str, object] = {}
    copies = keys.whole("num_distributed_optimizer_instances") or 1
    if copies > 1 and ranks is not None and ranks % copies == 0:
        values["shard"] = ranks // copies
    elif copies > 1:
        keys.doubt(
            "num_distributed_optimizer_instances needs the number of GPUs: all replicas share"
        )
    kind = keys.choice(["optimizer", "optimizer_type"], WORDS["optimizer"])
    values["optimizer"] = None if kind == "adam" else kind
    host = []
    if keys.flag("optimizer_cpu_offload"):
        host.append("optimizer")
        keys.note("optimizer_cpu_offload: all of the states live in the host")
        keys.number("optimizer_offload_fraction", high=1.0)
    layers = keys.whole("cpu_offloading_num_layers", low=0)
    if keys.flag("cpu_offloading") or layers:
        host.append("activations")
    values["offload"] = "+".join(host) or None
    return values


def _kernels(keys: Keys, cp: int) -> dict[str, object]:
    """Attention kernels, and how context-parallel ranks meet."""
    flash = keys.flag("use_flash_attn")
    told = keys.choice(["attention_backend"], WORDS["attention"])
    mode = (
        keys.choice(["cp_comm_type"], WORDS["context"])
        if _same_word(keys, "cp_comm_type")
        else None
    )
    return {
        "flash": False if told == "plain" and not flash else None,
        "attention": "cudnn" if told == "cudnn" else None,
        "cp_mode": mode if cp > 1 and mode != "ring" else None,
    }


def _same_word(keys: Keys, name: str) -> bool:
    """Whether a value for each layer is the same for all; else the first is not taken."""
    words = (keys.text(name) or "").split()
    if len(set(words)) > 1:
        keys.doubt(f"{name} differs from layer to layer: not followed")
    return len(words) == 1


def _recompute(keys: Keys, vpp: int) -> dict[str, object]:
    """Whole layers, some of them, or modules."""
    names = ["recompute_granularity", "activations_checkpoint_granularity"]
    kind = keys.choice(names, {"full": "full", "selective": "selective"})
    short = keys.flag("recompute_activations")  # sets selective, whatever else (validate_args)
    kind = "selective" if short else kind
    names = ["recompute_method", "activations_checkpoint_method"]
    method = keys.choice(names, {"uniform": "uniform", "block": "block"})
    count = keys.whole("recompute_num_layers", "activations_checkpoint_num_layers", low=0)
    older = [
        keys.flag(f"{name}")
        for name in ("checkpoint_activations", "deepspeed_activation_checkpointing")
    ]
    if kind is None and (method is not None or any(older)):
        kind = "full"
    named = (keys.text("recompute_modules") or "").strip("[]").replace(",", " ").split()
    if kind == "full":
        if method == "block" and count:
            return {"recompute": f"full:{count * vpp}"}
        if count and count > 1:
            keys.doubt(f"recomputed in pieces of {count} layers: taken as of one")
        return {"recompute": "full"}
    if kind == "selective":
        for name in named:
            if name.strip("\"'") not in WORDS["modules"]:
                keys.doubt(f"recompute_modules {name[:40]} is not known here: ignored")
        ours = WORDS["modules"]
        known = [ours[plain] for n in named if (plain := n.strip("\"'")) in ours]
        ordered = join_names("+".join(dict.fromkeys(known)), ALL_MODULES) if known else None
        return {"recompute": "selective" if ordered in (None, "core") else ordered}
    return {"recompute": "none"}


def _precision(keys: Keys, given: ArgumentTable, *, bridge: bool) -> dict[str, object]:
    """Dtype of the products, and what shares a scale."""
    local = keys.text("transformer_impl") == "local"
    recipe = keys.text("mixed_precision", "precision")
    half, brain = keys.flag("fp16"), keys.flag("bf16")
    eight = _eight(keys)
    how = keys.choice(["fp8_recipe"], WORDS["fp8_recipe"])
    four = _on(keys.raw("fp4_format", "fp4", "fp4_recipe"))
    wide = _wide_layers(keys)
    if recipe is not None and recipe.lower() in WORDS["mixed"] and not (eight or four):
        pairs = (word.partition("=") for word in WORDS["mixed"][recipe.lower()].split())
        found: dict[str, object] = {name: value for name, _, value in pairs}
        return found | wide if found.get("precision") in NARROW else found
    if recipe is not None and recipe.lower() not in WORDS["mixed"]:
        keys.doubt(f"mixed_precision {recipe[:60]} is not known here: bf16")
    if four:
        return {"precision": "nvfp4", **wide}
    if eight:
        if how == "mxfp8":
            return {"precision": "mxfp8", **wide}
        return {"precision": "fp8", "scaling": "block" if how == "block" else None, **wide}
    if half:
        return {"precision": "fp16"}
    if not brain and recipe is None:
        if bridge or _unset(keys, given):
            keys.note("neither bf16 nor fp16 is named here: the chip's usual precision")
            return {}
        how = "without TF32" if local else "in TF32 by Transformer Engine"
        keys.note(f"neither bf16 nor fp16 is named: 32-bit training, GEMMs {how}")
        return {"precision": "fp32" if local else "tf32"}
    return {"precision": "bf16"}


def _eight(keys: Keys) -> bool:
    """Whether products run in 8 bits: a format, a switch, or the flags of 2023."""
    told = keys.raw("fp8_format", "fp8")
    return _on(told) if told is not None else bool(keys.flag("old_fp8"))


def _on(told: object) -> bool:
    return str(told).lower() not in ("none", "null", "false", "0", "")


def _wide_layers(keys: Keys) -> dict[str, object]:
    """Layers at both ends that stay in 16 bits beside a narrow precision: one each unless stated."""
    ends = [
        keys.whole(name, low=0)
        for name in ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16")
    ]
    asked = keys.flag("first_last_layers_bf16")
    if asked is None:
        return {}
    many = sum(1 if end is None else end for end in ends) if asked else 0
    return {"wide_layers": f"{many}" if many else None}


def _unset(keys: Keys, given: ArgumentTable) -> bool:
    """Whether the text has variables that it does not set, where flags may be behind them."""
    behind = [item for _, value in given.pairs if isinstance(value, list) for item in value[1:]]
    return any(str(word).startswith("$") for word in (*keys.words, *behind))


def _dtypes(keys: Keys, *, bridge: bool) -> dict[str, object]:
    """What gradients, master copy and states are kept in: the flags' own gradients have 32 bits unless
    stated, those of Megatron-Bridge's recipes are as the software has them."""
    values: dict[str, object] = {} if bridge else {"gradients": "fp32"}
    if keys.flag("grad_reduce_in_fp32") is False:
        values["gradients"] = "bf16"
    master = keys.choice(["main_params_dtype"], WORDS["dtype"])
    if master == "bf16":
        values["master"] = master
    elif master == "fp16":
        keys.note("main_params_dtype fp16 is taken as bf16, which has as many bytes")
        values["master"] = "bf16"
    first, second = (
        keys.choice([name], WORDS["dtype"]) for name in ("exp_avg_dtype", "exp_avg_sq_dtype")
    )
    if first is not None and first == second and first != "fp32":
        values["states"] = "bf16" if first == "fp16" else first
    elif first != second and (first or second):
        keys.doubt("the two states differ in dtype: both taken as fp32")
    return values


def _of_bridge(given: ArgumentTable) -> bool:
    """Whether keys are those of Megatron-Bridge's ConfigContainer, whose recipes overlap by themselves."""
    parts = {key.partition(".")[0] for key, _ in given.pairs if "." in key}
    return bool(parts & {"model", "train", "ddp", "optimizer", "mixed_precision", "comm_overlap"})


def _overlap(keys: Keys, *, sharp: bool, bridge: bool) -> dict[str, object]:
    """The generation of the framework, and whether tensor-parallel exchanges run behind products."""
    data, tensor = keys.flag("overlap_grad_reduce"), keys.flag("tp_comm_overlap")
    if bridge and data is None:
        data, tensor = True, tensor is not False
    told = [keys.text(f"{name}_cuda_graph", f"cuda_graph_{name}") for name in GRAPHS]
    framework = "megatron-core" if data or tensor else "megatron-te"
    graphs = {"graphs": "on"} if any("full_iteration" in (text or "") for text in told) else {}
    if framework == "megatron-te":
        keys.note("no overlap_grad_reduce: gradients are reduced after the passes")
    overlapped = None if not sharp else "on" if tensor else "off"
    return {
        "framework": framework,
        "tp_overlap": overlapped if framework != "megatron-te" else None,
        **graphs,
    }
