"""From source tokens to target tokens: the likeliest at each place (greedy), or the best of several beams.

Scores are BLEU and chrF on lines that the model has not seen, and lines that are exactly right. Beams are
ranked by log probability over ((5 + length) / 6)^alpha (Wu et al. 2016, as the 2017 Transformer has it: four
beams, alpha 0.6): alpha 0 prefers short lines, 1 weighs every token alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.errors import BadInput, bad_input, wrong
from foretell.lab.translate.settings import ScoresQuestion, problems_in
from foretell.lab.translate.text import (
    BEST,
    CHECKPOINT,
    END,
    PAD,
    START,
    load_tensors,
    need_tokenizers,
    need_torch,
    pad_rows,
    read_model,
    read_pairs,
    read_settings,
    read_tokenizer,
    split,
)
from foretell.records import as_json, dataclass

LENGTH_BASE = 5.0
"""Of the length penalty."""


def length_penalty(length: int, alpha: float) -> float:
    """What a line's log probability is divided by."""
    return float(((LENGTH_BASE + length) / (LENGTH_BASE + 1.0)) ** alpha)


def greedy_tokens(
    module: Any, sources: Sequence[Sequence[int]], most: int, device: str
) -> list[list[int]]:
    """The likeliest token at each place, at most so many with the start."""
    import torch

    source = torch.from_numpy(pad_rows(sources)).long().to(device)
    with torch.no_grad():
        carry = module.encode(source, present_of(source))
        said = torch.full((len(sources), 1), START, device=device)
        done = torch.zeros(len(sources), dtype=torch.bool, device=device)
        while not bool(done.all()) and said.shape[1] < most:
            scores: Any = module.decode(said, carry).scores[:, -1]
            best = scores.argmax(dim=-1).masked_fill(done, PAD)
            said = torch.cat((said, best[:, None]), dim=1)
            done = done | (best == END)
    return [[i for i in row[1:] if i not in (PAD, END)] for row in said.tolist()]


def beam_tokens(
    module: Any,
    sources: Sequence[Sequence[int]],
    most: int,
    device: str,
    *,
    beam: int,
    alpha: float,
) -> list[list[int]]:
    """The best of the lines that `beam` beams end, by penalised log probability."""
    import torch

    lines = len(sources)
    rows = [row for row in sources for _ in range(beam)]
    source = torch.from_numpy(pad_rows(rows)).long().to(device)
    ended: list[list[tuple[float, list[int]]]] = [[] for _ in range(lines)]
    with torch.no_grad():
        carry = module.encode(source, present_of(source))
        said = torch.full((lines * beam, 1), START, device=device)
        # At first all beams are alike: only one of each line counts.
        total = torch.full((lines, beam), -1e9, device=device)
        total[:, 0] = 0.0
        while said.shape[1] < most and not all(
            _settled(ended[i], float(total[i, 0]), said.shape[1], most, alpha, beam)
            for i in range(lines)
        ):
            scores = module.decode(said, carry).scores[:, -1].float().log_softmax(dim=-1)
            scores[:, PAD] = -1e9
            every = (total.reshape(-1, 1) + scores).reshape(lines, -1)
            top, place = every.topk(2 * beam, dim=-1)
            vocab = scores.shape[-1]
            said, total = _next_beams(said, top, place, vocab, ended, beam, alpha)
    return [_best(ended[i], said[i * beam], float(total[i, 0]), alpha) for i in range(lines)]


def _next_beams(
    said: Any,
    top: Any,
    place: Any,
    vocab: int,
    ended: list[list[tuple[float, list[int]]]],
    beam: int,
    alpha: float,
) -> tuple[Any, Any]:
    """Beams that go on, and of each line those that end here."""
    import torch

    rows, values = [], []
    lists, scores = place.tolist(), top.tolist()
    before = said.tolist()
    for line, (places, points) in enumerate(zip(lists, scores, strict=True)):
        kept: list[tuple[int, int, float]] = []
        for rank, (at, point) in enumerate(zip(places, points, strict=True)):
            parent, token = line * beam + at // vocab, at % vocab
            if token == END:
                if rank < beam:
                    tokens = before[parent][1:]
                    ended[line].append((point / length_penalty(len(tokens) + 1, alpha), tokens))
            elif len(kept) < beam:
                kept.append((parent, token, point))
        while len(kept) < beam:  # every likely token ends the line
            kept.append((line * beam, END, -1e9))
        rows += [[*before[parent], token] for parent, token, _ in kept]
        values.append([point for _, _, point in kept])
    return torch.tensor(rows, device=said.device), torch.tensor(values, device=said.device)


