"""Modules of many kinds through the command line: traced, saved and estimated, or told what would do."""

from pathlib import Path

import pytest

from foretell.cli import run as main

torch = pytest.importorskip("torch")

KINDS = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Made(nn.Module):
    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def lone_module():
    return nn.Linear(16, 16)

def pair_with_a_lone_tensor():
    return nn.LSTM(16, 16, 2, bidirectional=True), torch.randn(8, 4, 16)

def pair_with_a_dict_of_meta_tensors():
    run = lambda m, x, mask: m.a(x, x, x, key_padding_mask=mask, need_weights=False)[0]
    inputs = {"x": torch.empty(2, 16, 32, device="meta")}
    inputs["mask"] = torch.empty(2, 16, dtype=torch.bool, device="meta")
    return Made(run, a=nn.MultiheadAttention(32, 4, batch_first=True)), inputs

def three_with_a_loss_of_named_inputs():
    return nn.GRU(16, 16), {"input": torch.randn(8, 4, 16)}, lambda m, input: m(input)[0].mean()

def nested_inputs():
    run = lambda m, batch, scale=2.0: m.l(batch["a"]) * scale + batch["b"][0]
    batch = {"a": torch.randn(4, 16), "b": [torch.randn(4, 16)]}
    return Made(run, l=nn.Linear(16, 16)), (batch,)

def outputs_in_a_dict():
    run = lambda m, x: {"y": m.l(x), "kl": m.l(x).exp().sum()}
    return Made(run, l=nn.Linear(16, 16)), torch.randn(4, 16)

def in_bf16():
    return nn.Linear(16, 16).bfloat16(), torch.randn(4, 16, dtype=torch.bfloat16)

def under_autocast():
    def loss(m, x):
        with torch.autocast("cuda", torch.bfloat16):
            return m(x).float().sum()
    return nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)), torch.randn(4, 16), loss

def compiled_on_cuda():
    torch.cuda.synchronize()
    return torch.compile(nn.Linear(16, 16).cuda()), torch.randn(4, 16, device="cuda")

def checkpointed():
    run = lambda m, x: checkpoint(m.l, x, use_reentrant=False)
    return Made(run, l=nn.Sequential(nn.Linear(16, 16), nn.ReLU())), torch.randn(4, 16)

def second_derivatives():
    def loss(m, x):
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return slope.pow(2).sum()
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh()), torch.randn(4, 16), loss

def unet():
    run = lambda m, x: m.up(F.silu(m.norm(m.down(x))))
    parts = {"down": nn.Conv2d(3, 16, 4, 2, 1), "norm": nn.GroupNorm(4, 16)}
    return Made(run, up=nn.ConvTranspose2d(16, 3, 4, 2, 1), **parts), torch.randn(2, 3, 16, 16)

def volumes():
    return nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), nn.MaxPool3d(2)), torch.randn(2, 3, 8, 8, 8)

def graph_of_messages():
    def run(m, x, edges):
        return torch.zeros_like(x).index_add(0, edges[1], m.l(x)[edges[0]])
    inputs = {"x": torch.randn(50, 16), "edges": torch.randint(0, 50, (2, 200))}
    return Made(run, l=nn.Linear(16, 16)), inputs

def fourier():
    run = lambda m, x: m.l(torch.fft.irfft(torch.fft.rfft(x, dim=1) * 2, dim=1))
    return Made(run, l=nn.Linear(16, 16)), torch.randn(4, 16, 16)

def own_attention_with_a_mask():
    def run(m, x, mask):
        q, k, v = m.l(x).chunk(3, -1)
        return (q @ k.mT).masked_fill(~mask, float("-inf")).softmax(-1) @ v
    return Made(run, l=nn.Linear(16, 48)), (torch.randn(2, 8, 16), torch.ones(8, 8).tril().bool())

def experts_by_masks():
    def run(m, x):
        picked, out = m.r(x).argmax(-1), torch.zeros_like(x)
        for n, expert in enumerate(m.e):
            if (picked == n).any():
                out[picked == n] = expert(x[picked == n])
        return out
    experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
    return Made(run, r=nn.Linear(16, 4), e=experts), torch.randn(64, 16)

