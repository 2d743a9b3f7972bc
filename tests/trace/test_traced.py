"""Traced modules: identities that hold for any module, the file, and what an estimate of one answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretell
from foretell.errors import BadInput, Infeasible
from foretell.trace.graph import FOREVER, TracedModel, load_traced, traced_of

torch = pytest.importorskip("torch")

MODULE = """
import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, rate):
        super().__init__()
        self.norm, self.rate = nn.LayerNorm(width), rate
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), self.rate, self.training)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        rates = [r.item() for r in torch.linspace(0, 0.1, 4)]
        self.embed = nn.Embedding(1000, 256)
        self.blocks = nn.ModuleList(Block(256, rate) for rate in rates)
        self.head = nn.Linear(256, 1000, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids.to("cuda"))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss(module, ids):
    return F.cross_entropy(module(ids).flatten(0, 1), ids.flatten())


def build():
    return Net(), {"ids": torch.randint(0, 1000, (4, 128))}, loss


def bare():
    return Net()


def routed():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(64, 4)
            self.experts = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

        def forward(self, x):
            scores, picked = self.router(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for n, expert in enumerate(self.experts):
                rows, place = torch.where(picked == n)
                out.index_add_(0, rows, expert(x[rows]) * scores[rows, place, None])
            return out

    return Experts(), (torch.randn(512, 64),)


def image():
    body = nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()
    net = nn.Sequential(*body, nn.Linear(32 * 30 * 30, 10))
    return net, torch.randn(8, 3, 32, 32)


def broken():
    return nn.Linear(4, 4), (torch.randn(2, 5),)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("trace") / "modules_to_trace.py"
    file.write_text(MODULE, encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def net(place: str) -> TracedModel:
    from foretell.api.traced_models import trace_place

    return trace_place(f"{place}:build")


def test_parameters_are_those_of_the_module_with_ties_counted_once(net: TracedModel) -> None:
    block = 2 * 256 + 256 * 1024 + 1024 + 1024 * 256 + 256
    assert sum(t.elements for t in net.of_kind("parameter")) == 1000 * 256 + 4 * block
    assert net.batch == 4
    assert net.tokens == 128
    assert net.layers == tuple(f"blocks.{n}" for n in range(4))


def test_products_are_three_times_the_forward_ones(net: TracedModel) -> None:
    graph = net.graphs["as-is"]
    forward = 2.0 * 4 * 128 * (4 * 2 * 256 * 1024 + 256 * 1000)
    assert sum(graph.ops[n].flops for n in graph.op) == pytest.approx(3.0 * forward)
    # Autocast and casting change formats, and no product.
    for form in ("autocast", "cast"):
        other = net.graphs[form]
        assert sum(other.ops[n].flops for n in other.op) == pytest.approx(3.0 * forward)


def test_only_gradients_outlive_the_step(net: TracedModel) -> None:
    for graph in net.graphs.values():
        left = graph.died == FOREVER
        assert np.array_equal(left, graph.gradient)
        assert (graph.died[~left] > graph.born[~left]).all()
    wide, narrow = (net.graphs[form] for form in ("as-is", "cast"))
    size = sum(t.bytes for t in net.of_kind("parameter"))
    assert wide.storage_bytes[wide.gradient].sum() == size
    assert narrow.storage_bytes[narrow.gradient].sum() == pytest.approx(size / 2, rel=0.01)


def test_the_file_gives_the_model_back(net: TracedModel, tmp_path: Path) -> None:
    path = net.save(tmp_path / "net.foretell.json")
    again = load_traced(path)
    assert again.summary() == net.summary()
    assert again.tensors == net.tensors
    assert again.graphs["as-is"].reads == net.graphs["as-is"].reads
    table = json.loads(path.read_text(encoding="utf-8"))
    assert table["format"] == "foretell-trace"
    path.write_text(json.dumps({**table, "version": 99}), encoding="utf-8")
    with pytest.raises(BadInput, match="version"):
        load_traced(path)
    assert traced_of(table).id == net.id


def step(model: TracedModel, tmp_path: Path, plan: str | None = None, **given: Any) -> Any:
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / f"{model.id}.foretell.json"
    if not path.is_file():
        model.save(path)
    return foretell.estimate(str(path), gpus=given.pop("gpus", "1xH200"), plan=plan, **given)


def test_an_estimate_answers_from_the_file(net: TracedModel, tmp_path: Path) -> None:
    one = step(net, tmp_path)
    assert one.step_s > 0.0
    assert one.fits == "yes"
    assert one.breakdown is not None
    assert sum(leaf.value for leaf in one.breakdown.children) == pytest.approx(one.step_s)
    assert one.memory is not None
    assert sum(leaf.value for leaf in one.memory.children) == pytest.approx(one.allocated_bytes)
    told = one.to_dict()
    assert told["allocated_bytes"] == one.allocated_bytes
    assert told["plan"] == str(one.plan)


def test_more_of_everything_takes_longer(net: TracedModel, tmp_path: Path) -> None:
    one, two = step(net, tmp_path, global_batch=4), step(net, tmp_path, global_batch=8)
    assert one.step_s < two.step_s < 2.5 * one.step_s
    assert two.allocated_bytes >= one.allocated_bytes
    spread = step(net, tmp_path, "zero1", gpus="8xH200")
    assert spread.allocated_bytes < one.allocated_bytes
    assert step(net, tmp_path, "precision=bf16 weights=bf16").allocated_bytes < one.allocated_bytes
    again = step(net, tmp_path, "recompute=full")
    assert again.allocated_bytes <= one.allocated_bytes
    assert again.hfu * again.step_s > one.hfu * one.step_s


def test_what_a_trace_cannot_answer_is_refused(net: TracedModel, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="data parallelism"):
        step(net, tmp_path, "cp2", gpus="2xH200")
    with pytest.raises(BadInput, match="multiple of 4"):
        step(net, tmp_path, global_batch=6)
    with pytest.raises(BadInput, match="fp32, tf32"):
        step(net, tmp_path, "precision=fp8")
    with pytest.raises(BadInput, match=r"trace\.update"):
        step(net, tmp_path, set=["trace.update=fast"])


def test_inputs_and_loss_of_the_command_line(place: str, net: TracedModel) -> None:
    from foretell.api.traced_models import trace_place

    found = trace_place(f"{place}:bare", "ids:int64[4,128]", "loss")
    mine = {k: v for k, v in found.summary().items() if k not in ("model", "forms")}
    assert mine == {k: v for k, v in net.summary().items() if k not in ("model", "forms")}
    with pytest.raises(BadInput, match="inputs"):
        trace_place(f"{place}:bare")
    with pytest.raises(BadInput, match="NAME:DTYPE"):
        trace_place(f"{place}:bare", "ids=4x128")
    with pytest.raises(BadInput, match="no function"):
        trace_place(f"{place}:missing")
    with pytest.raises(BadInput, match="the module failed"):
        trace_place(f"{place}:broken")


def test_experts_get_their_expected_load(place: str) -> None:
    from foretell.api.traced_models import trace_place

    graph = trace_place(f"{place}:routed").graphs["as-is"]
    experts = [graph.ops[n] for n in graph.op if graph.ops[n].name == "aten.addmm"][1:]
    rows = [op.sizes["m"] for op in experts if op.sizes is not None]
    assert len(rows) == 4
    assert sum(rows) == 2 * 512
    assert all(180 < n < 340 for n in rows)


def test_a_batch_norm_and_a_lone_tensor_of_inputs(place: str) -> None:
    from foretell.api.traced_models import trace_place

    graph = trace_place(f"{place}:image").graphs["as-is"]
    products = [op for op in graph.ops if op.kind == "conv"]
    forward = 2.0 * 8 * 30 * 30 * 3 * 32 * 9
    # The images need no gradient, so that the backward pass makes the weights' alone.
    assert sorted(op.flops for op in products) == [forward, forward]


def test_a_module_is_given_back_as_it_was() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    before = {name: one.clone() for name, one in module.state_dict().items()}
    found = foretell.trace(module, torch.randn(2, 3, 8, 8), loss=lambda m, x: m(x).square().mean())
    assert {op.kind for op in found.graphs["as-is"].ops} >= {"conv", "norm"}
    for name, one in module.state_dict().items():
        assert torch.equal(one, before[name])
    assert all(p.grad is None for p in module.parameters())


def test_labels_that_a_module_needs_are_given_to_its_served_pass(tmp_path: Path) -> None:
    class Labelled(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(64, 10)

        def forward(self, x: Any, labels: Any) -> Any:
            return torch.nn.functional.cross_entropy(self.head(x), labels)

    inputs = {"x": torch.zeros(4, 64), "labels": torch.zeros(4, dtype=torch.long)}
    file = tmp_path / "labelled.foretell.json"
    foretell.trace(Labelled(), **inputs).save(file)
    assert foretell.serve(str(file), system="h100-sxm").pass_s > 0.0  # type: ignore[attr-defined]


def test_a_module_in_fp32_says_what_would_be_faster(net: TracedModel, tmp_path: Path) -> None:
    file = tmp_path / "net.foretell.json"
    net.save(file)
    wide = foretell.estimate(str(file), system="h100-sxm")
    narrow = foretell.estimate(str(file), system="h100-sxm", precision="bf16")
    assert not wide.plan_chosen
    assert any("--precision bf16" in line for line in wide.assumptions)
    assert not any("--precision bf16" in line for line in narrow.assumptions)


def test_attention_is_fused_as_on_a_gpu() -> None:
    class Attend(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(64, 192)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    found = foretell.trace(Attend(), torch.randn(2, 256, 64))
    for form, name in (("as-is", "efficient"), ("cast", "flash")):
        graph = found.graphs[form]
        calls = [op for op in graph.ops if op.kind == "attention"]
        assert [name in op.name for op in calls] == [True, True]
        assert calls[0].sizes is not None
        assert calls[0].sizes["pairs"] == 256 * 257 / 2
        # No score is stored: the largest storage is a projection.
        assert graph.storage_bytes.max() <= 2 * 256 * 192 * 4


def test_values_may_be_narrower_than_queries() -> None:
    def attend(module: Any, q: Any, k: Any, v: Any) -> Any:
        out = torch.nn.functional.scaled_dot_product_attention(module(q), k, v, is_causal=True)
        assert out.shape == v.shape
        return out.sum()

    wide = torch.empty(2, 4, 64, 48, device="meta", dtype=torch.bfloat16)
    module = torch.nn.Linear(48, 48, dtype=torch.bfloat16)
    found = foretell.trace(module, wide, wide, wide[..., :32], loss=attend)
    calls = [op for op in found.graphs["as-is"].ops if op.kind == "attention"]
    assert ["efficient" in op.name for op in calls] == [True, True]


def test_what_does_not_fit_says_so(tmp_path: Path) -> None:
    found = foretell.trace(
        torch.nn.Linear(1 << 17, 1 << 17, device="meta"), torch.empty(8, 1 << 17, device="meta")
    )
    with pytest.raises(Infeasible, match="does not fit"):
        step(found, tmp_path)


def test_ranks_share_what_the_stage_of_zero_says(net: TracedModel, tmp_path: Path) -> None:
    def held(plan: str, part: str) -> float:
        tree = step(net, tmp_path, plan, gpus="8xH200").memory
        return next((leaf.value for leaf in tree.children if leaf.name == part), 0.0)

    weights = held("zero0", "weights")
    assert held("zero1", "states") == pytest.approx(held("zero0", "states") / 8)
    assert held("zero2", "weights") == weights
    assert held("zero3", "weights") == pytest.approx(weights / 8)
    # Two blocks of weights and one of gradients, and the table of embeddings outside of blocks.
    block = (2 * 256 + 256 * 1024 + 1024 + 1024 * 256 + 256) * 4
    assert held("zero3", "gathered weights") == pytest.approx(1000 * 256 * 4 + 3 * block, rel=0.01)
    # The gradients of seven of eight parts are gone when the last one is made.
    passes = "activations and gradients"
    small = "recompute=full precision=bf16"
    assert held(f"zero2 {small}", passes) < held(f"zero1 {small}", passes)
    assert held("optimizer=adam8bit", "states") < 0.3 * held("optimizer=adam", "states")


def test_words_of_a_plan_that_say_nothing_are_refused(net: TracedModel, tmp_path: Path) -> None:
    for plan, message in (
        ("offload=optimizer", "keeps all it has on the GPU"),
        ("mbs2", "is the micro-batch"),
        ("states=bf16", "whose module decides"),
        ("vpp2", "is cut by tensor, pipeline"),
    ):
        with pytest.raises(BadInput, match=message):
            step(net, tmp_path, plan)
    plain = step(net, tmp_path)
    for same in ("mbs4 offload=none", str(plain.plan), plain.plan):
        assert step(net, tmp_path, same).step_s == plain.step_s


def test_operations_that_nothing_is_known_of_widen_the_interval(tmp_path: Path) -> None:
    def mine(x: Any) -> Any:
        return x * 2

    op = torch.library.custom_op("foretell_tests::mine", mine, mutates_args=(),
                                 schema="(Tensor x) -> Tensor")  # fmt: skip
    op.register_fake(torch.empty_like)
    op.register_autograd(lambda _, gradient: gradient)

    class Net(torch.nn.Module):
        def __init__(self, known: bool) -> None:
            super().__init__()
            self.known, self.body = known, torch.nn.Linear(4096, 4096)

        def forward(self, x: Any) -> Any:
            x = self.body(x)
            return x * 2 if self.known else torch.ops.foretell_tests.mine(x)

    rows = torch.empty(1 << 16, 4096, device="meta")
    plain, unknown = (
        step(foretell.trace(Net(known), rows), tmp_path / str(known)) for known in (True, False)
    )
    assert {op.kind for op in foretell.trace(Net(False), rows).graphs["as-is"].ops} >= {"unknown"}
    for level in ("p50", "p90"):
        usual, wide = (one.interval[level] for one in (plain, unknown))
        assert wide[0] / unknown.step_s < usual[0] / plain.step_s
        assert wide[1] / unknown.step_s > usual[1] / plain.step_s
    assert "only the bytes are known" in unknown.interval_reason
    assert "only the bytes" not in plain.interval_reason
    assert unknown.to_dict()["interval_reason"] == unknown.interval_reason
    assert any("foretell_tests.mine" in said for said in unknown.assumptions)


def test_a_library_that_looks_for_fake_tensors_takes_the_way_of_a_real_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """transformers builds a mask where it finds fake tensors, and calls causal attention without one."""
    from types import ModuleType

    from torch.nn.functional import scaled_dot_product_attention as attend

    utils: Any = ModuleType("transformers.utils.import_utils")
    utils.is_fake_tensor = lambda one: type(one).__name__ == "FakeTensor"
    monkeypatch.setitem(__import__("sys").modules, utils.__name__, utils)

    class Causal(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(64, 192).bfloat16()

        def forward(self, x: Any) -> Any:
            q, k, v = (one.unflatten(-1, (4, 16)).mT for one in self.qkv(x).chunk(3, -1))
            mask = torch.ones(64, 64).tril().bool() if utils.is_fake_tensor(x) else None
            return attend(q, k, v, attn_mask=mask, is_causal=mask is None)

    graph = foretell.trace(Causal(), torch.randn(2, 64, 64).bfloat16()).graphs["as-is"]
    assert "aten._scaled_dot_product_flash_attention" in {op.name for op in graph.ops}


def test_what_fills_a_tensor_in_place_is_a_pass_over_it() -> None:
    def fill(module: Any, x: Any) -> Any:
        return module(x).clone().masked_fill_(x > 0, 0.0).sum()

    graph = foretell.trace(torch.nn.Linear(8, 8), torch.randn(4, 8), loss=fill).graphs["as-is"]
    kinds = {op.name: op.kind for op in graph.ops}
    assert kinds["aten.masked_fill_"] == "pointwise"
