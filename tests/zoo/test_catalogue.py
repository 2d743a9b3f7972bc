"""Every model of the catalogue as a real module, on torch's meta device: shapes without memory.

A fixed tenth runs always, all of them with `--full`.
"""

import pytest

from foretell.catalog.model_names import model_entries
from foretell.catalog.models import model
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, DeltaNet, Mamba2
from foretell.specs.model import Embedding, Layer, Model
from foretell.workload.build import build
from foretell.workload.parameters import count
from tests.workload.counting import matrix_flop, unread_states_flop

torch = pytest.importorskip("torch", reason="torch is not installed: there are no modules to build")
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from foretell import zoo  # noqa: E402

IDS = [entry.id for entry in model_entries()]
TIMED = [
    "bert-base",
    "gemma-3-1b",
    "mamba2-130m",
    "opt-350m",
    "qwen3-0.6b",
    "t5-base",
    "whisper-large-v3-turbo",
]
"""Those of which the FLOPs are counted in every run: one of each kind that is quick."""


def mixed(ids: list[str], always: list[str]) -> list[object]:
    """All ids, of which only `always` run without `--full`."""
    return [i if i in always else pytest.param(i, marks=pytest.mark.full) for i in ids]


def on_meta(record: Model) -> object:
    with torch.device("meta"):
        return zoo.build(record)


def layers_of(record: Model) -> tuple[Layer, ...]:
    return record.stack.layers + (record.prediction.layers if record.prediction else ())


@pytest.mark.parametrize("name", mixed(IDS, IDS[::10]))
def test_weights_equal_the_modules(name: str) -> None:
    record = model(name)
    attention = [m for la in layers_of(record) for m in la.mixers if isinstance(m, Attention)]
    if any(m.compress_ratio is not None for m in attention):
        pytest.skip("the zoo has no attention over merged keys")
    weights = sum(p.numel() for p in on_meta(record).parameters())
    assert count(record).total == weights + sum(tower.parameters for tower in record.towers)


@pytest.mark.parametrize("name", mixed(IDS, TIMED))
def test_flops_equal_torchs(name: str) -> None:
    """Separate products, whole squares; two chunks where a recurrence runs in chunks."""
    record = model(name)
    layers = layers_of(record)
    if any(isinstance(layer.ffn, Experts) for layer in layers):
        pytest.skip("experts choose by value, which the meta device has not")
    if any(layer.projections for layer in layers):
        pytest.skip("the zoo counts further maps of a layer but cannot run them")
    mixers = [m for layer in layers for m in layer.mixers]
    length = 2 * max((m.chunk for m in mixers if isinstance(m, Mamba2 | DeltaNet)), default=24)
    module = on_meta(record)
    given = [_input(record.embedding, record.stack.hidden, length)]
    if record.encoder is not None:
        own = record.encoder_embedding or record.embedding
        given.append(_input(own, record.encoder.hidden, length))
    with FlopCounterMode(display=False) as counter:
        total = module(*given).total()
    forward = _products(counter)
    with FlopCounterMode(display=False) as counter:
        total.backward()
    backward = _products(counter) + unread_states_flop(record, 2)
    graph = build(record, batch=2.0, seq_len=float(length), target_len=float(length), flash=False)
    assert (forward, backward) == matrix_flop(graph)


def _input(embedding: Embedding, hidden: int, length: int) -> object:
    """Ids, patches, frames (three of which a first map takes at once) or states."""
    if embedding.vocab:
        return torch.zeros(2, length, dtype=torch.long, device="meta")
    width = embedding.patch_inputs or hidden
    if embedding.projections and not embedding.patch_inputs:
        width = embedding.projections[0].inputs // 3
    return torch.zeros(2, length, width, device="meta", requires_grad=True)


def _products(counter: object) -> int:
    counts = counter.get_flop_counts()["Global"]
    return sum(n for op, n in counts.items() if "convolution" not in str(op))
