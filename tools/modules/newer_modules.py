"""Modules of kinds that no rate was fitted to, most of them compiled too: predicted before they were measured."""

import math

import torch
import torch.nn.functional as F
from bench_modules import Attention, Block, Res, classify, images, next_token
from torch import nn
from torch.utils.checkpoint import checkpoint

WORDS, TEXT = 32000, 77


class CrossBlock(nn.Module):
    """Attention of pixels, then to a text, then a gated perceptron."""

    def __init__(self, width, text):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = Attention(width, width // 64, bias=False)
        self.q, self.kv = (
            nn.Linear(width, width, bias=False),
            nn.Linear(text, 2 * width, bias=False),
        )
        self.out, self.up = nn.Linear(width, width), nn.Linear(width, 8 * width)
        self.down, self.heads = nn.Linear(4 * width, width), width // 64

    def forward(self, x, text):
        x = x + self.own(self.norms[0](x))
        q = self.q(self.norms[1](x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(text).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        a, b = self.up(self.norms[2](x)).chunk(2, -1)
        return x + self.down(a * F.gelu(b))


class Stage(nn.Module):
    """A residual convolution and blocks that look at a text."""

    def __init__(self, inputs, width, time, depth, text=1024):
        super().__init__()
        self.res, self.norm = Res(inputs, width, time), nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(CrossBlock(width, text) for _ in range(depth))

    def forward(self, x, t, text):
        x = self.res(x, t)
        if not self.blocks:
            return x
        y = self.enter(self.norm(x).flatten(2).transpose(1, 2))
        for block in self.blocks:
            y = block(y, text)
        return x + self.leave(y).transpose(1, 2).unflatten(2, x.shape[2:])


class Painter(nn.Module):
    """A U-Net of latents with the widths of those that paint a megapixel."""

    def __init__(self, widths=(320, 640, 1280), depths=(0, 2, 4), time=1280):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(320, time), nn.SiLU(), nn.Linear(time, time))
        self.enter, last, kept = nn.Conv2d(4, widths[0], 3, 1, 1), widths[0], []
        self.down, self.less, self.up, self.more = (nn.ModuleList() for _ in range(4))
        for n, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            self.down.append(Stage(last, width, time, depth))
            kept.append(width)
            last = width
            self.less.append(nn.Conv2d(width, width, 3, 2 if n < 2 else 1, 1))
        for n, depth in reversed(list(enumerate(depths))):
            self.up.append(Stage(last + kept[n], widths[n], time, depth))
            last = widths[n]
            self.more.append(nn.Conv2d(last, last, 3, 1, 1))
        self.norm, self.leave = nn.GroupNorm(32, last), nn.Conv2d(last, 4, 3, 1, 1)

    def forward(self, x, t, text):
        t, kept = self.time(t), []
        x = self.enter(x)
        for down, less in zip(self.down, self.less, strict=True):
            x = down(x, t, text)
            kept.append(x)
            x = less(x)
        for up, more in zip(self.up, self.more, strict=True):
            skip = kept.pop()
            if x.shape[-1] != skip.shape[-1]:
                x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = more(up(torch.cat([x, skip], 1), t, text))
        return self.leave(F.silu(self.norm(x)))


def painter():
    inputs = torch.randn(4, 4, 96, 96), torch.randn(4, 320), torch.randn(4, TEXT, 1024)
    return Painter(), inputs, lambda m, x, t, text: F.mse_loss(m(x, t, text).float(), x.float())


class Single(nn.Module):
    """Attention and a perceptron from one product, scaled by a condition, places rotated."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.width = heads, width
        self.shift, self.norm = (
            nn.Linear(width, 3 * width),
            nn.LayerNorm(width, elementwise_affine=False),
        )
        self.enter, self.leave = nn.Linear(width, 7 * width), nn.Linear(5 * width, width)
        self.qn, self.kn = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads)

    def forward(self, x, when, turn):
        shift, scale, gate = self.shift(F.silu(when))[:, None].chunk(3, -1)
        y = self.enter(self.norm(x) * (1 + scale) + shift)
        qkv, wide = y.split([3 * self.width, 4 * self.width], -1)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = turned(self.qn(q), turn), turned(self.kn(k), turn)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + gate * self.leave(torch.cat([y, F.gelu(wide, approximate="tanh")], -1))


def turned(x, turn):
    pair = x.float().unflatten(-1, (-1, 2))
    a, b = pair[..., 0], pair[..., 1]
    return (
        torch.stack([a * turn[0] - b * turn[1], a * turn[1] + b * turn[0]], -1)
        .flatten(-2)
        .type_as(x)
    )


class Stream(nn.Module):
    """One stream of text and image at the width of the largest open ones, blocks computed again or not."""

    def __init__(self, width=3072, heads=24, depth=5, again=False):
        super().__init__()
        self.image, self.text = nn.Linear(64, width), nn.Linear(4096, width)
        self.when, self.again = nn.Linear(256, width), again
        self.blocks = nn.ModuleList(Single(width, heads) for _ in range(depth))
        self.leave = nn.Linear(width, 64)

    def forward(self, x, text, t):
        when = self.when(t)
        y = torch.cat([self.text(text), self.image(x)], 1)
        angles = torch.arange(y.shape[1], device=y.device)[:, None] * torch.exp(
            -9.2 * torch.arange(64, device=y.device) / 64
        )
        turn = torch.stack([angles.cos(), angles.sin()])
        for block in self.blocks:
            y = (
                checkpoint(block, y, when, turn, use_reentrant=False)
                if self.again
                else block(y, when, turn)
            )
        return self.leave(y[:, text.shape[1] :])


def stream_inputs():
    return torch.randn(1, 2304, 64), torch.randn(1, 256, 4096), torch.randn(1, 256)


def paint_loss(m, x, text, t):
    return F.mse_loss(m(x, text, t).float(), x.float())


def stream():
    return Stream(), stream_inputs(), paint_loss


def stream_again():
    return Stream(depth=8, again=True), stream_inputs(), paint_loss


class Tower(nn.Module):
    """A vision tower over 27 x 27 patches, its places merged by two, before a decoder of words."""

    def __init__(self, frozen, width=1152, depth=20, words=1536, layers=10):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 14, 14)
        self.places = nn.Parameter(torch.zeros(1, 676, width))
        self.tower = nn.ModuleList(Block(width, 16) for _ in range(depth))
        self.merge = nn.Sequential(
            nn.LayerNorm(4 * width), nn.Linear(4 * width, words), nn.GELU(), nn.Linear(words, words)
        )
        self.words = nn.Embedding(WORDS, words)
        self.blocks = nn.ModuleList(Block(words, 12, causal=True) for _ in range(layers))
        self.head = nn.Linear(words, WORDS, bias=False)
        for part in (self.cut, self.tower):
            part.requires_grad_(not frozen)
        self.places.requires_grad_(not frozen)

    def forward(self, pictures, ids):
        x = self.cut(pictures).flatten(2).transpose(1, 2) + self.places
        for block in self.tower:
            x = block(x)
        x = self.merge(x.unflatten(1, (169, 4)).flatten(2))
        y = torch.cat([x, self.words(ids)], 1)
        for block in self.blocks:
            y = block(y)
        return self.head(y[:, x.shape[1] :])


def describe(m, pictures, ids):
    return F.cross_entropy(m(pictures, ids)[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())


def tower_frozen():
    return Tower(True), (torch.randn(8, 3, 364, 364), torch.randint(0, WORDS, (8, 512))), describe


def tower_trained():
    return Tower(False), (torch.randn(8, 3, 364, 364), torch.randint(0, WORDS, (8, 512))), describe


class Turned(nn.Module):
    """A decoder's layer: groups of heads, places rotated by halves, a gated perceptron."""

    def __init__(self, width, heads, groups, inner):
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.a, self.b = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * groups) * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(width, inner, bias=False),
        )
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        y = self.qkv(self.a(x)).unflatten(-1, (self.heads + 2 * self.groups, -1)).transpose(1, 2)
        q, k, v = y.split([self.heads, self.groups, self.groups], 1)
        q, k = (t * cos + torch.cat(t.chunk(2, -1)[::-1], -1) * sin for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.b(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Talker(nn.Module):
    def __init__(self, width=2048, heads=32, groups=8, inner=8192, depth=8, again=False):
        super().__init__()
        self.size, self.again = width // heads, again
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Turned(width, heads, groups, inner) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        rates = 1e-4 ** (torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = torch.arange(ids.shape[1], device=x.device)[:, None] * torch.cat([rates, rates])
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = (
                checkpoint(block, x, cos, sin, use_reentrant=False)
                if self.again
                else block(x, cos, sin)
            )
        return self.head(self.norm(x))


def talker():
    return Talker(), (torch.randint(0, WORDS, (2, 4096)),), next_token


def talker_again():
    return Talker(depth=12, again=True), (torch.randint(0, WORDS, (4, 4096)),), next_token


def talker_short():
    return Talker(768, 12, 4, 2048, 6), (torch.randint(0, WORDS, (2, 256)),), next_token


class Selective(nn.Module):
    """A state-space layer in chunks: a short convolution, decays summed within a chunk, states between them."""

    def __init__(self, width=1024, state=64, head=64, chunk=64):
        super().__init__()
        self.inner, self.state, self.head, self.chunk = 2 * width, state, head, chunk
        self.heads = self.inner // head
        self.norm = nn.RMSNorm(width)
        self.enter = nn.Linear(width, 2 * self.inner + 2 * state + self.heads, bias=False)
        self.short = nn.Conv1d(
            self.inner + 2 * state, self.inner + 2 * state, 4, 1, 3, groups=self.inner + 2 * state
        )
        self.rate, self.skip = (
            nn.Parameter(torch.zeros(self.heads)),
            nn.Parameter(torch.ones(self.heads)),
        )
        self.last, self.leave = nn.RMSNorm(self.inner), nn.Linear(self.inner, width, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        gate, wide, step = self.enter(self.norm(x)).split(
            [self.inner, self.inner + 2 * self.state, self.heads], -1
        )
        wide = F.silu(self.short(wide.transpose(1, 2))[..., :s].transpose(1, 2))
        v, k, q = wide.split([self.inner, self.state, self.state], -1)
        n, c = s // self.chunk, self.chunk
        step = F.softplus(step.float())
        v = v.view(b, n, c, self.heads, self.head)
        k, q = k.view(b, n, c, self.state), q.view(b, n, c, self.state)
        fall = (
            (-step * self.rate.float().exp())
            .view(b, n, c, self.heads)
            .permute(0, 3, 1, 2)
            .cumsum(-1)
        )
        fed = v * step.view(b, n, c, self.heads, 1).to(v.dtype)
        near = (fall[..., :, None] - fall[..., None, :]).tril().exp().tril().to(v.dtype)
        y = torch.einsum(
            "bnls,bhnls,bnshp->bnlhp", torch.einsum("bnlj,bnsj->bnls", q, k), near, fed
        )
        left = (fall[..., -1:] - fall).exp().to(v.dtype)
        states = torch.einsum("bnsj,bhns,bnshp->bnhjp", k, left, fed)
        total, state, before = fall[..., -1].exp().to(v.dtype), torch.zeros_like(states[:, 0]), []
        for i in range(n):
            before.append(state)
            state = state * total[:, :, i, None, None] + states[:, i]
        far = torch.einsum(
            "bnlj,bnhjp,bhnl->bnlhp", q, torch.stack(before, 1), fall.exp().to(v.dtype)
        )
        y = (y + far + v * self.skip[:, None].to(v.dtype)).reshape(b, s, self.inner)
        return x + self.leave(self.last(y * F.silu(gate)))


def selective():
    body = nn.Sequential(
        nn.Embedding(WORDS, 1024), *(Selective() for _ in range(6)), nn.Linear(1024, WORDS)
    )
    return body, (torch.randint(0, WORDS, (2, 2048)),), next_token


class Near(nn.Module):
    """Attention to one's own block of places and the one before, with a learned bias of the distance."""

    def __init__(self, width=768, heads=12, block=128):
        super().__init__()
        self.heads, self.block = heads, block
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Embedding(3 * block, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, w = x.shape
        n, c = s // self.block, self.block
        q, k, v = self.qkv(self.a(x)).view(b, n, c, 3, self.heads, -1).permute(3, 0, 1, 4, 2, 5)
        k, v = (torch.cat([F.pad(t, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1], t], 3) for t in (k, v))
        places = (
            torch.arange(c, device=x.device)[:, None] - torch.arange(2 * c, device=x.device) + 2 * c
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + self.bias(places).permute(
            2, 0, 1
        )
        scores = scores.masked_fill(places < c, float("-inf"))
        y = scores.softmax(-1, dtype=torch.float32).to(v.dtype) @ v
        x = x + self.out(y.transpose(2, 3).reshape(b, s, w))
        return x + self.down(F.gelu(self.up(self.b(x))))


def near():
    body = nn.Sequential(
        nn.Embedding(WORDS, 768), *(Near() for _ in range(8)), nn.Linear(768, WORDS)
    )
    return body, (torch.randint(0, WORDS, (4, 2048)),), next_token


class Choice(nn.Module):
    """Experts that choose their rows, by top-k over the tokens."""

    def __init__(self, width=1024, inner=2816, experts=16, share=4):
        super().__init__()
        self.share, self.norm = share, nn.RMSNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.gate = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x):
        y = self.norm(x).flatten(0, 1)
        scores = self.router(y).float().softmax(-1).t()
        weight, rows = scores.topk(self.share * y.shape[0] // scores.shape[0], -1)
        taken = y[rows]
        wide = F.silu(torch.bmm(taken, self.gate)) * torch.bmm(taken, self.up)
        done = torch.bmm(wide, self.down) * weight[..., None].to(y.dtype)
        found = torch.zeros_like(y).index_add(0, rows.flatten(), done.flatten(0, 1).to(y.dtype))
        return x + found.view_as(x)


def choice():
    blocks = (m for _ in range(4) for m in (Block(1024, 16, causal=True), Choice()))
    body = nn.Sequential(nn.Embedding(WORDS, 1024), *blocks, nn.Linear(1024, WORDS, bias=False))
    return body, (torch.randint(0, WORDS, (4, 1024)),), next_token


class Atoms(nn.Module):
    """Messages between near atoms: distances in radial functions, filters of a perceptron, sums by index."""

    def __init__(self, width=128, depth=5, radial=64):
        super().__init__()
        self.radial, self.kinds = radial, nn.Embedding(100, width)
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(radial, width), nn.Softplus(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.enter = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.leave = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, kinds, places, edges, molecule):
        start, end = edges
        far = (places[start] - places[end]).norm(dim=-1)
        centres = torch.linspace(0, 5, self.radial, device=far.device)
        shape = torch.exp(-10.0 * (far[:, None] - centres) ** 2)
        x = self.kinds(kinds)
        for filters, enter, leave in zip(self.filters, self.enter, self.leave, strict=True):
            sent = enter(x)[start] * filters(shape)
            x = x + leave(torch.zeros_like(x).index_add(0, end, sent))
        return (
            torch.zeros(512, 1, device=x.device)
            .index_add(0, molecule, self.head(x).float())
            .squeeze(1)
        )


def atoms():
    inputs = (torch.randint(0, 100, (10240,)), torch.randn(10240, 3), torch.randint(0, 10240, (2, 204800)),
              torch.arange(512).repeat_interleave(20))  # fmt: skip
    return Atoms(), inputs, lambda m, *given: m(*given).square().mean()


class Pairs(nn.Module):
    """Sums over triangles of a map of pairs, then attention along its rows with a bias."""

    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.ab, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 3 * width)
        self.out, self.qkv = nn.Linear(width, width), nn.Linear(width, 3 * width, bias=False)
        self.bias, self.gate, self.last = (
            nn.Linear(width, heads, bias=False),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norms[0](x)
        gates = torch.sigmoid(self.gates(y)).chunk(3, -1)
        a, b = self.ab(y).chunk(2, -1)
        y = torch.einsum("bikc,bjkc->bijc", a * gates[0], b * gates[1])
        x = x + self.out(self.norms[1](y)) * gates[2]
        y = self.norms[2](x)
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        bias = self.bias(y).permute(0, 3, 1, 2)[:, None]
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias).softmax(-1)
        y = (scores @ v).transpose(2, 3).flatten(3)
        x = x + self.last(y * torch.sigmoid(self.gate(x)))
        return x + self.down(F.relu(self.up(self.norms[3](x))))


def pairs():
    return (
        nn.Sequential(*(Pairs() for _ in range(4))),
        (torch.randn(1, 256, 256, 128),),
        lambda m, x: m(x).float().square().mean(),
    )


class Writer(nn.Module):
    """Three recurrent layers, words tied at both ends, dropout between."""

    def __init__(self, kind=nn.LSTM, width=1152, layers=3):
        super().__init__()
        self.words, self.drop = nn.Embedding(WORDS, width), nn.Dropout(0.3)
        self.layers = kind(width, width, layers, batch_first=True, dropout=0.2)
        self.head = nn.Linear(width, WORDS)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.drop(self.layers(self.drop(self.words(ids)))[0]))


def writer():
    return Writer(), (torch.randint(0, WORDS, (80, 70)),), next_token


def writer_gru():
    return Writer(nn.GRU, 768, 2), (torch.randint(0, WORDS, (24, 160)),), next_token


class Long(nn.Module):
    """Convolutions as long as the sequence, by Fourier transforms, between gates."""

    def __init__(self, width=512, length=4096):
        super().__init__()
        self.norm, self.enter, self.leave = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.short = nn.Conv1d(3 * width, 3 * width, 3, 1, 2, groups=3 * width)
        self.kernel = nn.Parameter(torch.randn(width, length) * 0.02)
        self.b, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        s = x.shape[1]
        a, b, v = self.short(self.enter(self.norm(x)).transpose(1, 2))[..., :s].chunk(3, 1)
        y = torch.fft.rfft((v * b).float(), n=2 * s) * torch.fft.rfft(self.kernel.float(), n=2 * s)
        y = torch.fft.irfft(y, n=2 * s)[..., :s].to(a.dtype) * a
        x = x + self.leave(y.transpose(1, 2))
        return x + self.down(F.gelu(self.up(self.b(x))))


def long():
    body = nn.Sequential(
        nn.Embedding(WORDS, 512), *(Long() for _ in range(6)), nn.Linear(512, WORDS)
    )
    return body, (torch.randint(0, WORDS, (2, 4096)),), next_token


def player():
    """A few convolutions and a value of each action: a host's work alone."""
    body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
                         nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 18))  # fmt: skip
    return body, (torch.randn(32, 4, 84, 84), torch.randint(0, 18, (32,))), classify


class Plain(nn.Module):
    """Two convolutions of three by three with a shortcut."""

    def __init__(self, size, out, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(size, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                                  nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))  # fmt: skip
        self.short = nn.Conv2d(size, out, 1, stride, bias=False) if size != out else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def small_images():
    sizes = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *(Plain(*s) for s in sizes),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))  # fmt: skip


