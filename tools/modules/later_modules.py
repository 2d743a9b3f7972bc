"""Modules written after the rates were fitted: their steps were predicted before they were measured."""

import torch
import torch.nn.functional as F
from bench_modules import Block, classify, next_token
from torch import nn
from torch.utils.checkpoint import checkpoint


class Tagger(nn.Module):
    """Two recurrent layers in both directions over word vectors."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30000, 300)
        self.layers = nn.LSTM(300, 512, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(1024, 50)

    def forward(self, ids):
        return self.head(self.layers(self.words(ids))[0])


def tagger():
    x = torch.randint(0, 30000, (64, 128))
    return Tagger(), (x,), lambda m, ids: F.cross_entropy(m(ids).flatten(0, 1), ids.flatten() % 50)


class Gated(nn.Module):
    """Gated convolutions over time, the step between inputs doubling from layer to layer."""

    def __init__(self, width=256, depth=16):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.pairs = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, dilation=2 ** (n % 8)) for n in range(depth)
        )
        self.out = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.head = nn.Conv1d(width, 256, 1)

    def forward(self, x):
        x, total = self.first(x), 0.0
        for n, (pair, out) in enumerate(zip(self.pairs, self.out, strict=True)):
            a, b = pair(F.pad(x, (2 * 2 ** (n % 8), 0))).chunk(2, 1)
            y = out(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return self.head(F.relu(total))


def gated():
    return Gated(), (torch.randn(8, 1, 8000),), lambda m, x: m(x).float().square().mean()


class JointBlock(nn.Module):
    """Text and image tokens with weights of their own, attention over both."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.shift = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.head_norm = nn.RMSNorm(width // heads)

    def forward(self, streams, when):
        shifts = [s(F.silu(when))[:, None].chunk(6, -1) for s in self.shift]
        rows = []
        for x, qkv, c in zip(streams, self.qkv, shifts, strict=True):
            y = qkv(self.norm(x) * (1 + c[1]) + c[0])
            q, k, v = y.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            rows.append((self.head_norm(q), self.head_norm(k), v))
        joined = [torch.cat(part, 2) for part in zip(*rows, strict=True)]
        y = F.scaled_dot_product_attention(*joined).transpose(1, 2).flatten(2)
        parts = y.split([x.shape[1] for x in streams], 1)
        found = []
        for x, y, out, wide, c in zip(streams, parts, self.out, self.wide, shifts, strict=True):
            x = x + c[2] * out(y)
            found.append(x + c[5] * wide(self.norm(x) * (1 + c[4]) + c[3]))
        return found


class Joint(nn.Module):
    def __init__(self, width=1152, depth=8, heads=18):
        super().__init__()
        self.image, self.text = nn.Linear(64, width), nn.Linear(2048, width)
        self.when = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(JointBlock(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, 64)

    def forward(self, x, text, t):
        streams, when = [self.text(text), self.image(x)], self.when(t)
        for block in self.blocks:
            streams = block(streams, when)
        return self.head(streams[1])


def joint():
    inputs = torch.randn(4, 1024, 64), torch.randn(4, 154, 2048), torch.randn(4, 256)
    return Joint(), inputs, lambda m, x, text, t: F.mse_loss(m(x, text, t).float(), x.float())


class Mixer(nn.Module):
    """Perceptrons over places and over channels in turn."""

    def __init__(self, width=768, places=196, depth=12):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.over = nn.ModuleList(self.wide(places, 384) for _ in range(depth))
        self.through = nn.ModuleList(self.wide(width, 3072) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    @staticmethod
    def wide(size, inner):
        return nn.Sequential(nn.Linear(size, inner), nn.GELU(), nn.Linear(inner, size))

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        for n, (over, through) in enumerate(zip(self.over, self.through, strict=True)):
            x = x + over(self.norms[2 * n](x).transpose(1, 2)).transpose(1, 2)
            x = x + through(self.norms[2 * n + 1](x))
        return self.head(x.mean(1))


def mixer():
    return Mixer(), (torch.randn(64, 3, 224, 224), torch.randint(0, 1000, (64,))), classify


class Squeezed(nn.Module):
    """Inverted bottleneck: wide depthwise convolution, channels weighed by their mean."""

    def __init__(self, size, out, kernel, stride):
        super().__init__()
        wide = 4 * size
        self.body = nn.Sequential(
            nn.Conv2d(size, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide), nn.SiLU(),
        )  # fmt: skip
        self.less, self.more = nn.Conv2d(wide, size // 4, 1), nn.Conv2d(size // 4, wide, 1)
        self.out = nn.Sequential(nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))
        self.same = size == out and stride == 1

    def forward(self, x):
        y = self.body(x)
        y = y * torch.sigmoid(self.more(F.silu(self.less(F.adaptive_avg_pool2d(y, 1)))))
        y = self.out(y)
        return x + y if self.same else y


def squeezed():
    sizes = [(24, 48, 3, 2), (48, 48, 3, 1), (48, 64, 5, 2), (64, 64, 5, 1), (64, 128, 3, 2), (128, 128, 3, 1),
             (128, 160, 5, 1), (160, 256, 5, 2), (256, 256, 3, 1), (256, 256, 3, 1)]  # fmt: skip
    body = nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.SiLU(),
        *(Squeezed(*s) for s in sizes), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 1000),
    )  # fmt: skip
    return body, (torch.randn(64, 3, 224, 224), torch.randint(0, 1000, (64,))), classify


