"""A model as Megatron-LM's arguments: the flags that describe its shape, where they can.

A decoder of equal attention layers, dense or with experts from some layer on, latent attention too. What
flags cannot say (towers, several kinds of attention, tied parts of their own) is stated as a note.
"""

from itertools import groupby

from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Layer, Model


def shape_flags(model: Model, tp: int, repository: str | None) -> tuple[list[str], list[str]]:
    """(flags, notes) that describe a model; no flags where Megatron has none for its kind."""
    layers = model.stack.layers
    mixers = {mixer for layer in layers for mixer in layer.mixers}
    plain = len(mixers) == 1 and all(len(layer.mixers) == 1 for layer in layers)
    if model.encoder is not None or not plain:
        return [], [f"Add the model flags (--num-layers ...) of {model.id}"]
    mixer = next(iter(mixers))
    if not isinstance(mixer, Attention | LatentAttention):
        return [], [f"Add the model flags (--num-layers ...) of {model.id}"]
    if isinstance(mixer, Attention) and (mixer.cross or mixer.indexer is not None):
        return [], [f"Add the model flags (--num-layers ...) of {model.id}"]
    words = [
        f"--num-layers {len(layers)} --hidden-size {model.stack.hidden}",
        *_attention(mixer, model),
        *_feed_forward(layers),
        *_ends(model, tp, repository),
    ]
    notes = [] if repository else ["no tokenizer is known: NullTokenizer, for mock data"]
    return words, notes


def _attention(mixer: Attention | LatentAttention, model: Model) -> list[str]:
    words = [f"--num-attention-heads {mixer.heads}"]
    if isinstance(mixer, LatentAttention):
        words += ["--multi-latent-attention"]
        words += [] if mixer.q_rank is None else [f"--q-lora-rank {mixer.q_rank}"]
        words += [
            f"--kv-lora-rank {mixer.kv_rank} --qk-head-dim {mixer.nope_dim}",
            f"--qk-pos-emb-head-dim {mixer.rope_dim} --v-head-dim {mixer.value_dim}",
        ]
        return words
    if mixer.kv_heads != mixer.heads:
        words += [f"--group-query-attention --num-query-groups {mixer.kv_heads}"]
    if mixer.head_dim * mixer.heads != model.stack.hidden:
        words += [f"--kv-channels {mixer.head_dim}"]
    words += ["--qk-layernorm"] if mixer.qk_norm == "head" else []
    if mixer.q_bias and not mixer.o_bias:
        words += ["--add-qkv-bias"]
    return words


def _feed_forward(layers: tuple[Layer, ...]) -> list[str]:
    dense = next((layer.ffn for layer in layers if isinstance(layer.ffn, Dense)), None)
    routed = next((layer.ffn for layer in layers if isinstance(layer.ffn, Experts)), None)
    some = dense or routed
    words = []
    if isinstance(some, Dense | Experts):
        width = some.width
        words += [f"--ffn-hidden-size {width}", *(["--swiglu"] if some.gated else [])]
        bias = isinstance(some, Dense) and some.up_bias
        words += [] if bias else ["--disable-bias-linear"]
    if isinstance(routed, Experts):
        words += [
            f"--num-experts {routed.experts} --moe-router-topk {routed.top_k}",
            f"--moe-ffn-hidden-size {routed.width} --moe-grouped-gemm",
        ]
        if routed.shared_width:
            words += [f"--moe-shared-expert-intermediate-size {routed.shared_width}"]
        kinds = [int(isinstance(layer.ffn, Experts)) for layer in layers]
        if 0 in kinds:
            runs = [f"[{kind}]*{len(list(same))}" for kind, same in groupby(kinds)]
            words += [f'--moe-layer-freq "({"+".join(runs)})"']
    return words


def _ends(model: Model, tp: int, repository: str | None) -> list[str]:
    """Norms, positions, embedding, head, tokenizer."""
    words = ["--normalization RMSNorm"] if model.stack.final_norm == "rms" else []
    learned = bool(model.embedding.positions)
    kind = "learned_absolute" if learned else "rope"
    words += [f"--position-embedding-type {kind}"]
    tied = model.head.tied
    words += [] if tied else ["--untie-embeddings-and-output-weights"]
    vocab = model.embedding.vocab
    multiple, ranks = 128, max(tp, 8)
    while multiple > 1 and vocab % (multiple * ranks):
        multiple //= 2
    if repository:
        words += [f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {repository}"]
    else:
        words += ["--tokenizer-type NullTokenizer"]
    # NullTokenizer adds a token for the end of a document.
    rows = vocab if repository else vocab - 1
    words += [f"--vocab-size {rows} --make-vocab-size-divisible-by {multiple}"]
    return words
