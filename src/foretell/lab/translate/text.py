"""Line-aligned text in two languages: reading, lines held out, byte pairs, batches; and a run's folder.

    settings.json    what was asked, and how many lines it met
    model.toml       the model, as `foretell estimate` reads it
    tokenizer.json   the byte pairs
    checkpoint.pt    weights, optimizer and place in the text: where the run goes on
    best.pt          the weights with the least held-out loss
    history.jsonl    one line for each evaluation

Files are written beside and then renamed, so that a killed run leaves whole ones. Checkpoints hold
tensors and plain values and are read with `weights_only`: nothing in them is run.
"""

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.interop.user_files import check_regular, whole_file, write_whole
from foretell.records import dataclass

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, START, END, UNKNOWN = 0, 1, 2, 3
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
"""Tokens that are no text, by their ids."""
LEAST_VOCAB = len(SPECIAL) + 256
"""Special tokens and all bytes."""
Ids = NDArray[np.int32]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Lines to train on and lines held out."""

    train: tuple[Pair, ...]
    """To train on."""
    held_out: tuple[Pair, ...]
    """To measure on; no pair is on both sides."""
    blank: int
    """Lines left out because one side of them is blank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPairs:
    """Pairs as ids: the source with its end, the target with start and end."""

    source: tuple[Ids, ...]
    """Ids of each source."""
    target: tuple[Ids, ...]
    """Ids of each target."""
    too_long: int
    """Pairs left out because one side is longer than the limit."""

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Padded ids of some pairs."""

    source: Ids
    """(pairs, longest source)."""
    target: Ids
    """(pairs, longest target): start, words, end."""


def read_pairs(source: Path, target: Path) -> list[Pair]:
    """Lines of both files side by side; every problem at once as BadInput."""
    problems: list[Problem] = []
    sides = [
        _lines(path, name, problems) for name, path in (("source", source), ("target", target))
    ]
    if not problems and len(sides[0]) != len(sides[1]):
        what = f"has {len(sides[1]):,} lines where {source} has {len(sides[0]):,}"
        allowed = "files whose lines belong together one by one"
        problems.append(wrong("target", str(target), what, allowed))
    if problems:
        raise BadInput(problems)
    return list(zip(*sides, strict=True))


def _lines(path: Path, name: str, problems: list[Problem]) -> list[str]:
    """The lines of a file, packed or not; line ends are \\n and \\r\\n alone, as line counts are."""

    def say(what: str) -> list[str]:
        problems.append(wrong(name, str(path), what))
        return []

    check_regular(path)
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except FileNotFoundError:
        return say("there is no such file")
    except (OSError, EOFError) as error:
        return say(f"cannot be read: {getattr(error, 'strerror', None) or error}")
    if not raw.strip():
        return say("has no text")
    lines = raw.removesuffix(b"\n").split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(line.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError:
            return say(f"is not UTF-8 text: line {number}")
    return found


def split(pairs: Sequence[Pair], held_out: float, seed: int) -> Split:
    """A share of the distinct pairs is held out with all their copies; at least one on either side."""
    whole = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    distinct = list(dict.fromkeys(whole))
    if len(distinct) < 2:
        what = f"have {len(distinct)} distinct pairs of lines with text on both sides"
        raise bad_input("source", None, what, "two or more")
    random.Random(seed).shuffle(distinct)
    many = min(max(round(held_out * len(distinct)), 1), len(distinct) - 1)
    apart = set(distinct[:many])
    return Split(
        train=tuple(pair for pair in whole if pair not in apart),
        held_out=tuple(distinct[:many]),
        blank=len(pairs) - len(whole),
    )


def train_tokenizer(pairs: Sequence[Pair], vocab: int) -> "Tokenizer":
    """Byte pairs of both languages together, exactly `vocab` of them; every text can be encoded."""
    need_tokenizers()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocab < LEAST_VOCAB:
        raise bad_input("vocab", vocab, "leaves no room for the bytes", f"{LEAST_VOCAB} or more")
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((side for pair in pairs for side in pair), trainer)
    found = tokenizer.get_vocab_size()
    if found < vocab:
        what = f"is too large for the text, which has no more than {found:,} byte pairs"
        raise bad_input("vocab", vocab, what, nearest=f"--vocab {found}")
    return tokenizer


def encode(
    tokenizer: "Tokenizer", pairs: Sequence[Pair], max_source: int, max_target: int
) -> EncodedPairs:
    """Ids of the pairs whose sides are within the limits, end (and start) counted."""
    sides = [[e.ids for e in tokenizer.encode_batch([pair[i] for pair in pairs])] for i in (0, 1)]
    source: list[Ids] = []
    target: list[Ids] = []
    for one, other in zip(*sides, strict=True):
        # The decoder reads all but the last id and is asked for all but the first.
        if len(one) + 1 <= max_source and len(other) + 1 <= max_target:
            source.append(np.array([*one, END], dtype=np.int32))
            target.append(np.array([START, *other, END], dtype=np.int32))
    return EncodedPairs(
        source=tuple(source), target=tuple(target), too_long=len(pairs) - len(source)
    )


def batches(text: EncodedPairs, size: int, seed: int | None) -> Iterator[TokenBatch]:
    """All pairs in batches of about one length, in an order that the seed decides; none: by length."""
    rng = np.random.default_rng(seed)
    # Shuffled first, so that pairs of one length meet others each time.
    order = rng.permutation(len(text)) if seed is not None else np.arange(len(text))
    lengths = np.array([len(text.target[i]) * 1000 + len(text.source[i]) for i in order])
    order = order[np.argsort(lengths, kind="stable")]
    groups = [order[i : i + size] for i in range(0, len(order), size)]
    if seed is not None:
        groups = [groups[i] for i in rng.permutation(len(groups))]
    for group in groups:
        yield TokenBatch(
            source=pad_rows([text.source[i] for i in group]),
            target=pad_rows([text.target[i] for i in group]),
        )


def pad_rows(rows: Sequence[Any]) -> Ids:
    """Rows of ids side by side, as wide as the longest."""
    out = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int32)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out


def need_tokenizers() -> None:
    """The library of byte pairs is there, or BadInput says how to get it."""
    if find_spec("tokenizers") is None:
        what, how = "byte pairs need tokenizers", "pip install 'foretell[translate]'"
        raise bad_input("tokenizers", None, what, how)


def need_torch() -> None:
    """torch is there, or BadInput says how to get it."""
    if find_spec("torch") is None:
        raise bad_input("torch", None, "translation models need PyTorch", "pip install torch")


if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from foretell.specs.model import Model

SETTINGS, MODEL, TOKENIZER = "settings.json", "model.toml", "tokenizer.json"
CHECKPOINT, BEST, HISTORY = "checkpoint.pt", "best.pt", "history.jsonl"


def read_settings(folder: Path) -> dict[str, Any] | None:
    """What a run was asked; none where the folder has no run."""
    path = folder / SETTINGS
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise bad_input("out", str(path), f"cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise bad_input("out", str(path), "is not a run's settings")
    return found


def write_json(path: Path, record: Any) -> None:
    """A record as JSON."""
    write_whole(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


def read_model(folder: Path) -> "Model":
    """The run's model."""
    from foretell.interop.own_model import read_toml

    return read_toml(folder / MODEL)


def read_tokenizer(folder: Path) -> "Tokenizer":
    """The run's byte pairs."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    if not path.exists():
        raise bad_input("folder", str(folder), f"has no {TOKENIZER}")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises Exception itself
        raise bad_input("folder", str(path), f"is damaged: {error}") from None


def save_tensors(path: Path, record: dict[str, Any]) -> None:
    """Tensors and plain values."""
    import torch

    with whole_file(path) as beside:
        torch.save(record, beside)


def load_tensors(path: Path, device: str) -> dict[str, Any]:
    """What `save_tensors` wrote; anything else in the file is refused."""
    import pickle

    import torch

    try:
        found = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        first = str(error).strip().splitlines()
        why = first[0][:120] if first else type(error).__name__
        raise bad_input("checkpoint", str(path), f"is damaged or is no checkpoint: {why}") from None
    if not isinstance(found, dict):
        raise bad_input("checkpoint", str(path), "is no checkpoint")
    return found
