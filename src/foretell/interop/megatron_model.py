"""A model that Megatron-LM's arguments describe, in our own form (own_model.py)."""

import ast
import re
from itertools import groupby
from typing import Any

from foretell.interop.keys import Keys
from foretell.interop.whole_numbers import whole_number

VOCABULARIES = {
    "gpt2bpetokenizer": 50257, "bertwordpiecelowercase": 30522, "llama2tokenizer": 32000,
    "llamatokenizer": 32000,
}  # fmt: skip
"""Rows of the token table by tokenizer, where no size is given."""
USUAL_VOCABULARY = 128_256
"""Rows where neither is: Llama 3's."""
DEFAULT_POSITIONS = 4096
MOST_LAYERS = 10_000


def model_table(keys: Keys) -> dict[str, Any] | None:
    """The model, None where the arguments do not give its depth and width."""
    layers = keys.whole("num_layers", "encoder_num_layers", high=MOST_LAYERS)
    hidden = keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads")
    if layers is None or hidden is None or heads is None:
        return None
    norm = "rms" if (keys.text("normalization") or "").lower() == "rmsnorm" else "layer"
    gated = bool(keys.flag("swiglu", "gated_linear_unit"))
    bias = not (keys.flag("disable_bias_linear") or keys.flag("add_bias_linear") is False)
    width = keys.whole("ffn_hidden_size") or (
        int(8 * hidden / 3 / 64) * 64 if gated else 4 * hidden
    )
    dense = {"kind": "dense", "width": width, "gated": gated, "activation": "silu" if gated else "gelu",
             "up_bias": bias, "down_bias": bias}  # fmt: skip
    ffns = _ffns(keys, layers, dense, width, gated)
    positions = keys.whole("max_position_embeddings", "seq_length") or DEFAULT_POSITIONS
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
    told = keys.text("model_name", "wandb_exp_name", "exp_name") or keys.variables.get("job_name")
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
    experts = keys.whole("num_experts", "num_moe_experts")
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
    multiple = (keys.whole("make_vocab_size_divisible_by") or 128) * (
        keys.whole("tensor_model_parallel_size") or 1
    )
    return -(-size // multiple) * multiple
