"""A verb from its flags to its exit code: ask, write the files that are wanted, print the answer."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Any

from foretell.cli.command import Edges, Given
from foretell.cli.exchange import (
    AskedQuestion,
    append,
    bundle_of,
    check_tool,
    lines_file,
    note,
)
from foretell.cli.output import (
    no_as_dict,
    no_as_json,
    no_as_text,
    plot_file,
    show_answer,
    show_read_back,
    write_json,
    write_plot,
)
from foretell.errors import Problem
from foretell.records import dataclass

if TYPE_CHECKING:
    from foretell.interop.launch import ToolArguments

Export = Callable[[Any, AskedQuestion, str | None], "ToolArguments | tuple[str, ...]"]
"""Answer, question, folder of a bundle -> a text for another tool, or the files of the bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbAnswer:
    """How a verb is asked, and what is done with its answer beside printing it."""

    ask: Callable[..., Any]
    """The function of Python."""
    read: Callable[[Given, Edges], AskedQuestion] | None = None
    """What is asked above what `--import` says; None: what was given."""
    counted: str = ""
    """What a bar counts while it works; empty: it has none."""
    export: Export | None = None
    """How `--export` is answered."""
    serving: bool | None = None
    """Whether other tools that it is written for serve; None: they are checked where they are read."""
    figure: Callable[[Any], Mapping[str, Any] | None] = lambda found: found.to_dict()
    """The JSON that its figure is drawn from; None: it has none."""
    plot: str = "plot"
    """The flag that names the figure's file."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What JSON and text have besides."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """What the text alone knows."""
    none: Callable[[Any], Sequence[Problem]] = lambda found: ()
    """Why an answer that came back is none."""
    no: str = ""
    """The verb whose text shows the numbers of a plan that does not fit; empty: none are shown."""
    lines: Callable[[Any], str] = lambda found: found.to_json_line()
    """What `--jsonl` writes."""
    code: Callable[[Any], int] = lambda found: 0
    """The exit code of the answer."""


def respond(verb: str, how: VerbAnswer, given: Given, edges: Edges) -> int:
    """Answer a verb; the exit code."""
    if how.serving is not None:
        check_tool(edges.export, serving=how.serving)
    folder, lines = bundle_of(edges.export), lines_file(edges.jsonl)
    file = plot_file(edges.plot, how.plot)
    texts = bool(how.no) and not (edges.json or edges.export)
    with no_as_json(edges.json), no_as_text(texts, lambda no: show_no(how.no, no)):
        from foretell.cli.progress import late_bar

        with late_bar(how.counted) if how.counted else nullcontext(None) as progress:
            asked = AskedQuestion(given) if how.read is None else how.read(given, edges)
            watched = {"progress": progress} if how.counted else {}
            found = how.ask(**asked, **watched)
    problems = how.none(found)
    write_plot(file, verb, lambda: how.figure(found), quiet=edges.json)
    written: Any = None
    if edges.export and how.export is not None and not problems:
        written = how.export(found, asked, folder)
    if lines is not None:
        append(lines, how.lines(found))
    if edges.json:
        told = {} if written is None or folder is not None else written.to_dict()
        no = no_as_dict(problems) if problems else {}
        write_json({**found.to_dict(), **asked.told, **how.more, **told, **no})
    elif folder is not None and written is not None:
        print("\n".join(written))
    elif written is not None:
        print(written.text)
        note(written.notes)
    elif not problems:
        show_read_back(asked.rows)
        show_answer(verb, {**found.to_dict(), **how.more, **how.shown})
    if problems:
        from foretell.cli.dispatch import complain

        complain(problems)
        return 1
    return how.code(found)


def show_no(verb: str, no: Any) -> None:
    """The numbers of a plan that does not fit; of `explain` where its time and memory go."""
    show_answer(verb, (no.explain() if verb == "explain" else no).to_dict())
