"""Money and carbon: prices, what is paid over years around chips, what electricity and making things emit."""

from collections.abc import Iterator
from typing import Annotated

from foretell.records import as_json, dataclass
from foretell.specs._base import Fraction, Ge, Le, NotNegative, Num, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What is paid: filled from the catalogue or by hand."""

    usd_per_chip_hour: NotNegative = 0.0
    """Rent of one chip for an hour; 0 where unknown."""
    low_usd_per_chip_hour: NotNegative = 0.0
    """The cheapest of the offers that the rent is the median of; 0 where it is one price alone."""
    high_usd_per_chip_hour: NotNegative = 0.0
    """The dearest."""
    usd_per_kwh: NotNegative = 0.08
    """Electricity."""
    pue: Positive = 1.3
    """Power usage effectiveness of the building."""
    source: str = ""
    """Provider, region, term and date."""

    @property
    def rent_range(self) -> tuple[float, float] | None:
        """Ends of the offers around the rent; None where there are none."""
        low, high = float(self.low_usd_per_chip_hour), float(self.high_usd_per_chip_hour)
        return (low, high) if 0.0 < low <= float(self.usd_per_chip_hour) <= high else None


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


Margin = Annotated[Num, Ge(0), Le(0.99)]
"""A share of a price that is not cost."""
Ports = Annotated[Num, Ge(4), Le(1e6)]
"""Ports of a switch: fewer than four cannot branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """One node besides its accelerators."""

    cpu_usd: NotNegative
    """Processors of the host."""
    memory_usd: NotNegative
    """Memory of the host."""
    local_storage_usd: NotNegative
    """Disks in the node."""
    board_usd: NotNegative
    """Main board, chassis, backplanes and cables inside."""
    scale_up_usd_per_chip: NotNegative
    """Baseboard and scale-up switches for each chip: 450 GB/s into one level of switches."""
    scale_up_switch_share: Fraction
    """Share of this that is switches: without them, as in a torus, it is not paid."""
    cooling_usd: NotNegative
    """Heat sinks and fans, or cold plates."""
    power_supply_usd: NotNegative
    """Power supplies."""
    assembly_usd: NotNegative
    """Assembly and test."""
    maker_markup: NotNegative
    """What the server's maker adds, over all parts but the accelerators' own margin."""
    gross_margin: Margin
    """The chip maker's: price = cost / (1 - margin)."""
    power_factor: Positive
    """Highest draw of a node over that of its chips, where the node's is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricParts:
    """Switches, cards and cables; prices go with the rate that a port carries one way."""

    switch_usd_per_gbit_s: NotNegative
    """A switch over the rates of its ports."""
    nic_usd_per_gbit_s: NotNegative
    """A network card."""
    optics_usd_per_gbit_s: NotNegative
    """A transceiver: two for each optical link."""
    fibre_usd: NotNegative
    """One fibre."""
    copper_usd_per_gbit_s: NotNegative
    """A copper cable, both ends included."""
    backplane_usd_per_gbit_s: NotNegative
    """The same inside a rack, between chips and scale-up switches."""
    backplane_chips: Positive
    """Chips that copper joins to the same scale-up switches; more take optics."""
    copper_share: NotNegative
    """Share of the links into the first switch that are short enough for copper."""
    direct_copper_share: NotNegative
    """The same of links between chips that pass no switch (tori, meshes)."""
    switch_ports: Ports
    """Ports of one switch."""
    switch_watts_per_gbit_s: NotNegative
    """A switch, over the rates of its ports."""
    optics_watts_per_gbit_s: NotNegative
    """A transceiver."""
    packaged_usd_per_gbit_s: NotNegative
    """An optical end in a switch's package."""
    packaged_watts_per_gbit_s: NotNegative
    """The same."""
    circuit_usd_per_port: NotNegative
    """A port of an optical circuit switch, whatever its rate."""
    circuit_watts_per_port: NotNegative
    """The same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Racks, storage, building, electricity and people."""

    rack_usd: NotNegative
    """One rack with its distribution of power."""
    rack_watts: Positive
    """What one rack can take, at the most."""
    rack_cooling_usd_per_watt: NotNegative
    """Loops, manifolds and pumps of racks cooled by liquid."""
    storage_bytes_per_chip: NotNegative
    """Shared storage for each chip."""
    storage_usd_per_gb: NotNegative
    """Price of shared flash storage."""
    storage_watts_per_chip: NotNegative
    """Its draw, and that of service nodes."""
    shell_usd_per_watt: NotNegative
    """Land and building."""
    power_usd_per_watt: NotNegative
    """Substation, generators, distribution."""
    cooling_usd_per_watt: NotNegative
    """Chillers, towers, pipes."""
    usd_per_kwh: NotNegative
    """Electricity."""
    pue: Positive
    """Power of the building over that of what is in it."""
    mean_load: Fraction
    """Mean draw over the highest while in use."""
    rest_load: Fraction = 0.61
    """Of a node in use besides its chips: mean draw over the highest."""
    idle_load: NotNegative
    """Draw over the highest while not in use."""
    maintenance_usd_per_node_year: NotNegative
    """Parts and contracts."""
    network_maintenance_share: NotNegative
    """Yearly upkeep of the fabric over its price."""
    building_maintenance_share: NotNegative
    """Yearly upkeep of the building over its price."""
    staff_usd_per_year: NotNegative
    """One person, all included."""
    staff_per_1000_nodes: NotNegative
    """People for a thousand nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finance:
    """Lives and interest."""

    rate: NotNegative
    """Yearly cost of capital."""
    server_years: Positive
    """Life of servers and storage."""
    network_years: Positive
    """Life of switches, cards and cables."""
    building_years: Positive
    """Life of building, power and cooling."""
    server_residual: NotNegative
    """Worth of a server at the end, over its price."""
    utilisation: Fraction
    """Share of the hours in which chips work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its range and where it comes from."""

    path: str
    """Where it is: processes.N5.wafer_usd."""
    value: float
    """The one that is used."""
    low: float
    """Low end of what is printed; the value where there is but one."""
    high: float
    """High end."""
    source: str = ""
    """Citation."""
    status: str = ""
    """datasheet, measured, published, inferred or recalled; `set` where it was set by hand."""
    date: str = ""
    """When it held."""
    note: str = ""
    """What else there is to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLeaf:
    """A named part of a sum of money; a node's value is the sum of its children's."""

    name: str
    """What it is paid for."""
    value: float
    """How much."""
    low: float
    """Low end: what each input's range takes off, added as squares."""
    high: float
    """High end."""
    unit: str = "USD"
    """USD, USD/h, USD/year."""
    evidence: str | None = None
    """Status of the figure whose range moves it most; none where no figure does."""
    note: str = ""
    """How many of what, or which formula."""
    children: tuple["CostLeaf", ...] = ()
    """What it is made of; none for a leaf."""

    def leaves(self) -> Iterator["CostLeaf"]:
        """All ends of the tree."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def find(self, *names: str) -> "CostLeaf":
        """The part that a path of names leads to; KeyError where there is none."""
        if not names:
            return self
        for child in self.children:
            if child.name == names[0]:
                return child.find(*names[1:])
        raise KeyError(names[0])

    to_dict = as_json("name", "value", "unit", "evidence", "low", "high", "note", "children")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One input's part in the range of an answer."""

    path: str
    """The figure, as `--set prices.PATH=` takes it."""
    value: float
    """What it was taken as."""
    low: float
    """Its low end."""
    high: float
    """Its high end."""
    usd_at_low: float
    """The answer with the low end."""
    usd_at_high: float
    """The answer with the high end."""
    source: str
    """Where it comes from."""
    date: str
    """When it held."""
