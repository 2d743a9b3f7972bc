"""`foretell buy`, `compare` and `cost`: what to get, which system is cheapest, and what things cost."""

from collections.abc import Callable
from typing import TypeVar

from foretell.cli.answering import VerbAnswer, respond
from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import imported
from foretell.cli.output import no_as_json, plot_file, print_answer, write_plot
from foretell.economics.answer import CostAnswer
from foretell.specs.questions.buy import BuyQuestion
from foretell.specs.questions.compare import CompareQuestion
from foretell.specs.questions.cost import (
    PackageQuestion,
    RunQuestion,
    SystemQuestion,
    TokenQuestion,
)

T = TypeVar("T")


@command(BuyQuestion)
def buy(given: Given, edges: Edges) -> int:
    """What to get for a budget and a deadline, what it costs, when it is done and how sure."""
    from foretell.report.purchase import report_file, write_report
    from foretell.studies.procurement.buy import buy as ask

    file = report_file(edges.report)
    with no_as_json(edges.json):
        found = ask(**given)
    if file is not None:
        write_report(found.to_dict(), file)
    print_answer("buy", found.to_dict(), json=edges.json)
    best = found.options[0]
    return 0 if best.within and (best.sure is None or best.sure >= 0.5) else 1


@command(CompareQuestion)
def compare(given: Given, edges: Edges) -> int:
    """Rank systems by cost and speed for a job: USD per million tokens, run and request, and total cost."""
    from foretell.studies.procurement.compare import compare as ask

    how = VerbAnswer(ask=ask, shown={"with_reasons": edges.why})
    return respond("compare", how, {"systems": (), **given}, edges)


@command(PackageQuestion)
def chip(given: Given, edges: Edges) -> int:
    """The dies of a chip, good and tested: wafers, defects, harvesting, NRE."""
    from foretell.economics.ask import chip_cost

    return ask_cost(chip_cost, PackageQuestion(**given), edges)


@command(PackageQuestion)
def package(given: Given, edges: Edges) -> int:
    """A whole package: dies, memory, carrier, substrate, losses in assembly, test, NRE."""
    from foretell.economics.ask import package_cost

    return ask_cost(package_cost, PackageQuestion(**given), edges)


@command(SystemQuestion)
def system(given: Given, edges: Edges) -> int:
    """A cluster: servers, fabric, building, years, the hour of a chip, and renting beside it."""
    from foretell.economics.ask_system import system_cost

    return ask_cost(system_cost, SystemQuestion(**given), edges)


@command(RunQuestion)
def run(given: Given, edges: Edges) -> int:
    """A training run: money, energy and carbon, each part by part; compute-optimal without --tokens."""
    from foretell.api.cost import run_cost

    return ask_cost(run_cost, RunQuestion(**imported(given, edges, plain=True)), edges)


@command(TokenQuestion)
def token(given: Given, edges: Edges) -> int:
    """A million answered tokens at a steady load: money, energy and carbon, each part by part."""
    from foretell.api.cost import token_cost

    asked = imported(given, edges, serving=True, plain=True)
    return ask_cost(token_cost, TokenQuestion(**asked), edges)


def ask_cost(ask: Callable[[T], CostAnswer], question: T, edges: Edges) -> int:
    """One answer, or a table of them, as text or JSON, and a picture where one is wanted."""
    from foretell.economics.sweeps import sweep_answers

    file = plot_file(edges.plot)
    with no_as_json(edges.json):
        if edges.sweep:
            found = sweep_answers(ask, question, edges.sweep)
        else:
            found = ask(question).to_dict()
    write_plot(file, "cost", lambda: found, quiet=edges.json)
    return print_answer("cost", found, json=edges.json)
