"""One plan under many corrections: a batch in which every row has factors of its own, and its slopes."""

from dataclasses import fields, replace

import numpy as np

from foretell.specs.arrays import Array
from foretell.specs.corrections import Corrections
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.ledger import Ledger
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of

STEP = 0.02
"""Half-width of the differences of logarithms that slopes are taken from."""


def evaluate_corrections(
    scenario: Scenario, plan: Plan, factors: Array, names: tuple[str, ...]
) -> Ledger:
    """The ledger of one plan under each row of `factors` (rows, mechanisms): a batch, evaluated once."""
    many = len(factors)
    columns = {f.name: np.ones(many) for f in fields(Corrections)}
    columns |= {name: factors[:, i] for i, name in enumerate(names)}
    asked = replace(scenario, system=scenario.system.with_corrections(Corrections(**columns)))
    plans = batch_of([plan] * many)
    return evaluate_rows(asked, plans, tables_of(asked, plans, apart=True))


def peak_slopes(
    scenario: Scenario, plan: Plan, names: tuple[str, ...], at: Array
) -> tuple[float, Array]:
    """Peak memory (bytes) at some log-factors, and its slopes."""
    many = len(names)
    moves = np.zeros((1 + 2 * many, many))
    moves[1 : 1 + many], moves[1 + many :] = STEP * np.eye(many), -STEP * np.eye(many)
    peak = evaluate_corrections(scenario, plan, np.exp(at + moves), names).peak_bytes
    up, down = peak[1 : 1 + many], peak[1 + many :]
    return float(peak[0]), np.log(up / down) / (2.0 * STEP)
