"""Questions that ask about many steps: sensitivities and scaling."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from foretell.records import dataclass
from foretell.specs.questions.common import (
    JSON,
    MOST_CHIPS,
    MOST_LENGTH,
    OF_EACH,
    PLOT,
    Given,
    Length,
    Progressing,
    SettingsGiven,
    SystemName,
    TargetLength,
)
from foretell.specs.questions.flags import Flag
from foretell.specs.questions.serving import CONCURRENCY, RATE, SERVED_ANSWER, SERVED_PROMPT
from foretell.specs.questions.training import StepQuestion

if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven

Mode = Literal["weak", "strong"]


@dataclass(frozen=True, slots=False, kw_only=True)
class SensitivityQuestion(StepQuestion):
    """How a step, or with a load a service, answers to every number: `foretell sensitivity`."""

    isl: Annotated[float | None, SERVED_PROMPT] = None
    osl: Annotated[float | None, SERVED_ANSWER] = None
    concurrency: Annotated[float | None, CONCURRENCY] = None
    rate: Annotated[float | None, RATE] = None
    engine: Annotated[
        str | None,
        Flag(help="Of a service: vllm, trtllm, sglang, a profile.", metavar="NAME"),
    ] = None
    spread: Annotated[
        float | None,
        Flag(
            help="Of a service: lengths are spread evenly from this share to the whole.",
            kind="decimal",
            metavar="X",
        ),
    ] = None
    factor: Annotated[
        float,
        Flag(
            help="What-ifs make each number so many times better, and worse.",
            kind="decimal",
            metavar="X",
        ),
    ] = 2.0
    replan: Annotated[bool, Flag(help="Choose the plan of each what-if anew.", kind="switch")] = (
        False
    )
    rent: Annotated[
        str | None, Flag(help="Of training: on-demand, own and the like.", metavar="TERM")
    ] = None
    price: Annotated[
        Given | None,
        Flag(help="Rent of a chip-hour (default: the catalogue's).", kind="price", metavar="USD"),
    ] = None
    years: Annotated[
        Given | None,
        Flag(
            help="Of training: years that servers are used (default: 5).",
            kind="amount",
            metavar="N",
        ),
    ] = None
    utilisation: Annotated[
        Given | None,
        Flag(
            help="Of training: share of the hours in which owned chips work (default: 0.8).",
            kind="amount",
            metavar="SHARE",
        ),
    ] = None
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class ScalingQuestion:
    """Strategies over numbers of chips: `foretell scaling`."""

    models: Annotated[
        "Sequence[ModelGiven]",
        Flag(
            help="Catalogue ids, config.json files or TOML files.",
            kind="names",
            metavar="MODEL...",
            names_file="maybe",
            lists="models",
            inline=OF_EACH,
        ),
    ] = ()
    system: SystemName = None
    gpus: Annotated[
        int | str | Sequence[int],
        Flag(
            help="Numbers of GPUs: 1..512 doubles; or a list, 8,16,24.",
            kind="count",
            metavar="N..M",
            most=MOST_CHIPS,
        ),
    ] = "1..512"
    strategies: Annotated[
        str | Sequence[str],
        Flag(help='Plans without dp, as in "zero1,zero3,tp4 zero1".', metavar="PLANS"),
    ] = "zero1,zero2,zero3"
    mode: Annotated[
        "Mode | None",
        Flag(
            help="Work grows with the GPUs, or stays (default: strong where --global-batch is given).",
            metavar="weak|strong",
        ),
    ] = None
    plan: Annotated[
        str, Flag(help="Words that all the plans share.", kind="words", metavar="WORDS")
    ] = ""
    micro_batch: Annotated[
        int | None,
        Flag(
            help="Sequences of a micro-batch (default: 1).",
            kind="whole",
            metavar="N",
            most=MOST_LENGTH,
        ),
    ] = None
    batch_per_gpu: Annotated[
        int | None,
        Flag(
            help="Weak: sequences of a step for each GPU (default: a micro-batch).",
            kind="whole",
            metavar="N",
            most=MOST_LENGTH,
        ),
    ] = None
    global_batch: Annotated[
        int | None,
        Flag(
            help="Strong: sequences per step, whatever the GPUs.",
            kind="whole",
            metavar="N",
            most=MOST_LENGTH,
        ),
    ] = None
    seq_len: Length = None
    target_len: TargetLength = None
    floor: Annotated[
        float,
        Flag(
            help="Efficiency below which a strategy has stopped scaling.",
            kind="decimal",
            metavar="X",
        ),
    ] = 0.8
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (
        Flag(
            help="The study of docs/scaling-study.md, with measurements; no models are given.",
            kind="switch",
            names=("study",),
        ),
        Flag(
            help="Write a picture: .svg, .html, or .png where a browser is.",
            metavar="FILE",
            names=("plot", "picture"),
            names_file="always",
        ),
        JSON,
    )
