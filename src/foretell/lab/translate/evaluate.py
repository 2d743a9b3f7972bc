"""Scores of a trained model on lines it has not seen: BLEU, chrF, and lines that are exactly right."""

from collections.abc import Callable, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path

from foretell.errors import BadInput, bad_input, wrong
from foretell.lab.translate.decode import Translator
from foretell.lab.translate.settings import ScoresQuestion, problems_in
from foretell.lab.translate.text import read_pairs, read_settings, split
from foretell.records import as_json, dataclass

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
        allowed = "files whose lines belong together one by one"
        raise bad_input("target", None, message, allowed)


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
