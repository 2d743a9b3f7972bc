"""Runs in print, predicted: the table of the README and docs/accuracy.md, and the rows of the page.

`python -m foretell.lab.validate.published` renders all from published.toml (the rows: page_text.py);
with a folder of measured data as its argument it also renders what pages say of all of that (pages.py).
"""

import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from foretell.catalog.typed_models import TypedShape, build_model
from foretell.errors import ProblemsError
from foretell.inputs.question import ask, named_by, plan_of
from foretell.lab.validate import published_serving as served
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


def runs_by_table(some: Iterable[PublishedRun]) -> dict[str, list[PublishedRun]]:
    """Runs by their table."""
    groups: dict[str, list[PublishedRun]] = defaultdict(list)
    for run in some:
        groups[run.table].append(run)
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


SECTIONS: Sections = (
    ("README.md", "accuracy", lambda _: accuracy_table(by_generation(runs()))),
    ("docs/accuracy.md", "accuracy", lambda _: accuracy_table(runs_by_table(runs()))),
    ("docs/accuracy.md", "held-out", lambda _: held_out_table()),
    ("docs/accuracy.md", "services", lambda _: served.short_text(served.services())),
    ("docs/accuracy/services.csv", "", lambda _: served.services_text(served.services())),
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
