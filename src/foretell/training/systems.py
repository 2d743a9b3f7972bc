"""A training step on many systems at once: plans row by row, each on a system of its own."""

from dataclasses import replace
from typing import Any

import numpy as np

from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.outputs import OUTPUTS
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.training.answer import totals_of
from foretell.training.ledger import Ledger
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, tables_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemBatch:
    """Plans on systems of their own, evaluated; arrays begin with the systems."""

    scenario: Scenario
    """The question, on the system as it is."""
    system: System
    """The systems: arrays in its numbers are over the plans."""
    plans: Plans
    """One plan for each system."""
    tables: Tables
    """What it costs in parts."""
    rows: Ledger
    """What it costs in all."""

    def outputs(self) -> dict[str, Array]:
        """Every output of a step on each system."""
        asked = replace(self.scenario, system=self.system)
        totals = totals_of(asked, self.plans, self.tables, self.rows)
        wide = np.zeros(len(self.plans))
        return {name: np.asarray(output.of(totals)) + wide for name, output in OUTPUTS.items()}

    def result(self, name: str) -> Array:
        """One of RESULTS on each system."""
        if name not in RESULTS:
            raise KeyError(name)
        totals = totals_of(self.scenario, self.plans, self.tables, self.rows)
        return np.asarray(OUTPUTS[name].of(totals))


RESULTS = ("step_s", "tokens_per_s", "energy_joules", "peak_memory_bytes")
"""What a batch can be asked for."""


def evaluate_systems(scenario: Scenario, plans: Plans, system: System) -> SystemBatch:
    """Each plan on its system: `system` has arrays over the plans in some of its numbers."""
    asked = replace(scenario, system=system)
    tables = tables_of(asked, plans, apart=True)
    # Inside, what a chip's number meets is (systems, stages).
    columns = replace(asked, system=replace(system, chip=_as_columns(system.chip)))
    rows = evaluate_rows(columns, plans, tables)
    return SystemBatch(scenario=scenario, system=system, plans=plans, tables=tables, rows=rows)


def _as_columns(chip: Chip) -> Chip:
    """The chip with its arrays over systems as columns."""

    def column(value: Any) -> Any:
        return value[:, None] if isinstance(value, np.ndarray) and value.ndim else value

    names = ("memory_bandwidth_bytes_per_s", "vector_flop_per_s", "host_bytes_per_s")
    return replace(chip, **{name: column(getattr(chip, name)) for name in names})
