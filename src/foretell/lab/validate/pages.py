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

from foretell.kernels.families.choose import catalogue_surfaces
from foretell.lab.calibrate.collectives import PRINTED
from foretell.lab.validate.collectives import score_collectives
from foretell.lab.validate.dispatch import score_dispatches
from foretell.lab.validate.famous import score_famous
from foretell.lab.validate.held_out_scores import readme_sentence
from foretell.lab.validate.memory import score_memory, score_memory_rows
from foretell.lab.validate.published import Sections, with_written
from foretell.lab.validate.serving import score_serving
from foretell.lab.validate.stored_steps import rows_text
from foretell.lab.validate.training import printed_peak, score_training
from foretell.lab.validate.training_rows import TrainingRow, read_rows

SERVED: tuple[tuple[str, str, str], ...] = (
    ("decode_step", "tpot", "single decode steps on one H200"),
    ("prefill", "ttft", "single prompts on one H200"),
    ("static_batch_latency", "ttft", "static batches: first token"),
    ("static_batch_latency", "tpot", "static batches: further tokens"),
    ("static_batch_latency", "e2e", "static batches: whole"),
    ("static_batch_throughput", "throughput", "static batches: throughput"),
    ("first_token_latency", "ttft", "first tokens of static batches by themselves"),
    ("online_concurrency", "tpot", "fixed concurrency: time per token"),
    ("online_concurrency", "ttft", "fixed concurrency: time to the first token"),
    ("online_concurrency", "throughput", "fixed concurrency: throughput"),
    ("max_throughput", "throughput", "offline maximum throughput"),
)
"""Kind of row, metric, and what the page calls them."""
HELD_OUT: tuple[tuple[str, str], ...] = (
    ("tpot", "time per token"),
    ("ttft", "time to the first token"),
    ("throughput", "throughput"),
    ("input_throughput", "prefill throughput"),
)
"""Metric of rows predicted without their model, and what the page calls it."""
FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("for GEMMs", ("gemm",)),
    ("for attention", ("prefill", "decode", "mla-prefill", "mla-decode")),
    ("for experts", ("experts",)),
)
"""Kinds of kernels, and the families of surfaces that they are."""
SIZES = {
    "below_64kib": "below 64 KiB",
    "64kib_to_16mib": "64 KiB to 16 MiB",
    "from_16mib": "from 16 MiB",
}
"""Groups of message sizes, and what the page calls them."""


@lru_cache(maxsize=2)
def training_scores(data: Path) -> Mapping[str, Any]:
    """Scores of the table of training runs."""
    return score_training(data / "training" / "measured_runs.csv.gz").to_dict()


@lru_cache(maxsize=2)
def serving_scores(data: Path) -> Mapping[str, Any]:
    """Scores of the table of services."""
    return score_serving(data / "inference" / "measured_serving.csv.gz").to_dict()


@lru_cache(maxsize=2)
def more_serving_scores(data: Path) -> Mapping[str, Any]:
    """Scores of the second table of services: several nodes, prefill and decode apart, AMD."""
    return score_serving(data / "inference" / "measured_serving_2.csv.gz").to_dict()


def scoreboard(data: Path) -> str:
    """Every framework of the training runs, and those of low MFU."""
    scores = training_scores(data)
    said = (
        f"{scores['scored']:,} of {scores['rows_with_target']:,} rows with a target are predicted "
        f"({scores['supported_share']:.1%}). Over {scores['sources']} sources of grades A and B the median "
        f"of the median errors is {scores['median_of_sources']:.1%}, their mean "
        f"{scores['mean_of_sources']:.1%}; {scores['inside_p90']:.0%} of their rows lie in the 90 % interval."
    )
    lines = [said]
    for key in ("by_framework", "by_mfu"):
        lines += ["", f"| {key.removeprefix('by_')} | rows | median error | signed | in 90 % |"]
        lines.append("|---|---|---|---|---|")
        lines += [
            f"| {name} | {s['rows']:,} | {s['median_ape']:.1%} | {s['median_error']:+.1%} | "
            f"{s['inside_p90']:.0%} |"
            for name, s in scores[key].items()
        ]
    return "\n".join(lines)


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
    median_ape = found.median_ape or 0.0
    said = (
        f"{len(found.runs)} numbers of public reports: median error {median_ape:.1%}, "
        f"{found.inside_p90:.0%} of them inside the 90 % interval, {found.refused} refused."
    )
    lines = [
        said,
        "",
        "| run | printed | ours | inside |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {run.run} | {run.printed:,.6g} {run.unit} | {run.error or 0.0:+.0%} | "
        f"{'yes' if run.inside else 'no'} |"
        for run in found.runs
    ]
    return "\n".join(lines)


