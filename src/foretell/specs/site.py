"""What is around chips and is paid over years: servers, fabric, building, money, people."""

from typing import Annotated

from foretell.records import dataclass
from foretell.specs._base import Fraction, NotNegative, Num, Positive
from foretell.specs.ranges import Ge, Le

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
