"""BLEU and chrF of translations by sacreBLEU with its defaults (Post 2018, WMT), both as percentages.

BLEU: words by mteval's rules 13a, one to four in a row, case kept, counted over all lines. chrF2: characters,
one to six in a row, blanks left out, recall twice as heavy as precision.
"""

from collections.abc import Sequence
from importlib.util import find_spec

from foretell.errors import bad_input
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
