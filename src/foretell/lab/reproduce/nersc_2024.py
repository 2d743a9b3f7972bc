"""arXiv 2410.00273 (2024): every computable figure and table, by the published model and by ours."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from foretell.lab.reference.records import STRATEGIES, Strategy
from foretell.lab.reference.study import (
    GPT,
    STUDY_GPUS,
    SYSTEMS,
    VIT,
    BestPlans,
    StudyResult,
    key_of,
    run_study,
)
from foretell.lab.reproduce.nersc_findings import (
    STATEMENTS,
    WORK,
    collective_finding,
    findings_of,
    measured_finding,
    rungs_table,
    tasks_of,
)
from foretell.lab.reproduce.nersc_ladder import Climb, climb
from foretell.lab.reproduce.nersc_layers import (
    PARTS,
    PUBLISHED_PARTS,
    collective_rows,
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
    Row,
    some_cells,
)

PLACE = ("model", "chip", "nvs", "gpus")
"""Columns that tell a search."""
JOBS = [(m, *system, n) for m in (GPT, VIT) for system in SYSTEMS for n in STUDY_GPUS]
"""Model, chip, fast domain and GPUs of every published search."""
SPLIT_SYSTEM = ("B200", 8)
"""The system whose plans are broken down."""


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
        self.figures = figures or tuple(WORK.figures)

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
        return [
            {"side": "published", **_place(*job), "strategy": strategy, "days": days}
            for job in JOBS
            for strategy in STRATEGIES
            if (days := self.best.days(job[0], strategy, *job[1:])) is not None
        ]

    def _our_days(self) -> list[Row]:
        return [
            {"side": "ours", **some_cells(r, PLACE), "strategy": name, "days": r[key]}
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
        for job in JOBS:
            days = {s: self.best.days(job[0], s, *job[1:]) for s in STRATEGIES}
            over: Strategy = "1d" if job[0] == GPT else "2d"
            base = days.pop(over)
            for strategy, own in days.items():
                if base and own:
                    told = {"of": strategy, "over": over, "speedup": base / own}
                    rows.append({"side": "published", **_place(*job), **told})
        for r in self.ours:
            if r["days"] and r["days_1d"]:
                told = {"of": r["strategy"], "over": "1d", "speedup": r["days_1d"] / r["days"]}
                rows.append({"side": "ours", **some_cells(r, PLACE), **told})
        return self._figure("speedup", rows)

    def configurations(self) -> PaperFigure:
        """The fastest plan against GPUs on B200 in domains of eight, and its parts."""
        rows: list[Row] = []
        for model in (GPT, VIT):
            for gpus in STUDY_GPUS:
                for strategy in STRATEGIES:
                    row = self.best.rows.get((model, strategy, *SPLIT_SYSTEM, gpus))
                    rows += [] if row is None else [_published_split(model, strategy, gpus, row)]
            for own in self.ours:
                if own["plan"] and (own["model"], own["chip"], own["nvs"]) == (
                    model,
                    *SPLIT_SYSTEM,
                ):
                    rows.append(_our_split(own))
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
        note = "Ours has no SUMMA in this table: its op families are those of 1-D and split-sequence plans."
        more = {"layers_ours": our_layer_rows()}
        return WORK.figure("layers", layer_rows(), more=more, notes=(note,))

    def factor(self) -> PaperFigure:
        """Days side by side, and the difference by part."""
        rows: list[Row] = []
        for own in self.ours:
            job = own["model"], own["chip"], own["nvs"], own["gpus"]
            won = self.best.winner(*job)
            mine = breakdown(_task(own), own["plan"]) if own["plan"] and won is not None else {}
            if won is None or not mine:
                continue
            published = self.best.rows[job[0], won[1], *job[1:]]
            theirs = _published_parts(job[0], published)
            parts = {
                f"{side}_{part}": some.get(part, 0.0)
                for part in PARTS
                for side, some in (("published", theirs), ("our", mine))
            }
            days = {"published_days": won[0], "our_days": own["days"]}
            plans = {"published_plan": _plan_text(published), "our_plan": own["plan"]}
            factor = {"factor": own["days"] / won[0]}
            rows.append({**some_cells(own, PLACE), **days, **factor, **parts, **plans})
        return self._figure("factor", rows)

    def measured(self) -> PaperFigure:
        """Real runs."""
        rows = measured_rows()
        return self._figure("measured", rows, measured_finding(rows))

    def collectives(self) -> PaperFigure:
        """NCCL on Perlmutter."""
        rows = collective_rows()
        return self._figure("collectives", rows, collective_finding(rows))

    def plans(self) -> PaperFigure:
        """The two stored tables."""
        searched, many = self.study.evaluations, len(self.study.plans)
        note = f"{searched:,} candidates, {self.study.feasible:,} fit, {many:,} plans kept."
        more = {"candidate_counts": self.study.counts}
        return WORK.figure("plans", self.study.plans, more=more, notes=(note,))

    def _figure(
        self, name: str, rows: Sequence[Row], *findings: Finding, notes: tuple[str, ...] = ()
    ) -> PaperFigure:
        """A figure with the statements that are drawn from it."""
        if name not in STATEMENTS:
            return WORK.figure(name, rows, *findings, notes=notes)
        found, more = findings_of(name, self.climbs), rungs_table(name, self.climbs)
        return WORK.figure(name, rows, *findings, *found, more=more, notes=notes)


def _place(model: str, chip: str, domain: int, gpus: int) -> dict[str, Any]:
    return {"model": model, "chip": chip, "nvs": domain, "gpus": gpus}


def _task(own: Row) -> OurTask:
    """The search of one of our rows."""
    return OurTask(model=own["model"], chip=own["chip"], domain=own["nvs"], gpus=own["gpus"])


def _published_parts(model: str, row: Mapping[str, Any]) -> dict[str, float]:
    """Days of each part of a published plan."""
    return {part: days_of(model, float(row[column])) for part, column in PUBLISHED_PARTS.items()}


def _plan_text(row: Mapping[str, Any]) -> str:
    """A published plan in few words."""
    split = f"tp{row['tp']}" if row["tp1"] is None else f"tp{row['tp1']}x{row['tp2']}"
    return f"{split} pp{row['pp']} dp{row['dp']} mbs{row['mbs']}"


def _published_split(model: str, strategy: str, gpus: int, row: Mapping[str, Any]) -> Row:
    parts = _published_parts(model, row)
    told = {"side": "published", "model": model, "strategy": strategy, "gpus": gpus}
    told |= {"plan": _plan_text(row), "days": sum(parts.values()), "memory_gb": row["mem"]}
    return {**told, **parts}


def _our_split(own: Row) -> Row:
    parts = breakdown(_task(own), own["plan"])
    told = {"side": "ours", "model": own["model"], "strategy": "any"}
    told |= some_cells(own, ("gpus", "plan", "days", "memory_gb"))
    return {**told, **{part: parts.get(part) for part in PARTS}}


def makers(figures: Sequence[str], workers: int) -> Mapping[str, Callable[[], PaperFigure]]:
    """What makes each figure."""
    study = NerscStudy(workers, figures)
    return {
        name: partial(study.map, name) if name in MAPS else getattr(study, name)
        for name in WORK.figures
    }
