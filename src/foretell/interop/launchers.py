"""How a training is started on many nodes: torchrun, Slurm, Kubernetes, SkyPilot; the script of a benchmark.

A wrapping takes the program with its flags, and says nodes, GPUs of a node, environment and where they meet,
by the texts of launchers.toml. Each is read back (forms/) to the same nodes and flags.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, unknown
from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass

PORT = 29500
"""Where the ranks meet."""
_TABLE = packaged_table(Path(__file__).with_name("launchers.toml"))
LAUNCHERS: Mapping[str, Mapping[str, str]] = _TABLE["jobs"]
"""How a job can be started."""
SERVICES: Mapping[str, str] = _TABLE["services"]
"""What a node of a service has to know, by what starts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJob:
    """A program to be started."""

    name: str
    """What the job is called."""
    program: str
    """The program and its flags, without what starts it."""
    nodes: int
    """Nodes."""
    each: int
    """GPUs of a node."""
    chip: str
    """The chip's id."""
    environment: Mapping[str, str]
    """Variables that it needs."""
    files: Mapping[str, str]
    """Files that it reads, by name."""


def wrapped(job: LaunchJob, how: str) -> str:
    """The job as a text for one of the launchers."""
    if how not in LAUNCHERS:
        raise BadInput([unknown("launcher", how, LAUNCHERS)])
    row = LAUNCHERS[how]
    several = fill_text(row["several"], port=PORT) if job.nodes > 1 else ""
    command = fill_text(row["start"], nodes=job.nodes, each=job.each, several=several, port=PORT,
                     program=job.program)  # fmt: skip
    files = [f"cat > {name} <<'EOF'\n{content}\nEOF" for name, content in job.files.items()]
    if how == "torchrun":  # run on each node, with its NODE_RANK
        before = " ".join(f"{name}={value}" for name, value in job.environment.items())
        return "\n".join([*files, f"{before} {command}".strip()])
    exports = [f"export {name}={value}" for name, value in job.environment.items()]
    script = "\n".join([*exports, *([row["meets"]] if "meets" in row else []), *files, command])
    return started(how, script, name=job.name, nodes=job.nodes, each=job.each, chip=job.chip,
                   container="pytorch", options=row.get("options", ""))  # fmt: skip


def started(
    how: str, script: str, *, name: str, nodes: int, each: int, chip: str, container: str,
    text: str = "", options: str = "",
) -> str:  # fmt: skip
    """A script as a batch script, a task or an object of a cluster: a training's, or by another `text`."""
    pod = fill_text(_TABLE["texts"]["container"], container=container, each=each, script=script)
    return fill_text(
        _TABLE["texts"][text or how], name=name, nodes=nodes, each=each, script=script, pod=pod,
        chip=_TABLE["accelerators"].get(chip, chip), options=options,
    )  # fmt: skip


def text_of(name: str, **values: Any) -> str:
    """One of the texts with values in their places."""
    return fill_text(_TABLE["texts"][name], **values)


def fill_text(text: str, **values: Any) -> str:
    """A text with values in their places; one that is alone on its line keeps the line's indentation."""
    text = text.removeprefix("\n")
    for name, value in values.items():
        place = f"<{name.upper()}>"
        for line in re.findall(rf"^ +(?={place}$)", text, re.MULTILINE):
            inner = "\n".join(f"{line}{one}".rstrip() for one in str(value).splitlines())
            text = text.replace(f"{line}{place}", inner)
        text = text.replace(place, str(value))
    return text


def collect_script(row: Mapping[str, object]) -> str:
    """collect.py of a bundle: the log of a benchmark as a row that `foretell validate training` reads, by
    nothing but Python's standard library; benchmark_collect.txt with the run as it was planned."""
    cells = {name: "" if value is None else str(value) for name, value in row.items()}
    text = Path(__file__).with_name("benchmark_collect.txt").read_text("utf-8")
    return text.replace("__ROW__", json.dumps(cells))
