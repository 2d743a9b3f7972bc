"""Training by several processes: each takes a share of every batch, and gradients are added up.

`torchrun --nproc-per-node N -m foretell translate train ...` starts them. The loss of a step is the sum over
all tokens of the batch divided by their number, as with one process, so that the split changes no more than
the order of additions. The first rank writes.
"""

import os
from typing import Any

from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRanks:
    """The processes of a run."""

    rank: int = 0
    """Which this is."""
    world: int = 1
    """How many there are."""
    local: int = 0
    """Which it is on its machine."""

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    def share(self, rows: Any) -> Any:
        """Every so-many-th row of a batch, from this process's place."""
        return rows if self.world == 1 else rows[self.rank :: self.world]

    def add(self, tensor: Any) -> Any:
        """A tensor added up over all processes, in place."""
        if self.world > 1:
            import torch.distributed as dist

            dist.all_reduce(tensor)
        return tensor

    def add_gradients(self, module: Any) -> None:
        """Gradients of all processes added up, in one message; one without any counts as zero."""
        if self.world == 1:
            return
        import torch

        weights = [weight for weight in module.parameters() if weight.requires_grad]
        parts = [
            (torch.zeros_like(weight) if weight.grad is None else weight.grad).reshape(-1)
            for weight in weights
        ]
        whole = self.add(torch.cat(parts))
        at = 0
        for weight in weights:
            size = weight.numel()
            weight.grad = whole[at : at + size].reshape(weight.shape)
            at += size

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            import torch.distributed as dist

            dist.barrier()


def train_ranks(device: str) -> TrainRanks:
    """The processes that torchrun started, joined; one where none were."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return TrainRanks()
    import torch
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda":
        torch.cuda.set_device(local)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    return TrainRanks(rank=dist.get_rank(), world=world, local=local)
