"""`foretell calibrate measure`: time kernels, layers and steps on this machine."""

from typing import Annotated, Literal

from cyclopts import Parameter

from foretell.cli.flags import Json
from foretell.cli.output import write_json


def measure(
    *,
    out: Annotated[str, Parameter(metavar="FILE", help="JSON lines, appended to; resumes.")],
    minutes: Annotated[float, Parameter(metavar="M", help="Time to take.")] = 8.0,
    only: Annotated[
        str,
        Parameter(
            metavar="GROUPS",
            help="Some of launch, copies, gemm, attention, pointwise, layers, steps, collectives.",
        ),
    ] = "",
    device: Annotated[
        Literal["auto", "cuda", "cpu"], Parameter(help="Where; cuda is ROCm too.")
    ] = "auto",
    memory_share: Annotated[
        float, Parameter(metavar="S", help="Share of the free memory that a point may take.")
    ] = 0.85,
    short: Annotated[
        bool, Parameter(negative="", show_default=False, help="A few small points of each group.")
    ] = False,
    retry_failed: Annotated[
        bool, Parameter(negative="", show_default=False, help="Try failed points again.")
    ] = False,
    json: Json = False,
) -> int:
    """Time GEMMs, attention, norms, copies, layers and steps here; under torchrun, collectives."""
    from foretell.calibrate.measure.run import first_rank
    from foretell.calibrate.measure.run import measure as run

    found = run(
        out,
        minutes=minutes,
        only=tuple(word.strip() for word in only.split(",") if word.strip()),
        device=device,
        short=short,
        memory_share=memory_share,
        retry_failed=retry_failed,
    )
    if not first_rank():
        return 0
    if json:
        write_json(found.to_dict())
    else:
        print(f"{found.chip}, {found.software}: {found.file}")
        for group, counts in found.groups.items():
            failed = f", {counts['failed']} failed" if counts["failed"] else ""
            print(f"  {group}: {counts['done']} points{failed}")
        if found.stopped:
            print(f"  stopped before its time: {found.stopped}")
        if found.left:
            print(f"  {found.left} points are left: the same command goes on with them")
        if found.skipped:
            print(f"  {found.skipped} points would take too much memory and were left out")
    return 0
