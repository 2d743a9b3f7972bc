"""Runs that ran and runs that did not: does the memory estimate tell them apart?

The sweep is nanotron on H100 80 GB (Ultra-Scale Playbook): no recomputation, bf16 with fp32 gradients,
Adam, ZeRO 0 or 1. Every run is predicted; nothing is fitted to it but the 12 % of cost/memory.py.
"""

import csv
import gzip
from pathlib import Path

import pytest

from foretell.catalog import chip
from foretell.cost.memory import CLOSE_SHARE
from foretell.estimate import evaluate
from foretell.specs.ffn import Dense
from foretell.specs.job import Job
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, Stack
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from tests.builders import make_network


def peak_share(row: dict[str, str]) -> float:
    """Predicted peak over the chip's memory."""

    def whole(name: str) -> int:
        return int(float(row[name]))

    heads, hidden = whole("heads"), whole("hidden")
    attention = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads)
    layer = Layer(mixers=(attention,), ffn=Dense(width=whole("ffn_hidden")))
    model = Model(
        id="nanotron",
        family="llama",
        kind="decoder",
        stack=Stack(hidden=hidden, layers=(layer,) * whole("layers")),
        embedding=Embedding(vocab=whole("vocab")),
        head=Head(outputs=whole("vocab")),
        max_positions=whole("seq_len"),
    )
    dp, tp, pp, mbs = (whole(name) for name in ("dp", "tp", "pp", "micro_batch"))
    plan = Plan(
        dp=dp, tp=tp, pp=pp, micro_batch=mbs, zero=whole("zero_stage"), sp=tp > 1
    )  # fmt: skip
    system = System(id="h100", name="h100", chip=chip("h100-sxm"), network=make_network(nodes=4096))
    job = Job(
        gpus=dp * tp * pp, global_batch=dp * mbs * whole("grad_accum"), seq_len=whole("seq_len")
    )
    scenario = Scenario(model=model, system=system, job=job)
    return float(evaluate(scenario, batch_of([plan]))[1][0] / system.chip.memory_bytes)


def read(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("part", [10, pytest.param(1, marks=pytest.mark.full)])
def test_most_runs_are_told_right(data_dir: Path, part: int) -> None:
    failed = read(data_dir / "training" / "out_of_memory_runs.csv.gz")[::part]
    ran = read(data_dir / "training" / "measured_runs.csv.gz")
    ran = [row for row in ran if row["framework_id"] == "nanotron"][::part]
    not_fitting = [peak_share(row) > 1.0 for row in failed]
    fitting = [peak_share(row) <= 1.0 for row in ran]
    clearly_wrong = [peak_share(row) < CLOSE_SHARE for row in failed]
    assert sum(not_fitting) / len(failed) > 0.90
    assert sum(fitting) / len(ran) > 0.97
    assert sum(clearly_wrong) / len(failed) < 0.08
