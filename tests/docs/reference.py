"""The generated sections of docs/reference.md; `python -m tests.docs.reference`.

A section stands between `<!-- generated: NAME -->` and `<!-- end -->`, and only those are
rewritten. What the study concludes is beside both models in `reproduce nersc-2024`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from foretell.lab.reference.records import STRATEGIES, Quirks
from foretell.lab.reference.rows import Row
from foretell.lab.reference.study import GPT, SYSTEMS, VIT, BestPlans, key_of, run_study

SECTION = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A generated section of a page."""

Section = Callable[[], str]
"""Makes the text of one section."""


def system_name(chip: str, domain: int) -> str:
    """As the published outputs name their systems."""
    return f"{chip}-NVS{domain}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(value: float | None) -> str:
    """Four significant digits, or a dash for what does not exist."""
    return "–" if value is None else f"{value:#.4g}".rstrip(".")


def days_cell(best: BestPlans, model: str, chip: str, domain: int, gpus: int) -> str:
    """Days of the three strategies, the fastest in bold."""
    winner = best.winner(model, chip, domain, gpus)
    cells = []
    for strategy in STRATEGIES:
        text = figure(best.days(model, strategy, chip, domain, gpus))
        cells.append(f"**{text}**" if winner and strategy == winner[1] else text)
    return " / ".join(cells)


def best_of(quirks: Quirks | None = None, workers: int = 2) -> BestPlans:
    """Run the whole study and keep the fastest plan of each search."""
    rows = run_study(workers=workers, quirks=quirks, top=1).plans
    return BestPlans(rows={key_of(row): row for row in rows})


def days_table(best: BestPlans, model: str) -> str:
    """Days at three GPU counts on the nine systems, 1d / 2d / seqp, the fastest in bold."""
    counts = (1024, 4096, 16384)
    header = ["system", *(f"{count} GPUs" for count in counts)]
    rows = [
        [system_name(chip, domain), *(days_cell(best, model, chip, domain, n) for n in counts)]
        for chip, domain in SYSTEMS
    ]
    return markdown(header, rows)


CORRECTIONS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in Quirks.names()},
    "layernorm_2d_width + free_slow_p2p": ("layernorm_2d_width", "free_slow_p2p"),
    "all": Quirks.names(),
}
"""Sets of quirks corrected together, by the name that tables show."""
Corrected = dict[str, BestPlans]
"""The study with each of those corrections."""


def quirk_effect_table(base: BestPlans, corrected: Corrected) -> str:
    """Over all searches: how many change, by how much, and which strategy is first how often."""
    header = ["corrected", "days change", "other plan", "newly fit", "median", "range"]
    header += ["GPT firsts", "ViT firsts"]
    first = ["none (as published)", *["–"] * 5, _firsts(base, GPT), _firsts(base, VIT)]
    rows = [[name, *_effect(base, best)] for name, best in corrected.items()]
    return markdown(header, [first, *rows])


def _effect(base: BestPlans, best: BestPlans) -> list[str]:
    """Cells of one row of the effect table."""
    shared = [key for key in base.rows if key in best.rows]
    change = {key: _seconds(best.rows[key]) / _seconds(base.rows[key]) - 1 for key in shared}
    moved = [value for value in change.values() if abs(value) > 1e-9]
    plans = sum(_plan(base.rows[key]) != _plan(best.rows[key]) for key in shared)
    return [
        f"{len(moved)} of {len(base.rows)}",
        str(plans),
        str(len(best.rows) - len(shared)),
        f"{100 * median(moved):+.2f} %" if moved else "–",
        f"{100 * min(moved):+.2f} to {100 * max(moved):+.2f} %" if moved else "–",
        _firsts(best, GPT),
        _firsts(best, VIT),
    ]


def _firsts(best: BestPlans, model: str) -> str:
    """Jobs that each strategy is first in: 1d / 2d / seqp."""
    winners = [found[1] for place in best.places(model) if (found := best.winner(model, *place))]
    return " / ".join(str(winners.count(strategy)) for strategy in STRATEGIES)


def _seconds(row: Row) -> float:
    """Iteration time."""
    return float(str(row["t"]))


def _plan(row: Row) -> list[object]:
    """Degrees and placement."""
    names = ("dp", "tp", "tp1", "tp2", "pp", "mbs", "nb")
    places = ("nv_tp", "nv_tp1", "nv_tp2", "nv_dp", "nv_pp")
    return [row[name] for name in names + places]


def quick_sections(base: BestPlans) -> dict[str, Section]:
    """Sections that need the published study alone."""
    return {
        "gpt-days": partial(days_table, base, GPT),
        "vit-days": partial(days_table, base, VIT),
    }


def all_sections(workers: int = 2) -> dict[str, Section]:
    """Every section; the study runs once more for each correction."""
    base = best_of(workers=workers)
    corrected: Corrected = {
        name: best_of(Quirks.corrected(*names), workers) for name, names in CORRECTIONS.items()
    }
    effects = {"quirk-effects": partial(quirk_effect_table, base, corrected)}
    return {**quick_sections(base), **effects}


def update(page: str, sections: dict[str, Section]) -> str:
    """The page with the named sections written anew; a section that is not named stays."""

    def written(match: re.Match[str]) -> str:
        make = sections.get(match["name"])
        return match[0] if make is None else f"{match[1]}{make()}\n{match[3]}"

    return SECTION.sub(written, page)


if __name__ == "__main__":
    page = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
    page.write_text(update(page.read_text(), all_sections()))
