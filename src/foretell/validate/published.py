"""Runs in print, predicted: the table of the README. Scoreboards over whole data sets come on top."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

from foretell.answer import answer_of
from foretell.api import check_plan
from foretell.question import ask, plan_of

FILE = Path(__file__).parent / "published.toml"
START, END = "<!-- generated: accuracy -->", "<!-- end -->"
"""Marks in a page between which the table stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One published step beside ours."""

    table: str
    """Which table it stands in."""
    source: str
    """Where it is printed."""
    model: str
    """Model id."""
    gpus: int
    """Chips."""
    plan: str
    """The plan."""
    measured_s: float
    """Step time in print, or what the printed rate implies."""
    predicted_s: float
    """Ours."""

    @property
    def error(self) -> float:
        """Signed relative error: positive where we say slower."""
        return self.predicted_s / self.measured_s - 1.0


@lru_cache(maxsize=1)
def runs() -> tuple[Run, ...]:
    """Every run of the file, predicted with its published plan."""
    tables = tomllib.loads(FILE.read_text())["table"]
    return tuple(_predict(table, run) for table in tables for run in table["runs"])


def _predict(table: dict[str, object], run: dict[str, object]) -> Run:
    settings = tuple(str(s) for s in table.get("set", ()))  # type: ignore[attr-defined]
    scenario = ask(
        model=str(run["model"]),
        system=str(table["system"]),
        gpus=int(str(run["gpus"])),
        global_batch=int(str(run["global_batch"])),
        seq_len=int(str(run.get("seq_len") or table["seq_len"])),
        settings=settings,
    )
    plan = plan_of(scenario, f"{table['common']} {run['plan']}")
    check_plan(scenario, plan)
    answer = answer_of(scenario, plan, chosen=False)
    measured = run.get("step_s")
    if measured is None:
        rate = float(str(run["tokens_per_s_per_gpu"])) * scenario.job.gpus
        measured = scenario.job.tokens_per_step / rate
    return Run(
        table=str(table["title"]),
        source=str(table["source"]),
        model=str(run["model"]),
        gpus=scenario.job.gpus,
        plan=str(plan),
        measured_s=float(str(measured)),
        predicted_s=answer.step_s,
    )


def accuracy_table(some: Iterable[Run]) -> str:
    """A Markdown table: one line per published table."""
    groups: dict[str, list[Run]] = {}
    for run in some:
        groups.setdefault(run.table, []).append(run)
    lines = [
        "| published runs | runs | median error | from | to |",
        "|---|---|---|---|---|",
    ]
    for title, group in groups.items():
        errors = [run.error for run in group]
        size = median(abs(e) for e in errors)
        lines.append(
            f"| {title} | {len(group)} | {size:.0%} | {min(errors):+.0%} | {max(errors):+.0%} |"
        )
    return "\n".join(lines)


def with_table(page: str) -> str:
    """The page with a fresh table between its marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{accuracy_table(runs())}\n{END}{after}"


if __name__ == "__main__":
    readme = Path(__file__).parents[3] / "README.md"
    readme.write_text(with_table(readme.read_text()))
