"""Modules that are measured on a GPU and traced, each a factory in the form that `foretell trace` takes.

`CASES` says how each is trained: precision (fp32, tf32, autocast, bf16), compiled or not, micro-batches of a
step, and the form of AdamW's update. Sizes are the author's own; no module is anybody's published one.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads=None, causal=False, bias=True):
        super().__init__()
        self.heads, self.kv = heads, kv_heads or heads
        self.size, self.causal = width // heads, causal
        self.q = nn.Linear(width, width, bias=bias)
        self.k = nn.Linear(width, self.kv * self.size, bias=bias)
        self.v = nn.Linear(width, self.kv * self.size, bias=bias)
        self.o = nn.Linear(width, width, bias=bias)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.k(memory).unflatten(-1, (self.kv, -1)).transpose(1, 2)
        v = self.v(memory).unflatten(-1, (self.kv, -1)).transpose(1, 2)
        if self.kv != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal and mask is None
        )
        return self.o(y.transpose(1, 2).flatten(2))


class PlainAttention(Attention):
    """Scores stored, as hand-written attention has them."""

    def forward(self, x, memory=None, mask=None):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.k(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.v(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        places = torch.arange(x.shape[1], device=x.device)
        far = (places[:, None] - places[None]).abs() * 0.01
        scores = scores - far.to(scores.dtype)
        y = F.dropout(scores.softmax(-1), 0.1, self.training) @ v
        return self.o(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, ratio=4, attention=Attention, drop=0.0, **kw):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention(width, heads, **kw)
        self.up, self.down = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)
        self.drop = nn.Dropout(drop)

    def forward(self, x, mask=None):
        x = x + self.drop(self.attention(self.a(x), mask=mask))
        return x + self.drop(self.down(F.gelu(self.up(self.b(x)))))


class Vit(nn.Module):
    def __init__(self, width, heads, depth, patch=16, size=224, classes=1000, drop=0.0, **kw):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width, heads, drop=drop, **kw) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.save = False

    def features(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.save else block(x)
        return self.norm(x)

    def forward(self, x):
        return self.head(self.features(x)[:, 0])


def classify(module, x, y):
    return F.cross_entropy(module(x), y)


def images(batch, size=224, classes=1000):
    return torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))


def vit_small():
    return Vit(384, 6, 12), images(64), classify


def vit_base():
    return Vit(768, 12, 12, drop=0.1), images(64), classify


def vit_large_saved():
    model = Vit(1024, 16, 24)
    model.save = True
    return model, images(64), classify


def vit_tiny_one():
    return Vit(192, 3, 12), images(2), classify


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride=1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.short = nn.Identity()
        if stride != 1 or inputs != 4 * width:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, depths=(3, 4, 6, 3), width=64):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inputs = [], width
        for n, depth in enumerate(depths):
            for m in range(depth):
                stages.append(Bottleneck(inputs, width << n, 2 if n and not m else 1))
                inputs = 4 * (width << n)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


def resnet50():
    return ResNet(), images(64), classify


def resnet50_last():
    x, y = images(96)
    return (
        ResNet().to(memory_format=torch.channels_last),
        (x.to(memory_format=torch.channels_last), y),
        classify,
    )


class NextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.norm(self.mix(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, widths=(96, 192, 384, 768), depths=(3, 3, 9, 3)):
        super().__init__()
        layers, last = [], 3
        for n, (width, depth) in enumerate(zip(widths, depths)):
            step = 2 if n else 4
            layers.append(nn.Conv2d(last, width, step, step))
            layers += [NextBlock(width) for _ in range(depth)]
            last = width
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(last, 1000)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((2, 3)))


def convnext():
    return ConvNext(), images(32), classify


class Res(nn.Module):
    def __init__(self, inputs, width, time):
        super().__init__()
        self.a, self.b = nn.GroupNorm(32, inputs), nn.GroupNorm(32, width)
        self.first, self.second = (
            nn.Conv2d(inputs, width, 3, 1, 1),
            nn.Conv2d(width, width, 3, 1, 1),
        )
        self.time = nn.Linear(time, width)
        self.short = nn.Conv2d(inputs, width, 1) if inputs != width else nn.Identity()

    def forward(self, x, t):
        y = self.first(F.silu(self.a(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.second(F.silu(self.b(y))) + self.short(x)


class Unet(nn.Module):
    def __init__(self, width=128, factors=(1, 2, 4), channels=4, heads=8):
        super().__init__()
        time = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(channels, width, 3, 1, 1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        sizes, last = [width], width
        for n, factor in enumerate(factors):
            for _ in range(2):
                self.down.append(Res(last, width * factor, time))
                last = width * factor
                sizes.append(last)
            if n + 1 < len(factors):
                self.down.append(nn.Conv2d(last, last, 3, 2, 1))
                sizes.append(last)
        self.middle = nn.ModuleList(
            [Res(last, last, time), Attention(last, heads), Res(last, last, time)]
        )
        for n, factor in reversed(list(enumerate(factors))):
            for m in range(3):
                self.up.append(Res(last + sizes.pop(), width * factor, time))
                last = width * factor
            if n:
                self.up.append(
                    nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(last, last, 3, 1, 1))
                )
        self.norm, self.leave = nn.GroupNorm(32, last), nn.Conv2d(last, channels, 3, 1, 1)

    def forward(self, x, t):
        half = self.width // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half, device=x.device) / half)
        angles = t[:, None].to(x.dtype) * rates[None].to(x.dtype)
        t = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        x = self.enter(x)
        kept = [x]
        for layer in self.down:
            x = layer(x, t) if isinstance(layer, Res) else layer(x)
            kept.append(x)
        x = self.middle[0](x, t)
        x = x + self.middle[1](x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(
            2, x.shape[2:]
        )
        x = self.middle[2](x, t)
        for layer in self.up:
            x = layer(torch.cat([x, kept.pop()], 1), t) if isinstance(layer, Res) else layer(x)
        return self.leave(F.silu(self.norm(x)))


def denoise(module, x, t):
    return F.mse_loss(module(x, t), x)


def unet():
    return Unet(), (torch.randn(16, 4, 64, 64), torch.randint(0, 1000, (16,))), denoise


class DitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.a = nn.LayerNorm(width, elementwise_affine=False)
        self.b = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.condition = nn.Linear(width, 6 * width)

    def forward(self, x, c):
        s1, g1, o1, s2, g2, o2 = self.condition(F.silu(c))[:, None].chunk(6, -1)
        x = x + o1 * self.attention(self.a(x) * (1 + g1) + s1)
        return x + o2 * self.down(F.gelu(self.up(self.b(x) * (1 + g2) + s2), approximate="tanh"))


class Dit(nn.Module):
    def __init__(self, width=1152, heads=16, depth=14, size=32, channels=4):
        super().__init__()
        self.patch = nn.Conv2d(channels, width, 2, 2)
        self.places = nn.Parameter(torch.zeros(1, (size // 2) ** 2, width))
        self.time, self.label = nn.Linear(256, width), nn.Embedding(1001, width)
        self.blocks = nn.ModuleList(DitBlock(width, heads) for _ in range(depth))
        self.leave = nn.Linear(width, 4 * channels)

    def forward(self, x, t):
        rates = torch.exp(-9.2 * torch.arange(128, device=x.device, dtype=x.dtype) / 128)
        angles = t[:, None].to(x.dtype) * rates
        c = self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.label(t)
        h = self.patch(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            h = block(h, c)
        n, side = len(x), x.shape[-1] // 2
        h = self.leave(h).view(n, side, side, 2, 2, -1)
        return torch.einsum("nhwpqc->nchpwq", h).reshape(x.shape)


def dit():
    return Dit(), (torch.randn(32, 4, 32, 32), torch.randint(0, 1000, (32,))), denoise


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


class Decoder(nn.Module):
    """A llama-like decoder, its norm, rotation and activation written out."""

    def __init__(self, width=1024, heads=16, kv=4, depth=12, inner=2816, vocabulary=32000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList()
        for _ in range(depth):
            self.layers.append(
                nn.ModuleDict(
                    {
                        "a": RmsNorm(width),
                        "b": RmsNorm(width),
                        "mix": Rotated(width, heads, kv),
                        "gate": nn.Linear(width, inner, bias=False),
                        "up": nn.Linear(width, inner, bias=False),
                        "down": nn.Linear(inner, width, bias=False),
                    }
                )
            )
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for one in self.layers:
            x = x + one["mix"](one["a"](x))
            y = one["b"](x)
            x = x + one["down"](F.silu(one["gate"](y)) * one["up"](y))
        return self.head(self.norm(x))


class Rotated(Attention):
    def __init__(self, width, heads, kv):
        super().__init__(width, heads, kv, causal=True, bias=False)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.k(x).unflatten(-1, (self.kv, -1)).transpose(1, 2)
        v = self.v(x).unflatten(-1, (self.kv, -1)).transpose(1, 2)
        half = self.size // 2
        rates = 1.0 / 10000 ** (torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * rates
        cos, sin = (torch.cat([f, f], -1).to(x.dtype) for f in (angles.cos(), angles.sin()))

        def turn(t):
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (turn(k), v))
        y = F.scaled_dot_product_attention(turn(q), k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


def next_token(module, ids):
    scores = module(ids)
    return F.cross_entropy(scores[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def decoder():
    return Decoder(), (torch.randint(0, 32000, (4, 2048)),), next_token


def decoder_small():
    return Decoder(256, 4, 2, 8, 704, 8000), (torch.randint(0, 8000, (2, 256)),), next_token


def plain_attention():
    model = nn.Sequential(*(Block(768, 12, attention=PlainAttention) for _ in range(8)))
    return model, (torch.randn(8, 1024, 768),)


class EncoderDecoder(nn.Module):
    def __init__(self, width=512, heads=8, depth=6, vocabulary=32128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.bias = nn.Embedding(32, heads)
        self.encoder = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.decoder = nn.ModuleList(Block(width, heads, causal=True) for _ in range(depth))
        self.cross = nn.ModuleList(Attention(width, heads) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def places(self, n, device):
        step = torch.arange(n, device=device)
        far = (step[None] - step[:, None]).abs().float()
        return self.bias(torch.clamp((far + 1).log2() * 4, max=31).long()).permute(2, 0, 1)[None]

    def forward(self, source, target):
        x, y = self.embed(source), self.embed(target)
        bias = self.places(source.shape[1], source.device)
        for block in self.encoder:
            x = block(x, bias.to(x.dtype))
        for block, cross, norm in zip(self.decoder, self.cross, self.norms):
            y = block(y)
            y = y + cross(norm(y), x)
        return self.head(y)


def translate(module, source, target):
    return F.cross_entropy(module(source, target).flatten(0, 1), target.flatten())


def encoder_decoder():
    ids = torch.randint(0, 32128, (16, 512)), torch.randint(0, 32128, (16, 128))
    return EncoderDecoder(), {"source": ids[0], "target": ids[1]}, translate


class Encoder(nn.Module):
    """An encoder with a padding mask and dropout, by PyTorch's own layers."""

    def __init__(self, width=768, heads=12, depth=6, vocabulary=30522):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids, mask):
        return self.head(self.layers(self.embed(ids), src_key_padding_mask=mask))


