"""`foretell network`: one collective on a system."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.flags import Json, number
from foretell.cli.output import write_json


def network(
    system: Annotated[str, Parameter(help="A system's or a chip's id or alias, or a TOML file.")],
    *,
    collective: Annotated[
        str, Parameter(help="all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, ...")
    ],
    size: Annotated[
        str,
        Parameter(
            name="--bytes", metavar="SIZE", help="The full buffer of one rank, such as 64MiB."
        ),
    ],
    group: Annotated[str, Parameter(metavar="N", help="Members.")],
    placement: Annotated[
        str, Parameter(metavar="TIER=N,...", help="Members per tier, else as close as they fit.")
    ] = "",
    json: Json = False,
) -> int:
    """Time, bandwidths and the algorithm that the library takes."""
    from foretell.collective import collective as ask

    found = ask(system, collective=collective, size=size, group=number(group), placement=placement)
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report import console
        from foretell.report.network import collective_text

        console.show(collective_text(found))
    return 0