def cifar():
    return small_images(), images(256, 32, 100), classify


def cifar_last():
    x, y = images(256, 32, 100)
    return (
        small_images().to(memory_format=torch.channels_last),
        (x.contiguous(memory_format=torch.channels_last), y),
        classify,
    )


class Dense(nn.Module):
    """Each layer sees all before it."""

    def __init__(self, growth=32, layers=(6, 12, 16)):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        self.parts, self.cuts, size = nn.ModuleList(), nn.ModuleList(), 64
        for many in layers:
            part = nn.ModuleList()
            for _ in range(many):
                part.append(nn.Sequential(nn.BatchNorm2d(size), nn.ReLU(), nn.Conv2d(size, 4 * growth, 1, bias=False),
                                          nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)))  # fmt: skip
                size += growth
            self.parts.append(part)
            self.cuts.append(
                nn.Sequential(
                    nn.BatchNorm2d(size),
                    nn.ReLU(),
                    nn.Conv2d(size, size // 2, 1, bias=False),
                    nn.AvgPool2d(2),
                )
            )
            size //= 2
        self.head = nn.Linear(size, 1000)

    def forward(self, x):
        x = self.first(x)
        for part, cut in zip(self.parts, self.cuts, strict=True):
            for layer in part:
                x = torch.cat([x, layer(x)], 1)
            x = cut(x)
        return self.head(x.mean((2, 3)))


def dense():
    return Dense(), images(64), classify


class Separate(nn.Module):
    """Sound through strided convolutions, a recurrent middle, and back."""

    def __init__(self, width=48, depth=5):
        super().__init__()
        self.down, self.up, size = nn.ModuleList(), nn.ModuleList(), 2
        for n in range(depth):
            out = width << n
            self.down.append(
                nn.Sequential(
                    nn.Conv1d(size, out, 8, 4, 2), nn.ReLU(), nn.Conv1d(out, 2 * out, 1), nn.GLU(1)
                )
            )
            self.up.insert(
                0,
                nn.Sequential(
                    nn.Conv1d(out, 2 * out, 3, 1, 1),
                    nn.GLU(1),
                    nn.ConvTranspose1d(out, size if n else 8, 8, 4, 2),
                ),
            )
            size = out
        self.middle, self.back = (
            nn.LSTM(size, size, 2, bidirectional=True, batch_first=True),
            nn.Linear(2 * size, size),
        )

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
        x = self.back(self.middle(x.transpose(1, 2))[0]).transpose(1, 2)
        for n, up in enumerate(self.up):
            x = up(x + kept.pop())
            x = F.relu(x) if n + 1 < len(self.up) else x
        return x


def separate():
    return Separate(), (torch.randn(8, 2, 131072),), lambda m, x: m(x).float().abs().mean()


class Sharper(nn.Module):
    """Convolutions at full size, pixels shuffled to twice that."""

    def __init__(self, width=128, depth=12):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.body = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)
            )
            for _ in range(depth)
        )
        self.more = nn.Sequential(nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, x):
        x = self.enter(x)
        for body in self.body:
            x = x + 0.1 * body(x)
        return self.leave(self.more(x))


