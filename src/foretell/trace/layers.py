"""Layers that are one kernel on a GPU and many operations elsewhere: RMS norm, recurrent layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from foretell.trace.recorder import StepRecorder

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Products of a step and direction of a recurrent layer, over its width."""
KEPT = {"lstm": 6, "gru": 5, "rnn_tanh": 1, "rnn_relu": 1}
"""Numbers that cuDNN keeps of each step, direction and layer for the backward pass, over its width."""


def kernels_of(recorder: StepRecorder) -> Mapping[str, Callable[..., Any]]:
    """Operations by name as the GPU runs them: what `target.gpu_ways` puts in their places."""
    recurrent = {f"{name}.input": _recurrent(name, recorder) for name in GATES}
    return {"rms_norm": _rms_norm(recorder), **recurrent}


def _rms_norm(recorder: StepRecorder) -> Callable[..., torch.Tensor]:
    class RmsNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor | None, dims: int) -> Any:
            scales = (*given.shape[: given.dim() - dims], *(1,) * dims)
            wide = torch.float32 if given.dtype != torch.float64 else torch.float64
            shapes = [(given.shape, given.dtype), (scales, wide)]
            made, scale = recorder.kernel("aten._fused_rms_norm", "norm", [given, weight], shapes)
            ctx.save_for_backward(given, weight, scale)
            return made

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            given, weight, scale = ctx.saved_tensors
            shapes = [(given.shape, given.dtype)]
            shapes += [(weight.shape, weight.dtype)] if ctx.needs_input_grad[1] else []
            inputs = [gradient, given, weight, scale]
            made = recorder.kernel("aten._fused_rms_norm_backward", "norm", inputs, shapes)
            return made[0], made[1] if len(made) > 1 else None, None

    def run(
        given: torch.Tensor,
        shape: Sequence[int],
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> torch.Tensor:
        del eps
        return RmsNorm.apply(given, weight, len(shape))  # type: ignore[no-any-return, no-untyped-call]

    return run


def _recurrent(name: str, recorder: StepRecorder) -> Callable[..., Any]:
    """`torch.lstm` and its like over whole sequences, as cuDNN runs them."""

    class Recurrent(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Any, state: Any, sizes: Any, *weights: Any) -> Any:
            shape, width = list(given.shape), int(sizes["width"] * sizes["directions"])
            kept = given.shape[0] * given.shape[1] * width * sizes["layers"] * KEPT[name]
            states = [(state.shape, given.dtype)] * (2 if name == "lstm" else 1)
            reserve = ([int(kept * given.element_size())], torch.uint8)
            shapes = [([*shape[:2], width], given.dtype), *states, reserve]
            inputs = [given, state, *weights]
            flops = 2.0 * sum(w.numel() for w in weights if w.dim() > 1) * shape[0] * shape[1]
            made = recorder.kernel(
                "aten._cudnn_rnn", "rnn", inputs, shapes, flops=flops, sizes=dict(sizes)
            )
            ctx.save_for_backward(given, made[0], made[-1], *weights)
            ctx.sizes, ctx.flops = dict(sizes), flops
            ctx.mark_non_differentiable(made[-1])
            return tuple(made[:-1])

        @staticmethod
        def backward(ctx: Any, gradient: Any, *_: Any) -> Any:
            given, _result, _reserve, *weights = ctx.saved_tensors
            shapes = [(one.shape, one.dtype) for one in (given, *weights)]
            made = recorder.kernel(
                "aten._cudnn_rnn_backward",
                "rnn",
                [gradient, *ctx.saved_tensors],
                shapes,
                flops=2.0 * ctx.flops,
                sizes={**ctx.sizes, "backward": 1.0},
            )
            return made[0], None, None, *made[1:]

    def run(
        given: torch.Tensor,
        states: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        del dropout, train, has_biases
        state = states[0] if isinstance(states, (list, tuple)) else states
        rows, steps = given.shape[:2] if batch_first else (given.shape[1], given.shape[0])
        sizes = {
            "steps": float(steps),
            "rows": float(rows),
            "width": float(state.shape[-1]),
            "inputs": float(given.shape[-1]),
            "layers": float(layers),
            "directions": 2.0 if bidirectional else 1.0,
            "gates": float(GATES[name]),
        }
        return Recurrent.apply(given, state, sizes, *weights)  # type: ignore[no-untyped-call]

    return run
