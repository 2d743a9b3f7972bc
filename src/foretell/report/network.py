"""One collective as text: the answer, why this algorithm, and a table over sizes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foretell import units
from foretell.api.network import CollectiveAnswer
from foretell.report.console import bar, table
from foretell.report.presentation.text import bullets, numbers_grid
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType


def collective_text(found: CollectiveAnswer) -> "RenderableType":
    """Headline, candidates, table over sizes, assumptions."""
    from rich.console import Group
    from rich.text import Text

    where = placement_text(found.placement)
    asked = f"{found.collective} of {units.format(found.size_bytes, 'bytes')}"
    parts: list[RenderableType] = [
        Text(f"{asked} among {found.group} chips of {found.system} ({where})", "bold"),
        Text(),
        numbers_grid(
            presentation("network", found.to_dict()),
            ("algorithm", f"{found.algorithm}: {found.reason}"),
        ),
    ]
    if found.sizes:
        parts += [Text(), _sizes(found)]
    if found.assumptions:
        parts += [Text(), bullets("Assumed", list(found.assumptions))]
    return Group(*parts)


def placement_text(placement: Mapping[str, float]) -> str:
    """Where a group stands: `8 chips a node, 4 nodes`."""
    below, words = "chip", list[str]()
    for place, (tier, count) in enumerate(placement.items(), start=1):
        outermost = 1 < place == len(placement)
        many = f"{count:g} {below}{'' if count == 1 else 's'}"
        words.append(many if outermost else f"{many} a {tier}")
        below = tier
    return ", ".join(words)


def _sizes(found: CollectiveAnswer) -> "RenderableType":
    """Time, bus bandwidth and algorithm over sizes, with a bar for the bandwidth."""
    made = table(
        "size", "time", "bus bandwidth", "algorithm", "", right=("size", "time", "bus bandwidth")
    )
    most = max(float(row["bus_bytes_per_s"]) for row in found.sizes) or 1.0
    for row in found.sizes:
        made.add_row(
            units.format(row["size_bytes"], "bytes"),
            units.format(row["seconds"], "s"),
            _rate(row["bus_bytes_per_s"]),
            row["algorithm"],
            bar(row["bus_bytes_per_s"] / most),
        )
    return made


def _rate(value: float) -> str:
    return units.format(value, "bytes_per_s")
