"""`foretell diagnose`, `characterize` and `calibrate`: measured runs, real training, and this machine."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from foretell.cli.answering import VerbAnswer, respond
from foretell.cli.command import Edges, Given, Json, Plot, System, arg, command, number, switch
from foretell.cli.output import draw_figure, plot_file, print_answer, write_json
from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.specs.questions.diagnose import DiagnoseQuestion
from foretell.specs.questions.training import TraceQuestion


@command(DiagnoseQuestion)
def diagnose(given: Given, edges: Edges) -> int:
    """Measured runs beside their predictions: likely causes of a gap, and what to measure next."""
    from foretell.api.diagnose import diagnose as ask

    return respond("diagnose", VerbAnswer(ask=ask), given, edges)


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
    return print_answer("characterize", found.to_dict(), json=edges.json)


def _log(file: str, given: Given, edges: Edges) -> int:
    """A text log of DeepSpeed or Megatron: the same split, and the prediction's beside it."""
    from foretell.lab.characterize.traces.logs import characterize_log

    job = {name: value for name, value in given.items() if name not in ("files", "model", "step")}
    found = characterize_log(file, given.get("model"), **job)
    return print_answer("characterize", found.to_dict(), json=edges.json)


def run(
    config: Annotated[str, arg("The matrix of points (docs/characterize.md).", "CONFIG.toml")],
    *,
    out: Annotated[
        str, arg("Where results go, a file for each point.", "DIR")
    ] = "characterization",
    dry_run: Annotated[bool, switch("Print the matrix as predicted; run nothing.")] = False,
    resume: Annotated[bool, switch("Go on in a folder; finished points are kept.")] = False,
    timeout: Annotated[
        float | None,
        arg(
            "Seconds without a sign of life after which a point is given up (default: the file's).",
            "S",
        ),
    ] = None,
    system: System = None,
    node: Annotated[int, arg("Of several nodes, which this is.", "I")] = 0,
    master: Annotated[str, arg("Of several nodes, where the first listens.", "HOST:PORT")] = "",
    json: Json = False,
) -> int:
    """Train real models under torchrun, point by point, and lay predictions beside."""
    from foretell.lab.characterize.launch import NodePlace
    from foretell.lab.characterize.run import characterize
    from foretell.report.characterize import characterized_text

    with _watched() as tell:
        found = characterize(
            config,
            out=out,
            dry_run=dry_run,
            resume=resume,
            timeout=timeout,
            system=system,
            place=NodePlace(node=node, master=master),
            tell=tell,
        )
    if json:
        write_json(found.to_dict())
    else:
        print(characterized_text(found))
    return int(any(row.status == "failed" for row in found.rows))


@contextmanager
def _watched() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, else a line on standard error for each point."""
    if not sys.stderr.isatty():

        def line(done: int, many: int, text: str) -> None:
            if text:
                print(f"{done + 1} of {many}: {text}", file=sys.stderr, flush=True)

        yield line
        return
    from foretell.cli.progress import open_bar

    with open_bar("starting") as move:
        yield move


def measure(
    *,
    out: Annotated[str, arg("JSON lines; a file that was begun goes on.", "FILE")],
    minutes: Annotated[float, arg("Minutes to take at most.", "M")] = 8.0,
    only: Annotated[
        str, arg("Any of launch,copies,gemm,attention,pointwise,collectives (all).", "GROUPS")
    ] = "",
    device: Annotated[
        Literal["auto", "cuda", "cpu"], arg("What to measure; cuda is ROCm too.")
    ] = "auto",
    memory_share: Annotated[
        float, arg("Share of the free memory that one measurement may take.", "S")
    ] = 0.85,
    short: Annotated[bool, switch("A few small measurements of each group, to try it.")] = False,
    retry_failed: Annotated[bool, switch("Try measurements that failed again.")] = False,
    processes: Annotated[
        int,
        arg(
            "Processes of this machine that measure collectives at the end; 1: none "
            "(default: one for each GPU, two on a CPU).",
            "N",
            show_default=False,
        ),
    ] = 0,
    json: Json = False,
) -> int:
    """Time GEMMs, attention, norms, copies, launches and the collectives of this machine."""
    from foretell.lab.calibrate.measure.run import first_rank
    from foretell.lab.calibrate.measure.run import measure as run

    found = run(
        out,
        minutes=minutes,
        only=tuple(word.strip() for word in only.split(",") if word.strip()),
        device=device,
        short=short,
        memory_share=memory_share,
        retry_failed=retry_failed,
        processes=processes,
    )
    if not first_rank():
        return 0
    if json:
        write_json(found.to_dict())
    else:
        print(f"{found.chip}, {found.software}: {found.file}")
        for group, counts in found.groups.items():
            failed = f", {counts['failed']} failed" if counts["failed"] else ""
            print(f"  {group}: {counts['done']} points{failed}")
        if found.stopped:
            print(f"  stopped before its time: {found.stopped}")
        if found.left:
            print(f"  {found.left} points are left: the same command goes on with them")
        if found.skipped:
            print(f"  {found.skipped} points would take too much memory and were skipped")
    return 0


def fit(
    file: Annotated[str, arg("What calibrate measure wrote.", "FILE")],
    *,
    chip: Annotated[
        str,
        arg(
            "A chip of the catalogue, which keeps its facts; or a new id, whose peaks are measured.",
            "ID",
        ),
    ],
    out: Annotated[str, arg("The chip's file, for --system in every verb.", "FILE")],
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Fit the kernels' surfaces to measurements; print what they miss, write the chip's file."""
    from foretell.interop.user_files import write_whole
    from foretell.lab.calibrate import fit_report
    from foretell.lab.calibrate.fit import calibrate
    from foretell.report.figures.files import write_figure
    from foretell.report.figures.lines import fit_figure

    _check_targets({"out": out, **({"plot": plot} if plot else {})}, file)
    found = calibrate(Path(file), chip)
    write_whole(out, fit_report.chip_toml(found))
    if plot:
        write_figure(fit_figure(found), plot)
    if json:
        write_json({**fit_report.to_dict(found), "out": out, "plot": plot or None})
    else:
        print(fit_report.text(found))
        print(f"\nwritten: {out}{f' and {plot}' if plot else ''}")
        print(f"use it: foretell estimate MODEL --system {out} --gpus 1")
    return 0