def _settled(
    ended: Sequence[tuple[float, list[int]]],
    best: float,
    length: int,
    most: int,
    alpha: float,
    beam: int,
) -> bool:
    """Whether no beam of a line can still beat the best that ended."""
    if len(ended) < beam:
        return False
    limit = best / length_penalty(most if alpha > 0.0 else length, alpha)
    return max(score for score, _ in ended) >= limit


def _best(
    ended: Sequence[tuple[float, list[int]]], going: Any, total: float, alpha: float
) -> list[int]:
    """The best line that ended, else the best beam as far as it came."""
    tokens = going.tolist()[1:]
    if ended:
        tokens = max(ended, key=lambda one: one[0])[1]
    return [token for token in tokens if token not in (PAD, END)]


if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Translator:
    """A model with its byte pairs, out of the folder of a run."""

    def __init__(self, folder: str | Path, *, device: str = "auto", last: bool = False) -> None:
        """The best weights, or with `last` those of the last checkpoint."""
        need_torch()
        need_tokenizers()
        from foretell import zoo

        path = Path(folder)
        settings = read_settings(path)
        name = CHECKPOINT if last else BEST
        if settings is None or not (path / name).exists():
            what = "has no trained model" if settings is None else f"has no {name} yet"
            raise bad_input("folder", str(path), what, "a folder of foretell translate train")
        self.device = chosen_device(device)
        self.max_source, self.max_target = settings["max_source"], settings["max_target"]
        self.tokenizer: Tokenizer = read_tokenizer(path)
        self.module = zoo.build(read_model(path), fused=True)
        weights = load_tensors(path / name, "cpu")
        try:
            self.module.load_state_dict(weights["module"])
        except (KeyError, RuntimeError) as error:
            raise bad_input(
                "folder", str(path / name), f"does not fit the model: {error}"
            ) from None
        self.module.to(self.device).eval()

    def translate(
        self,
        lines: Sequence[str],
        batch: int = 64,
        report: Callable[[int, int], None] | None = None,
        *,
        beam: int = 1,
        alpha: float = 0.6,
    ) -> list[str]:
        """One line for each; blank lines stay blank. Lines over the limit are cut at it.

        One beam takes the likeliest token at each place; more are ranked with the length penalty `alpha`.
        """
        ids = [e.ids[: self.max_source - 1] for e in self.tokenizer.encode_batch(list(lines))]
        order = sorted(
            (i for i, one in enumerate(ids) if lines[i].strip()), key=lambda i: len(ids[i])
        )
        out = [""] * len(lines)
        for start in range(0, len(order), batch):
            group = order[start : start + batch]
            found = self._tokens([[*ids[i], END] for i in group], beam, alpha)
            for i, one in zip(group, found, strict=True):
                out[i] = self.tokenizer.decode(one).strip()
            if report is not None:
                report(start + len(group), len(order))
        return out

    def _tokens(self, sources: list[list[int]], beam: int, alpha: float) -> list[list[int]]:
        if beam == 1:
            return greedy_tokens(self.module, sources, self.max_target, self.device)
        return beam_tokens(
            self.module, sources, self.max_target, self.device, beam=beam, alpha=alpha
        )


def present_of(source: Any) -> Any:
    """Where a padded source has tokens; none where it has them everywhere, which is faster."""
    present = source != PAD
    return None if bool(present.all()) else present


def chosen_device(asked: str) -> str:
    """cuda where there is one, unless a device is named; BadInput where it is not there."""
    import torch

    if asked == "cuda" and not torch.cuda.is_available():
        raise bad_input("device", asked, "torch finds no GPU here", "cpu, auto")
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


