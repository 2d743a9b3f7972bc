"""Fields that several questions share, each written once, and the flags that go beside a question."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foretell.specs.questions.flags import Flag, file_flag, flag, switch, whole

if TYPE_CHECKING:
    from foretell.specs.deployment import Deployment
    from foretell.specs.model import Model
    from foretell.specs.plan import Plan
    from foretell.specs.system import System

    ModelGiven = str | Path | Model | Mapping[str, Any]
    SystemGiven = str | Path | System | Mapping[str, Any]
    PlanGiven = str | Plan
    LayoutGiven = str | Deployment
Given = str | float
"""A number, or a text with a unit."""
Settings = Mapping[str, object] | Sequence[str]
"""`path=value` texts, or a mapping of paths to values."""
Progress = Callable[[int, int], None]
"""Called with how many of how many are done."""

INLINE = "An id or alias of the catalogue, or an inline object; never a path."
OF_EACH = "Of each: an id or alias of the catalogue, or an inline object; never a path."
MOST_CHIPS, MOST_LENGTH = 2**20, 2**22
"""Largest numbers of chips, and of sequences and tokens of a sequence, that a server answers for."""
CLOSED_FORM = "a study asks the closed form"
ONE_ROW = "a study has one row for each point"
SHAPES_HELP = "fixed, uniform, exponential, lognormal, or a file of lengths"
"""What `--lengths` takes in serve, size and post-train."""
OF_PROCESS = "processes and files of the caller"

MODEL = flag(
    "Catalogue id or alias, a Hugging Face config.json or its folder, or a TOML file.",
    kind="named",
    names_file="maybe",
    lists="models",
    inline=INLINE,
)
ModelName = Annotated["ModelGiven", MODEL]
SystemName = Annotated[
    "SystemGiven | None",
    flag(
        "A system's or a chip's id or alias, or a TOML file.",
        "ID|PATH",
        "named",
        names_file="maybe",
        lists="systems",
        inline=INLINE,
    ),
]
SettingsGiven = Annotated[
    Settings,
    flag(
        "Any field of any record, as in network.node.latency_s=2us; once for each.",
        "PATH=VALUE",
        "settings",
    ),
]
MeasuredRuns = Annotated[
    "Sequence[str | Path | Mapping[str, Any]] | str | Path",
    flag(
        'Condition on measured runs: a log, CSV, JSONL or "tp8 pp4: 15.2 s"; once for each.',
        "FILE|TEXT",
        "rows",
        without={"study": "a study asks for many systems"},
        inline="Measured runs: rows as objects, or pasted text. Nothing is stored.",
    ),
]


def chip_count(words: str) -> Flag:
    """A flag that takes a number of chips, or one with a system's name or file before it."""
    return flag(words, "N", "count", names_file="maybe", most=MOST_CHIPS)


Chips = Annotated[int | str | None, chip_count("Chips; 512xH100 names the system too.")]
Batch = Annotated[
    int | None,
    whole(
        "Sequences per step (default: as many as make about 4 million tokens).", most=MOST_LENGTH
    ),
]
Length = Annotated[
    int | None,
    whole(
        "Tokens per sequence, as 8192 or 8k (default: the model's own up to 4096).",
        most=MOST_LENGTH,
    ),
]
TargetLength = Annotated[
    int | None, whole("Target tokens per sequence of an encoder-decoder.", most=MOST_LENGTH)
]
Progressing = Annotated[
    Progress | None, flag("Called with how many of how many are done.", kind="function")
]
Workers = Annotated[int, whole("Processes.", without={"web": OF_PROCESS})]
PriceList = Annotated[
    "str | Path", file_flag("Rents from a CSV in SkyPilot's form, in the place of the catalogue's.")
]
Engine = Annotated[
    str | None,
    flag(
        "vllm (default; on Macs llama.cpp), sglang, trtllm, tgi, transformers, mlx, or a profile's id.",
        "NAME",
    ),
]

JSON = switch("Print JSON.", names=("json",), without={"web": "every answer is JSON"})
PLOT = file_flag("Write a figure: .svg, .html, .json, or .png where a browser is.", names=("plot",))
IMPORT = file_flag(
    "Model, job and plan of a launch command, script or config of another tool.",
    "FILE|TEXT",
    names=("import",),
)
ACCEPT_UNKNOWN = switch(
    "With --import: continue although arguments that may change the answer are not understood.",
    names=("accept_unknown",),
    without={"web": "a launch is read by improve there"},
)
HUB = switch(
    "Fetch the config of a model that the catalogue does not know from the Hugging Face hub.",
    names=("hub",),
    without={"web": OF_PROCESS},
)
IMPORTS = (IMPORT, ACCEPT_UNKNOWN, HUB)
"""What goes with reading a launch."""
EXPORT_PLAN = flag(
    "Print the plan for megatron, torchtitan or deepspeed, of a release as in "
    "megatron-core@0.14; bundle DIR: all of it as files.",
    "TOOL[@VERSION]",
    names=("export",),
)
EXPORT_ENGINE = flag(
    "Print the launch command: vllm, sglang or trtllm, of a release as in vllm@0.32; "
    "bundle DIR: all of it as files.",
    "ENGINE[@VERSION]",
    names=("export",),
)
LAUNCHER = flag(
    "Wrap what --export prints for torchrun, slurm, kubernetes or skypilot.",
    "NAME",
    names=("launcher",),
)
JSONL = file_flag("Append config and metrics as a line of JSON, for trackers.", names=("jsonl",))
SWEEP = flag(
    "A flag or --set path over a,b,c or low:high:steps[:log]; once or twice.",
    "FIELD=VALUES",
    "texts",
    names=("sweep",),
)
