"""`foretell compare`: systems ranked by what they do for the money."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from foretell.cli import names
from foretell.cli.flags import Conditions, Json, Plot, Settings, by_name, decimal, number
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot

Systems = Annotated[
    str,
    Parameter(completer=names.systems, metavar="SYSTEM", help="Ids of systems or chips, or files."),
]
Model = Annotated[
    str | None,
    Parameter(
        metavar="MODEL",
        converter=names.model_given,
        help="An id, a config.json or its folder, or a TOML file.",
    ),
]
Budget = Annotated[
    str | None,
    Parameter(metavar="USD", help="Such as 10M: what each cluster may cost over its years."),
]
Gpus = Annotated[str | None, Parameter(metavar="N", help="Chips of each, instead of a budget.")]
Work = Annotated[
    str | None,
    Parameter(metavar="STUDY.toml", help="A mix: [base] and [[workload]] of a study."),
]
By = Annotated[
    str, Parameter(metavar="tokens|usd", help="Ranked by tokens a second, or by USD for a token.")
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A training step, or a service, and how it is paid for."""

    global_batch: Annotated[
        str | None, Parameter(metavar="N", help="Of training: sequences per step.")
    ] = None
    seq_len: Annotated[
        str | None, Parameter(metavar="N", help="Of training: tokens per sequence.")
    ] = None
    target_len: Annotated[
        str | None, Parameter(metavar="N", help="Of training: target tokens of an encoder-decoder.")
    ] = None
    plan: Annotated[
        str | None, Parameter(metavar="WORDS", help="Held for all; else the best plan of each.")
    ] = None
    isl: Annotated[str | None, Parameter(metavar="N", help="Of a service: tokens of a prompt.")] = (
        None
    )
    osl: Annotated[
        str | None, Parameter(metavar="N", help="Of a service: tokens of an answer.")
    ] = None
    concurrency: Annotated[
        str | None,
        Parameter(
            metavar="N", help="Of a service: requests in flight; else the most that keeps --tpot."
        ),
    ] = None
    tpot: Annotated[
        str | None,
        Parameter(metavar="MS", help="Of a service: longest mean time of a token; else 50."),
    ] = None
    ttft: Annotated[
        str | None,
        Parameter(metavar="MS", help="Of a service: longest mean time to the first token."),
    ] = None
    engine: Annotated[
        str | None,
        Parameter(
            metavar="NAME", help="Of a service: vllm, trtllm, sglang, or the id of a profile."
        ),
    ] = None
    rent: Annotated[
        str | None,
        Parameter(metavar="TERM", help="own, on-demand, spot, reserved, 1-year, 3-year; else own."),
    ] = None
    price: Annotated[
        str | None, Parameter(metavar="USD", help="Rent of a chip for an hour, the same for all.")
    ] = None
    years: Annotated[
        str | None, Parameter(metavar="N", help="Years that are paid for; else 5.")
    ] = None
    utilisation: Annotated[
        str | None,
        Parameter(metavar="SHARE", help="Share of the hours in which chips work; else 0.8."),
    ] = None
    region: Annotated[
        str | None, Parameter(metavar="PLACE", help="Whose grid: a country, or a cloud's region.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of `foretell.compare`."""
        given = by_name(self)
        whole = ("global_batch", "seq_len", "target_len")
        loads = ("isl", "osl", "concurrency", "tpot", "ttft", "price")
        given |= {name: number(given[name]) for name in whole}
        return given | {name: decimal(given[name]) for name in loads if given[name] is not None}


NOTHING, NO_RUN = Asked(), Conditions()


def compare(
    *systems: Systems,
    model: Model = None,
    budget: Budget = None,
    gpus: Gpus = None,
    workload: Work = None,
    by: By = "tokens",
    asked: Asked = NOTHING,
    conditions: Conditions = NO_RUN,
    set: Settings = (),
    plot: Plot = None,
    json: Json = False,
) -> int:
    """The best cluster of each kind for the money and the work, and whether the order is certain."""
    from foretell.studies.procurement.compare import compare as run

    file = plot_file(plot)
    with no_as_json(json):
        found = run(
            systems,
            model=model,
            budget=budget,
            gpus=number(gpus),
            workload=workload,
            by=by,
            set=set,
            **asked.arguments(),
            **conditions.arguments(),
        )
    write_plot(file, "compare", found.to_dict)
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report.compare import compare_text
        from foretell.report.console import show

        show(compare_text(found))
    return 0
