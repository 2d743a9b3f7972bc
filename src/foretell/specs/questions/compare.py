"""The question about systems beside each other: `foretell compare`."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import (
    INLINE,
    JSON,
    MODEL,
    MOST_CHIPS,
    MOST_LENGTH,
    OF_EACH,
    PLOT,
    Given,
    MeasuredRuns,
    Progressing,
    SettingsGiven,
)
from foretell.specs.questions.flags import Flag, decimal, flag, switch, whole
from foretell.specs.questions.plan_flags import PlanFlags
from foretell.specs.questions.serving import CONCURRENCY, SERVED_ANSWER, SERVED_PROMPT
from foretell.specs.questions.training import RunConditions

if TYPE_CHECKING:
    from foretell.specs.questions.common import ModelGiven, PlanGiven, SystemGiven


@dataclass(frozen=True, slots=False, kw_only=True)
class CompareWork:
    """Systems, the money, and one kind of work or a mix."""

    systems: Annotated[
        "Sequence[SystemGiven]",
        flag(
            "Ids of systems or chips, or files.",
            "SYSTEM",
            "names",
            names_file="maybe",
            lists="systems",
            inline=OF_EACH,
        ),
    ] = field(kw_only=False)
    model: Annotated[
        "ModelGiven | None",
        flag(
            "An id, a config.json or its folder, or a TOML file.",
            "MODEL",
            "named",
            names_file="maybe",
            lists=MODEL.lists,
            inline=INLINE,
        ),
    ] = None
    budget: Annotated[
        Given | None,
        flag("Such as 10M: what each cluster may cost over its years.", "USD", "amount"),
    ] = None
    gpus: Annotated[
        int | None, flag("Chips of each, instead of a budget.", "N", "count", most=MOST_CHIPS)
    ] = None
    workload: Annotated[
        str | Path | Mapping[str, Any] | None,
        flag(
            "A mix: [base] and [[workload]] of a study.",
            "STUDY.toml",
            "table",
            names_file="always",
            inline="A mix as an object: base and workload of a study (docs/compare.md).",
        ),
    ] = None
    topologies: Annotated[
        str,
        flag(
            "Each system with these fabrics between its nodes: all, or such as ring,torus-3d,fat-tree.",
            "NAMES",
        ),
    ] = ""
    equal: Annotated[
        str,
        flag(
            "What fabrics share: the rate of ports, or (with --gpus) the bisection (default: ports).",
            "ports|bisection",
        ),
    ] = "ports"
    by: Annotated[
        str | None,
        flag("Rank by cost per token (usd) or by tokens/s (tokens) (default: usd).", "usd|tokens"),
    ] = None
    global_batch: Annotated[
        int | None, whole("Of training: sequences per step.", most=MOST_LENGTH)
    ] = None
    seq_len: Annotated[int | None, whole("Of training: tokens per sequence.", most=MOST_LENGTH)] = (
        None
    )
    target_len: Annotated[
        int | None, whole("Of training: target tokens of an encoder-decoder.", most=MOST_LENGTH)
    ] = None
    plan: Annotated[
        "PlanGiven | None",
        flag("One plan for all (default: the best plan of each).", "WORDS", "words"),
    ] = None
    isl: Annotated[float | None, SERVED_PROMPT] = None
    osl: Annotated[float | None, SERVED_ANSWER] = None
    concurrency: Annotated[
        float | None,
        decimal(
            "Of a service: concurrent requests (default: the most that keeps --tpot).",
            most=CONCURRENCY.most,
        ),
    ] = None
    tpot: Annotated[
        float | None, decimal("Of a service: longest mean time of a token (default: 50).", "MS")
    ] = None
    ttft: Annotated[
        float | None, decimal("Of a service: longest mean time to the first token.", "MS")
    ] = None
    engine: Annotated[
        str | None, flag("Of a service: vllm, trtllm, sglang, or the id of a profile.", "NAME")
    ] = None
    rent: Annotated[
        str | None, flag("own, on-demand, spot, reserved, 1-year, 3-year (default: own).", "TERM")
    ] = None
    price: Annotated[
        Given | None, flag("Rent of a chip for an hour, the same for all.", "USD", "price")
    ] = None
    years: Annotated[Given | None, flag("Years that are paid for (default: 5).", "N", "amount")] = (
        None
    )
    utilisation: Annotated[
        Given | None,
        flag("Share of the hours in which chips work (default: 0.8).", "SHARE", "amount"),
    ] = None
    region: Annotated[str | None, flag("Whose grid: a country, or a cloud's region.", "PLACE")] = (
        None
    )


WHY = switch(
    "Also show the main uncertainties and how often each system beats each other.",
    names=("why",),
    without={"web": "every answer has both"},
)
"""Explains the certainty of the order."""
ONE_ANSWER = "the same question has the same answer"


@dataclass(frozen=True, slots=False, kw_only=True)
class CompareQuestion(PlanFlags, RunConditions, CompareWork):
    """Systems ranked by what they do for the money: `foretell compare`."""

    set: SettingsGiven = ()
    measured: MeasuredRuns = ()
    seed: Annotated[
        int,
        whole(
            "Seed of the draws that the order's certainty is counted over.",
            None,
            without={"command": ONE_ANSWER, "web": ONE_ANSWER},
        ),
    ] = 0
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (WHY, PLOT, JSON)
