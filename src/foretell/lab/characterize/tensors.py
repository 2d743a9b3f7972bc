"""What autograd keeps from a forward pass to its backward pass, counted storage by storage."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class TensorBytes:
    """Bytes held now and at most, by the kind of piece that keeps them."""

    def __init__(self, constants: Sequence[Tensor]) -> None:
        """`constants` are there anyway: weights, inputs, tables of positions."""
        self.constants = constants
        self.now: dict[str, int] = {"table": 0, "block": 0, "head": 0}
        self.peak = dict(self.now)

    @contextmanager
    def saving(self, kind: str) -> Iterator[Callable[[Tensor], int]]:
        """Count what a piece saves; what is yielded gives the bytes, its input included."""
        found: dict[int, int] = {}
        # Read anew each time: gathered weights do not lie where they lay before.
        known = {t.untyped_storage().data_ptr() for t in self.constants}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        def counted(entry: Tensor) -> int:
            storage = entry.untyped_storage()
            if entry.requires_grad and storage.data_ptr() not in known:
                found[storage.data_ptr()] = storage.nbytes()
            size = sum(found.values())
            self.now[kind] += size
            self.peak[kind] = max(self.peak[kind], self.now[kind])
            return size

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield counted

    def freed(self, kind: str, size: int) -> None:
        """A backward pass is through."""
        self.now[kind] -= size
