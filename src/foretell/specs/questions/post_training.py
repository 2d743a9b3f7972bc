"""The question of a step of fine-tuning or reinforcement learning."""

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.post_training import ALGORITHMS
from foretell.specs.questions.common import (
    IMPORTS,
    JSON,
    JSONL,
    MODEL,
    MOST_LENGTH,
    PLOT,
    SHAPES_HELP,
    Chips,
    MeasuredRuns,
    ModelName,
    SettingsGiven,
    SystemName,
    chip_count,
)
from foretell.specs.questions.flags import Flag
from foretell.specs.questions.plan_flags import LayoutFlags
from foretell.specs.questions.serving import Speculative

if TYPE_CHECKING:
    from foretell.specs.questions.common import LayoutGiven, ModelGiven, PlanGiven

Pooled = Annotated[
    int | str | None,
    chip_count("Chips of one pool, as in 16xH100; with the other pool's in the place of --gpus."),
]
MOST_ANSWER = 2**17
"""Tokens of an answer that a server answers for."""
LENGTHS = Flag(
    help=f"Answer lengths: {SHAPES_HELP} (default: lognormal); of fine-tuning also a data set, as alpaca.",
    metavar="SHAPE|FILE",
    names_file="maybe",
)


def _whole(about: str, most: float) -> Flag:
    return Flag(help=about, kind="whole", metavar="N", most=most)


@dataclass(frozen=True, slots=False, kw_only=True)
class PostTrainingQuestion(LayoutFlags):
    """One step of fine-tuning or reinforcement learning, and with steps a run: `foretell post-train`."""

    model: ModelName = field(kw_only=False)
    algorithm: Annotated[
        str, Flag(help=f"{', '.join(ALGORITHMS)} (update, sync: alone).", metavar="NAME")
    ] = "grpo"
    system: SystemName = None
    gpus: Chips = None
    trainer_gpus: Pooled = None
    rollout_gpus: Pooled = None
    prompts: Annotated[
        int, _whole("Prompts of a step; of fine-tuning: sequences, or pairs.", 2**20)
    ] = 512
    samples: Annotated[int, _whole("Answers to each prompt; 1 of fine-tuning.", 2**14)] = 0
    isl: Annotated[
        float | None,
        Flag(
            help="Mean tokens of a prompt (default: 256, or none where nothing is generated).",
            kind="decimal",
            metavar="N",
            most=MOST_LENGTH,
        ),
    ] = None
    osl: Annotated[
        float | None,
        Flag(
            help="Mean tokens of an answer (default: what such limits usually leave).",
            kind="decimal",
            metavar="MEAN",
            most=MOST_ANSWER,
        ),
    ] = None
    max_osl: Annotated[
        int | None, _whole("Longest answer (default: four times the mean).", MOST_ANSWER)
    ] = None
    osl_end: Annotated[
        float | None,
        Flag(
            help="Mean tokens of an answer at the end of a run, where lengths grow.",
            kind="decimal",
            metavar="MEAN",
            most=MOST_ANSWER,
        ),
    ] = None
    lengths: Annotated[str, LENGTHS] = "lognormal"
    updates: Annotated[int, _whole("Optimizer updates of a step.", 2**14)] = 1
    plan: Annotated[
        "PlanGiven | None",
        Flag(
            help='Trainer: words such as "tp2 pp2 mbs4" (docs/plan.md); without, the best of a few.',
            kind="words",
            metavar="WORDS",
        ),
    ] = None
    rollout_plan: Annotated[
        "LayoutGiven | None",
        Flag(
            help='Engine: words such as "tp2 memory_fraction=0.6 no-graph"; without, the best.',
            kind="words",
            metavar="WORDS",
        ),
    ] = None
    engine: Annotated[
        str | None,
        Flag(
            help="Rollout engine: vllm, trtllm, sglang, or the id of a profile (default: the framework's).",
            metavar="NAME",
        ),
    ] = None
    speculative: Speculative = None
    critic: Annotated[
        "ModelGiven | None",
        Flag(
            help="ppo: the value model, an id, alias or file (default: one as large as the policy).",
            kind="named",
            metavar="ID|PATH",
            names_file="maybe",
            lists=MODEL.lists,
            inline=MODEL.inline,
        ),
    ] = None
    filtered: Annotated[
        float,
        Flag(
            help="Share of the groups that are thrown away and generated anew (dynamic sampling).",
            kind="decimal",
            metavar="SHARE",
        ),
    ] = 0.0
    framework: Annotated[
        str,
        Flag(
            help="verl, nemo-rl, trl, openrlhf, slime, skyrl, areal, prime-rl ...", metavar="NAME"
        ),
    ] = "generic"
    placement: Annotated[
        str, Flag(help="colocated, split, async, or best: all of them ranked.", metavar="WORD")
    ] = "colocated"
    staleness: Annotated[
        float | None,
        Flag(
            help="async: batches that may be ahead of the trainer; a share with --partial.",
            kind="decimal",
            metavar="K",
        ),
    ] = None
    partial: Annotated[
        bool, Flag(help="async: long answers go on under the next weights.", kind="switch")
    ] = False
    sync: Annotated[
        str | None,
        Flag(help="Weights to the engine: ipc, broadcast, p2p, delta or file.", metavar="WORD"),
    ] = None
    offload: Annotated[
        str | None,
        Flag(
            help="What the trainer keeps on the host meanwhile: weights+optimizer+reference, or none.",
            metavar="WORDS",
        ),
    ] = None
    reference: Annotated[
        str,
        Flag(
            help="Reference log-probabilities: auto (as the loop), pass, or none or cached: no pass.",
            metavar="WORD",
        ),
    ] = "auto"
    packing: Annotated[
        str,
        Flag(
            help="packed, batch (filled up to the longest of a micro-batch), grouped (by length), padded (to "
            "the limit), or auto: as the framework.",
            metavar="WORD",
        ),
    ] = "auto"
    micro_tokens: Annotated[
        int | None,
        _whole(
            "Tokens of a micro-batch on one rank (default: 16384, or the plan's mbs).", MOST_LENGTH
        ),
    ] = None
    tool_time: Annotated[
        str | None,
        Flag(help="Seconds of a tool call: median and 99th percentile.", metavar="MEDIAN:P99"),
    ] = None
    turns: Annotated[int, _whole("Turns of a trajectory.", 2**10)] = 1
    steps: Annotated[int | None, _whole("Steps of the run.", 2**24)] = None
    price: Annotated[
        float | None,
        Flag(help="Rent of a chip-hour (default: the catalogue's).", kind="price", metavar="USD"),
    ] = None
    set: SettingsGiven = ()
    fit: Annotated[
        bool,
        Flag(
            help="Also the longest sequence, the most sequences and the largest model that these chips can "
            "tune: as asked, in full, by LoRA and QLoRA.",
            kind="switch",
        ),
    ] = False
    measured: MeasuredRuns = ()
    log: Annotated[
        str | Path | None,
        Flag(
            help="A log with timing_s/... keys (verl and the like): laid beside the prediction.",
            metavar="FILE",
            names_file="always",
        ),
    ] = None
    trace: Annotated[
        str | Path | None,
        Flag(
            help="Write the step as a Chrome trace for ui.perfetto.dev; .gz is gzipped.",
            metavar="PATH",
            names_file="always",
        ),
    ] = None
    edges: ClassVar[tuple[Flag, ...]] = (
        PLOT,
        *IMPORTS,
        Flag(
            help="Print the configuration for verl, nemo-rl or trl.",
            metavar="TOOL",
            names=("export",),
        ),
        JSONL,
        JSON,
    )
