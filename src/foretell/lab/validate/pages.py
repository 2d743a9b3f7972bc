"""Tables of the documentation over measured data, which is not part of the repository.

`python -m foretell.lab.validate.published FOLDER` writes them: the scoreboard of docs/accuracy.md, and the
errors of docs/memory.md, docs/serving.md and docs/model/collectives.md, each between its marks. Where the
data is, a test holds the pages to it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from foretell.catalog.files import read_table
from foretell.kernels.families.choose import catalogue_surfaces
from foretell.lab.calibrate.collectives import PRINTED
from foretell.lab.validate.famous import score_famous
from foretell.lab.validate.hardware import score_collectives, score_dispatches
from foretell.lab.validate.held_out_scores import readme_sentence
from foretell.lab.validate.memory import score_memory, score_memory_rows
from foretell.lab.validate.page_text import Sections, markdown, rows_text, with_written
from foretell.lab.validate.serving import score_serving
from foretell.lab.validate.training import printed_peak, score_training
from foretell.lab.validate.training_rows import TrainingRow, read_rows

WORDS = read_table(Path(__file__).with_suffix(".toml"))
"""What pages call groups of rows."""
Scored = Mapping[str, Any]
"""The JSON of a group's score."""
NCCL = Path("network") / "nccl_multinode.csv.gz"


@lru_cache(maxsize=2)
def training_scores(data: Path) -> Scored:
    """Scores of the table of training runs."""
    return score_training(data / "training" / "measured_runs.csv.gz").to_dict()


@lru_cache(maxsize=4)
def serving_scores(data: Path, table: str = "measured_serving.csv.gz") -> Scored:
    """Scores of a table of services."""
    return score_serving(data / "inference" / table).to_dict()


def errors_table(name: str, groups: Mapping[str, Scored], words: Mapping[str, str]) -> str:
    """Groups of rows with their errors and coverage; `words`: what some are called."""
    return markdown(
        f"{name} | rows | median error | signed | in 90 %",
        (
            (words.get(one, one), *error_cells(s), f"{s['inside_p90']:.0%}")
            for one, s in groups.items()
        ),
    )


def error_cells(score: Scored) -> tuple[str, str, str]:
    """Rows, median error and signed error."""
    return f"{score['rows']:,}", f"{score['median_ape']:.1%}", f"{score['median_error']:+.1%}"


def scoreboard(data: Path) -> str:
    """Every framework of the training runs, and those of low MFU."""
    scores = training_scores(data)
    said = (
        f"{scores['scored']:,} of {scores['rows_with_target']:,} rows with a target are predicted "
        f"({scores['supported_share']:.1%}). Over {scores['sources']} sources of grades A and B the median "
        f"of the median errors is {scores['median_of_sources']:.1%}, their mean "
        f"{scores['mean_of_sources']:.1%}; {scores['inside_p90']:.0%} of their rows lie in the 90 % interval."
    )
    tables = [errors_table(name, scores[f"by_{name}"], {}) for name in ("framework", "mfu")]
    return "\n\n".join([said, *tables])


def sources_text(data: Path) -> str:
    """Every source of the training runs as CSV."""
    found = training_scores(data)["by_source"]
    names = ("rows", "median_ape", "median_error", "inside_p90")
    return rows_text(
        [{"source": source} | {n: round(one[n], 4) for n in names} for source, one in found.items()]
    )


def famous_text(data: Path) -> str:
    """Famous runs by the words of their reports, beside ours."""
    found = score_famous(data / "training" / "famous.csv")
    said = (
        f"{len(found.runs)} numbers of public reports: median error {found.median_ape or 0.0:.1%}, "
        f"{found.inside_p90:.0%} of them inside the 90 % interval, {found.refused} refused."
    )
    rows = [
        (r.run, f"{r.printed:,.6g} {r.unit}", f"{r.error or 0.0:+.0%}", "yes" if r.inside else "no")
        for r in found.runs
    ]
    return f"{said}\n\n{markdown('run | printed | ours | inside', rows)}"


def memory_text(data: Path) -> str:
    """Peaks that runs print beside ours, and what is stated of runs that ran out of memory."""
    rows = {row.id: row for row in read_rows(data / "training" / "measured_runs.csv.gz")}
    groups: dict[str, list[tuple[TrainingRow, float]]] = {}
    for one in training_scores(data)["memory_predictions"]:
        row = rows[one["id"]]
        if row.quality != "C":  # a trend, not a figure
            error = one["predicted"] / one["measured"] - 1.0
            groups.setdefault(row.source, []).append((row, error))
    lines = []
    for source, some in sorted(groups.items(), key=lambda group: -len(group[1])):
        errors = [error for _, error in some]
        printed = printed_peak(some[0][0]).removesuffix("_bytes").replace("peak_memory", "process")
        of, off = f"{len(some):,} of {source}", f"{median(map(abs, errors)):.1%}"
        lines.append((of, printed, off, f"{median(errors):+.1%}"))
    failed = score_memory(data / "training" / "out_of_memory_runs.csv.gz").to_dict()
    ran = score_memory_rows([r for r in rows.values() if r.framework_id == "nanotron"]).to_dict()
    said = (
        f"Of {failed['scored']:,} nanotron runs that ran out of memory "
        f"{failed['said_not_to_fit'] / failed['scored']:.1%} are predicted not to fit, of the "
        f"{ran['scored']:,} that ran {ran['said_to_fit'] / ran['scored']:.1%} are predicted to fit."
    )
    return f"{markdown('runs | what they print | median error | signed', lines)}\n\n{said}"


