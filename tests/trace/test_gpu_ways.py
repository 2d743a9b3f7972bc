"""What a GPU does otherwise than the CPU that a trace runs on, and what a compiler leaves out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import foretell
from foretell.trace.graph import LOSS, TracedGraph

torch = pytest.importorskip("torch")
F = torch.nn.functional


def names(graph: TracedGraph) -> list[str]:
    return [graph.ops[n].name.removeprefix("aten.") for n in graph.op]


def traced(module: Any, *inputs: Any, loss: Any = None) -> TracedGraph:
    return foretell.trace(module, *inputs, loss=loss).graphs["as-is"]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_cell_is_one_kernel_beside_its_products(kind: str) -> None:
    found = names(traced(getattr(torch.nn, f"{kind}Cell")(32, 64), torch.randn(8, 32)))
    own = f"_thnn_fused_{kind.lower()}_cell"
    assert found.count(own) == found.count(f"{own}_backward_impl") == 1
    assert not {"sigmoid", "tanh"} & set(found)


class Grouped(torch.nn.Module):
    def forward(self, q: Any, k: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)


def test_groups_of_heads_are_fused_in_16_bits_alone() -> None:
    for dtype, fused in ((torch.float32, False), (torch.bfloat16, True)):
        rows = [torch.randn(2, n, 64, 32, dtype=dtype, requires_grad=True) for n in (8, 2)]
        found = names(traced(Grouped(), *rows))
        assert any("flash" in one for one in found) == fused
        assert ("bmm" in found) != fused


def test_a_norm_whose_weights_are_wider_is_no_kernel() -> None:
    x = torch.randn(4, 64, requires_grad=True)
    assert "_fused_rms_norm" in names(traced(torch.nn.RMSNorm(64), x))
    assert "_fused_rms_norm" not in names(traced(torch.nn.RMSNorm(64), x.detach().bfloat16()))


class Half(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            y = self.one(x.to("cuda"))
        return y.float().to(x.device)


def test_autocast_of_a_gpu_casts_products() -> None:
    graph = traced(Half(), torch.randn(4, 16))
    products = {op.dtype for op in graph.ops if op.kind == "gemm"}
    assert products == {"bf16"}
    assert "device" not in " ".join(names(graph))


def deep() -> Any:
    module = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(4))
    )
    return module, (torch.randn(32, 64),), lambda m, x: (m(x) ** 2).exp().mean()


def test_a_loss_stays_outside_of_what_is_compiled() -> None:
    from foretell.training.traced_memory import compiled_graph, live_bytes
    from foretell.training.traced_rows import outside

    graph = foretell.trace(deep).graphs["as-is"]
    apart = {names(graph)[n] for n in np.flatnonzero(outside(graph))}
    assert {"pow", "exp", "mean"} <= apart
    assert "gelu" not in apart
    assert LOSS in graph.paths
    kept = compiled_graph(graph)
    assert live_bytes(kept).max() <= live_bytes(graph).max()
    assert kept.storage_bytes.sum() <= graph.storage_bytes.sum()
    alone = replace(graph, paths=(LOSS,) * len(graph.paths))
    assert compiled_graph(alone).storage_bytes.sum() == graph.storage_bytes.sum()


def test_products_say_how_their_rows_lie() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x @ y

    inputs = torch.randn(24, 33, requires_grad=True), torch.randn(33, 16, requires_grad=True)
    loads = [op.sizes["load"] for op in traced(Odd(), *inputs).ops if op.kind == "gemm"]
    assert loads[0] == 1.0  # rows of 33 numbers
    assert set(loads) <= {1.0, 2.0, 4.0, 8.0}


def test_flex_attention_is_one_kernel_over_the_blocks_of_its_mask() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            mask = create_block_mask(
                lambda b, h, q, k: q >= k, None, None, 512, 512, device=x.device
            )
            return flex_attention(x, x, x, block_mask=mask)

    model = foretell.trace(Net(), torch.empty(2, 4, 512, 64, requires_grad=True))
    calls = [op for op in model.graphs["as-is"].ops if op.kind == "attention"]
    assert [op.name for op in calls] == ["aten.flex_attention", "aten.flex_attention_backward"]
    assert calls[0].flops == 2 * 2 * 4 * (10 * 128 * 128) * 2 * 64  # 10 of 16 blocks
    assert not model.compiled


def test_a_module_that_needs_32_bits_is_served_as_it_was_given() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(64, 64, device="meta"))

        def forward(self, x: Any, label: Any) -> Any:
            return torch.fft.rfft(x, dim=1).abs() @ self.weight

    inputs = torch.empty(4, 16, 64, device="meta"), torch.empty(4, device="meta")
    model = foretell.trace(Net(), *inputs)
    assert {"inference-as-is"} == {name for name in model.graphs if "inference" in name}
    assert foretell.serve(model, gpus="1xH200").pass_s > 0.0  # type: ignore[attr-defined]


def test_inputs_of_the_loss_alone_are_no_inputs_of_a_pass() -> None:
    def loss(module: Any, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(module(x), y)

    inputs = torch.empty(8, 16, device="meta"), torch.zeros(8, dtype=torch.int64)
    model = foretell.trace(torch.nn.Sequential(torch.nn.Linear(16, 10)), *inputs, loss=loss)
    assert "inference" in model.graphs


def test_layers_that_compute_themselves_again_are_not_computed_thrice() -> None:
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            part = [torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)]
            self.layers = torch.nn.ModuleList(torch.nn.Sequential(*part) for _ in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return x

    model = foretell.trace(Net, torch.empty(512, 64, device="meta"))
    plain, again = (
        foretell.estimate(model, gpus="1xH200", plan=f"recompute={way}") for way in ("none", "full")
    )
    assert (plain.step_s, plain.allocated_bytes) == (again.step_s, again.allocated_bytes)


def test_layers_of_a_few_classes_in_turn_are_layers() -> None:
    from torch import nn

    class First(nn.Sequential):
        pass

    class Second(nn.Sequential):
        pass

    kinds = [First, First, Second, First, First, Second]
    module = nn.Module()
    module.layers = nn.ModuleList(kind(nn.Linear(8, 8), nn.ReLU()) for kind in kinds)
    module.ends = nn.ModuleList([First(nn.Linear(8, 8)), Second(nn.Linear(8, 8))])
    from foretell.trace.capture import repeated

    assert repeated(module) == [f"layers.{n}" for n in range(6)]
