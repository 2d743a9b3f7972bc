"""Text of our own: two small languages with grammar, for runs that need no download.

A sentence is drawn as a tree (tense, subject, verb, object, place, clause) and stated twice:

    source   subject verb object place: articles, adjectives before their noun, plural in -s, tense by a
             helper word before the verb, `not` behind it, relative clauses with `that`
    target   place subject object verb: no articles; adjectives behind their noun, agreeing in class (three)
             and number; objects marked by a suffix that depends on the class; the verb agrees with its
             subject in number and carries tense and negation; relative clauses come before their noun

so that translating takes a lexicon, reordering over distances, agreement and memory. Words are made of
syllables; one seed makes one pair of languages and its sentences.
"""

import random
from collections.abc import Iterator

from foretell.records import dataclass

CLASSES = ("o", "a", "u")
"""Endings of the target's three noun classes."""
PLURAL = "ri"
OBJECT = {"o": "n", "a": "m", "u": "th"}
"""Suffix of an object of each class."""
TENSES = {"past": ("did", "ka"), "now": ("", ""), "later": ("will", "se")}
"""Helper word of the source, suffix of the target."""
NOT = ("not", "nu")
CLAUSES = 0.15
"""Share of the noun phrases that have a relative clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun:
    """A word of both languages with its class in the target."""

    source: str
    """In the source, singular."""
    target: str
    """Stem in the target."""
    ending: str
    """Class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexicon:
    """All words."""

    nouns: tuple[Noun, ...]
    """Things."""
    verbs: tuple[tuple[str, str], ...]
    """What they do to each other: (source, target)."""
    adjectives: tuple[tuple[str, str], ...]
    """How they are."""
    places: tuple[tuple[str, str], ...]
    """Words before a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A noun with what belongs to it."""

    noun: Noun
    """The noun."""
    adjectives: tuple[tuple[str, str], ...]
    """Its adjectives."""
    many: bool
    """Whether it is plural."""
    definite: bool
    """Whether the source says `the`."""
    clause: tuple[tuple[str, str], "Phrase"] | None
    """A verb and its object: the relative clause."""


def make_pairs(lines: int, seed: int = 0, words: int = 120) -> Iterator[tuple[str, str]]:
    """`lines` sentences in both languages; `words` is the number of nouns, others follow from it."""
    rng = random.Random(seed)
    lexicon = make_lexicon(rng, words)
    for _ in range(lines):
        yield _sentence(rng, lexicon)


def make_lexicon(rng: random.Random, words: int) -> Lexicon:
    """Distinct words of two or three syllables, different ones in each language."""
    source = _words(rng, "bcdfghklmnprstvw", "aeiou", ("", "n", "r", "t", "sk"))
    target = _words(rng, "bdghjklmnpqrtvxz", "aeiouy", ("", "l", "s"))
    nouns = tuple(
        Noun(source=next(source), target=next(target), ending=rng.choice(CLASSES))
        for _ in range(words)
    )

    def pairs(many: int) -> tuple[tuple[str, str], ...]:
        return tuple((next(source), next(target)) for _ in range(many))

    return Lexicon(
        nouns=nouns,
        verbs=pairs(max(words // 2, 1)),
        adjectives=pairs(max(words // 3, 1)),
        places=pairs(6),
    )


def _words(rng: random.Random, first: str, vowels: str, last: tuple[str, ...]) -> Iterator[str]:
    seen: set[str] = set()
    while True:
        many = 2 if rng.random() < 0.7 else 3
        word = "".join(rng.choice(first) + rng.choice(vowels) for _ in range(many))
        word += rng.choice(last)
        if word not in seen:
            seen.add(word)
            yield word


def _phrase(rng: random.Random, lexicon: Lexicon, clauses: float = CLAUSES) -> Phrase:
    clause = None
    if rng.random() < clauses:
        clause = (rng.choice(lexicon.verbs), _phrase(rng, lexicon, 0.0))
    return Phrase(
        noun=rng.choice(lexicon.nouns),
        adjectives=tuple(
            rng.choice(lexicon.adjectives) for _ in range(rng.choice((0, 0, 1, 1, 2)))
        ),
        many=rng.random() < 0.4,
        definite=rng.random() < 0.6,
        clause=clause,
    )


def _sentence(rng: random.Random, lexicon: Lexicon) -> tuple[str, str]:
    subject, thing = _phrase(rng, lexicon), _phrase(rng, lexicon)
    verb, tense = rng.choice(lexicon.verbs), rng.choice([*TENSES])
    negated = rng.random() < 0.25
    place = (rng.choice(lexicon.places), _phrase(rng, lexicon, 0.0)) if rng.random() < 0.4 else None
    source = [
        *_said(subject),
        *_verb(verb, subject, tense, negated),
        *_said(thing),
        *([] if place is None else [place[0][0], *_said(place[1])]),
    ]
    target = [
        *([] if place is None else [*_told(place[1], "place"), place[0][1]]),
        *_told(subject, "subject"),
        *_told(thing, "object"),
        _inflected(verb, subject, tense, negated),
    ]
    return " ".join(source) + " .", " ".join(target) + " ."


def _said(phrase: Phrase) -> list[str]:
    """The source's noun phrase."""
    article = ["the"] if phrase.definite else [] if phrase.many else ["a"]
    words = [*article, *(word for word, _ in phrase.adjectives)]
    words.append(phrase.noun.source + ("s" if phrase.many else ""))
    if phrase.clause is not None:
        verb, thing = phrase.clause
        words += ["that", verb[0] + ("" if phrase.many else "s"), *_said(thing)]
    return words


def _verb(verb: tuple[str, str], subject: Phrase, tense: str, negated: bool) -> list[str]:
    """The source's verb with its helper words."""
    helper = TENSES[tense][0]
    ending = "" if helper or subject.many else "s"
    return [*([helper] if helper else []), verb[0] + ending, *([NOT[0]] if negated else [])]


def _told(phrase: Phrase, role: str) -> list[str]:
    """The target's noun phrase: clause, noun, adjectives that agree with it."""
    number = PLURAL if phrase.many else ""
    marked = OBJECT[phrase.noun.ending] if role == "object" else ""
    words = []
    if phrase.clause is not None:
        verb, thing = phrase.clause
        words += [*_told(thing, "object"), verb[1] + number + "qe"]
    words.append(phrase.noun.target + phrase.noun.ending + number + marked)
    return words + [stem + phrase.noun.ending + number for _, stem in phrase.adjectives]


def _inflected(verb: tuple[str, str], subject: Phrase, tense: str, negated: bool) -> str:
    """The target's verb: stem, number of the subject, tense, negation, in one word."""
    number = PLURAL if subject.many else ""
    return verb[1] + number + TENSES[tense][1] + (NOT[1] if negated else "")
