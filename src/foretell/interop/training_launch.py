"""A training step in our fields, whatever the trainer: chips, replicas, batch, sharding, dtypes, adapters.

Sequences of a replica x accumulation x replicas make a step; replicas are sharded by FSDP or DeepSpeed or
copied. What
trainers on Hugging Face transformers decide by several keys together (dtypes, sharding, adapters) is computed
here; what
one key decides is in its table's `plan`.

A file of DeepSpeed's that is named and not at hand is not opened; its stage is read from its name, as these
tools name
theirs (zero3.json, ds_z3_config.json), and reported.
"""

import re
from collections.abc import Mapping
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import (
    Keys,
    drop_unset,
    enough_chips,
    node_size,
    plan_words,
    read_back,
    world_size,
)
from foretell.interop.launch import Known, Launch
from foretell.interop.policy_step import STEP_VALUES
from foretell.interop.tool_fields import launch_of, translate
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.specs.plan_forms import OPTIMIZER_NAMES
from foretell.specs.plan_words import CHOICES
from foretell.specs.post_training import USUAL_PROMPT, usual_prompt

STAGED = re.compile(r"(?:zero|z|stage)[-_]?([0-3])", re.IGNORECASE)
"""How names of DeepSpeed's files say their stage."""
OPTIMIZERS = {**{name: name for name in CHOICES["optimizer"]}, **OPTIMIZER_NAMES}
"""Names of optimizers and ours."""
METHODS = table_of("_training").words["method"]
"""Methods of these trainers, and the algorithm whose step is theirs."""
TAUGHT = ("gkd", "gold", "distill", "forwardkl", "online", "nash", "xpo", "spin")
"""Parts of methods whose step has a teacher or answers of its own, which is not computed."""
ADAPTERS = ("", "full", "freeze", "none", "lora", "qlora", "dora", "vera")
"""What a trainer may be asked to train: all weights, some layers of them, or adapters."""
QV = ("q_proj", "v_proj")
"""PEFT's own modules of a Llama-like model where none are named."""
MIXERS = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "out_proj")
"""Modules of the attention."""


def read_training(given: ArgumentTable, known: Known, table: ToolTable) -> Launch:
    """What a trainer's launch says."""
    told = translate(given, table)
    keys, tool = told.keys, table.tool
    tp, pp, cp = (known.over(name, keys.whole(name, low=-1) or 1) for name in ("tp", "pp", "cp"))
    ep = keys.whole("ep", low=-1) or 1
    gpus, dp, shard = _replicas(keys, known, table, tp * pp * cp, ep)
    devices = table.options.get("chip_devices", {}).get((given.accelerator or "").lower(), 1)
    if devices > 1 and (tp * pp * cp > 1 or ep > 1):
        keys.doubt(f"degrees count {devices} devices of a chip: words of --plan say them by chip")
    micro, batch = _batch(keys, known, gpus, dp, devices=devices)
    if pp > 1 and keys.whole("pipeline_micro"):
        micro = known.over("micro_batch", keys.whole("pipeline_micro") or 1)
    lacks = table.options.get("no_batch") and not keys.said_as("micro_batch", "global_batch")
    if lacks and "micro_batch" not in known.degrees:
        micro, batch = None, None
        keys.ask("the sequences of one GPU are not in the file: mbs in --plan says them")
    plan = dict(told.plan)
    stage = plan.pop("zero", None)
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": _chunks(keys, known, pp), "dp": dp,
        "cp": cp if cp > 1 else None,
        "ep": _experts(ep, dp, keys), "zero": stage or 0, "micro_batch": micro,
        "sp": False if tp > 1 else None, "shard": shard,
    }  # fmt: skip
    rank = _rank(keys, table)
    if table.options.get("style") == "transformers":
        values |= _transformers(keys, table, gpus, dp, rank)
        values["zero"] = stage if stage is not None and not values["zero"] else values["zero"]
    else:
        values |= _plain(keys, values, shard, rank, gpus)
    if tp == 1:
        plan.pop("sp", None)
    if cp == 1:
        plan.pop("cp_mode", None)
    if pp == 1:
        plan.pop("schedule", None)
    values |= plan
    table_of_model = _described(keys)
    models = () if table_of_model else _names(keys, tool)
    seq_len = keys.whole("seq_len")
    keys.raise_problems()
    name = next(iter(models), None) or ("as described" if table_of_model else None)
    job: dict[str, Any] = {"model": name, "gpus": gpus, "global_batch": batch, "seq_len": seq_len}
    drop_unset(
        keys,
        values,
        job,
        {
            **table_of("_training").sources,
            **{name: (name,) for name in ("tp", "pp", "cp", "ep", "vpp")},
        },
    )
    # Dtypes of adapters and their states are as PEFT makes them.
    own = {
        k: v for k, v in values.items() if not rank or k not in ("master", "gradients", "states")
    }
    post = None
    if table.options.get("loop"):
        post = post_training(
            keys, job, plan_words({k: v for k, v in own.items() if k != "dp"}), table
        )
        if "max_osl" in post and not keys.said_as(
            "seq_len"
        ):  # a sequence is a prompt and an answer
            job["seq_len"] = (keys.whole("prompt_len") or USUAL_PROMPT) + int(str(post["max_osl"]))
    step = {name: post[name] for name in STEP_VALUES if name in post} if post else {}
    sources = {**table_of("_training").sources, **told.sources}
    rows = read_back(keys, {**job, **values, **step}, sources)
    return launch_of(
        told, given, table, job, values, sources, models=models, table=table_of_model,
        values=rows, post_training=post,
    )  # fmt: skip


