"""The file of priors: tables of what measured runs may say, written one at a time."""

import re
from typing import Any

from foretell.catalog.files import toml_value
from foretell.catalog.measured_priors import FILE, MeasuredPrior

HEAD = """# What measured runs may say before any is seen: spreads of ln(measured / predicted) by mechanism,
# from published runs whose source was held out. Written by lab/calibrate/prior_fit.py and
# serving_prior_fit.py from tables that are not part of the repository; catalog/measured_priors.py says
# what each number is.
"""


def text_of(kind: str, prior: MeasuredPrior, without: dict[str, MeasuredPrior]) -> str:
    """One table of the file: what all sources give, and what the others give without each."""
    lines = [f"[{kind}]", *_lines(prior), ""]
    for source, other in sorted(without.items()):
        lines += [f"[{kind}.without.{toml_value(source)}]", *_lines(other), ""]
    return "\n".join(lines)


def _lines(prior: MeasuredPrior) -> list[str]:
    def inline(values: Any) -> str:
        return "{" + ", ".join(f"{key} = {value!r}" for key, value in values.items()) + "}"

    plain = (
        "shared",
        "shared_wide",
        "wide_share",
        "part_share",
        "noise",
        "likeness",
        "carry",
        "mean",
    )
    return [
        *(
            f"{name} = {inline(getattr(prior, name))}"
            for name in ("spread", "row_spread", "part_wide")
        ),
        *(
            f"{name} = {getattr(prior, name)!r}"
            for name in (*plain, "interval_scale", "doubt_power")
        ),
        *(f"{name} = {inline(getattr(prior, name))}" for name in ("distance", "doubt")),
        f"outlier_spread = {toml_value([spread for spread, _ in prior.outliers])}",
        f"outlier_share = {toml_value([share for _, share in prior.outliers])}",
        f"scale = {toml_value([factor for factor, _ in prior.place_scales])}",
        f"scale_share = {toml_value([share for _, share in prior.place_scales])}",
    ]


def write_table(kind: str, text: str) -> None:
    """Put one table into the file; the others stay."""
    held = FILE.read_text() if FILE.exists() else HEAD
    start = re.search(rf"^\[{kind}\]$", held, re.MULTILINE)
    if start is None:
        FILE.write_text(held.rstrip() + "\n\n" + text)
        return
    after = re.search(rf"^\[(?!{kind}[.\]])[^\]]*\]$", held[start.end() :], re.MULTILINE)
    rest = held[start.end() + after.start() :] if after else ""
    FILE.write_text(held[: start.start()] + text + ("\n" + rest if rest else ""))
