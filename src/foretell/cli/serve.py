"""`foretell serve`."""

from typing import Any

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import (
    append,
    bundle_of,
    check_tool,
    imported,
    lines_file,
    print_files,
    print_launch,
    show_read_back,
)
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.serving.traced_passes import SampledService
from foretell.specs.questions.serving import ServingQuestion


@command(ServingQuestion)
def serve(given: Given, edges: Edges) -> int:
    """TTFT, TPOT, throughput, memory, cost, energy of one deployment; the best layout where none is given."""
    from foretell.api.serving import serve as answer
    from foretell.api.serving_commands import launch_command

    check_tool(edges.export, serving=True)
    folder = bundle_of(edges.export)
    lines, file = lines_file(edges.jsonl), plot_file(edges.plot)
    with no_as_json(edges.json), late_bar("requests") as progress:
        asked = imported(given, edges, serving=True)
        found: Any = answer(**asked, progress=progress)
    if isinstance(found, SampledService):
        return _sampled(found, asjson=edges.json)
    write_plot(file, "serve", found.to_dict, quiet=edges.json)
    written = None
    files: tuple[str, ...] = ()
    if edges.export:
        engine = edges.export if folder is None else found.profile.partition("-")[0]
        written = launch_command(
            engine, found, ServingQuestion(**asked), edges.launcher, asked.launch
        )
    if folder is not None and written is not None:
        from foretell.api.bundles import serving_bundle

        files, written = serving_bundle(found, written, folder), None
    if lines is not None:
        append(lines, found.to_json_line())
    if edges.json:
        told = written.to_dict() if written else {}
        write_json({**found.to_dict(), **asked.told, **told})
    elif written is not None:
        print_launch(written)
    elif files:
        print_files(files)
    else:
        show_read_back(asked)
        show_answer("serve", found.to_dict())
    grows = found.simulation is not None and found.simulation["queue_grows"]
    return int(grows or (found.offline is not None and not found.offline["in_time"]))


def _sampled(found: Any, *, asjson: bool) -> int:
    """What a traced module gives."""
    if asjson:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.traced_model import sampled_text

        show(sampled_text(found))
    return 0
