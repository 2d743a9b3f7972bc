"""The model of a training launch: by name, or as its keys describe it.

Megatron-LM's flags become a table of our own form (own_model.py), those of the other trainers a Hugging Face
config. A name counts where keys do not describe another shape (api/launches.py).
"""

import ast
import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import Keys
from foretell.interop.recognition import program_of
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.whole_numbers import whole_number

STORED = re.compile(r"(?:-unsloth)?-bnb-4bit$|-(?:GPTQ|AWQ)(?:-Int[48])?$", re.IGNORECASE)
"""How names end of repositories with quantised weights."""
UNSET = ("none", "null", "false", "0", "0.0", "")
"""Values of a key that leave it out."""


def described_model(keys: Keys, given: ArgumentTable, table: ToolTable) -> dict[str, Any] | None:
    """The model that a launch describes; None where it does not."""
    if not table.options.get("model_flags"):
        return _config(keys)
    return None if _other_network(given, table) else _megatron_model(keys)


def model_names(
    keys: Keys, given: ArgumentTable, table: ToolTable, described: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """What may name the model: a repository, the last part of a folder, a component's name, a flavor."""
    if table.options.get("model_flags"):
        return _beside_flags(keys, described is not None, _other_network(given, table))
    if described is not None:
        return ()
    whole = (keys.text("model") or "").rstrip("/")
    folder = (keys.text("model_folder") or "").rstrip("/").rpartition("/")[2]
    part = (keys.text("model_part") or "").rpartition(".")[2]
    part = _dashed(re.sub(r"^(?:q?lora|dora)_", "", part)) if part else ""
    family, flavor, own = (keys.text(name) or "" for name in ("family", "flavor", "own"))
    names = [whole, STORED.sub("", whole)] if whole else [folder, part]
    if family and flavor:
        stem = family.replace("llama3", "llama-3.1").replace("_", "-")
        names += [f"{stem}-{flavor}", f"{family}-{flavor}"]
    names += [own.replace("llama3_", "llama-3.1-").replace("_", "-"), own]
    return tuple(dict.fromkeys(plain for name in names if (plain := name.strip("\"'"))))


def _beside_flags(keys: Keys, described: bool, other: str) -> tuple[str, ...]:
    """Names beside Megatron's flags; a name whose shape is changed by a flag is in doubt, and another network
    has its own name alone."""
    whole = keys.text("model")
    if other:
        if not whole:
            keys.ask(f"{other} makes a network that flags of a decoder do not describe: MODEL")
        return (whole,) if whole else ()
    kind = keys.text("type") or ""
    tokenizer = keys.text("tokenizer") or (kind if "/" in kind else None)
    changed = [name for name in ("num_layers", "hidden_size", "ffn_hidden_size") if keys.has(name)]
    if not described and changed:
        keys.doubt(f"{', '.join(changed)} change the model that is named: its shape is not known")
    return tuple(name for name in (whole, tokenizer) if name)


def _other_network(given: ArgumentTable, of: ToolTable) -> str:
    """The program or key that makes another network than depth and width describe; empty where none does."""
    told = dict(given.pairs)
    program = f"{program_of(given)} {told.get('spec') or ''}"
    parts = (one for one in str(of.options.get("other_programs", "")).split() if one in program)
    marks = str(of.options.get("other_keys", "")).split()
    by_last = {key.rpartition(".")[2]: value for key, value in told.items()}
    keys = (one for one in marks if str(by_last.get(one)).lower() not in UNSET)
    return next(iter((*parts, *keys)), "")


def _dashed(name: str) -> str:
    """`llama3_1_8b` as llama-3.1-8b."""
    return (
        re.sub(r"^llama3_(\d)_", r"llama-3.\1-", name)
        .replace("llama3_", "llama-3-")
        .replace("_", "-")
    )


SHAPE = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "max_position_embeddings", "rope_theta", "rms_norm_eps", "expansion_ratio",
)  # fmt: skip
"""Fields of a described model, by the names of a Hugging Face config."""