def runs(
    *files: Annotated[str, arg("Measured runs: CSV, JSONL, logs, or texts.", "FILE...")],
    out: Annotated[str, arg("The system's file, for --system in every verb.", "FILE")],
    model: Annotated[str, arg("The model, where rows tell none.", "ID|PATH")] = "",
    system: Annotated[
        str, arg("The system, where rows tell none; a file is kept.", "ID|PATH")
    ] = "",
    gpus: Annotated[str, arg("Chips, where rows tell none.", "N")] = "",
    plan: Annotated[str, arg("The plan, where rows tell none.", "WORDS")] = "",
    json: Json = False,
) -> int:
    """Write a system's file with what measured runs took over what is predicted."""
    from foretell.interop.user_files import write_whole
    from foretell.lab.calibrate.runs import calibrate_runs

    if not out.lower().endswith(".toml"):
        raise bad_input("out", out, "is not a TOML file's name", "a name that ends in .toml")
    found = calibrate_runs(
        files,
        model=model or None,
        system=system or None,
        gpus=number(gpus or None),
        plan=plan or None,
    )
    write_whole(out, found.text)
    if json:
        write_json({**found.to_dict(), "out": out})
        return 0
    print(
        f"{found.runs} runs on {found.system}: median error {found.before:.1%} before, {found.after:.1%} now"
    )
    for name, factor in sorted(found.corrections.items(), key=lambda item: -abs(item[1] - 1.0)):
        print(f"  {name}: x {factor:.3f}")
    for note in found.notes:
        print(f"  {note}")
    print(f"\nwritten: {out}\nuse it: foretell estimate MODEL --system {out} --gpus N")
    return 0


def _check_targets(targets: dict[str, str], source: str) -> None:
    """Whether files can be written there, and none is what is read; scipy is there to fit with."""
    from importlib.util import find_spec

    from foretell.report.figures.files import file_problem

    problems: list[Problem] = []
    allowed = "a file in a folder there is"
    for name, target in targets.items():
        path = Path(target)
        if name == "plot" and (problem := file_problem(name, target)):
            problems.append(problem)
        elif path.is_dir() or not path.absolute().parent.is_dir():
            problems.append(wrong(name, target, "no file can be written there", allowed))
        elif path.exists() and Path(source).exists() and path.samefile(source):
            what = "is the file of measurements itself"
            problems.append(wrong(name, target, what, "another file"))
    if len({*targets.values()}) < len(targets):
        problems.append(wrong("plot", targets["plot"], "is the chip's file too"))
    out = targets["out"]
    if not out.lower().endswith(".toml"):
        problems.append(wrong("out", out, "is not a TOML file's name", "a name that ends in .toml"))
    if find_spec("scipy") is None:
        what, how = "fitting needs scipy", "pip install 'foretell[calibrate]'"
        problems.append(wrong("scipy", None, what, how))
    if problems:
        raise BadInput(problems)
