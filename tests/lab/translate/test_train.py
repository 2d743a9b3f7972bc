"""Training, going on, and translating, with models that take a second."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.lab.translate.settings import TranslationSizes, resize_model, with_form
from foretell.lab.translate.synthetic import make_pairs
from tests.surfaces.command import foretell

torch = pytest.importorskip("torch", reason="torch is not installed: there is nothing to train")
pytest.importorskip("tokenizers", reason="tokenizers is not installed: there are no byte pairs")
from foretell.lab.translate import text as run_files  # noqa: E402
from foretell.lab.translate.decode import Translator, exact_match  # noqa: E402
from foretell.lab.translate.settings import TranslationSettings  # noqa: E402
from foretell.lab.translate.train import train  # noqa: E402

TINY = TranslationSizes(width=16, layers=1, heads=2, ffn=32, vocab=300)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("text")
    pairs = list(make_pairs(400, words=8))
    paths = folder / "source.txt", folder / "target.txt"
    for path, side in zip(paths, (0, 1), strict=True):
        path.write_text("".join(pair[side] + "\n" for pair in pairs))
    return paths


@pytest.fixture
def tiny(text: tuple[Path, Path]) -> TranslationSettings:
    return TranslationSettings(
        source=str(text[0]),
        target=str(text[1]),
        **asdict(TINY),
        batch=16,
        rate=3e-3,
        steps=8,
        evaluate_every=4,
        device="cpu",
    )


@pytest.mark.parametrize("model", ["transformer-base-tied", "anthe"])
def test_both_learn(model: str, tiny: TranslationSettings, tmp_path: Path) -> None:
    """From the loss of a blind guess (ln 300 = 5.7) well below that of the commonest tokens."""
    found = train(
        replace(
            tiny, model=model, width=32, ffn=64, steps=70, evaluate_every=35, dropout=0.0, rate=1e-2
        ),
        tmp_path,
    )
    first, last = (row["held_out_loss"] for row in (found.history[0], found.history[-1]))
    assert last < 3.2
    assert last < first - 0.1
    assert found.stopped == "steps"
    assert found.lines["train"] + found.lines["held_out"] + found.lines["too_long"] == 400


def test_an_ended_run_goes_on_as_if_it_had_not(tiny: TranslationSettings, tmp_path: Path) -> None:
    """Weights, losses and dropout are those of a run in one go, to the bit."""
    whole = train(tiny, tmp_path / "whole")
    train(replace(tiny, steps=3), tmp_path / "parts")
    parts = train(tiny, tmp_path / "parts")
    assert [row["held_out_loss"] for row in whole.history] == [
        row["held_out_loss"] for row in parts.history if row["step"] != 3
    ]
    one, other = (
        run_files.load_tensors(tmp_path / name / run_files.CHECKPOINT, "cpu")["module"]
        for name in ("whole", "parts")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_interrupted_run_keeps_what_it_did(tiny: TranslationSettings, tmp_path: Path) -> None:
    def stop(done: int, most: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny, tmp_path, stop)
    place = run_files.load_tensors(tmp_path / run_files.CHECKPOINT, "cpu")["place"]
    assert place["step"] == 5
    assert train(tiny, tmp_path).steps == 8


def test_patience_ends_a_run(tiny: TranslationSettings, tmp_path: Path) -> None:
    """At a rate that only hurts, the run ends after `patience` evaluations without a better loss."""
    found = train(replace(tiny, rate=1.0, steps=40, evaluate_every=1, patience=2), tmp_path)
    assert found.stopped == "patience"
    assert found.steps < 40
    best = min(range(len(found.history)), key=lambda i: found.history[i]["held_out_loss"])
    assert len(found.history) == best + 3


def test_other_settings_are_refused(tiny: TranslationSettings, tmp_path: Path) -> None:
    train(replace(tiny, steps=1), tmp_path)
    with pytest.raises(BadInput, match="other settings: batch, rate"):
        train(replace(tiny, rate=0.1, batch=7), tmp_path)
    assert train(replace(tiny, steps=2), tmp_path).steps == 2


def test_a_damaged_checkpoint_is_named(tiny: TranslationSettings, tmp_path: Path) -> None:
    train(replace(tiny, steps=1), tmp_path)
    path = tmp_path / run_files.CHECKPOINT
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadInput, match="is damaged"):
        train(tiny, tmp_path)


def test_a_checkpoint_cannot_run_code(tiny: TranslationSettings, tmp_path: Path) -> None:
    """A pickle that would create a file when loaded is refused, and creates none."""
    train(replace(tiny, steps=1), tmp_path)
    trap = tmp_path / "trapped"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(trap), "w")

    torch.save({"module": Trap()}, tmp_path / run_files.BEST)
    with pytest.raises(BadInput, match="is damaged or is no checkpoint"):
        Translator(tmp_path)
    assert not trap.exists()


def test_every_line_is_translated(tiny: TranslationSettings, tmp_path: Path) -> None:
    train(replace(tiny, steps=2), tmp_path)
    translator = Translator(tmp_path, device="cpu")
    lines = ["the bat .", "", "語", "a " * 300]
    found = translator.translate(lines, batch=2)
    assert len(found) == 4
    assert found[1] == ""
    assert found == [translator.translate([line])[0] for line in lines]
    assert exact_match(found, found) == 1.0


def test_a_learned_text_is_said_back(tmp_path: Path) -> None:
    """A few sentences learned by heart are translated without a mistake."""
    pairs = [("one two", "eins zwei"), ("three four", "drei vier"), ("two three", "zwei drei")]
    for name, side in (("a", 0), ("b", 1)):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs * 30))
    settings = TranslationSettings(
        source=str(tmp_path / "a"),
        target=str(tmp_path / "b"),
        model="anthe",
        **asdict(replace(TINY, width=32, vocab=265)),
        batch=20,
        rate=1e-2,
        dropout=0.0,
        steps=60,
        held_out=0.3,
        evaluate_every=60,
        device="cpu",
    )
    train(settings, tmp_path / "run")
    known = [p for p in pairs if p[0] not in _held_out(tmp_path / "run", pairs)]
    found = Translator(tmp_path / "run", device="cpu").translate([a for a, _ in known])
    assert exact_match(found, [b for _, b in known]) == 1.0


def _held_out(folder: Path, pairs: list[tuple[str, str]]) -> set[str]:
    from foretell.lab.translate.text import split

    return {a for a, _ in split(pairs * 30, 0.3, 0).held_out}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch": 0}, "batch"),
        ({"rate": float("nan")}, "rate"),
        ({"dropout": 1.0}, "dropout"),
        ({"held_out": 0.0}, "held_out"),
        ({"steps": 0}, "steps"),
        ({"heads": 3}, "3 heads cannot share"),
        ({"width": 18, "heads": 2}, "levels"),
        ({"width": 0}, "width"),
        ({"model": "llama-3.1-8b"}, "encoder-decoder"),
        ({"model": "anthee"}, "anthe"),
        ({"max_source": 2}, "short enough"),
        ({"vocab": 100_000}, "too large for the text"),
    ],
)
def test_mistakes_are_named(
    change: dict[str, object], said: str, tiny: TranslationSettings, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=said):
        train(replace(tiny, **change), tmp_path)  # type: ignore[arg-type]


def test_sizes_and_forms() -> None:
    from foretell.catalog.models import model
    from foretell.workload.parameters import count

    record = model("anthe")
    assert resize_model(record, TranslationSizes()) == record
    small = resize_model(record, TINY)
    assert small.stack.hidden == 16
    assert small.stack.layers[0].ffn.width == 21
    assert count(with_form(small, "build")) == count(with_form(small, "contract")) == count(small)


def test_commands(text: tuple[Path, Path], tmp_path: Path) -> None:
    """Text is made, a model trained and used, all by the command line; exit codes and JSON."""
    source, target, out = tmp_path / "a", tmp_path / "b", tmp_path / "run"
    made = foretell(
        "translate",
        "make-text",
        "--source",
        str(source),
        "--target",
        str(target),
        "--lines",
        "60",
        "--words",
        "5",
        "--json",
    )
    assert made.code == 0
    assert made.json["lines"] == len(source.read_text().splitlines()) == 60
    given = (
        "translate",
        "train",
        "--source",
        str(source),
        "--target",
        str(target),
        "--out",
        str(out),
        "--vocab",
        "280",
        "--width",
        "16",
        "--layers",
        "1",
        "--heads",
        "2",
        "--ffn",
        "32",
        "--steps",
        "2",
        "--device",
        "cpu",
    )
    trained = foretell(*given, "--json")
    assert trained.code == 0
    assert trained.json["steps"] == 2
    assert trained.json["perplexity"] > 1.0
    assert json.loads((out / "history.jsonl").read_text().splitlines()[-1])["step"] == 2
    ran = foretell("translate", "run", str(out), "--file", str(source), "--device", "cpu", "--json")
    assert ran.code == 0
    assert len(ran.json) == 60
    bad = foretell(*given[:-4], "--steps", "0")
    assert (bad.code, bad.out) == (2, "")
    none = foretell("translate", "run", str(tmp_path))
    assert (none.code, none.out) == (2, "")
    assert "trained model" in none.err
    same = foretell("translate", "make-text", "--source", str(source), "--target", str(source))
    assert same.code == 2
