"""The question about a module: what graph of operations it is."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import HUB, JSON
from foretell.specs.questions.flags import Flag

SAVE = Flag(
    help="Write the trace; every verb takes the file as a model, without PyTorch.",
    metavar="FILE",
    names=("save",),
    names_file="always",
)
"""Where the trace goes."""


@dataclass(frozen=True, slots=False, kw_only=True)
class TraceModuleQuestion:
    """A PyTorch module as a model: `foretell trace`."""

    module: Annotated[
        str,
        Flag(
            help="FILE.py:FUNCTION that returns a module, (module, inputs) or (module, inputs, loss); "
            "or a config.json, its folder, or org/name of a model of transformers or diffusers.",
            metavar="FILE:FUNCTION",
            names_file="always",
        ),
    ] = field(kw_only=False)
    inputs: Annotated[
        str | Sequence[str],
        Flag(
            help='Its inputs, as in "ids:int64[4,2048] mask:bool[4,2048]".',
            kind="texts",
            metavar="TEXT",
        ),
    ] = ()
    loss: Annotated[
        str | None,
        Flag(help="sum or mean of the output, or a function of the file.", metavar="NAME"),
    ] = None
    batch: Annotated[
        int | None,
        Flag(help="Sequences of a config's inputs (default: 1).", kind="whole", metavar="N"),
    ] = None
    seq_len: Annotated[
        int | None,
        Flag(
            help="Tokens of each, as 4096 or 4k (default: 2048, or the model's positions).",
            kind="whole",
            metavar="N",
        ),
    ] = None
    size: Annotated[
        str | None,
        Flag(
            help="Images or videos of a config of diffusers: 1024x1024, or 81x832x480 with frames.",
            metavar="[N]xWxH",
        ),
    ] = None
    name: Annotated[str | None, Flag(help="What the model is called.", metavar="NAME")] = None
    edges: ClassVar[tuple[Flag, ...]] = (SAVE, HUB, JSON)
