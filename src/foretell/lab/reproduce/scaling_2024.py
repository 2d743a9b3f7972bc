"""Cheng et al., SIGMETRICS 2024: scaling of data and model parallelism with much and little bandwidth.

Only the abstract and open measurements close to it are at hand: sizes of models and recipes are ours, and the
published side is the rule of volumes that the work builds on (ZeRO, arXiv 1910.02054): 2, 2 and 3 times
weights of 16 bits over the ring's bus bandwidth as NCCL measured it.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from foretell.api.network import collective
from foretell.lab.reproduce.ladder import Ladder, ladder_of, ladder_rows, mean_ladder
from foretell.lab.reproduce.records import (
    Finding,
    PaperFigure,
    Progress,
    PublishedWork,
    Row,
    figure_maker,
    run_makers,
    verdict,
    widest,
)
from foretell.lab.reproduce.scaling_runs import coverage, found_of_selene, interval_words, retention
from foretell.studies.scaling.records import ScalingPoint
from foretell.studies.scaling.run import scaling
from foretell.studies.scaling.study import (
    COMBINATIONS,
    LOW,
    SIZES,
    SYSTEMS,
    WORDS,
    ScalingStudy,
    compare_published,
    model_named,
    study,
)
from foretell.workload.parameters import count

HIGH = "thetagpu-sophia"
"""The system with much bandwidth between its nodes."""
BUS_BYTES_PER_S = {"polaris-ss10": 9.81e9, "thetagpu-sophia": 178e9}
"""Bus bandwidth of 1 GiB collectives between nodes (argonne-lcf/alcf-nccl-tests, Polaris and Sophia)."""
VOLUMES = {"zero1": 2.0, "zero2": 2.0, "zero3": 3.0}
"""Times the weights that a rank sends and takes in a step (arXiv 1910.02054, sections 7 and 8)."""
NEAR = 1.5
"""Times a time of the rule of volumes, up or down, within which a time follows it."""
FIGURES = {
    "throughput": "Tokens per second and GPU, six sizes, three ways of sharing, on Slingshot-10",
    "efficiency": "What each keeps of its throughput",
    "shares": "Compute, communication and idle shares of a step, on the slow and on the fast system",
    "mixes": "Three mixes of model parallelism on four systems",
    "volume": "Communication by the rule of volumes and by ours",
    "bandwidth": "Throughput on 512 GPUs against the bandwidth between nodes",
    "measured": "GenSLM and ALCF runs, measured and predicted",
}
_figure = figure_maker(FIGURES)


def shares_of(point: ScalingPoint) -> dict[str, float]:
    """Compute, communication and idle of a step as shares: idle is the bubble, the host and the rest."""
    whole = point.step_s or 1.0
    compute = (point.compute_s or 0.0) / whole
    sent = (point.exposed_communication_s or 0.0) / whole
    return {"compute": compute, "communication": sent, "idle": max(1.0 - compute - sent, 0.0)}


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
        curves = self.study.data_parallel.curves
        return [_point_row(c.model, c.system, p) for c in curves for p in c.points]

    def throughput(self) -> PaperFigure:
        """Rates of six sizes."""
        return _figure("throughput", self.points)

    def efficiency(self) -> PaperFigure:
        """The same over the fewest chips."""
        rows = self.points
        node = [r for r in rows if r["gpus"] == 4 and r["efficiency"]]
        most = [r for r in rows if r["gpus"] == 512 and r["efficiency"]]
        node_end, later = [r["efficiency"] for r in node], [r["efficiency"] for r in most]
        width = widest([*node, *most], "low_s", "high_s")
        return _figure(
            "efficiency",
            rows,
            (
                Finding(
                    statement="throughput on one fast node says little of scaling on a "
                    "bandwidth-limited system",
                    published="argued in the abstract against TFLOP/s of DGX-class machines",
                    ours=f"efficiency {min(node_end):.2f} to {max(node_end):.2f} inside a node, "
                    f"{min(later):.2f} to {max(later):.2f} on 512 GPUs; {interval_words(width)}",
                    verdict=verdict(min(node_end) > 0.95 and max(later) < 0.75, width),
                ),
            ),
        )

    def shares(self) -> PaperFigure:
        """Shares on both systems, six sizes."""
        rows: list[Row] = [
            {
                "system": curve.system,
                "model": curve.model,
                "strategy": curve.strategy,
                "gpus": point.gpus,
                **shares_of(point),
                **_ends(point),
            }
            for found in (self.study.data_parallel, self.fast)
            for curve in found.curves
            for point in curve.points
            if point.step_s is not None and point.fits != "no"
        ]
        slow, fast = (
            [r for r in rows if (r["system"], r["strategy"], r["gpus"]) == (one, "zero3", 128)]
            for one in (LOW, HIGH)
        )
        width = widest([*slow, *fast], "low_s", "high_s")
        least, most = (
            [100 * pick(r["communication"] for r in some) for pick in (min, max)]
            for some in (slow, fast)
        )
        return _figure(
            "shares",
            rows,
            (
                Finding(
                    statement="communication decides end-to-end scaling where bandwidth is little, "
                    "compute where it is much",
                    published="the abstract's bottom-up split of throughput",
                    ours=f"exposed communication of ZeRO-3 on 128 GPUs: {least[0]:.0f} to "
                    f"{least[1]:.0f} % of a step on Slingshot-10, {most[0]:.0f} to {most[1]:.0f} % "
                    f"on HDR InfiniBand; {interval_words(width)}",
                    verdict=verdict(least[0] > 50.0 > most[1], width),
                ),
            ),
        )

    def mixes(self) -> PaperFigure:
        """Three mixes on four systems."""
        rows = [
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
        rates = {
            system: {
                r["strategy"]: float(r["tokens_per_s_per_gpu"] or 0.0)
                for r in rows
                if r["system"] == system and r["gpus"] == 128
            }
            for system in SYSTEMS
        }
        best = {system: max(some, key=lambda one: some[one]) for system, some in rates.items()}
        lost = {
            system: 100 * (1 - min(some.values()) / max(some.values()))
            for system, some in rates.items()
        }
        width = widest(rows, "low_s", "high_s")
        return _figure(
            "mixes",
            rows,
            (
                Finding(
                    statement="which mix of model parallelism is best depends on the system's bandwidth",
                    published="three combinations on one system with much and one with little bandwidth",
                    ours="best on 128 GPUs, and what the worst loses by: "
                    + ", ".join(f"{s} {w}, {lost[s]:.0f} %" for s, w in best.items())
                    + f"; {interval_words(width)}",
                    verdict=verdict(len(set(best.values())) > 1, width),
                ),
            ),
        )

    def volume(self) -> PaperFigure:
        """The rule of volumes beside ours."""
        rows: list[Row] = []
        for found in (self.study.data_parallel, self.fast):
            for curve in found.curves:
                weights = float(count(model_named(curve.model)).total)
                for point in curve.points:
                    if point.step_s is None or point.fits == "no" or point.gpus < 16:
                        continue
                    moved = 2.0 * VOLUMES[curve.strategy] * weights * (point.gpus - 1) / point.gpus
                    ours = (point.exposed_communication_s or 0.0) + (
                        point.hidden_communication_s or 0.0
                    )
                    rows.append(
                        {
                            "system": curve.system,
                            "model": curve.model,
                            "strategy": curve.strategy,
                            "gpus": point.gpus,
                            "volume_rule_s": moved / BUS_BYTES_PER_S[curve.system],
                            "large_messages_s": moved / large_bytes_per_s(curve.system, point.gpus),
                            "ours_s": ours,
                            "ours_exposed_s": point.exposed_communication_s,
                            **_ends(point),
                        }
                    )
        findings = []
        ladders: list[Row] = []
        for words, counts in (("16 and 32", (16, 32)), ("512", (512,))):
            own = [r for r in rows if r["system"] == LOW and r["gpus"] in counts]
            each = {_case(r): _volume_ladder(r) for r in own}
            found, width = mean_ladder(list(each.values())), widest(own, "low_s", "high_s")
            ratios = [one.whole for one in each.values()]
            statement = f"communication follows volume over bandwidth on {words} GPUs"
            ladders += ladder_rows(statement, each)
            findings.append(
                Finding(
                    statement=statement,
                    published="2, 2 and 3 times the weights (ZeRO-1, 2 and 3) over the bus bandwidth "
                    "of 1 GiB",
                    ours=f"{min(ratios):.2f} to {max(ratios):.2f} times that on Slingshot-10; "
                    f"{interval_words(width)}",
                    verdict=verdict(max(ratios) < NEAR and min(ratios) > 1.0 / NEAR, width),
                    why=found.because,
                    ladder=found,
                )
            )
        return _figure("volume", rows, tuple(findings), {"volume-ladder": ladders})

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
        return _figure(
            "bandwidth", sorted(rows, key=lambda r: (r["model"], r["strategy"], r["factor"]))
        )

    def measured(self) -> PaperFigure:
        """Open runs."""
        every = compare_published()
        found = [r for r in every if r.quantity in ("samples/s", "step s")]
        rows = [
            {
                "run": r.name,
                "quantity": r.quantity,
                "gpus": r.gpus,
                "measured": r.measured,
                "predicted": r.predicted,
                "low": None if r.p90 is None else r.p90[0],
                "high": None if r.p90 is None else r.p90[1],
                "inside": r.inside,
                "open_low": None if r.open_p90 is None else r.open_p90[0],
                "open_high": None if r.open_p90 is None else r.open_p90[1],
                "inside_open": r.inside_open,
                "assumed": r.assumed,
            }
            for r in found
        ]
        ladder, steps = found_of_selene()
        findings = (retention(every), coverage(found), ladder)
        return _figure("measured", rows, findings, {"measured-ladder": steps})


@lru_cache(maxsize=32)
def large_bytes_per_s(system: str, gpus: int) -> float:
    """Bus bandwidth of a gather of 1 GiB among so many chips, by our collectives."""
    found = collective(system, collective="all-gather", size="1 GiB", group=gpus)
    return float(found.to_dict()["bus_bytes_per_s"])


def _case(row: Row) -> str:
    return f"{row['model']} {row['strategy']} on {row['gpus']} GPUs"


def _volume_ladder(row: Row) -> Ladder:
    """Seconds of communication from the rule of volumes to ours."""
    return ladder_of(
        {
            "published": row["volume_rule_s"],
            "collectives of so many nodes": row["large_messages_s"],
            "messages of a layer or a bucket": row["ours_s"],
        }
    )


def _point_row(model: str, system: str, point: ScalingPoint) -> Row:
    return {
        "model": model,
        "system": system,
        "strategy": point.strategy,
        "gpus": point.gpus,
        "tokens_per_s_per_gpu": point.tokens_per_s_per_gpu,
        "efficiency": point.efficiency,
        "fits": point.fits,
        "plan": point.plan,
        "step_s": point.step_s,
        **_ends(point),
    }


def _ends(point: ScalingPoint) -> Row:
    """The 90 % interval of a step."""
    low, high = (None, None) if point.interval is None else point.interval["p90"]
    return {"low_s": low, "high_s": high}


def run(names: Sequence[str], workers: int, progress: Progress | None) -> list[PaperFigure]:
    """The figures named."""
    del workers
    work = ScalingReproduction()
    return run_makers({name: getattr(work, name) for name in FIGURES}, names, progress)


SCALING_2024 = PublishedWork(
    name="scaling-2024",
    title="Thorough Characterization and Analysis of Large Transformer Model Training At-Scale "
    "(Cheng et al.)",
    source="POMACS 8(1) article 8 (SIGMETRICS 2024), doi 10.1145/3639034",
    example="measured",
    figures=FIGURES,
    run=run,
    missing=(
        (
            "The paper's model sizes, batches and figures were not at hand: sizes here are OPT's, "
            f"recipes ours ({WORDS}; {', '.join(COMBINATIONS)})."
        ),
        "Traces and logs of one's own runs get the same split: foretell characterize trace FILE.",
    ),
)
