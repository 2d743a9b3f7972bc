"""What every rank of a pipeline does in one step, before anything is simulated.

A rank stands for all ranks of its stage: tensor, context and data groups run in step, so one of them is
simulated. A pass is what one micro-batch does on one chunk; a message is a data-parallel collective that runs
beside passes and is due at, or ready from, some fraction of one.
"""

from collections.abc import Sequence
from dataclasses import replace

from foretell.records import dataclass

EXCHANGES = ("tensor_parallel", "context_parallel", "expert_parallel")
"""Exchanges inside a pass, in the order of `Pass.exchange_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of one micro-batch over one chunk, alone on its chip and links."""

    chip_s: float
    """Kernels."""
    wait_s: float = 0.0
    """Waiting for the host where that begins to launch when the pass begins."""
    launch_s: float = 0.0
    """The host's time to launch it all."""
    exchange_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Exchanges that the pass waits for, by kind."""
    moved_s: float = 0.0
    """Copies of weights out of their messages and of gradients into theirs."""
    hidden_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Exchanges that run behind its kernels, by kind."""
    slack_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """What these could take longer and still be hidden."""

    @property
    def alone_s(self) -> float:
        """With nothing beside it, and a host that is not ahead."""
        return self.chip_s + self.wait_s + sum(self.exchange_s) + self.moved_s

    def __add__(self, other: "Pass") -> "Pass":
        """One after the other."""
        return Pass(
            chip_s=self.chip_s + other.chip_s,
            wait_s=self.wait_s + other.wait_s,
            launch_s=self.launch_s + other.launch_s,
            exchange_s=_sums(self.exchange_s, other.exchange_s),
            moved_s=self.moved_s + other.moved_s,
            hidden_s=_sums(self.hidden_s, other.hidden_s),
            slack_s=_sums(self.slack_s, other.slack_s),
        )

    def times(self, share: float) -> "Pass":
        """A share of it, in equal proportions."""
        return Pass(
            chip_s=self.chip_s * share,
            wait_s=self.wait_s * share,
            launch_s=self.launch_s * share,
            exchange_s=_shares(self.exchange_s, share),
            moved_s=self.moved_s * share,
            hidden_s=_shares(self.hidden_s, share),
            slack_s=_shares(self.slack_s, share),
        )


Kinds = tuple[float, float, float]


def _sums(one: Kinds, other: Kinds) -> Kinds:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _shares(one: Kinds, share: float) -> Kinds:
    return one[0] * share, one[1] * share, one[2] * share


NOTHING = Pass(chip_s=0.0)
"""No work at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCollective:
    """One data-parallel collective."""

    name: str
    """What it carries."""
    seconds: float
    """Alone on its links."""
    at: float
    """Fraction of the pass before which weights must be there, or after which gradients are ready."""
    group: int = 0
    """Whose links it takes: a row of `Program.group_use`."""
    blocks: bool = False
    """Whether the pass stands still until it is through, as in frameworks that do not overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What is on one chunk of one rank."""

    forward: Pass
    """Forward pass."""
    input: Pass
    """Backward pass to the inputs; both parts of the backward pass where the schedule does not split it."""
    weight: Pass = NOTHING
    """Backward pass to the weights."""
    gathers_first: tuple[DataCollective, ...] = ()
    """Weights that the first forward pass waits for: those of the update before (ZeRO 1 and 2)."""
    gathers_forward: tuple[DataCollective, ...] = ()
    """Weights that every forward pass waits for (ZeRO 3)."""
    gathers_backward: tuple[DataCollective, ...] = ()
    """Weights that every backward pass waits for (ZeRO 3)."""
    reduces_each: tuple[DataCollective, ...] = ()
    """Gradients sent with every micro-batch."""
    reduces_last: tuple[DataCollective, ...] = ()
    """Gradients sent with the last micro-batch."""
    copies_forward_s: float = 0.0
    """Copies to and from the host beside a forward pass."""
    copies_backward_s: float = 0.0
    """The same beside a backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A step of one pipeline."""

    ranks: tuple[tuple[Chunk, ...], ...]
    """Chunks of every rank; DualPipe's are its two copies."""
    micro_batches: int
    """Micro-batches of the step."""
    send_s: float = 0.0
    """One activation or gradient to another rank."""
    sends_block: bool = True
    """Whether a rank stands still while it sends."""
    runs_ahead_s: float = 0.0
    """How far the host may launch ahead of the chip; 0: it never does."""
    hidden_share: float = 0.0
    """What a forward beside a backward pass hides of the experts' exchanges of both behind products."""
    update_s: tuple[float, ...] = ()
    """Optimizer's update of every rank; none: no update."""
    update_copies_s: tuple[float, ...] = ()
    """Copies to and from the host beside the update, likewise."""
    fixed_s: float = 0.0
    """What a step takes beside its work."""
    exchange_use: tuple[tuple[float, ...], ...] = ()
    """Exchange -> share of its time that each tier's links are in use; none: no links."""
    group_use: tuple[tuple[float, ...], ...] = ()
    """The same for each kind of data-parallel group."""
    apart_share: float = 0.0
    """Of the time in which a pass and a collective could run side by side, what each stands still for the
    other."""
    held_cores: tuple[float, ...] = ()
    """Group -> share of the chip's cores that a collective of it holds beside a pass; none: no cores."""
    send_use: tuple[float, ...] = ()
    """The same for sends between ranks."""


def cut_gradients(
    name: str, seconds: float, ends: Sequence[float], pieces: float, group: int = 0
) -> tuple[DataCollective, ...]:
    """`seconds` of gradients in equal pieces, each ready at the end of a layer; `ends` are fractions."""
    if seconds <= 0.0:
        return ()
    many = max(1, min(round(pieces), len(ends)))
    last = [ends[max(round((i + 1) * len(ends) / many), 1) - 1] for i in range(many)]
    return tuple(
        DataCollective(name=f"{name} {i}", seconds=seconds / many, at=float(end), group=group)
        for i, end in enumerate(last)
    )


def weight_pieces(messages: Sequence[DataCollective]) -> tuple[DataCollective, ...]:
    """The same pieces as weights: each is due where the one before it ends, the first at the beginning."""
    due = [0.0, *(m.at for m in messages)]
    return tuple(replace(m, at=at) for m, at in zip(messages, due, strict=False))


def held_back(
    messages: Sequence[DataCollective], share: float, at: float
) -> tuple[DataCollective, ...]:
    """Pieces of which a share is sent at one moment while the rank stands still, the rest as they are."""
    total = sum(m.seconds for m in messages)
    if share <= 0.0 or total <= 0.0:
        return tuple(messages)
    name = f"{messages[0].name.rsplit(' ', 1)[0]} waited for"
    whole = DataCollective(
        name=name, seconds=share * total, at=at, group=messages[0].group, blocks=True
    )
    rest = [replace(m, seconds=(1.0 - share) * m.seconds) for m in messages if share < 1.0]
    return (*rest, whole) if at > 0.0 else (whole, *rest)
