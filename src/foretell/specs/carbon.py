"""Greenhouse gases: what electricity brings with it, and what making things has brought; CO2 equivalents."""

from foretell.records import dataclass
from foretell.specs._base import NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectricityGrid:
    """Electricity of one place, location based: what the grid there emits, whatever was bought."""

    aliases: tuple[str, ...] = ()
    """Other spellings, and regions of clouds that lie there."""
    grams_per_kwh: NotNegative
    """Mean over a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fab:
    """A process node as its surroundings see it, for each square centimetre of wafer."""

    kwh_per_cm2: NotNegative
    """Electricity."""
    gas_kg_per_cm2: NotNegative
    """Gases of etching and cleaning that are not caught."""
    material_kg_per_cm2: NotNegative
    """Raw wafer, chemicals, gases as they are bought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbodiedFactors:
    """What was emitted before anything runs."""

    fab_grams_per_kwh: NotNegative
    """Grid where logic is made."""
    hbm_kg_per_gib: NotNegative
    """Stacked memory."""
    dram_kg_per_gib: NotNegative
    """Any other memory of chips."""
    package_kg: NotNegative
    """Putting one package together."""
    carrier_kg_per_cm2: NotNegative
    """Silicon or glass between dies and substrate."""
    module_kg: NotNegative
    """Board, cooler and transport of one chip, its share of scale-up switches included."""
    chip_kg: NotNegative
    """A whole chip where its dies are not known."""
    host_kg: NotNegative
    """A node without its accelerators."""
    switch_kg: NotNegative
    """A switch of the fabric."""
    optics_kg: NotNegative
    """A transceiver."""
    storage_kg_per_gb: NotNegative
    """Disks of the cluster."""
    building_kg_per_watt: NotNegative
    """Shell, power and cooling, for each watt of the highest draw."""
