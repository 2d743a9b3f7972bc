"""The job of a training question: batch, lengths as frameworks run them, and what the model takes beside
tokens.
"""

import math
from dataclasses import replace

from foretell import units
from foretell.errors import Problem, bad_input, nearest_name, wrong
from foretell.specs.model import Model
from foretell.specs.plan import Plan
from foretell.specs.questions.common import Settings as Settings
from foretell.specs.questions.training import StepQuestion
from foretell.specs.scenario import Job, Scenario
from foretell.specs.system import System
from foretell.workload.towers import read_loads

DEFAULT_STEP_TOKENS = 4 * 2**20
"""Tokens of a step where no global batch is given."""


DEFAULT_SEQ_LEN = 4096
"""Longest sequence taken where none is given."""


LARGEST = 10**9
"""Chips, batches and lengths above this are a typing error."""


def whole_problems(name: str, value: object) -> list[Problem]:
    """A whole number from 1, or None."""
    if value is None:
        return []
    message = "not a whole number"
    if isinstance(value, int) and not isinstance(value, bool):
        if 1 <= value <= LARGEST:
            return []
        message = "out of range"
    allowed = f"a whole number from 1 to {LARGEST:,}".replace(",", " ")
    return [wrong(name, value, message, allowed, units.plain_number(value))]


def job_of(
    model: Model, system: System, gpus: int | None, given: dict[str, int | None]
) -> tuple[Job, list[str]]:
    """The job, and a sentence for each number that was not given."""
    said: list[str] = []
    if gpus is None:
        gpus = max(round(float(system.chips_per_node)), 1)
        said.append(f"{gpus} chips, one node: no number was given")
    seq_len = given["seq_len"]
    if seq_len is None:
        seq_len = min(_frames(model) or model.max_positions, DEFAULT_SEQ_LEN)
        why = f"the model's own up to {DEFAULT_SEQ_LEN}"
        if reads_patches(model):
            seq_len, why = model.max_positions, "the patches that the model is made for"
        said.append(f"sequence length {seq_len}: {why}")
    target_len = given["target_len"]
    if model.kind == "encoder-decoder" and target_len is None:
        target_len = min(seq_len, model.max_positions) if _frames(model) else seq_len
        why = "as the source" if target_len == seq_len else "the model's own"
        said.append(f"target length {target_len}: {why}")
    if model.kind != "encoder-decoder":
        target_len = None
    batch = given["global_batch"]
    if batch is None:
        batch = default_batch(gpus, seq_len + (target_len or 0))
        tokens = batch * (seq_len + (target_len or 0))
        said.append(
            f"global batch {batch} sequences, {tokens / 1e6:.3g} million tokens: as near to "
            f"{DEFAULT_STEP_TOKENS / 1e6:.2g} million as the number of chips allows"
        )
    return Job(gpus=gpus, global_batch=batch, seq_len=seq_len, target_len=target_len), said


TOWERS = ("trained", "frozen")
"""What may become of encoders of images and audio."""


def with_inputs(model: Model, job: Job, question: StepQuestion, said: list[str]) -> Model:
    """The model with the images and the audio that each sequence has."""
    chosen = question.towers
    if chosen is not None and chosen not in TOWERS:
        near = nearest_name(chosen, TOWERS)
        raise bad_input("towers", chosen, "not a choice", ", ".join(TOWERS), near)
    named = read_loads(model, question.images, question.audio)
    if chosen is not None and not named:
        message = "sequences have neither images nor audio"
        raise bad_input("towers", chosen, message, "with --images or --audio")
    tokens = sum(load.tokens for _, load in named)
    if tokens > job.seq_len:
        names = " and ".join(name for name, _ in named)
        message = f"{names} are {tokens:.0f} tokens, more than a sequence has"
        raise bad_input("seq_len", job.seq_len, message, f"at least {tokens:.0f}")
    for name, load in named:
        how = "frozen" if chosen == "frozen" else "trained with the rest"
        said.append(
            f"{name}: {load.tokens:.0f} of the {job.seq_len} tokens of a sequence, by the "
            f"{load.tower.name} tower ({load.tower.parameters:,} weights), {how}"
        )
    reads = tuple(replace(load, frozen=chosen == "frozen") for _, load in named)
    return replace(model, reads=reads) if reads else model


def length_problems(model: Model, job: Job, said: list[str]) -> list[Problem]:
    """A sequence beyond a learned table of positions is an error, beyond another limit a remark."""
    if model.kind == "encoder-decoder":
        return _beyond_frames(model, job)
    length = job.seq_len
    if length <= model.max_positions:
        return []
    if model.embedding.positions and length > model.embedding.positions:
        message = f"{model.id} has a learned table of {model.embedding.positions} positions"
        return [wrong("seq_len", length, message, f"at most {model.max_positions}")]
    said.append(f"sequence length {length} is beyond the model's own {model.max_positions}")
    return []


def reads_patches(model: Model) -> bool:
    """Whether the length is part of a model's definition: an encoder without a vocabulary reads patches."""
    return model.kind == "encoder" and not model.embedding.vocab


def _frames(model: Model) -> int:
    """Positions of an encoder that reads frames, not tokens (Whisper's 1,500); 0 for all others."""
    read = model.encoder_embedding
    return 0 if read is None or read.vocab else read.positions


def _beyond_frames(model: Model, job: Job) -> list[Problem]:
    """Sequences beyond the stored positions of an encoder of frames, or of its decoder."""
    if not _frames(model):
        return []
    limits = (("seq_len", job.seq_len, _frames(model)),
              ("target_len", job.target_len or 0, model.embedding.positions))  # fmt: skip
    return [
        wrong(
            path,
            length,
            f"{model.id} has a stored table of {limit} positions here",
            f"at most {limit}",
        )
        for path, length, limit in limits
        if limit and length > limit
    ]


def default_batch(gpus: int, tokens_per_sequence: int) -> int:
    """About DEFAULT_STEP_TOKENS, as a power of two times the odd part of the chips (so that dp divides)."""
    odd = gpus // (gpus & -gpus)
    wanted = DEFAULT_STEP_TOKENS / tokens_per_sequence / odd
    return int(odd * 2 ** max(round(math.log2(max(wanted, 1.0))), 0))


def fill_sequences(scenario: Scenario, plan: Plan) -> Scenario:
    """The scenario with sequences of a length that the plan's ranks divide, stated where it is longer.

    Sequence parallelism cuts a sequence over tp x cp ranks, context parallelism over 2 cp parts. A learned
    table of positions is not exceeded, nor a grid's rule or an encoder-decoder's changed.
    """
    parts = plan.tp * plan.cp if plan.sp and plan.tp > 1 else 1
    parts = math.lcm(parts, 2 * plan.cp if plan.cp > 1 else 1)
    job, positions = scenario.job, scenario.model.embedding.positions
    length = -(-job.seq_len // parts) * parts
    beyond = positions and length > positions
    if length == job.seq_len or beyond or plan.tp_mode != "1d" or job.target_len is not None:
        return scenario
    said = f"sequences of {job.seq_len} tokens are filled up to {length}: {parts} ranks cut them"
    filled = replace(job, seq_len=length)
    return replace(scenario, job=filled, assumptions=(*scenario.assumptions, said))