def held_out_text(data: Path) -> str:
    """Median errors and coverage of services predicted without their model in the fit, by table; the second
    has several nodes, prefill and decode apart, and AMD."""
    tables = {"first": "measured_serving.csv.gz", "second": "measured_serving_2.csv.gz"}
    rows = []
    for table, file in tables.items():
        scores = serving_scores(data, file)["by_held_out"]
        for metric, words in WORDS["held_out"].items():
            for family, kind in (("dense", "dense models"), ("moe", "mixtures")):
                found = scores.get(f"{family} {metric}")
                if found is not None:
                    many, *errors = error_cells(found)
                    inside = f"{found['inside_p90']:.0%}"
                    rows.append((table, many, f"{words}, {kind}", *errors, inside))
    return markdown("table | rows | what | median error | signed | in 90 %", rows)


def serving_text(data: Path) -> str:
    """Median errors of services by kind of row and metric, their own models in the fit."""
    scores = serving_scores(data)["by_kind"]
    rows = []
    for kind, metric, words in WORDS["served"]:
        many, *errors = error_cells(scores[kind][metric])
        rows.append((many, words, *errors))
    return markdown("rows | what | median error | signed", rows)


def collectives_text(data: Path) -> str:
    """Median errors of collectives between nodes by size, kind and system."""
    return _collectives(data / NCCL, ("by_size", "by_kind", "by_system"))


def fabrics_text(data: Path) -> str:
    """The same of logs in print on other fabrics, by size and system."""
    del data
    return _collectives(PRINTED, ("by_size", "by_system"))


def _collectives(table: Path, groups: Sequence[str]) -> str:
    scores = score_collectives(table).to_dict()
    every = {name: one for key in groups for name, one in scores[key].items()}
    return errors_table("collectives", every, WORDS["by_size"])


def dispatch_text(data: Path) -> str:
    """Median errors of dispatches and combines by library."""
    scores = score_dispatches(data / "network" / "alltoall.csv.gz").to_dict()
    return errors_table("dispatches", scores["by_library"], {})


def readme_scores(data: Path) -> str:
    """README.md's list of errors on rows that were in sight: training, serving, kernels, collectives."""
    scores = serving_scores(data)
    held, loop = scores["by_held_out"], scores["by_kind"]["online_concurrency"]
    apart = {
        name: f"{100.0 * held[name]['median_ape']:.2g} %" for name in ("tpot", "ttft", "throughput")
    }
    rows = sum(held[name]["rows"] for name in apart)
    inside = sum(held[name]["rows"] * held[name]["inside_p90"] for name in apart) / rows
    tpot, ttft = (100.0 * loop[name]["median_ape"] for name in ("tpot", "ttft"))
    sizes = score_collectives(data / NCCL).to_dict()["by_size"]
    small, middle, large = (100.0 * sizes[name]["median_ape"] for name in WORDS["by_size"])
    services = (
        f"with their model held out of the fits, formulas found with all rows in sight, services are off by "
        f"{apart['tpot']} in TPOT, {apart['ttft']} in TTFT and {apart['throughput']} in throughput, "
        f"{inside:.0%} of them inside the 90 % interval (in sample, "
        f"over {loop['tpot']['rows']} measured services at fixed concurrency, TPOT is off by {tpot:.1f} %, "
        f"TTFT by {ttft:.1f} %)"
    )
    collectives = (
        f"public NCCL tests are off by {large:.1f} % from 16 MiB on, {middle:.1f} % from 64 KiB, "
        f"{small:.1f} % below"
    )
    named = {
        "Training, held out": readme_sentence(), "Serving, held out": services,
        "Kernels and collectives": f"{kernels_sentence()}; {collectives}",
    }  # fmt: skip
    return "\n".join(f"- **{name}**: {text}." for name, text in named.items())


def kernels_sentence() -> str:
    """How well kernels are fitted, on shapes that were held out."""
    surfaces = catalogue_surfaces()
    points = round(sum(one.points for one in surfaces), -4)
    errors = []
    for words, families in WORDS["kernels"].items():
        found = [100.0 * s.left_out_median_ape for s in surfaces if s.family in families]
        errors.append(f"{min(found):.0f} to {max(found):.0f} % {words}")
    listed = ", ".join(errors)
    return f"fitted to {points:,} public measurements; median errors on held-out shapes {listed}"


SECTIONS: Sections = (
    ("README.md", "scores", readme_scores),
    ("docs/accuracy.md", "scoreboard", scoreboard),
    ("docs/accuracy.md", "famous", famous_text),
    ("docs/accuracy/sources.csv", "", sources_text),
    ("docs/memory.md", "memory", memory_text),
    ("docs/serving.md", "held-out serving", held_out_text),
    ("docs/serving.md", "serving", serving_text),
    ("docs/model/collectives.md", "collectives", collectives_text),
    ("docs/model/collectives.md", "fabrics", fabrics_text),
    ("docs/model/collectives.md", "dispatch", dispatch_text),
)
"""Page, name of its section, and what writes it."""


def with_sections(root: Path, data: Path) -> dict[Path, str]:
    """The pages of a repository as the data gives them today."""
    return with_written(root, SECTIONS, data)
