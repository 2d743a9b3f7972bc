"""Sized services beside measured ones: `python tests/bench/size_accuracy.py TABLE [TABLE ...]`.

Rows of one model, chip, engine, formats and lengths are a case. `size` is asked for the time per output token
of the row two thirds up, and its throughput of a chip is compared with the most that was measured within it.
"""

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from foretell.api.size import ANY_MS, size
from foretell.errors import ProblemsError
from foretell.lab.calibrate.serving_arguments import ONLINE
from foretell.lab.calibrate.serving_cases import measured_figures
from foretell.lab.calibrate.serving_rows import read_rows
from foretell.lab.validate.serving import read_case
from foretell.records import dataclass

LEAST, MANY, SEED = 5, 20, 36
"""Measured rows of a case at least, cases that are drawn, and the seed of the draw."""
TOKENS_PER_S = 64_000.0
"""Output tokens a second of a sized service: many instances, so that whole ones do not show."""
FORMATS = ("weights", "experts", "kv")
"""Words of a plan that a case keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedCase:
    """What was asked, and what of a chip."""

    asked: tuple[tuple[str, object], ...]
    """Arguments of `size`."""
    name: str
    """The layout that it recommends."""
    ours: float
    """Output tokens a second of a chip there."""
    measured: float
    """The most that was measured within the time per output token."""


def sized_cases(tables: Sequence[Path], many: int = MANY) -> list[SizedCase]:
    """So many cases, drawn among all that have enough rows."""
    cases: dict[tuple[tuple[str, object], ...], list[tuple[float, float]]] = defaultdict(list)
    for row in (row for table in tables for row in read_rows(table)):
        case, figures = read_case(row), measured_figures(row)
        told = row.isl and row.osl and {"tpot", "throughput"} <= set(figures)
        if row.kind != ONLINE or row.disaggregated or isinstance(case, str) or not told:
            continue
        given = case.arguments
        formats = [
            w for w in str(given.get("plan") or "").split() if w.partition("=")[0] in FORMATS
        ]
        names = ("model", "system", "engine", "isl", "osl", "tuned", "speculative")
        asked = {name: given[name] for name in names if given.get(name) is not None}
        each = figures["throughput"] / (case.question.gpus if row.tokens_per_s else 1)
        cases[*asked.items(), ("plan", " ".join(formats) or None)].append((figures["tpot"], each))
    known = [key for key, rows in cases.items() if len(rows) >= LEAST]
    random.Random(SEED).shuffle(known)
    found = (sized_case(key, sorted(cases[key])) for key in known)
    return [
        one for one, _ in zip((one for one in found if one is not None), range(many), strict=False)
    ]


def sized_case(
    asked: tuple[tuple[str, object], ...], rows: Sequence[tuple[float, float]]
) -> SizedCase | None:
    """One case by (time per output token, tokens a second of a chip) of its rows; None where none will do."""
    target = rows[2 * len(rows) // 3][0]
    given = dict(asked)
    rate = TOKENS_PER_S / float(str(given["osl"]))
    try:
        found = size(**given, rate=rate, tpot=target, ttft=ANY_MS, percentile="mean", gpus=8, headroom=0.0,
                     simulate=False)  # fmt: skip
    except ProblemsError:
        return None
    together = [one.option for one in found.choices if one.option.kind == "aggregated"]
    best = together[0] if together else found.best.option
    return SizedCase(
        asked=asked,
        name=best.name(),
        ours=TOKENS_PER_S / best.gpus,
        measured=max(each for tpot, each in rows if tpot <= target),
    )


def main() -> None:
    """Every case, and how many are within a quarter."""
    cases = sized_cases([Path(name) for name in sys.argv[1:]])
    for one in cases:
        words = " ".join(str(value) for _, value in one.asked if value is not None)
        gap = f"{one.ours / one.measured - 1.0:+.0%}"
        print(f"{gap} {one.ours:,.0f} for {one.measured:,.0f}: {one.name}: {words}")
    near = sum(abs(one.ours / one.measured - 1.0) <= 0.25 for one in cases)
    print(f"{near} of {len(cases)} within 25 % of the most that was measured")


if __name__ == "__main__":
    main()
