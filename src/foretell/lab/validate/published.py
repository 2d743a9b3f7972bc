"""Training runs and services in print, predicted: tables of the README and of docs/accuracy.md, and all rows.

`python -m foretell.lab.validate.published` renders all from published.toml and published_serving.toml, which
are compiled by hand (the rows: page_text.py); with a folder of measured data as its argument it also renders
what pages say of all of that (pages.py). A service has a model, a chip, an engine, formats, a load and one
figure, and is understood and predicted as the rows of `foretell validate serving` are.
"""

import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from foretell.catalog.typed_models import TypedShape, build_model
from foretell.errors import ProblemsError
from foretell.inputs.question import ask, named_by, plan_of
from foretell.lab.calibrate.serving_cases import case_of, in_their_unit, predict_case
from foretell.lab.calibrate.serving_rows import ServingRow
from foretell.lab.validate.held_out_scores import held_out_table
from foretell.lab.validate.page_text import FILE as STORED
from foretell.lab.validate.page_text import Sections, markdown, rows_text, with_written
from foretell.records import dataclass
from foretell.search.frameworks import own_refusals
from foretell.search.plan_checks import check_choices
from foretell.specs.model import Model
from foretell.training.answer import answer_of
from foretell.training.room import make_room

FILE = Path(__file__).parent / "published.toml"
Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One published step beside ours."""

    table: str
    """Which table it is in."""
    source: str
    """Where it is printed."""
    model: str
    """Model id."""
    chip: str
    """The chip's generation and id."""
    gpus: int
    """Chips."""
    global_batch: int
    """Sequences per step."""
    seq_len: int
    """Tokens per sequence."""
    plan: str
    """The plan."""
    measured_s: float
    """Step time in print, or what the printed rate implies."""
    predicted_s: float | None
    """Ours; None where a part of the plan is not modelled."""

    @property
    def error(self) -> float | None:
        """Signed relative error: positive where we say slower; None where we say nothing."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1.0


@lru_cache(maxsize=1)
def runs() -> tuple[PublishedRun, ...]:
    """Every run of the file, predicted with its published plan."""
    file = tomllib.loads(FILE.read_text())
    shapes = file.get("shape", {})
    return tuple(_predict(table, run, shapes) for table in file["table"] for run in table["runs"])


def _predict(table: Table, run: Table, shapes: Table) -> PublishedRun:
    seq_len = int(run.get("seq_len") or table["seq_len"])
    model = str(run["model"])
    scenario = ask(
        model=shape_model(model, shapes[model], seq_len) if model in shapes else model,
        system=str(table["system"]),
        gpus=int(run["gpus"]),
        global_batch=int(run["global_batch"]),
        seq_len=seq_len,
        set=tuple(str(s) for s in table.get("set", ())),
    )
    text = f"{table['common']} {run['plan']}"
    scenario, plan = plan_of(scenario, text)
    try:
        check_choices(scenario, plan)
        scenario, plan = make_room(scenario, plan, named_by(text), own_refusals)
        predicted: float | None = answer_of(scenario, plan, chosen=False).step_s
    except ProblemsError:
        predicted = None
    measured = run.get("step_s")
    if measured is None:
        rate = float(run["tokens_per_s_per_gpu"]) * scenario.job.gpus
        measured = scenario.job.tokens_per_step / rate
    return PublishedRun(
        table=str(table["title"]),
        source=str(table["source"]),
        model=model,
        chip=f"{scenario.system.chip.architecture}: {scenario.system.chip.id}",
        gpus=scenario.job.gpus,
        global_batch=scenario.job.global_batch,
        seq_len=seq_len,
        plan=str(plan),
        measured_s=float(measured),
        predicted_s=predicted,
    )


def shape_model(name: str, shape: Table, seq_len: int) -> Model:
    """A dense model of a published shape: layers, hidden, heads, kv_heads, ffn, vocab, gated, tied."""
    made = TypedShape(name=name, positions=seq_len, **shape)
    return replace(build_model(made), assumptions=())


Printed = TypeVar("Printed", PublishedRun, "PublishedService")


def by_table(some: Iterable[Printed]) -> dict[str, list[Printed]]:
    """Runs or services by their table."""
    groups: dict[str, list[Printed]] = defaultdict(list)
    for one in some:
        groups[one.table].append(one)
    return groups


def by_generation(some: Iterable[PublishedRun]) -> dict[str, list[PublishedRun]]:
    """Runs by the generation of their chips, whose ids and sources the key counts; two sources or more."""
    groups: dict[str, list[PublishedRun]] = defaultdict(list)
    for run in some:
        groups[run.chip.split(":")[0]].append(run)
    named = {}
    for generation, group in groups.items():
        chips = sorted({run.chip.split(": ")[1].split("-")[0].upper() for run in group})
        sources = len({run.source for run in group})
        if sources > 1:
            named[f"{', '.join(chips)} ({generation}), {sources} sources"] = group
    return named


def accuracy_table(groups: Mapping[str, Sequence[PublishedRun]]) -> str:
    """A Markdown table: one line per group of runs."""
    rows = []
    for title, group in groups.items():
        errors = [run.error for run in group if run.error is not None]
        if errors:
            size = f"{median(map(abs, errors)):.0%}"
            rows.append((title, len(errors), size, f"{min(errors):+.0%}", f"{max(errors):+.0%}"))
    return markdown("published runs | runs | median error | from | to", rows)


SERVICES = Path(__file__).parent / "published_serving.toml"
SERVICE_COLUMNS = (
    "model", "gpu", "n_gpus", "framework", "version", "precision", "kv_precision", "batch", "isl",
    "osl", "printed",
)  # fmt: skip
"""What the cells of a row are."""
METRICS: Mapping[str, str] = {
    "tokens_per_s": "throughput", "ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2e",
}  # fmt: skip
"""Field of a row that has its figure -> our name of it."""
UNITS: Mapping[str, str] = {"throughput": "tokens/s"}
"""Units of figures that are no milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedService:
    """One published figure beside ours."""

    table: str
    """Which table it is in."""
    source: str
    """Where it is printed."""
    row: ServingRow
    """What was served, on what and how."""
    metric: str
    """throughput, ttft, tpot or e2e."""
    printed: float
    """The figure in print: output tokens a second, or milliseconds."""
    ours: float
    """The same as predicted."""
    profile: str
    """The engine profile that it was predicted by."""

    @property
    def error(self) -> float:
        """Signed relative error of the time: positive where we say slower."""
        ratio = self.ours / self.printed
        return (1.0 / ratio if self.metric == "throughput" else ratio) - 1.0


