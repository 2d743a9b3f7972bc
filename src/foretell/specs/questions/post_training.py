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
from foretell.specs.questions.flags import Flag, decimal, file_flag, flag, switch, whole
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
LENGTHS = flag(
    f"Answer lengths: {SHAPES_HELP} (default: lognormal); of fine-tuning also a data set, as alpaca.",
    "SHAPE|FILE",
    names_file="maybe",
)


def _whole(about: str, most: float) -> Flag:
    return whole(about, most=most)


@dataclass(frozen=True, slots=False, kw_only=True)
class PostTrainingQuestion(LayoutFlags):
    """One step of fine-tuning or reinforcement learning, and with steps a run: `foretell post-train`."""

    model: ModelName = field(kw_only=False)
    algorithm: Annotated[str, flag(f"{', '.join(ALGORITHMS)} (update, sync: alone).", "NAME")] = (
        "grpo"
    )
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
        decimal(
            "Mean tokens of a prompt (default: 256, or none where nothing is generated).",
            most=MOST_LENGTH,
        ),
    ] = None
    osl: Annotated[
        float | None,
        decimal(
            "Mean tokens of an answer (default: what such limits usually leave).",
            "MEAN",
            most=MOST_ANSWER,
        ),
    ] = None
    max_osl: Annotated[
        int | None, _whole("Longest answer (default: four times the mean).", MOST_ANSWER)
    ] = None
    osl_end: Annotated[
        float | None,
        decimal(
            "Mean tokens of an answer at the end of a run, where lengths grow.",
            "MEAN",
            most=MOST_ANSWER,
        ),
    ] = None
    lengths: Annotated[str, LENGTHS] = "lognormal"
    updates: Annotated[int, _whole("Optimizer updates of a step.", 2**14)] = 1
    plan: Annotated[
        "PlanGiven | None",
        flag(
            'Trainer: words such as "tp2 pp2 mbs4" (docs/plan.md); without, the best of a few.',
            "WORDS",
            "words",
        ),
    ] = None
    rollout_plan: Annotated[
        "LayoutGiven | None",
        flag(
            'Engine: words such as "tp2 memory_fraction=0.6 no-graph"; without, as the framework has it.',
            "WORDS",
            "words",
        ),
    ] = None
    engine: Annotated[
        str | None,
        flag(
            "Rollout engine: vllm, trtllm, sglang, transformers (the trainer's own generate()), or the id of "
            "a profile (default: the framework's).",
            "NAME",
        ),
    ] = None
    speculative: Speculative = None
    critic: Annotated[
        "ModelGiven | None",
        flag(
            "ppo: the value model, an id, alias or file (default: one as large as the policy).",
            "ID|PATH",
            "named",
            names_file="maybe",
            lists=MODEL.lists,
            inline=MODEL.inline,
        ),
    ] = None
    filtered: Annotated[
        float,
        decimal(
            "Share of the groups that are thrown away and generated anew (dynamic sampling).",
            "SHARE",
        ),
    ] = 0.0
    framework: Annotated[
        str, flag("verl, nemo-rl, trl, openrlhf, slime, skyrl, areal, prime-rl ...", "NAME")
    ] = "generic"
    placement: Annotated[
        str, flag("colocated, split, async, or best: all of them ranked.", "WORD")
    ] = "colocated"
    staleness: Annotated[
        float | None,
        decimal("async: batches that may be ahead of the trainer; a share with --partial.", "K"),
    ] = None
    partial: Annotated[bool, switch("async: long answers go on under the next weights.")] = False
    sync: Annotated[
        str | None, flag("Weights to the engine: ipc, broadcast, p2p, delta or file.", "WORD")
    ] = None
    offload: Annotated[
        str | None,
        flag(
            "What the trainer keeps on the host meanwhile: weights+optimizer+reference, or none.",
            "WORDS",
        ),
    ] = None
    reference: Annotated[
        str,
        flag(
            "Reference log-probabilities: auto (as the loop), pass, or none or cached: no pass.",
            "WORD",
        ),
    ] = "auto"
    packing: Annotated[
        str,
        flag(
            "packed, batch (filled up to the longest of a micro-batch), grouped (by length), padded (to "
            "the limit), or auto: as the framework.",
            "WORD",
        ),
    ] = "auto"
    micro_tokens: Annotated[
        int | None,
        _whole(
            "Tokens of a micro-batch on one rank (default: 16384, or the plan's mbs).", MOST_LENGTH
        ),
    ] = None
    log_prob_mbs: Annotated[
        int | None,
        _whole("Sequences of a micro-batch of log-probabilities (default: as the updates).", 2**20),
    ] = None
    reference_mbs: Annotated[
        int | None, _whole("The same of the reference (default: as --log-prob-mbs).", 2**20)
    ] = None
    tool_time: Annotated[
        str | None, flag("Seconds of a tool call: median and 99th percentile.", "MEDIAN:P99")
    ] = None
    turns: Annotated[int, _whole("Turns of a trajectory.", 2**10)] = 1
    steps: Annotated[int | None, _whole("Steps of the run.", 2**24)] = None
    price: Annotated[
        float | None, flag("Rent of a chip-hour (default: the catalogue's).", "USD", "price")
    ] = None
    set: SettingsGiven = ()
    fit: Annotated[
        bool,
        switch(
            "Also the longest sequence, the most sequences and the largest model that these chips can "
            "tune: as asked, in full, by LoRA and QLoRA."
        ),
    ] = False
    measured: MeasuredRuns = ()
    trace: Annotated[
        str | Path | None,
        file_flag("Write the step as a Chrome trace for ui.perfetto.dev; .gz is gzipped.", "PATH"),
    ] = None
    edges: ClassVar[tuple[Flag, ...]] = (
        PLOT,
        *IMPORTS,
        flag("Print the configuration for verl, nemo-rl or trl.", "TOOL", names=("export",)),
        JSONL,
        JSON,
    )
