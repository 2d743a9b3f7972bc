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
from foretell.specs.questions.flags import Flag
from foretell.specs.questions.plan_flags import PlanFlags

if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven

LAUNCH = Flag(
    help="A launch command, script or config of another tool: a file, or its text.",
    kind="document",
    metavar="FILE|TEXT",
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
    isl: Annotated[
        float, Flag(help="Of a service: prompt tokens of a request.", kind="decimal", metavar="N")
    ] = 1024.0
    osl: Annotated[
        float, Flag(help="Of a service: answer tokens of a request.", kind="decimal", metavar="N")
    ] = 256.0
    concurrency: Annotated[
        float, Flag(help="Of a service: requests at a time.", kind="decimal", metavar="N")
    ] = 64.0
    plan: Annotated[
        str | None,
        Flag(help="Words that are fixed, whatever the launch says.", kind="words", metavar="WORDS"),
    ] = None
    free: Annotated[
        str,
        Flag(
            help='Fields of the plan that may change, such as "tp pp mbs"; without, the layout.',
            metavar="WORDS",
        ),
    ] = ""
    accept_unknown: Annotated[
        bool,
        Flag(
            help="Go on where arguments that may change the answer are not understood.",
            kind="switch",
        ),
    ] = False
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (
        HUB,
        Flag(
            help="Print the improved launch alone: the tool's own, or another, as in megatron-core@0.14.",
            metavar="TOOL[@VERSION]",
            names=("export",),
            without={"web": "every answer has it", "study": ONE_ROW},
        ),
        LAUNCHER,
        JSON,
    )
