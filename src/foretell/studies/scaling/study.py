"""The scaling study of Cheng et al. (SIGMETRICS 2024, POMACS 8(1) article 8), predicted.

Data parallelism with three ways of sharing for six sizes of model up to 512 chips on a system with little
bandwidth between its nodes (Polaris on Slingshot-10), and three model-parallel combinations on systems
with much and with little. The paper's abstract has this scope; its sizes of models and recipes are not at
hand, so that those here are ours: OPT's six sizes up to 13B, sequences of 2,048 tokens, layers computed
again.

Open measurements are set beside predictions of the same: samples per second, splits of steps, bus
bandwidths.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

from foretell.api.network import collective
from foretell.catalog import model as catalog_model
from foretell.errors import BadInput
from foretell.records import as_json, dataclass
from foretell.specs.model import Model
from foretell.studies.scaling.records import Scaling, ScalingPoint
from foretell.studies.scaling.run import scaling

FILE = Path(__file__).parent / "measured.toml"
"""The measurements, each with its source."""
SIZE = "1 GiB"
"""Of the collectives."""
Quantity = Literal["samples/s", "efficiency", "step s", "communication s", "bus GB/s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """One figure, measured and predicted."""

    name: str
    """Which run."""
    quantity: Quantity
    """What is compared; efficiency: samples per second and chip over those of the run's fewest chips."""
    gpus: int
    """Chips."""
    measured: float
    """As published."""
    predicted: float
    """Ours."""
    p90: tuple[float, float] | None
    """What we hold nine tenths of such figures to lie in; None of efficiencies, parts and collectives."""
    open_p90: tuple[float, float] | None = None
    """The same with what the source leaves open (sequences, offloading, ports) taken either way."""
    fits: str
    """Whether our plan of the run fits."""
    source: str
    """Where it is published."""
    assumed: str
    """What the source leaves open, and was assumed."""

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0

    @property
    def inside(self) -> bool | None:
        """Whether the measured figure lies in our interval."""
        return None if self.p90 is None else self.p90[0] <= self.measured <= self.p90[1]

    @property
    def inside_open(self) -> bool | None:
        """Whether it lies in the interval with what the source leaves open."""
        span = self.open_p90 or self.p90
        return None if span is None else span[0] <= self.measured <= span[1]

    to_dict = as_json(more=("error", "inside", "inside_open"))


@lru_cache(maxsize=1)
def table() -> Mapping[str, Any]:
    """The file of measurements."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def model_named(name: str) -> Model:
    """A model of the file, or of the catalogue."""
    shape = table()["model"].get(name)
    return catalog_model(name) if shape is None else replace(catalog_model(shape), id=name)


def compare_published() -> tuple[PublishedFigure, ...]:
    """Every measurement of the file beside our prediction."""
    known = table()
    found = [one for run in known["run"] for one in _of_run(run)]
    found += [one for split in known["split"] for one in _of_split(split)]
    return (*found, *(_of_collective(row) for row in known["collective"]))


def rung_steps() -> dict[tuple[str, int], dict[str, float]]:
    """Seconds of a step by run and chips: plain PyTorch first, then with one more of what the code of the run
    does, and what was measured last; for runs of which all of that is in the plan."""
    rungs = table()["rung"]
    found: dict[tuple[str, int], dict[str, float]] = {}
    for run in table()["run"]:
        if rungs[0]["words"] not in run["plan"]:
            continue
        for done, name in enumerate(("plain PyTorch", *(rung["name"] for rung in rungs))):
            plan = run["plan"]
            for rung in rungs[done:]:
                plan = plan.replace(rung["words"], rung["without"])
            for point in _predicted({**run, "plan": plan}, run["gpus"]).curves[0].points:
                found.setdefault((run["name"], point.gpus), {})[name] = point.step_s or 0.0
        for gpus, rate in zip(run["gpus"], run["samples_per_s"], strict=True):
            found[run["name"], gpus]["what is not found"] = gpus / rate
    return found


def median_error(rows: Sequence[PublishedFigure]) -> float:
    """Median of the errors' sizes."""
    return median(abs(row.error) for row in rows)


def _of_run(run: Mapping[str, Any]) -> list[PublishedFigure]:
    """Rates of one run on each number of chips, and the efficiencies that they make."""
    points = _predicted(run, run["gpus"]).curves[0].points
    rates = [point.global_batch / (point.step_s or 1.0) for point in points]
    found = []
    for quantity, values in (
        ("samples/s", (run["samples_per_s"], rates)),
        ("efficiency", (_efficiencies(run, run["samples_per_s"]), _efficiencies(run, rates))),
    ):
        for point, measured, predicted in zip(points, *values, strict=True):
            if quantity == "samples/s" or point is not points[0]:
                found.append(_row(run, quantity, point, measured, predicted))
    return _opened(run, found)


