"""The generated sections of docs/reference.md and every statement beside what we find, in
docs/reference/findings.csv; `python -m foretell.lab.reference.findings docs/reference.md`.

A section stands between `<!-- generated: NAME -->` and `<!-- end -->`, and only those are
rewritten.
"""

import csv
import io
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from foretell.lab.reference.claims import Claim, abstract_claims
from foretell.lab.reference.claims_gpt import gpt_claims
from foretell.lab.reference.claims_vit import vit_claims
from foretell.lab.reference.effects import (
    CORRECTIONS,
    Corrected,
    claims_on_weaknesses,
    correction_claims,
    quirk_effect_table,
)
from foretell.lab.reference.records import Quirks
from foretell.lab.reference.tables import (
    GPT,
    SYSTEMS,
    VIT,
    BestPlans,
    best_of,
    days_cell,
    markdown,
    system_name,
)

SECTION = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A generated section of a page."""

Section = Callable[[], str]
"""Makes the text of one section."""


def days_table(best: BestPlans, model: str) -> str:
    """Days at three GPU counts on the nine systems, 1d / 2d / seqp, the fastest in bold."""
    counts = (1024, 4096, 16384)
    header = ["system", *(f"{count} GPUs" for count in counts)]
    rows = [
        [system_name(chip, domain), *(days_cell(best, model, chip, domain, n) for n in counts)]
        for chip, domain in SYSTEMS
    ]
    return markdown(header, rows)


def claims_table(claims: list[Claim]) -> str:
    """Statement, our numbers, verdict."""
    rows = [
        [claim.name, claim.statement, claim.ours, "confirmed" if claim.holds else "**differs**"]
        for claim in claims
    ]
    return markdown(["", "claimed", "found", ""], rows)


def quick_sections(base: BestPlans) -> dict[str, Section]:
    """Sections that need the published study alone."""
    return {
        "gpt-days": partial(days_table, base, GPT),
        "vit-days": partial(days_table, base, VIT),
        "abstract": lambda: claims_table(abstract_claims(base)),
    }


def quick_claims(base: BestPlans) -> list[Claim]:
    """Statements that the published study alone decides."""
    return [*gpt_claims(base), *vit_claims(base), *claims_on_weaknesses(base)]


def findings_text(claims: list[Claim]) -> str:
    """Statements beside what we find, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "claimed", "found", "verdict"))
    for claim in claims:
        verdict = "confirmed" if claim.holds else "differs"
        writer.writerow((claim.name, claim.statement, claim.ours, verdict))
    return text.getvalue()


def all_findings(workers: int = 2) -> tuple[dict[str, Section], str]:
    """Every section, and every statement; the study runs once more for each correction."""
    base = best_of(workers=workers)
    corrected: Corrected = {
        name: best_of(Quirks.corrected(*names), workers) for name, names in CORRECTIONS.items()
    }
    effects = {"quirk-effects": partial(quirk_effect_table, base, corrected)}
    claims = [*quick_claims(base), *correction_claims(base, corrected)]
    return {**quick_sections(base), **effects}, findings_text(claims)


def update(page: str, sections: dict[str, Section]) -> str:
    """The page with the named sections written anew; a section that is not named stays."""

    def written(match: re.Match[str]) -> str:
        make = sections.get(match["name"])
        return match[0] if make is None else f"{match[1]}{make()}\n{match[3]}"

    return SECTION.sub(written, page)


def main(path: str) -> None:
    """Rewrite a page's generated sections in place, and the statements beside it."""
    page = Path(path)
    sections, statements = all_findings()
    page.write_text(update(page.read_text(), sections))
    (page.parent / page.stem / "findings.csv").write_text(statements)


if __name__ == "__main__":
    main(sys.argv[1])