def sharper():
    inputs = torch.randn(16, 3, 64, 64), torch.randn(16, 3, 128, 128)
    return Sharper(), inputs, lambda m, x, y: F.l1_loss(m(x).float(), y.float())


class Field(nn.Module):
    """A perceptron over points in space, their coordinates as waves, summed along rays."""

    def __init__(self, width=256, depth=8):
        super().__init__()
        self.enter = nn.Linear(63, width)
        self.layers = nn.ModuleList(
            nn.Linear(width + (63 if n == 4 else 0), width) for n in range(depth)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        waves = x[..., None] * 2.0 ** torch.arange(10, device=x.device)
        rows = torch.cat([x, waves.sin().flatten(-2), waves.cos().flatten(-2)], -1)
        y = F.relu(self.enter(rows))
        for n, layer in enumerate(self.layers):
            y = F.relu(layer(torch.cat([y, rows], -1) if n == 4 else y))
        found = self.head(y)
        thick = F.relu(found[..., 3])
        left = torch.cumsum(thick, -1)
        weight = torch.exp(thick - left) * (1 - torch.exp(-thick))
        return (weight[..., None] * torch.sigmoid(found[..., :3])).sum(-2)


def field():
    inputs = torch.randn(2048, 96, 3), torch.rand(2048, 3)
    return Field(), inputs, lambda m, x, y: F.mse_loss(m(x).float(), y.float())


class Clips(nn.Module):
    """Videos: convolutions over the picture, then over time."""

    def __init__(self, widths=(64, 128, 256)):
        super().__init__()
        parts, size = [], 3
        for n, width in enumerate(widths):
            step = 1 if n == 0 else 2
            parts += [nn.Conv3d(size, width, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False), nn.BatchNorm3d(width), nn.ReLU(),
                      nn.Conv3d(width, width, (3, 1, 1), (step, 1, 1), (1, 0, 0), bias=False), nn.BatchNorm3d(width), nn.ReLU()]  # fmt: skip
            size = width
        self.body, self.head = nn.Sequential(*parts), nn.Linear(size, 400)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3, 4)))


