"""A step of fine-tuning or of reinforcement learning: what is asked, and what is answered."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from foretell.records import JsonRecord, as_json, dataclass

PlacementName = Literal["colocated", "split", "async"]
SyncName = Literal["ipc", "broadcast", "p2p", "delta", "file"]
Pool = Literal["trainer", "rollout", "all", "host"]
"""Chips that a phase keeps busy; host: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmForm:
    """Which phases an algorithm has."""

    id: str
    """Its name."""
    generates: bool = False
    """Whether trajectories are generated."""
    old: bool = False
    """Whether log-probabilities of the policy before the updates are computed by the trainer."""
    reference: bool = False
    """Whether those of a frozen reference are."""
    critic: bool = False
    """Whether a value model is trained beside it."""
    sequences: float = 1.0
    """Sequences that the trainer passes for each trajectory: a pair is two."""
    samples: int = 1
    """Answers to each prompt where nothing says; 0: as the framework has it."""
    penalty: bool = False
    """Whether its reference is for a KL penalty alone, which a loop may leave out."""
    head: bool = True
    """Whether there are scores over the vocabulary; a reward model has one number."""
    policy: bool = False
    """Whether it is an update of a policy, of what loops of reinforcement learning do around it."""
    moves_weights: bool = False
    """Whether it is the synchronisation alone."""


USUAL_PROMPT = 256
"""Tokens of a prompt where at most a limit is stated: a limit is no mean, and prompts are shorter."""


def usual_prompt(limit: float | None) -> float:
    """Mean tokens of a prompt of which at most a limit is stated."""
    return float(min(limit or USUAL_PROMPT, USUAL_PROMPT))


_TABLE = tomllib.loads(Path(__file__).with_name("algorithms.toml").read_text("utf-8"))
ALGORITHMS: Mapping[str, AlgorithmForm] = {
    name: AlgorithmForm(id=name, **form) for name, form in _TABLE["forms"].items()
}
"""By name."""
OTHER_NAMES = {name: ours for ours, names in _TABLE["names"].items() for name in names}
"""Other names in use -> ours."""


def find_algorithm(name: str) -> AlgorithmForm | None:
    """The algorithm of a name, its case and punctuation forgiven; None where none is known."""
    plain = _plain(name)
    known = {**{_plain(one): one for one in ALGORITHMS}, **OTHER_NAMES}
    return ALGORITHMS[known[plain]] if plain in known else None


def algorithm_in(text: str) -> AlgorithmForm | None:
    """The algorithm that a text names: as a whole, else its longest name in it; None where there is none.

    What is in brackets says more about an algorithm that is outside, and of two the last is the one
    that the other describes: DAPO-Math GRPO, GRPO (DAPO clip).
    """
    outside = re.sub(r"\([^()]*\)", " ", text)
    return find_algorithm(text) or _last_named(outside) or _last_named(text)


def _last_named(text: str) -> AlgorithmForm | None:
    """The longest name in a text, of equally long ones the last."""
    found = [
        (len(name), match.start(), name)
        for name in {*map(_plain, ALGORITHMS), *OTHER_NAMES}
        for match in re.finditer(rf"(?<![a-z]){re.escape(name)}(?![a-z+])", _plain(text))
    ]
    return find_algorithm(max(found)[-1]) if found else None