def _config(keys: Keys) -> dict[str, object] | None:
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
    if (names := table_of("_training").options["described"].get(kind)) is not None:
        hidden, ratio = int(str(found["hidden_size"])), keys.whole("shape.ratio") or 0
        if wide := keys.whole("shape.gate_up") or hidden * ratio:  # both maps of a gated layer
            found["intermediate_size"] = wide // 2
        found |= {} if tied is None else {"tie_word_embeddings": tied}
        found["max_position_embeddings"] = keys.whole("seq_len") or 1024
        told = {theirs: found[ours] for theirs, ours in names.items() if ours in found}
        more = table_of("_training").options["fixed"].get(kind, {})
        return {"model_type": kind, "vocab_size": 50257, **told, **more}
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


# ---- Megatron-LM's flags -----------------------------------------------------------------------

VOCABULARIES = {
    "gpt2bpetokenizer": 50257, "bertwordpiecelowercase": 30522, "llama2tokenizer": 32000,
    "llamatokenizer": 32000,
}  # fmt: skip
"""Rows of the token table by tokenizer, where no size is given."""
DEFAULT_POSITIONS = 4096
MOST_LAYERS = 10_000


def _megatron_model(keys: Keys) -> dict[str, Any] | None:
    """The model, None where the arguments do not give its depth and width."""
    layers = keys.whole("num_layers", high=MOST_LAYERS)
    hidden = keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads")
    if layers is None or hidden is None or heads is None:
        return None
    norm = "rms" if (keys.text("normalization") or "").lower() == "rmsnorm" else "layer"
    gated = bool(keys.flag("gated"))
    bias = not (keys.flag("disable_bias_linear") or keys.flag("add_bias_linear") is False)
    width = keys.whole("ffn_hidden_size") or (
        int(8 * hidden / 3 / 64) * 64 if gated else 4 * hidden
    )
    dense = {"kind": "dense", "width": width, "gated": gated, "activation": "silu" if gated else "gelu",
             "up_bias": bias, "down_bias": bias}  # fmt: skip
    ffns = _ffns(keys, layers, dense, width, gated)
    positions = keys.whole("positions") or DEFAULT_POSITIONS
    learned = (keys.text("position_embedding_type") or "learned_absolute") == "learned_absolute"
    vocab = _vocabulary(keys)
    mixer = _mixer(keys, hidden, heads, bias)
    runs = [
        {"repeat": many, "norm_kind": norm, "mixers": [mixer], "ffn": ffn} for ffn, many in ffns
    ]
    keys.note(f"the model is described by the arguments: {layers} layers of width {hidden}")
    return {
        "id": _name(keys, layers, hidden),
        "family": "megatron",
        "kind": "decoder",
        "max_positions": positions,
        "embedding": {"vocab": vocab, **({"positions": positions} if learned else {})},
        "head": {"outputs": vocab, "tied": not keys.flag("untie_embeddings_and_output_weights")},
        "stack": {"hidden": hidden, "final_norm": norm, "layers": runs},
    }


def _name(keys: Keys, layers: int, hidden: int) -> str:
    """What the model is called: by the run's name where it has one, and its shape."""
    told = keys.text("run_name") or keys.variables.get("job_name")
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in (told or "").lower())[:60]
    return plain.strip("-._") or f"megatron-{layers}x{hidden}"


