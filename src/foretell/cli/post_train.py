"""`foretell post-train`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import (
    append,
    imported_step,
    lines_file,
    print_launch,
    show_read_back,
)
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.errors import BadInput, bad_input, unknown
from foretell.specs.post_training import ALGORITHMS
from foretell.specs.questions.post_training import PostTrainingQuestion

TOOLS = ("verl", "nemo-rl", "trl")
"""Frameworks that a configuration is written for."""


@command(PostTrainingQuestion)
def post_train(given: Given, edges: Edges) -> int:
    """A step of fine-tuning or reinforcement learning: phases, memory by phase, placement, cost."""
    from foretell.api.post_training import post_train as answer

    if edges.export is not None and edges.export not in TOOLS:
        raise BadInput([unknown("--export", edges.export, TOOLS)])
    if "algorithm" not in given and edges.import_ is None:
        raise bad_input("--algorithm", None, "which one?", ", ".join(ALGORITHMS))
    lines, file = lines_file(edges.jsonl), plot_file(edges.plot)
    with no_as_json(edges.json):
        asked = imported_step(given, edges)
        found = answer(**asked)
    write_plot(file, "post-train", found.to_dict, quiet=edges.json)
    written = found.export(edges.export) if edges.export else None
    if lines is not None:
        append(lines, found.to_json_line())
    if edges.json:
        write_json({**found.to_dict(), **asked.told, **(written.to_dict() if written else {})})
    elif written is not None:
        print_launch(written)
    else:
        show_read_back(asked)
        show_answer("post-train", found.to_dict())
    return 1 if found.fits == "no" else 0
