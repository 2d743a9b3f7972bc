"""Post-training loops (one table of posttraining.toml each; what it leaves out is as in `generic`), and
lengths of examples.
"""

import re
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.errors import BadInput, unknown
from foretell.records import dataclass
from foretell.specs._base import release_numbers

FILE = ROOT / "posttraining.toml"
"""Every loop that is known."""
GENERIC = "generic"
"""The loop of a question that names none."""
MODULE_LAYER_S, MODULE_BATCH, ALREADY_THERE = 1e-3, 1024, 1e18
"""Host's time of a layer where Python modules write answers (some 30 ms a token of 7 billion weights), the
sequences that they write at once, and a rate at which weights take no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainingLoop:
    """What a framework does around the kernels of training and serving."""

    id: str
    """Its word."""
    name: str
    """What people call it."""
    trainer: str
    """Trainer where the plan names none: fsdp, megatron or deepspeed."""
    megatron: bool
    """Whether it may train by Megatron, where a model is too large for its own trainer."""
    software_fsdp: str
    """Training software of that trainer."""
    software_megatron: str
    """Training software of that trainer."""
    software_deepspeed: str
    """Training software of that trainer."""
    engine: str
    """Engine profile of the rollouts where none is named."""
    samples: int
    """Answers to each prompt where neither the question nor the algorithm says."""
    graphs_since: str
    """Release from which rollouts capture graphs; empty: all; apart: on chips of their own; never: none."""
    eager_chips: str
    """Architectures of chips on which rollouts run without graphs."""
    static_batches: bool
    """Whether a batch of the engine is written to its last answer before the next one begins."""
    tuning_adapters: str
    """Linear maps that have adapters where the plan names none, of fine-tuning; empty: all of them."""
    tuning_sharded: bool
    """Whether fine-tuning shares weights among chips where the plan does not say; else only where copies
    would not fit."""
    tuning_recompute: str
    """What fine-tuning computes again where the plan does not say: full, sharded (full as soon as weights are
    shared among chips), or empty: as the software has it."""
    loads_whole: bool
    """Whether every chip holds all weights once, beside its shard, as it loads them."""
    tuning_plan: str
    """Other words of a plan as it fine-tunes, where the plan does not say."""
    tuning_frozen: str
    """Format of frozen weights beside adapters where the plan does not say; empty: the plan's own."""
    policy_loss: str
    """Loss of a policy's updates where the plan does not say, in its words; empty: the software's own."""
    tuning_autocast: bool
    """Whether fine-tuning of adapters runs under autocast."""
    tuning_packing: str
    """How fine-tuning fills micro-batches where nothing says: packed, batch (each sequence up to the
    longest), or grouped (of sequences that are alike)."""
    rollout_tp: int
    """Tensor parallelism of the rollout engine where nothing says; 0: as is fastest."""
    max_batch: int
    """Sequences that the rollout engine runs at once."""
    awake: bool
    """Whether the engine keeps its memory, and the trainer what it has, where both have the same chips."""
    memory_fraction: float
    """Share of the memory that the engine takes where the trainer has the same cards."""
    split_memory_fraction: float
    """Share that it takes of cards of its own."""
    old_logprobs: str
    """When the trainer computes log-probabilities of the policy before the updates: always, several (where a
    step has more than one update), or never."""
    reference: bool
    """Whether a frozen reference is passed, of algorithms that have one."""
    balanced: bool
    """Whether trajectories are dealt to ranks by their tokens."""
    sequences_fsdp: int
    """Sequences of a micro-batch where nothing says; 0: as many as a token budget holds."""
    sequences_megatron: int
    """The same of Megatron."""
    sequences_deepspeed: int
    """The same of DeepSpeed."""
    staleness: float
    """Batches that may be ahead of the trainer where nothing says."""
    partial: bool
    """Whether long answers go on under the next weights where nothing says."""
    partial_hides: float
    """How fast partial rollouts hide the tail of a generation as staleness grows (pipeline.py)."""
    eager_layer_s: float
    """Host's time of one layer of a decode step without graphs."""
    eager_adapter_s: float
    """The same of a layer's adapters."""
    adapter_sequence_s: float
    """Host's time of one sequence of such a step with adapters."""
    adapter_batches: bool
    """Whether a micro-batch of adapters has one answer to every prompt over all ranks, where nothing says."""
    bins: bool
    """Whether a micro-batch's sequences are bins as long as the longest, filled with several."""
    packing: str
    """How trajectories fill micro-batches where nothing says: packed, batch or padded."""
    micro_tokens: int
    """Tokens of a micro-batch that are filled where nothing says; at least the longest trajectory."""
    logs_together: bool
    """Whether logs have one timer for log-probabilities, those of the reference and values."""
    wake_s: float
    """Least time to wake the engine, and as much to put it to sleep."""
    wake_bytes_per_s: float
    """Rate at which what sleeps on the host comes back."""
    reloads: bool
    """Whether each phase of the trainer brings in what sleeps on the host, and puts it back; else waking and
    putting to sleep do."""
    micro_batch_s: float
    """Host's time for one micro-batch of a pass over trajectories."""
    step_s: float
    """What every step takes beside its phases."""
    reward_s: float
    """Rewards by rule, for each trajectory."""
    advantage_s: float
    """Its advantage."""
    controller_bytes_per_s: float
    """Rate at which one process hands padded batches to the workers; 0: nothing passes one process."""
    sync_logged_with_wake: bool
    """Whether logs count waking the engine and what the trainer moves to the host as synchronisation."""
    sync_stored: bool
    """Whether weights come from a checkpoint in the hosts' memory, in the engine's own format: no trainer
    gathers them."""
    sync_p2p: str
    """How receivers read: rate (at the trainer's own), shards (each its own), or parts (some read a part
    each, and broadcast it)."""
    sync_p2p_tensors: float
    """Calls a tensor where receivers read, over those of a broadcast."""
    sync_summons: bool
    """Whether adapters are collected by gathering whole modules, the frozen weights among them."""
    sync_merged: bool
    """Whether adapters are merged into the weights, and all of these sent."""
    sync_fixed_s: float
    """What every synchronisation takes."""
    sync_tensor_s: float
    """The same for each tensor: named, converted, loaded."""
    sync_ipc_bytes_per_s: float
    """Rate of gathering, slicing and loading where both are on the same cards."""
    sync_broadcast_bytes_per_s: float
    """Rate of a broadcast from one rank."""
    sync_p2p_bytes_per_s: float
    """Rate where buckets are sent and loaded side by side."""
    sync_delta_s_per_weight: float
    """Comparing one weight of a rank's shard with its last copy."""
    sync_file_bytes_per_s: float
    """Rate of shared storage, one way."""
    sync_offload_bytes_per_s: float
    """Rate at which weights on the host are loaded first."""
    sync_quantise: float
    """Time over that of 16 bits where the receiver narrows the weights."""

    def sequences(self, trainer: str) -> int:
        """Sequences of a micro-batch of a trainer where nothing says; 0: a token budget."""
        return int(getattr(self, f"sequences_{trainer}"))

    def software(self, trainer: str) -> str:
        """The word for the training software of a trainer."""
        return str(getattr(self, f"software_{trainer}"))

    def in_own_modules(self) -> "PostTrainingLoop":
        """The loop where the trainer's modules write the answers, as `generate()` of Hugging Face does: no
        graphs, each batch to its last answer, and no engine that is woken or sent weights."""
        return replace(
            self, graphs_since="never", eager_layer_s=MODULE_LAYER_S, static_batches=True,
            max_batch=MODULE_BATCH, awake=False, wake_s=0.0, sync_fixed_s=0.0, sync_tensor_s=0.0,
            sync_ipc_bytes_per_s=ALREADY_THERE, wake_bytes_per_s=ALREADY_THERE,
        )  # fmt: skip

    def runs_eagerly(self, word: str, architecture: str, *, apart: bool) -> str:
        """Why rollouts of a release (as in verl@0.4) run without graphs; empty where they have them, as those
        of today do where no release is named. `apart`: they have chips of their own."""
        if architecture in self.eager_chips.split():
            return f"engines on {architecture} chips launch kernel by kernel"
        shared = self.graphs_since == "apart" and not apart
        release, first = (release_numbers(n) for n in (word.partition("@")[2], self.graphs_since))
        if shared or self.graphs_since == "never" or (release and release < first):
            return f"recipes of {word} have none"
        return ""


