"""Anthe and its baselines: counts to the unit, FLOPs as torch counts them, bytes that follow from them."""

from dataclasses import replace

import pytest

import foretell
from foretell.catalog.models import model
from foretell.interop.own_model import read_table, write_toml
from foretell.lab.translate.settings import TranslationSizes, resize_model, with_form
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, Stack
from foretell.workload.blocks.gated_attention import GatedAttention
from foretell.workload.blocks.soft_positions import SoftPositions
from foretell.workload.blocks.tensor_chain import TensorChain
from foretell.workload.build import build
from foretell.workload.parameters import count
from tests.workload.counting import matrix_flop

COUNTS = {
    "transformer-base-tied": 60_522_496,
    "transformer-base-untied": 93_322_496,
    "anthe-no-tc": 68_912_632,
    "anthe-tc-ffn": 46_226_296,
    "anthe": 30_695_032,
}
"""Counted by hand from the definitions in the authors' code."""
BLOCKS = {
    "transformer-base-tied": 44_138_496,
    "anthe-no-tc": 44_140_536,
    "anthe-tc-ffn": 21_454_200,
    "anthe": 5_922_936,
}
"""All twelve layers."""
SIZES = TranslationSizes(width=64, layers=2, heads=4, ffn=256, vocab=500)


def small(form: str = "auto", length: int = 2, ends: str = "soft") -> Model:
    """Every block in one model, with sizes that share few factors."""
    chain = TensorChain(ratio=0.4, length=length, form=form)
    own = 36
    feed = Dense(width=30, up_bias=True, down_bias=True, factor=chain)
    causal = GatedAttention(heads=6, factor=chain)
    encoder = Layer(
        mixers=(replace(causal, causal=False),), ffn=feed, norm_kind="layer", post_norm=True
    )
    decoder = Layer(
        mixers=(
            Attention(heads=6, kv_heads=2, head_dim=5, q_bias=True, factor=chain),
            Attention(heads=3, kv_heads=3, head_dim=8, cross=True, causal=False, factor=chain),
            GatedAttention(heads=4, causal=False, cross=True, bias=False),
        ),
        ffn=replace(feed, gated=False, factor=replace(chain, bond=5)),
        norms=4,
        norm_kind="layer",
        post_norm=True,
    )
    table = Embedding(vocab=54, block=SoftPositions(levels=3))
    head = Head(outputs=54, bias=True)
    if ends == "chains":
        table = Embedding(vocab=54, fixed_positions=True, factor=chain)
        head = replace(head, factor=chain)
    return Model(
        id="small",
        family="transformer",
        kind="encoder-decoder",
        stack=Stack(hidden=own, layers=(decoder,) * 2, final_norm="none"),
        encoder=Stack(hidden=own, layers=(encoder,), final_norm="none"),
        embedding=table,
        encoder_embedding=Embedding(
            vocab=54, block=SoftPositions(levels=2, factor=chain if ends == "chains" else None)
        ),
        head=head,
        max_positions=64,
    )


