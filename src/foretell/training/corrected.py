"""One plan under many corrections: a batch in which every row has factors of its own."""

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from foretell.specs.corrections import Corrections
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.ledger import Ledger
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of

Array = NDArray[np.float64]


def evaluate_corrections(scenario: Scenario, plan: Plan, factors: Array, names: tuple[str, ...]) -> Ledger:
    """The ledger of one plan under each row of `factors` (rows, mechanisms): a batch, evaluated once."""
    many = len(factors)
    columns = {f.name: np.ones(many) for f in fields(Corrections)}
    columns |= {name: factors[:, i] for i, name in enumerate(names)}
    asked = replace(scenario, system=scenario.system.with_corrections(Corrections(**columns)))
    plans = batch_of([plan] * many)
    return evaluate_rows(asked, plans, tables_of(asked, plans, apart=True))