def _mixer(keys: Keys, hidden: int, heads: int, bias: bool) -> dict[str, Any]:
    """The attention of every layer."""
    if keys.flag("multi_latent_attention"):
        rank = keys.whole("q_lora_rank")
        return {
            "kind": "latent",
            "heads": heads,
            **({} if rank is None else {"q_rank": rank}),
            "kv_rank": keys.whole("kv_lora_rank") or 512,
            "nope_dim": keys.whole("qk_head_dim") or 128,
            "rope_dim": keys.whole("qk_pos_emb_head_dim") or 64,
            "value_dim": keys.whole("v_head_dim") or 128,
        }
    groups = keys.whole("num_query_groups")
    grouped = keys.flag("group_query_attention")
    kv_heads = groups if groups and grouped is not False else heads
    if heads % kv_heads:
        keys.problem("num_query_groups", f"does not divide the {heads} heads", kv_heads)
        kv_heads = heads
    qkv = bias or bool(keys.flag("add_qkv_bias"))
    norm = "head" if keys.flag("qk_layernorm") else "none"
    return {
        "kind": "attention", "heads": heads, "kv_heads": kv_heads,
        "head_dim": keys.whole("kv_channels") or max(hidden // heads, 1),
        "q_bias": qkv, "k_bias": qkv, "v_bias": qkv, "o_bias": bias, "qk_norm": norm,
    }  # fmt: skip


def _ffns(
    keys: Keys, layers: int, dense: dict[str, Any], width: int, gated: bool
) -> list[tuple[dict[str, Any], int]]:
    """Feed-forward parts in runs of equal layers."""
    experts = keys.whole("num_experts")
    if experts is None or experts == 1:  # Megatron-DeepSpeed says 1 of a dense model
        return [(dense, layers)]
    top_k = keys.whole("moe_router_topk") or 2
    if top_k > experts:
        keys.problem("moe_router_topk", f"is more than the {experts} experts", top_k)
        top_k = experts
    routed = {
        "kind": "experts", "experts": experts, "top_k": top_k, "gated": gated,
        "activation": dense["activation"], "width": keys.whole("moe_ffn_hidden_size") or width,
        "shared_width": keys.whole("moe_shared_expert_intermediate_size", low=0) or 0,
    }  # fmt: skip
    return [
        (routed if kind else dense, len(list(same)))
        for kind, same in groupby(_expert_layers(keys, layers))
    ]


def _expert_layers(keys: Keys, layers: int) -> list[int]:
    """For each layer 1 where it has experts, of moe_layer_freq: every N-th, or a list of Python's such as
    `([0]*3+[1]*58)`, whose length must be the layers'."""
    text = re.sub(r"[\s'\"]", "", keys.text("moe_layer_freq") or "1")
    every = whole_number(text)
    if every is not None:
        return [int(at % max(every, 1) == 0) for at in range(layers)]
    pattern = _pattern(text)
    if pattern is None and "$" in text:
        keys.ask_for("moe_layer_freq", text)
        return [1] * layers
    if pattern is None or len(pattern) != layers:
        message = f"is no list of {layers} zeros and ones"
        keys.problem("moe_layer_freq", message, text, "N, or a list such as ([0]*3+[1]*58)")
        return [1] * layers
    return pattern


def _pattern(text: str) -> list[int] | None:
    """The list that sums and products of lists of zeros and ones make; None where the text is none."""
    try:
        tree = ast.parse(text[:500], mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None

    def made(node: ast.expr) -> list[int]:
        match node:
            case ast.List(elts=elements):
                values = [one.value for one in elements if isinstance(one, ast.Constant)]
                if len(values) == len(elements) and set(values) <= {0, 1}:
                    return [int(value) for value in values]  # type: ignore[arg-type]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return made(left) + made(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(times))):
                part = made(left)
                if 0 <= times * len(part) <= MOST_LAYERS:
                    return part * times
        raise ValueError(text)

    try:
        return made(tree.body)
    except (ValueError, RecursionError):
        return None


def _vocabulary(keys: Keys) -> int:
    """Rows of the token table, padded as Megatron pads them."""
    given = keys.whole("padded_vocab_size")
    if given is not None:
        return given
    size = keys.whole("vocab_size")
    if size is None:
        kind = (keys.text("tokenizer_type") or "").lower()
        size = VOCABULARIES.get(kind, USUAL_VOCABULARY)
        keys.note(f"no vocab_size: {size} rows assumed" + (f" for {kind}" if kind else ""))
    if (keys.text("tokenizer_type") or "").lower() == "nulltokenizer":
        size += 1  # the end of a document
    multiple = (keys.whole("make_vocab_size_divisible_by") or 128) * (keys.whole("tp") or 1)
    return -(-size // multiple) * multiple
