"""`foretell characterize trace`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import write_json
from foretell.cli.plots import draw_figure, plot_file
from foretell.specs.questions.training import TraceQuestion


@command(TraceQuestion)
def trace(given: Given, edges: Edges) -> int:
    """Where the time of each step and rank went, and the prediction of the same job beside it."""
    from foretell.lab.characterize.traces.logs import is_log
    from foretell.lab.characterize.traces.run import characterize_trace

    files = list(given.get("files") or ())
    if len(files) == 1 and is_log(files[0]):
        return _log(str(files[0]), given, edges)
    file = plot_file(edges.picture, "picture")
    found = characterize_trace(**{"files": (), **given})
    if file is not None:
        from foretell.report.figures.trace_steps import trace_figure

        draw_figure(trace_figure(found), file, quiet=edges.json)
    if edges.json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.trace_breakdown import traced_text

        show(traced_text(found))
    return 0


def _log(file: str, given: Given, edges: Edges) -> int:
    """A text log of DeepSpeed or Megatron: the same split, and the prediction's beside it."""
    from foretell.lab.characterize.traces.logs import characterize_log
    from foretell.report.trace_log import log_text

    job = {name: value for name, value in given.items() if name not in ("files", "model", "step")}
    found = characterize_log(file, given.get("model"), **job)
    if edges.json:
        write_json(found.to_dict())
    else:
        print(log_text(found))
    return 0
