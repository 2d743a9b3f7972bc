"""`foretell scaling`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import write_json
from foretell.cli.plots import draw_figure, plot_file
from foretell.errors import bad_input
from foretell.specs.questions.studies import ScalingQuestion


@command(ScalingQuestion)
def scaling(given: Given, edges: Edges) -> int:
    """Throughput of strategies over numbers of GPUs, what it is made of, and where it stops."""
    from foretell.report.figures.strategies import scaling_figure, study_figure
    from foretell.report.presentation.text import verb_text
    from foretell.report.scaling import study_text

    file = plot_file(edges.plot, "picture")
    if edges.study:
        from foretell.studies.scaling.study import study as run_study

        if given.get("models") or "system" in given:
            raise bad_input("study", True, "has models and systems of its own")
        whole = run_study()
        drawn, record, text = study_figure(whole), whole.to_dict(), study_text(whole)
        fits = True
    else:
        from foretell.studies.scaling.run import scaling as run

        found = run(*given.pop("models", ()), **given)
        drawn, record = scaling_figure(found), found.to_dict()
        text = verb_text("scaling", record)
        fits = any(curve.fits_from is not None for curve in found.curves)
    if file is not None:
        draw_figure(drawn, file, quiet=edges.json)
    if edges.json:
        write_json(record)
    else:
        from foretell.report.console import show

        show(text)
    return 0 if fits else 1
