"""Encoders: BERT and its kin, ESM's protein models, vision transformers. A row has their layers; what
surrounds these, the tables in front and the heads behind, is here."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import layer_of, shape_of, stack_model
from foretell.interop.huggingface.feedforward import dense_part
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.ffn import Dense
from foretell.specs.model import Embedding, Head, Layer, Model, Projection

ENDINGS = ("ForMaskedLM", "LMHeadModel", "ForPreTraining", "ForSequenceClassification", "Model")
"""Endings of class names, each with a head of its own."""


def read(config: Config) -> Model:
    """An encoder of one kind of layer."""
    row = Row(config, rules_of(config.family))
    vision, protein = row.rules["input"] == "patches", row.rules["input"] == "residues"
    kind = "" if vision or protein else _architecture(config)
    if kind not in ("", "ForMaskedLM") and (kind, config.family) != ("ForPreTraining", "bert"):
        row = row.within({"tied": False})  # nothing is scored by the token table
    depth = shape_of(row)
    vision = row.rules["input"] == "patches"
    if (
        config.family != "esm"
        and not vision
        and _architecture(config) not in ("ForMaskedLM", "ForPreTraining")
    ):
        row = row.within({"tied": False})
    ffn = _vision_part(row) if vision else dense_part(row)
    layers = (replace(layer_of(row), ffn=ffn),) * depth
    if vision:
        return _vision(row, layers)
    model = replace(stack_model(row, layers), kind="encoder")
    return _esm(row, model) if protein else _bert(row, model, kind)


# ---- Text --------------------------------------------------------------------------------------


def _bert(row: Row, model: Model, kind: str) -> Model:
    """Token, position and segment tables with a norm, ELECTRA's narrow and projected, and the head that
    `architectures` names (absent: masked tokens)."""
    hidden, width, length = model.stack.hidden, row.whole("embedding_width"), model.max_positions
    types = row.whole("token_types", 0)
    if width == hidden:
        embedding = replace(model.embedding, positions=length, token_types=types)
    else:
        into = Projection(name="embedding.project_in", inputs=width, outputs=hidden, bias=True)
        narrow = (length + types + 2) * width  # two tables and the norm
        embedding = Embedding(
            vocab=model.embedding.vocab, width=width, projections=(into,), extra_parameters=narrow
        )
    # RoBERTa counts positions from the one behind its padding's.
    skipped = row.whole("padding", 0) + 1 if "padding" in row.rules else 0
    return replace(
        model,
        embedding=embedding,
        head=_bert_head(row, model, kind),
        max_positions=length - skipped,
    )


def _bert_head(row: Row, model: Model, kind: str) -> Head:
    """Masked-token head (transform, norm, tied scores with bias), pre-training heads, the scores of
    a text (a dense layer of its first token, one score per label), or none."""
    config, hidden, width = row.config, model.stack.hidden, row.whole("embedding_width")
    pooler = Projection(name="head.pooler", inputs=hidden, outputs=hidden, bias=True)
    if kind == "Model":
        has_pooler = config.family not in ("distilbert", "electra")
        return Head(outputs=0, projections=(pooler,) if has_pooler else (), every_position=False)
    if kind == "ForPreTraining" and config.family == "electra":
        detect = replace(pooler, name="head.transform")
        return Head(outputs=0, projections=(detect,), extra_parameters=hidden + 1)
    if kind == "ForSequenceClassification":
        labels = _labels(config, "the library's default for classification", low=1)
        scores = Projection(name="head.labels", inputs=hidden, outputs=labels, bias=True)
        return Head(outputs=0, projections=(pooler, scores), every_position=False)
    extra = 2 * width
    if kind == "ForPreTraining" and config.family == "bert":
        extra += hidden * (hidden + 1) + 2 * hidden + 2  # pooler and next-sentence scores
    return replace(
        model.head,
        bias=True,
        projections=(replace(pooler, name="head.transform", outputs=width),),
        extra_parameters=extra,
    )


def _labels(config: Config, why: str, low: int = 0) -> int:
    """How many labels an input is scored for; the library's default is two."""
    named = config.raw("id2label")
    if isinstance(named, dict) and named:
        return len(named)
    return config.get("num_labels", 2, why, low=low)


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


def _esm(row: Row, model: Model) -> Model:
    """Masked-residue head; contact head (layers x heads weights, a bias)."""
    hidden, depth = model.stack.hidden, len(model.stack.layers)
    row.config.choice("position_embedding_type", ("absolute", "rotary"), "absolute")
    transform = Projection(name="head.transform", inputs=hidden, outputs=hidden, bias=True)
    head = replace(model.head, bias=True, projections=(transform,), extra_parameters=2 * hidden)
    contacts = depth * row.whole("heads") + 1
    return replace(model, head=head, stack=replace(model.stack, extra_parameters=contacts))


# ---- Images ------------------------------------------------------------------------------------


def _vision(row: Row, layers: tuple[Layer, ...]) -> Model:
    """Patches by a strided convolution, learned positions, one vector of class scores."""
    config, hidden = row.config, row.whole("hidden")
    image, patch = config.need("image_size"), config.need("patch_size")
    config.check(patch <= image, ("patch_size", "image_size"), "a patch is larger than the image")
    tokens = row.whole("class_tokens")
    row.known["length"], row.known["vocab"] = (image // patch) ** 2 + tokens, 0
    model = stack_model(row, layers)
    pixels = config.get("num_channels", 3, row.why, low=1) * patch * patch
    classes = _labels(config, "the library's default of two classes")
    # DINOv2 scores the class token beside the mean of the patches.
    more = hidden * classes if config.family == "dinov2" else 0
    return replace(
        model,
        kind="encoder",
        embedding=Embedding(
            positions=model.max_positions,
            patch_inputs=pixels,
            extra_parameters=(tokens + row.flag("mask_token")) * hidden,
        ),
        head=Head(outputs=classes, bias=True, every_position=False, extra_parameters=more),
    )


def _vision_part(row: Row) -> Dense:
    """DINOv2's may be gated, with two thirds of the width, rounded up to eights."""
    part = dense_part(row)
    return replace(part, width=(int(part.width * 2 / 3) + 7) // 8 * 8) if part.gated else part
