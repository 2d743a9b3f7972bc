"""Flags that several verbs share.

Numbers are taken as texts: what is wrong with them is then said together with everything else that
is wrong, in the words of the Python functions, rather than one by one by the parser.
"""

import re
from dataclasses import dataclass, fields
from typing import Annotated, Any

from cyclopts import Parameter

from foretell.cli import names

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")

ModelName = Annotated[
    str,
    Parameter(
        completer=names.models,
        converter=names.model_given,
        help="Catalogue id or alias, a Hugging Face config.json or its folder, or a TOML file.",
    ),
]
SystemName = Annotated[
    str | None,
    Parameter(
        completer=names.systems,
        metavar="ID|PATH",
        help="A system's or a chip's id or alias, or a TOML file.",
    ),
]
Settings = Annotated[
    tuple[str, ...],
    Parameter(
        negative="",
        metavar="PATH=VALUE",
        show_default=False,
        help="Any field of any record, as in network.node.latency_s=2us; once for each.",
    ),
]
PromptLength = Annotated[str, Parameter(metavar="N", help="Tokens of a prompt.")]
AnswerLength = Annotated[str, Parameter(metavar="N", help="Tokens of an answer.")]
Instances = Annotated[
    str | None, Parameter(metavar="N", help="Chips of all instances; 8xH100 names the system too.")
]
Concurrency = Annotated[
    str | None, Parameter(metavar="N", help="Requests in flight, all instances together.")
]
Rate = Annotated[
    str | None, Parameter(metavar="R", help="Requests per second, in the place of --concurrency.")
]
Layout = Annotated[
    str | None,
    Parameter(
        metavar="WORDS",
        help='Words such as "tp4 weights=fp8 kv=fp8" (docs/serving.md); without, the best.',
    ),
]
Spread = Annotated[
    str,
    Parameter(
        metavar="X", help="Lengths are spread evenly from this share to the whole; 1: all alike."
    ),
]
Engine = Annotated[
    str | None,
    Parameter(
        metavar="NAME", help="vllm (where none is named), trtllm, sglang, or the id of a profile."
    ),
]
Price = Annotated[
    str | None, Parameter(metavar="USD", help="Rent of a chip-hour, else the catalogue's.")
]
PriceList = Annotated[
    str,
    Parameter(
        metavar="FILE",
        show_default=False,
        help="Rents from a CSV in SkyPilot's form, in the place of the catalogue's.",
    ),
]
Json = Annotated[bool, Parameter(negative="", show_default=False, help="Print JSON.")]
Plot = Annotated[
    str | None,
    Parameter(
        metavar="FILE", help="Write a figure: .html, .json, or .svg and .png where a browser is."
    ),
]
Top = Annotated[str, Parameter(metavar="N", help="How many plans to keep.")]
Over = Annotated[
    str,
    Parameter(
        metavar="CHOICES",
        show_default=False,
        help='Structural choices to try too, such as "schedule,cp_mode"; "all": every one.',
    ),
]
Workers = Annotated[str, Parameter(metavar="N", help="Processes.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is asked of a model on a system, whatever the plan."""

    system: SystemName = None
    gpus: Annotated[
        str | None, Parameter(metavar="N", help="Chips; 512xH100 names the system too.")
    ] = None
    global_batch: Annotated[
        str | None,
        Parameter(
            metavar="N", help="Sequences per step; else as many as make about 4 million tokens."
        ),
    ] = None
    seq_len: Annotated[
        str | None,
        Parameter(metavar="N", help="Tokens per sequence; else the model's own up to 4096."),
    ] = None
    target_len: Annotated[
        str | None, Parameter(metavar="N", help="Target tokens per sequence of an encoder-decoder.")
    ] = None
    set: Settings = ()

    def arguments(self) -> dict[str, Any]:
        """Arguments of the Python functions."""
        given = by_name(self)
        numbers = ("gpus", "global_batch", "seq_len", "target_len")
        return {**given, **{name: number(given[name]) for name in numbers}}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Place):
    """What is asked of a model on a system."""

    plan: Annotated[
        str | None,
        Parameter(
            metavar="WORDS",
            help='Words such as "tp8 pp4 zero1 mbs1" (docs/plan.md); without, the best.',
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is asked of a whole run."""

    tokens: Annotated[
        str | None,
        Parameter(
            metavar="N", help="Tokens of a whole run, such as 15T; chinchilla: compute-optimal."
        ),
    ] = None
    failures_per_gpu_day: Annotated[
        str | None,
        Parameter(metavar="N", help="Of a run: unplanned stops for each chip; else 4.7e-4."),
    ] = None
    restart_s: Annotated[
        str | None,
        Parameter(
            metavar="TIME", help="Of a run: from a stop to reading the checkpoint; else 600."
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        Parameter(
            metavar="async|sync",
            help="Of a run: checkpoints written beside the work, or in its place.",
        ),
    ] = None
    checkpoint_interval: Annotated[
        str | None,
        Parameter(
            metavar="TIME", help="Of a run: time between checkpoints, as in 30min; else the best."
        ),
    ] = None
    checkpoint_wait_s: Annotated[
        str | None,
        Parameter(metavar="TIME", help="Of a run: what all chips wait for each checkpoint."),
    ] = None
    storage_bandwidth: Annotated[
        str | None,
        Parameter(
            metavar="RATE",
            help="Of a run: where checkpoints go, as in 200GB/s; else 81 MB/s a chip.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of `foretell.estimate`."""
        return by_name(self)


def by_name(flags: Any) -> dict[str, Any]:
    """Flags of a record, by their names."""
    return {field.name: getattr(flags, field.name) for field in fields(flags)}


def number(text: str | None) -> Any:
    """A whole number where the text is one, else the text itself for the function to complain of."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else text


def decimal(text: str | None) -> Any:
    """A number where the text is one, else the text itself for the function to complain of."""
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return text
