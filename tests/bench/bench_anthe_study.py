"""Two small studies by real training on a CPU: do Anthe and its baseline learn, and where is too much?

    PYTHONPATH=src:. python tests/bench/bench_anthe_study.py learn --out learn.json   # all five models
    PYTHONPATH=src:. python tests/bench/bench_anthe_study.py where --out where.json   # one part at a time

`where` takes the untied baseline and cuts the same number of weights out of one part at a time, by a tensor
chain in its tables, its output layer, the maps before attention's scores, or its feed-forward parts; the part
whose loss suffers least had the most to spare. Text is of our own making (`foretell translate make-text`).
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.catalog.models import model as catalogue
from foretell.interop.own_model import write_toml
from foretell.lab.translate.settings import TranslationSettings, TranslationSizes, resize_model
from foretell.lab.translate.synthetic import make_pairs
from foretell.lab.translate.train import train
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model
from foretell.workload.blocks.tensor_chain import TensorChain
from foretell.workload.parameters import count

FIVE = (
    "transformer-base-tied",
    "transformer-base-untied",
    "anthe-no-tc",
    "anthe-tc-ffn",
    "anthe",
)
LEARN = TranslationSizes(width=64, layers=2, heads=4, ffn=256, vocab=1000)
WHERE = TranslationSizes(width=32, layers=1, heads=4, ffn=128, vocab=500)
PARTS = ("tables", "output", "attention", "feed-forward")


def with_chain(model: Model, part: str, chain: TensorChain) -> Model:
    """The model with one kind of maps by tensor chains."""
    if part == "tables":
        own = model.encoder_embedding
        assert own is not None
        return replace(
            model,
            embedding=replace(model.embedding, factor=chain),
            encoder_embedding=replace(own, factor=chain),
        )
    if part == "output":
        return replace(model, head=replace(model.head, factor=chain))

    def changed(layer: Layer) -> Layer:
        if part == "attention":
            mixers = [replace(m, factor=chain) for m in layer.mixers if isinstance(m, Attention)]
            return replace(layer, mixers=tuple(mixers))
        assert isinstance(layer.ffn, Dense)
        return replace(layer, ffn=replace(layer.ffn, factor=chain))

    assert model.encoder is not None
    stack = replace(model.stack, layers=tuple(map(changed, model.stack.layers)))
    encoder = replace(model.encoder, layers=tuple(map(changed, model.encoder.layers)))
    return replace(model, stack=stack, encoder=encoder)


def cut_by(model: Model, part: str, weights: int) -> Model:
    """The chain whose bond takes the number of weights out that is nearest to the one asked for."""
    whole = count(model).total
    tried = [with_chain(model, part, TensorChain(bond=bond)) for bond in range(1, 256)]
    return min(tried, key=lambda one: abs(whole - count(one).total - weights))


def trained(model: Model, text: tuple[Path, Path], given: Any, seed: int) -> dict[str, Any]:
    """One run; its weights and its losses."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.toml"
        file.write_text(write_toml(model))
        settings = TranslationSettings(
            source=str(text[0]),
            target=str(text[1]),
            model=str(file),
            vocab=model.embedding.vocab,
            batch=given.batch,
            rate=given.rate,
            dropout=0.0,
            steps=given.steps,
            evaluate_every=max(given.steps // 4, 1),
            seed=seed,
            device="cpu",
        )
        found = train(settings, Path(folder) / "run")
    return {
        "weights": found.parameters,
        "seed": seed,
        "losses": [[row["step"], row["held_out_loss"]] for row in found.history],
        "held_out_loss": found.held_out_loss,
        "perplexity": found.perplexity,
        "train_s": found.train_s,
    }


def studied(given: Any) -> dict[str, Model]:
    """Names and models of a study."""
    if given.study == "learn":
        return {name: resize_model(catalogue(name), LEARN) for name in FIVE}
    base = resize_model(catalogue("transformer-base-untied"), WHERE)
    found = {"none": base}
    for cut in (int(word) for word in given.cuts.split(",")):
        found |= {f"{part}, {cut:,} cut": cut_by(base, part, cut) for part in PARTS}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=("learn", "where"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--words", type=int, default=120)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cuts", default="7000")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = (Path(folder) / "source.txt", Path(folder) / "target.txt")
        pairs = list(make_pairs(given.lines, 0, given.words))
        for path, side in zip(text, (0, 1), strict=True):
            path.write_text("".join(pair[side] + "\n" for pair in pairs))
        rows: dict[str, Any] = {name: [] for name in studied(given)}
        for seed in range(given.seeds):
            for name, model in studied(given).items():
                rows[name].append(trained(model, text, given, seed))
                told = {"settings": vars(given), "rows": rows}
                Path(given.out).write_text(json.dumps(told, indent=1) + "\n")
                last = rows[name][-1]
                print(f"{name:30} {last['weights']:9,} {last['held_out_loss']:.4f} "
                      f"{last['train_s']:6.1f} s", flush=True)  # fmt: skip
    for name, runs in rows.items():
        losses = [run["held_out_loss"] for run in runs]
        print(f"{name:30} {runs[0]['weights']:9,} {statistics.mean(losses):.4f} "
              f"({min(losses):.4f} to {max(losses):.4f})")  # fmt: skip


if __name__ == "__main__":
    main()