def _chunks(keys: Keys, known: Known, pp: int) -> int | None:
    """Virtual stages of a rank: stated, or by the layers of each, rounded as the tool rounds."""
    each = keys.whole("stage_layers")
    if pp == 1 or each is None or known.layers is None:
        return (keys.whole("vpp") or 1) if pp > 1 else None
    stages = -(-known.layers // each)
    up = (keys.text("stage_rounding") or "").lower() == "up"
    return max(-(-stages // pp) if up else stages // pp, 1)


def _experts(ep: int, dp: int | None, keys: Keys) -> int | None:
    """Expert-parallel ranks; -1 is what the chips leave."""
    if ep == -1:
        shard = max(keys.whole("dp_shard", low=-1) or 1, 1) * max(
            keys.whole("dp_replicate", low=-1) or 1, 1
        )
        return None if dp is None else max(dp // shard, 1)
    return ep if ep > 1 else None


def _replicas(
    keys: Keys, known: Known, table: ToolTable, ranks: int, ep: int
) -> tuple[int | None, int | None, int | None]:
    """Chips, replicas, and those that share where not all do: stated, or what the chips leave."""
    shard, copies = keys.whole("dp_shard", low=-1), keys.whole("dp_replicate", low=-1)
    inside = ep if table.options.get("expert_axis") else 1
    open_experts = inside == -1
    inside = max(inside, 1)
    fixed = max(copies or 1, 1) * inside
    nodes, each = keys.whole("nodes"), keys.whole("gpus_per_node")
    gpus = (
        known.gpus
        or keys.whole("gpus")
        or (each * (nodes or 1) if each else world_size(keys, known))
    )
    dp = keys.whole("dp", low=-1)
    if gpus is None and dp is not None and dp > 0:
        gpus = dp * ranks
    if gpus is None and shard is not None and shard > 0 and (copies or 1) > 0 and not open_experts:
        gpus = shard * fixed * ranks
    gpus = enough_chips(keys, known, gpus, ranks)
    if gpus is not None and gpus % ranks:
        keys.problem("gpus", f"is no multiple of tp x pp x cp = {ranks}", gpus)
    dp = None if gpus is None else max(gpus // ranks, 1)
    if dp is None or (shard is None and copies is None):
        return gpus, dp, None
    if shard is None and copies is not None:
        shard = 1 if copies == -1 else max(dp // fixed, 1)
    own = max(dp // fixed, 1) if shard == -1 else shard or 1
    return gpus, dp, max(dp // max(copies or 1, 1), 1) if open_experts else own * inside


def _batch(
    keys: Keys, known: Known, gpus: int | None, dp: int | None, *, devices: int = 1
) -> tuple[int | None, int | None]:
    """(sequences of a replica, sequences of a step), None where they follow from chips that are not named.

    A batch of a device counts `devices` times for a chip."""
    each = keys.number("device_batch", high=1e6)
    steps = keys.whole("accumulation") or 1
    told = keys.whole("global_batch", low=-1)
    told = None if told == -1 else told
    if each is not None and gpus is not None and dp:
        batch = max(round(each * devices * gpus * steps), 1)
        return known.over("micro_batch", max(batch // (dp * steps), 1)), batch
    if each is not None:  # of a chip: what a replica has follows from their number
        return known.degrees.get("micro_batch"), None
    length = keys.whole("seq_len")
    tokens, ranked = keys.whole("batch_tokens"), keys.whole("rank_tokens")
    if tokens is not None and length:
        told = max(tokens // length, 1)
    micro = max(ranked // length, 1) if ranked and length else keys.whole("micro_batch", low=-1)
    if micro == -1:  # as many as a step has for each chip
        if not (told and dp):
            return known.degrees.get("micro_batch"), told
        micro = max(told // (dp * steps), 1)
    if micro is None and told and dp and keys.whole("accumulation"):
        micro = max(told // (dp * steps), 1)
    if micro is None and not told and "micro_batch" not in known.degrees:
        keys.ask("the sequences of one GPU are not in the file: mbs in --plan says them")
    own = known.over("micro_batch", micro or 1)
    if told is not None:
        return own, told
    return own, None if dp is None else own * steps * dp


def _plain(
    keys: Keys, values: Mapping[str, object], shard: int | None, rank: int, gpus: int | None
) -> dict[str, object]:
    """Sharding and adapters of trainers whose table says the rest."""
    dp = values["dp"]
    told: dict[str, object] = {"lora": rank or None, "shard": None}
    if rank and keys.has("lora_targets", "lora_linear"):
        told["adapters"] = _adapters(keys, "")
    stage = keys.whole("zero_stage", low=0, high=3)
    if shard is not None:
        told["zero"] = 3 if shard > 1 else 0
        told["shard"] = shard if isinstance(dp, int) and 1 < shard < dp else None
    elif (keys.whole("dp_shard", low=-1) or 1) != 1:
        told["zero"] = 3
    if stage is not None:
        told["zero"] = stage
    if gpus == 1:
        told["zero"] = 0
    kind = (keys.text("optimizer") or "").lower().rpartition(".")[2]
    if kind:
        ours = "adam8bit" if "8bit" in kind else OPTIMIZERS.get(kind)
        if ours is None:
            keys.doubt(f"optimizer {kind[:40]} is not known here: taken as adam")
        told["optimizer"] = ours if ours != "adam" else None
    host = [one for one in ("optimizer", "weights") if keys.flag(f"offload_{one}")]
    if host:
        told["offload"] = "+".join(host)
    return told


def _transformers(
    keys: Keys, table: ToolTable, gpus: int | None, dp: int | None, rank: int
) -> dict[str, object]:
    """What trainers on transformers decide by several keys together."""
    zero, engine, hybrid = _sharing(keys)
    asked = any("zero in --plan" in ask for ask in keys.asks)
    values: dict[str, object] = {
        "zero": None if asked else zero, "reshard": _reshard(keys, zero),
        "recompute": "full" if _checkpoints(keys) else "none",
        "lora": rank or None, "adapters": _adapters(keys, table.tool) if rank else None,
        "optimizer": _optimizer(keys), "offload": _offload(keys),
        "shard": _node_shard(keys, gpus, dp) if hybrid else None,
        **_precision(keys, table, frozen=bool(rank)), **_attention(keys),
    }  # fmt: skip
    values["framework"] = "deepspeed" if engine == "deepspeed" else _framework(keys)
    if engine == "deepspeed" and not str(values.get("weights")).startswith("nf4"):
        # Its own 16-bit engine: weights in 16 bits, a master copy and states in 32.
        for dtype in ("weights", "master", "gradients", "states"):
            values.pop(dtype, None)
    return values


def _node_shard(keys: Keys, gpus: int | None, dp: int | None) -> int | None:
    """Ranks that a hybrid strategy of FSDP shares over: those of a node; None where all are on one."""
    each = node_size(keys, gpus)
    if each is None or dp is None or dp % each:
        keys.ask("hybrid sharding shares over the GPUs of a node: shard= in --plan says how many")
        return None
    return each if 1 < each < dp else None


def _sharing(keys: Keys) -> tuple[int, str, bool]:
    """(ZeRO's stage, what shards, whether within nodes alone): FSDP's, DeepSpeed's, or copies."""
    kind = (keys.text("sharding") or "").upper()
    told = keys.whole("zero_stage", low=0, high=3)
    file = keys.text("zero_file")
    launched = keys.text("launcher_file") or ""
    if not file and not kind and launched:
        kind, own = _by_name(keys, launched)
        file = own or file
    if "zero_stage" in keys.unset:  # asked for
        return 0, "deepspeed", False
    if told is not None or kind == "DEEPSPEED" or file:
        if told is None and file:
            match = STAGED.search(file.rpartition("/")[2])
            if match is None:
                keys.ask(f"the ZeRO stage, which {file[:60]} states: zero in --plan")
            else:
                keys.note(f"ZeRO stage {match[1]} by the name of {file[:60]}, which is not opened")
            told = int(match[1]) if match else 0
        return (told if told is not None else 2), "deepspeed", False
    flags = keys.raw("fsdp")
    words = (" ".join(map(str, flags)) if isinstance(flags, list) else str(flags or "")).lower()
    on = kind == "FSDP" or (bool(words) and words not in ("false", "none"))
    strategy = (keys.text("fsdp_strategy") or "").upper()
    if not on and not strategy:
        return 0, "copies", False
    named = f"{strategy} {words.upper()}"
    if "NO_SHARD" in named:
        return 0, "copies", False
    numbered = {"4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}.get(strategy, "")
    stage = 2 if "GRAD_OP" in named or "ZERO2" in named + numbered or strategy == "2" else 3
    return stage, "fsdp", "HYBRID" in named + numbered


def _by_name(keys: Keys, file: str) -> tuple[str, str | None]:
    """(how replicas share, DeepSpeed's file) by the name of accelerate's own file, as examples are named."""
    name = file.rpartition("/")[2].lower()
    if STAGED.search(name):
        return "DEEPSPEED", file
    if "fsdp" in name:
        keys.note(f"FSDP by the name of {file[:60]}, which is not opened")
        return "FSDP", None
    if "multi" in name or "ddp" in name or "single" in name:
        keys.note(f"copies (DDP) by the name of {file[:60]}, which is not opened")
        return "MULTI_GPU", None
    keys.ask(f"how replicas share, which {file[:60]} states: zero in --plan")
    return "", None


def _reshard(keys: Keys, zero: int) -> bool | None:
    told = str(keys.raw("reshard")).lower()
    return False if told == "false" and zero == 3 else None


def _checkpoints(keys: Keys) -> bool:
    """Whether whole layers are recomputed."""
    if keys.flag("no_checkpointing"):
        return False
    told = keys.raw("checkpointing")
    if isinstance(told, str) and told.lower() in ("unsloth", "offload", "true", "selective"):
        if told.lower() == "offload":
            keys.doubt(
                "gradient_checkpointing: offload keeps inputs of layers in the host's memory"
            )
        return True
    flag, inside = keys.flag("checkpointing"), keys.flag("inner_checkpointing")
    given = "checkpointing" not in keys.defaults
    return bool(inside) or (bool(flag) and (given or inside is None))


def _rank(keys: Keys, table: ToolTable) -> int:
    """Rank of the adapters; 0 where all weights are trained."""
    kind = (keys.text("adapter") or "").lower()
    used = keys.flag("lora_use")
    rank = keys.whole("lora_rank", low=-1)
    rank = None if rank is not None and rank <= 0 else rank
    if kind not in ADAPTERS:
        keys.doubt(f"what {kind[:40]} trains is not known here: taken as all weights")
    if kind == "freeze":
        keys.doubt("finetuning_type freeze trains some layers alone: taken as all of them")
    if kind in ADAPTERS[1:4] or (used is False and not kind):
        return 0
    if kind in ADAPTERS[4:] or used or (rank and not kind):
        return rank or int(table.options.get("rank", 8))
    if keys.flag("lora_open"):
        keys.ask("the rank of the adapters is the program's own: lora in --plan says it")
    return 0


def _adapters(keys: Keys, tool: str) -> str | None:
    """Which maps have an adapter."""
    if keys.flag("lora_linear"):
        return "all"
    told = keys.raw("lora_targets")
    names = told if isinstance(told, list) else re.sub(r"[\[\]'\",]", " ", str(told or "")).split()
    plain = {str(name).strip().lower() for name in names}
    if not plain:
        return "all" if tool in ("llamafactory", "ms-swift") else "qv"
    if plain & {"all", "all-linear"} or plain - set(MIXERS):
        return "all"
    if plain == set(QV):
        return "qv"
    return "attention" if plain & {"o_proj", "out_proj"} else "qkv"


def _optimizer(keys: Keys) -> str | None:
    told = (keys.text("optimizer") or "adamw_torch").lower()
    if "$" in told:
        keys.ask_for("optimizer", told)
        return None
    if told not in OPTIMIZERS:
        keys.doubt(f"optimizer {told[:40]} is not known here: taken as adam")
    kind = OPTIMIZERS.get(told, "adam")
    return None if kind == "adam" else kind


def _offload(keys: Keys) -> str | None:
    host = []
    stage = keys.whole("zero_stage", low=0, high=3)
    for name in ("optimizer", "weights"):
        if name == "weights" and stage is not None and stage < 3:
            continue  # DeepSpeed offloads parameters at stage 3 alone
        device = (keys.text(f"offload_{name}") or "").lower()
        if device == "nvme":
            keys.doubt(f"offload of the {name} to nvme is taken as to the host's memory")
        host += [name] if device in ("cpu", "nvme", "true") else []
    if keys.flag("fsdp_offload"):
        host = ["optimizer", "weights"]
    file = keys.text("zero_file", "launcher_file") or ""
    if (
        not host
        and re.search(r"(?<!no_)(?<!no-)(?<!without_)offload", file.lower())
        and not keys.has("zero_stage")
    ):
        three = re.search(r"3", file.rpartition("/")[2])
        host = ["optimizer", "weights"] if three else ["optimizer"]
        keys.note(
            f"{' and '.join(host)} on the host by the name of {file[:60]}, which is not opened"
        )
    return "+".join(host) or None


def _precision(keys: Keys, table: ToolTable, *, frozen: bool) -> dict[str, object]:
    """Dtypes: mixed precision over 32-bit weights, weights loaded in 16 bits, or in 4."""
    mixed = (keys.text("mixed_precision") or "").lower()
    raw = keys.raw("bf16")
    auto = isinstance(raw, str) and raw.lower() in ("auto", "full")
    half, brain = keys.flag("fp16"), True if auto else keys.flag("bf16")
    name = (
        "fp16" if half or mixed == "fp16" else "bf16" if brain or mixed in ("bf16", "fp8") else None
    )
    if name is None and brain is None and half is None and not mixed and table.options.get("brain"):
        name = "bf16"
    if mixed == "fp8":
        keys.doubt("mixed_precision fp8 needs its recipe: taken as bf16")
    loaded = (keys.text("dtype") or "").lower().rpartition(".")[2]
    narrow = loaded in ("bfloat16", "bf16", "float16", "fp16")
    if name is None and narrow and table.options.get("dtype_trains"):
        name = "bf16" if loaded.startswith("b") else "fp16"
    bits = keys.whole("quant_bits", low=0)
    four = keys.flag("load_4bit") or bits == 4 or (keys.text("adapter") or "").lower() == "qlora"
    if four:
        if "nf4" not in CHOICES["weights"]:
            keys.doubt("weights in 4 bits are not known here: taken as bf16")
            return {"precision": name or "bf16"}
        return {
            "precision": name or "bf16",
            "weights": "nf4-dq" if keys.flag("double_quant") else "nf4",
        }
    if (keys.flag("load_8bit") or bits == 8) and frozen:
        keys.note("weights in 8 bits: taken as fp8, which has as many bytes")
        return {"precision": name or "bf16", "weights": "fp8"}
    if keys.flag("load_8bit") or bits == 8:
        keys.doubt("weights in 8 bits that are trained are not known here: taken as 16")
    launched = keys.text("launcher_file", "engine_file")
    if name is None and brain is None and half is None and launched:
        keys.ask(f"the precision, which {launched[:60]} may state: precision in --plan")
        return {}
    if name is None:
        keys.note("neither bf16 nor fp16: 32-bit training")
        return {"precision": "fp32"}
    if narrow or frozen or table.options.get("narrow"):
        return {
            "precision": name,
            "weights": name,
            "master": "none",
            "gradients": name,
            "states": "bf16",
        }
    return {"precision": name, "weights": "fp32", "master": "none"}


def _attention(keys: Keys) -> dict[str, object]:
    """Attention kernels where a file names them."""
    told = (keys.text("attention") or "").lower()
    if told == "eager" or keys.flag("eager"):
        return {"flash": False}
    two = told in ("flash_attention_2", "fa2", "flash_attn", "true") or keys.flag("flash2") is True
    three = told in ("flash_attention_3", "fa3")
    return {"attention": "fa3" if three else "fa2"} if two or three else {}


def _framework(keys: Keys) -> str:
    if keys.flag("liger"):
        return "liger"
    if keys.flag("unsloth"):
        return "unsloth"
    return "transformers-compiled" if keys.flag("compile") else "transformers"


STORED = re.compile(r"(?:-unsloth)?-bnb-4bit$|-(?:GPTQ|AWQ)(?:-Int[48])?$", re.IGNORECASE)
"""How names end of repositories with quantised weights."""


def _names(keys: Keys, tool: str) -> tuple[str, ...]:
    """What may name the model: a repository, the last part of a folder, a component's name."""
    whole = keys.text("model")
    folder = (keys.text("model_folder") or "").rstrip("/").rpartition("/")[2]
    part = (keys.text("model_part") or "").rpartition(".")[2]
    part = _dashed(re.sub(r"^(?:q?lora|dora)_", "", part)) if part else ""
    if not whole:
        return tuple(one for one in (folder, part) if one)
    plain = whole.rstrip("/")
    return tuple(dict.fromkeys((plain, STORED.sub("", plain))))


def _dashed(name: str) -> str:
    """`llama3_1_8b` as llama-3.1-8b."""
    return (
        re.sub(r"^llama3_(\d)_", r"llama-3.\1-", name)
        .replace("llama3_", "llama-3-")
        .replace("_", "-")
    )


SHAPE = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "max_position_embeddings", "rope_theta", "rms_norm_eps",
)  # fmt: skip
"""Fields of a described model, by the names of a Hugging Face config."""


def _described(keys: Keys) -> dict[str, object] | None:
    """A model that a launch describes, as a Hugging Face config."""
    found: dict[str, object] = {}
    for name in SHAPE:
        value = keys.number(f"shape.{name}", high=1e9)
        if value is not None:
            found[name] = int(value) if float(value).is_integer() else value
    tied = keys.flag("shape.tie_word_embeddings")
    if not {"hidden_size", "num_hidden_layers", "num_attention_heads"} <= {*found}:
        return None
    if keys.flag("shape.is_moe") or (keys.whole("shape.num_experts", low=0) or 1) > 1:
        keys.doubt("the experts of the described model are not read: taken as dense")
    kind = (keys.text("shape.model_type") or "llama").lower()
    if kind == "gpt2":
        return {
            "model_type": "gpt2", "n_embd": found["hidden_size"], "n_layer": found["num_hidden_layers"],
            "n_head": found["num_attention_heads"], "vocab_size": found.get("vocab_size", 50257),
            "n_positions": keys.whole("seq_len") or 1024,
        }  # fmt: skip
    if kind not in ("llama", "gpt_neox"):
        keys.ask(f"the model is described as {kind[:40]}, which is not known here: MODEL")
        return None
    if kind == "gpt_neox":
        return _neox(keys, found)
    if "vocab_size" not in found:
        keys.note(f"no vocabulary is named: {USUAL_VOCABULARY:,} rows")
        found["vocab_size"] = USUAL_VOCABULARY
    found.setdefault("max_position_embeddings", keys.whole("seq_len") or 4096)
    return found | {"model_type": "llama", "tie_word_embeddings": bool(tied), "hidden_act": "silu"}


def _neox(keys: Keys, found: dict[str, object]) -> dict[str, object] | None:
    """A model of GPT-NeoX: gated layers are a third of the width that is named, up and down alike
    (megatron/model/transformer.py), and layers of other kinds than attention are not described."""
    others = {*re.findall(r"[a-z_]+", str(keys.raw("shape.attention") or "").lower())}
    others -= {"flash", "global", "all"}
    width = int(str(found.get("intermediate_size") or 4 * int(str(found["hidden_size"]))))
    gated = (keys.text("shape.activation") or "").lower() in ("swiglu", "geglu", "reglu", "glu")
    if others or (not gated and "num_key_value_heads" in found):
        shown = ", ".join(sorted(others)) or "grouped"
        keys.ask(f"the model has {shown} attention, which is not described here: MODEL")
        return None
    tied = keys.flag("shape.untied") is not True
    if not gated:
        return found | {"model_type": "gpt_neox", "intermediate_size": width,
                        "tie_word_embeddings": tied}  # fmt: skip
    step = keys.whole("shape.multiple") or 1
    biases = {
        f"{name}_bias": bool(keys.flag(f"shape.{name}_bias")) for name in ("mlp", "attention")
    }
    return found | {
        "model_type": "llama", "intermediate_size": -(-(width // 3) // step) * step,
        "tie_word_embeddings": tied, "hidden_act": "silu", **biases,
    }  # fmt: skip


USUAL_VOCABULARY = 128_256
"""Rows of a token table where a described model names none: Llama 3's."""


def post_training(
    keys: Keys, launch: Mapping[str, int | str | None], plan: str, table: ToolTable
) -> dict[str, object]:
    """Arguments of a post-training question: algorithm, sequences of a step, the trainer's plan."""
    told = (keys.text("method") or "").lower()
    kind = max((one for one in METHODS if one in told), key=len, default="")
    if any(one in told for one in TAUGHT):
        keys.doubt(f"{told[:40]} needs a teacher or answers of its own: taken as plain fine-tuning")
    if not told:
        words = " ".join(keys.given.words).lower()
        ends = r"(?:[_-]\w+)?(?:\.py)?(?:\s|$)"
        kind = next((one for one in METHODS if re.search(rf"(?:^|[\s/_.-]){one}{ends}", words)), "")
    for method, fields in table.options.get("methods", {}).items():
        if not told and not kind and (said := keys.said_as(*fields.split())):
            kind = method
            keys.note(f"{keys.given.spelt.get(said[0], said[0])} says that the method is {method}")
    found: dict[str, object] = {
        "algorithm": METHODS.get(kind, "sft"),
        "model": launch["model"],
        "gpus": launch["gpus"],
        "prompts": launch["global_batch"],
        "isl": launch["seq_len"],
        "plan": plan,
        "framework": table.options["loop"],
    }
    if found["algorithm"] in ("grpo", "ppo"):
        found |= _generation(keys, launch["global_batch"])
    if found["algorithm"] in ("dpo", "kto") and keys.flag("reference_cached"):
        found["reference"] = "cached"
    return {name: value for name, value in found.items() if value is not None}


def _generation(keys: Keys, answers: object) -> dict[str, object]:
    """What TRL's GRPO adds: a batch counts answers, several to each prompt (GRPOConfig, trl 1.16)."""
    samples = keys.whole("samples") or 8
    fraction = keys.number("fraction", high=1.0) or 0.3
    tp = keys.whole("rollout_tp") or 1
    prompt = keys.whole("prompt_len") or USUAL_PROMPT
    return {
        "prompts": max(int(str(answers)) // samples, 1) if answers else None,
        "samples": samples,
        "isl": usual_prompt(prompt),
        "max_osl": keys.whole("answer_len") or 256,
        "updates": keys.whole("iterations") or 1,
        "rollout_plan": f"tp{tp} memory_fraction={fraction:g}" if keys.flag("use_vllm") else None,
        "reference": "pass" if keys.number("beta") else "none",
        "placement": "split" if (keys.text("vllm_mode") or "") == "server" else "colocated",
    }
