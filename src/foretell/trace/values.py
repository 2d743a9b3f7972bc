"""Real numbers behind fake tensors where shapes or branches of a module depend on them.

Small integers, truth values and short vectors are computed for real beside the fake ones: grids of images,
lengths, positions, rates of dropped layers. What routes tokens (top-k, argmax, sort of numbers that nobody
knows) is drawn at random, so that experts by `torch.where` and `index_add` get the load that is expected.
A scalar that depends on weights or activations is a plain number: 0.5, 1 or False.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from foretell.trace.kinds import NAMES

MOST_WHOLE, MOST_REAL = 1 << 24, 1 << 12
"""Numbers of a tensor up to which integers, and real numbers, are computed."""
ROUTING = frozenset(NAMES["routing"].split())
"""Operations whose indices say where tokens go."""
DATA_SHAPED = frozenset(NAMES["data_shaped"].split())
"""Operations whose results have as many entries as the numbers say."""
UNKNOWN = {torch.bool: False}
"""A scalar that nothing is known of, by its format; 0.5 for other real numbers and 1 for integers."""


def worth_keeping(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers are computed beside it."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.numel() <= MOST_REAL
    return tensor.numel() <= MOST_WHOLE


class Values:
    """Fake tensors with the numbers that are known of them."""

    def __init__(self) -> None:
        self.known: Any = WeakTensorKeyDictionary()
        self.guessed = 0

    def keep(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        """Remember the numbers of a fake tensor."""
        if real.device.type == "cpu" and worth_keeping(real):
            self.known[fake] = real

    def of(self, fake: torch.Tensor) -> torch.Tensor | None:
        """The numbers of a fake tensor; None where they are not known."""
        return self.known.get(fake)

    def numbers(self, fake: torch.Tensor) -> list[int] | None:
        """All numbers of a fake tensor in a row; None where they are not known."""
        real = self._number(fake)
        if real is None:
            return None
        with unset_fake_temporarily():
            return real.flatten().tolist()  # type: ignore[no-any-return]

    def forget(self, fake: torch.Tensor) -> None:
        """Drop the numbers of a tensor that was written with unknown ones, and of all that share them."""
        real = self.known.pop(fake, None)
        if real is None:
            return
        place = real.untyped_storage().data_ptr()
        for other, numbers in list(self.known.items()):
            if numbers.untyped_storage().data_ptr() == place:
                self.known.pop(other, None)

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operation gives on the known numbers; None where one of its inputs is not known, or where
        its results are not worth it."""
        flat, _ = tree_flatten((args, kwargs))
        inputs = [one for one in flat if isinstance(one, torch.Tensor)]
        numbers = [self._number(one) for one in inputs]
        if any(one is None for one in numbers):
            return None
        found = dict(zip(map(id, inputs), numbers, strict=True))

        def real(one: Any) -> Any:
            return found[id(one)] if isinstance(one, torch.Tensor) else one

        given = {k: v for k, v in tree_map(real, kwargs).items() if k != "pin_memory"}
        if "device" in given:
            given["device"] = torch.device("cpu")
        try:
            with unset_fake_temporarily():
                return func(*tree_map(real, args), **given)
        except (RuntimeError, TypeError, NotImplementedError):
            return None

    def _number(self, one: torch.Tensor) -> torch.Tensor | None:
        real = self.known.get(one)
        if real is None and type(one) is torch.Tensor and one.device.type == "cpu":
            return one
        return real

    def routed(self, name: str, args: Any, outputs: Any) -> None:
        """Indices of a top-k, sort or argmax over unknown numbers, drawn at random."""
        source = args[0]
        dims = [one for one in args[1:] if isinstance(one, int) and not isinstance(one, bool)]
        flat = [one for one in tree_flatten(outputs)[0] if isinstance(one, torch.Tensor)]
        index = next((one for one in flat if one.dtype == torch.int64), None)
        if index is None or source.numel() > MOST_WHOLE or not source.dim():
            return
        axis = dims[1] if name == "topk" and len(dims) > 1 else -1
        if name != "topk" and dims:
            axis = dims[0]
        with unset_fake_temporarily():
            drawn = torch.rand(source.shape, generator=self._chance())
            order = drawn.argsort(dim=axis)
            if index.dim() < source.dim():
                order = order.select(axis, 0)
            elif index.shape != source.shape:
                order = order.narrow(axis, 0, index.shape[axis])
            self.keep(index, order.contiguous())

    def _chance(self) -> torch.Generator:
        self.guessed += 1
        return torch.Generator().manual_seed(self.guessed)

    def scalar(self, fake: torch.Tensor) -> bool | int | float:
        """The number that a fake tensor of one element stands for."""
        real = self.known.get(fake)
        if real is not None:
            with unset_fake_temporarily():
                return real.item()  # type: ignore[no-any-return]
        self.guessed += 1
        if fake.is_floating_point():
            return 0.5
        return UNKNOWN.get(fake.dtype, 1)
