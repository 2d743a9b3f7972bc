"""A traced model on one screen."""

from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.trace.graph import TracedModel
from foretell.units import format as show

if TYPE_CHECKING:
    from rich.console import RenderableType


def traced_text(model: TracedModel, file: str | None) -> "RenderableType":
    """Parameters, inputs, and the operations of each form that was traced."""
    from rich.console import Group
    from rich.text import Text

    found = model.summary()
    head = Text.assemble(
        (model.id, "bold"),
        f"  {found['parameters']:,} parameters ({found['trained_parameters']:,} trained), "
        f"{found['layers']} repeated blocks, batch {model.batch}",
    )
    made = table("Traced step", "operations", "distinct", "matrix FLOP", "peak of tensors",
                 right=("operations", "distinct", "matrix FLOP", "peak of tensors"))  # fmt: skip
    for name, form in found["forms"].items():
        made.add_row(
            name,
            f"{form['operations']:,}",
            f"{form['distinct']:,}",
            f"{form['flops']:.3g}",
            show(form["live_bytes"], "bytes"),
        )
    parts: list[RenderableType] = [head, Text(), made]
    notes = dict.fromkeys(note for graph in model.graphs.values() for note in graph.notes)
    parts += [Text(f"- {note}") for note in notes]
    if file is not None:
        parts += [Text(), Text(f"saved in {file}: foretell estimate {file} --gpus 8xH100")]
    return Group(*parts)
