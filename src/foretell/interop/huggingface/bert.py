"""BERT, RoBERTa, XLM-RoBERTa, DistilBERT and ELECTRA."""

from foretell.interop.huggingface.common import even_heads, plain_ffn
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.storage import dtype
from foretell.records import dataclass
from foretell.specs.model import Embedding, Head, Layer, Model, Projection, Stack

ENDINGS = ("ForMaskedLM", "LMHeadModel", "ForPreTraining", "ForSequenceClassification", "Model")
"""Endings of class names, each with a head of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderShape:
    """The numbers of an encoder with learned positions."""

    hidden: int
    """Width of the residual stream."""
    width: int
    """Width of the tables."""
    vocab: int
    """Rows of the token table."""
    length: int
    """Rows of the position table."""
    types: int
    """Rows of the segment table."""
    skipped: int
    """Rows of the position table that no token of a text takes."""


def read(config: Config) -> Model:
    """Post-norm encoder with the head that `architectures` names (absent: masked tokens)."""
    small = config.family == "distilbert"
    hidden = config.need("dim" if small else "hidden_size", "hidden_size")
    shape = EncoderShape(
        hidden=hidden,
        width=config.get("embedding_size", hidden, None, low=1)
        if config.family == "electra"
        else hidden,
        vocab=config.need("vocab_size"),
        length=config.need("max_position_embeddings"),
        types=0 if small else config.get("type_vocab_size", 2, "BertConfig's defaults"),
        skipped=_skipped_positions(config),
    )
    heads_key = "n_heads" if small else "num_attention_heads"
    heads = config.need(heads_key, "num_attention_heads")
    attention = even_heads(config, hidden, heads, ("hidden_size", heads_key)).attention(
        biased=True, causal=False
    )
    ffn = plain_ffn(
        config.need("hidden_dim" if small else "intermediate_size", "intermediate_size"),
        config.text("activation" if small else "hidden_act", "gelu"),
        biased=True,
    )
    depth = config.layers("num_hidden_layers", key="n_layers" if small else "num_hidden_layers")
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind="layer")
    return Model(
        id=config.id,
        family=config.family,
        kind="encoder",
        stack=Stack(hidden=hidden, layers=(layer,) * depth, final_norm="none"),
        embedding=_embedding(shape),
        head=_head(config, shape),
        max_positions=shape.length - shape.skipped,
        dtype=dtype(config),
    )


def _skipped_positions(config: Config) -> int:
    """Rows before the first token's: RoBERTa counts positions from the one behind its padding's."""
    if config.family not in ("roberta", "xlm-roberta"):
        return 0
    return config.get("pad_token_id", 1, None, low=0) + 1


def _embedding(shape: EncoderShape) -> Embedding:
    """Token, position and segment tables, their norm; ELECTRA's are narrow and projected."""
    if shape.width == shape.hidden:
        return Embedding(
            vocab=shape.vocab, positions=shape.length, token_types=shape.types, norm="layer"
        )
    into = Projection(
        name="embedding.project_in", inputs=shape.width, outputs=shape.hidden, bias=True
    )
    narrow = (shape.length + shape.types + 2) * shape.width  # two tables and the norm
    return Embedding(
        vocab=shape.vocab, width=shape.width, projections=(into,), extra_parameters=narrow
    )


def _head(config: Config, shape: EncoderShape) -> Head:
    """Masked-token head (transform, norm, tied scores with bias), pre-training heads, the scores of
    a text (a dense layer of its first token, one score per label), or none."""
    kind = _architecture(config)
    hidden, width = shape.hidden, shape.width
    pooler = Projection(name="head.pooler", inputs=hidden, outputs=hidden, bias=True)
    if kind == "Model":
        has_pooler = config.family not in ("distilbert", "electra")
        return Head(outputs=0, projections=(pooler,) if has_pooler else (), every_position=False)
    if kind == "ForPreTraining" and config.family == "electra":
        detect = Projection(name="head.transform", inputs=hidden, outputs=hidden, bias=True)
        return Head(outputs=0, projections=(detect,), extra_parameters=hidden + 1)
    if kind == "ForSequenceClassification":
        scores = Projection(name="head.labels", inputs=hidden, outputs=_labels(config), bias=True)
        return Head(outputs=0, projections=(pooler, scores), every_position=False)
    transform = Projection(name="head.transform", inputs=hidden, outputs=width, bias=True)
    extra = 2 * width
    projections = (transform,)
    if kind == "ForPreTraining" and config.family == "bert":
        extra += hidden * (hidden + 1) + 2 * hidden + 2  # pooler and next-sentence scores
    tied = config.flag(
        "tie_word_embeddings", default=True, why="the library's default for encoders"
    )
    return Head(
        outputs=shape.vocab, tied=tied, bias=True, projections=projections, extra_parameters=extra
    )


def _labels(config: Config) -> int:
    """How many labels a text is scored for; the library's default is two."""
    named = config.raw("id2label")
    if isinstance(named, dict) and named:
        return len(named)
    return config.get("num_labels", 2, "the library's default for classification", low=1)


def _architecture(config: Config) -> str:
    """The ending of the name in `architectures`; unknown ones are read as ForMaskedLM."""
    names = config.raw("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if isinstance(name, str):
        for ending in ENDINGS:
            if name.endswith(ending):
                return "ForMaskedLM" if ending == "LMHeadModel" else ending
    config.assume("the head is taken to be the masked-token head (ForMaskedLM)")
    return "ForMaskedLM"