BLEU_SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"
CHRF_SIGNATURE = "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"
"""What sacreBLEU prints of these settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BleuScore:
    """BLEU and what it is made of."""

    bleu: float
    """0 to 100."""
    precisions: tuple[float, ...]
    """Of one to four words in a row, percent."""
    brevity_penalty: float
    """1 where translations are as long as the references, less where shorter."""
    hypothesis_words: int
    """Words of the translations."""
    reference_words: int
    """Words of the references."""

    to_dict = as_json()


def need_sacrebleu() -> None:
    """Raise BadInput where it is not installed."""
    if find_spec("sacrebleu") is None:
        what, how = "scores need sacreBLEU", "pip install 'foretell[translate]'"
        raise bad_input("sacrebleu", None, what, how)


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> BleuScore:
    """BLEU of all lines together, one reference each."""
    import sacrebleu

    _same_length(hypotheses, references)
    found = sacrebleu.corpus_bleu(list(hypotheses), [list(references)])
    return BleuScore(
        bleu=found.score,
        precisions=tuple(found.precisions),
        brevity_penalty=found.bp,
        hypothesis_words=found.sys_len,
        reference_words=found.ref_len,
    )


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """chrF2 of all lines together."""
    import sacrebleu

    _same_length(hypotheses, references)
    return float(sacrebleu.corpus_chrf(list(hypotheses), [list(references)]).score)


def exact_match(found: Sequence[str], wanted: Sequence[str]) -> float:
    """Share of the lines that are stated exactly so."""
    right = sum(a.strip() == b.strip() for a, b in zip(found, wanted, strict=True))
    return right / max(len(wanted), 1)


def _same_length(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        message = f"{len(hypotheses):,} translations of {len(references):,} references"
        raise bad_input("target", None, message, "files whose lines belong together one by one")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationScores:
    """Scores of one model on one text."""

    folder: str
    """The run."""
    lines: int
    """Lines translated."""
    beam: int
    """Beams; 1 is greedy."""
    length_penalty: float
    """Exponent of the length penalty."""
    bleu: float
    """BLEU, percent."""
    chrf: float
    """chrF2, percent."""
    exact: float
    """Share of lines that are exactly the reference."""
    precisions: tuple[float, ...]
    """BLEU's precisions of one to four words in a row, percent."""
    brevity_penalty: float
    """BLEU's penalty of short translations."""
    bleu_signature: str = BLEU_SIGNATURE
    """Settings of BLEU as sacreBLEU writes them."""
    chrf_signature: str = CHRF_SIGNATURE
    """Settings of chrF as sacreBLEU writes them."""
    translations: tuple[str, ...] = field(default=(), repr=False)
    """The lines themselves."""

    to_dict = as_json(without=("translations",))


def evaluate(
    question: ScoresQuestion, report: Callable[[int, int], None] | None = None
) -> TranslationScores:
    """Translate a text and score it; without a text, the lines that training held out."""
    _check(question)
    need_sacrebleu()
    folder, source, target = question.folder, question.source, question.target
    translator = Translator(folder, device=question.device, last=question.last)
    pairs = _pairs(Path(folder), source, target)[: question.lines]
    beam, alpha = question.beam, question.length_penalty
    lines = [a for a, _ in pairs]
    said = translator.translate(lines, question.batch, report, beam=beam, alpha=alpha)
    wanted = [b for _, b in pairs]
    bleu = corpus_bleu(said, wanted)
    return TranslationScores(
        folder=str(folder),
        lines=len(pairs),
        beam=beam,
        length_penalty=alpha,
        bleu=bleu.bleu,
        chrf=corpus_chrf(said, wanted),
        exact=exact_match(said, wanted),
        precisions=bleu.precisions,
        brevity_penalty=bleu.brevity_penalty,
        translations=tuple(said),
    )


def _check(question: ScoresQuestion) -> None:
    """Numbers in range and both files or none; every problem at once."""
    problems = problems_in(question)
    if (question.source is None) != (question.target is None):
        missing = "source" if question.source is None else "target"
        allowed = "both files, or none for the lines held out in training"
        problems.append(wrong(missing, None, "missing", allowed))
    if problems:
        raise BadInput(problems)


def _pairs(folder: Path, source: str | None, target: str | None) -> list[tuple[str, str]]:
    """Lines of the files, or those that the run held out."""
    if source is not None and target is not None:
        return read_pairs(Path(source), Path(target))
    asked = read_settings(folder) or {}
    text = read_pairs(Path(asked.get("source", "")), Path(asked.get("target", "")))
    return list(split(text, float(asked["held_out"]), int(asked["seed"])).held_out)
