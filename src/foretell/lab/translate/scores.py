"""BLEU and chrF of translations, as sacreBLEU counts them with its defaults (Post 2018, WMT).

BLEU (Papineni et al. 2002): words by mteval's rules 13a, one to four in a row, case kept, counted over all
lines; a count of no match is smoothed exponentially. chrF2 (Popovic 2015): characters, one to six in a row,
blanks left out, recall twice as heavy as precision. Both are percentages.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from foretell.errors import bad_input
from foretell.records import as_json, dataclass

WORDS, CHARACTERS, BETA = 4, 6, 2.0
"""Longest rows of words and of characters, and how much recall weighs."""
BLEU_SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"
CHRF_SIGNATURE = "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"
"""What sacreBLEU would print of these settings."""
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_RULES = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
"""mteval-v13a: punctuation stands alone, but for points and commas within numbers."""


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


def words_13a(line: str) -> list[str]:
    """Words of a line by the rules of mteval-v13a."""
    line = line.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    if "&" in line:
        for entity, sign in _ENTITIES:
            line = line.replace(entity, sign)
    line = f" {line} "
    for pattern, instead in _RULES:
        line = pattern.sub(instead, line)
    return line.split()


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> BleuScore:
    """BLEU of all lines together, one reference each."""
    _same_length(hypotheses, references)
    correct, total = [0] * WORDS, [0] * WORDS
    long = short = 0
    for said, wanted in zip(hypotheses, references, strict=True):
        found, known = words_13a(said.rstrip()), words_13a(wanted.rstrip())
        short, long = short + len(found), long + len(known)
        for n in range(1, WORDS + 1):
            rows, there = Counter(_rows(found, n)), Counter(_rows(known, n))
            correct[n - 1] += sum(min(count, there[row]) for row, count in rows.items())
            total[n - 1] += max(len(found) - n + 1, 0)
    penalty = 1.0 if short >= long else (math.exp(1.0 - long / short) if short else 0.0)
    precisions = _precisions(correct, total)
    score = 0.0
    if any(correct):
        logs = [math.log(p) if p > 0.0 else -9999999999.0 for p in precisions]
        score = penalty * math.exp(sum(logs) / WORDS)
    return BleuScore(
        bleu=score,
        precisions=tuple(precisions),
        brevity_penalty=penalty,
        hypothesis_words=short,
        reference_words=long,
    )


def _precisions(correct: Sequence[int], total: Sequence[int]) -> list[float]:
    """Percent of rows that match; the k-th length without a match counts as 1 / (2^k rows)."""
    found, halves = [0.0] * WORDS, 1.0
    if not any(correct):
        return found
    for i, (right, many) in enumerate(zip(correct, total, strict=True)):
        if not many:
            break
        if right:
            found[i] = 100.0 * right / many
        else:
            halves *= 2.0
            found[i] = 100.0 / (halves * many)
    return found


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """chrF2 of all lines together."""
    _same_length(hypotheses, references)
    match, mine, theirs = [0] * CHARACTERS, [0] * CHARACTERS, [0] * CHARACTERS
    for said, wanted in zip(hypotheses, references, strict=True):
        found, known = "".join(said.split()), "".join(wanted.split())
        for n in range(1, CHARACTERS + 1):
            rows, there = Counter(_rows(found, n)), Counter(_rows(known, n))
            match[n - 1] += sum(min(count, there[row]) for row, count in rows.items())
            mine[n - 1] += sum(rows.values()) if there else 0  # no reference is that long
            theirs[n - 1] += sum(there.values())
    usable = [i for i in range(CHARACTERS) if mine[i] and theirs[i]]
    if not usable:
        return 0.0
    precision = sum(match[i] / mine[i] for i in usable) / len(usable)
    recall = sum(match[i] / theirs[i] for i in usable) / len(usable)
    if not precision + recall:
        return 0.0
    weight = BETA**2
    return 100.0 * (1.0 + weight) * precision * recall / (weight * precision + recall)


def exact_match(found: Sequence[str], wanted: Sequence[str]) -> float:
    """Share of the lines that are said exactly so."""
    right = sum(a.strip() == b.strip() for a, b in zip(found, wanted, strict=True))
    return right / max(len(wanted), 1)


def _rows(items: Sequence[str] | str, n: int) -> Iterable[tuple[str, ...]]:
    """Every n items in a row."""
    return (tuple(items[i : i + n]) for i in range(len(items) - n + 1))


def _same_length(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        message = f"{len(hypotheses):,} translations of {len(references):,} references"
        allowed = "files whose lines belong together one by one"
        raise bad_input("target", None, message, allowed)
