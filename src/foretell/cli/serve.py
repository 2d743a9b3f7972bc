"""`foretell serve`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.flags import Json, ModelName
from foretell.cli.output import no_as_json, write_json


def serve(
    model: ModelName,
    *,
    system: Annotated[
        str | None,
        Parameter(metavar="ID|PATH", help="A system's or a chip's id or alias, or a TOML file."),
    ] = None,
    gpus: Annotated[
        str | None, Parameter(metavar="N", help="Chips of all instances; 8xH100 names the system.")
    ] = None,
    isl: Annotated[str, Parameter(metavar="N", help="Tokens of a prompt.")] = "1024",
    osl: Annotated[str, Parameter(metavar="N", help="Tokens of an answer.")] = "1024",
    concurrency: Annotated[
        str | None, Parameter(metavar="N", help="Requests in flight, all instances together.")
    ] = None,
    rate: Annotated[
        str | None, Parameter(metavar="R", help="Requests per second, in the place of those.")
    ] = None,
    plan: Annotated[
        str | None,
        Parameter(metavar="WORDS", help='Words such as "tp4 weights=fp8 kv=fp8 max_batch=256".'),
    ] = None,
    engine: Annotated[
        str, Parameter(metavar="NAME", help="vllm, trtllm, sglang, or the id of a profile.")
    ] = "vllm",
    price: Annotated[
        str | None, Parameter(metavar="USD", help="Rent of a chip-hour, else the catalogue's.")
    ] = None,
    spread: Annotated[
        str, Parameter(metavar="X", help="Lengths are even between this share and the whole.")
    ] = "1.0",
    set: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            metavar="PATH=VALUE",
            show_default=False,
            help="Any field of model, chip, system or network; once for each.",
        ),
    ] = (),
    json: Json = False,
) -> int:
    """TTFT, TPOT, throughput, memory, cost, energy of one deployment; the best layout where none is given."""
    from foretell.cli.flags import number
    from foretell.serve import serve as answer

    with no_as_json(json):
        found = answer(
            model,
            system=system,
            gpus=number(gpus),
            isl=decimal(isl),
            osl=decimal(osl),
            concurrency=decimal(concurrency),
            rate=decimal(rate),
            plan=plan,
            engine=engine,
            price=decimal(price),
            spread=decimal(spread),
            set=set,
        )
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.serve import serve_text

        show(serve_text(found))
    return 0


def decimal(text: str | None) -> float:
    """A number where the text is one, else the text itself for the function to complain of."""
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return text  # type: ignore[return-value]
