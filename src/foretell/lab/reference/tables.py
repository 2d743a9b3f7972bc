"""The study's best plans, and the small helpers that the pages of findings share."""

from foretell.lab.reference.report import days
from foretell.lab.reference.rows import Row
from foretell.lab.reference.study import STUDY_CHIPS, STUDY_FAST_DOMAINS, STUDY_GPUS
from foretell.records import dataclass

GPT, VIT = "gpt3_1T", "vit_era5"
"""The two models, as the published tables spell them."""
ORDER = ("1d", "2d", "2d-seqp")
"""Strategies in the order that tables show them."""
SYSTEMS: tuple[tuple[str, int], ...] = tuple(
    (chip, domain) for chip in STUDY_CHIPS for domain in STUDY_FAST_DOMAINS
)
"""The nine systems: a chip and its fast domain."""

Key = tuple[str, str, str, int, int]
"""Model, strategy, chip, fast domain, GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlans:
    """The fastest plan of every search of one study that found any."""

    rows: dict[Key, Row]
    """Rows by model, strategy, chip, fast domain and GPUs."""

    def days(self, model: str, strategy: str, chip: str, domain: int, gpus: int) -> float | None:
        """Days of the run with the fastest plan; None where nothing fits."""
        row = self.rows.get((model, strategy, chip, domain, gpus))
        return None if row is None else days(row)

    def winner(self, model: str, chip: str, domain: int, gpus: int) -> tuple[float, str] | None:
        """Days and name of the fastest strategy; None where nothing fits."""
        found = [
            (value, strategy)
            for strategy in ORDER
            if (value := self.days(model, strategy, chip, domain, gpus)) is not None
        ]
        return min(found, default=None)

    def places(self, model: str) -> list[tuple[str, int, int]]:
        """Chip, domain and GPUs of every job of the model that some strategy can run."""
        return [
            (chip, domain, gpus)
            for chip, domain in SYSTEMS
            for gpus in STUDY_GPUS
            if self.winner(model, chip, domain, gpus)
        ]


def key_of(row: Row) -> Key:
    """Which search a row answers."""
    return (
        str(row["model"]),
        str(row["strategy"]),
        str(row["system"]),
        whole(row["nvs"]),
        whole(row["n_gpus"]),
    )


def whole(cell: object) -> int:
    """A cell that holds a whole number."""
    assert isinstance(cell, int)
    return cell