def branches_on_numbers():
    run = lambda m, x, n: m.l(x) if torch.equal(n, n.flip(0)) else m.l(x).split(n.tolist())
    return Made(run, l=nn.Linear(16, 16)), (torch.randn(12, 16), torch.tensor([4, 8]))

def ctc():
    def loss(m, x):
        lengths = torch.full((4,), 50), torch.full((4,), 10)
        return F.ctc_loss(m(x).log_softmax(-1), torch.randint(1, 20, (4, 10)), *lengths)
    return nn.Linear(16, 20), torch.randn(50, 4, 16), loss

def buffers_that_are_written():
    def run(m, x):
        m.seen += 1
        return m.l(x)
    module = Made(run, l=nn.Linear(16, 16))
    module.register_buffer("seen", torch.zeros((), dtype=torch.long))
    return module, torch.randn(4, 16)

def einsum_and_scan():
    run = lambda m, x: torch.einsum("bsd,dk->bsk", x, m.l.weight).cumsum(1).sort(-1)[0]
    return Made(run, l=nn.Linear(16, 16)), torch.randn(2, 8, 16)

def attention_by_functions():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    def run(m, x):
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device=x.device)
        q, k, v = (one.unflatten(-1, (2, 16)).transpose(1, 2) for one in m.l(x).chunk(3, -1))
        return torch.compile(flex_attention)(q, k, v, block_mask=mask)
    return Made(run, l=nn.Linear(32, 96)), torch.randn(2, 256, 32)

def frozen():
    return nn.Linear(16, 16).requires_grad_(False), torch.randn(4, 16)

def encoder_decoder():
    return nn.Transformer(32, 4, 1, 1, 64, batch_first=True), (torch.randn(2, 8, 32), torch.randn(2, 6, 32))


def fails_lazy():
    return nn.LazyLinear(8), torch.randn(2, 4)

def fails_numpy():
    run = lambda m, x: m.l(x).detach().numpy()
    return Made(run, l=nn.Linear(16, 16)), torch.randn(4, 16)

def fails_packed():
    def run(m, x, lengths):
        return m.l(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data
    return Made(run, l=nn.LSTM(16, 16)), (torch.randn(8, 3, 16), torch.tensor([8, 6, 4]))

def fails_without_a_tensor():
    return Made(lambda m, x: "nothing"), torch.randn(4, 16)

def fails_by_itself():
    raise RuntimeError("no checkpoint here")

def fails_with_a_list():
    return [nn.Linear(16, 16), torch.randn(4, 16)]
"""
FAILING = {
    "fails_lazy": "lazy layers",
    "fails_numpy": "no numbers for NumPy",
    "fails_packed": "a result of a fixed size",
    "fails_without_a_tensor": "no tensor",
    "fails_by_itself": "no checkpoint here",
    "fails_with_a_list": "(module, inputs, loss)",
}
WORKING = [
    line.split("def ")[1].split("(")[0]
    for line in KINDS.splitlines()
    if line.startswith("def ") and "fails_" not in line
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("kinds") / "kinds_of_modules.py"
    found.write_text(KINDS, encoding="utf-8")
    return found


@pytest.mark.parametrize("name", WORKING)
def test_a_module_is_traced_saved_and_estimated(
    file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(file.with_name(f"{name}.foretell.json"))
    more = ["--inputs", "float32[4,16]", "--loss", "mean"] if name == "lone_module" else []
    assert main(["trace", f"{file}:{name}", "--save", saved, *more]) == 0, capsys.readouterr().err
    for plan in ("", "precision=bf16 compile=on"):
        asked = ["estimate", saved, "--gpus", "1xH200", "--json", "--plan", plan]
        assert main(asked) == 0, capsys.readouterr().err
        assert '"step_s"' in capsys.readouterr().out


@pytest.mark.parametrize("name", FAILING)
def test_a_module_that_cannot_be_traced_says_why(
    file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", f"{file}:{name}"]) == 2
    said = capsys.readouterr().err
    assert FAILING[name] in said
    assert "fault of foretell" not in said


def test_a_file_that_cannot_be_imported_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken_module.py"
    broken.write_text("import nothing_of_this_name\n", encoding="utf-8")
    assert main(["trace", f"{broken}:build"]) == 2
    assert "fails when it is imported: ModuleNotFoundError" in capsys.readouterr().err
