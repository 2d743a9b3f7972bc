"""Tensor and pipeline parallelism of traced modules, beside what a reader's model of the same gives."""

import json
from collections import Counter
from typing import Any

import pytest

import foretell
from foretell.errors import BadInput
from foretell.sharding.traced_pipeline import pipeline_stages
from foretell.sharding.traced_tensor import tensor_cut
from foretell.trace.graph import TracedModel

torch = pytest.importorskip("torch")

LAYERS, HIDDEN, HEADS, KV, FFN, WORDS, TOKENS = 4, 512, 8, 4, 1408, 8192, 1024


def decoder(*, normed: bool = False, tied: bool = False) -> Any:
    """A decoder like Llama in bf16, with its inputs and loss; `normed` has a norm over all queries."""
    from torch import nn
    from torch.nn import functional as f

    wide, head = HIDDEN // HEADS, KV * HIDDEN // HEADS

    class Norm(nn.Module):  # operation by operation, as transformers has it
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(HIDDEN))

        def forward(self, x: Any) -> Any:
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.weight * y.to(x.dtype)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = Norm(), Norm()
            self.qn = Norm() if normed else nn.Identity()
            self.q, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))
            self.k, self.v = (nn.Linear(HIDDEN, head, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
            self.down = nn.Linear(FFN, HIDDEN, bias=False)

        def forward(self, x: Any) -> Any:
            y, (b, t, _) = self.n1(x), x.shape
            q = self.qn(self.q(y)).view(b, t, HEADS, wide).transpose(1, 2)
            k, v = (m(y).view(b, t, KV, wide).transpose(1, 2) for m in (self.k, self.v))
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, t, HIDDEN))
            y = self.n2(x)
            return x + self.down(f.silu(self.gate(y)) * self.up(y))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(WORDS, HIDDEN)
            self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm, self.head = Norm(), nn.Linear(HIDDEN, WORDS, bias=False)
            if tied:
                self.head.weight = self.embed.weight

        def forward(self, ids: Any) -> Any:
            x = self.embed(ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    def loss(module: Any, ids: Any) -> Any:
        return f.cross_entropy(module(ids).float().flatten(0, 1), ids.flatten())

    return Net().bfloat16(), {"ids": torch.randint(0, 100, (1, TOKENS))}, loss


@pytest.fixture(scope="module")
def traced() -> TracedModel:
    return foretell.trace(decoder)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    table = {
        "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": FFN,
        "vocab_size": WORDS, "max_position_embeddings": 4096, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    file = tmp_path_factory.mktemp("like") / "config.json"
    file.write_text(json.dumps(table), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("sp", [True, False])
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_share_operations_parameters_and_messages(
    traced: TracedModel, tp: int, sp: bool
) -> None:
    graph = traced.graphs["as-is"]
    cut = tensor_cut(traced, "as-is", tp, sp=sp)
    assert cut.whole_share == 0.0
    flops = [sum(one.ops[n].flops for n in one.op) for one in (graph, cut.graph)]
    # Keys and values of 4 heads are cut in 4 where there are 8 ranks.
    more = 3 * LAYERS * 2 * 2 * TOKENS * HIDDEN * KV * HIDDEN / HEADS * (tp / min(tp, KV) - 1) / tp
    assert flops[1] == pytest.approx(flops[0] / tp + more)
    norms = (2 * LAYERS + 1) * HIDDEN
    whole, own = (sum(t.elements for t in m.of_kind("parameter")) for m in (traced, cut.model))
    doubled = LAYERS * 2 * HIDDEN * KV * HIDDEN / HEADS * (1 / min(tp, KV) - 1 / tp)
    assert own == pytest.approx((whole - norms) / tp + norms + doubled)
    size = TOKENS * HIDDEN * 2.0
    found = Counter(one.kind for one in cut.exchanges if one.bytes == size)
    # Korthikanti et al. 2022: two regions a layer, and the table of words and the head.
    if sp:
        assert found == {"all-gather": 4 * LAYERS + 1, "reduce-scatter": 4 * LAYERS + 2}
    else:
        assert found == {"all-reduce": 4 * LAYERS + 2}
    gradients = cut.graph.storage_bytes[cut.graph.gradient].sum()
    assert gradients == pytest.approx(
        sum(t.bytes for t in cut.model.of_kind("parameter")), rel=0.01
    )


def test_stages_share_rows_parameters_and_what_they_send(traced: TracedModel) -> None:
    graph = traced.graphs["as-is"]
    stages = pipeline_stages(traced, graph, 4)
    assert sum(len(one.graph.op) for one in stages) == len(graph.op)
    own = [sum(t.elements for t in one.model.of_kind("parameter")) for one in stages]
    assert sum(own) == sum(t.elements for t in traced.of_kind("parameter"))
    assert own[1] == own[2]
    assert [one.sent_bytes for one in stages] == [TOKENS * HIDDEN * 2.0] * 3 + [0.0]
    for one in stages:
        gradients = one.graph.storage_bytes[one.graph.gradient].sum()
        assert gradients == sum(t.bytes for t in one.model.of_kind("parameter"))


def test_a_table_that_the_ends_share_is_on_both(traced: TracedModel) -> None:
    tied = foretell.trace(lambda: decoder(tied=True))
    stages = pipeline_stages(tied, tied.graphs["as-is"], 2)
    more = sum(sum(t.elements for t in one.model.of_kind("parameter")) for one in stages) - sum(
        t.elements for t in tied.of_kind("parameter")
    )
    assert more == WORDS * HIDDEN
    for one in stages:
        gradients = one.graph.storage_bytes[one.graph.gradient].sum()
        assert gradients == sum(t.bytes for t in one.model.of_kind("parameter"))


@pytest.mark.parametrize("plan", ["tp2 no-sp", "tp4 no-sp", "pp2", "pp4", "tp2 pp2 no-sp"])
def test_memory_and_bubble_are_those_of_the_readers_model(
    traced: TracedModel, config: str, plan: str
) -> None:
    given: dict[str, Any] = {"gpus": f"{8}xH200", "global_batch": 16}
    words = " weights=bf16 gradients=bf16 master=none states=bf16 framework=transformers"
    mine = foretell.estimate(traced, plan=plan, set=["chip.host_speed=1000"], **given)
    theirs = foretell.estimate(config, plan=plan + words, seq_len=TOKENS, **given)
    assert mine.allocated_bytes == pytest.approx(theirs.allocated_bytes, rel=0.08)
    assert mine.tflops_per_gpu * mine.step_s == pytest.approx(
        theirs.tflops_per_gpu * theirs.step_s, rel=0.03
    )


def test_more_ranks_hold_less_and_the_leaves_add_up(traced: TracedModel) -> None:
    before = None
    for tp in (1, 2, 4, 8):
        one = foretell.estimate(traced, gpus=f"{tp}xH200", plan=f"tp{tp}", global_batch=4)
        assert sum(leaf.value for leaf in one.breakdown.children) == pytest.approx(one.step_s)
        assert before is None or one.allocated_bytes < before
        before = one.allocated_bytes


def test_what_has_no_such_pattern_is_refused(traced: TracedModel) -> None:
    from torch import nn

    def given(plan: str, gpus: int, model: TracedModel = traced) -> Any:
        return foretell.estimate(model, gpus=f"{gpus}xH200", plan=plan)

    with pytest.raises(BadInput, match="8 heads"):
        given("tp16", 16)
    with pytest.raises(BadInput, match="4 repeated layers"):
        given("pp8", 8)
    with pytest.raises(BadInput, match="1f1b, gpipe"):
        given("pp2 schedule=zb-h1", 2)
    with pytest.raises(BadInput, match="vpp"):
        given("pp2 vpp2 schedule=interleaved", 2)
    one = foretell.trace(nn.LSTM(64, 64), torch.empty(8, 16, 64, device="meta"))
    with pytest.raises(BadInput, match="cannot be cut"):
        given("tp2", 2, one)


def test_search_tries_every_degree(traced: TracedModel) -> None:
    found = foretell.search(traced, gpus="4xH200", plan="recompute=none", global_batch=8)
    assert {(one.plan.tp, one.plan.pp, one.plan.dp) for one in found.plans} >= {
        (1, 1, 4),
        (1, 4, 1),
    }
    best = foretell.estimate(traced, gpus="4xH200", plan=str(found.best.plan), global_batch=8)
    assert best.step_s == found.best.step_s == min(one.step_s for one in found.plans)
    assert found.plans_evaluated == 3 * 4 + 3  # ZeRO says nothing on one replica
    with pytest.raises(BadInput, match=r"plan\.dp"):
        foretell.search(traced, gpus="4xH200", plan="dp3")


def test_tokens_are_served_as_by_the_readers_model(traced: TracedModel, config: str) -> None:
    given: dict[str, Any] = {"isl": 512, "osl": 64}
    one, other = (
        foretell.serve(model, gpus="1xH200", concurrency=8, **given) for model in (traced, config)
    )
    assert one.tpot_ms == other.tpot_ms
    assert one.kv_bytes == pytest.approx(other.kv_bytes, rel=0.01)
    one, other = (
        foretell.size(model, system="h200-sxm", rate=50, ttft=2000, tpot=30, **given)
        for model in (traced, config)
    )
    assert one.gpus == other.gpus
    with pytest.raises(BadInput, match="whole passes"):
        foretell.serve(traced, gpus="1xH200", steps=4, **given)
    assert foretell.serve(traced, gpus="1xH200").pass_s > 0.0  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="no form for a traced module"):
        foretell.explain(traced, gpus="1xH200", plan="tp1")


def test_what_writes_no_tokens_says_what_is_missing() -> None:
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, 4, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = foretell.trace(module, torch.empty(2, 64, 256, device="meta"))
    with pytest.raises(BadInput, match="no table of words in front of its layers"):
        foretell.serve(model, gpus="1xH200", isl=512, osl=64, concurrency=8)


def test_a_norm_over_all_queries_leaves_their_map_whole() -> None:
    model = foretell.trace(lambda: decoder(normed=True))
    cut = tensor_cut(model, "as-is", 2, sp=True)
    assert 0.0 < cut.whole_share < 0.2
    assert [note.partition(":")[0] for note in cut.notes] == ["layers.*.q"]
