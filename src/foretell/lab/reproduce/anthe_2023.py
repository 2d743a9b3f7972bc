"""Anthe (arXiv 2305.10991, 2023): weights, operations, small trainings, and the paper's claims."""

import csv
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretell.catalog.models import model as catalogue_model
from foretell.lab.reproduce.records import (
    Finding,
    PaperFigure,
    PublishedWork,
    Row,
    figure_maker,
    run_of,
)
from foretell.specs.block import MapShape
from foretell.workload.blocks.tensor_chain import TensorChain
from foretell.workload.ops import Gemm
from foretell.workload.parameters import count

VARIANTS = (
    "transformer-base-untied",
    "transformer-base-tied",
    "anthe-no-tc",
    "anthe-tc-ffn",
    "anthe",
)
"""The five models, the largest first."""
PUBLISHED_WEIGHTS = {
    "transformer-base-tied": 60_522_496,
    "transformer-base-untied": 93_322_496,
    "anthe-no-tc": 68_912_632,
    "anthe-tc-ffn": 46_226_296,
    "anthe": 30_695_032,
}
"""Counted from the definitions of the authors' code (github.com/LuCeHe/anthe_official)."""
STUDY = Path(__file__).with_name("anthe_study.csv")
"""Trainings of ours, by `tests/bench/bench_anthe_h200.py` and `bench_anthe_study.py`."""
CLAIMS = Path(__file__).with_name("anthe_claims.toml")
"""What the paper and its code state."""
FIGURES = {
    "weights": "Weights of the five models",
    "chains": "Operations of a tensor chain over those of the dense map, by bond",
    "study": "Five variants trained on text of our own making: loss, BLEU, chrF",
    "claims": "The paper's claims beside what is measured here",
}
_figure = figure_maker(FIGURES)


def weights() -> PaperFigure:
    """Counts to the unit."""
    rows: list[Row] = []
    for name in VARIANTS:
        model = catalogue_model(name)
        ours = int(count(model).total)
        base = PUBLISHED_WEIGHTS["transformer-base-untied"]
        rows.append(
            {
                "model": name,
                "published": PUBLISHED_WEIGHTS[name],
                "ours": ours,
                "over_untied": ours / base,
            }
        )
    same = all(r["published"] == r["ours"] for r in rows)
    return _figure(
        "weights",
        rows,
        (
            Finding(
                statement="Anthe has three times fewer weights than the untied Transformer and "
                "half of the tied one",
                published=f"{93_322_496 / 30_695_032:.2f} and {60_522_496 / 30_695_032:.2f} times",
                ours="the same to the unit" if same else "other counts",
                verdict="survives" if same else "does not survive",
            ),
        ),
    )


def chains() -> PaperFigure:
    """Multiply-adds of contracted chains over dense ones."""
    rows: list[Row] = []
    for name, inputs, outputs, used in (
        ("before the scores", 512, 512, 14),
        ("feed-forward up", 512, 1365, 2),
        ("feed-forward down", 1365, 512, 2),
    ):
        shape = MapShape(name="map", inputs=inputs, outputs=outputs)
        dense = float(inputs * outputs)
        for bond in (1, 2, 4, 8, 14, 24, 38):
            graph = TensorChain(bond=bond, form="contract").graph(shape, 1.0)
            adds = sum(_macs(op) for op in graph.ops)
            cores = TensorChain(bond=bond).chain(shape)
            rows.append(
                {
                    "map": name,
                    "bond": bond,
                    "used_by_anthe": bond == used,
                    "dense_macs": dense,
                    "chain_macs": adds,
                    "macs_over_dense": adds / dense,
                    "weights_over_dense": sum(cores.sizes) / dense,
                }
            )
    own = {(r["map"], r["bond"]): r["macs_over_dense"] for r in rows}
    return _figure(
        "chains",
        rows,
        (
            Finding(
                statement="tensor chains save weights; the authors' code builds the matrix and "
                "saves no operations",
                published="at bond 2 the feed-forward maps need 8.4 times fewer multiply-adds if "
                "contracted, those before the "
                "scores 1.3 times more",
                ours=f"{1 / own['feed-forward up', 2]:.1f} times fewer and "
                f"{own['before the scores', 14]:.2f} times",
                verdict="survives",
                why="Fewer operations are no shorter step: contracted maps are bound by memory "
                "(docs/anthe.md, measured).",
            ),
        ),
    )


def _macs(op: Any) -> float:
    """Multiply-adds of a matrix product; none of a pass over memory."""
    if not isinstance(op, Gemm):
        return 0.0
    return float(op.groups) * float(op.m) * float(op.n) * float(op.k)


def study() -> PaperFigure:
    """Trainings of ours, with spread."""
    rows = study_rows()
    found = []
    for corpus in dict.fromkeys(str(r["corpus"]) for r in rows):
        own = {str(r["model"]): r for r in rows if r["corpus"] == corpus}
        if not {"anthe", "transformer-base-untied"} <= own.keys():
            continue
        base, small = own["transformer-base-untied"], own["anthe"]
        scores = ""
        if base["bleu"] is not None:
            scores = f"; BLEU {base['bleu']:.1f} and {small['bleu']:.1f}"
        found.append(
            Finding(
                statement="Anthe's perplexity is below the Transformer's with a third of the "
                f"weights ({corpus})",
                published="WMT14 en-de: validation perplexity down threefold",
                ours=f"held-out loss {base['held_out_loss']:.3f} for the untied base and "
                f"{small['held_out_loss']:.3f} "
                f"for Anthe{scores}",
                verdict="not comparable",
                why="These trainings are short and small: they say nothing of WMT14, thirty million "
                "weights and training to the end.",
            )
        )
    return _figure("study", rows, tuple(found))


def study_rows() -> list[dict[str, Any]]:
    """Rows of the stored trainings."""
    with STUDY.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    texts = ("model", "corpus")
    return [
        {
            key: value if key in texts else (float(value) if value else None)
            for key, value in row.items()
        }
        for row in found
    ]


def claims() -> PaperFigure:
    """What the paper states, and what is here."""
    rows: list[Row] = [
        dict(one) for one in tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["claim"]
    ]
    return _figure("claims", rows)


MAKERS: Mapping[str, Callable[[], PaperFigure]] = {
    "weights": weights,
    "chains": chains,
    "study": study,
    "claims": claims,
}


ANTHE_2023 = PublishedWork(
    name="anthe-2023",
    title="Less is More! A slim architecture for optimal language translation (Herranz-Celotti and Rrapaj)",
    source="arXiv 2305.10991 (2023), with its public code",
    example="weights",
    figures=FIGURES,
    run=run_of(MAKERS),
    missing=(
        (
            "WMT14 and WMT17 are the user's: foretell translate train takes line-aligned files, and "
            "translate evaluate gives BLEU and chrF (docs/anthe.md). No BLEU is published for Anthe."
        ),
    ),
)
