"""The modules compute what their names say: fast forms against plain recurrences and other
orders."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from foretell.specs.mixers import Attention
from tests.workload.models import ALL, BOTH, DECODERS, DELTA, ENCODERS, EXPERTS, KIMI, LATENT, MAMBA

torch = pytest.importorskip("torch", reason="torch is not installed: there are no modules to build")
from foretell import zoo  # noqa: E402
from foretell.zoo.attention import SoftmaxAttention  # noqa: E402
from foretell.zoo.feedforward import MixtureOfExperts  # noqa: E402
from foretell.zoo.latent import MultiHeadLatent  # noqa: E402
from foretell.zoo.layers import Carry, Options  # noqa: E402
from foretell.zoo.recurrent import (  # noqa: E402
    CausalConvolution,
    DeltaNetMixer,
    Mamba2Mixer,
    delta_rule,
    ssd,
)

HIDDEN = 40


@pytest.fixture(autouse=True)
def _double() -> object:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def close(a: object, b: object) -> bool:
    return torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [1, 7, 16, 21])
@pytest.mark.parametrize("size", [1, 4, 8])
def test_chunked_state_space_equals_its_recurrence(length: int, size: int) -> None:
    batch, heads, groups, p, n = 2, 6, 2, 3, 5
    x = torch.randn(batch, length, heads, p)
    log_decay = -torch.rand(batch, length, heads)
    b, c = torch.randn(2, batch, length, groups, n)
    state, out = torch.zeros(batch, heads, n, p), []
    for t in range(length):
        wide_b, wide_c = (v[:, t].repeat_interleave(heads // groups, dim=1) for v in (b, c))
        state = log_decay[:, t].exp()[..., None, None] * state
        state = state + wide_b[..., None] * x[:, t, :, None, :]
        out.append((wide_c[..., None] * state).sum(dim=-2))
    assert close(ssd(x, log_decay, b, c, size), torch.stack(out, dim=1))


@pytest.mark.parametrize("length", [1, 7, 16, 21])
@pytest.mark.parametrize("channels", [False, True])
def test_chunked_delta_rule_equals_its_recurrence(length: int, channels: bool) -> None:
    batch, heads, d, e = 2, 3, 5, 4
    q, k = torch.nn.functional.normalize(torch.randn(2, batch, length, heads, d), dim=-1)
    v = torch.randn(batch, length, heads, e)
    beta = torch.rand(batch, length, heads)
    log_decay = -torch.rand(batch, length, heads, d if channels else 1)
    state, out = torch.zeros(batch, heads, d, e), []
    for t in range(length):
        state = log_decay[:, t].exp()[..., None] * state
        error = v[:, t] - (k[:, t, :, :, None] * state).sum(dim=-2)
        state = state + beta[:, t, :, None, None] * k[:, t, :, :, None] * error[:, :, None, :]
        out.append((q[:, t, :, :, None] * state).sum(dim=-2))
    assert close(delta_rule(q, k, v, beta, log_decay, 8), torch.stack(out, dim=1))


@pytest.mark.parametrize("spec", [DELTA, KIMI])
def test_gradients_of_the_delta_rule(spec: object) -> None:
    """The hand-written gradient of the triangular inverse, against differences."""
    mixer = DeltaNetMixer(replace(spec, chunk=4), 4)
    x = torch.randn(1, 6, 4, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: mixer(t, Carry()), (x,), eps=1e-6, atol=1e-6)


def test_absorbed_and_expanded_latent_attention_agree() -> None:
    module = MultiHeadLatent(LATENT, HIDDEN, Options())
    x = torch.randn(2, 9, HIDDEN)
    expanded = module(x, Carry())
    module.absorbed = True
    assert close(module(x, Carry()), expanded)


@pytest.mark.parametrize(
    "name", ["mha, gelu, layer norm, positions, tied", "gqa, swiglu, rms norm"]
)
def test_fused_attention_agrees(name: str) -> None:
    plain, fused = zoo.build(DECODERS[name]), zoo.build(DECODERS[name], fused=True)
    fused.load_state_dict(plain.state_dict())
    tokens = torch.randint(0, 50, (2, 12))
    assert close(plain(tokens).scores, fused(tokens).scores)


def test_an_indexer_that_keeps_all_keys_changes_nothing() -> None:
    spec = DECODERS["attention with an indexer"].stack.layers[0].mixers[0]
    assert isinstance(spec, Attention)
    assert spec.indexer is not None
    x = torch.randn(2, 9, HIDDEN)
    sparse = SoftmaxAttention(
        replace(spec, indexer=replace(spec.indexer, top_k=100)), HIDDEN, Options()
    )
    dense = SoftmaxAttention(replace(spec, indexer=None), HIDDEN, Options())
    dense.load_state_dict(sparse.state_dict(), strict=False)
    assert close(sparse(x, Carry()), dense(x, Carry()))
    few = SoftmaxAttention(replace(spec, indexer=replace(spec.indexer, top_k=2)), HIDDEN, Options())
    few.load_state_dict(sparse.state_dict())
    carry = Carry()
    assert not close(few(x, carry), dense(x, Carry()))
    assert carry.choice.sum(dim=-1).max() == 2


def test_experts_equal_a_sum_over_all_of_them() -> None:
    """With every expert chosen, the mixture is a weighted sum of dense parts."""
    spec = replace(EXPERTS, top_k=EXPERTS.experts)
    module = MixtureOfExperts(spec, HIDDEN)
    x = torch.randn(6, HIDDEN)
    weights = module.router(x).softmax(dim=-1)
    total = torch.zeros_like(x)
    for i in range(spec.experts):
        first, second = (x @ module.up[i].T).chunk(2, dim=-1)
        inner = torch.nn.functional.silu(first) * second
        total = total + weights[:, i, None] * (inner @ module.down[i].T)
    assert close(module(x), total)


@pytest.mark.parametrize(
    "make", [lambda: Mamba2Mixer(MAMBA, HIDDEN), lambda: DeltaNetMixer(DELTA, HIDDEN)]
)
def test_recurrent_mixers_do_not_see_the_future(make: object) -> None:
    mixer = make()
    x = torch.randn(1, 20, HIDDEN)
    changed = x.clone()
    changed[:, 11:] += 1.0
    before, after = mixer(x, Carry()), mixer(changed, Carry())
    assert close(before[:, :11], after[:, :11])
    assert not close(before[:, 11:], after[:, 11:])


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_do_not_see_the_future(name: str) -> None:
    module = zoo.build(DECODERS[name])
    tokens = torch.randint(0, 50, (1, 16))
    changed = tokens.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % 50
    before, after = module(tokens).scores, module(changed).scores
    assert close(before[:, :10], after[:, :10])
    assert not close(before[:, 10:], after[:, 10:])


def test_encoders_see_everything() -> None:
    module = zoo.build(ENCODERS["bert"])
    tokens = torch.randint(0, 50, (1, 16))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 50
    assert not close(module(tokens).scores[:, 0], module(changed).scores[:, 0])


def test_decoders_read_their_source() -> None:
    module = zoo.build(BOTH["shared table"])
    tokens, source = torch.randint(0, 50, (1, 5)), torch.randint(0, 50, (1, 7))
    other = (source + 1) % 50
    assert not close(module(tokens, source).scores, module(tokens, other).scores)


def test_convolution_is_causal_and_its_taps_are_in_order() -> None:
    conv = CausalConvolution(1, 3, bias=False)
    with torch.no_grad():
        conv.conv.weight[:] = torch.tensor([[[0.0, 0.0, 1.0]]])
    x = torch.randn(1, 5, 1)
    assert close(conv(x), torch.nn.functional.silu(x))


@pytest.mark.parametrize("name", ALL)
def test_every_weight_that_is_used_gets_a_gradient(name: str) -> None:
    model = ALL[name]
    module = zoo.build(model)
    long, short = torch.randint(0, 50, (2, 16)), torch.randint(0, 50, (2, 9))
    if name == "vit":
        long = torch.randn(2, 16, 27)
    inputs = (long,) if model.encoder is None else (short, long)
    if name == "own frames and width":
        inputs = (short, torch.randn(2, 16, 33))
    module(*inputs).total().backward()
    unused = {n for n, p in module.named_parameters() if p.grad is None}
    assert all(n.rsplit(".", 1)[-1] == "spare" for n in unused)


def test_torch_is_imported_on_use_alone(root: Path) -> None:
    code = "import sys, foretell.zoo; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run([sys.executable, "-c", code], check=False, env=environment)
    assert done.returncode == 0