def clips():
    return Clips(), (torch.randn(16, 3, 16, 112, 112), torch.randint(0, 400, (16,))), classify


class Twin(nn.Module):
    """Two small encoders whose outputs should agree."""

    def __init__(self, width=384):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 6, 4 * width, 0.1, "gelu", batch_first=True)
            for _ in range(6)
        )
        self.scale = nn.Parameter(torch.zeros(()))

    def side(self, ids):
        x, empty = self.words(ids), ids == 0
        for block in self.blocks:
            x = block(x, src_key_padding_mask=empty)
        return F.normalize(x.mean(1), dim=-1)

    def forward(self, a, b):
        return self.side(a) @ self.side(b).t() * self.scale.exp()


def twin():
    def loss(m, a, b):
        scores = m(a, b).float()
        return F.cross_entropy(scores, torch.arange(scores.shape[0], device=scores.device))

    return Twin(), (torch.randint(0, WORDS, (128, 64)), torch.randint(0, WORDS, (128, 64))), loss


CASES = [
    ("painter", "bf16", 0, 1, "foreach"),
    ("painter", "autocast", 0, 1, "fused"),
    ("painter", "bf16", 1, 1, "fused"),
    ("stream", "bf16", 0, 1, "fused"),
    ("stream", "bf16", 1, 1, "fused"),
    ("stream_again", "bf16", 0, 1, "foreach"),
    ("tower_frozen", "bf16", 0, 1, "foreach"),
    ("tower_frozen", "autocast", 1, 1, "fused"),
    ("tower_trained", "autocast", 0, 1, "fused"),
    ("talker", "bf16", 0, 1, "fused"),
    ("talker", "bf16", 1, 1, "foreach"),
    ("talker", "fp16", 0, 2, "foreach"),
    ("talker_again", "bf16", 0, 1, "fused"),
    ("talker_short", "bf16", 0, 1, "foreach"),
    ("talker_short", "autocast", 1, 1, "fused"),
    ("selective", "bf16", 0, 1, "foreach"),
    ("selective", "bf16", 1, 1, "fused"),
    ("near", "bf16", 0, 1, "foreach"),
    ("near", "autocast", 1, 1, "foreach"),
    ("choice", "bf16", 0, 1, "foreach"),
    ("choice", "autocast", 0, 2, "fused"),
    ("choice", "bf16", 1, 1, "foreach"),
    ("atoms", "fp32", 0, 1, "foreach"),
    ("atoms", "fp32", 1, 1, "foreach"),
    ("pairs", "bf16", 0, 1, "foreach"),
    ("pairs", "fp32", 0, 1, "foreach"),
    ("pairs", "bf16", 1, 1, "foreach"),
    ("writer", "fp32", 0, 1, "sgd"),
    ("writer", "autocast", 0, 1, "foreach"),
    ("writer_gru", "bf16", 0, 1, "foreach"),
    ("long", "autocast", 0, 1, "foreach"),
    ("long", "fp32", 0, 1, "fused"),
    ("player", "fp32", 0, 1, "foreach"),
    ("player", "fp32", 0, 1, "loop"),
    ("player", "fp32", 1, 1, "fused"),
    ("cifar", "fp32", 0, 1, "sgd"),
    ("cifar", "autocast", 1, 1, "sgd"),
    ("cifar_last", "autocast", 0, 1, "sgd"),
    ("dense", "autocast", 0, 1, "foreach"),
    ("dense", "fp32", 1, 1, "foreach"),
    ("separate", "fp32", 0, 1, "foreach"),
    ("sharper", "fp32", 0, 1, "foreach"),
    ("sharper", "bf16", 1, 1, "foreach"),
    ("field", "tf32", 0, 1, "foreach"),
    ("field", "fp32", 1, 1, "foreach"),
    ("clips", "autocast", 0, 1, "foreach"),
    ("twin", "autocast", 0, 1, "foreach"),
    ("twin", "fp32", 1, 1, "foreach"),
]
