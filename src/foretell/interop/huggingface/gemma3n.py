"""Gemma-3n: Gemma-4's inputs of each layer's own, low-rank maps beside attention (LAuReL), and copies of the
hidden state of which each layer computes one (AltUp)."""

from dataclasses import replace

from foretell.interop.huggingface import gemma4
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.multimodal import with_towers
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.ffn import Dense
from foretell.specs.model import Layer, Model, Projection


def read(config: Config) -> Model:
    """The text model; its towers are not counted."""
    return with_towers(config, rules_of(config.family), _text)


def _text(row: Row) -> Model:
    config, depth = row.config, row.config.layers()
    if isinstance(config.raw("intermediate_size"), list | tuple):
        widths = config.wholes("intermediate_size", depth, low=1) or (1,) * depth
    else:
        widths = (config.need("intermediate_size"),) * depth
    row.known["ffn_width"] = widths[0]
    model = gemma4.text_model(row)
    copies, hidden = config.get("altup_num_inputs", 4, row.why, low=1), model.stack.hidden
    rank = config.get("laurel_rank", 64, row.why, low=1)
    layers = tuple(
        _with_updates(layer, hidden, rank, copies, width)
        for layer, width in zip(model.stack.layers, widths, strict=True)
    )
    map_ = Projection(name="altup.project", inputs=hidden, outputs=hidden)
    maps = (map_,) * (copies - 1)
    embedding = replace(model.embedding, projections=(*model.embedding.projections, *maps))
    return replace(
        model,
        stack=replace(model.stack, layers=layers),
        embedding=embedding,
        head=replace(model.head, projections=maps),
    )


def _with_updates(layer: Layer, hidden: int, rank: int, copies: int, width: int) -> Layer:
    """A layer with LAuReL's maps and norm; with AltUp's router, its norm, coefficients and a scale."""
    assert isinstance(layer.ffn, Dense)
    return replace(
        layer,
        ffn=replace(layer.ffn, width=width),
        norms=layer.norms + 2,
        projections=(
            *layer.projections,
            Projection(name="laurel.down", inputs=hidden, outputs=rank),
            Projection(name="laurel.up", inputs=rank, outputs=hidden),
            Projection(name="altup.router", inputs=hidden, outputs=copies),
        ),
        extra_parameters=hidden + copies**2 * copies + copies**2,
    )
