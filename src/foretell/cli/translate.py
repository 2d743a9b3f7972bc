"""`foretell translate`: train a translation model on two files, translate with it, make text."""

import os
import sys
from pathlib import Path
from typing import Annotated

from foretell.cli.command import Edges, Given, Json, arg, command
from foretell.cli.output import write_json
from foretell.cli.progress import late_bar
from foretell.interop.user_files import made_folder
from foretell.lab.translate.settings import (
    LinesQuestion,
    ScoresQuestion,
    TranslationSettings,
    check,
)


@command(TranslationSettings)
def train(given: Given, edges: Edges) -> int:
    """Train on two line-aligned files; the same command goes on with a run that was ended."""
    from foretell.lab.translate.train import train as run

    settings, out = TranslationSettings(**given), made_folder(edges.out)
    with late_bar("steps") as bar:
        found = run(settings, out, bar, lambda line: print(line, file=sys.stderr, flush=True))
    if int(os.environ.get("RANK", "0")):  # of several processes, the first one speaks
        return 0
    if edges.json:
        write_json(found.to_dict())
        return 0
    lines = found.lines
    print(f"{found.model}, {found.parameters:,} weights, on {found.device}: {found.folder}")
    print(f"lines        {lines['train']:,} to train on, {lines['held_out']:,} held out")
    if lines["blank"] or lines["too_long"]:
        print(f"skipped      {lines['blank']:,} blank, {lines['too_long']:,} too long")
    print(
        f"steps        {found.steps:,} in {found.epochs:,} whole epochs; ended by {found.stopped}"
    )
    print(
        f"held out     loss {found.held_out_loss:.4f} nats a token, perplexity {found.perplexity:,.3f}"
    )
    print(
        f"speed        {found.target_tokens_per_s:,.0f} target tokens/s in {found.train_s:,.1f} s"
    )
    print(f"use it: foretell translate run {found.folder} < lines.txt")
    return 0


@command(LinesQuestion)
def run(given: Given, edges: Edges) -> int:
    """Translate lines by the likeliest token at each place, or with several beams."""
    from foretell.lab.translate.decode import Translator

    asked = LinesQuestion(**given)
    check(asked)
    translator = Translator(asked.folder, device=asked.device, last=asked.last)
    lines = _given(asked.file)
    with late_bar("lines") as bar:
        found = translator.translate(
            lines, asked.batch, bar, beam=asked.beam, alpha=asked.length_penalty
        )
    if edges.json:
        write_json([{"source": a, "target": b} for a, b in zip(lines, found, strict=True)])
    else:
        for line in found:
            print(line)
    return 0


@command(ScoresQuestion)
def evaluate(given: Given, edges: Edges) -> int:
    """BLEU and chrF of a trained model, as sacreBLEU counts them."""
    from foretell.interop.user_files import write_whole
    from foretell.lab.translate.decode import evaluate as score

    with late_bar("lines") as bar:
        found = score(ScoresQuestion(**given), bar)
    if edges.out is not None:
        write_whole(Path(edges.out), "".join(line + "\n" for line in found.translations))
    if edges.json:
        write_json(found.to_dict())
        return 0
    print(
        f"{found.folder}: {found.lines:,} lines, {found.beam} beams, length penalty {found.length_penalty:g}"
    )
    parts = "/".join(f"{value:.1f}" for value in found.precisions)
    print(f"BLEU   {found.bleu:.2f}   {parts}, brevity penalty {found.brevity_penalty:.3f}")
    print(f"chrF2  {found.chrf:.2f}")
    print(f"exact  {100 * found.exact:.1f} % of the lines")
    print(f"BLEU|{found.bleu_signature}  chrF2|{found.chrf_signature}")
    return 0


def import_weights(
    file: Annotated[str, arg("Keras weights: .npz of names and arrays, or .h5.", "FILE")],
    *,
    tokenizer: Annotated[str, arg("tokenizer.json with the vocabulary of the weights.", "FILE")],
    out: Annotated[str, arg("The folder for translate run.", "DIR")],
    model: Annotated[str, arg("The model that the weights are of.", "MODEL")] = "anthe",
    json: Json = False,
) -> int:
    """Take weights of the authors' TensorFlow code into a folder that translate run reads."""
    from foretell.lab.translate.keras_weights import import_keras

    found = import_keras(Path(file), model=model, tokenizer=Path(tokenizer), out=Path(out))
    if json:
        write_json(found)
    else:
        print(
            f"{found['model']}: {found['weights']:,} weights of {found['arrays']:,} arrays in {out}"
        )
        print(f"use it: foretell translate run {out} < lines.txt")
    return 0


def make_text(
    *,
    source: Annotated[str, arg("Source lines are written here.", "FILE")],
    target: Annotated[str, arg("Target lines are written here.", "FILE")],
    lines: Annotated[int, arg("Sentences.", "N")] = 20_000,
    words: Annotated[int, arg("Nouns; other words follow from it.", "N")] = 120,
    seed: Annotated[int, arg("Seed: each makes other languages.", "N")] = 0,
    json: Json = False,
) -> int:
    """Write line-aligned text in two made-up languages with grammar."""
    from foretell.errors import BadInput, wrong
    from foretell.interop.user_files import write_whole
    from foretell.lab.translate.synthetic import make_pairs

    problems = [
        wrong(name, value, "is out of range", "1 or more")
        for name, value in (("lines", lines), ("words", words))
        if value < 1
    ]
    problems += [
        wrong(name, path, "no file can be written there")
        for name, path in (("source", source), ("target", target))
        if Path(path).is_dir() or not Path(path).absolute().parent.is_dir()
    ]
    if Path(source).absolute() == Path(target).absolute():
        problems.append(wrong("target", target, "is the source's file too"))
    if problems:
        raise BadInput(problems)
    pairs = list(make_pairs(lines, seed, words))
    for path, side in ((source, 0), (target, 1)):
        write_whole(Path(path), "".join(pair[side] + "\n" for pair in pairs))
    if json:
        write_json(
            {"source": source, "target": target, "lines": lines, "words": words, "seed": seed}
        )
    else:
        print(f"{lines:,} lines: {source}, {target}")
    return 0


def _given(file: str) -> list[str]:
    """The lines of a file or of standard input."""
    from foretell.errors import bad_input
    from foretell.interop.user_files import check_regular

    if file != "-":
        check_regular(Path(file))
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = raw.decode("utf-8")
    except OSError as error:
        raise bad_input("file", file, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise bad_input("file", file, "is not UTF-8 text") from None
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []
