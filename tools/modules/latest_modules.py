"""Modules predicted by the version that had learnt from all others, then measured."""

import torch
import torch.nn.functional as F
from bench_modules import Block, classify, images, next_token
from newer_modules import WORDS, Turned
from torch import nn
from torch.utils.checkpoint import checkpoint


class Volume(nn.Module):
    """A U-Net over volumes, normed one by one."""

    def __init__(self, widths=(24, 48, 96)):
        super().__init__()
        self.down, self.up, size = nn.ModuleList(), nn.ModuleList(), 1
        for width in widths:
            self.down.append(self.pair(size, width))
            size = width
        for width in widths[-2::-1]:
            self.up.append(
                nn.ModuleList([nn.ConvTranspose3d(size, width, 2, 2), self.pair(2 * width, width)])
            )
            size = width
        self.head = nn.Conv3d(size, 4, 1)

    @staticmethod
    def pair(size, width):
        return nn.Sequential(nn.Conv3d(size, width, 3, 1, 1), nn.InstanceNorm3d(width, affine=True), nn.LeakyReLU(),
                             nn.Conv3d(width, width, 3, 1, 1), nn.InstanceNorm3d(width, affine=True), nn.LeakyReLU())  # fmt: skip

    def forward(self, x):
        kept = []
        for n, down in enumerate(self.down):
            x = down(F.max_pool3d(x, 2) if n else x)
            kept.append(x)
        kept.pop()
        for more, join in self.up:
            x = join(torch.cat([more(x), kept.pop()], 1))
        return self.head(x)


def volume():
    inputs = torch.randn(2, 1, 64, 96, 96), torch.randint(0, 4, (2, 64, 96, 96))
    return Volume(), inputs, lambda m, x, y: F.cross_entropy(m(x).float(), y)


class Codes(nn.Module):
    """An autoencoder of pictures whose middle is the nearest of 1,024 vectors."""

    def __init__(self, width=128):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.SiLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.SiLU(),
                                  nn.Conv2d(2 * width, 256, 3, 1, 1))  # fmt: skip
        self.codes = nn.Embedding(1024, 256)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(256, width, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )

    def forward(self, x):
        z = self.down(x)
        rows = z.permute(0, 2, 3, 1).flatten(0, 2)
        far = (
            rows.pow(2).sum(1, keepdim=True)
            - 2 * rows @ self.codes.weight.t()
            + self.codes.weight.pow(2).sum(1)
        )
        near = self.codes(far.argmin(1)).view(z.shape[0], *z.shape[2:], -1).permute(0, 3, 1, 2)
        return self.up(z + (near - z).detach()), (near - z.detach()).pow(2).mean() + (
            near.detach() - z
        ).pow(2).mean()


def codes():
    def loss(m, x):
        y, extra = m(x)
        return F.mse_loss(y.float(), x.float()) + extra

    return Codes(), (torch.randn(32, 3, 128, 128),), loss


class Points(nn.Module):
    """Points in space: the nearest sixteen of each, perceptrons over them, their largest."""

    def __init__(self, widths=(64, 128, 256)):
        super().__init__()
        self.layers, size = nn.ModuleList(), 3
        for width in widths:
            self.layers.append(
                nn.Sequential(nn.Linear(2 * size, width), nn.ReLU(), nn.Linear(width, width))
            )
            size = width
        self.head = nn.Linear(size, 40)

    def forward(self, x):
        near = torch.cdist(x, x).topk(16, -1, largest=False)[1]
        rows = torch.arange(x.shape[0], device=x.device)[:, None, None]
        for layer in self.layers:
            other = x[rows, near]
            x = layer(torch.cat([x[:, :, None].expand_as(other), other - x[:, :, None]], -1)).amax(
                2
            )
        return self.head(x.mean(1))


def points():
    return Points(), (torch.randn(16, 1024, 3), torch.randint(0, 40, (16,))), classify


class Maker(nn.Module):
    """Pictures from noise, by transposed convolutions."""

    def __init__(self, width=64):
        super().__init__()
        sizes = [128, 8 * width, 4 * width, 2 * width, width]
        parts = [nn.ConvTranspose2d(128, 8 * width, 4, 1, 0), nn.BatchNorm2d(8 * width), nn.ReLU()]
        for a, b in zip(sizes[1:], sizes[2:], strict=False):
            parts += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
        self.body = nn.Sequential(*parts, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x):
        return self.body(x)


def maker():
    return Maker(), (torch.randn(128, 128, 1, 1),), lambda m, x: m(x).float().square().mean()


class Mixed(nn.Module):
    """Places mixed with those before them and decayed sums, without attention."""

    def __init__(self, width=768):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.share = nn.Parameter(torch.rand(3, width))
        self.k, self.v, self.r = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        y = self.a(x)
        before = F.pad(y, (0, 0, 1, -1))
        k, v, r = (y * s + before * (1 - s) for s in self.share)
        k = torch.exp(self.k(k).float().clamp(max=10.0))
        total = torch.cumsum(k * self.v(v).float(), 1) / (torch.cumsum(k, 1) + 1e-6)
        x = x + self.out(torch.sigmoid(self.r(r)) * total.to(x.dtype))
        return x + self.down(F.relu(self.up(self.b(x))).square())


def mixed():
    body = nn.Sequential(
        nn.Embedding(WORDS, 768), *(Mixed() for _ in range(10)), nn.Linear(768, WORDS)
    )
    return body, (torch.randint(0, WORDS, (4, 1024)),), next_token


