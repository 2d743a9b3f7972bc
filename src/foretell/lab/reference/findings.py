"""The generated sections of docs/reference.md; `python -m foretell.lab.reference.findings
docs/reference.md`.

A section stands between `<!-- generated: NAME -->` and `<!-- end -->`, and only those are
rewritten.
"""

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
    external_table,
    quirk_days_table,
    quirk_effect_table,
    sensitivity_table,
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
        "gpt": lambda: claims_table(gpt_claims(base)),
        "vit": lambda: claims_table(vit_claims(base)),
        "weaknesses": lambda: claims_table(claims_on_weaknesses(base)),
        "sensitivity": sensitivity_table,
        "external": external_table,
    }


def all_sections(workers: int = 2) -> dict[str, Section]:
    """Every section; the study runs once more for each correction."""
    base = best_of(workers=workers)
    corrected: Corrected = {
        name: best_of(Quirks.corrected(*names), workers) for name, names in CORRECTIONS.items()
    }
    return {
        **quick_sections(base),
        "quirk-days": partial(quirk_days_table, base, corrected),
        "quirk-effects": partial(quirk_effect_table, base, corrected),
        "corrections": lambda: claims_table(correction_claims(base, corrected)),
    }


def update(page: str, sections: dict[str, Section]) -> str:
    """The page with the named sections written anew; a section that is not named stays."""

    def written(match: re.Match[str]) -> str:
        make = sections.get(match["name"])
        return match[0] if make is None else f"{match[1]}{make()}\n{match[3]}"

    return SECTION.sub(written, page)


def main(path: str) -> None:
    """Rewrite a page's generated sections in place."""
    page = Path(path)
    page.write_text(update(page.read_text(), all_sections()))


if __name__ == "__main__":
    main(sys.argv[1])
