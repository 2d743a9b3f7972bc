"""The question about a module: what graph of operations it is."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import HUB, JSON
from foretell.specs.questions.flags import Flag, file_flag, flag, whole

SAVE = file_flag(
    "Write the trace; every verb takes the file as a model, without PyTorch.", names=("save",)
)
"""Where the trace goes."""


@dataclass(frozen=True, slots=False, kw_only=True)
class TraceModuleQuestion:
    """A PyTorch module as a model: `foretell trace`."""

    module: Annotated[
        str,
        file_flag(
            "FILE.py:FUNCTION that returns a module, (module, inputs) or (module, inputs, loss); "
            "or a config.json, its folder, or org/name of a model of transformers or diffusers.",
            "FILE:FUNCTION",
        ),
    ] = field(kw_only=False)
    inputs: Annotated[
        str | Sequence[str],
        flag('Its inputs, as in "ids:int64[4,2048] mask:bool[4,2048]".', "TEXT", "texts"),
    ] = ()
    loss: Annotated[
        str | None, flag("sum or mean of the output, or a function of the file.", "NAME")
    ] = None
    batch: Annotated[int | None, whole("Sequences of a config's inputs (default: 1).")] = None
    seq_len: Annotated[
        int | None,
        whole("Tokens of each, as 4096 or 4k (default: 2048, or the model's positions)."),
    ] = None
    size: Annotated[
        str | None,
        flag(
            "Images or videos of a config of diffusers: 1024x1024, or 81x832x480 with frames.",
            "[N]xWxH",
        ),
    ] = None
    name: Annotated[str | None, flag("What the model is called.", "NAME")] = None
    edges: ClassVar[tuple[Flag, ...]] = (SAVE, HUB, JSON)