def fill_in(module, ids, mask):
    return F.cross_entropy(module(ids, mask).flatten(0, 1), ids.flatten())


def encoder():
    ids = torch.randint(0, 30522, (16, 256))
    return Encoder(), (ids, torch.zeros(16, 256, dtype=torch.bool)), fill_in


class Scan(nn.Module):
    """A selective state space in plain PyTorch, one step after the other."""

    def __init__(self, width=512, state=16, depth=4):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(depth):
            self.layers.append(
                nn.ModuleDict(
                    {
                        "norm": nn.LayerNorm(width),
                        "enter": nn.Linear(width, 2 * width),
                        "mix": nn.Conv1d(width, width, 4, padding=3, groups=width),
                        "gates": nn.Linear(width, 2 * state + 1),
                        "leave": nn.Linear(width, width),
                    }
                )
            )
        self.decay = nn.Parameter(torch.randn(depth, width, state))

    def forward(self, x):
        for n, one in enumerate(self.layers):
            u, z = one["enter"](one["norm"](x)).chunk(2, -1)
            u = F.silu(one["mix"](u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            b, c, step = one["gates"](u).split([self.decay.shape[-1]] * 2 + [1], -1)
            step = F.softplus(step)
            keep = torch.exp(-step[..., None] * self.decay[n].exp())
            add = (step * u)[..., None] * b[:, :, None]
            h, out = torch.zeros_like(add[:, 0]), []
            for t in range(x.shape[1]):
                h = keep[:, t] * h + add[:, t]
                out.append((h * c[:, t, None]).sum(-1))
            x = x + one["leave"](torch.stack(out, 1) * F.silu(z))
        return x


def scan():
    return Scan(), (torch.randn(8, 128, 512),)


class ParallelScan(nn.Module):
    """The same recurrence by cumulative sums over chunks."""

    def __init__(self, width=1024, heads=16, depth=6, chunk=64):
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.enter = nn.ModuleList(nn.Linear(width, 3 * width + heads) for _ in range(depth))
        self.leave = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(depth))

    def forward(self, x):
        for enter, leave, norm in zip(self.enter, self.leave, self.norms):
            n, steps, width = x.shape
            q, k, v, a = enter(norm(x)).split([width] * 3 + [self.heads], -1)
            q, k, v = (
                t.view(n, steps // self.chunk, self.chunk, self.heads, -1) for t in (q, k, v)
            )
            a = F.logsigmoid(a.float()).view(n, -1, self.chunk, self.heads)
            total = a.cumsum(2)
            decay = (total[:, :, :, None] - total[:, :, None]).permute(0, 1, 4, 2, 3)
            low = torch.ones(self.chunk, self.chunk, device=x.device, dtype=torch.bool).tril()
            decay = decay.masked_fill(~low, -1e9).exp().to(x.dtype)
            scores = torch.einsum("bcihd,bcjhd->bchij", q, k) * decay
            y = torch.einsum("bchij,bcjhd->bcihd", scores, v)
            state = torch.einsum("bcjhd,bcjhe->bchde", k, v).cumsum(1)
            y = y + torch.einsum("bcihd,bchde->bcihe", q, state)
            x = x + leave(y.reshape(n, steps, width))
        return x


def parallel_scan():
    return ParallelScan(), (torch.randn(8, 1024, 1024),)


class Vision(nn.Module):
    """A tower of images before a decoder; its features take the first places."""

    def __init__(self, frozen):
        super().__init__()
        self.tower = Vit(768, 12, 8)
        self.tower.head = nn.Identity()
        self.join = nn.Linear(768, 1024)
        self.text = Decoder(1024, 16, 4, 8)
        self.frozen = frozen
        if frozen:
            self.tower.requires_grad_(False)

    def forward(self, pictures, ids):
        with torch.set_grad_enabled(not self.frozen and torch.is_grad_enabled()):
            seen = self.tower.features(pictures)
        x = torch.cat([self.join(seen), self.text.embed(ids)], 1)
        for one in self.text.layers:
            x = x + one["mix"](one["a"](x))
            y = one["b"](x)
            x = x + one["down"](F.silu(one["gate"](y)) * one["up"](y))
        return self.text.head(self.text.norm(x[:, seen.shape[1] :]))


def describe(module, pictures, ids):
    return F.cross_entropy(module(pictures, ids).flatten(0, 1).float(), ids.flatten())


def vision_frozen():
    return Vision(True), (torch.randn(8, 3, 224, 224), torch.randint(0, 32000, (8, 512))), describe


def vision():
    return Vision(False), (torch.randn(8, 3, 224, 224), torch.randint(0, 32000, (8, 512))), describe


class Experts(nn.Module):
    def __init__(self, width=1024, inner=2048, experts=8, chosen=2):
        super().__init__()
        self.router, self.chosen = nn.Linear(width, experts, bias=False), chosen
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.SiLU(), nn.Linear(inner, width))
            for _ in range(experts)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights, picked = self.router(flat).softmax(-1, dtype=torch.float).topk(self.chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        result = torch.zeros_like(flat)
        for n, expert in enumerate(self.experts):
            rows, places = torch.where(picked == n)
            part = expert(flat[rows]) * weights[rows, places, None]
            result.index_add_(0, rows, part.to(result.dtype))
        return result.view_as(x)


class ExpertBlock(Block):
    def __init__(self, width, heads):
        super().__init__(width, heads, causal=True)
        del self.up, self.down
        self.experts = Experts(width)

    def forward(self, x):
        x = x + self.attention(self.a(x))
        return x + self.experts(self.b(x))


def experts():
    return nn.Sequential(*(ExpertBlock(1024, 16) for _ in range(4))), (torch.randn(4, 1024, 1024),)


class Capacity(nn.Module):
    """Experts with a capacity, by one-hot products."""

    def __init__(self, width=768, inner=1536, experts=16, slots=512):
        super().__init__()
        self.router, self.slots = nn.Linear(width, experts), slots
        self.up = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight, place = self.router(flat).softmax(-1).max(-1)
        hot = F.one_hot(place, self.up.shape[0])
        order = (hot.cumsum(0) - 1) * hot
        keep = F.one_hot(order.sum(-1).clamp(max=self.slots - 1), self.slots).to(x.dtype)
        spread = hot.to(x.dtype)[:, :, None] * keep[:, None]
        rows = torch.einsum("tes,td->esd", spread, flat)
        rows = torch.bmm(F.gelu(torch.bmm(rows, self.up)), self.down)
        back = torch.einsum("tes,esd->td", spread, rows) * weight[:, None]
        return x + back.view_as(x)


def capacity():
    return nn.Sequential(*(Capacity() for _ in range(4))), (torch.randn(4, 1024, 768),)


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, width=1024, layers=2, vocabulary=10000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.mix = kind(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.head(self.mix(self.embed(ids))[0])


def rows(module, ids):
    return F.cross_entropy(module(ids).flatten(0, 1), ids.flatten())


def lstm():
    return Recurrent(), (torch.randint(0, 10000, (64, 128)),), rows


def gru():
    return Recurrent(nn.GRU, 512, 3), (torch.randint(0, 10000, (32, 200)),), rows


class Cells(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(width, width), nn.Linear(width, width)

    def forward(self, x):
        h = c = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            out.append(h)
        return self.head(torch.stack(out, 1))


def cells():
    return Cells(), (torch.randn(32, 96, 512),)


class Spectral(nn.Module):
    """Fourier layers over a grid."""

    def __init__(self, width=64, modes=16, depth=4):
        super().__init__()
        self.enter, self.leave, self.modes = nn.Conv2d(3, width, 1), nn.Conv2d(width, 1, 1), modes
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(width, width, modes, modes, 2) / width) for _ in range(depth)
        )
        self.short = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))

    def forward(self, x):
        x = self.enter(x)
        for weight, short in zip(self.weights, self.short):
            spectrum = torch.fft.rfft2(x)
            low = spectrum[:, :, : self.modes, : self.modes]
            mixed = torch.einsum("bixy,ioxy->boxy", low, torch.view_as_complex(weight))
            full = torch.zeros_like(spectrum)
            full[:, :, : self.modes, : self.modes] = mixed
            x = F.gelu(torch.fft.irfft2(full, s=x.shape[-2:]) + short(x))
        return self.leave(x)