class Linear(nn.Module):
    """Linear attention with decay, in chunks."""

    def __init__(self, width=1024, heads=8, chunk=128):
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.norm, self.last = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.decay = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, heads)
        self.gate, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width)

    def forward(self, x):
        y = self.norm(x)
        b, s, w = y.shape
        n, c = s // self.chunk, self.chunk
        q, k, v = (
            self.qkv(y).view(b, n, c, 3, self.heads, w // self.heads).permute(3, 0, 4, 1, 2, 5)
        )
        decay = F.logsigmoid(self.decay(y)).float().view(b, n, c, self.heads).permute(0, 3, 1, 2)
        fall = decay.cumsum(-1)
        within = (fall[..., :, None] - fall[..., None, :]).exp().tril()
        near = ((q @ k.transpose(-1, -2)) * within.to(q.dtype)) @ v
        state, far = torch.zeros_like(k[:, :, 0].transpose(-1, -2) @ v[:, :, 0]), []
        for i in range(n):
            far.append((q[:, :, i] * fall[:, :, i, :, None].exp().to(q.dtype)) @ state)
            left = (fall[:, :, i, -1:] - fall[:, :, i]).exp().to(q.dtype)[..., None]
            total = fall[:, :, i, -1].exp().to(q.dtype)[..., None, None]
            state = state * total + (k[:, :, i] * left).transpose(-1, -2) @ v[:, :, i]
        y = (near + torch.stack(far, 2)).permute(0, 2, 3, 1, 4).reshape(b, s, w)
        return x + self.out(self.last(y) * F.silu(self.gate(x)))


class LinearDecoder(nn.Module):
    def __init__(self, width=1024, depth=8):
        super().__init__()
        self.words = nn.Embedding(32000, width)
        self.blocks = nn.ModuleList(Linear(width) for _ in range(depth))
        self.head = nn.Linear(width, 32000, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def linear():
    return LinearDecoder(), (torch.randint(0, 32000, (4, 2048)),), next_token


class Latents(nn.Module):
    """A few latents look at many inputs, then at each other."""

    def __init__(self, width=512, latents=256, depth=6):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, width))
        self.inputs = nn.Linear(64, width)
        self.look = nn.ModuleList(
            nn.MultiheadAttention(width, 8, batch_first=True) for _ in range(2)
        )
        self.blocks = nn.ModuleList(Block(width, 8) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.inputs(x)
        y = self.latents.expand(x.shape[0], -1, -1)
        for look in self.look:
            y = y + look(y, x, x, need_weights=False)[0]
            for block in self.blocks:
                y = block(y)
        return self.head(y.mean(1))


def latents():
    return Latents(), (torch.randn(16, 8192, 64), torch.randint(0, 1000, (16,))), classify


class Sorted(nn.Module):
    """Experts whose rows are sorted, one product after the other, beside a shared one."""

    def __init__(self, width=1024, inner=1408, experts=16, top=2):
        super().__init__()
        self.top, self.norm = top, nn.LayerNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * inner) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * 0.02)
        self.shared = nn.Sequential(
            nn.Linear(width, 2 * inner), nn.SiLU(), nn.Linear(2 * inner, width)
        )

    def forward(self, x):
        y = self.norm(x).flatten(0, 1)
        weight, expert = self.router(y).softmax(-1).topk(self.top)
        order = expert.flatten().argsort()
        rows = y[order // self.top].view(self.up.shape[0], -1, y.shape[-1])
        a, b = torch.bmm(rows, self.up).chunk(2, -1)
        done = torch.bmm(F.silu(a) * b, self.down).flatten(0, 1) * weight.flatten()[order, None]
        y = self.shared(y)
        y = y.index_add(0, order // self.top, done.to(y.dtype))
        return x + y.view_as(x)


class SortedDecoder(LinearDecoder):
    def __init__(self, width=1024, depth=6):
        super().__init__(width, 0)
        self.blocks = nn.ModuleList(
            m for _ in range(depth) for m in (Block(width, 16), Sorted(width))
        )


def sorted_experts():
    return SortedDecoder(), (torch.randint(0, 32000, (4, 1024)),), next_token


class Clicks(nn.Module):
    """Large tables of categories, their products with each other, perceptrons."""

    def __init__(self, tables=26, rows=200_000, width=128):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.low = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                                 nn.Linear(1024, 1))  # fmt: skip
        self.register_buffer("at", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, sparse):
        x = self.low(dense)
        z = torch.stack([x, *(t(sparse[:, n]) for n, t in enumerate(self.tables))], 1)
        z = (z @ z.transpose(1, 2))[:, self.at[0], self.at[1]]
        return self.top(torch.cat([x, z], 1)).squeeze(1)


def clicks():
    inputs = (
        torch.randn(8192, 13),
        torch.randint(0, 200_000, (8192, 26, 4)),
        torch.rand(8192).round(),
    )

    def loss(m, dense, sparse, y):
        return F.binary_cross_entropy_with_logits(m(dense, sparse).float(), y.float())

    return Clicks(), inputs, loss


class Pyramid(nn.Module):
    """Maps of four sizes joined from coarse to fine, a class for each pixel."""

    def __init__(self, width=64, classes=21):
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(3 if n == 0 else width << (n - 1), width << n, 3, 2, 1), nn.GroupNorm(16, width << n), nn.ReLU(),
                nn.Conv2d(width << n, width << n, 3, 1, 1), nn.GroupNorm(16, width << n), nn.ReLU(),
            )
            for n in range(4)
        )  # fmt: skip
        self.side = nn.ModuleList(nn.Conv2d(width << n, 128, 1) for n in range(4))
        self.head = nn.Conv2d(128, classes, 3, 1, 1)

    def forward(self, x):
        size, maps = x.shape[-2:], []
        for down in self.down:
            x = down(x)
            maps.append(x)
        y = self.side[-1](maps[-1])
        for side, x in zip(self.side[-2::-1], maps[-2::-1], strict=True):
            y = side(x) + F.interpolate(y, size=x.shape[-2:], mode="nearest")
        return F.interpolate(self.head(y), size=size, mode="bilinear", align_corners=False)


