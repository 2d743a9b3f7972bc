"""Training on line-aligned text: loss and perplexity on held-out lines, stopped and gone on at will.

Defaults are the published settings of Anthe's code (arXiv 2305.10991): Adam (0.9, 0.98, 1e-9) at a
constant rate of 3.16e-5, dropout 0.1, byte pairs of 32,000, at most 100 source and 101 target tokens,
a tenth of the lines held out, stop after ten evaluations without a better loss, no label smoothing.
Losses are means over tokens, padding left out; perplexity is their exponential.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.catalog.models import model as catalogue_model
from foretell.errors import bad_input
from foretell.interop.own_model import write_toml
from foretell.interop.user_files import made_folder, whole_file, write_whole
from foretell.lab.translate.decode import chosen_device, present_of
from foretell.lab.translate.ranks import TrainRanks, train_ranks
from foretell.lab.translate.settings import (
    LATER,
    TranslationSettings,
    check,
    resize_model,
    with_form,
)
from foretell.lab.translate.text import (
    BEST,
    CHECKPOINT,
    HISTORY,
    MODEL,
    PAD,
    SETTINGS,
    TOKENIZER,
    EncodedPairs,
    TokenBatch,
    batches,
    encode,
    load_tensors,
    need_tokenizers,
    need_torch,
    read_model,
    read_pairs,
    read_settings,
    read_tokenizer,
    save_tensors,
    split,
    train_tokenizer,
    write_json,
)
from foretell.records import as_json
from foretell.specs.model import Model

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Report = Callable[[int, int], None]
"""Called with the steps done and the most there can be."""
Say = Callable[[str], None]
"""Called with a line for who watches."""


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """How far a run is; what a checkpoint holds beside tensors."""

    step: int = 0
    """Steps done."""
    epoch: int = 0
    """The pass over the text that is under way."""
    batch: int = 0
    """Batches of it that are done."""
    worse: int = 0
    """Evaluations since the best one."""
    best: float = math.inf
    """Least held-out loss."""
    seconds: float = 0.0
    """Training time, evaluations left out."""
    tokens: int = 0
    """Target tokens trained on."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """Evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """What a run came to."""

    folder: str
    """Where it is."""
    model: str
    """The model's id."""
    parameters: int
    """Its weights."""
    device: str
    """Where it was trained."""
    lines: dict[str, int]
    """Pairs trained on, held out, blank and too long."""
    vocab: int
    """Byte pairs."""
    steps: int
    """Steps done."""
    epochs: int
    """Whole passes over the text."""
    stopped: str
    """Why it ended: steps, epochs or patience."""
    held_out_loss: float
    """Of the best evaluation, nats per token."""
    perplexity: float
    """Its exponential."""
    train_s: float
    """Time in training steps."""
    target_tokens_per_s: float
    """Target tokens trained on per second."""
    history: list[dict[str, Any]]
    """Every evaluation: step, train_loss, held_out_loss, perplexity."""

    to_dict = as_json()


def train(
    settings: TranslationSettings, out: Path, report: Report | None = None, say: Say | None = None
) -> TrainingSummary:
    """Train into a folder; where it has a run of the same settings, go on with that."""
    check(settings)
    need_torch()
    need_tokenizers()
    ranks = train_ranks(chosen_device(settings.device))
    made_folder(out)
    pairs = read_pairs(Path(settings.source), Path(settings.target))
    parts = split(pairs, settings.held_out, settings.seed)
    if not ranks.first:  # the others read what the first has written
        ranks.wait()
    model, tokenizer = _prepared(settings, out, pairs, parts.train)
    if ranks.first:
        ranks.wait()
    held_out = encode(tokenizer, parts.held_out, settings.max_source, settings.max_target)
    text = encode(tokenizer, parts.train, settings.max_source, settings.max_target)
    if not len(text) or not len(held_out):
        what = "no line is short enough to train or to measure on"
        raise bad_input("max_source", settings.max_source, what, "a larger limit")
    lines = {
        "train": len(text),
        "held_out": len(held_out),
        "blank": parts.blank,
        "too_long": text.too_long + held_out.too_long,
    }
    run = TranslationRun(settings, out, model, ranks)
    try:
        stopped = run.through(text, held_out, report, say or (lambda line: None))
    except KeyboardInterrupt:
        run.save()
        raise
    return run.told(lines, stopped)


