"""Layers that are one kernel on a GPU and many operations elsewhere, or none: RMS norm, recurrent layers,
products of groups."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from foretell.trace.kinds import attention_flops, attention_sizes
from foretell.trace.recorder import StepRecorder

FLEX = "flex_attention"
"""PyTorch's attention whose scores and mask are functions, which a compiler makes on a GPU."""
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Products of a step and direction of a recurrent layer, over its width."""
KEPT = {"lstm": 6, "gru": 5, "rnn_tanh": 1, "rnn_relu": 1}
"""Numbers that cuDNN keeps of each step, direction and layer for the backward pass, over its width."""


CELLS = {"lstm": 4, "gru": 5}
"""Numbers that the kernel of a cell keeps for the backward pass, over its width."""


def kernels_of(recorder: StepRecorder) -> Mapping[str, Callable[..., Any]]:
    """Operations by name as the GPU runs them: what `target.gpu_ways` puts in their places."""
    recurrent = {f"{name}.input": _recurrent(name, recorder) for name in GATES}
    ctc = {f"ctc_loss.{form}": _ctc_loss(recorder) for form in ("Tensor", "IntList")}
    own = {"rms_norm": _rms_norm(recorder), "_grouped_mm": _grouped_product(recorder)}
    cells = {f"{name}_cell": _cell(name, recorder) for name in CELLS}
    return {**own, **ctc, **recurrent, **cells, FLEX: _flex(recorder)}


def _flex(recorder: StepRecorder) -> Callable[..., Any]:
    """`flex_attention` as its compiler makes it: one kernel over the blocks of pairs that its mask leaves."""

    class Flex(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, query: Any, key: Any, value: Any, pairs: float) -> Any:
            sizes = attention_sizes(query.shape, key.shape, value.shape, causal=False, masked=False)
            sizes |= {"pairs": pairs, "efficient": 0.0, "backward": 0.0}
            made = recorder.kernel(
                f"aten.{FLEX}",
                "attention",
                [query, key, value],
                [
                    ((*query.shape[:-1], value.shape[-1]), query.dtype),
                    (query.shape[:-1], torch.float32),
                ],
                flops=attention_flops(sizes, backward=False),
                sizes=sizes,
            )
            ctx.save_for_backward(query, key, value, *made)
            ctx.sizes = sizes
            ctx.mark_non_differentiable(made[1])
            return tuple(made)

        @staticmethod
        def backward(ctx: Any, gradient: Any, *_: Any) -> Any:
            saved = ctx.saved_tensors
            made = recorder.kernel(
                f"aten.{FLEX}_backward",
                "attention",
                [gradient, *saved],
                [(one.shape, one.dtype) for one in saved[:3]],
                flops=attention_flops(ctx.sizes, backward=True),
                sizes={**ctx.sizes, "backward": 1.0},
            )
            return (*made, None)

    def run(query: Any, key: Any, value: Any, _: Any, mask: Sequence[Any], *__: Any) -> Any:
        square = float(query.shape[2] * key.shape[2])
        many, counted = 0.0, [one for one in (mask[2], mask[4]) if one is not None]
        for one in counted:
            blocks = recorder.values.numbers(one)
            if blocks is not None:
                many += sum(blocks) / max(prod(one.shape[:-1]), 1)
            elif one is counted[0]:  # a mask is made to leave pairs out: half of them
                recorder.values.guessed += 1
                many += 0.5 * square / (mask[-3] * mask[-2])
        pairs = min(many * mask[-3] * mask[-2], square)
        out, sums = Flex.apply(query, key, value, pairs)  # type: ignore[no-untyped-call]
        return out, sums, sums

    return run


def _ctc_loss(recorder: StepRecorder) -> Callable[..., torch.Tensor]:
    """CTC, which a CPU has by lengths that it reads from the numbers; nothing is known of its time."""

    class Ctc(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, scores: torch.Tensor, targets: torch.Tensor, most: int) -> Any:
            steps, many = scores.shape[0], scores.shape[1]
            shapes = [([many], scores.dtype), ([many, steps, 2 * most + 1], scores.dtype)]
            losses, paths = recorder.kernel("aten._ctc_loss", "unknown", [scores, targets], shapes)
            ctx.save_for_backward(scores, targets, paths)
            return losses

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            inputs = [gradient, *ctx.saved_tensors]
            shapes = [(inputs[1].shape, inputs[1].dtype)]
            name = "aten._ctc_loss_backward"
            return recorder.kernel(name, "unknown", inputs, shapes)[0], None, None

    def run(
        scores: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: int = 1,
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        del input_lengths, blank, zero_infinity
        wide = scores if scores.dim() == 3 else scores.unsqueeze(1)
        known = target_lengths
        if isinstance(known, torch.Tensor):
            known = recorder.values.numbers(known)
        most = targets.shape[-1] if targets.dim() > 1 else -(-targets.numel() // wide.shape[1])
        most = int(max(known)) if known else most
        losses: torch.Tensor = Ctc.apply(wide, targets, most)  # type: ignore[no-untyped-call]
        if reduction == 0:
            return losses
        return losses.mean() if reduction == 1 else losses.sum()

    return run


def _grouped_product(recorder: StepRecorder) -> Callable[..., torch.Tensor]:
    """`grouped_mm`, which a CPU has in 16 bits alone: one kernel, each group with its share of the rows."""

    def product(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
        m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
        if a.dim() == 3 or b.dim() == 3:
            groups = a.shape[0] if a.dim() == 3 else b.shape[0]
        else:
            groups = offsets.shape[0] if offsets is not None else 1
        shape = [m, n] if a.dim() + b.dim() == 5 else [groups, m, n]
        sizes = {"m": float(m), "n": float(n), "k": float(k), "batch": float(groups)}
        if a.dim() == 2:
            shared = "m" if b.dim() == 3 else "k"
            sizes[shared] /= groups
        elif b.dim() == 2:
            sizes["n"] /= groups
        flops = 2.0 * sizes["m"] * sizes["n"] * sizes["k"] * groups
        return recorder.kernel("aten._grouped_mm", "gemm", [a, b, offsets], [(shape, a.dtype)],
                               flops=flops, sizes=sizes)[0]  # fmt: skip

    class GroupedProduct(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor | None
        ) -> Any:
            ctx.save_for_backward(a, b, offsets)
            return product(a, b, offsets)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            a, b, offsets = ctx.saved_tensors
            to_a = (
                product(gradient, b.transpose(-2, -1), offsets) if ctx.needs_input_grad[0] else None
            )
            to_b = (
                product(a.transpose(-2, -1), gradient, offsets) if ctx.needs_input_grad[1] else None
            )
            return to_a, to_b, None

    def run(
        a: torch.Tensor,
        b: torch.Tensor,
        offs: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        found: torch.Tensor = GroupedProduct.apply(a, b, offs)  # type: ignore[no-untyped-call]
        found = found if bias is None else found + bias
        return found if out_dtype is None else found.to(out_dtype)

    return run


def _rms_norm(recorder: StepRecorder) -> Callable[..., torch.Tensor]:
    class RmsNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: torch.Tensor, weight: torch.Tensor | None, dims: int) -> Any:
            scales = (*given.shape[: given.dim() - dims], *(1,) * dims)
            wide = torch.float32 if given.dtype != torch.float64 else torch.float64
            shapes = [(given.shape, given.dtype), (scales, wide)]
            made, scale = recorder.kernel(
                "aten._fused_rms_norm", "norm", [given, weight], shapes, sizes=_rows(given)
            )
            ctx.save_for_backward(given, weight, scale)
            return made

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            given, weight, scale = ctx.saved_tensors
            shapes = [(given.shape, given.dtype)]
            shapes += [(weight.shape, weight.dtype)] if ctx.needs_input_grad[1] else []
            inputs = [gradient, given, weight, scale]
            name = "aten._fused_rms_norm_backward"
            made = recorder.kernel(name, "norm", inputs, shapes, sizes=_rows(given))
            return made[0], made[1] if len(made) > 1 else None, None

    def run(
        given: torch.Tensor,
        shape: Sequence[int],
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> torch.Tensor:
        if weight is not None and weight.dtype != given.dtype:  # no kernel: operation by operation
            wide = given.float()
            dims = list(range(-len(shape), 0))
            scale = torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + (eps or 1e-6))
            return (wide * scale).to(given.dtype) * weight
        return RmsNorm.apply(given, weight, len(shape))  # type: ignore[no-any-return, no-untyped-call]

    return run


def _cell(name: str, recorder: StepRecorder) -> Callable[..., Any]:
    """A step of a recurrent cell: its two products, and one kernel for all the rest."""
    full, gates = f"aten._thnn_fused_{name}_cell", GATES[name]

    class Cell(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Any, hidden: Any, state: Any, *biases: Any) -> Any:
            rows, width = state.shape
            shapes = [(state.shape, state.dtype)] * (2 if name == "lstm" else 1)
            kept = ([rows, CELLS[name] * width], state.dtype)
            inputs = [given, hidden, state, *biases]
            *made, space = recorder.kernel(full, "pointwise", inputs, [*shapes, kept])
            ctx.save_for_backward(state, made[-1], space)
            ctx.biases = len(biases)
            return tuple(made)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            state = ctx.saved_tensors[0]
            rows, width = state.shape
            wide = ([rows, gates * width], state.dtype)
            shapes = [wide, (state.shape, state.dtype)] + ([wide] if name == "gru" else [])
            inputs = [*gradients, *ctx.saved_tensors]
            made = recorder.kernel(f"{full}_backward_impl", "pointwise", inputs, shapes)
            sums = [
                recorder.kernel("aten.sum", "reduce", [made[0]], [([gates * width], state.dtype)])[
                    0
                ]
                for _ in range(ctx.biases)
            ]
            return made[0], made[2] if name == "gru" else made[0], made[1], *sums

    def run(
        given: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
    ) -> Any:
        first = state[0] if name == "lstm" else state
        last = state[1] if name == "lstm" else state
        biases = [one for one in (b_ih, b_hh) if one is not None]
        made: Any = Cell.apply(given @ w_ih.t(), first @ w_hh.t(), last, *biases)  # type: ignore[no-untyped-call]
        return made if name == "lstm" else made[0]

    return run


def _rows(given: torch.Tensor) -> dict[str, float]:
    """Sizes of a norm over the last dimension."""
    return {
        "elements": float(given.numel()),
        "rows": float(given.numel() // max(given.shape[-1], 1)),
    }


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
