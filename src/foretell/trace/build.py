"""A user's module without its weights: factories are run, inputs made, and everything put on fake tensors.

A module is built with its large tensors on the meta device and its small ones for real (rates of dropped
layers, frequencies, tables of positions), which most constructors need. Where that fails all is meta, and
then all is real. Its parameters and buffers are then replaced by fake ones of the CPU, ties kept.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.records import dataclass
from foretell.trace.target import DeviceMode
from foretell.trace.values import Values, worth_keeping

SMALL = 1 << 14
"""Numbers of a tensor up to which a constructor gets it for real."""
FACTORIES = frozenset("empty zeros ones full rand randn randint normal empty_strided eye".split())
"""Functions that make a tensor of a size."""
DTYPES = {
    "float32": torch.float32, "fp32": torch.float32, "f32": torch.float32, "float": torch.float32,
    "bfloat16": torch.bfloat16, "bf16": torch.bfloat16, "float16": torch.float16,
    "fp16": torch.float16, "half": torch.float16, "float64": torch.float64, "fp64": torch.float64,
    "int64": torch.int64, "long": torch.int64, "int32": torch.int32, "int": torch.int32,
    "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
    "complex64": torch.complex64,
}  # fmt: skip
"""Formats of `--inputs`."""
_INPUT = re.compile(r"\s*(?:(\w+)\s*[:=]\s*)?(\w+)\s*\[([0-9,\s]*)\]\s*[;,]?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a factory gave."""

    module: torch.nn.Module
    """The module."""
    inputs: Any = None
    """A tuple or a mapping of its inputs; none where they are given apart."""
    loss: Any = None
    """A function (module, inputs) -> scalar; none where the output says it."""


class _Small(DeviceMode):
    """Small tensors of a constructor for real, large ones on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in FACTORIES and _many(args, kwargs) > SMALL:
            kwargs = {**kwargs, "device": "meta"}
            return func(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)


def _many(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    sizes = kwargs.get("size", args)
    whole = 1
    for one in sizes:
        parts = one if isinstance(one, (tuple, list)) else (one,)
        for part in parts:
            if isinstance(part, int) and not isinstance(part, bool):
                whole *= part
    return whole


def load_factory(text: str) -> Callable[[], Any]:
    """The function of `FILE:NAME` or `package.module:NAME`."""
    place, _, name = text.rpartition(":")
    if not place:
        raise BadInput(
            [_problem(text, "names no function", "FILE.py:FUNCTION, as in model.py:build")]
        )
    file = Path(place)
    if file.suffix == ".py" and not file.is_file():
        raise BadInput([_problem(text, f"no file {file}")])
    try:
        loaded = _imported(file, place)
    except Exception as error:
        message = f"{place} fails when it is imported: {type(error).__name__}: {error}"
        raise BadInput([_problem(text, message[:600])]) from error
    found = getattr(loaded, name, None)
    if not callable(found):
        names = ", ".join(n for n in vars(loaded) if callable(getattr(loaded, n)) and n[0] != "_")
        raise BadInput([_problem(text, f"{place} has no function {name}", names[:400])])
    return found  # type: ignore[no-any-return]


def _imported(file: Path, place: str) -> Any:
    """The module of a file, or of a package by its dotted name."""
    if file.suffix == ".py":
        sys.path.insert(0, str(file.resolve().parent))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = loaded
        spec.loader.exec_module(loaded)
        return loaded
    return importlib.import_module(place)


def _problem(value: object, message: str, allowed: str | None = None) -> Problem:
    return wrong("trace", value, message, allowed)


def built(factory: Callable[[], Any]) -> Built:
    """What a factory gives, with as little memory as it can be built with."""
    errors: list[str] = []
    for modes in ((_Small(),), (DeviceMode("meta"), torch.device("meta")), (DeviceMode(),)):
        try:
            with ExitStack() as stack:
                for mode in modes:
                    stack.enter_context(mode)
                return as_built(factory())
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001 - the next way may do
            errors.append(f"{type(error).__name__}: {error}")
    raise BadInput(
        [_problem(getattr(factory, "__name__", None), f"the factory failed: {errors[-1]}")]
    )


def as_built(found: Any) -> Built:
    """A factory's result: a module, (module, inputs) or (module, inputs, loss)."""
    parts = found if isinstance(found, tuple) else (found,)
    if not parts or not isinstance(parts[0], torch.nn.Module) or len(parts) > 3:
        allowed = "a module, (module, inputs) or (module, inputs, loss)"
        raise BadInput([_problem(type(found).__name__, "the factory gave no module", allowed)])
    module: Any = getattr(parts[0], "_orig_mod", parts[0])
    if any(isinstance(p, torch.nn.parameter.UninitializedParameter) for p in module.parameters()):
        allowed = "one forward pass of it in the factory, or sizes instead of lazy layers"
        raise BadInput([_problem(type(module).__name__, "weights without sizes", allowed)])
    inputs = parts[1] if len(parts) > 1 else None
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    return Built(module=module, inputs=inputs, loss=parts[2] if len(parts) > 2 else None)