def _opened(run: Mapping[str, Any], rows: Sequence[PublishedFigure]) -> list[PublishedFigure]:
    """The rates with intervals over everything that the source leaves open."""
    spans: dict[int, list[tuple[float, float]]] = {}
    for words in run.get("open", ()):
        changed, settings = dict(run), tuple[str, ...]()
        for name in words.split():
            change = table()["open"][name]
            plan = str(changed["plan"])
            changed["plan"] = plan.replace(change.get("replaces", ""), change.get("words", ""), 1)
            settings += tuple(change.get("settings", ()))
        for point in _predicted(changed, run["gpus"], settings=settings).curves[0].points:
            if (span := _interval("samples/s", point)) is not None:
                spans.setdefault(point.gpus, []).append(span)
    return [
        replace(row, open_p90=_hull([row.p90, *spans.get(row.gpus, ())])) if row.p90 else row
        for row in rows
    ]


def _hull(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in spans), max(high for _, high in spans)


def _efficiencies(run: Mapping[str, Any], rates: Sequence[float]) -> list[float]:
    per_chip = [rate / count for rate, count in zip(rates, run["gpus"], strict=True)]
    return [rate / per_chip[0] for rate in per_chip]


def _of_split(split: Mapping[str, Any]) -> list[PublishedFigure]:
    """A step, and its data-parallel communication where the log has it."""
    (point,) = _predicted(split, split["gpus"], split["global_batch"]).curves[0].points
    found = [_row(split, "step s", point, split["step_s"], point.step_s or 0.0)]
    if "communication_s" in split:
        ours = point.shares.get("data_parallel", 0.0)
        found.append(_row(split, "communication s", point, split["communication_s"], ours))
    return found


def _predicted(
    run: Mapping[str, Any],
    gpus: int | list[int],
    global_batch: int | None = None,
    settings: tuple[str, ...] = (),
) -> Scaling:
    found = scaling(
        model_named(run["model"]),
        system=run["system"],
        gpus=gpus,
        strategies=[run["plan"]],
        global_batch=global_batch,
        seq_len=run["seq_len"],
        set=settings,
    )
    wrong = [p for p in found.curves[0].points if p.step_s is None]
    if wrong:  # a defect of the file
        raise BadInput([])
    return found


def _of_collective(row: Mapping[str, Any]) -> PublishedFigure:
    answer = collective(row["system"], collective=row["collective"], size=SIZE, group=row["gpus"])
    return PublishedFigure(
        name=row["name"],
        quantity="bus GB/s",
        gpus=row["gpus"],
        measured=row["bus_bytes_per_s"] / 1e9,
        predicted=answer.bus_bytes_per_s / 1e9,
        p90=None,
        fits="yes",
        source=row["source"],
        assumed="",
    )


def _interval(quantity: str, point: ScalingPoint) -> tuple[float, float] | None:
    """The step's p90 as an interval of the quantity."""
    if quantity not in ("step s", "samples/s") or point.interval is None:
        return None
    low, high = point.interval["p90"]
    if quantity == "step s":
        return low, high
    return point.global_batch / high, point.global_batch / low


def _row(
    run: Mapping[str, Any], quantity: str, point: ScalingPoint, measured: float, predicted: float
) -> PublishedFigure:
    return PublishedFigure(
        name=run["name"],
        quantity=quantity,  # type: ignore[arg-type]
        gpus=point.gpus,
        measured=measured,
        predicted=predicted,
        p90=_interval(quantity, point),
        fits=point.fits,
        source=run["source"],
        assumed=run.get("assumed", ""),
    )


SIZES = ("opt-125m", "opt-350m", "opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b")
"""Six sizes that grow by factors of two to four: those of the GPT-3 paper, with widths that divide."""
LOW = "polaris-ss10"
"""A system with little bandwidth: 25 GB/s of ports for four chips, of which 9.8 are reached."""
SYSTEMS = ("thetagpu-sophia", "perlmutter", "polaris-ss11", "polaris-ss10")
"""The most bandwidth between nodes first: 178, 70, 36 and 9.8 GB/s of bus bandwidth as measured."""
COMBINATIONS = ("tp8 zero1", "tp4 pp2 zero1", "pp8 zero1")
"""Three ways to lay a model over eight chips; eight are one node of ThetaGPU and two of the others."""
WORDS = "gradients=bf16 recompute=full"
"""What all plans share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStudy:
    """The whole study."""

    data_parallel: Scaling
    """Six sizes, three ways of sharing, 1 to 512 chips."""
    model_parallel: tuple[Scaling, ...]
    """Three combinations on 8 to 128 chips of each system."""
    measured: tuple[PublishedFigure, ...]
    """Open measurements and our predictions of them."""

    to_dict = as_json()


def study() -> ScalingStudy:
    """Evaluate it: some three hundred points."""
    return ScalingStudy(
        data_parallel=scaling(
            *SIZES, system=LOW, gpus="1..512", plan=WORDS, micro_batch=4, seq_len=2048
        ),
        model_parallel=tuple(
            scaling(
                SIZES[-1],
                system=system,
                gpus="8..128",
                strategies=COMBINATIONS,
                plan=WORDS,
                micro_batch=1,
                batch_per_gpu=4,
                seq_len=2048,
            )
            for system in SYSTEMS
        ),
        measured=compare_published(),
    )