def spectral():
    return Spectral(), (torch.randn(16, 3, 128, 128),)


class Graph(nn.Module):
    """Messages along edges, gathered and scattered."""

    def __init__(self, width=128, depth=4):
        super().__init__()
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))

    def forward(self, x, edges):
        for message, update in zip(self.message, self.update):
            pair = torch.cat([x[edges[0]], x[edges[1]]], -1)
            sent = torch.zeros_like(x).index_add_(0, edges[1], F.relu(message(pair)))
            x = x + F.relu(update(torch.cat([x, sent], -1)))
        return x


def graph():
    return Graph(), (torch.randn(50000, 128), torch.randint(0, 50000, (2, 400000)))


class Windows(nn.Module):
    """Attention within windows of a grid, with a bias a place, in stages."""

    def __init__(self, width=96, heads=3, window=7):
        super().__init__()
        self.window, self.heads = window, heads
        self.norm, self.qkv, self.o = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        places = torch.stack(
            torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        ).flatten(1)
        far = (places[:, :, None] - places[:, None] + window - 1).permute(1, 2, 0)
        self.register_buffer("index", far[..., 0] * (2 * window - 1) + far[..., 1])
        self.second = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, high, wide, width = x.shape
        w = self.window
        y = (
            self.norm(x)
            .view(n, high // w, w, wide // w, w, width)
            .transpose(2, 3)
            .reshape(-1, w * w, width)
        )
        q, k, v = self.qkv(y).view(len(y), w * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        scores = scores + self.bias[self.index.flatten()].view(w * w, w * w, -1).permute(2, 0, 1)
        y = self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(y.shape))
        x = x + y.view(n, high // w, wide // w, w, w, width).transpose(2, 3).reshape(x.shape)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 96, 4, 4)
        self.stages, self.merge = nn.ModuleList(), nn.ModuleList()
        rates = [x.item() for x in torch.linspace(0, 0.1, 10)]
        for n, depth in enumerate((2, 2, 4, 2)):
            self.stages.append(nn.Sequential(*(Windows(96 << n, 3 << n) for _ in range(depth))))
            if n < 3:
                self.merge.append(nn.Linear(4 * (96 << n), 2 * (96 << n), bias=False))
        self.rates, self.head = rates, nn.Linear(768, 1000)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        for n, stage in enumerate(self.stages):
            x = stage(x)
            if n < 3:
                a, b = x[:, 0::2], x[:, 1::2]
                x = self.merge[n](
                    torch.cat([a[:, :, 0::2], b[:, :, 0::2], a[:, :, 1::2], b[:, :, 1::2]], -1)
                )
        return self.head(x.mean((1, 2)))


def swin():
    return Swin(), images(32), classify


class Speech(nn.Module):
    """Convolutions over time, then an encoder: a listener's tower."""

    def __init__(self, width=512, depth=6):
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.blocks = nn.ModuleList(Block(width, 8) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x).log_softmax(-1)


def speech():
    return Speech(), (torch.randn(16, 80, 1500),)


class Video(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        layers, last = [], 3
        for n in range(4):
            layers += [
                nn.Conv3d(last, width << n, 3, (1, 2, 2), 1),
                nn.BatchNorm3d(width << n),
                nn.ReLU(),
            ]
            last = width << n
        self.body, self.head = nn.Sequential(*layers), nn.Linear(last, 400)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3, 4)))