def read_inputs(texts: str | Sequence[str]) -> dict[str, torch.Tensor]:
    """Inputs on the meta device from texts such as `ids:int64[4,2048]`; unnamed ones are numbered."""
    found: dict[str, torch.Tensor] = {}
    for text in (texts,) if isinstance(texts, str) else texts:
        place = 0
        while place < len(text.rstrip()):
            match = _INPUT.match(text, place)
            if match is None or match[2] not in DTYPES:
                allowed = "NAME:DTYPE[SIZES], as in ids:int64[4,2048]; DTYPE of " + ", ".join(
                    DTYPES
                )
                raise bad_input("inputs", text, "not understood", allowed)
            sizes = [int(one) for one in match[3].split(",") if one.strip()]
            name = match[1] or str(len(found))
            found[name] = torch.empty(sizes, dtype=DTYPES[match[2]], device="meta")
            place = match.end()
    return found


class Faker:
    """Real and meta tensors as fake ones of the CPU, each once."""

    def __init__(self, mode: FakeTensorMode, values: Values) -> None:
        self.mode = mode
        self.values = values
        self.made: dict[int, torch.Tensor] = {}
        self.held: list[torch.Tensor] = []

    def fake(self, given: torch.Tensor, *, numbers: bool = True) -> torch.Tensor:
        """The fake tensor in a tensor's place."""
        if isinstance(given, FakeTensor):
            return given
        found = self.made.get(id(given))
        if found is None:
            with self.mode, torch.no_grad():
                found = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype)
            if isinstance(given, torch.nn.Parameter):
                found = torch.nn.Parameter(found, requires_grad=given.requires_grad)
            elif given.requires_grad:
                found = found.requires_grad_()
            if numbers and given.device.type == "cpu" and worth_keeping(given):
                self.values.keep(found, given.detach().clone())
            self.made[id(given)] = found
            self.held.append(given)
        return found

    def tree(self, given: Any) -> Any:
        """All tensors of nested tuples, lists and mappings."""
        return tree_map(lambda one: self.fake(one) if isinstance(one, torch.Tensor) else one, given)

    def module(self, module: torch.nn.Module) -> None:
        """Replace parameters, buffers and other tensors of a module."""
        for one in module.modules():
            for name, tensor in one._parameters.items():
                if tensor is not None:
                    one._parameters[name] = self.fake(tensor, numbers=False)  # type: ignore[assignment]
            for name, buffer in one._buffers.items():
                if buffer is not None:
                    one._buffers[name] = self.fake(buffer)
            for name, value in list(vars(one).items()):
                if name[:1] != "_" or name == "_flat_weights":
                    changed = self._attribute(value)
                    if changed is not value:
                        one.__dict__[name] = changed

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if isinstance(value, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in value):
            return type(value)(self._attribute(x) for x in value)
        if isinstance(value, dict) and any(isinstance(x, torch.Tensor) for x in value.values()):
            return {key: self._attribute(x) for key, x in value.items()}
        return value
