"""Anthe (arXiv 2305.10991, 2023): weights, operations, small trainings, and the paper's claims."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.catalog.models import model as catalogue_model
from foretell.lab.reproduce.records import FOLDER, PaperFigure, described, read_work
from foretell.specs.block import MapShape
from foretell.workload.blocks.tensor_chain import TensorChain
from foretell.workload.ops import Gemm
from foretell.workload.parameters import count

WORK = read_work("anthe-2023")
TABLE = described("anthe-2023")
"""Its numbers."""
BONDS = (1, 2, 4, 8, 14, 24, 38)
"""Bonds of the chains that are counted."""
STUDY: Path = FOLDER / "anthe_study.csv"
"""Trainings of ours, by `tests/bench/bench_anthe_h200.py` and `bench_anthe_study.py`."""


def weights() -> PaperFigure:
    """Counts to the unit."""
    known: Mapping[str, int] = TABLE["weights"]
    untied = known["transformer-base-untied"]
    ours = {name: int(count(catalogue_model(name)).total) for name in known}
    rows = [
        {"model": name, "published": known[name], "ours": own, "over_untied": own / untied}
        for name, own in ours.items()
    ]
    same = ours == known
    found = WORK.finding(
        "weights",
        "survives" if same else "does not survive",
        over_untied=untied / known["anthe"],
        over_tied=known["transformer-base-tied"] / known["anthe"],
        ours="the same to the unit" if same else "other counts",
    )
    return WORK.figure("weights", rows, found)


def chains() -> PaperFigure:
    """Multiply-adds of contracted chains over dense ones."""
    rows: list[dict[str, Any]] = []
    for one in TABLE["map"]:
        shape = MapShape(name="map", inputs=one["inputs"], outputs=one["outputs"])
        dense = float(shape.inputs * shape.outputs)
        for bond in BONDS:
            graph = TensorChain(bond=bond, form="contract").graph(shape, 1.0)
            adds = sum(_macs(op) for op in graph.ops)
            rows.append(
                {
                    "map": one["name"],
                    "bond": bond,
                    "used_by_anthe": bond == one["used"],
                    "dense_macs": dense,
                    "chain_macs": adds,
                    "macs_over_dense": adds / dense,
                    "weights_over_dense": sum(TensorChain(bond=bond).chain(shape).sizes) / dense,
                }
            )
    own = {(r["map"], r["bond"]): r["macs_over_dense"] for r in rows}
    fewer, more = 1 / own["feed-forward up", 2], own["before the scores", 14]
    return WORK.figure("chains", rows, WORK.finding("chains", "survives", fewer=fewer, more=more))


def _macs(op: Any) -> float:
    """Multiply-adds of a matrix product; none of a pass over memory."""
    if not isinstance(op, Gemm):
        return 0.0
    return float(op.groups) * float(op.m) * float(op.n) * float(op.k)


def study() -> PaperFigure:
    """Trainings of ours, with spread."""
    with STUDY.open(newline="", encoding="utf-8") as file:
        rows = [{key: _cell(key, text) for key, text in r.items()} for r in csv.DictReader(file)]
    found = []
    for corpus in dict.fromkeys(r["corpus"] for r in rows):
        own = {r["model"]: r for r in rows if r["corpus"] == corpus}
        if {"anthe", "transformer-base-untied"} <= own.keys():
            base, small = own["transformer-base-untied"], own["anthe"]
            scored = base["bleu"] is not None
            scores = f"; BLEU {base['bleu']:.1f} and {small['bleu']:.1f}" if scored else ""
            numbers = {"corpus": corpus, "base": base, "small": small, "scores": scores}
            found.append(WORK.finding("study", "not comparable", **numbers))
    return WORK.figure("study", rows, *found)


def _cell(column: str, text: str) -> Any:
    """A cell of the stored trainings."""
    return text if column in ("model", "corpus") else float(text) if text else None


def claims() -> PaperFigure:
    """What the paper states, and what is here."""
    return WORK.figure("claims", TABLE["claim"])


def makers(figures: Sequence[str], workers: int) -> Mapping[str, Callable[[], PaperFigure]]:
    """What makes each figure."""
    del figures, workers
    return {"weights": weights, "chains": chains, "study": study, "claims": claims}
