"""Five variants of Anthe, three seeds each, trained on one GPU on text of our own making: loss, BLEU, chrF.

    PYTHONPATH=src:. python tests/bench/bench_anthe_h200.py --out "$OUT"      # some six minutes on an H200

Needs torch and numpy alone: words are the tokens, so that no byte pairs are trained. Each line of rows.jsonl
is one run; a run that the time does not allow is left out and said. `summary.csv` has means and spreads, in
the form of src/foretell/lab/reproduce/anthe_study.csv, to which its rows are added by hand.
"""

import argparse
import csv
import json
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from foretell.catalog.models import model as catalogue
from foretell.lab.translate.decode import (
    beam_tokens,
    corpus_bleu,
    corpus_chrf,
    exact_match,
    greedy_tokens,
)
from foretell.lab.translate.settings import TranslationSettings, TranslationSizes, resize_model
from foretell.lab.translate.synthetic import make_pairs
from foretell.lab.translate.text import END, PAD, START, EncodedPairs
from foretell.lab.translate.train import TranslationRun, chosen_device

FIVE = (
    "transformer-base-tied",
    "transformer-base-untied",
    "anthe-no-tc",
    "anthe-tc-ffn",
    "anthe",
)
FIRST = 4
"""Ids below are those of padding, start, end and unknown words."""


class WordTable:
    """Words of both languages as ids."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        words = sorted({word for pair in pairs for side in pair for word in side.split()})
        self.words = ["<pad>", "<start>", "<end>", "<unknown>", *words]
        self.ids = {word: i for i, word in enumerate(self.words)}

    def encode(self, line: str) -> list[int]:
        """Ids of a line's words."""
        return [self.ids.get(word, 3) for word in line.split()]

    def decode(self, ids: list[int]) -> str:
        """The line again."""
        return " ".join(self.words[i] for i in ids if i >= FIRST)


def encoded(table: WordTable, pairs: list[tuple[str, str]]) -> EncodedPairs:
    """Sources with their end, targets between start and end."""
    source = tuple(np.array([*table.encode(a), END], np.int32) for a, _ in pairs)
    target = tuple(np.array([START, *table.encode(b), END], np.int32) for _, b in pairs)
    return EncodedPairs(source=source, target=target, too_long=0)


def trained_row(
    name: str, seed: int, table: WordTable, text: dict[str, list[tuple[str, str]]], given: Any
) -> dict[str, Any]:
    """One run: its losses, its speed and its scores on lines it has not seen."""
    sizes = TranslationSizes(
        width=given.width, layers=given.layers, heads=8, ffn=4 * given.width, vocab=len(table.words)
    )
    record = resize_model(catalogue(name), sizes)
    settings = TranslationSettings(
        source="",
        target="",
        model=name,
        **asdict(sizes),
        batch=given.batch,
        rate=given.rate,
        dropout=0.1,
        steps=given.steps,
        evaluate_every=max(given.steps // 3, 1),
        patience=99,
        checkpoint_every=10**9,
        seed=seed,
        precision=given.precision,
        device=given.device,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = TranslationRun(settings, Path(folder), record)
        run.through(
            encoded(table, text["train"]), encoded(table, text["held"]), None, lambda _: None
        )
        run.module.eval()
        lines = text["held"][: given.score_lines]
        sources = [[*table.encode(a), END] for a, _ in lines]
        wanted = [b for _, b in lines]
        device = chosen_device(given.device)
        most = 2 + max(len(b.split()) for b in wanted) + 10
        greedy = [
            table.decode(t)
            for t in _in_parts(sources, lambda some: greedy_tokens(run.module, some, most, device))
        ]
        few = sources[: given.beam_lines]
        beams = [
            table.decode(t)
            for t in _in_parts(
                few, lambda some: beam_tokens(run.module, some, most, device, beam=4, alpha=0.6)
            )
        ]
    place = run.place
    return {
        "model": name,
        "seed": seed,
        "weights": sum(p.numel() for p in run.module.parameters()),
        "vocab": len(table.words),
        "steps": place.step,
        "held_out_loss": place.best,
        "perplexity": float(np.exp(place.best)),
        "train_s": place.seconds,
        "target_tokens_per_s": place.tokens / place.seconds,
        "bleu": corpus_bleu(greedy, wanted).bleu,
        "chrf": corpus_chrf(greedy, wanted),
        "exact": exact_match(greedy, wanted),
        "bleu_beam4": corpus_bleu(beams, wanted[: len(beams)]).bleu,
        "losses": [[row["step"], row["held_out_loss"]] for row in place.history],
    }


def _in_parts(rows: list[list[int]], call: Any, size: int = 250) -> list[list[int]]:
    return [one for i in range(0, len(rows), size) for one in call(rows[i : i + size])]


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=430.0)
    parser.add_argument("--lines", type=int, default=80_000)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--score-lines", type=int, default=1000)
    parser.add_argument("--beam-lines", type=int, default=200)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    given = parser.parse_args()
    begin, out = time.monotonic(), Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    pairs = list(dict.fromkeys(make_pairs(given.lines, 0, given.words)))
    held = max(len(pairs) // 20, 1)
    text = {"held": pairs[:held], "train": pairs[held:]}
    table = WordTable(pairs)
    assert PAD == 0
    rows: list[dict[str, Any]] = []
    longest = 0.0
    for seed in range(given.seeds):
        for name in FIVE:
            if time.monotonic() - begin + 1.2 * longest > given.seconds:
                print(f"left out for want of time: {name}, seed {seed}", flush=True)
                continue
            start = time.monotonic()
            rows.append(trained_row(name, seed, table, text, given))
            longest = max(longest, time.monotonic() - start)
            with (out / "rows.jsonl").open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            last = rows[-1]
            print(
                f"{name:26} seed {seed} {last['weights']:10,} loss {last['held_out_loss']:.4f} "
                f"BLEU {last['bleu']:.2f} beam {last['bleu_beam4']:.2f} chrF {last['chrf']:.2f} "
                f"{last['train_s']:.1f} s of {time.monotonic() - start:.1f} s",
                flush=True,
            )
    corpus = f"H200, width {given.width}, {given.steps:,} steps"
    write_summary(out / "summary.csv", rows, corpus)
    (out / "settings.json").write_text(
        json.dumps({**vars(given), "vocab": len(table.words)}, indent=1)
    )


def write_summary(path: Path, rows: list[dict[str, Any]], corpus: str) -> None:
    """Means, least and most of each model: rows of src/foretell/lab/reproduce/anthe_study.csv."""
    columns = ("held_out_loss", "bleu", "chrf")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        ends = [f"{c}{k}" for c in columns for k in ("", "_least", "_most")]
        writer.writerow(["corpus", "model", "weights", "runs", *ends])
        for name in FIVE:
            own = [row for row in rows if row["model"] == name]
            if not own:
                continue
            cells = [
                f"{value:.5g}"
                for c in columns
                for value in (
                    statistics.mean(r[c] for r in own),
                    min(r[c] for r in own),
                    max(r[c] for r in own),
                )
            ]
            writer.writerow([corpus, name, own[0]["weights"], len(own), *cells])


if __name__ == "__main__":
    main()
