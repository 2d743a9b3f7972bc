"""`foretell serve`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.exchange import (
    ExportEngine,
    Import,
    Lines,
    MaybeModel,
    append,
    asked,
    check_tool,
    lines_file,
    print_launch,
)
from foretell.cli.flags import (
    AnswerLength,
    Concurrency,
    Engine,
    Instances,
    Json,
    Layout,
    Plot,
    Price,
    PriceList,
    PromptLength,
    Rate,
    Settings,
    Spread,
    SystemName,
    decimal,
)
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.errors import BadInput, Problem


def serve(
    model: MaybeModel = None,
    *,
    system: SystemName = None,
    gpus: Instances = None,
    isl: PromptLength = "1024",
    osl: AnswerLength = "1024",
    concurrency: Concurrency = None,
    rate: Rate = None,
    plan: Layout = None,
    engine: Engine = None,
    price: Price = None,
    prices: PriceList = "",
    spread: Spread = "1.0",
    set: Settings = (),
    simulate: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Play requests instead of the closed form."
        ),
    ] = False,
    arrivals: Annotated[
        str | None,
        Parameter(
            metavar="KIND|FILE",
            help="Played: closed, poisson, gamma, burst, or a .csv or .jsonl; else closed or poisson.",
        ),
    ] = None,
    requests: Annotated[
        str | None, Parameter(metavar="N", help="Played: how many requests; else 2000.")
    ] = None,
    seed: Annotated[
        str | None, Parameter(metavar="N", help="Played: seed of all that is drawn; else 0.")
    ] = None,
    lengths: Annotated[
        str | None,
        Parameter(
            metavar="SHAPE",
            help="Played: fixed, uniform, exponential or lognormal; else fixed, or uniform with --spread.",
        ),
    ] = None,
    prefixes: Annotated[
        str | None, Parameter(metavar="N", help="Played: different common beginnings of prompts.")
    ] = None,
    prefix_tokens: Annotated[
        str | None, Parameter(metavar="N", help="Played: tokens of a beginning, on top of --isl.")
    ] = None,
    routing: Annotated[
        str | None,
        Parameter(metavar="RULE", help="Played: round-robin (else), least-loaded or prefix-aware."),
    ] = None,
    preemption: Annotated[
        str | None,
        Parameter(
            metavar="RULE", help="Played: recompute (else) or swap, where the cache is full."
        ),
    ] = None,
    prefill_plan: Annotated[
        str | None,
        Parameter(metavar="WORDS", help="Played: layout of instances that do prompts alone."),
    ] = None,
    prefill_gpus: Annotated[
        str | None, Parameter(metavar="N", help="Played: chips of these, out of --gpus.")
    ] = None,
    ttft: Annotated[
        str | None,
        Parameter(
            metavar="MS", help="Played: longest time to the first token that is good service."
        ),
    ] = None,
    tpot: Annotated[
        str | None,
        Parameter(metavar="MS", help="Played: longest time per token that is good service."),
    ] = None,
    plot: Plot = None,
    import_: Import = None,
    export: ExportEngine = None,
    jsonl: Lines = None,
    json: Json = False,
) -> int:
    """TTFT, TPOT, throughput, memory, cost, energy of one deployment; the best layout where none is given."""
    from foretell.api.serving import DEFAULT_ENGINE, launch_command
    from foretell.api.serving import serve as answer
    from foretell.cli.flags import number
    from foretell.interop.launch import SERVING

    check_tool(export, SERVING)
    lines = lines_file(jsonl)
    playing = {
        "arrivals": arrivals,
        "requests": requests,
        "seed": seed,
        "lengths": lengths,
        "prefixes": prefixes,
        "prefix_tokens": prefix_tokens,
        "routing": routing,
        "preemption": preemption,
        "prefill_plan": prefill_plan,
        "prefill_gpus": prefill_gpus,
        "ttft_ms": ttft,
        "tpot_ms": tpot,
    }
    options = {name: value for name, value in playing.items() if value is not None}
    file = plot_file(plot)
    with no_as_json(json), late_bar("requests") as progress:
        if options and not simulate:
            raise BadInput([without_simulate(name, value) for name, value in options.items()])
        place = {"system": system, "gpus": number(gpus), "plan": plan, "engine": engine, "set": set}
        named, given = asked(model, place, import_, serving=True)
        given["engine"] = given["engine"] or DEFAULT_ENGINE
        found = answer(
            named,
            simulate=options if simulate else False,
            progress=progress,
            isl=decimal(isl),
            osl=decimal(osl),
            concurrency=decimal(concurrency),
            rate=decimal(rate),
            price=decimal(price),
            prices=prices,
            spread=decimal(spread),
            **given,
        )
    write_plot(file, "serve", found.to_dict)
    written = None
    if export:
        given.pop("plan")
        written = launch_command(export, found, named, **given)
    if lines is not None:
        append(lines, found.to_json_line())
    if json:
        told = written.to_dict() if written else {}
        write_json({**found.to_dict(), **told})
    elif written is not None:
        print_launch(written)
    else:
        from foretell.report.console import show
        from foretell.report.serve import serve_text

        show(serve_text(found))
    return 1 if found.simulation and found.simulation["queue_grows"] else 0


def without_simulate(name: str, value: str) -> Problem:
    """An option of a play where none is asked for."""
    flag = "--" + name.removesuffix("_ms").replace("_", "-")
    return Problem(
        path=flag, value=value, message="says how requests are played", allowed="--simulate"
    )
