"""The processes of one plan: who is where, and what they send each other, counted as it is sent."""

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.distributed as dist

from foretell.lab.characterize.recorder import RecordedMessage, Recorder
from foretell.specs.plan import Plan

NAMES = {"tp": "tensor", "dp": "data", "pp": "pipeline"}
"""Degrees of a plan, and the parallelism that each is."""


def collective_function(new: str, old: str) -> Any:
    """A collective under its name of today, or under that of earlier versions."""
    return getattr(dist, new, None) or getattr(dist, old)


all_gather = collective_function("all_gather_single", "all_gather_into_tensor")
reduce_scatter = collective_function("reduce_scatter_single", "reduce_scatter_tensor")


class RankGroups:
    """This rank's place in every group of a plan, and its messages."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan, self.recorder = plan, recorder
        self.sizes = {"tp": plan.tp, "dp": plan.dp, "pp": plan.pp}
        order = [axis for axis in plan.order if axis in self.sizes]
        rank = dist.get_rank() if plan.gpus > 1 else 0
        self.at: dict[str, int] = {}
        self.strides: dict[str, int] = {}
        stride = 1
        for axis in order:
            self.strides[axis] = stride
            self.at[axis] = rank // stride % self.sizes[axis]
            stride *= self.sizes[axis]
        self.handles = {axis: self._made(axis) for axis in order}

    def _made(self, axis: str) -> Any:
        """The group of an axis that this rank is in; all ranks make all groups in one order."""
        if self.sizes[axis] < 2:
            return None
        mine = None
        others = [a for a in self.strides if a != axis]
        for place in product(*(range(self.sizes[a]) for a in others)):
            base = sum(i * self.strides[a] for i, a in zip(place, others, strict=True))
            ranks = [base + i * self.strides[axis] for i in range(self.sizes[axis])]
            made = dist.new_group(ranks)
            if all(self.at[a] == i for i, a in zip(place, others, strict=True)):
                mine = made
        return mine

    def close(self) -> None:
        """Give the groups back."""
        for handle in self.handles.values():
            if handle is not None:
                dist.destroy_process_group(handle)

    def _message(self, axis: str, what: str, kind: str, size: int) -> RecordedMessage:
        return RecordedMessage(
            axis=NAMES[axis], what=what, kind=kind, group=self.sizes[axis], bytes=size
        )

    def all_reduce(
        self, axis: str, what: str, x: torch.Tensor, largest: bool = False
    ) -> RecordedMessage:
        """Add up over an axis in place, or take the largest."""
        op = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        group = self.handles[axis]
        message = self._message(axis, what, "all-reduce", x.nbytes)
        message.holds = x
        return self.recorder.start(message, lambda: _quiet(dist.all_reduce, x, op, group=group))

    def reduce_scatter(
        self, axis: str, what: str, whole: torch.Tensor, part: torch.Tensor
    ) -> RecordedMessage:
        """Add up over an axis; every rank keeps its part."""
        group = self.handles[axis]
        message = self._message(axis, what, "reduce-scatter", whole.nbytes)
        message.holds = (whole, part)
        op = dist.ReduceOp.SUM
        return self.recorder.start(
            message, lambda: _quiet(reduce_scatter, part, whole, op, group=group)
        )

    def all_gather(
        self, axis: str, what: str, part: torch.Tensor, whole: torch.Tensor
    ) -> RecordedMessage:
        """Every rank's part to all."""
        group = self.handles[axis]
        message = self._message(axis, what, "all-gather", whole.nbytes)
        message.holds = (whole, part)
        return self.recorder.start(message, lambda: _quiet(all_gather, whole, part, group=group))

    def wait(self, message: RecordedMessage) -> None:
        """Wait for a message."""
        self.recorder.wait(message)

    def neighbour(self, step: int) -> int:
        """Rank of the stage before (-1) or behind (1)."""
        rank = dist.get_rank() if self.plan.gpus > 1 else 0
        return rank + step * self.strides["pp"]


def _quiet(call: Callable[..., Any], *arguments: Any, group: Any) -> None:
    """A collective without its remarks on names that are going out of use."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        call(*arguments, group=group)