@lru_cache(maxsize=1)
def services() -> tuple[PublishedService, ...]:
    """Every row of the file, predicted."""
    tables = tomllib.loads(SERVICES.read_text())["table"]
    return tuple(_predict_service(table, cells) for table in tables for cells in table["rows"])


def _predict_service(table: Mapping[str, Any], cells: Sequence[Any]) -> PublishedService:
    told = dict(zip(SERVICE_COLUMNS, cells, strict=True))
    printed = float(told.pop("printed"))
    row = _row(table, told, printed)
    case = case_of(row)
    metric = METRICS[table["metric"]]
    return PublishedService(
        table=str(table["title"]),
        source=str(table["source"]),
        row=row,
        metric=metric,
        printed=printed,
        ours=in_their_unit(case, predict_case(case))[metric],
        profile=case.profile.id,
    )


def _row(table: Mapping[str, Any], told: Mapping[str, Any], printed: float) -> ServingRow:
    """The cells as a row of a table of services; no batch is an endless queue."""
    blank = dict.fromkeys(
        ("rate", "tokens_per_s", "tokens_per_s_per_gpu", "ttft_ms", "tpot_ms", "e2e_ms")
    )
    values = {**blank, table["metric"]: printed, **told, "batch": told["batch"] or None}
    return ServingRow(
        id=str(table["title"]),
        kind=str(table["kind"]),
        tp=int(table.get("chips_each", told["n_gpus"])),
        pp=1,
        dp=1,
        ep=1,
        notes="",
        source=str(table["source"]),
        **values,
    )


def short_text(some: Iterable[PublishedService]) -> str:
    """A line for each table: rows, median error without and with its sign, least and most."""
    rows = []
    for title, group in by_table(some).items():
        errors = [one.error for one in group]
        signed = (f"{find(errors):+.0%}" for find in (median, min, max))
        rows.append((title, len(errors), f"{median(map(abs, errors)):.0%}", *signed))
    return markdown("services in print | rows | median error | signed | from | to", rows)


def services_text(some: Iterable[PublishedService]) -> str:
    """Every row as CSV."""
    return rows_text(
        [
            {
                "table": one.table,
                "source": one.source,
                "model": one.row.model,
                "gpus": one.row.n_gpus,
                "gpu": one.row.gpu,
                "batch": "queue" if one.row.batch is None else one.row.batch,
                "isl": one.row.isl,
                "osl": one.row.osl,
                "profile": one.profile,
                "metric": one.metric,
                "unit": UNITS.get(one.metric, "ms"),
                "in_print": one.printed,
                "ours": float(f"{one.ours:.4g}"),
                "error": round(one.error, 3),
            }
            for one in some
        ]
    )


SECTIONS: Sections = (
    ("README.md", "accuracy", lambda _: accuracy_table(by_generation(runs()))),
    ("docs/accuracy.md", "accuracy", lambda _: accuracy_table(by_table(runs()))),
    ("docs/accuracy.md", "held-out", lambda _: held_out_table()),
    ("docs/accuracy.md", "services", lambda _: short_text(services())),
    ("docs/accuracy/services.csv", "", lambda _: services_text(services())),
)
"""Page, name of its section, and what writes it."""


def with_runs(root: Path) -> dict[Path, str]:
    """The pages with runs and services in print as predictions are today."""
    return with_written(root, SECTIONS, root)


def main(arguments: Sequence[str]) -> None:
    """Render README.md and pages of docs/ of the repository that this file is in."""
    root = Path(__file__).parents[4]
    STORED.write_text(rows_text([asdict(run) for run in runs()]), encoding="ascii")
    from foretell.lab.first_contact.page import with_ledger
    from foretell.lab.validate.own_runs import with_steps

    for render in (with_runs, with_ledger, with_steps):
        for path, text in render(root).items():
            path.write_text(text)
    if arguments:
        from foretell.lab.validate.pages import with_sections

        for path, text in with_sections(root, Path(arguments[0])).items():
            path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
