"""Every example that a help page shows can be typed."""

import shlex
from pathlib import Path

import pytest

from foretell.cli.app import EXAMPLES, VERBS, make_app
from tests.surfaces.command import foretell

WITH_VERBS = {
    "catalog",
    "reference",
    "validate",
    "calibrate",
    "cost",
    "characterize",
    "translate",
    "lab",
}
"""Verbs that have verbs of their own."""
ALONE = {"ui", "mcp", "doctor", "completion"}
"""Verbs that are typed as they are."""
QUICK = ("estimate", "memory", "explain", "compare-plans", "network", "serve", "cost package")


def test_every_verb_has_one() -> None:
    alone = {verb for verb in EXAMPLES if " " not in verb}
    assert alone == set(VERBS) - WITH_VERBS - ALONE
    assert {verb.split()[0] for verb in EXAMPLES} == set(VERBS) - ALONE - {"validate", "lab"}


@pytest.mark.parametrize("verb", EXAMPLES)
def test_it_is_understood(verb: str, root: Path) -> None:
    words = shlex.split(EXAMPLES[verb])
    make_app().parse_args([*verb.split(), *words], exit_on_error=False, print_error=False)
    assert all((root / word).is_file() for word in words if word.startswith("examples/"))


@pytest.mark.parametrize("verb", QUICK)
def test_it_is_answered(verb: str) -> None:
    assert foretell(*verb.split(), *shlex.split(EXAMPLES[verb])).code == 0


@pytest.mark.parametrize("verb", EXAMPLES)
def test_help_shows_it(verb: str) -> None:
    shown = " ".join(foretell(*verb.split(), "--help").out.split())
    assert f"For example: foretell {verb} {EXAMPLES[verb]}" in shown
