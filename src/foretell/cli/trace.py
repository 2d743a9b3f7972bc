"""`foretell trace`: a PyTorch module as a model."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import write_json
from foretell.specs.questions.tracing import TraceModuleQuestion


@command(TraceModuleQuestion)
def trace(given: Given, edges: Edges) -> int:
    """Trace a module's forward pass, loss and backward pass, without weights or a GPU."""
    from foretell.api.traced_models import trace_question

    model = trace_question(TraceModuleQuestion(**given), hub=edges.hub)
    if edges.save:
        model.save(edges.save)
    if edges.json:
        write_json({**model.summary(), "file": edges.save})
    else:
        from foretell.report.console import show
        from foretell.report.traced_model import traced_text

        show(traced_text(model, edges.save))
    return 0
