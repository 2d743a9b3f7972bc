"""`foretell cost run` and `foretell cost token`: what work on a system costs."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.cost import HourPrice, Sweep, Utilisation, Years, answered
from foretell.cli.exchange import Import, MaybeModel, asked
from foretell.cli.flags import (
    AnswerLength,
    Concurrency,
    Conditions,
    Engine,
    Instances,
    Json,
    Layout,
    Plot,
    PriceList,
    PromptLength,
    Question,
    Rate,
    Spread,
    SystemName,
    by_name,
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """How work is paid for, and where it runs."""

    rent: Annotated[
        str,
        Parameter(
            metavar="TERM",
            show_default=False,
            help="on-demand, spot, reserved, 1-year, 3-year or own; else on-demand where it is known.",
        ),
    ] = ""
    region: Annotated[
        str,
        Parameter(metavar="PLACE", help="Whose grid: a country, or a cloud's region."),
    ] = "world"
    price: HourPrice = ""
    prices: PriceList = ""
    years: Years = ""
    utilisation: Utilisation = ""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is asked of a deployment."""

    system: SystemName = None
    gpus: Instances = None
    isl: PromptLength = "1024"
    osl: AnswerLength = "1024"
    concurrency: Concurrency = None
    rate: Rate = None
    plan: Layout = None
    engine: Engine = None
    spread: Spread = "1.0"
    set: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            metavar="PATH=VALUE",
            show_default=False,
            help="Any field or figure, as in prices.site.pue=1.1; once for each.",
        ),
    ] = ()


NOTHING_SET, NO_RUN, NO_SERVICE, NOT_PAID = Question(), Conditions(), Service(), Paid()


def run(
    model: MaybeModel = None,
    *,
    question: Question = NOTHING_SET,
    conditions: Conditions = NO_RUN,
    paid: Paid = NOT_PAID,
    import_: Import = None,
    sweep: Sweep = (),
    plot: Plot = None,
    json: Json = False,
) -> int:
    """A training run: money, energy and carbon, each part by part; compute-optimal without --tokens."""
    from foretell.api.cost import RunQuestion, run_cost

    named, given = asked(model, by_name(question), import_, plain=True)
    whole = RunQuestion(model=named, **given, **by_name(conditions), **by_name(paid))
    return answered(run_cost, whole, sweep, plot, json)


def token(
    model: MaybeModel = None,
    *,
    service: Service = NO_SERVICE,
    paid: Paid = NOT_PAID,
    import_: Import = None,
    sweep: Sweep = (),
    plot: Plot = None,
    json: Json = False,
) -> int:
    """A million answered tokens at a steady load: money, energy and carbon, each part by part."""
    from foretell.api.cost import TokenQuestion, token_cost

    named, given = asked(model, by_name(service), import_, serving=True, plain=True)
    given["engine"] = given["engine"] or "vllm"
    whole = TokenQuestion(model=named, **given, **by_name(paid))
    return answered(token_cost, whole, sweep, plot, json)