def _prepared(
    settings: TranslationSettings,
    out: Path,
    pairs: list[tuple[str, str]],
    training: tuple[tuple[str, str], ...],
) -> tuple[Model, "Tokenizer"]:
    """Model and byte pairs of a new folder, or those of the run that it has."""
    asked = {**asdict(settings), "text": _digest(pairs)}
    before = read_settings(out)
    if before is not None:
        other = [k for k in asked if k not in LATER and asked[k] != before.get(k)]
        if other:
            what = f"has a run with other settings: {', '.join(other)}"
            raise bad_input("out", str(out), what, "the same settings, or another folder")
        return read_model(out), read_tokenizer(out)
    vocab = settings.sizes.vocab
    record = with_form(resize_model(catalogue_model(settings.model), settings.sizes), settings.form)
    tokenizer = train_tokenizer(training, vocab or record.embedding.vocab)
    with whole_file(out / TOKENIZER) as beside:
        tokenizer.save(str(beside))
    write_whole(out / MODEL, write_toml(record))
    write_json(out / SETTINGS, asked)
    return record, tokenizer


def _digest(pairs: list[tuple[str, str]]) -> str:
    text = "".join("\n".join(pair) + "\n" for pair in pairs)
    return hashlib.sha256(text.encode()).hexdigest()