def pyramid():
    inputs = torch.randn(8, 3, 512, 512), torch.randint(0, 21, (8, 512, 512))
    return Pyramid(), inputs, lambda m, x, y: F.cross_entropy(m(x).float(), y)


class Listener(nn.Module):
    """Half a perceptron, attention, a depthwise convolution, half a perceptron."""

    def __init__(self, width=512, heads=8):
        super().__init__()
        self.halves = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(0.1),
                          nn.Linear(4 * width, width), nn.Dropout(0.1)) for _ in range(2)
        )  # fmt: skip
        self.norm, self.look = (
            nn.LayerNorm(width),
            nn.MultiheadAttention(width, heads, 0.1, batch_first=True),
        )
        self.before = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GLU())
        self.across = nn.Conv1d(width, width, 31, 1, 15, groups=width)
        self.batch, self.after, self.last = (
            nn.BatchNorm1d(width),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )

    def forward(self, x):
        x = x + 0.5 * self.halves[0](x)
        y = self.norm(x)
        x = x + self.look(y, y, y, need_weights=False)[0]
        y = self.across(self.before(x).transpose(1, 2))
        x = x + self.after(F.silu(self.batch(y)).transpose(1, 2))
        return self.last(x + 0.5 * self.halves[1](x))


def listener():
    body = nn.Sequential(nn.Linear(80, 512), *(Listener() for _ in range(8)), nn.Linear(512, 128))
    target = torch.randint(1, 128, (16, 60))

    def loss(m, x, y):
        rows = m(x).float().log_softmax(-1).transpose(0, 1)
        sizes = [
            torch.full((16,), n, dtype=torch.long, device=x.device)
            for n in (x.shape[1], y.shape[1])
        ]
        return F.ctc_loss(rows, y, *sizes)

    return body, (torch.randn(16, 600, 80), target), loss


class Tied(nn.Module):
    """A decoder with one matrix at both ends, dropout, blocks computed again."""

    def __init__(self, width=1024, depth=12):
        super().__init__()
        self.words, self.places = nn.Embedding(50304, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 16, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 50304, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], ids.device, x.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, mask, is_causal=True, use_reentrant=False)
        return self.head(x)


