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
from foretell.specs.questions.flags import Flag, decimal, file_flag, flag, switch, whole
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
        str | None, flag("Of a service: vllm, trtllm, sglang, a profile.", "NAME")
    ] = None
    spread: Annotated[
        float | None,
        decimal("Of a service: lengths are spread evenly from this share to the whole.", "X"),
    ] = None
    factor: Annotated[
        float, decimal("What-ifs make each number so many times better, and worse.", "X")
    ] = 2.0
    replan: Annotated[bool, switch("Choose the plan of each what-if anew.")] = False
    rent: Annotated[str | None, flag("Of training: on-demand, own and the like.", "TERM")] = None
    price: Annotated[
        Given | None, flag("Rent of a chip-hour (default: the catalogue's).", "USD", "price")
    ] = None
    years: Annotated[
        Given | None, flag("Of training: years that servers are used (default: 5).", "N", "amount")
    ] = None
    utilisation: Annotated[
        Given | None,
        flag(
            "Of training: share of the hours in which owned chips work (default: 0.8).",
            "SHARE",
            "amount",
        ),
    ] = None
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class ScalingQuestion:
    """Strategies over numbers of chips: `foretell scaling`."""

    models: Annotated[
        "Sequence[ModelGiven]",
        flag(
            "Catalogue ids, config.json files or TOML files.",
            "MODEL...",
            "names",
            names_file="maybe",
            lists="models",
            inline=OF_EACH,
        ),
    ] = ()
    system: SystemName = None
    gpus: Annotated[
        int | str | Sequence[int],
        flag(
            "Numbers of GPUs: 1..512 doubles; or a list, 8,16,24.", "N..M", "count", most=MOST_CHIPS
        ),
    ] = "1..512"
    strategies: Annotated[
        str | Sequence[str], flag('Plans without dp, as in "zero1,zero3,tp4 zero1".', "PLANS")
    ] = "zero1,zero2,zero3"
    mode: Annotated[
        "Mode | None",
        flag(
            "Work grows with the GPUs, or stays (default: strong where --global-batch is given).",
            "weak|strong",
        ),
    ] = None
    plan: Annotated[str, flag("Words that all the plans share.", "WORDS", "words")] = ""
    micro_batch: Annotated[
        int | None, whole("Sequences of a micro-batch (default: 1).", most=MOST_LENGTH)
    ] = None
    batch_per_gpu: Annotated[
        int | None,
        whole("Weak: sequences of a step for each GPU (default: a micro-batch).", most=MOST_LENGTH),
    ] = None
    global_batch: Annotated[
        int | None, whole("Strong: sequences per step, whatever the GPUs.", most=MOST_LENGTH)
    ] = None
    seq_len: Length = None
    target_len: TargetLength = None
    floor: Annotated[
        float, decimal("Efficiency below which a strategy has stopped scaling.", "X")
    ] = 0.8
    set: SettingsGiven = ()
    edges: ClassVar[tuple[Flag, ...]] = (
        switch(
            "The study of docs/scaling-study.md, with measurements; no models are given.",
            names=("study",),
        ),
        file_flag(
            "Write a picture: .svg, .html, or .png where a browser is.", names=("plot", "picture")
        ),
        JSON,
    )
