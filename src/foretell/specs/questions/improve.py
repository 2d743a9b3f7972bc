"""The question about a launch of another tool: what it would gain from other flags."""

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import (
    HUB,
    JSON,
    LAUNCHER,
    MODEL,
    ONE_ROW,
    Batch,
    Chips,
    Length,
    SettingsGiven,
    SystemName,
)
from foretell.specs.questions.flags import Flag, decimal, flag, switch
from foretell.specs.questions.plan_flags import PlanFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven

LAUNCH = flag(
    "A launch command, script or config of another tool: a file, or its text.",
    "FILE|TEXT",
    "document",
    names_file="maybe",
    inline="The text of a launch command, script or config of another tool; never a path.",
)


@dataclass(frozen=True, slots=False, kw_only=True)
class LaunchGiven:
    """A launch, by its place."""

    launch: Annotated[str, LAUNCH] = field(kw_only=False)


@dataclass(frozen=True, slots=False, kw_only=True)
class ImproveQuestion(PlanFlags, LaunchGiven):
    """What a launch would gain: `foretell improve`."""

    model: Annotated["ModelGiven | None", MODEL] = None
    system: SystemName = None
    gpus: Chips = None
    global_batch: Batch = None
    seq_len: Length = None
    isl: Annotated[float, decimal("Of a service: prompt tokens of a request.")] = 1024.0
    osl: Annotated[float, decimal("Of a service: answer tokens of a request.")] = 256.0
    concurrency: Annotated[float, decimal("Of a service: requests at a time.")] = 64.0
    plan: Annotated[
        str | None, flag("Words that are fixed, whatever the launch says.", "WORDS", "words")
    ] = None
    free: Annotated[
        str,
        flag(
            'Fields of the plan that may change, such as "tp pp mbs"; without, the layout.', "WORDS"
        ),
    ] = ""
    accept_unknown: Annotated[
        bool, switch("Go on where arguments that may change the answer are not understood.")
    ] = False
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (
        HUB,
        flag(
            "Print the improved launch alone: the tool's own, or another, as in megatron-core@0.14.",
            "TOOL[@VERSION]",
            names=("export",),
            without={"web": "every answer has it", "study": ONE_ROW},
        ),
        LAUNCHER,
        JSON,
    )
