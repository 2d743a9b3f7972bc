"""A block is one file: how it is found, told in TOML, and refused."""

import sys
import tomllib
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.interop.own_model import read_table
from foretell.workload.blocks import block_kinds
from foretell.workload.blocks.gated_attention import GatedAttention
from foretell.workload.blocks.soft_positions import SoftPositions
from foretell.workload.graph import Tokens

TEXT = """
family = "transformer"
kind = "decoder"
max_positions = 64
embedding = {{ vocab = 54, block = {{ kind = "h-softpos"{soft} }} }}
head = {{ outputs = 54 }}

[stack]
hidden = 36

[[stack.layers]]
mixers = [{{ kind = "{mixer}", heads = 4{chain} }}]
"""


def read(soft: str = "", mixer: str = "gated-attention", chain: str = "") -> object:
    table = tomllib.loads(TEXT.format(soft=soft, mixer=mixer, chain=chain))
    return read_table(table, id="toy")


def test_every_file_is_a_kind(root: Path) -> None:
    files = {p.stem for p in (root / "src/foretell/workload/blocks").glob("*.py")} - {"__init__"}
    assert {record.__module__.rsplit(".", 1)[-1] for record in block_kinds().values()} == files


def test_blocks_are_read_from_toml() -> None:
    model = read(", levels = 3")
    assert model.embedding.block == SoftPositions(levels=3)
    assert model.stack.layers[0].mixers == (GatedAttention(heads=4),)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mixer": "gated-atention"}, "gated-attention"),
        ({"mixer": "tensor-chain"}, "unknown"),  # a map is no mixer
        ({"soft": ", level = 3"}, "levels"),
        ({"chain": ', factor = { kind = "tensor-chain", length = 5 }'}, "2, 3"),
        ({"chain": ', factor = { kind = "tensor-chain", ratio = -1.0 }'}, "above 0"),
        ({"chain": ', factor = { kind = "tensor-chain", ratio = "a" }'}, "above 0"),
        ({"chain": ', factor = { kind = "tensor-chain", form = "both" }'}, "contract"),
    ],
)
def test_mistakes_are_named(change: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(**change)


def test_levels_must_share_the_width() -> None:
    with pytest.raises(BadInput, match="36"):
        SoftPositions(levels=5).graph(54, 36, Tokens(batch=1.0, q_len=1.0, kv_len=1.0))


def test_reading_a_plain_model_loads_no_block() -> None:
    """Blocks are looked for where a kind is not one of the core's."""
    import subprocess

    code = (
        "import sys; from foretell.catalog.models import model; model('transformer-base');"
        "sys.exit(any(m.startswith('foretell.workload.blocks.') for m in sys.modules))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env={"PYTHONPATH": str(root / "src")}
    )
    assert done.returncode == 0


def test_soft_positions_are_the_formula() -> None:
    """Two levels by hand: the convolution reads positions t, t - 1, t - 2, and nothing after t."""
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from foretell.zoo.layers import sines

    torch.manual_seed(0)
    module = SoftPositions(levels=2).module(50, 12).double()
    ids = torch.randint(0, 50, (2, 7))
    out = module(ids)
    x = 3**0.5 * module["table"](ids)
    x = x + sines(x)
    assert torch.allclose(out[..., :3], x)
    assert torch.allclose(out[..., 3:6], x.softmax(-1) @ module["choice0"])
    weight, bias = module["convolution1"].weight, module["convolution1"].bias
    for t in range(7):
        taps = [x[:, t - back] if t >= back else torch.zeros_like(x[:, 0]) for back in (2, 1, 0)]
        assert torch.allclose(out[:, t, 6:9], torch.cat(taps, -1) @ weight.T + bias)
    assert torch.allclose(out[..., 9:], out[..., 6:9].softmax(-1) @ module["choice1"])
    square = module["choice0"] @ module["choice0"].T
    assert torch.allclose(square, torch.eye(3, dtype=torch.float64), atol=1e-6)


def test_gated_attention_is_the_formula() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    from foretell.zoo.layers import Carry, Options

    torch.manual_seed(0)
    module = GatedAttention(heads=2, causal=False, cross=True).module(6, Options()).double()
    x, states = (torch.randn(1, n, 6, dtype=torch.float64) for n in (3, 4))
    out = module(x, Carry(states=states))
    queries = module["q"](x)
    values = module["v"](states * torch.sigmoid(module["gate"](states)))
    heads = []
    for head in (slice(0, 3), slice(3, 6)):
        scores = queries[..., head] @ states[..., head].transpose(1, 2) / 3**0.5
        heads.append(scores.softmax(-1) @ values[..., head])
    assert torch.allclose(out, module["o"](torch.cat(heads, -1)))


def test_cached_values_of_decode_take_no_work() -> None:
    mixer = GatedAttention(heads=4, causal=False, cross=True)
    tokens = Tokens(batch=2.0, q_len=1.0, kv_len=9.0, cross_len=11.0)
    training = mixer.graph(36, tokens)
    decode = mixer.graph(
        36, Tokens(batch=2.0, q_len=1.0, kv_len=9.0, cross_len=11.0, phase="decode")
    )
    assert sum(float(op.parameters) for op in training.ops) == sum(
        float(op.parameters) for op in decode.ops
    )
    names = {op.name for op in decode.ops if float(op.forward().matrix_flop) > 0.0}
    assert names == {"cross.q", "cross.core", "cross.o"}
