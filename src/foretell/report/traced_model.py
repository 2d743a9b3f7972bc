"""A traced model on one screen, and its samples on another."""

from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.trace.graph import TracedModel
from foretell.units import format as show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from foretell.api.traced_serving import SampledAnswer


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


def sampled_text(found: "SampledAnswer") -> "RenderableType":
    """Latency, rate and memory of a traced module, and where a pass goes."""
    from rich.console import Group
    from rich.text import Text

    from foretell.report.presentation.text import bullets

    head = Text.assemble(
        (found.model, "bold"),
        f" on {found.gpus} x {found.system}, batch {found.batch}, {found.steps} steps of "
        f"{found.passes} x {show(found.pass_s, 's')}, {show(found.once_s, 's')} once",
    )
    low, high = found.interval["p90"]
    lines = [
        f"{show(found.latency_s, 's')} for a batch   90%: {show(low, 's')} to {show(high, 's')}",
        f"{found.images_per_s:.3g} samples a second, {found.images_per_s_per_gpu:.3g} a GPU",
        f"{show(found.peak_memory_bytes, 'bytes')} of {show(found.memory_capacity_bytes, 'bytes')}",
        f"the GPU works {found.busy:.0%} of a pass; most of it is {found.limited_by}",
    ]
    if found.gpus_needed is not None:
        lines.append(f"{found.wanted_per_s:g} a second take {found.gpus_needed} GPUs")
    if found.usd_per_1000 is not None:
        lines.append(f"{found.usd_per_1000:.3g} USD for 1,000 samples at full load")
    made = table("A pass", "part", "time", "share", right=("time", "share"))
    for name, spent in sorted(found.breakdown.items(), key=lambda item: -item[1]):
        if spent > 1e-3 * found.pass_s:
            made.add_row(name, show(spent, "s"), f"{spent / found.pass_s:.1%}")
    told = bullets("Assumed", list(found.assumptions))
    return Group(head, Text(), *map(Text, lines), Text(), made, Text(), told)