SMALL = {
    f"{form} {length} {ends}": small(form, length, ends)
    for form in ("auto", "build", "contract")
    for length in (2, 3)
    for ends in ("soft", "chains")
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_to_the_unit(name: str) -> None:
    assert count(model(name)).total == COUNTS[name]


@pytest.mark.parametrize("name", BLOCKS)
def test_weights_of_the_layers(name: str) -> None:
    graph = build(model(name), batch=1.0, seq_len=1.0, target_len=1.0)
    layers = sum(float(op.parameters) for i in graph.order for op in graph.kinds[i].ops)
    assert layers == BLOCKS[name]


@pytest.mark.parametrize("name", [*COUNTS])
def test_catalogue_models_survive_being_written(name: str) -> None:
    import tomllib

    record = model(name)
    assert read_table(tomllib.loads(write_toml(record)), id="other") == record


@pytest.mark.parametrize("name", SMALL)
def test_small_models_survive_being_written(name: str) -> None:
    import tomllib

    assert read_table(tomllib.loads(write_toml(SMALL[name])), id="other") == SMALL[name]


def on_meta(record: Model) -> object:
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from foretell import zoo

    with torch.device("meta"):
        return zoo.build(record)


@pytest.mark.parametrize("name", [*COUNTS, *SMALL])
def test_modules_have_as_many_weights(name: str) -> None:
    record = SMALL[name] if name in SMALL else model(name)
    module = on_meta(record)
    assert sum(p.numel() for p in module.parameters()) == count(record).total


@pytest.mark.parametrize("name", [*COUNTS, *SMALL])
def test_flops_equal_torchs(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from torch.utils.flop_counter import FlopCounterMode

    record = SMALL[name] if name in SMALL else model(name)
    module = on_meta(record)
    target, source = (torch.zeros(3, n, dtype=torch.long, device="meta") for n in (13, 11))
    with FlopCounterMode(display=False) as counter:
        total = module(target, source).total()
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        total.backward()
    graph = build(record, batch=3.0, seq_len=11.0, target_len=13.0, flash=False)
    assert (forward, counter.get_total_flops()) == matrix_flop(graph)


@pytest.mark.parametrize("name", SMALL)
def test_small_models_run_and_learn_everywhere(name: str) -> None:
    """Forward and backward on the CPU: every weight has a gradient, the future stays unseen."""
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from foretell import zoo

    torch.manual_seed(0)
    module = zoo.build(SMALL[name], fused=True)
    source, target = torch.randint(0, 54, (2, 9)), torch.randint(0, 54, (2, 7))
    scores = module(target, source).scores
    scores.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    changed = target.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 54
    after = module(changed, source).scores
    assert torch.allclose(scores[:, :5], after[:, :5], atol=1e-5)
    assert not torch.allclose(scores[:, 5:], after[:, 5:], atol=1e-5)


def test_padding_of_the_source_changes_nothing() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from foretell import zoo

    torch.manual_seed(0)
    for record in (SMALL["auto 2 soft"], model("transformer-base-tied")):
        module = zoo.build(record, fused=True)
        source, target = torch.randint(0, 54, (2, 9)), torch.randint(0, 54, (2, 7))
        padded = torch.cat((source, torch.randint(0, 54, (2, 3))), dim=1)
        present = torch.arange(12).expand(2, 12) < 9
        plain, with_pads = module(target, source), module(target, padded, present)
        assert torch.allclose(plain.scores, with_pads.scores, atol=1e-4)


def test_gradient_traffic_follows_the_weights() -> None:
    """What a rank keeps and reduces is four bytes a weight, to the byte."""
    for name, weights in COUNTS.items():
        found = foretell.estimate(
            name, system="h200-sxm", gpus=2, plan="dp2 mbs8", global_batch=16, seq_len=100,
            target_len=101,
        )  # fmt: skip
        held = found.to_dict()["memory"]["children"]
        kept = next(leaf for leaf in held if leaf["name"] == "gradients")
        assert kept["value"] == 4.0 * weights


KEPT = ("transformer-base-tied", "anthe-no-tc", "anthe-tc-ffn", "anthe")


@pytest.mark.parametrize("form", ["build", "contract"])
@pytest.mark.parametrize("name", KEPT)
def test_tensors_kept_for_the_backward_pass(name: str, form: str) -> None:
    """What autograd keeps on the CPU, storage by storage, is the graph's to 2 %."""
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from foretell import zoo

    record = with_form(resize_model(model(name), SIZES), form)
    module = zoo.build(record, fused=True)
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, int] = {}
    held = []

    def pack(tensor: object) -> object:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # so that no place is used twice
        return tensor

    ids = torch.randint(0, 500, (8, 62))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = module(ids[:, :21], ids[:, 21:41]).scores
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 41:].reshape(-1))
    graph = build(record, batch=8.0, seq_len=20.0, target_len=21.0)
    parts = [graph.embedding, *(graph.kinds[i] for i in graph.order), graph.head]
    # The loss of the graph is as mixed precision runs it; here its scores are in 32 bits already.
    saved = [s for part in parts for s in part.saved if s.name != "head.loss"]
    predicted = sum(float(s.elements) * (s.bytes_per_element or 4.0) for s in saved)
    assert predicted == pytest.approx(sum(kept.values()), rel=0.02)


def test_gradients_take_as_many_bytes_as_predicted() -> None:
    """Measured on the real module and predicted for its record, to the byte."""
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from foretell import zoo

    for name in KEPT:
        record = resize_model(model(name), SIZES)
        module = zoo.build(record)
        ids = torch.randint(0, 500, (2, 5))
        module(ids, ids).total().backward()
        measured = sum(p.grad.numel() * p.grad.element_size() for p in module.parameters())
        found = foretell.estimate(
            record,
            system="h200-sxm",
            gpus=1,
            plan="mbs8",
            global_batch=8,
            seq_len=20,
            target_len=21,
        )
        told = {leaf["name"]: leaf["value"] for leaf in found.to_dict()["memory"]["children"]}
        assert measured == told["gradients"]
