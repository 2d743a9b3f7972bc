"""What training, translating and scoring are asked, and the ranges of their numbers."""

from collections.abc import Callable
from dataclasses import field, fields, is_dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.records import dataclass
from foretell.specs._base import Ge, Le
from foretell.specs.check import problems_of
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention, Mixer
from foretell.specs.model import Layer, Model, Stack
from foretell.specs.questions.common import JSON
from foretell.specs.questions.flags import Flag, decimal, file_flag, flag, switch, whole
from foretell.workload.blocks.gated_attention import GatedAttention
from foretell.workload.blocks.tensor_chain import TensorChain

Form = Literal["auto", "build", "contract"]
"""Of tensor chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationSizes:
    """What a smaller model has in the place of its own; none: its own."""

    width: int | None = None
    """Hidden width."""
    layers: int | None = None
    """Layers of the encoder, and as many of the decoder."""
    heads: int | None = None
    """Heads of every attention."""
    ffn: int | None = None
    """Inner width of a plain feed-forward part; a gated one has two thirds of it, rounded down."""
    vocab: int | None = None
    """Rows of the tables, and outputs."""


def resize_model(model: Model, sizes: TranslationSizes) -> Model:
    """The model with other sizes; shares of tensor chains stay, so that bonds follow."""
    if model.encoder is None:
        raise bad_input("model", model.id, "is no encoder-decoder, and translation needs one")
    width = sizes.width or model.stack.hidden
    vocab = sizes.vocab or model.embedding.vocab
    own = model.encoder_embedding
    found = replace(
        model,
        stack=_stack(model.stack, sizes, width),
        encoder=_stack(model.encoder, sizes, width),
        embedding=replace(model.embedding, vocab=vocab),
        encoder_embedding=None if own is None else replace(own, vocab=vocab),
        head=replace(model.head, outputs=vocab),
    )
    _check(found)
    return found


def with_form(model: Model, form: Form) -> Model:
    """The same with every tensor chain in one form: auto, build or contract."""
    changed: Model = chains(model, lambda chain: replace(chain, form=form))
    return changed


def chains(record: Any, change: Callable[[TensorChain], TensorChain]) -> Any:
    """A record with every tensor chain in it changed."""
    if isinstance(record, TensorChain):
        return change(record)
    if isinstance(record, tuple):
        return tuple(chains(item, change) for item in record)
    if not is_dataclass(record) or isinstance(record, type):
        return record
    return replace(
        record, **{f.name: chains(getattr(record, f.name), change) for f in fields(record)}
    )


def _stack(stack: Stack, sizes: TranslationSizes, width: int) -> Stack:
    many = sizes.layers or len(stack.layers)
    # Layers of a translation model are alike; more or fewer of them are copies of the first.
    layer = _layer(stack.layers[0], sizes, width)
    return replace(stack, hidden=width, layers=(layer,) * many)


def _layer(layer: Layer, sizes: TranslationSizes, width: int) -> Layer:
    feed = layer.ffn
    if isinstance(feed, Dense) and sizes.ffn is not None:
        feed = replace(feed, width=2 * sizes.ffn // 3 if feed.gated else sizes.ffn)
    return replace(layer, mixers=tuple(_mixer(m, sizes, width) for m in layer.mixers), ffn=feed)


def _mixer(mixer: Mixer, sizes: TranslationSizes, width: int) -> Mixer:
    if isinstance(mixer, GatedAttention):
        return replace(mixer, heads=sizes.heads or mixer.heads)
    if isinstance(mixer, Attention):
        heads = sizes.heads or mixer.heads
        shared = mixer.heads // mixer.kv_heads
        return replace(
            mixer, heads=heads, kv_heads=max(heads // shared, 1), head_dim=max(width // heads, 1)
        )
    return mixer


def _check(model: Model) -> None:
    """Heads must share the width, and blocks must be able to cut it; all problems at once."""
    width, problems = model.stack.hidden, list[Problem]()
    mixers = {m for layer in set(model.stack.layers) for m in layer.mixers}
    heads = {m.heads for m in mixers if isinstance(m, Attention | GatedAttention)}
    for many in sorted(heads):
        if width % many:
            problems.append(wrong("width", width, f"{many} heads cannot share it evenly"))
    if model.embedding.block is not None:
        from foretell.workload.graph import Tokens

        one = Tokens(batch=1.0, q_len=1.0, kv_len=1.0)
        try:
            model.embedding.block.graph(model.embedding.vocab, width, one)
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)


LATER = ("epochs", "steps", "patience", "checkpoint_every", "evaluate_every", "device")
"""Settings that a run may go on with changed."""
Size = Annotated[int, Ge(1)] | None
"""A number of something; none: not given."""
MOST_BEAMS = 64
"""More beams than anyone asks for."""
LEAST, ALL_BUT = 1e-12, 1.0 - 1e-12
"""Above 0, and below 1."""


@dataclass(frozen=True, slots=False, kw_only=True)
class TranslationSettings:
    """Train on two line-aligned files: `foretell translate train`; the numbers are the published ones."""

    source: Annotated[str, file_flag("Source lines, UTF-8; .gz too.")]
    target: Annotated[str, file_flag("Target lines, one for each source.")]
    model: Annotated[
        str, flag("An encoder-decoder of the catalogue, or its file.", "MODEL", names_file="maybe")
    ] = "anthe"
    vocab: Annotated[int, whole("Byte pairs, of both languages together."), Ge(1)] = 32_000
    width: Annotated[Size, whole("Hidden width (default: the model's).")] = None
    layers: Annotated[Size, whole("Layers of encoder and decoder each.")] = None
    heads: Annotated[Size, whole("Attention heads.")] = None
    ffn: Annotated[Size, whole("Feed-forward width; a gated part has two thirds of it.")] = None
    form: Annotated[
        Literal["auto", "build", "contract"],
        flag("How tensor chains run: their matrix built, or the input contracted."),
    ] = "auto"
    batch: Annotated[int, whole("Pairs of lines in a step."), Ge(1)] = 64
    rate: Annotated[float, decimal("Learning rate, constant.", "R"), Ge(LEAST)] = 3.16e-5
    dropout: Annotated[float, decimal("Dropout.", "P"), Ge(0), Le(ALL_BUT)] = 0.1
    max_source: Annotated[int, whole("Longest source in tokens, its end counted."), Ge(2)] = 100
    max_target: Annotated[int, whole("Longest target in tokens, its end counted."), Ge(2)] = 101
    held_out: Annotated[
        float, decimal("Share of the lines held out.", "S"), Ge(LEAST), Le(ALL_BUT)
    ] = 0.1
    epochs: Annotated[int, whole("Passes over the text at most."), Ge(1)] = 1000
    steps: Annotated[Size, whole("Steps at most.")] = None
    evaluate_every: Annotated[
        Size, whole("Steps between evaluations (default: once an epoch).")
    ] = None
    patience: Annotated[int, whole("Evaluations without a better loss before it stops."), Ge(1)] = (
        10
    )
    checkpoint_every: Annotated[int, whole("Steps between checkpoints."), Ge(1)] = 500
    seed: Annotated[int, whole("Seed of split, weights, order and dropout.")] = 0
    precision: Annotated[
        Literal["fp32", "bf16"], flag("Format of matrix multiplications; weights stay in 32 bits.")
    ] = "fp32"
    device: Annotated[Literal["auto", "cpu", "cuda"], flag("Where to train.")] = "auto"
    edges: ClassVar[tuple[Flag, ...]] = (
        file_flag("The run's folder; one there goes on.", "DIR", names=("out",)),
        JSON,
    )

    @property
    def sizes(self) -> TranslationSizes:
        """Other sizes than the model's own."""
        return TranslationSizes(
            width=self.width, layers=self.layers, heads=self.heads, ffn=self.ffn, vocab=self.vocab
        )


