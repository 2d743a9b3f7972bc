"""A training step in our fields, whatever the trainer: chips, replicas, batch, stages, sharing, adapters.

Sequences of a replica x accumulation x replicas make a step; replicas are copied, or share by FSDP, ZeRO or
Megatron's optimizer. What one key says is in the `plan` of a tool's table, what several decide together in
its `rules`; what is counted from several numbers is computed here.
"""

import re
from collections.abc import Mapping
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.described_models import described_model, model_names
from foretell.interop.edited_launch import own_flags, quiet_flags
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
from foretell.interop.layouts import read_stages, recomputed_layers
from foretell.interop.policy_step import STEP_VALUES, tuning_step
from foretell.interop.rules import decide
from foretell.interop.tool_fields import launch_of, translate
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.whole_numbers import whole_number
from foretell.specs.plan_forms import OPTIMIZER_NAMES
from foretell.specs.plan_words import CHOICES
from foretell.specs.post_training import USUAL_PROMPT

OPTIMIZERS = {
    **{name: name for name in CHOICES["optimizer"]},
    **OPTIMIZER_NAMES,
    "adamw": "adam",
}
"""Names of optimizers and ours."""
ADAPTERS = ("", "full", "freeze", "none", "lora", "qlora", "dora", "vera")
"""What a trainer may be asked to train: all weights, some layers of them, or adapters."""
QV = ("q_proj", "v_proj")
"""PEFT's own modules of a Llama-like model where none are named."""
MIXERS = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "out_proj")
"""Modules of the attention."""
ONLY_WITH = {"tp": ("sp",), "cp": ("cp_mode",), "pp": ("schedule", "vpp", "layout")}
"""Words that a plan has beside more than one rank of a degree alone."""


def read_training(given: ArgumentTable, known: Known, table: ToolTable) -> Launch:
    """What a trainer's launch says."""
    told = translate(given, table)
    keys = told.keys
    degree = {n: known.over(n, keys.whole(n, low=-1) or 1) for n in ("tp", "pp", "cp", "ep")}
    tp, pp, cp, ep = degree.values()
    gpus, dp, shard = _replicas(keys, known, table, tp * pp * cp, ep)
    devices = table.options.get("chip_devices", {}).get((given.accelerator or "").lower(), 1)
    if devices > 1 and (tp * pp * cp > 1 or ep > 1):
        keys.doubt(f"degrees count {devices} devices of a chip: words of --plan say them by chip")
    micro, batch, dp = _batch(keys, known, table, gpus, dp, pp, devices)
    if gpus is None and dp is not None:
        gpus = tp * pp * cp * dp
    rank = _rank(keys, table)
    plan = dict(told.plan)
    zero, shard = _sharing(keys, table, plan.get("zero"), shard, gpus, dp, cp)
    layers = keys.whole("num_layers") or known.layers
    vpp, layout = read_stages(keys, table, pp, layers)
    decided = decide(
        keys,
        table.rules,
        _facts(given, keys, table, plan) | degree | {"zero": zero, "rank": rank, "gpus": gpus},
    )
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "vpp": vpp, "dp": dp, "cp": cp if cp > 1 else None,
        "ep": _experts(ep, dp, keys), "etp": _expert_tensor(keys, table, tp, ep),
        "zero": zero, "micro_batch": micro, "sp": False if tp > 1 else None, "shard": shard,
        "layout": layout, "lora": rank or None, "adapters": _adapters(keys, table) if rank else None,
        "optimizer": _optimizer(keys), "offload": _offload(keys),
        "capacity": keys.number("capacity", high=100.0) or None, "bucket": _bucket(keys, zero),
        "secondary": _several(keys.whole("secondary")),
        **decided.words,
    }  # fmt: skip
    if decided.known.get("hybrid"):
        values["shard"] = _node_shard(keys, gpus, dp)
    saved = recomputed_layers(keys, str(decided.known.get("recompute", "")), layers, pp, vpp or 1)
    values |= {"recompute": saved} if saved else {}
    if decided.known.get("wide_layers"):
        values["wide_layers"] = _wide_layers(keys)
    plan.pop("zero", None)
    values |= plan
    for name, words in ONLY_WITH.items():
        values |= {word: None for word in words if degree[name] == 1}
    described = described_model(keys, given, table)
    models = model_names(keys, given, table, described)
    keys.raise_problems()
    model = described.get("id", "as described") if described else next(iter(models), None)
    seq_len = keys.whole("seq_len")
    job: dict[str, Any] = {"model": model, "gpus": gpus, "global_batch": batch, "seq_len": seq_len}
    sources = {**table_of("_training").sources, **decided.sources, **table.sources, **told.sources}
    drop_unset(keys, values, job, sources)
    # Dtypes of adapters and their states are as PEFT makes them.
    dtypes = ("master", "gradients", "states") if rank else ()
    own = {k: v for k, v in values.items() if k not in dtypes and k != "dp"}
    post = tuning_step(keys, job, plan_words(own), table)
    if post and "max_osl" in post and not keys.said_as("seq_len"):  # a prompt and an answer
        job["seq_len"] = (keys.whole("prompt_len") or USUAL_PROMPT) + int(str(post["max_osl"]))
    step = {name: post[name] for name in STEP_VALUES if name in post} if post else {}
    flags = quiet_flags(own_flags(given, dict(given.pairs)), told.left.quiet)
    return launch_of(
        told, given, table, job, values, sources, models=models, table=described,
        values=read_back(keys, {**job, **values, **step}, sources), post_training=post,
        accelerator=given.accelerator or keys.text("accelerator"),
        flags=flags if table.options.get("model_flags") and "--" in given.text else (),
    )  # fmt: skip


