"""The command that a user would type for a row of serving results: `validate serving FILE --commands`.

It says what the row says and nothing else; what is blank there is left to `foretell serve`, which must fill
it as the score does (tests/validate/test_serving_commands.py). Rows of other kinds than a load under way
(single steps, static batches, offline maxima) cannot be asked of a service.
"""

import shlex
from pathlib import Path

from foretell.lab.calibrate.serving_cases import SPREAD, ServingCase
from foretell.lab.calibrate.serving_fit import LOADED
from foretell.lab.calibrate.serving_rows import read_rows
from foretell.lab.calibrate.serving_rules import checkpoint_precision, precision_named
from foretell.lab.validate.serving import read_case
from foretell.specs.deployment import Deployment

DEGREES = ("tp", "pp", "dp", "ep", "cp")
"""Words of a layout."""


def commands(path: Path) -> list[dict[str, str | None]]:
    """For every row of a table the line that a user would type for it, or the reason why there is none."""
    found: list[dict[str, str | None]] = []
    for row in read_rows(Path(path)):
        case = read_case(row)
        reason = case if isinstance(case, str) else unasked(case)
        if isinstance(case, str) or reason:
            found.append({"id": row.id, "command": None, "reason": reason})
            continue
        line = f"foretell serve {shlex.join(flags_of(case))} # {row.id}"
        found.append({"id": row.id, "command": line, "reason": None})
    return found


def unasked(case: ServingCase) -> str:
    """Why a row cannot be asked of a service; empty where it can."""
    row = case.row
    if row.kind not in LOADED:
        return f"rows of the kind {row.kind} are no service under a load"
    load = row.rate if row.kind == "online_serving" else row.batch
    missing = [n for n, v in (("load", load), ("isl", row.isl), ("osl", row.osl)) if v is None]
    return f"the row does not tell its {', '.join(missing)}" if missing else ""


def flags_of(case: ServingCase) -> list[str]:
    """Model and flags."""
    row, pool = case.row, case.prefill
    gpus = round(case.replicas * case.deployment.gpus) + (0 if pool is None else pool.gpus)
    engine = f"{row.framework}@{row.version}" if row.version else row.framework
    found = [case.model.id, "--system", case.system.id, "--gpus", str(gpus), "--engine", engine]
    found += ["--isl", f"{row.isl:g}", "--osl", f"{row.osl:g}"]
    if row.kind == "online_serving":
        found += ["--rate", f"{row.rate:g}"]
    else:
        found += ["--concurrency", f"{row.batch:g}", "--spread", f"{SPREAD:g}"]
    found += ["--plan", " ".join([*layout_words(case.deployment), *told_words(case)])]
    if case.deployment.draft_tokens:
        found += ["--speculative", f"{case.deployment.drafter}:{case.deployment.draft_tokens}"]
    if pool is not None:
        found += ["--prefill-gpus", str(pool.gpus)]
        found += ["--prefill-plan", " ".join(layout_words(pool.deployment))]
    return found


def layout_words(d: Deployment) -> list[str]:
    """The words of a layout: tp, and degrees above one."""
    return [f"{n}{getattr(d, n)}" for n in DEGREES if n == "tp" or getattr(d, n) > 1]


def told_words(case: ServingCase) -> list[str]:
    """What of formats and options the row tells."""
    row, d = case.row, case.deployment
    found = []
    precision = checkpoint_precision(row, case.model)
    if precision:
        found.append(f"weights={precision}")
    if precision_named(row.kv_precision):
        found.append(f"kv={d.kv}")
    if d.memory_fraction is not None:
        found.append(f"memory_fraction={d.memory_fraction:g}")
    if d.balance is not None:
        found.append(f"balance={d.balance:g}")
    if d.max_batch is not None:
        found.append(f"max_batch={d.max_batch}")
    if d.eplb is False:
        found.append("no-eplb")
    if d.draft_tokens:
        # The benchmark's prompts are random tokens, of which drafters keep less.
        found.append(f"accepted={d.accepted:g}")
    return found