def _plain(name: str) -> str:
    """Small letters and single spaces."""
    return " ".join(re.split(r"[\s_.,/()-]+", name.strip().lower())).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of a step."""

    name: str
    """generate, old_logprob, ref_logprob, values, reward, adv, update_actor, update_critic, weight_sync,
    wake, sleep, host."""
    seconds: float
    """How long it takes by itself."""
    interval: tuple[float, float]
    """Where nine in ten of measured phases lie around it."""
    pool: Pool
    """The chips that it keeps busy."""
    exposed: float
    """Of its seconds, what the step waits for: all of it where nothing runs beside it."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMemory:
    """What one chip of a pool holds in a phase; bytes."""

    phase: str
    """The phase."""
    pool: Pool
    """The pool."""
    parts: Mapping[str, float]
    """Bytes by what they are for."""
    capacity_bytes: float
    """What a chip has."""
    fits: Literal["yes", "no", "too_close"]
    """Whether that is enough."""

    @property
    def total_bytes(self) -> float:
        """All of it."""
        return sum(self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {
            "phase": self.phase,
            "pool": self.pool,
            "bytes": self.total_bytes,
            "capacity_bytes": self.capacity_bytes,
            "fits": self.fits,
            "parts": dict(self.parts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFit(JsonRecord):
    """What the chips can tune in one way."""

    way: str
    """as asked, full, lora or qlora."""
    plan: str
    """Its plan, as words."""
    fits: bool
    """Whether one sequence of the question's length fits."""
    max_context: int
    """Longest sequence, one in a micro-batch."""
    max_sequences: int
    """Most sequences of the question's length in a micro-batch."""
    sequence_tokens: int
    """That length."""
    largest_model: str
    """Largest model of the catalogue of which one such sequence fits; empty: none was found."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainingEstimate:
    """One step of fine-tuning or reinforcement learning, and a run of so many."""

    model: str
    """The model's id."""
    algorithm: str
    """The algorithm."""
    framework: str
    """Whose loop it is."""
    gpus: int
    """Chips of all pools."""
    trainer_gpus: int
    """Chips that train."""
    rollout_gpus: int
    """Chips that generate; the same ones where colocated."""
    trainer_system: str
    """System of the trainer."""
    rollout_system: str
    """System of the rollout engine; empty where nothing is generated."""
    placement: str
    """colocated, split or async."""
    placement_reasons: tuple[str, ...]
    """Why this placement, where it was chosen; empty where it was given."""
    plan: str
    """The trainer's plan; without the size of a micro-batch where tokens fill it."""
    micro_tokens: int | None
    """Tokens that fill a micro-batch of one rank; None: as many sequences as the plan says."""
    rollout_plan: str
    """The rollout engine's; empty where nothing is generated."""
    offload: tuple[str, ...]
    """What the trainer keeps on the host outside its own phases."""
    trajectories: int
    """Trajectories of a step; of fine-tuning: sequences, or pairs."""
    tokens: float
    """Prompt and answer tokens of all of them, both halves of pairs."""
    prompts: int
    """Prompts of a step."""
    samples: int
    """Answers to each."""
    updates: int
    """Optimizer updates of a step."""
    prompt_tokens: float
    """Mean tokens of a prompt."""
    max_answer_tokens: float
    """Longest answer."""
    cut_share: float
    """Share of the answers that the limit cuts."""
    step_s: float
    """Seconds of a step."""
    interval: Mapping[str, tuple[float, float]]
    """p50 and p90 of it."""
    interval_reason: str
    """Why it is as wide as it is, and what would narrow it."""
    phases: tuple[Phase, ...]
    """Its parts."""
    memory: tuple[PhaseMemory, ...]
    """What a chip holds, by phase and pool."""
    fits: Literal["yes", "no", "too_close"]
    """Whether every phase fits."""
    fails_in: str
    """The phase that does not fit, with its pool; empty: none."""
    ways_to_fit: tuple[str, ...]
    """Changes that fit, as flags, where a phase does not; empty where all fit, or none was found."""
    idle_share: float
    """Share of the chips' time in which they wait."""
    tail_share: float
    """Share of the generation in which fewer than one in twenty answers are still written."""
    tail_requests: int
    """How many answers that is."""
    staleness: float
    """Versions of the weights between a trajectory's first token and its use, on the mean."""
    waiting_pool: str
    """The pool that waits for the other; empty where phases follow each other."""
    tokens_per_s_per_gpu: float
    """Prompt and answer tokens a second, over all chips."""
    usd_per_step: float | None
    """Rent of a step; None where no rent is known."""
    usd_per_run: float | None
    """Rent of all steps."""
    run_s: float | None
    """Seconds of all steps; None where their number is not given."""
    steps: int | None
    """Steps of the run."""
    alternatives: tuple[Mapping[str, Any], ...]
    """Placements that were ranked, the best first; empty where one was given."""
    assumptions: tuple[str, ...]
    """Every default or guess."""
    prior: Mapping[str, Any] | None = None
    """Step, phases and interval before measured steps were taken into account; None without any."""
    posterior_factors: Mapping[str, Any] | None = None
    """Group of phases -> what it takes over what is predicted, and its interval."""
    fit: tuple[TuningFit, ...] | None = None
    """What the chips can tune, by way, where that was asked (`--fit`)."""
