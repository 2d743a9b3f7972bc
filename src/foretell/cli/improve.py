"""`foretell improve`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import print_launch
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.specs.questions.improve import ImproveQuestion


@command(ImproveQuestion)
def improve(given: Given, edges: Edges) -> int:
    """What a launch of another tool would gain from other flags, how surely, and which flags."""
    from foretell.api.improve import improved
    from foretell.interop.launch import ToolArguments

    with no_as_json(edges.json):
        found = improved(
            ImproveQuestion(**given), hub=edges.hub, export=edges.export, launcher=edges.launcher
        )
    if edges.json:
        write_json(found.to_dict())
    elif edges.export:
        print_launch(ToolArguments(tool="megatron", text=found.export, notes=found.export_notes))
    else:
        show_answer("improve", found.to_dict())
        if found.changes and found.export:
            print(f"\nfor {found.export_tool}:\n{found.export}")
    return 0 if found.changes else 1