class Steps(nn.Module):
    """A recurrent cell that looks at an encoder's rows at every step."""

    def __init__(self, width=512):
        super().__init__()
        self.words, self.enter = (
            nn.Embedding(8000, width),
            nn.GRU(width, width // 2, 1, batch_first=True, bidirectional=True),
        )
        self.cell, self.query, self.head = (
            nn.GRUCell(2 * width, width),
            nn.Linear(width, width),
            nn.Linear(width, 8000),
        )

    def forward(self, source, target):
        rows = self.enter(self.words(source))[0]
        state, out = rows[:, 0], []
        for x in self.words(target).unbind(1):
            weight = (rows @ self.query(state)[..., None]).softmax(1)
            state = self.cell(torch.cat([x, (weight * rows).sum(1)], -1), state)
            out.append(state)
        return self.head(torch.stack(out, 1))


def steps():
    inputs = torch.randint(0, 8000, (32, 60)), torch.randint(0, 8000, (32, 40))
    return (
        Steps(),
        inputs,
        lambda m, x, y: F.cross_entropy(m(x, y).float().flatten(0, 1), y.flatten()),
    )


class Routed(nn.Module):
    """One expert of eight for each row, its rows found one expert after the other."""

    def __init__(self, width=768, inner=3072):
        super().__init__()
        self.norm, self.router = nn.RMSNorm(width), nn.Linear(width, 8)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            for _ in range(8)
        )

    def forward(self, x):
        y = self.norm(x).flatten(0, 1)
        weight, place = self.router(y).softmax(-1).max(-1)
        found = torch.zeros_like(y)
        for n, expert in enumerate(self.experts):
            rows = (place == n).nonzero().squeeze(1)
            found = found.index_copy(0, rows, (expert(y[rows]) * weight[rows, None]).to(y.dtype))
        return x + found.view_as(x)


def routed():
    blocks = (m for _ in range(4) for m in (Block(768, 12, causal=True), Routed()))
    body = nn.Sequential(nn.Embedding(WORDS, 768), *blocks, nn.Linear(768, WORDS))
    return body, (torch.randint(0, WORDS, (8, 512)),), next_token


class Mobile(nn.Module):
    """Thin convolutions, then attention over coarse places."""

    def __init__(self):
        super().__init__()
        parts, size = [nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.Hardswish()], 32
        for out, step in ((64, 2), (64, 1), (128, 2), (128, 1), (192, 2)):
            parts += [nn.Conv2d(size, 4 * size, 1), nn.BatchNorm2d(4 * size), nn.Hardswish(),
                      nn.Conv2d(4 * size, 4 * size, 3, step, 1, groups=4 * size), nn.BatchNorm2d(4 * size), nn.Hardswish(),
                      nn.Conv2d(4 * size, out, 1), nn.BatchNorm2d(out)]  # fmt: skip
            size = out
        self.body, self.blocks = (
            nn.Sequential(*parts),
            nn.ModuleList(Block(192, 6) for _ in range(6)),
        )
        self.head = nn.Linear(192, 1000)

    def forward(self, x):
        x = self.body(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def mobile():
    return Mobile(), images(96), classify


class Reader(nn.Module):
    """Long text: decoder layers computed again, a loss over parts of the words."""

    def __init__(self, width=1536, depth=8):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Turned(width, 12, 2, 4096) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, ids):
        x, size = self.words(ids), 128
        rates = 1e-4 ** (torch.arange(0, size, 2, device=x.device) / size)
        angles = torch.arange(ids.shape[1], device=x.device)[:, None] * torch.cat([rates, rates])
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False)
        parts = zip(self.norm(x)[:, :-1].chunk(4, 1), ids[:, 1:].chunk(4, 1), strict=True)
        return sum(
            F.cross_entropy(self.head(a).float().flatten(0, 1), b.flatten()) for a, b in parts
        )


def reader():
    return Reader(), (torch.randint(0, WORDS, (1, 16385)),), lambda m, ids: m(ids)


def encoder_half():
    blocks = (Block(1024, 16, drop=0.1) for _ in range(8))
    body = nn.Sequential(nn.Embedding(WORDS, 1024), *blocks, nn.Linear(1024, WORDS))
    return body, (torch.randint(0, WORDS, (16, 256)),), next_token


CASES = [
    ("volume", "fp32", 0, 1, "foreach"),
    ("volume", "autocast", 0, 1, "sgd"),
    ("codes", "fp32", 0, 1, "foreach"),
    ("codes", "autocast", 1, 1, "fused"),
    ("points", "fp32", 0, 1, "foreach"),
    ("maker", "fp32", 0, 1, "fused"),
    ("maker", "autocast", 1, 1, "foreach"),
    ("mixed", "bf16", 0, 1, "foreach"),
    ("mixed", "autocast", 1, 1, "fused"),
    ("steps", "fp32", 0, 1, "foreach"),
    ("routed", "bf16", 0, 1, "foreach"),
    ("routed", "autocast", 0, 1, "fused"),
    ("mobile", "autocast", 0, 1, "foreach"),
    ("mobile", "fp32", 1, 1, "sgd"),
    ("reader", "bf16", 0, 1, "fused"),
    ("reader", "autocast", 0, 2, "foreach"),
    ("encoder_half", "fp16", 0, 1, "foreach"),
    ("encoder_half", "bf16", 1, 1, "fused"),
]