class TranslationRun:
    """A run under way: module, optimizer and place."""

    def __init__(
        self,
        settings: TranslationSettings,
        out: Path,
        model: Model,
        ranks: TrainRanks | None = None,
    ) -> None:
        import torch

        from foretell import zoo

        self.settings, self.out, self.record = settings, out, model
        self.ranks = ranks or TrainRanks()
        self.device = chosen_device(settings.device)
        torch.manual_seed(settings.seed)
        self.module = zoo.build(model, fused=True, dropout=settings.dropout).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.module.parameters(), lr=settings.rate, betas=(0.9, 0.98), eps=1e-9
        )
        self.place, self._losses = RunProgress(), list[tuple[float, int]]()
        if self.ranks.world > 1:  # weights are alike, dropout is not
            torch.manual_seed(settings.seed * 1_000_003 + self.ranks.rank)
        if (out / CHECKPOINT).exists():
            self._load()

    def save(self) -> None:
        """A checkpoint of everything that the rest of the run depends on; the first process writes it."""
        import torch

        if not self.ranks.first:
            return
        record = {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "place": asdict(self.place),
            "losses": self._losses,
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state() if self.device == "cuda" else None,
        }
        save_tensors(self.out / CHECKPOINT, record)

    def _load(self) -> None:
        import torch

        path = self.out / CHECKPOINT
        found = load_tensors(path, self.device)
        try:
            self.module.load_state_dict(found["module"])
            self.optimizer.load_state_dict(found["optimizer"])
            self.place = RunProgress(**found["place"])
            self._losses = [(float(a), int(b)) for a, b in found["losses"]]
            if not self.ranks.first:
                return  # its dropout goes on from a seed of its own
            torch.set_rng_state(found["random"].cpu())
            if self.device == "cuda" and found["cuda_random"] is not None:
                torch.cuda.set_rng_state(found["cuda_random"].cpu())
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            raise bad_input("checkpoint", str(path), f"does not fit the run: {error}") from None

    def through(
        self, text: EncodedPairs, held_out: EncodedPairs, report: Report | None, say: Say
    ) -> str:
        """Train until steps, epochs or patience end; gives which."""
        s, place = self.settings, self.place
        each = math.ceil(len(text) / s.batch)
        most = min(s.steps or s.epochs * each, s.epochs * each)
        while place.step < most:
            if place.worse >= s.patience:
                return "patience"
            for batch in self._rest_of_epoch(text):
                self._losses.append(self._step(batch))
                place.step, place.batch = place.step + 1, place.batch + 1
                if report is not None:
                    report(place.step, most)
                ended = place.batch == each
                due = ended if s.evaluate_every is None else place.step % s.evaluate_every == 0
                if due or place.step == most:
                    self._evaluated(held_out, say)
                if place.step % s.checkpoint_every == 0:
                    self.save()
                if place.step == most or place.worse >= s.patience:
                    break
            if place.batch == each:
                place.epoch, place.batch = place.epoch + 1, 0
        self.save()
        if place.worse >= s.patience:
            return "patience"
        return "steps" if s.steps is not None and place.step >= s.steps else "epochs"

    def _rest_of_epoch(self, text: EncodedPairs) -> Iterator[TokenBatch]:
        order = self.settings.seed * 1_000_003 + self.place.epoch
        yield from islice(batches(text, self.settings.batch, order), self.place.batch, None)

    def _step(self, batch: TokenBatch) -> tuple[float, int]:
        """One step; (loss summed over tokens, tokens)."""
        start = time.perf_counter()
        self.module.train()
        total, many = self._loss(self._share(batch))
        value, many = self._sums(total.detach(), many)
        (total / max(many, 1)).backward()
        self.ranks.add_gradients(self.module)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not math.isfinite(value):
            what = f"loss is {value} at step {self.place.step}: training has diverged"
            raise bad_input("rate", self.settings.rate, what, "a smaller rate")
        self.place.seconds += time.perf_counter() - start
        self.place.tokens += many
        return value, many

    def _share(self, batch: TokenBatch) -> TokenBatch:
        """This process's rows; where a batch has fewer rows than there are processes, some have none."""
        take = self.ranks.share
        return TokenBatch(source=take(batch.source), target=take(batch.target))

    def _sums(self, total: Any, many: int) -> tuple[float, int]:
        """Loss and tokens of all processes."""
        if self.ranks.world == 1:
            return float(total), many
        import torch

        both = torch.tensor([float(total), float(many)], dtype=torch.float64, device=self.device)
        found = self.ranks.add(both).tolist()
        return found[0], int(found[1])

    def _loss(self, batch: TokenBatch) -> tuple[Any, int]:
        """Cross-entropy summed over the target's tokens, and how many these are."""
        import torch
        from torch.nn import functional

        if not len(batch.source):
            return sum(weight.sum() for weight in self.module.parameters()) * 0.0, 0
        source, target = (
            torch.from_numpy(x).long().to(self.device) for x in (batch.source, batch.target)
        )
        half = self.settings.precision == "bf16"
        with torch.autocast(self.device, torch.bfloat16, enabled=half):
            scores = self.module(target[:, :-1], source, present_of(source)).scores
        wanted = target[:, 1:].reshape(-1)
        total = functional.cross_entropy(
            scores.flatten(0, 1).float(), wanted, ignore_index=PAD, reduction="sum"
        )
        return total, int((batch.target[:, 1:] != PAD).sum())

    def _evaluated(self, held_out: EncodedPairs, say: Say) -> None:
        """Loss on the held-out lines; the best weights are kept."""
        place = self.place
        loss = self.held_out_loss(held_out)
        total, many = (sum(x) for x in zip(*self._losses, strict=True))
        self._losses = []
        row = {
            "step": place.step,
            "epoch": place.epoch,
            "train_loss": total / many,
            "held_out_loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "train_s": place.seconds,
        }
        place.history.append(row)
        place.worse = 0 if loss < place.best else place.worse + 1
        if loss < place.best:
            place.best = loss
            if self.ranks.first:
                save_tensors(self.out / BEST, {"module": self.module.state_dict()})
        self.save()
        self.ranks.wait()
        if not self.ranks.first:
            return
        lines = "".join(json.dumps(one) + "\n" for one in place.history)
        write_whole(self.out / HISTORY, lines)
        say(
            f"step {place.step:,}: training loss {row['train_loss']:.3f}, held-out loss {loss:.3f}, "
            f"perplexity {row['perplexity']:,.2f}"
        )

    def held_out_loss(self, held_out: EncodedPairs) -> float:
        """Mean over all tokens of the held-out lines."""
        import torch

        self.module.eval()
        with torch.no_grad():
            some = (self._share(b) for b in batches(held_out, self.settings.batch, None))
            found = [self._loss(batch) for batch in some]
        total, many = self._sums(sum(float(t) for t, _ in found), sum(n for _, n in found))
        return total / many

    def told(self, lines: dict[str, int], stopped: str) -> TrainingSummary:
        """The answer."""
        place = self.place
        return TrainingSummary(
            folder=str(self.out),
            model=self.record.id,
            parameters=sum(p.numel() for p in self.module.parameters()),
            device=self.device,
            lines=lines,
            vocab=self.record.embedding.vocab,
            steps=place.step,
            epochs=place.epoch,
            stopped=stopped,
            held_out_loss=place.best,
            perplexity=math.exp(min(place.best, 700.0)),
            train_s=place.seconds,
            target_tokens_per_s=place.tokens / max(place.seconds, 1e-9),
            history=place.history,
        )