def tied():
    return Tied(), (torch.randint(0, 50304, (8, 1024)),), next_token


class Pictures(nn.Module):
    """An autoencoder with a normal draw in its middle."""

    def __init__(self, width=64):
        super().__init__()
        self.down = nn.Sequential(*(
            m for n in range(4)
            for m in (nn.Conv2d(3 if n == 0 else width << (n - 1), width << n, 4, 2, 1), nn.LeakyReLU(0.2))
        ))  # fmt: skip
        self.middle, self.back = nn.Linear(512 * 64, 512), nn.Linear(256, 512 * 64)
        self.up = nn.Sequential(*(
            m for n in (3, 2, 1, 0)
            for m in (nn.ConvTranspose2d(width << n, 3 if n == 0 else width << (n - 1), 4, 2, 1), nn.LeakyReLU(0.2))
        ))  # fmt: skip

    def forward(self, x):
        mean, log = self.middle(self.down(x).flatten(1)).chunk(2, 1)
        draw = mean + torch.randn_like(mean) * (0.5 * log).exp()
        return self.up(self.back(draw).view(-1, 512, 8, 8)), mean, log


def pictures():
    def loss(m, x):
        y, mean, log = m(x)
        return F.mse_loss(y, x) - 0.5 * (1 + log - mean.pow(2) - log.exp()).mean()

    return Pictures(), (torch.randn(64, 3, 128, 128),), loss


class Neighbours(nn.Module):
    """Attention over the edges of a graph."""

    def __init__(self, width=256, heads=8, depth=4):
        super().__init__()
        self.heads = heads
        self.value = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.score = nn.ModuleList(nn.Linear(width, 2 * heads) for _ in range(depth))
        self.head = nn.Linear(width, 40)

    def forward(self, x, edges):
        start, end = edges
        for value, score in zip(self.value, self.score, strict=True):
            v, (a, b) = value(x), score(x).chunk(2, -1)
            s = F.leaky_relu(a[start] + b[end], 0.2)
            top = torch.full_like(a, -1e9).scatter_reduce(0, end[:, None].expand_as(s), s, "amax")
            e = (s - top[end]).exp()
            total = torch.zeros_like(a).index_add(0, end, e)
            rows = v[start].unflatten(-1, (self.heads, -1)) * (e / total[end])[..., None]
            x = F.elu(torch.zeros_like(v).index_add(0, end, rows.flatten(1)))
        return self.head(x)


def neighbours():
    inputs = (
        torch.randn(20_000, 256),
        torch.randint(0, 20_000, (2, 320_000)),
        torch.randint(0, 40, (20_000,)),
    )
    return Neighbours(), inputs, lambda m, x, edges, y: F.cross_entropy(m(x, edges).float(), y)


CASES = [
    ("tagger", "fp32", 0, 1, "foreach"),
    ("gated", "fp32", 0, 1, "foreach"),
    ("gated", "autocast", 0, 1, "foreach"),
    ("joint", "bf16", 0, 1, "foreach"),
    ("joint", "autocast", 0, 1, "fused"),
    ("joint", "bf16", 1, 1, "fused"),
    ("mixer", "tf32", 0, 1, "foreach"),
    ("mixer", "autocast", 0, 1, "foreach"),
    ("squeezed", "fp32", 0, 1, "sgd"),
    ("squeezed", "autocast", 0, 1, "foreach"),
    ("linear", "bf16", 0, 1, "foreach"),
    ("linear", "bf16", 1, 1, "fused"),
    ("latents", "bf16", 0, 1, "foreach"),
    ("latents", "fp32", 0, 2, "foreach"),
    ("sorted_experts", "bf16", 0, 1, "foreach"),
    ("sorted_experts", "autocast", 0, 1, "fused"),
    ("clicks", "fp32", 0, 1, "sgd"),
    ("clicks", "fp32", 0, 1, "foreach"),
    ("pyramid", "fp32", 0, 1, "foreach"),
    ("pyramid", "autocast", 0, 1, "foreach"),
    ("listener", "fp32", 0, 1, "foreach"),
    ("listener", "autocast", 0, 1, "fused"),
    ("tied", "bf16", 0, 1, "foreach"),
    ("tied", "autocast", 0, 1, "fused"),
    ("pictures", "fp32", 0, 1, "foreach"),
    ("neighbours", "fp32", 0, 1, "foreach"),
    ("pictures", "autocast", 1, 1, "foreach"),
]
