"""What the model of log error is made of, by kind of question: mechanisms, what may be new, likeness."""

from collections.abc import Mapping

from foretell.records import dataclass
from foretell.specs.corrections import POST_TRAINING, SERVING, TRAINING
from foretell.uncertainty.novelty import FEATURES


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadGroup:
    """Mechanisms whose factors are as far spread."""

    mechanisms: tuple[str, ...]
    """Their names."""
    start: float
    """Spread to begin with, and to stay near where few sources tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """One kind of question."""

    name: str
    """training, serving or post-training."""
    mechanisms: tuple[str, ...]
    """What slopes are of."""
    groups: tuple[SpreadGroup, ...]
    """Mechanisms by their spread."""
    novelty: Mapping[str, float]
    """What may be new, and which figure it is -> usual weight."""
    distance: Mapping[str, float]
    """Feature -> by how much a step in it makes two runs less alike; judged."""
    alike: float = 0.06
    """Spread of what runs that are alike have in common, to begin with."""
    own: float = 0.07
    """Spread of what is a run's own, to begin with: that of rows within sources."""
    bend: float = 0.4
    """Distance from its source's median from which a row counts no more, and twice that of a source from
    0: a row that far off is of another world, or misread."""
    after: float = 1.0
    """Factor on the spread of the next run after others were measured; judged by sources left out."""
    pull: float = 0.35
    """How firmly spreads are held where they begin, in logarithm."""
    novelty_pull: float = 0.2
    """The same of the weights of what is new."""
    centred: bool = False
    """Whether errors have no mean and no skew: those of some sources are not the next one's, and keep a
    measured run from being believed (services of wave B given one run: 6.5 % with them, 5.0 without)."""
    still: tuple[str, ...] = ()
    """Names of `novelty` whose weight stays where it begins, since one source or two are all that show it."""
    again: bool = False
    """Whether predictions of today, without the row's source, count as much as first contacts, which a much
    poorer version made; widths are then set midway between what nine in ten rows of either need."""


SEEN: Mapping[str, float] = {**dict.fromkeys(FEATURES, 0.25), "together": 0.5}
DOUBLING, NAME = 0.3, 0.5
"""Steps in numbers and names that differ; a third of these in training, where a plain factor does well."""

KINDS: Mapping[str, ErrorKind] = {
    "training": ErrorKind(
        name="training",
        mechanisms=TRAINING,
        groups=(
            SpreadGroup(mechanisms=("gemm", "attention", "memory_bound"), start=0.085),
            SpreadGroup(mechanisms=("experts",), start=0.18),
            SpreadGroup(
                mechanisms=(
                    "tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel",
                    "data_parallel",
                ),
                start=0.34,
            ),
            SpreadGroup(mechanisms=("host", "fixed"), start=0.3),
        ),
        novelty={**SEEN, "unnamed": 0.08, "together": 0.14},
        still=("unnamed", "together"),
        after=1.2,
        distance={
            **dict.fromkeys(
                ("chips", "length", "micro_batch", "width", "tp", "pp", "cp", "ep", "zero3",
                 "recompute", "lora"), DOUBLING / 3.0,
            ),
            **dict.fromkeys(("model", "chip", "format", "software"), NAME / 3.0),
        },
    ),
    "serving": ErrorKind(
        name="serving",
        alike=0.1,
        own=0.12,
        centred=True,
        bend=0.8,
        mechanisms=SERVING,
        groups=(
            SpreadGroup(mechanisms=("prefill",), start=0.15),
            SpreadGroup(mechanisms=("decode_weights", "decode_cache"), start=0.1),
            SpreadGroup(mechanisms=("step_overhead",), start=0.2),
            SpreadGroup(mechanisms=("queueing", "cache_capacity"), start=0.4),
        ),
        novelty={**SEEN, "ttft": 1.0, "throughput": 0.0, "e2e": 0.0, "joules": 0.0, "input": 0.3},
        distance={
            **dict.fromkeys(("batch", "prompt", "answer", "tp", "dp", "ep"), DOUBLING),
            **dict.fromkeys(("model", "chip", "engine"), NAME),
            "metric": 1.8,
        },
    ),
    "post-training": ErrorKind(
        name="post-training",
        alike=0.1,
        own=0.1,
        bend=1.2,
        after=1.5,
        again=True,
        mechanisms=POST_TRAINING,
        groups=(
            SpreadGroup(mechanisms=("generation",), start=0.2),
            SpreadGroup(mechanisms=("forward", "update"), start=0.2),
            SpreadGroup(mechanisms=("synchronisation", "loop"), start=0.4),
        ),
        novelty={
            **dict.fromkeys(FEATURES, 0.1),
            **dict.fromkeys(("together", "software"), 0.3),
            **dict.fromkeys(("step", "generation", "forward", "update", "loop", "finetune"), 0.0),
            "synchronisation": 0.3,
            "memory": -0.1,
        },
        distance={
            **dict.fromkeys(("chips", "answer", "trajectories"), DOUBLING),
            **dict.fromkeys(("model", "chip"), NAME),
        },
    ),
}  # fmt: skip
"""By name."""
