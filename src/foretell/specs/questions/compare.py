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
from foretell.specs.questions.flags import Flag
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
        Flag(
            help="Ids of systems or chips, or files.",
            kind="names",
            metavar="SYSTEM",
            names_file="maybe",
            lists="systems",
            inline=OF_EACH,
        ),
    ] = field(kw_only=False)
    model: Annotated[
        "ModelGiven | None",
        Flag(
            help="An id, a config.json or its folder, or a TOML file.",
            kind="named",
            metavar="MODEL",
            names_file="maybe",
            lists=MODEL.lists,
            inline=INLINE,
        ),
    ] = None
    budget: Annotated[
        Given | None,
        Flag(
            help="Such as 10M: what each cluster may cost over its years.",
            kind="amount",
            metavar="USD",
        ),
    ] = None
    gpus: Annotated[
        int | None,
        Flag(
            help="Chips of each, instead of a budget.",
            kind="count",
            metavar="N",
            most=MOST_CHIPS,
        ),
    ] = None
    workload: Annotated[
        str | Path | Mapping[str, Any] | None,
        Flag(
            help="A mix: [base] and [[workload]] of a study.",
            kind="table",
            metavar="STUDY.toml",
            names_file="always",
            inline="A mix as an object: base and workload of a study (docs/compare.md).",
        ),
    ] = None
    topologies: Annotated[
        str,
        Flag(
            help="Each system with these fabrics between its nodes: all, or such as ring,torus-3d,fat-tree.",
            metavar="NAMES",
        ),
    ] = ""
    equal: Annotated[
        str,
        Flag(
            help="What fabrics share: the rate of ports, or (with --gpus) the bisection (default: ports).",
            metavar="ports|bisection",
        ),
    ] = "ports"
    by: Annotated[
        str | None,
        Flag(
            help="Rank by cost per token (usd) or by tokens/s (tokens) (default: usd).",
            metavar="usd|tokens",
        ),
    ] = None
    global_batch: Annotated[
        int | None,
        Flag(help="Of training: sequences per step.", kind="whole", metavar="N", most=MOST_LENGTH),
    ] = None
    seq_len: Annotated[
        int | None,
        Flag(help="Of training: tokens per sequence.", kind="whole", metavar="N", most=MOST_LENGTH),
    ] = None
    target_len: Annotated[
        int | None,
        Flag(
            help="Of training: target tokens of an encoder-decoder.",
            kind="whole",
            metavar="N",
            most=MOST_LENGTH,
        ),
    ] = None
    plan: Annotated[
        "PlanGiven | None",
        Flag(
            help="One plan for all (default: the best plan of each).", kind="words", metavar="WORDS"
        ),
    ] = None
    isl: Annotated[float | None, SERVED_PROMPT] = None
    osl: Annotated[float | None, SERVED_ANSWER] = None
    concurrency: Annotated[
        float | None,
        Flag(
            help="Of a service: concurrent requests (default: the most that keeps --tpot).",
            kind="decimal",
            metavar="N",
            most=CONCURRENCY.most,
        ),
    ] = None
    tpot: Annotated[
        float | None,
        Flag(
            help="Of a service: longest mean time of a token (default: 50).",
            kind="decimal",
            metavar="MS",
        ),
    ] = None
    ttft: Annotated[
        float | None,
        Flag(
            help="Of a service: longest mean time to the first token.",
            kind="decimal",
            metavar="MS",
        ),
    ] = None
    engine: Annotated[
        str | None,
        Flag(help="Of a service: vllm, trtllm, sglang, or the id of a profile.", metavar="NAME"),
    ] = None
    rent: Annotated[
        str | None,
        Flag(help="own, on-demand, spot, reserved, 1-year, 3-year (default: own).", metavar="TERM"),
    ] = None
    price: Annotated[
        Given | None,
        Flag(help="Rent of a chip for an hour, the same for all.", kind="price", metavar="USD"),
    ] = None
    years: Annotated[
        Given | None, Flag(help="Years that are paid for (default: 5).", kind="amount", metavar="N")
    ] = None
    utilisation: Annotated[
        Given | None,
        Flag(
            help="Share of the hours in which chips work (default: 0.8).",
            kind="amount",
            metavar="SHARE",
        ),
    ] = None
    region: Annotated[
        str | None, Flag(help="Whose grid: a country, or a cloud's region.", metavar="PLACE")
    ] = None


WHY = Flag(
    help="Also show the main uncertainties and how often each system beats each other.",
    kind="switch",
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
        Flag(
            help="Seed of the draws that the order's certainty is counted over.",
            kind="whole",
            without={"command": ONE_ANSWER, "web": ONE_ANSWER},
        ),
    ] = 0
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (WHY, PLOT, JSON)
