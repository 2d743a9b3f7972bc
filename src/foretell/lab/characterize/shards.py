"""Weights, gradients and states of a stage in flat buffers, shared by data-parallel ranks as ZeRO has it.

    stage  weights  gradients  states   messages of a step (mu micro-batches)
    0      whole    whole      whole    all-reduce of the gradients
    1      whole    whole      part     reduce-scatter of the gradients, all-gather of the weights
    2      whole    part       part     the same, gradients mu times
    3      part     part       part     all-gather of the weights 2 mu times, reduce-scatter mu times

A `FlatWeights` holds the weights of some neighbouring layers (stage 3: of one), what one message carries.
Buffers are filled up to a multiple of the ranks.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from foretell.lab.characterize.recorder import RankGroups, RecordedMessage
from foretell.specs.plan import Plan

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def computing(plan: Plan) -> torch.dtype:
    """In what products run, and what is kept and sent of them; weights may be wider."""
    return DTYPES.get(plan.precision, torch.float32)


class FlatWeights:
    """Weights of some pieces as one buffer, with their gradients' sum and the master copy."""

    def __init__(self, pieces: Mapping[int, nn.Module], groups: RankGroups, device: str) -> None:
        """`pieces` by their place in the whole model, which their weights are drawn by."""
        plan = groups.plan
        self.plan, self.groups, self.ranks = plan, groups, plan.dp
        self.form = DTYPES[plan.weights]
        self.sum_form = DTYPES[plan.gradients]
        self.zero = plan.zero if plan.dp > 1 else 0
        self.direct = plan.dp == 1 and self.form == self.sum_form
        self.count = sum(p.numel() for piece in pieces.values() for p in piece.parameters())
        self.width = -(-self.count // self.ranks)
        self.whole = torch.empty(self.width * self.ranks, dtype=self.form, device=device)
        self.whole[self.count :].zero_()
        self.parameters: list[nn.Parameter] = []
        self.spots: list[tuple[int, int, torch.Size]] = []
        self.common: list[int] = []
        for place, piece in pieces.items():
            self._take(piece, place, device)
        self._states(device)

    def _take(self, piece: nn.Module, place: int, device: str) -> None:
        """Weights of one piece into the buffer: the same whatever the plan, but for what it cuts."""
        own_seed = place + 1_000_000 * (1 + self.groups.at["tp"])
        alike, own = (torch.Generator(device).manual_seed(n) for n in (place, own_seed))
        for module in piece.modules():
            for name, weight in module._parameters.items():
                if weight is None:
                    continue
                at = sum(size for _, size, _ in self.spots)
                cut, shape, size = is_cut(module, name), weight.shape, weight.numel()
                view = self.whole[at : at + size].view(shape).data
                # In 32 bits: a generator's draws in another dtype are others.
                drawn = torch.empty(shape, dtype=torch.float32, device=device)
                view.copy_(drawn.normal_(0.0, 0.02, generator=own if cut else alike))
                if view.dim() == 1:  # norms and biases: never zeros, which run faster than others
                    view.add_(1.0)
                self.common += [] if cut else [len(self.parameters)]
                module._parameters[name] = nn.Parameter(view)
                self.parameters.append(module._parameters[name])
                self.spots.append((at, size, shape))

    def _states(self, device: str) -> None:
        """What the optimizer updates: own part, or all; and where gradients are added up."""
        # One view, not one a step: the optimizer knows what it updates by the tensor.
        self.own = own = self._own(self.whole)
        self.shard = own.clone() if self.zero == 3 else None
        self.total: Tensor | None = None
        if not self.direct:
            many = self.width if self.zero >= 2 else self.width * self.ranks
            self.total = torch.zeros(many, dtype=self.sum_form, device=device)
        self.fresh = True
        self.sent: list[tuple[RecordedMessage, Tensor | None, Tensor | None]] = []
        self.arriving: RecordedMessage | None = None
        self.master: list[Tensor] = []
        if self.plan.master != "none":
            wide = DTYPES[self.plan.master]
            sources = self.parameters if self.direct else [own]
            self.master = [source.detach().to(wide, copy=True) for source in sources]
        if self.zero == 3:
            self.release()

    def _own(self, flat: Tensor) -> Tensor:
        """This rank's part where states are shared, else all."""
        if not self.zero:
            return flat
        rank = self.groups.at["dp"]
        return flat[rank * self.width : (rank + 1) * self.width]

    # ---- weights ---------------------------------------------------------------------------------

    def gather(self, what: str) -> None:
        """Stage 3: begin to gather the weights, unless they are there or on their way."""
        if self.zero < 3 or self.arriving is not None or self.here:
            return
        self.whole.untyped_storage().resize_(self.whole.numel() * self.whole.element_size())
        self.arriving = self.groups.all_gather("dp", what, self.shard, self.whole)

    def need(self, what: str) -> None:
        """Wait until the weights are there."""
        self.gather(what)
        if self.arriving is not None:
            self.groups.wait(self.arriving)
            self.arriving = None

    @property
    def here(self) -> bool:
        """Whether the whole weights are in memory."""
        return bool(self.whole.untyped_storage().nbytes() > 0)

    def release(self) -> None:
        """Stage 3: give the whole weights back."""
        if self.zero == 3:
            self.whole.untyped_storage().resize_(0)

    # ---- gradients -------------------------------------------------------------------------------

    def collect(self, last: bool, at_once: bool) -> None:
        """Take over the gradients of one micro-batch; send them where the stage says so."""
        if self.groups.plan.sp and self.groups.plan.tp > 1:
            self._sum_common(last)
        if self.direct:
            return
        assert self.total is not None
        if self.zero >= 2:
            buffer = self.total.new_empty(self.width * self.ranks)
            buffer[self.count :].zero_()
            self._put(buffer, add=False)
            part = self.total.new_empty(self.width)
            sent = self.groups.reduce_scatter("dp", "gradients", buffer, part)
            self.sent.append((sent, part, buffer))
        else:
            self._put(self.total, add=not self.fresh)
            self.fresh = False
            if last and self.zero == 1:
                part = self.total.new_empty(self.width)
                sent = self.groups.reduce_scatter("dp", "gradients", self.total, part)
                self.sent.append((sent, part, None))
            elif last and self.ranks > 1:
                sent = self.groups.all_reduce("dp", "gradients", self.total)
                self.sent.append((sent, None, None))
        if at_once:
            self.settle()

    def _put(self, buffer: Tensor, *, add: bool) -> None:
        """Gradients of the parameters into a buffer."""
        views = [buffer[at : at + size].view(shape) for at, size, shape in self.spots]
        slopes = [p.grad for p in self.parameters]
        if add:
            torch._foreach_add_(views, slopes)
        else:
            torch._foreach_copy_(views, slopes)
        for parameter in self.parameters:
            parameter.grad = None

    def _sum_common(self, last: bool) -> None:
        """With cut tokens, what every rank holds whole (norms, biases of sums, positions) has a part of its
        gradient on each."""
        if self.direct and not last:  # what autograd adds up itself is summed once
            return
        slopes = [self.parameters[i].grad for i in self.common]
        joined = torch.cat([s.flatten() for s in slopes])
        self.groups.wait(self.groups.all_reduce("tp", "norms", joined))
        at = 0
        for slope in slopes:
            slope.copy_(joined[at : at + slope.numel()].view_as(slope))
            at += slope.numel()

    def settle(self) -> None:
        """Wait for what was sent."""
        for message, part, _ in self.sent:
            self.groups.wait(message)
            if part is None:
                continue
            assert self.total is not None
            if self.zero == 1:
                self._own(self.total).copy_(part)
            elif self.fresh:
                self.total.copy_(part)
                self.fresh = False
            else:
                self.total.add_(part)
        self.sent = []

    # ---- update ----------------------------------------------------------------------------------

    def updated(self) -> list[Tensor]:
        """What the optimizer updates."""
        if self.master:
            return self.master
        if self.direct:
            return list(self.parameters)
        return [self.shard if self.shard is not None else self.own]

    def hand_over(self) -> None:
        """Give the summed gradients to what the optimizer updates."""
        if self.direct:
            for target, parameter in zip(self.master, self.parameters, strict=False):
                target.grad = parameter.grad.to(target.dtype)
            return
        assert self.total is not None
        slope = self.total if self.zero >= 2 else self._own(self.total)
        for target in self.updated():
            target.grad = slope.to(target.dtype)

    def take_back(self) -> None:
        """Working weights from the updated ones; gathered again where ranks share the states."""
        for target in self.updated():
            target.grad = None
        for parameter in self.parameters:
            parameter.grad = None
        if self.master:
            if self.direct:
                torch._foreach_copy_([p.data for p in self.parameters], self.master)
            else:
                into = self.shard if self.shard is not None else self.own
                into.copy_(self.master[0])
        self.fresh = True
        if self.zero in (1, 2):
            # The part lies in the whole: gathered from a copy, as not every library takes it in place.
            part = self.own.clone()
            self.arriving = self.groups.all_gather("dp", "weights", part, self.whole)

    # ---- what is held ----------------------------------------------------------------------------

    def held(self) -> dict[str, float]:
        """Bytes of weights and gradients, as they lie between two steps; states are the optimizer's."""
        weights = self.shard if self.shard is not None else self.whole
        slopes = self.total.nbytes if self.total is not None else self.whole.nbytes
        master = sum(m.nbytes for m in self.master)
        return {"weights": weights.nbytes, "gradients": slopes, "states": master}


def is_cut(module: nn.Module, name: str) -> bool:
    """Whether tensor parallelism cuts a weight: matrices and table, and biases of what is cut by outputs."""
    from foretell.lab.characterize.modules import (
        ColumnParallelLinear,
        RowParallelLinear,
        TokenTable,
    )

    if isinstance(module, ColumnParallelLinear):
        return True
    return isinstance(module, RowParallelLinear | TokenTable) and name == "weight"


class Update:
    """AdamW over the flats: in one call, or flat by flat where gradients must be widened first."""

    def __init__(self, flats: Sequence[FlatWeights], plan: Plan) -> None:
        self.flats = flats
        narrow = plan.master != "none" and plan.gradients != plan.master
        batches = [[flat] for flat in flats] if narrow else [list(flats)]
        self.batches = [
            (some, torch.optim.AdamW([t for f in some for t in f.updated()], lr=1e-4, fused=True))
            for some in batches
        ]

    def run(self) -> None:
        """One update of everything."""
        for some, optimizer in self.batches:
            for flat in some:
                flat.hand_over()
            optimizer.step()
            for flat in some:
                flat.take_back()

    def state_bytes(self) -> float:
        """Adam's moments."""
        tensors = [
            t
            for _, optimizer in self.batches
            for state in optimizer.state.values()
            for name, t in state.items()
            if name != "step"
        ]
        return float(sum(t.nbytes for t in tensors))
