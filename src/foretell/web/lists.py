"""What is asked beside the verbs: the catalogue, published runs beside ours, pasted texts, traces to keep.

`POST /api/read` says what a text is, and keeps it nowhere: a system (our TOML), a model (a Hugging Face
config.json, or our TOML), measured runs (a log, a table, lines) or a launch of another tool (a command, a
script, a config). The page then asks its questions with the object, or with the text.
"""

import json
import math
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from foretell.errors import BadInput, Problem, bad_input
from foretell.web.limits import Limits

Theme = Literal["light", "dark"]


def catalogue(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`foretell catalog chips|systems|models`."""
    from foretell.report.catalogue import listing

    return listing(str(given["kind"]).removesuffix("s"))


def show_entry(given: Mapping[str, Any]) -> dict[str, Any]:
    """`foretell catalog show NAME`, of names of the catalogue alone."""
    from foretell.catalog.model_names import find_model
    from foretell.catalog.names import exists, find, nearest
    from foretell.report.catalogue import entry

    name = str(given["name"])
    if exists(name):
        return entry(find(name).id)
    found = find_model(name)
    if found is not None:
        return entry(found.id)
    near = " or ".join(nearest(name)) or None
    raise bad_input("name", name, "is no model, chip or system of the catalogue", nearest=near)


def published_rows(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every published step of the package's own table beside ours: rows of the accuracy page."""
    from foretell.lab.validate.page_text import kept_rows

    return kept_rows()


def first_contact(given: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger of first contacts: aggregates of every wave of rows that no version had seen."""
    from foretell.lab.first_contact.page import ledger_dict

    return ledger_dict()


def held_out(given: Mapping[str, Any]) -> dict[str, Any]:
    """Errors of training steps with the source, the framework or the chip of a run held out of the fits."""
    from foretell.lab.validate.held_out_scores import held_out_scores

    return dict(held_out_scores())


def published_figure(rows: Sequence[Mapping[str, Any]], find: str, theme: Theme) -> dict[str, Any]:
    """The same as a figure, of the rows that have all words of `find`."""
    from foretell.report.figures.lines import published_beside_ours
    from foretell.report.figures.look import template

    words = find.lower().split()
    made = published_beside_ours(
        [row for row in rows if all(word in row_text(row) for word in words)]
    )
    made["layout"]["template"] = template(theme)
    return made


def row_text(row: Mapping[str, Any]) -> str:
    """What a search looks through."""
    return " ".join(str(row[name]) for name in SEARCHED).lower()


SEARCHED = ("table", "source", "model", "chip", "gpus", "global_batch", "seq_len", "plan")
LISTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "catalog": catalogue,
    "catalog show": show_entry,
    "validate published": published_rows,
    "validate held-out": held_out,
    "validate first-contact": first_contact,
}
"""Questions without flags, as a worker knows them."""


MODEL_KEYS = frozenset(
    {
        "model_type", "architectures", "hidden_size", "num_hidden_layers", "n_embd", "n_layer",
        "d_model", "stack", "text_config",
    }
)  # fmt: skip
"""Keys that a description of a model has, and no other file that is read here."""
SYSTEM_KEYS = frozenset({"network", "chip", "design", "corrections"})
"""Keys of a system, a chip's design, or what a calibration writes."""
ALLOWED = (
    "a system's TOML, a config.json, a log or table of measured runs, or a launch of another tool"
)


def read_text(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a text is (`kind`), its name, and the object or a summary of what it says."""
    text = str(given["text"]).lstrip("\ufeff")
    if not text.strip():
        raise _bad("is empty")
    table = _table(text)
    if table is not None and not SYSTEM_KEYS.isdisjoint(table):
        return _system(table)
    if table is not None and not MODEL_KEYS.isdisjoint(table):
        return _model(table)
    if table is not None and "study" in table:
        raise _bad("is a study: run `foretell sweep FILE` or `foretell codesign FILE`")
    problems: list[Problem] = []
    for reader in (_measured, _launch):
        try:
            return reader(text)
        except BadInput as error:
            problems = list(error.problems) if reader is _launch else problems
    raise bad_input("text", None, _why(problems), ALLOWED)


def _table(text: str) -> dict[str, Any] | None:
    """The text as JSON or TOML, where it is either."""
    for read in (json.loads, tomllib.loads):
        try:
            found = read(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _system(table: dict[str, Any]) -> dict[str, Any]:
    from foretell.catalog import system

    made = system(table, files=False)
    tiers = " x ".join(f"{tier.size:g} per {tier.name}" for tier in made.network.tiers)
    return {
        "kind": "system",
        "name": made.id,
        "about": f"{made.chip.id}, {tiers}",
        "chips": math.prod(int(tier.size) for tier in made.network.tiers),
        "object": table,
    }


def _model(table: dict[str, Any]) -> dict[str, Any]:
    from foretell.catalog import model
    from foretell.workload.parameters import count

    made = model(table, files=False)
    many = count(made).total
    return {
        "kind": "model",
        "name": made.id,
        "about": f"{len(made.stack.layers)} layers, {many / 1e9:.4g} billion parameters",
        "object": table,
    }


def _measured(text: str) -> dict[str, Any]:
    from foretell.api.measured_files import text_measurements

    found = text_measurements(text, "measured")
    if not found:
        raise _bad("has no measured run")
    one = "run" if len(found) == 1 else "runs"
    return {"kind": "measured", "name": f"{len(found)} measured {one}", "about": ""}


def _launch(text: str) -> dict[str, Any]:
    from foretell.api.launches import read_launch

    found = read_launch(text, files=False)
    parts = [str(found.plan), f"{found.gpus} GPUs" if found.gpus else ""]
    return {
        "kind": "launch",
        "read_back": [row.to_dict() for row in found.values],
        "asks": list(found.asks),
        "not_understood": list(found.not_understood),
        "unknown": list(found.unknown),
        "name": found.tool,
        "about": ", ".join(part for part in parts if part),
        "serving": found.serves,
    }


def _why(problems: list[Problem]) -> str:
    said = "; ".join(problem.message for problem in problems[:3])
    return f"cannot be read{f': {said}' if said else ''}"


def _bad(message: str) -> BadInput:
    return bad_input("text", None, message, ALLOWED)


def tools(given: Mapping[str, Any]) -> dict[str, Any]:
    """Tools that a plan, a deployment or a post-training step is written for, and ways to start a job."""
    from foretell.interop.launch import SERVING, TRAINING
    from foretell.interop.launchers import LAUNCHERS
    from foretell.interop.post_training_write import POST_TRAINING
    from foretell.interop.releases import RELEASES, ToolRelease

    def releases(names: tuple[Any, ...]) -> list[str]:
        return [
            ToolRelease(tool=name, version=version).called
            for name in names
            for version in reversed(RELEASES[name])
        ]

    return {
        "training": releases(TRAINING),
        "serving": releases(SERVING),
        "post-training": list(POST_TRAINING),
        "launchers": list(LAUNCHERS),
    }


READERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "read": read_text,
    "tools": tools,
}
"""Questions of the page alone."""


Reply = tuple[int, str, bytes]
MOST_TRACE_BYTES = 32 * 2**20
"""Larger traces are left to the command line."""


def trace(given: dict[str, Any], limits: Limits) -> Reply:
    """The Chrome trace of `foretell simulate`, gzipped: ui.perfetto.dev opens it."""
    from foretell.api import training as api
    from foretell.web.limits import TooMuch, too_much

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json.gz"
        api.simulate(**given, trace=file)
        if file.stat().st_size > MOST_TRACE_BYTES:
            raise TooMuch([too_much("trace", file.stat().st_size, f"{MOST_TRACE_BYTES} bytes")])
        return 200, "application/gzip", file.read_bytes()


FILES: Mapping[str, Callable[[dict[str, Any], Limits], Reply]] = {"simulate trace": trace}
"""Questions whose answer is a file."""