@lru_cache(maxsize=256)
def post_training_loop(word: str, left_out: tuple[str, ...] = ()) -> PostTrainingLoop:
    """The loop of a word, as its release behind @ had it; BadInput with the nearest where there is none.

    Values that were read from the runs of no other sources than those in `left_out` are what would be assumed
    without them.
    """
    table = _table()["loop"]
    name, _, release = word.partition("@")
    name = name.lower()
    if name not in table:
        raise BadInput([unknown("framework", word, table)])
    own, early = table[name], table[name].get("early", {})
    if release and release_numbers(release) < release_numbers(early.get("before", "")):
        own = {**own, **early}
    given: dict[str, Any] = {}
    for field in fields(PostTrainingLoop):
        if field.name in ("id", "name"):
            continue
        raw = own.get(field.name) or table[GENERIC][field.name]
        out = bool(raw.get("seen")) and set(raw["seen"]) <= set(left_out)
        given[field.name] = raw["without"] if out else raw["value"]
    return PostTrainingLoop(id=name, name=table[name]["name"], **given)


def loop_names() -> tuple[str, ...]:
    """Every loop."""
    return tuple(_table()["loop"])


def recognise_loop(text: str) -> str:
    """The loop that a printed name means; generic where none is known."""
    for name, block in _table()["loop"].items():
        for pattern in block.get("printed", ()):
            if re.search(rf"(?<![a-z]){pattern}(?![a-z])", text, re.IGNORECASE):
                return str(name)
    return GENERIC


@lru_cache(maxsize=1)
def _table() -> Table:
    return read_table(FILE)


DATASETS_FILE = ROOT / "datasets.toml"
"""Every data set that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleLengths:
    """Tokens of the examples of a data set."""

    mean: float
    """Of all."""
    longest: int
    """Of the longest."""


def dataset_names() -> tuple[str, ...]:
    """Every data set."""
    return tuple(_datasets()["set"])


def example_lengths(name: str) -> ExampleLengths | None:
    """Lengths of a data set's examples; None where it is not known."""
    found = _datasets()["set"].get(name.lower())
    if found is None:
        return None
    return ExampleLengths(
        mean=float(found["mean"]["value"]), longest=int(found["longest"]["value"])
    )


@lru_cache(maxsize=1)
def _datasets() -> Table:
    return read_table(DATASETS_FILE)
