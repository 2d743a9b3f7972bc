"""The training steps that measure_transformers.py measures: models, points, and their estimated seconds.

Standard library only. A point is one model at one shape in one mode; its id is unique and stable, so
that a later run can skip the points a file already has.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

LLAMA = {
    "model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
}  # fmt: skip
QWEN = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 40960, "sliding_window": None}  # fmt: skip

MODELS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 32},
    "llama-3.2-1b": LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64,
        "num_attention_heads": 32, "num_hidden_layers": 16, "tie_word_embeddings": True},
    "qwen3-0.6b": QWEN | {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
        "num_attention_heads": 16, "num_hidden_layers": 28, "tie_word_embeddings": True},
    "qwen3-1.7b": QWEN | {"model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144,
        "num_attention_heads": 16, "num_hidden_layers": 28, "tie_word_embeddings": True},
    "qwen3-8b": QWEN | {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
        "num_attention_heads": 32, "num_hidden_layers": 36},
    "qwen3-30b-a3b": QWEN | {"model_type": "qwen3_moe", "hidden_size": 2048,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "norm_topk_prob": True, "num_attention_heads": 32,
        "num_key_value_heads": 4, "num_hidden_layers": 48},
    "gemma-2b": {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
        "num_hidden_layers": 18, "vocab_size": 256000, "max_position_embeddings": 8192},
    "gemma-2-2b": {"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "num_hidden_layers": 26, "vocab_size": 256000, "max_position_embeddings": 8192,
        "sliding_window": 4096},
    "gemma-3-1b": {"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "num_hidden_layers": 26, "vocab_size": 262144, "max_position_embeddings": 32768,
        "sliding_window": 512},
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,
        "vocab_size": 50257, "n_positions": 1024},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48,
        "vocab_size": 50257, "n_positions": 1024},
    "mistral-7b": {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
        "vocab_size": 32768, "max_position_embeddings": 32768, "sliding_window": None},
}  # fmt: skip
"""Fields of the published config.json files; the rest are the defaults of transformers."""


@dataclass(frozen=True)
class Point:
    """One training step to measure."""

    model: str
    layers: int
    batch: int
    seq: int
    weights: str = "bf16"
    """Type of weights, gradients and optimizer state: bf16 or fp32."""
    autocast: bool = False
    """Forward under torch.autocast in bf16, as the Trainer does with bf16=True."""
    checkpoint: bool = False
    """Gradient checkpointing of every layer, not reentrant."""
    compile: bool = False
    """torch.compile of the whole model."""
    attention: str = ""
    """sdpa, eager or flash_attention_2; empty: what transformers chooses."""
    lora: str = ""
    """Targets of adapters of rank 16: qv or all; empty: every weight is trained."""
    optimizer: str = "fused"
    """torch's AdamW: fused (the Trainer's default) or foreach."""
    accumulate: int = 1
    """Micro-batches per optimizer step."""
    clip: float = 1.0
    """Largest gradient norm; 0: no clipping."""
    mask: str = "ones"
    """Attention mask: ones (what a tokenizer gives), none, or padded (an eighth of each row)."""
    cache: bool = False
    """The model fills a key-value cache, as a bare model does; the Trainer turns it off."""
    check: bool = True
    """The host reads the loss after each micro-batch, as the Trainer does."""
    experts: str = ""
    """Implementation of experts; empty: what transformers chooses."""
    trainer: bool = False
    """Measured through transformers.Trainer instead of the hand-written loop."""

    @property
    def id(self) -> str:
        """Name of the point, unique in the plan."""
        words = [self.model, f"L{self.layers}", f"{self.batch}x{self.seq}", self.weights]
        flags = {
            "autocast": self.autocast,
            "ckpt": self.checkpoint,
            "compile": self.compile,
            self.attention: self.attention,
            f"lora-{self.lora}": self.lora,
            self.optimizer: self.optimizer != "fused",
            f"accum{self.accumulate}": self.accumulate > 1,
            "no-clip": self.clip == 0,
            f"mask-{self.mask}": self.mask != "ones",
            "cache": self.cache,
            "no-check": not self.check,
            f"experts-{self.experts}": self.experts,
            "trainer": self.trainer,
        }
        return "/".join(words + [word for word, on in flags.items() if on])

    @property
    def words(self) -> str:
        """The plan in Foretell's words."""
        words = ["framework=transformers", f"mbs{self.batch}", "precision=bf16"]
        words += [f"weights={self.weights}", f"gradients={self.weights}", "master=none"]
        words += [f"states={self.weights}"]
        words += [f"recompute={'full' if self.checkpoint else 'none'}"]
        words += ["compile=on"] if self.compile else []
        words += ["lora=16"] if self.lora else []
        words += ["autocast"] if self.autocast and self.weights == "bf16" else []
        return " ".join(words)

    def fields(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


def config_fields(point: Point, tiny: bool = False) -> dict[str, Any]:
    """Fields of the model's config with the point's layers; tiny: with small widths."""
    fields = dict(MODELS[point.model])
    gpt = "n_embd" in fields
    fields["n_layer" if gpt else "num_hidden_layers"] = point.layers
    if tiny:
        small = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
                 "num_experts": 8, "num_experts_per_tok": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 16, "n_embd": 64, "n_head": 4,
                 "sliding_window": 16, "vocab_size": 512}  # fmt: skip
        fields |= {name: small[name] for name in small if fields.get(name) is not None}
        fields["n_layer" if gpt else "num_hidden_layers"] = min(point.layers, 2)
    return fields


