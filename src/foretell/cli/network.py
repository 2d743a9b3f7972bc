"""`foretell network`: one collective on a system."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli import names
from foretell.cli.flags import Json, Plot, Settings, number
from foretell.cli.output import write_json
from foretell.cli.plots import plot_file, write_plot


def network(
    system: Annotated[
        str,
        Parameter(
            completer=names.systems, help="A system's or a chip's id or alias, or a TOML file."
        ),
    ],
    *,
    collective: Annotated[
        str,
        Parameter(
            metavar="NAME",
            help="all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, ...",
        ),
    ],
    size: Annotated[
        str,
        Parameter(
            name="--bytes", metavar="SIZE", help="The full buffer of one rank, such as 64MiB."
        ),
    ],
    group: Annotated[str, Parameter(metavar="N", help="Chips that take part.")],
    placement: Annotated[
        str,
        Parameter(
            metavar="TIER=N,...",
            help="Members per tier, as in node=4,cluster=4; else as close as they fit.",
        ),
    ] = "",
    algorithm: Annotated[
        str, Parameter(metavar="NAME", help="One of the algorithms offered, else the fastest.")
    ] = "",
    neighbours: Annotated[
        str, Parameter(metavar="N", help="Other groups like this one that send at the same time.")
    ] = "0",
    imbalance: Annotated[
        float, Parameter(metavar="X", help="All-to-all: the busiest member's part over the mean.")
    ] = 1.0,
    set: Settings = (),
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Time, bandwidths, the algorithm taken and why, and a table over sizes."""
    from foretell.api.network import collective as ask

    file = plot_file(plot)
    found = ask(
        system,
        collective=collective,
        size=size,
        group=number(group),
        placement=placement,
        algorithm=algorithm,
        neighbours=number(neighbours),
        imbalance=imbalance,
        set=set,
    )
    write_plot(file, "network", found.to_dict)
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report import console
        from foretell.report.network import collective_text

        console.show(collective_text(found))
    return 0
