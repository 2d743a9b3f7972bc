"""arXiv 2410.00273 (2024): every computable figure and table, by the published model and by ours."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from foretell.lab.reference.study import STUDY_GPUS, StudyResult, run_study
from foretell.lab.reference.tables import GPT, ORDER, SYSTEMS, VIT, BestPlans, key_of
from foretell.lab.reproduce.nersc_collectives import collective_rows
from foretell.lab.reproduce.nersc_findings import (
    STATEMENTS,
    collective_findings,
    findings_of,
    measured_findings,
    rungs_table,
    tasks_of,
)
from foretell.lab.reproduce.nersc_ladder import Climb, climb
from foretell.lab.reproduce.nersc_layers import (
    PARTS,
    PUBLISHED_PARTS,
    fixed_rows,
    layer_rows,
    measured_rows,
    our_layer_rows,
)
from foretell.lab.reproduce.nersc_maps import MAP_GPUS, MAPS, published_map
from foretell.lab.reproduce.nersc_ours import (
    OUR_GPUS,
    OurTask,
    breakdown,
    days_of,
    our_map,
    run_tasks,
    search_row,
)
from foretell.lab.reproduce.records import (
    Finding,
    PaperFigure,
    Progress,
    PublishedWork,
    Row,
    run_makers,
    some_cells,
)

PLACE = "model chip nvs gpus"
"""Columns that tell a search."""
SPLIT_SYSTEM = ("B200", 8)
"""The system whose plans are broken down."""
FIGURES = {
    "days": "Days of training against GPUs, both models, three chips, three fast domains",
    "throughput": "Samples per second and GPU",
    "speedup": "Speed-up of two-dimensional over one-dimensional tensor parallelism",
    "configurations": "The fastest plan and where its time goes, against GPUs",
    "fixed": "Fixed configurations on 16,384 B200, each with its fastest placement",
    "capacity-bandwidth": "Days over memory capacity and bandwidth, 32 x 28",
    "flops-capacity": "Days over arithmetic and memory capacity",
    "flops-bandwidth": "Days over arithmetic and memory bandwidth",
    "layers": "One layer, op by op",
    "factor": "Days by both models, and what the factor between them is made of",
    "measured": "Real iterations of Megatron-LM on A100, by both models",
    "collectives": "Collectives of NCCL on Perlmutter, measured and by both models",
    "plans": "The stored tables: ten fastest plans of every search, and candidate counts",
}
"""Figures and tables of the study, in order."""


def _map_task(task: tuple[str, str]) -> list[dict[str, Any]]:
    """One map of one model, both sides."""
    model, name = task
    x, y = MAPS[name]
    return [*published_map(model, MAP_GPUS, x, y), *our_map(model, MAP_GPUS, x, y)]


class NerscStudy:
    """What figures share, each computed once and only where one needs it."""

    def __init__(self, workers: int, figures: Sequence[str] = ()) -> None:
        """With so many processes, for some figures; all where none are named."""
        self.workers = workers
        self.figures = figures or tuple(FIGURES)

    @cached_property
    def climbs(self) -> Mapping[OurTask, Climb]:
        """Every search that the figures' statements need, on every rung."""
        tasks = tasks_of(self.figures)
        return dict(zip(tasks, run_tasks(climb, tasks, self.workers), strict=True))

    @cached_property
    def study(self) -> StudyResult:
        """All 54 published searches, ten plans of each."""
        return run_study(workers=self.workers)

    @cached_property
    def best(self) -> BestPlans:
        """The fastest plan of each published search."""
        return BestPlans(rows={key_of(r): r for r in self.study.plans if r["rank"] == 1})

    @cached_property
    def ours(self) -> list[dict[str, Any]]:
        """Our searches on the nine systems."""
        tasks = [
            OurTask(model=model, chip=chip, domain=domain, gpus=gpus)
            for model in (GPT, VIT)
            for chip, domain in SYSTEMS
            for gpus in OUR_GPUS
        ]
        return run_tasks(search_row, tasks, self.workers)

    @cached_property
    def maps(self) -> Mapping[str, list[dict[str, Any]]]:
        """Every map of both models on both sides."""
        tasks = [(model, name) for name in reversed(MAPS) for model in (VIT, GPT)]
        found = run_tasks(_map_task, tasks, self.workers)
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in MAPS}
        for (_, name), cells in zip(tasks, found, strict=True):
            rows[name] += cells
        return rows

    def days(self) -> PaperFigure:
        """Days of both sides."""
        return self._figure("days", [*self._published_days(), *self._our_days()])

    def _published_days(self) -> list[Row]:
        rows: list[Row] = []
        for model in (GPT, VIT):
            for chip, domain in SYSTEMS:
                for gpus in STUDY_GPUS:
                    for strategy in ORDER:
                        value = self.best.days(model, strategy, chip, domain, gpus)
                        if value is not None:
                            rows.append(
                                _day_row("published", strategy, model, chip, domain, gpus, value)
                            )
        return rows

    def _our_days(self) -> list[Row]:
        return [
            _day_row("ours", name, r["model"], r["chip"], r["nvs"], r["gpus"], r[key])
            for r in self.ours
            for name, key in (("any", "days"), ("1d", "days_1d"))
            if r[key] is not None
        ]

    def throughput(self) -> PaperFigure:
        """Samples/s and GPU of the fastest plan."""
        rows: list[Row] = []
        for r in [*self._published_days(), *self._our_days()]:
            rate = days_of(str(r["model"]), 1.0) * 4096.0 / r["days"] / r["gpus"]
            rows.append({**r, "samples_per_s_per_gpu": rate})
        return self._figure("throughput", rows)

    def speedup(self) -> PaperFigure:
        """How much faster two dimensions are than one; of the ViT, than SUMMA too."""
        rows: list[Row] = []
        for model, chip, domain, gpus in [
            (m, *s, n) for m in (GPT, VIT) for s in SYSTEMS for n in STUDY_GPUS
        ]:
            value = {s: self.best.days(model, s, chip, domain, gpus) for s in ORDER}
            base = "1d" if model == GPT else "2d"
            for strategy in ORDER:
                if strategy != base and value[strategy] and value[base]:
                    ratio = float(value[base] or 0.0) / float(value[strategy] or 1.0)
                    where = {"model": model, "chip": chip, "nvs": domain, "gpus": gpus}
                    told = {"of": strategy, "over": base, "speedup": ratio}
                    rows.append({"side": "published", **where, **told})
        for r in self.ours:
            if r["days"] and r["days_1d"]:
                told = {"of": r["strategy"], "over": "1d", "speedup": r["days_1d"] / r["days"]}
                rows.append({"side": "ours", **some_cells(r, PLACE), **told})
        return self._figure("speedup", rows)

    def configurations(self) -> PaperFigure:
        """The fastest plan against GPUs on B200 in domains of eight, and its parts."""
        chip, domain = SPLIT_SYSTEM
        rows: list[Row] = []
        for model in (GPT, VIT):
            for gpus in STUDY_GPUS:
                for strategy in ORDER:
                    row = self.best.rows.get((model, strategy, chip, domain, gpus))
                    if row is not None:
                        rows.append(_published_split(model, strategy, gpus, row))
            mine = (
                r for r in self.ours if (r["model"], r["chip"], r["nvs"]) == (model, chip, domain)
            )
            rows += [_our_split(own) for own in mine if own["plan"]]
        return self._figure("configurations", rows)

    def fixed(self) -> PaperFigure:
        """Every split of 16,384 GPUs with its fastest placement."""
        return self._figure("fixed", fixed_rows())

    def map(self, name: str) -> PaperFigure:
        """One of the maps."""
        note = (
            "Our cells search the plans that come within 1.3 times the fastest at a corner of the map. "
            "With arithmetic grow the watts, so that a faster chip is not throttled."
        )
        return self._figure(name, self.maps[name], notes=(note,))

    def layers(self) -> PaperFigure:
        """The published ops and our families."""
        return PaperFigure(
            name="layers",
            title=FIGURES["layers"],
            tables={"layers": layer_rows(), "layers_ours": our_layer_rows()},
            notes=(
                "Ours has no SUMMA in this table: its op families are those of 1-D and split-sequence plans.",
            ),
        )

    def factor(self) -> PaperFigure:
        """Days side by side, and the difference by part."""
        rows: list[Row] = []
        for own in self.ours:
            model, gpus = own["model"], own["gpus"]
            won = self.best.winner(model, own["chip"], own["nvs"], gpus)
            if not own["plan"] or won is None:
                continue
            row: dict[str, Any] = {
                **some_cells(own, PLACE),
                "published_days": won[0],
                "our_days": own["days"],
                "factor": own["days"] / won[0],
            }
            published = self.best.rows[model, won[1], own["chip"], own["nvs"], gpus]
            task = OurTask(model=model, chip=own["chip"], domain=own["nvs"], gpus=gpus)
            theirs, mine = _published_days_of(model, published), breakdown(task, own["plan"])
            if not mine:
                continue
            for part in PARTS:
                row[f"published_{part}"] = theirs.get(part, 0.0)
                row[f"our_{part}"] = mine.get(part, 0.0)
            rows.append(row | {"published_plan": _plan_text(published), "our_plan": own["plan"]})
        return self._figure("factor", rows)

    def measured(self) -> PaperFigure:
        """Real runs."""
        rows = measured_rows()
        return self._figure("measured", rows, measured_findings(rows))

    def collectives(self) -> PaperFigure:
        """NCCL on Perlmutter."""
        rows = collective_rows()
        return self._figure("collectives", rows, collective_findings(rows))

    def plans(self) -> PaperFigure:
        """The two stored tables."""
        searched, many = self.study.evaluations, len(self.study.plans)
        return PaperFigure(
            name="plans",
            title=FIGURES["plans"],
            tables={"plans": self.study.plans, "candidate_counts": self.study.counts},
            notes=(f"{searched:,} candidates, {self.study.feasible:,} fit, {many:,} plans kept.",),
        )

    def _figure(
        self,
        name: str,
        rows: Sequence[Row],
        findings: tuple[Finding, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> PaperFigure:
        ladders = rungs_table(name, self.climbs) if name in STATEMENTS else {}
        return PaperFigure(
            name=name,
            title=FIGURES[name],
            tables={name: rows, **ladders},
            findings=(*findings, *(findings_of(name, self.climbs) if ladders else ())),
            notes=notes,
        )


def _day_row(
    side: str, strategy: str, model: str, chip: str, domain: int, gpus: int, days: float
) -> Row:
    where = {"model": model, "chip": chip, "nvs": domain, "gpus": gpus}
    return {"side": side, **where, "strategy": strategy, "days": days}


def _published_days_of(model: str, row: Mapping[str, Any]) -> dict[str, float]:
    return {part: days_of(model, float(row[column])) for part, column in PUBLISHED_PARTS.items()}


def _plan_text(row: Mapping[str, Any]) -> str:
    """A published plan in few words."""
    split = f"tp{row['tp']}" if row["tp1"] is None else f"tp{row['tp1']}x{row['tp2']}"
    return f"{split} pp{row['pp']} dp{row['dp']} mbs{row['mbs']}"


def _published_split(model: str, strategy: str, gpus: int, row: Mapping[str, Any]) -> Row:
    parts = _published_days_of(model, row)
    return {
        "side": "published",
        "model": model,
        "strategy": strategy,
        "gpus": gpus,
        "plan": _plan_text(row),
        "days": sum(parts.values()),
        "memory_gb": row["mem"],
        **parts,
    }


def _our_split(own: Mapping[str, Any]) -> Row:
    task = OurTask(model=own["model"], chip=own["chip"], domain=own["nvs"], gpus=own["gpus"])
    parts = breakdown(task, own["plan"])
    told = {"side": "ours", "model": own["model"], "strategy": "any"}
    told |= some_cells(own, "gpus plan days memory_gb")
    return {**told, **{part: parts.get(part) for part in PARTS}}


def run(names: Sequence[str], workers: int, progress: Progress | None) -> list[PaperFigure]:
    """The figures named."""
    study = NerscStudy(workers, names)
    makers: Mapping[str, Callable[[], PaperFigure]] = {
        name: partial(study.map, name) if name in MAPS else getattr(study, name) for name in FIGURES
    }
    return run_makers(makers, names, progress)


NERSC_2024 = PublishedWork(
    name="nersc-2024",
    title="Comprehensive performance modeling and system design insights for foundation models",
    source="arXiv 2410.00273 (2024), with its public code and stored outputs",
    example="measured",
    figures=FIGURES,
    run=run,
    missing=(
        (
            "The paper's own table of Megatron-LM runs on Perlmutter was not at hand; published runs of "
            "Megatron-LM on A100 replace it."
        ),
    ),
)
