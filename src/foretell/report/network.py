"""One collective as text: the answer, why this algorithm, and a table over sizes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foretell import units
from foretell.api.network import CollectiveAnswer
from foretell.report.console import bar, table
from foretell.report.estimate import bullets, ninety

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
        Text(
            f"time                 {units.format(found.seconds, 's')}{_sure(found, 'seconds', 's')}"
        ),
        Text(f"algorithm bandwidth  {_rate(found.algorithm_bytes_per_s)}"),
        Text(
            f"bus bandwidth        {_rate(found.bus_bytes_per_s)}"
            f"{_sure(found, 'bus_bytes_per_s', 'bytes_per_s')}"
        ),
        Text(f"algorithm            {found.algorithm}: {found.reason}"),
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


def _sure(found: CollectiveAnswer, name: str, unit: str) -> str:
    """The 90 % interval of a number; none of nothing."""
    some = found.intervals.get(name) if found.seconds > 0.0 else None
    return ninety(some, lambda value: units.format(value, unit))


def _rate(value: float) -> str:
    return units.format(value, "bytes_per_s")
