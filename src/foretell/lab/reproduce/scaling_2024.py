"""Cheng et al., SIGMETRICS 2024: scaling of data and model parallelism with much and little bandwidth.

Only the abstract and open measurements close to it are at hand: sizes of models and recipes are ours, and the
published side is the rule of volumes that the work builds on (ZeRO, arXiv 1910.02054): 2, 2 and 3 times
weights of 16 bits over the ring's bus bandwidth as NCCL measured it. GenSLM's published runs are beside our
predictions: what they keep, what intervals hold, what slows Selene.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import log
from statistics import median
from typing import Any

from foretell.api.network import collective
from foretell.lab.reproduce.records import (
    Finding,
    Ladder,
    PaperFigure,
    Row,
    ladder_of,
    ladder_rows,
    mean_ladder,
    read_work,
    verdict,
    widest,
)
from foretell.studies.scaling.records import Curve, ScalingPoint
from foretell.studies.scaling.run import scaling
from foretell.studies.scaling.study import (
    LOW,
    SIZES,
    SYSTEMS,
    WORDS,
    PublishedFigure,
    ScalingStudy,
    compare_published,
    model_named,
    rung_steps,
    study,
)
from foretell.workload.parameters import count

WORK = read_work("scaling-2024")
HIGH = "thetagpu-sophia"
"""The system with much bandwidth between its nodes."""
BUS_BYTES_PER_S = {"polaris-ss10": 9.81e9, "thetagpu-sophia": 178e9}
"""Bus bandwidth of 1 GiB collectives between nodes (argonne-lcf/alcf-nccl-tests, Polaris and Sophia)."""
VOLUMES = {"zero1": 2.0, "zero2": 2.0, "zero3": 3.0}
"""Times the weights that a rank sends and takes in a step (arXiv 1910.02054, sections 7 and 8)."""
NEAR = 1.5
"""Times a time of the rule of volumes, up or down, within which a time follows it."""
RETENTION_GPUS = (8, 512)
"""Between which numbers of GPUs the measured runs keep a share of their throughput."""
COVERAGE = 0.8
"""Share of the runs that intervals should hold."""
EXPLAINED = 0.9
"""Share of a slowdown, on a logarithmic scale, that known mechanisms carry where they explain it."""
CLOSE_POINTS = 0.15
"""How far a predicted retention may be from the measured one."""


class ScalingReproduction:
    """What figures share, each computed once."""

    @cached_property
    def study(self) -> ScalingStudy:
        """The study on the slow system, the mixes and the measured runs."""
        return study()

    @cached_property
    def fast(self) -> Any:
        """The six sizes on the fast system."""
        return scaling(*SIZES, system=HIGH, gpus="1..128", plan=WORDS, micro_batch=4, seq_len=2048)

    @cached_property
    def points(self) -> list[Row]:
        """Every point of the six sizes on the slow system."""
        names = ("strategy", "gpus", "tokens_per_s_per_gpu", "efficiency", "fits", "plan", "step_s")
        return [
            {"model": c.model, "system": c.system}
            | {name: getattr(point, name) for name in names}
            | _ends(point)
            for c in self.study.data_parallel.curves
            for point in c.points
        ]

    def both(self) -> Iterator[tuple[Curve, ScalingPoint]]:
        """Points that fit, of the six sizes on both systems."""
        for found in (self.study.data_parallel, self.fast):
            for curve in found.curves:
                for point in curve.points:
                    if point.step_s is not None and point.fits != "no":
                        yield curve, point

    def throughput(self) -> PaperFigure:
        """Rates of six sizes."""
        return WORK.figure("throughput", self.points)

    def efficiency(self) -> PaperFigure:
        """The same over the fewest chips."""
        node, most = (
            [r for r in self.points if r["gpus"] == gpus and r["efficiency"]] for gpus in (4, 512)
        )
        width = widest([*node, *most], "low_s", "high_s")
        own, later = ([r["efficiency"] for r in rows] for rows in (node, most))
        found = WORK.finding(
            "efficiency",
            verdict(min(own) > 0.95 and max(later) < 0.75, width),
            node=(min(own), max(own)),
            most=(min(later), max(later)),
            width=width,
        )
        return WORK.figure("efficiency", self.points, found)

    def shares(self) -> PaperFigure:
        """Shares on both systems, six sizes."""
        rows: list[Row] = [
            _place(c, point) | shares_of(point) | _ends(point) for c, point in self.both()
        ]
        some = {
            one: [r for r in rows if (r["system"], r["strategy"], r["gpus"]) == (one, "zero3", 128)]
            for one in (LOW, HIGH)
        }
        width = widest([*some[LOW], *some[HIGH]], "low_s", "high_s")
        slow, fast = (
            [100 * pick(r["communication"] for r in own) for pick in (min, max)]
            for own in some.values()
        )
        held = verdict(slow[0] > 50.0 > fast[1], width)
        return WORK.figure(
            "shares", rows, WORK.finding("shares", held, slow=slow, fast=fast, width=width)
        )

    def mixes(self) -> PaperFigure:
        """Three mixes on four systems."""
        rows: list[Row] = [
            {
                "system": one.system,
                "strategy": curve.strategy,
                "gpus": point.gpus,
                "tokens_per_s_per_gpu": point.tokens_per_s_per_gpu,
                **shares_of(point),
                **_ends(point),
            }
            for one in self.study.model_parallel
            for curve in one.curves
            for point in curve.points
            if point.step_s is not None
        ]
        best, words = set[str](), []
        for system in SYSTEMS:
            own = [r for r in rows if r["system"] == system and r["gpus"] == 128]
            rates = {r["strategy"]: float(r["tokens_per_s_per_gpu"] or 0.0) for r in own}
            first = max(rates, key=lambda one: rates[one])
            lost = 100 * (1 - min(rates.values()) / rates[first])
            best.add(first)
            words.append(f"{system} {first}, {lost:.0f} %")
        width = widest(rows, "low_s", "high_s")
        held = verdict(len(best) > 1, width)
        found = WORK.finding("mixes", held, best=", ".join(words), width=width)
        return WORK.figure("mixes", rows, found)

    def volume(self) -> PaperFigure:
        """The rule of volumes beside ours."""
        rows: list[Row] = []
        for curve, point in self.both():
            if point.gpus < 16:
                continue
            weights = float(count(model_named(curve.model)).total)
            moved = 2.0 * VOLUMES[curve.strategy] * weights * (point.gpus - 1) / point.gpus
            exposed_s, hidden_s = point.exposed_communication_s, point.hidden_communication_s
            rows.append(
                {
                    **_place(curve, point),
                    "volume_rule_s": moved / BUS_BYTES_PER_S[curve.system],
                    "large_messages_s": moved / large_bytes_per_s(curve.system, point.gpus),
                    "ours_s": (exposed_s or 0.0) + (hidden_s or 0.0),
                    "ours_exposed_s": exposed_s,
                    **_ends(point),
                }
            )
        findings = []
        ladders: list[Row] = []
        for words, counts in (("16 and 32", (16, 32)), ("512", (512,))):
            own = [r for r in rows if r["system"] == LOW and r["gpus"] in counts]
            each = {
                f"{r['model']} {r['strategy']} on {r['gpus']} GPUs": _volume_ladder(r) for r in own
            }
            width, ratios = widest(own, "low_s", "high_s"), [one.whole for one in each.values()]
            least, most = min(ratios), max(ratios)
            held = verdict(most < NEAR and least > 1.0 / NEAR, width)
            numbers = {"words": words, "least": least, "most": most, "width": width}
            findings.append(
                WORK.finding("volume", held, mean_ladder(list(each.values())), **numbers)
            )
            ladders += ladder_rows(findings[-1].statement, each)
        return WORK.figure("volume", rows, *findings, more={"volume-ladder": ladders})

    def bandwidth(self) -> PaperFigure:
        """Gain from more bandwidth."""
        rows = [
            {
                "model": curve.model,
                "strategy": curve.strategy,
                "gpus": 512,
                "factor": float(factor),
                "gain": 1.0 / ratio,
            }
            for curve in self.study.data_parallel.curves
            if curve.points[-1].fits != "no"
            for factor, ratio in {**curve.points[-1].by_bandwidth, "1": 1.0}.items()
        ]
        rows.sort(key=lambda r: (r["model"], r["strategy"], r["factor"]))
        return WORK.figure("bandwidth", rows)

    def measured(self) -> PaperFigure:
        """Open runs."""
        every = compare_published()
        found = [r for r in every if r.quantity in ("samples/s", "step s")]
        rows = [
            {
                "run": r.name,
                **{
                    name: getattr(r, name) for name in ("quantity", "gpus", "measured", "predicted")
                },
                **dict(zip(("low", "high"), r.p90 or (None, None), strict=True)),
                "inside": r.inside,
                **dict(zip(("open_low", "open_high"), r.open_p90 or (None, None), strict=True)),
                "inside_open": r.inside_open,
                "assumed": r.assumed,
            }
            for r in found
        ]
        ladder, steps = found_of_selene()
        findings = (retention(every), coverage(found), ladder)
        return WORK.figure("measured", rows, *findings, more={"measured-ladder": steps})


def makers(figures: Sequence[str], workers: int) -> Mapping[str, Callable[[], PaperFigure]]:
    """What makes each figure."""
    del figures, workers
    work = ScalingReproduction()
    return {name: getattr(work, name) for name in WORK.figures}


@lru_cache(maxsize=32)
def large_bytes_per_s(system: str, gpus: int) -> float:
    """Bus bandwidth of a gather of 1 GiB among so many chips, by our collectives."""
    found = collective(system, collective="all-gather", size="1 GiB", group=gpus)
    return float(found.to_dict()["bus_bytes_per_s"])


def shares_of(point: ScalingPoint) -> dict[str, Any]:
    """Compute, communication and idle of a step as shares: idle is the bubble, the host and the rest."""
    whole = point.step_s or 1.0
    compute = (point.compute_s or 0.0) / whole
    sent = (point.exposed_communication_s or 0.0) / whole
    return {"compute": compute, "communication": sent, "idle": max(1.0 - compute - sent, 0.0)}


def _place(curve: Curve, point: ScalingPoint) -> dict[str, Any]:
    """Where a point is."""
    own = {name: getattr(curve, name) for name in ("system", "model", "strategy")}
    return {**own, "gpus": point.gpus}


def _ends(point: ScalingPoint) -> dict[str, Any]:
    """The 90 % interval of a step."""
    low, high = (None, None) if point.interval is None else point.interval["p90"]
    return {"low_s": low, "high_s": high}


def _volume_ladder(row: Row) -> Ladder:
    """Seconds of communication from the rule of volumes to ours."""
    return ladder_of(
        {
            "published": row["volume_rule_s"],
            "collectives of so many nodes": row["large_messages_s"],
            "messages of a layer or a bucket": row["ours_s"],
        }
    )


def retention_rows(rows: Sequence[PublishedFigure]) -> list[dict[str, Any]]:
    """Share of the throughput kept from 8 to 512 GPUs, measured and predicted, of runs on Slingshot-10."""
    return [
        {"run": r.name, "measured": r.measured, "predicted": r.predicted}
        for r in rows
        if r.quantity == "efficiency"
        and r.gpus == RETENTION_GPUS[1]
        and "SS-10" in r.name
        and "25B" not in r.name
    ]


def retention(rows: Sequence[PublishedFigure]) -> Finding:
    """How much of the throughput is kept, measured and predicted."""
    kept = retention_rows(rows)
    names = [f"{r['run'].split()[1].rstrip(',')} {100 * r['measured']:.0f} %" for r in kept]
    gap = max(abs(r["predicted"] - r["measured"]) for r in kept)
    runs = {r["run"] for r in kept}
    width = max(
        r.p90[1] / r.p90[0]
        for r in rows
        if r.p90 and r.name in runs and r.gpus in RETENTION_GPUS and r.quantity == "samples/s"
    )
    return WORK.finding(
        "retention",
        verdict(gap <= CLOSE_POINTS, width),
        measured=", ".join(names),
        predicted=", ".join(f"{100 * r['predicted']:.0f} %" for r in kept),
        gap=100 * gap,
        width=width,
    )


def coverage(rows: Sequence[PublishedFigure]) -> Finding:
    """How many of the runs our intervals hold."""
    known = [r for r in rows if r.inside is not None and r.quantity == "samples/s"]
    wide = sum(bool(r.inside_open) for r in known)
    width = median(r.open_p90[1] / r.open_p90[0] for r in known if r.open_p90 is not None)
    alike = []  # seconds of a GPU for a sequence of the largest model on each system
    for system in ("Polaris", "Selene"):
        own = [
            r.gpus / r.measured
            for r in known
            if "25B" in r.name and system in r.name and 64 <= r.gpus <= 512
        ]
        alike.append(f"{min(own):.1f} to {max(own):.1f} s on {system}")
    return WORK.finding(
        "coverage",
        verdict(wide >= COVERAGE * len(known), width),
        inside=sum(bool(r.inside) for r in known),
        many=len(known),
        wide=wide,
        width=width,
        alike=" and ".join(alike),
    )


def found_of_selene() -> tuple[Finding, Sequence[Row]]:
    """What makes the runs on Selene slower than plain PyTorch, and the rungs of every run."""
    each = {
        f"{name}, {gpus} GPUs": ladder_of(steps) for (name, gpus), steps in rung_steps().items()
    }
    found = mean_ladder(list(each.values()))
    (*_, ours, measured) = found.rungs
    explained = log(ours.value / found.first) / log(found.whole)
    finding = WORK.finding(
        "selene",
        verdict(explained >= EXPLAINED, 1.0),
        found,
        many=len(each),
        whole=found.whole,
        found=ours.value / found.first,
        rest=measured.factor,
        why=Ladder(rungs=found.rungs[:-1]).because,
    )
    return finding, ladder_rows(finding.statement, each)
