"""What a GPU does where a CPU, on which the tracer's tensors are, would do something else.

Fake tensors of a GPU abort a CPU build of PyTorch, so the tracer's are the CPU's, and this module gives the
CPU the GPU's ways for as long as a trace runs: attention is fused and chosen as PyTorch chooses it there,
dropout and RMS norm are one kernel, recurrent layers are cuDNN's, and `autocast("cuda")` casts by the GPU's
lists of operations (aten/src/ATen/autocast_mode.h).
"""

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from foretell.trace.kinds import NAMES

LARGEST_HEAD = 256
"""Channels of a head up to which flash attention has kernels."""


def _cast(one: Any, dtype: torch.dtype) -> Any:
    if isinstance(one, torch.Tensor) and one.is_floating_point() and one.dtype != torch.float64:
        return one.to(dtype)
    return one


def _widest(given: Any) -> torch.dtype:
    found = [one for one in tree_leaves(given) if isinstance(one, torch.Tensor)]
    return torch.float32 if any(one.dtype == torch.float32 for one in found) else _narrow(given)


def _narrow(_: Any) -> torch.dtype:
    return torch.get_autocast_dtype("cpu")


CASTS: tuple[tuple[Sequence[str], Callable[[Any], torch.dtype]], ...] = (
    (NAMES["autocast"]["wide"].split(), lambda _: torch.float32),
    (NAMES["autocast"]["narrow"].split(), _narrow),
    (NAMES["autocast"]["widest"].split(), _widest),
)
"""Operations and the format that autocast gives their arguments."""


def _casting(name: str, format_of: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    """An operation as autocast calls it: its arguments cast, itself out of autocast."""
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = format_of((args, kwargs))
        with torch._C._ExcludeDispatchKeyGuard(key):
            cast = tree_map(lambda one: _cast(one, dtype), (args, kwargs))
            return op(*cast[0], **cast[1])

    return run


def _dropout(given: torch.Tensor, rate: float, training: bool) -> torch.Tensor:
    if training and rate > 0.0:
        return torch.ops.aten.native_dropout(given, rate, training)[0]  # type: ignore[no-any-return]
    return given


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Fused attention as PyTorch chooses it on a GPU: flash in 16 bits without a mask where heads of
    values are as wide as those of queries, else the memory-efficient kernels, which have no groups of heads,
    else plain products and a softmax."""
    aten = torch.ops.aten
    graded = torch.is_grad_enabled() and attn_mask is not None and attn_mask.requires_grad
    half = query.dtype in (torch.float16, torch.bfloat16)
    groups = query.dim() == 4 and enable_gqa and key.shape[1] != query.shape[1]
    if query.dim() != 4 or query.numel() == 0 or graded or (groups and not half):
        if query.dim() == 3 and attn_mask is None:
            wide = [one.unsqueeze(1) for one in (query, key, value)]
            found = _attention(wide[0], wide[1], wide[2], None, dropout_p, is_causal, scale=scale)
            return found.squeeze(1)
        found = aten._scaled_dot_product_attention_math(
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            None,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        return found[0]  # type: ignore[no-any-return]
    even = query.shape[-1] == value.shape[-1] <= LARGEST_HEAD
    if half and attn_mask is None and even:
        wide = query.shape[-1]
        more = -wide % 8
        if more:  # the kernels take multiples of eight channels
            query, key, value = (
                torch.nn.functional.pad(one, (0, more)) for one in (query, key, value)
            )
        found = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale or wide**-0.5
        )[0]
        return found[..., :wide] if more else found  # type: ignore[no-any-return]
    if groups:
        many = query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(many, dim=1) for one in (key, value))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            bias = torch.zeros_like(attn_mask, dtype=query.dtype)
            attn_mask = bias.masked_fill_(attn_mask.logical_not(), float("-inf"))
        more = -attn_mask.shape[-1] % 16
        if more:
            attn_mask = torch.nn.functional.pad(attn_mask, (0, more))[..., : attn_mask.shape[-1]]
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    graded = torch.is_grad_enabled() and query.requires_grad
    return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]
        query, key, value, attn_mask, graded, dropout_p, is_causal, scale=scale
    )[0]


class DeviceMode(TorchFunctionMode):
    """Sends every device of a GPU to the one that the tracer's tensors are on."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.device = torch.device(device)

    def moved(self, one: Any) -> Any:
        """An argument with a GPU's device replaced."""
        if isinstance(one, torch.device) and one.type != "meta":
            return self.device
        if isinstance(one, str) and one.split(":")[0] in ("cuda", "xpu", "hpu", "mps"):
            return str(self.device)
        return one

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of PyTorch with its devices replaced."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0]
        if name in ("to", "__get__"):
            args = tuple(self.moved(one) for one in args)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self.moved(kwargs["device"])}
        return func(*args, **kwargs)