def parameters(point: Point) -> float:
    """Number of weights, near enough for an estimate."""
    c = config_fields(point)
    if "n_embd" in c:
        return 12.0 * c["n_layer"] * c["n_embd"] ** 2 + c["vocab_size"] * c["n_embd"]
    hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head_dim = c.get("head_dim", hidden // heads)
    inner = c.get("num_experts", 1) * c.get("moe_intermediate_size", c["intermediate_size"])
    layer = hidden * head_dim * (2 * heads + 2 * kv) + 3 * hidden * inner
    tied = c.get("tie_word_embeddings", c["model_type"].startswith("gemma"))
    return float(point.layers * layer + c["vocab_size"] * hidden * (1 if tied else 2))


def estimate_s(point: Point) -> float:
    """Rough seconds that the point takes on an H200, build and warm-up included."""
    weights = parameters(point)
    active = weights / 8 if "a3b" in point.model else weights
    tokens = point.batch * point.seq * point.accumulate
    hidden = config_fields(point).get("hidden_size", 1024)
    products = (6.0 + 2.0 * point.checkpoint) * tokens * (active + point.seq * hidden)
    rate = 2e14 if point.attention == "eager" or "all" in point.lora else 4e14
    bytes_moved = weights * (16 if point.weights == "bf16" else 32) * (not point.lora)
    step = max(products / rate, 2e-3 * point.layers * point.accumulate) + bytes_moved / 3e12
    steps = 3 + min(max(1.2 / step, 5), 40) + 6
    return 1.5 + weights * 6e-10 + steps * step + point.compile * (15 + 2.5 * point.layers)


def _core() -> list[Point]:
    """Each model at 4 x 2048 tokens in both usual modes: bf16 weights, and fp32 with autocast."""
    shapes = [
        ("llama-3.1-8b", 4, 2048), ("llama-3.2-1b", 16, 2048), ("qwen3-1.7b", 28, 2048),
        ("qwen3-30b-a3b", 2, 2048), ("gpt2-xl", 48, 1024), ("gemma-2b", 18, 2048),
        ("mistral-7b", 4, 2048), ("qwen3-0.6b", 28, 2048), ("qwen3-8b", 4, 2048),
        ("gemma-3-1b", 26, 2048),
    ]  # fmt: skip
    plain = [Point(model, layers, 4, seq) for model, layers, seq in shapes]
    return [mode for point in plain for mode in (point, _mixed(point))]


def _mixed(point: Point) -> Point:
    """The point with fp32 weights and autocast."""
    return replace(point, weights="fp32", autocast=True)


def _compiled() -> list[Point]:
    """Points under torch.compile; few layers, since all are compiled one by one."""
    eight = Point("llama-3.1-8b", 4, 4, 2048, compile=True)
    return [
        eight,
        _mixed(eight),
        replace(eight, layers=2, batch=1, seq=8192),
        _mixed(Point("gpt2", 12, 8, 1024, compile=True)),
        Point("qwen3-8b", 2, 4, 2048, compile=True),
        _mixed(Point("qwen3-0.6b", 6, 8, 512, compile=True)),
        replace(eight, mask="none", layers=2),
        Point("mistral-7b", 2, 4, 2048, compile=True, checkpoint=True),
        Point("qwen3-30b-a3b", 2, 4, 2048, compile=True),
        Point("gemma-2b", 4, 4, 2048, compile=True),
    ]


def _shapes() -> list[Point]:
    """Sequence lengths 512 to 8192, and the number of layers, for widths of 8B."""
    eight = Point("llama-3.1-8b", 4, 1, 2048)
    at = [replace(eight, batch=b, seq=s) for b, s in
          [(1, 512), (1, 8192), (2, 4096), (16, 512), (1, 2048), (8, 1024), (2, 8192)]]  # fmt: skip
    deep = [replace(eight, layers=n, batch=4) for n in (8, 2)]
    deep += [replace(eight, layers=16, batch=2), replace(eight, layers=32, seq=4096)]
    mixed = [_mixed(p) for p in (at[0], at[1], at[2], deep[0], deep[2])]
    return at + deep + mixed


def _checkpointed() -> list[Point]:
    """Gradient checkpointing."""
    eight = Point("llama-3.1-8b", 8, 4, 2048, checkpoint=True)
    return [
        eight,
        _mixed(eight),
        replace(eight, batch=2, seq=8192),
        replace(eight, layers=32, batch=1, seq=4096),
        Point("llama-3.2-1b", 16, 8, 2048, checkpoint=True),
        _mixed(Point("qwen3-1.7b", 28, 4, 2048, checkpoint=True)),
        _mixed(Point("gpt2-xl", 48, 8, 1024, checkpoint=True)),
        Point("qwen3-30b-a3b", 2, 4, 2048, checkpoint=True),
        Point("qwen3-0.6b", 28, 2, 8192, checkpoint=True),
        Point("gemma-2b", 18, 4, 2048, checkpoint=True),
    ]


def _adapters() -> list[Point]:
    """LoRA of rank 16 on bf16 weights: plain (adapters compute in fp32) and under autocast."""
    eight = Point("llama-3.1-8b", 8, 2, 2048, lora="qv")
    auto = replace(eight, autocast=True)
    return [
        eight,
        replace(eight, lora="all"),
        auto,
        replace(auto, lora="all"),
        replace(auto, lora="all", layers=32, batch=1, seq=4096, checkpoint=True),
        replace(auto, layers=32, batch=2, seq=2048),
        replace(auto, model="qwen3-8b", lora="all", batch=1, seq=8192),
        Point("qwen3-1.7b", 28, 4, 1024, lora="all", autocast=True),
        _mixed(replace(eight, lora="all")),
    ]


def _trained() -> list[Point]:
    """Points through transformers.Trainer; each has its twin in the hand-written loop."""
    one = Point("llama-3.2-1b", 16, 4, 2048, trainer=True)
    return [
        one,
        _mixed(one),
        _mixed(Point("qwen3-0.6b", 28, 1, 512, trainer=True)),
        _mixed(Point("llama-3.1-8b", 8, 4, 2048, checkpoint=True, trainer=True)),
        _mixed(Point("gpt2", 12, 8, 1024, accumulate=4, trainer=True)),
        Point("llama-3.1-8b", 4, 4, 2048, compile=True, trainer=True),
    ]


def _small() -> list[Point]:
    """Steps that the host limits, and small models."""
    small = [
        Point("qwen3-0.6b", 28, 1, 512),
        Point("gpt2", 12, 8, 1024),
        Point("llama-3.2-1b", 16, 1, 512),
        Point("gpt2-xl", 48, 1, 512),
        Point("qwen3-30b-a3b", 2, 1, 512),
        Point("gemma-3-1b", 26, 1, 512),
    ]
    twins = [_mixed(small[0]), _mixed(small[1]), _mixed(small[2])]
    return small + twins + [replace(twins[1], accumulate=4), Point("qwen3-0.6b", 28, 16, 512)]


def _variants() -> list[Point]:
    """One thing changed at a time: optimizer, clipping, accumulation, cache, mask, attention, experts."""
    one = Point("llama-3.2-1b", 16, 4, 2048)
    moe = Point("qwen3-30b-a3b", 2, 4, 2048)
    eight = Point("llama-3.1-8b", 4, 2, 2048)
    return [
        replace(one, autocast=True),
        replace(one, optimizer="foreach"),
        replace(one, clip=0.0),
        replace(one, check=False),
        replace(one, cache=True),
        replace(one, mask="none"),
        replace(one, mask="padded"),
        replace(one, batch=1, accumulate=4),
        _mixed(replace(one, batch=1, accumulate=4)),
        _mixed(replace(one, optimizer="foreach")),
        replace(eight, attention="eager"),
        replace(eight, batch=4, autocast=True),
        _mixed(replace(eight, mask="padded")),
        replace(moe, experts="eager"),
        replace(moe, batch=2, seq=4096, layers=4),
        replace(moe, autocast=True),
        _mixed(Point("qwen3-1.7b", 28, 1, 4096, attention="eager")),
        Point("gpt2", 12, 8, 1024, attention="eager"),
        replace(eight, batch=1, seq=8192, attention="flash_attention_2"),
        _mixed(replace(eight, batch=4, attention="flash_attention_2")),
    ]


def _long() -> list[Point]:
    """Long sequences and other shapes of the smaller models."""
    return [
        Point("llama-3.2-1b", 16, 1, 8192),
        _mixed(Point("llama-3.2-1b", 16, 1, 8192)),
        Point("gemma-2b", 18, 1, 8192),
        Point("mistral-7b", 4, 1, 8192),
        _mixed(Point("qwen3-1.7b", 28, 1, 8192)),
        Point("gemma-3-1b", 26, 1, 8192),
        Point("gemma-2-2b", 26, 2, 2048),
        _mixed(Point("gemma-2-2b", 26, 2, 2048)),
        _mixed(Point("mistral-7b", 8, 4, 1024)),
        Point("qwen3-8b", 8, 2, 4096),
        Point("llama-3.2-1b", 16, 16, 512),
    ]


def plan() -> list[Point]:
    """All points, the most informative first."""
    core, shapes, checkpointed = _core(), _shapes(), _checkpointed()
    compiled, adapters, trained = _compiled(), _adapters(), _trained()
    small, variants, long = _small(), _variants(), _long()
    points = core[:12] + shapes[:3] + compiled[:2] + checkpointed[:4] + adapters[:4]
    points += trained[:3] + small[:3] + core[12:] + variants[:7] + compiled[2:5] + small[3:]
    points += shapes[3:] + trained[3:] + checkpointed[4:] + adapters[4:] + variants[7:] + long
    return list({point.id: point for point in points + compiled[5:]}.values())


PROFILES = (
    "llama-3.1-8b/L4/4x2048/bf16",
    "llama-3.1-8b/L4/4x2048/fp32/autocast",
    "llama-3.1-8b/L4/4x2048/bf16/compile",
    "qwen3-30b-a3b/L2/4x2048/bf16",
)
"""Points whose kernels --profile lists unless --only names others."""
