"""MiniMax-M3: attention over blocks of keys that an indexer chooses, dense layers first, a tower."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import prediction_of, shape_of, stack_model
from foretell.interop.huggingface.feedforward import parts_of
from foretell.interop.huggingface.layers import marks_of
from foretell.interop.huggingface.mixers import attention
from foretell.interop.huggingface.multimodal import with_towers
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.mixers import Indexer
from foretell.specs.model import Layer, Model

INDEX = {
    "index_n_heads": ("sparse_num_index_heads", 4),
    "index_head_dim": ("sparse_index_dim", 128),
    "index_block_size": ("sparse_block_size", 128),
    "index_topk_blocks": ("sparse_topk_blocks", 16),
}
"""Numbers of the indexer: the library's name -> (the released config's, default)."""


def read(config: Config) -> Model:
    """The text model and, where the config describes it, the tower."""
    return with_towers(config, rules_of(config.family), _text)


def _text(row: Row) -> Model:
    depth = shape_of(row)
    whole, indexer = attention(row), _indexer(row)
    sparse = replace(whole, indexer=indexer)
    # Beside the mixer, the norm of the indexer's queries; its own op holds that of its keys.
    kinds = {True: (sparse, indexer.head_dim), False: (whole, 0)}
    made = [kinds[mark] for mark in marks_of(row, row.rules["layers"], depth)]
    layers = tuple(
        Layer(mixers=(mixer,), ffn=ffn, extra_parameters=extra)
        for (mixer, extra), ffn in zip(made, parts_of(row, depth), strict=True)
    )
    return stack_model(row, layers, prediction_of(row, layers[-1:]))


def _indexer(row: Row) -> Indexer:
    """The indexer by the library's names, or by those of the released config's own table."""
    config, key = row.config, "sparse_attention_config"
    table = config.sub(key) if config.has(key) else None
    numbers = {
        name: config.get(name, default, None if table else row.why, low=1)
        if table is None or config.has(name)
        else table.get(theirs, default, row.why, low=1)
        for name, (theirs, default) in INDEX.items()
    }
    return Indexer(
        heads=numbers["index_n_heads"],
        head_dim=numbers["index_head_dim"],
        top_k=numbers["index_topk_blocks"] * numbers["index_block_size"],
        query_inputs=row.whole("hidden"),
        key_norm="rms",
        head_weights=False,
    )
