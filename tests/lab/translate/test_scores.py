"""BLEU and chrF are sacreBLEU's; beams find at least what greedy search finds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.translate.decode import corpus_bleu, corpus_chrf, exact_match, length_penalty

# (translations, references, BLEU, chrF2) by sacreBLEU 2.6.0 with its defaults.
GOLDEN = [
    (
        ["the cat sat on the mat .", "There are 3,000 cats in the U.S. today"],
        ["the cat sat on a mat .", "There were 3,000 cats in the U.S. yesterday, she said."],
        50.93261426257064,
        58.04247115761619,
    ),
]
LINES = st.lists(st.text(alphabet="ab 1.,-&", max_size=20), min_size=1, max_size=6)


@pytest.mark.parametrize(("said", "wanted", "bleu", "chrf"), GOLDEN)
def test_published_scores(said: list[str], wanted: list[str], bleu: float, chrf: float) -> None:
    assert corpus_bleu(said, wanted).bleu == pytest.approx(bleu, abs=1e-9)
    assert corpus_chrf(said, wanted) == pytest.approx(chrf, abs=1e-9)


@given(wanted=LINES)
def test_bounds(wanted: list[str]) -> None:
    whole = corpus_bleu(wanted, wanted)
    assert 0.0 <= whole.bleu <= 100.0 + 1e-9
    assert whole.brevity_penalty == 1.0
    if any(len(line.split()) >= 4 for line in wanted):
        assert whole.bleu == pytest.approx(100.0)
    if any("".join(line.split()) for line in wanted):
        assert corpus_chrf(wanted, wanted) == pytest.approx(100.0)
    assert corpus_bleu(["zz"] * len(wanted), wanted).bleu == 0.0
    assert exact_match(wanted, wanted) == 1.0


def test_lines_must_belong_together() -> None:
    with pytest.raises(BadInput, match="2 translations of 1 references"):
        corpus_bleu(["a", "b"], ["a"])


def test_the_length_penalty_favours_nothing_at_zero() -> None:
    assert length_penalty(7, 0.0) == 1.0
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(20, 0.6) > length_penalty(10, 0.6)


class Table:
    """A model of three words whose scores depend on the last two tokens alone."""

    def __init__(self, seed: int) -> None:
        self.scores = np.random.default_rng(seed).normal(size=(7, 7, 7)) * 2.0
        self.scores[..., 0] = -1e9  # no line has padding inside

    def encode(self, source, present):  # type: ignore[no-untyped-def]
        del source, present

    def decode(self, said, carry):  # type: ignore[no-untyped-def]
        import torch

        del carry
        before = torch.nn.functional.pad(said, (1, 0))
        table = torch.tensor(self.scores)
        found = table[before[:, -2], said[:, -1]][:, None]
        return type("Output", (), {"scores": found})()


@pytest.mark.parametrize("seed", range(6))
def test_wide_beams_find_the_likeliest_line(seed: int) -> None:
    """With as many beams as there are lines, the best line of all; one beam is greedy search."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from itertools import product

    from foretell.lab.translate.decode import beam_tokens, greedy_tokens
    from foretell.lab.translate.text import END, PAD, START

    model, most, alpha = Table(seed), 5, 0.6

    def likelihood(tokens: tuple[int, ...]) -> float:
        said, total = [START], 0.0
        for token in (*tokens, END):
            scores = model.decode(torch.tensor([said]), None).scores[0, -1].log_softmax(-1)
            total += float(scores[token])
            said.append(token)
        return total / length_penalty(len(tokens) + 1, alpha)

    words = [t for t in range(7) if t not in (PAD, END)]
    lines = [line for n in range(most - 1) for line in product(words, repeat=n)]
    best = max(lines, key=likelihood)
    [found] = beam_tokens(model, [[3]], most, "cpu", beam=200, alpha=alpha)
    assert likelihood(tuple(found)) == pytest.approx(likelihood(best))
    [greedy] = greedy_tokens(model, [[3]], most, "cpu")
    [one] = beam_tokens(model, [[3]], most, "cpu", beam=1, alpha=0.0)
    assert one == greedy or len(greedy) == most - 1


def test_weights_of_the_authors_code_come_in(tmp_path: Path) -> None:
    """Arrays in Keras's layout and order give a module the weights they were made from."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from foretell import zoo
    from foretell.catalog.models import model
    from foretell.lab.translate.keras_weights import module_weights, read_arrays
    from foretell.lab.translate.settings import TranslationSizes, resize_model
    from tests.lab.translate.keras_layout import keras_arrays

    sizes = TranslationSizes(width=32, layers=2, heads=4, ffn=48, vocab=40)
    for name in ("anthe", "anthe-no-tc", "transformer-base-tied", "transformer-base-untied"):
        record = resize_model(model(name), sizes)
        torch.manual_seed(1)
        module = zoo.build(record)
        state = {key: value.numpy() for key, value in module.state_dict().items()}
        path = tmp_path / f"{name}.npz"
        np.savez(path, **keras_arrays(record, state))
        found = module_weights(record, read_arrays(path))
        assert found.keys() == state.keys()
        assert all(np.array_equal(found[key], state[key]) for key in state)