def _on_cpu(made: Callable[..., None]) -> Callable[..., None]:
    """`torch.autocast.__init__`, with a GPU's device replaced by the CPU."""

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        dtype = args[0] if args else kwargs.get("dtype")
        if device_type == "cuda" and dtype is None and not args:
            kwargs["dtype"] = torch.get_autocast_dtype("cuda")
        if device_type == "cuda" and kwargs.get("enabled", True):
            AUTOCAST.append(True)
        made(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    return init


def _identity(model: Any = None, *_: Any, **__: Any) -> Any:
    """`torch.compile` that compiles nothing, as a function or as a decorator."""
    if getattr(model, "__name__", "") not in ("flex_attention", "create_block_mask"):
        COMPILED.append(True)
    return (lambda one: one) if model is None else model


NO_DEVICE = "synchronize empty_cache set_device reset_peak_memory_stats".split()
"""Functions of `torch.cuda` that have nothing to do in a trace."""
AUTOCAST: list[bool] = []
"""Filled where a module asks for autocast on a GPU while it is traced."""
COMPILED: list[bool] = []
"""Filled where a module or a factory asks for torch.compile while it is traced."""


@contextmanager
def gpu_ways(kernels: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """PyTorch on the CPU as it is on a GPU; `kernels` are operations that are one kernel there, by name."""
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = logging.getLogger("torch._subclasses.fake_tensor")  # says all that a form fails by
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        aten = torch.library.Library("aten", "IMPL")
        stack.callback(aten._destroy)
        functions = {"dropout": _dropout, "scaled_dot_product_attention": _attention, **kernels}
        flex = functions.pop("flex_attention", None)
        if flex is not None:
            own = importlib.import_module("torch.nn.attention.flex_attention")
            stack.enter_context(patch.object(own, "flex_attention_hop", flex))
            stack.enter_context(patch.object(own, "_validate_device", lambda *_: None))
            stack.enter_context(patch.object(own, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True))
        for name, made in functions.items():
            aten.impl(name, made, "AutogradCPU")
        for names, format_of in CASTS:
            for name in names:
                aten.impl(name, _casting(name, format_of), "AutocastCPU")
        autocast = torch.amp.autocast_mode.autocast
        stack.enter_context(patch.object(autocast, "__init__", _on_cpu(autocast.__init__)))
        stack.enter_context(patch.object(torch, "compile", _identity))
        if (
            "transformers.utils.import_utils" in sys.modules
        ):  # it takes other ways where it meets them
            utils = sys.modules["transformers.utils.import_utils"]
            if hasattr(utils, "is_fake_tensor"):
                stack.enter_context(patch.object(utils, "is_fake_tensor", lambda _: False))
        for name in NO_DEVICE:
            stack.enter_context(patch.object(torch.cuda, name, lambda *_, **__: None))
        asked = torch.is_autocast_enabled
        on_cpu = patch.object(torch, "is_autocast_enabled", lambda *_: asked("cpu"))
        stack.enter_context(on_cpu)
        # What distributions ask of their numbers is not known here.
        stack.enter_context(patch.object(torch.distributions.Distribution, "_validate_args", False))
        yield