@dataclass(frozen=True, slots=False, kw_only=True)
class DecodingQuestion:
    """How a trained model writes lines."""

    folder: Annotated[str, file_flag("What translate train wrote.", "DIR")] = field(kw_only=False)
    batch: Annotated[int, whole("Lines at a time."), Ge(1)] = 64
    beam: Annotated[
        int, whole("Beams; 1 takes the likeliest token each time."), Ge(1), Le(MOST_BEAMS)
    ] = 1
    length_penalty: Annotated[
        float,
        decimal("Beams: log probability over ((5 + length) / 6)^A.", "A"),
        Ge(0),
        Le(10),
    ] = 0.6
    device: Annotated[Literal["auto", "cpu", "cuda"], flag("Where to run.")] = "auto"
    last: Annotated[bool, switch("Take the last weights, not the best ones.")] = False


@dataclass(frozen=True, slots=False, kw_only=True)
class LinesQuestion(DecodingQuestion):
    """Lines to translate: `foretell translate run`."""

    file: Annotated[str, file_flag("Lines to translate; - is standard input.")] = "-"
    edges: ClassVar[tuple[Flag, ...]] = (JSON,)


@dataclass(frozen=True, slots=False, kw_only=True)
class ScoresQuestion(DecodingQuestion):
    """A text to translate and score: `foretell translate evaluate`."""

    source: Annotated[
        str | None, file_flag("Source lines (default: those that training held out).")
    ] = None
    target: Annotated[str | None, file_flag("Reference lines, one for each source.")] = None
    beam: Annotated[
        int, whole("Beams; 1 takes the likeliest token each time."), Ge(1), Le(MOST_BEAMS)
    ] = 4
    lines: Annotated[Size, whole("The first so many lines alone.")] = None
    edges: ClassVar[tuple[Flag, ...]] = (
        file_flag("Write the translations there.", names=("out",)),
        JSON,
    )


def problems_in(question: object) -> list[Problem]:
    """Every value that is not what its field says."""
    return [replace(one, path=one.path.lstrip(".")) for one in problems_of(question, "")]


def check(question: object) -> None:
    """BadInput with every value that is not what its field says."""
    if found := problems_in(question):
        raise BadInput(found)
