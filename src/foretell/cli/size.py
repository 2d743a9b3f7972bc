"""`foretell size`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.exchange import ExportEngine, Lines, append, check_tool, lines_file, print_launch
from foretell.cli.flags import (
    AnswerLength,
    Engine,
    Json,
    ModelName,
    Plot,
    Price,
    PriceList,
    PromptLength,
    Settings,
    SystemName,
    decimal,
)
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot


def size(
    model: ModelName,
    *,
    rate: Annotated[str, Parameter(metavar="R", help="Requests per second to be answered.")],
    system: SystemName = None,
    isl: PromptLength = "1024",
    osl: AnswerLength = "1024",
    ttft: Annotated[str, Parameter(metavar="MS", help="Longest time to the first token.")] = "2000",
    tpot: Annotated[
        str, Parameter(metavar="MS", help="Longest time per output token, the first excluded.")
    ] = "50",
    percentile: Annotated[
        str,
        Parameter(metavar="P", help="For how many requests both hold: mean, p50, p90, p95 or p99."),
    ] = "p90",
    headroom: Annotated[
        str, Parameter(metavar="X", help="Reserve over the rate, as a share of it.")
    ] = "0.2",
    gpus: Annotated[
        str | None, Parameter(metavar="N", help="Most chips of one instance; else 64.")
    ] = None,
    plan: Annotated[
        str | None,
        Parameter(
            metavar="WORDS",
            help='Words that are held, such as "weights=fp8 kv=fp8" (docs/serving.md).',
        ),
    ] = None,
    engine: Engine = "vllm",
    price: Price = None,
    top: Annotated[str, Parameter(metavar="N", help="How many options to show.")] = "10",
    simulate: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Play the best options request by request (as it is), or trust the closed form.",
        ),
    ] = True,
    export: ExportEngine = None,
    plot: Plot = None,
    prices: PriceList = "",
    jsonl: Lines = None,
    set: Settings = (),
    json: Json = False,
) -> int:
    """How many GPUs a service takes, laid out how, at what cost; and the Pareto front."""
    from foretell.api.size import size as answer
    from foretell.cli.flags import number
    from foretell.interop.launch import SERVING

    check_tool(export, SERVING)
    lines = lines_file(jsonl)
    file = plot_file(plot, drawn=True)
    with no_as_json(json):
        found = answer(
            model,
            system=system,
            rate=decimal(rate),
            isl=decimal(isl),
            osl=decimal(osl),
            ttft=decimal(ttft),
            tpot=decimal(tpot),
            gpus=number(gpus),
            plan=plan,
            engine=engine or "vllm",
            price=decimal(price),
            prices=prices,
            headroom=decimal(headroom),
            percentile=percentile,
            simulate=simulate,
            top=number(top),
            set=set,
        )
    from foretell.report.size import pareto_picture, size_text

    write_plot(file, "size", found.to_dict, lambda: pareto_picture(found))
    written = found.export(export) if export else None
    if lines is not None:
        append(lines, found.to_json_line())
    if json:
        told = written.to_dict() if written else {}
        write_json(found.to_dict() | told)
    elif written is not None:
        print_launch(written)
    else:
        from foretell.report.console import show

        show(size_text(found))
    return 0 if found.best.meets else 1
