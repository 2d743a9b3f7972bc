"""Services in print, predicted: what docs/accuracy.md tells of chips, engines and formats beside the tables.

`python -m foretell.lab.validate.published` renders the page from published_serving.toml, which is compiled by
hand: model, chip, engine, formats, load and one figure of each row. Rows are understood and predicted as
those of `foretell validate serving`.
"""

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from foretell.lab.calibrate.serving_cases import case_of, in_their_unit, predict_case
from foretell.lab.calibrate.serving_rows import ServingRow
from foretell.lab.validate.page_text import markdown, rows_text
from foretell.records import dataclass

FILE = Path(__file__).parent / "published_serving.toml"
COLUMNS = (
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
    tables = tomllib.loads(FILE.read_text())["table"]
    return tuple(_predict(table, cells) for table in tables for cells in table["rows"])


def _predict(table: Mapping[str, Any], cells: Sequence[Any]) -> PublishedService:
    told = dict(zip(COLUMNS, cells, strict=True))
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


def services_by_table(some: Iterable[PublishedService]) -> dict[str, list[PublishedService]]:
    """Services by their table."""
    groups: dict[str, list[PublishedService]] = defaultdict(list)
    for one in some:
        groups[one.table].append(one)
    return groups


def short_text(some: Iterable[PublishedService]) -> str:
    """A line for each table: rows, median error without and with its sign, least and most."""
    rows = []
    for title, group in services_by_table(some).items():
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
