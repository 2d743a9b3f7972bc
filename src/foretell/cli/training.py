"""`foretell estimate`, `search`, `explain`, `compare-plans`, `memory`, `simulate`, `improve`, `trace` and
`network`: a training step, its plans, and what it is made of."""

from pathlib import Path
from typing import Any

from foretell.cli.answering import VerbAnswer, respond
from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import imported, note
from foretell.cli.output import (
    no_as_json,
    plot_file,
    print_answer,
    say_written,
    show_answer,
    show_read_back,
    write_json,
    write_plot,
)
from foretell.specs.questions.improve import ImproveQuestion
from foretell.specs.questions.network import NetworkQuestion
from foretell.specs.questions.tracing import TraceModuleQuestion
from foretell.specs.questions.training import (
    MemoryQuestion,
    PlansQuestion,
    SearchQuestion,
    SimulateQuestion,
    StepQuestion,
    TrainingQuestion,
)


@command(TrainingQuestion)
def estimate(given: Given, edges: Edges) -> int:
    """Time, rate and memory of one training step; the best plan where none is given."""
    from foretell.api.training import estimate as ask

    def export(found: Any, asked: Any, folder: str | None) -> Any:
        return _exported(found, edges, folder)

    how = VerbAnswer(ask=ask, read=imported, export=export, serving=False, no="estimate")
    return respond("estimate", how, given, edges)


def _exported(found: Any, edges: Edges, folder: str | None) -> Any:
    """A plan for another tool, or the files of a bundle."""
    if folder is None:
        return found.export(edges.export, edges.launcher)
    from foretell.api.bundles import training_bundle

    return training_bundle(found, folder)


@command(SearchQuestion)
def search(given: Given, edges: Edges) -> int:
    """Every plan ranked, best first; --plan fixes what it names."""
    from foretell.api.training import search as ask

    def read(given: Given, edges: Edges) -> Any:
        from foretell.api.launches import FREED

        return imported(given, edges, free=FREED)

    how = VerbAnswer(
        ask=ask, read=read, counted="plans", serving=False,
        export=lambda found, asked, folder: _exported(found.best, edges, folder),
        none=lambda found: () if found.plans else [found.why_none],
        lines=lambda found: "".join(plan.to_json_line() for plan in found.plans),
    )  # fmt: skip
    return respond("search", how, given, edges)


@command(StepQuestion)
def explain(given: Given, edges: Edges) -> int:
    """Where time and memory go, largest first, what bounds each share, and what would move it."""
    from foretell.api.training import explain as ask

    how = VerbAnswer(ask=ask, read=imported, no="explain")
    return respond("explain", how, given, edges)


@command(PlansQuestion)
def compare_plans(given: Given, edges: Edges) -> int:
    """Why one plan beats another, leaf by leaf, and whether that is certain."""
    from foretell.api.training import compare_plans as ask
    from foretell.catalog.model_names import find_model
    from foretell.specs.plan_words import is_plan_text

    if is_plan_text(given["model"]) or find_model(str(given["b"])):  # the order of older versions
        given = {**given, "model": given["b"], "a": given["model"], "b": given["a"]}
    how = VerbAnswer(ask=ask, code=lambda found: int(found.better == "neither"))
    return respond("compare-plans", how, given, edges)


@command(MemoryQuestion)
def memory(given: Given, edges: Edges) -> int:
    """Memory of every pipeline stage over one step: what it holds, its peak, and when."""
    from foretell.api.training import memory as ask

    file = plot_file(edges.plot, "out")
    asked = imported(given, edges)
    found = ask(**asked)
    if file is not None and file.suffix.lower() == ".json":
        _write_json(file, found.to_dict(), quiet=edges.json)
    else:
        write_plot(file, "memory", found.to_dict, quiet=edges.json)
    if edges.json:
        write_json({**found.to_dict(), **asked.told, "out": edges.plot or None})
    else:
        show_read_back(asked.rows)
        show_answer("memory", found.to_dict())
    return 1 if found.estimate.fits == "no" else 0


def _write_json(file: Path, told: dict[str, Any], *, quiet: bool) -> None:
    """The whole answer as a file."""
    from json import dumps

    from foretell.interop.user_files import write_whole

    write_whole(file, dumps(told, allow_nan=False) + "\n")
    say_written(file, quiet=quiet)


@command(SimulateQuestion)
def simulate(given: Given, edges: Edges) -> int:
    """One training step simulated event by event, beside the closed form."""
    from foretell.api.training import simulate as ask

    def with_events(found: Any) -> dict[str, Any]:
        from foretell.simulation.trace import trace_events

        events = trace_events(found.laid, found.played, "tasks")
        return {**found.to_dict(), "traceEvents": list(events)}

    more = {"trace": given.get("trace")}
    how = VerbAnswer(ask=ask, read=imported, figure=with_events, more=more)
    return respond("simulate", how, given, edges)


@command(ImproveQuestion)
def improve(given: Given, edges: Edges) -> int:
    """What a launch of another tool would gain from other flags, how surely, and which flags."""
    from foretell.api.improve import improved

    with no_as_json(edges.json):
        found = improved(
            ImproveQuestion(**given), hub=edges.hub, export=edges.export, launcher=edges.launcher
        )
    if edges.json:
        write_json(found.to_dict())
    elif edges.export:
        print(found.export)
        note(found.export_notes)
    else:
        show_answer("improve", found.to_dict())
        if found.changes and found.export:
            print(f"\nfor {found.export_tool}:\n{found.export}")
    return 0 if found.changes else 1


@command(TraceModuleQuestion)
def trace(given: Given, edges: Edges) -> int:
    """Trace a module's forward pass, loss and backward pass, without weights or a GPU."""
    from foretell.api.traced_models import trace_question

    model = trace_question(TraceModuleQuestion(**given), hub=edges.hub)
    if edges.save:
        model.save(edges.save)
    told = {**model.summary(), "file": edges.save}
    notes = dict.fromkeys(note for graph in model.graphs.values() for note in graph.notes)
    shown = {} if edges.json else {"notes": [*notes], "batch": model.batch}
    return print_answer("trace", {**told, **shown}, json=edges.json)


@command(NetworkQuestion)
def network(given: Given, edges: Edges) -> int:
    """Time, bandwidths, the algorithm taken and why, and a table over sizes."""
    from foretell.api.network import collective as ask

    return respond("network", VerbAnswer(ask=ask), given, edges)