def memory_text(data: Path) -> str:
    """Peaks that runs print beside ours, and what is stated of runs that ran out of memory."""
    rows = {row.id: row for row in read_rows(data / "training" / "measured_runs.csv.gz")}
    groups: dict[str, list[tuple[TrainingRow, float]]] = {}
    for one in training_scores(data)["memory_predictions"]:
        row = rows[one["id"]]
        if row.quality == "C":  # a trend, not a figure
            continue
        error = one["predicted"] / one["measured"] - 1.0
        groups.setdefault(row.source, []).append((row, error))
    lines = ["| runs | what they print | median error | signed |", "|---|---|---|---|"]
    for source, some in sorted(groups.items(), key=lambda group: -len(group[1])):
        errors = [error for _, error in some]
        printed = printed_peak(some[0][0]).removesuffix("_bytes").replace("peak_memory", "process")
        lines.append(
            f"| {len(some):,} of {source} | {printed} | {median(map(abs, errors)):.1%} | "
            f"{median(errors):+.1%} |"
        )
    failed = score_memory(data / "training" / "out_of_memory_runs.csv.gz").to_dict()
    ran = score_memory_rows(
        [row for row in rows.values() if row.framework_id == "nanotron"]
    ).to_dict()
    said = (
        f"Of {failed['scored']:,} nanotron runs that ran out of memory "
        f"{failed['said_not_to_fit'] / failed['scored']:.1%} are predicted not to fit, of the "
        f"{ran['scored']:,} that ran {ran['said_to_fit'] / ran['scored']:.1%} are predicted to fit."
    )
    return "\n".join([*lines, "", said])


def held_out_text(data: Path) -> str:
    """Median errors and coverage of services predicted without their model in the fit, by table."""
    lines = [
        "| table | rows | what | median error | signed | in 90 % |",
        "|---|---|---|---|---|---|",
    ]
    for scores, table in ((serving_scores(data), "first"), (more_serving_scores(data), "second")):
        for metric, said in HELD_OUT:
            for family in ("dense", "moe"):
                found = scores["by_held_out"].get(f"{family} {metric}")
                if found is not None:
                    kind = "mixtures" if family == "moe" else "dense models"
                    lines.append(
                        f"| {table} | {found['rows']:,} | {said}, {kind} | {found['median_ape']:.1%} | "
                        f"{found['median_error']:+.1%} | {found['inside_p90']:.0%} |"
                    )
    return "\n".join(lines)


def serving_text(data: Path) -> str:
    """Median errors of services by kind of row and metric, their own models in the fit."""
    scores = serving_scores(data)
    lines = ["| rows | what | median error | signed |", "|---|---|---|---|"]
    for kind, metric, said in SERVED:
        found = scores["by_kind"][kind][metric]
        lines.append(
            f"| {found['rows']:,} | {said} | {found['median_ape']:.1%} | {found['median_error']:+.1%} |"
        )
    return "\n".join(lines)


def collectives_text(data: Path) -> str:
    """Median errors of collectives between nodes by size, kind and system."""
    return _collectives(
        data / "network" / "nccl_multinode.csv.gz", ("by_size", "by_kind", "by_system")
    )


def fabrics_text(data: Path) -> str:
    """The same of logs in print on other fabrics, by size and system."""
    del data
    return _collectives(PRINTED, ("by_size", "by_system"))


def dispatch_text(data: Path) -> str:
    """Median errors of dispatches and combines by library."""
    scores = score_dispatches(data / "network" / "alltoall.csv.gz").to_dict()
    lines = ["| dispatches | rows | median error | signed | in 90 % |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {s['rows']:,} | {s['median_ape']:.1%} | {s['median_error']:+.1%} | "
        f"{s['inside_p90']:.0%} |"
        for name, s in scores["by_library"].items()
    ]
    return "\n".join(lines)


def _collectives(table: Path, groups: Sequence[str]) -> str:
    scores = score_collectives(table).to_dict()
    lines = ["| collectives | rows | median error | signed | in 90 % |", "|---|---|---|---|---|"]
    for key in groups:
        names = SIZES if key == "by_size" else {}
        lines += [
            f"| {names.get(name, name)} | {s['rows']:,} | {s['median_ape']:.1%} | "
            f"{s['median_error']:+.1%} | {s['inside_p90']:.0%} |"
            for name, s in scores[key].items()
        ]
    return "\n".join(lines)


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
    sizes = score_collectives(data / "network" / "nccl_multinode.csv.gz").to_dict()["by_size"]
    large, middle, small = (
        100.0 * sizes[name]["median_ape"]
        for name in ("from_16mib", "64kib_to_16mib", "below_64kib")
    )
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
    for words, families in FAMILIES:
        found = [100.0 * s.left_out_median_ape for s in surfaces if s.family in families]
        errors.append(f"{min(found):.0f} to {max(found):.0f} % {words}")
    return (
        f"fitted to {points:,} public measurements; median errors on held-out shapes "
        + ", ".join(errors)
    )


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
