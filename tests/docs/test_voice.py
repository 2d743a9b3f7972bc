"""Foretell speaks plain technical English: phrases of its private vocabulary are on no surface."""

import pytest

from tests.voice import (
    DOCSTRINGS,
    PHRASES,
    Line,
    commands,
    docstrings,
    found,
    messages,
    page_texts,
    pages,
)


def test_readme_and_pages_use_the_words_of_the_field() -> None:
    """The Python reference is among them: docstrings of public names."""
    assert found(pages()) == []


def test_messages_labels_and_help_use_the_words_of_the_field() -> None:
    assert found(messages()) == []
    assert found(commands()) == []


def test_the_web_page_uses_the_words_of_the_field() -> None:
    assert found(page_texts()) == []


def test_docstrings_use_the_words_of_the_field() -> None:
    assert found(docstrings(), DOCSTRINGS) == []


def test_every_surface_has_lines() -> None:
    """A walk that finds nothing to read would find nothing wrong."""
    surfaces = ((pages, 5000), (messages, 3000), (commands, 40), (page_texts, 300))
    for surface, least in (*surfaces, (docstrings, 15_000)):
        assert sum(1 for line in surface() if line.text.strip()) >= least


@pytest.mark.parametrize(
    "text",
    [
        "requests are played one by one", "64 requests in flight", "2 x tp4 for prompts",
        "within the service levels", "memory is lost", "rate of the plain units",
        "waits for exchanges", "bf16 products", "turned away by rule", "too close to call",
        "Take it along", "with its source left out", "a blind score", "which is told",
        "what it stands on", "The same where no price is known",
    ],
)  # fmt: skip
def test_the_walk_finds_every_phrase(text: str) -> None:
    assert len(found(iter([Line("here:1", text)]))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "micro-batches in flight on a stage", "any cross product of questions",
        "the sum of products of small cores", "y[m, n] is the product of x and w: y[m, n] = x w",
        "readers who are colour-blind", "a stand-in of the interface",
    ],
)  # fmt: skip
def test_contexts_in_which_words_are_right(text: str) -> None:
    assert found(iter([Line("here:1", text)])) == []


def test_every_phrase_says_what_to_write_instead() -> None:
    assert all(phrase.instead for phrase in PHRASES)