def video():
    return Video(), (torch.randn(4, 3, 16, 112, 112),)


def perceptron():
    layers = [m for _ in range(8) for m in (nn.Linear(4096, 4096), nn.ReLU())]
    return nn.Sequential(*layers), (torch.randn(4096, 4096),)


def perceptron_deep():
    layers = [m for _ in range(64) for m in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]
    return nn.Sequential(*layers), (torch.randn(128, 256),)


CASES = [
    # factory, precision, compiled, micro-batches, update
    ("vit_small", "fp32", 0, 1, "foreach"),
    ("vit_small", "autocast", 0, 1, "foreach"),
    ("vit_small", "bf16", 0, 1, "fused"),
    ("vit_small", "autocast", 1, 1, "foreach"),
    ("vit_base", "tf32", 0, 1, "foreach"),
    ("vit_base", "autocast", 0, 2, "fused"),
    ("vit_large_saved", "bf16", 0, 1, "foreach"),
    ("vit_large_saved", "autocast", 0, 1, "fused"),
    ("vit_tiny_one", "fp32", 0, 1, "foreach"),
    ("vit_tiny_one", "autocast", 0, 4, "loop"),
    ("resnet50", "fp32", 0, 1, "foreach"),
    ("resnet50", "autocast", 0, 1, "sgd"),
    ("resnet50_last", "autocast", 0, 1, "foreach"),
    ("resnet50", "autocast", 1, 1, "foreach"),
    ("convnext", "fp32", 0, 1, "foreach"),
    ("convnext", "bf16", 0, 1, "foreach"),
    ("convnext", "autocast", 0, 1, "foreach"),
    ("unet", "fp32", 0, 1, "foreach"),
    ("unet", "autocast", 0, 1, "foreach"),
    ("unet", "bf16", 0, 2, "foreach"),
    ("dit", "bf16", 0, 1, "foreach"),
    ("dit", "autocast", 0, 1, "fused"),
    ("dit", "bf16", 1, 1, "foreach"),
    ("decoder", "bf16", 0, 1, "foreach"),
    ("decoder", "autocast", 0, 1, "fused"),
    ("decoder", "bf16", 1, 1, "fused"),
    ("decoder", "tf32", 0, 1, "foreach"),
    ("decoder_small", "bf16", 0, 1, "foreach"),
    ("decoder_small", "fp32", 0, 1, "loop"),
    ("plain_attention", "bf16", 0, 1, "foreach"),
    ("plain_attention", "tf32", 0, 1, "foreach"),
    ("plain_attention", "bf16", 1, 1, "foreach"),
    ("encoder_decoder", "bf16", 0, 1, "foreach"),
    ("encoder_decoder", "fp32", 0, 1, "foreach"),
    ("encoder", "autocast", 0, 1, "foreach"),
    ("encoder", "fp32", 0, 1, "fused"),
    ("scan", "fp32", 0, 1, "foreach"),
    ("parallel_scan", "bf16", 0, 1, "foreach"),
    ("parallel_scan", "fp32", 0, 1, "foreach"),
    ("vision_frozen", "bf16", 0, 1, "foreach"),
    ("vision", "bf16", 0, 1, "foreach"),
    ("vision_frozen", "autocast", 0, 1, "foreach"),
    ("vision", "autocast", 0, 2, "foreach"),
    ("experts", "bf16", 0, 1, "foreach"),
    ("experts", "fp32", 0, 1, "foreach"),
    ("capacity", "bf16", 0, 1, "foreach"),
    ("lstm", "fp32", 0, 1, "foreach"),
    ("lstm", "bf16", 0, 1, "foreach"),
    ("gru", "fp32", 0, 1, "foreach"),
    ("cells", "fp32", 0, 1, "foreach"),
    ("spectral", "fp32", 0, 1, "foreach"),
    ("graph", "fp32", 0, 1, "foreach"),
    ("swin", "fp32", 0, 1, "foreach"),
    ("swin", "autocast", 0, 1, "foreach"),
    ("swin", "autocast", 1, 1, "foreach"),
    ("speech", "bf16", 0, 1, "foreach"),
    ("video", "fp32", 0, 1, "foreach"),
    ("video", "autocast", 0, 1, "foreach"),
    ("perceptron", "bf16", 0, 1, "foreach"),
    ("perceptron", "fp32", 0, 1, "foreach"),
    ("perceptron_deep", "fp32", 0, 1, "foreach"),
    ("perceptron_deep", "bf16", 1, 1, "foreach"),
]