def _facts(
    given: ArgumentTable, keys: Keys, table: ToolTable, plan: Mapping[str, object]
) -> dict[str, object]:
    """What rules may ask for beside fields: options, sections, keys set to nothing, words without a flag,
    variables that flags may be behind, and words that single keys say."""
    behind = [item for _, value in given.pairs if isinstance(value, list) for item in value[1:]]
    return {
        **{f"option.{name}": value for name, value in table.options.items()},
        **{f"stated.{name}": value for name, value in plan.items()},
        "sections": " ".join({key.partition(".")[0] for key, _ in given.pairs if "." in key}),
        "empty": " ".join(key for key, value in given.pairs if value is None),
        "words": " ".join(given.words),
        "open": any(str(word).startswith("$") for word in (*keys.words, *behind)),
        "stage": plan.get("zero"),
    }


# ---- chips, replicas and batch ------------------------------------------------------------------


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
    stated = keys.given.started or keys.has("num_nodes", "nnodes", "nodes")
    if gpus is not None and known.gpus is None and table.options.get("asks_nodes") and not stated:
        keys.ask("the number of nodes is not in the file (trainer.num_nodes): --gpus")
        gpus = None
    dp = keys.whole("dp", low=-1)
    if gpus is None and dp is not None and dp > 0:
        gpus = dp * ranks
    if gpus is None and shard is not None and shard > 0 and (copies or 1) > 0 and not open_experts:
        gpus = shard * fixed * ranks
    gpus = enough_chips(keys, known, gpus, ranks)
    if gpus is not None and gpus % ranks:
        message = f"tp x pp x cp = {ranks} does not divide {gpus} GPUs"
        keys.problem("tp" if keys.has("tp") else "gpus", message, gpus)
    dp = None if gpus is None else max(gpus // ranks, 1)
    if dp is None or (shard is None and copies is None):
        return gpus, dp, None
    if shard is None and copies is not None:
        shard = 1 if copies == -1 else max(dp // fixed, 1)
    own = max(dp // fixed, 1) if shard == -1 else shard or 1
    return gpus, dp, max(dp // max(copies or 1, 1), 1) if open_experts else own * inside


def _batch(
    keys: Keys,
    known: Known,
    table: ToolTable,
    gpus: int | None,
    dp: int | None,
    pp: int,
    devices: int,
) -> tuple[int | None, int | None, int | None]:
    """(sequences of a replica, sequences of a step, replicas), None where they follow from chips that are not
    named. A batch of a device counts `devices` times for a chip."""
    each = keys.number("device_batch", high=1e6)
    steps = keys.whole("accumulation") or 1
    told = keys.whole("global_batch", low=-1)
    told = None if told == -1 else told
    if each is not None and gpus is not None and dp:
        batch = max(round(each * devices * gpus * steps), 1)
        return known.over("micro_batch", max(batch // (dp * steps), 1)), batch, dp
    if each is not None:  # of a chip: what a replica has follows from their number
        return known.degrees.get("micro_batch"), None, dp
    length = keys.whole("seq_len")
    tokens, ranked = keys.whole("batch_tokens", low=-1), keys.whole("rank_tokens")
    if tokens is not None and tokens > 0 and length:
        told = _sequences(keys, "batch_tokens", tokens, length)
    micro = keys.whole("micro_batch", low=-1)
    if ranked and length:
        micro = _sequences(keys, "rank_tokens", ranked, length)
        steps *= (keys.whole("pipeline_pieces") or 1) if pp > 1 else 1
    if micro == -1:  # as many as a step has for each chip
        if not (told and dp):
            return known.degrees.get("micro_batch"), told, dp
        micro = max(told // (dp * steps), 1)
    if (
        micro
        and told
        and keys.said_as("accumulation", "micro_batch") == ["accumulation", "micro_batch"]
    ):
        if dp is None:
            dp = max(told // (micro * steps), 1)
        if micro * steps * dp != told:
            message = f"is not micro-batch {micro} x accumulation {steps} x replicas {dp}"
            keys.problem("global_batch", message, told)
    piece = keys.whole("pipeline_micro") if pp > 1 and not ranked else None
    splits = bool(table.options.get("batch_splits"))
    if micro is None and told and dp and (splits or keys.whole("accumulation")):
        micro = max(told // (dp * steps), 1)
    lacks = table.options.get("no_batch") and not keys.said_as("micro_batch", "global_batch")
    silent = micro is None and (splits or not told) and "micro_batch" not in keys.unset
    if (lacks or silent) and "micro_batch" not in known.degrees:
        keys.ask("the sequences of one GPU are not in the file: mbs in --plan says them")
        if lacks or splits:
            return None, None if lacks else told, dp
    if piece and not known.degrees.get("micro_batch"):  # a rank's batch in pieces of its own size
        whole = told if told is not None else None if dp is None else (micro or 1) * steps * dp
        return piece, whole, dp
    own = known.over("micro_batch", micro or 1)
    if told is not None:
        return own, told, dp
    return own, None if dp is None else own * steps * dp, dp


def _sequences(keys: Keys, name: str, tokens: int, length: int) -> int:
    """Sequences in so many tokens; a part of one is rounded, and reported."""
    whole = max(round(tokens / length), 1)
    if whole * length != tokens:
        key = keys.given.spelt.get(name, name).rpartition(".")[2]
        keys.note(f"{key} {tokens} is {tokens / length:.3g} sequences of {length}: {whole} taken")
    return whole


# ---- stages, experts and sharing ----------------------------------------------------------------


def _experts(ep: int, dp: int | None, keys: Keys) -> int | None:
    """Expert-parallel ranks; -1 is what the chips leave."""
    if ep == -1:
        shard = max(keys.whole("dp_shard", low=-1) or 1, 1) * max(
            keys.whole("dp_replicate", low=-1) or 1, 1
        )
        return None if dp is None else max(dp // shard, 1)
    return ep if ep > 1 else None


def _expert_tensor(keys: Keys, table: ToolTable, tp: int, ep: int) -> int | None:
    """Ranks inside an expert; without expert parallelism Megatron's tp cuts them in any case."""
    told, whole = keys.whole("etp"), bool(table.options.get("expert_tp"))
    if ep == 1:
        if whole and told not in (None, tp):
            keys.note(
                f"expert_tensor_parallel_size {told} without expert parallelism: tp {tp} cuts them"
            )
        return None
    etp = told or (tp if whole else 1)
    return etp if etp > 1 else None


def _sharing(
    keys: Keys,
    table: ToolTable,
    stage: object,
    shard: int | None,
    gpus: int | None,
    dp: int | None,
    cp: int,
) -> tuple[int, int | None]:
    """ZeRO's stage, and the ranks that share where not all do, by numbers alone: rules may say more."""
    zero, near = int(str(stage or 0)), keys.whole("shard", low=-1)
    copies = keys.whole("optimizer_copies") or 1
    ranks = None if dp is None else dp * cp
    part = None
    if shard is not None:
        shard *= cp if table.options.get("shards_context") else 1
        zero = 3 if shard > 1 else 0
        part = shard if ranks is not None and 1 < shard < ranks else None
    elif (keys.whole("dp_shard", low=-1) or 1) != 1:
        zero = 3
    told = keys.whole("zero_stage", low=0, high=3)
    zero = told if told is not None else zero
    if gpus == 1:
        zero = 0
    if near is not None and near > 0 and near != ranks:
        part = near
    if copies > 1 and ranks is not None and ranks % copies == 0:
        part = ranks // copies
    elif copies > 1:
        keys.doubt(
            f"{keys.given.spelt.get('optimizer_copies')} needs the number of GPUs: all share"
        )
    return zero, part


def _node_shard(keys: Keys, gpus: int | None, dp: int | None) -> int | None:
    """Ranks that a hybrid strategy of FSDP shares over: those of a node; None where all are on one."""
    each = node_size(keys, gpus)
    if each is None or dp is None or dp % each:
        keys.ask("hybrid sharding shares over the GPUs of a node: shard= in --plan says how many")
        return None
    return each if 1 < each < dp else None


def _several(many: int | None) -> int | None:
    """A number of ranks; None where it is one."""
    return many if many is not None and many > 1 else None


def _bucket(keys: Keys, zero: int) -> int | None:
    """Millions of weights that are joined until a message is full: with stage 3 what is gathered ahead, below
    it what is reduced at once. Nothing stated, or auto, is as the plan has it."""
    value = keys.raw("gather_bucket" if zero == 3 else "reduce_bucket")
    try:
        many = round(float(str(value)) / 1e6)
    except (ValueError, OverflowError):
        return None
    return many if zero and 1 <= many < 10**6 else None


def _wide_layers(keys: Keys) -> str | None:
    """Layers at both ends that stay in 16 bits beside a narrow precision: one each unless stated."""
    ends = (keys.whole(f"num_layers_at_{end}_in_bf16", low=0) for end in ("start", "end"))
    many = sum(1 if end is None else end for end in ends)
    return f"{many}" if many else None


# ---- adapters, optimizer and what lives in the host ---------------------------------------------


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


def _adapters(keys: Keys, table: ToolTable) -> str | None:
    """Which maps have an adapter; None where the tool has no key for them."""
    if keys.flag("lora_linear"):
        return "all"
    told = keys.raw("lora_targets")
    if told is None and table.options.get("style") != "transformers":
        return None  # the tool has no key for them, or has its own
    names = told if isinstance(told, list) else re.sub(r"[\[\]'\",]", " ", str(told or "")).split()
    plain = {str(name).strip().lower() for name in names}
    if not plain:
        return "all" if table.options.get("all_linear") else "qv"
    if plain & {"all", "all-linear"} or plain - set(MIXERS):
        return "all"
    if plain == set(QV):
        return "qv"
    return "attention" if plain & {"o_proj", "out_proj"} else "qkv"


def _optimizer(keys: Keys) -> str | None:
    """The optimizer where it is none of Adam's."""
    told = (keys.text("optimizer") or "adam").lower()
    if "$" in told:
        keys.ask_for("optimizer", told)
        return None
    name = told if told in OPTIMIZERS else told.rpartition(".")[2]
    ours = OPTIMIZERS.get(name) or ("adam8bit" if re.search("adam.*8bit", name) else None)
    if ours is None:
        keys.doubt(f"optimizer {told[:40]} is not known here: taken as adam")
    return None if ours in (None, "adam") else ours


def _offload(keys: Keys) -> str | None:
    """What lives in the host."""
    host = []
    for name in ("optimizer", "activations", "weights"):
        device = str(keys.raw(f"offload_{name}") or "").lower()
        if device == "nvme":
            keys.doubt(f"offload of the {name} to nvme is taken as to the host's memory")
        host += [name] if device in ("cpu", "nvme", "true") or whole_number(device) else []
    return "+".join(host) or None
