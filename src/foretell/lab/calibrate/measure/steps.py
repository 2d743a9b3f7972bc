"""Whole steps of small models: training with head, loss and AdamW; prefill; decode with a cache.

train_step: weights, gradients and Adam's moments all in `dtype`; with dtype `bf16-mixed`, fp32 weights,
gradients and moments with autocast. decode_step: one token of every sequence, `context` keys in the cache.
"""

from collections.abc import Callable
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench, tensor_bytes
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.layers import (
    attention_backend,
    compile_call,
    kept_numbers,
    layer_flop,
    layer_weights,
    shape_of,
)
from foretell.lab.calibrate.measure.point import FULL, HostMachine, Launch, MeasurePoint

Sizes = tuple[str, int, int, int, int, int, int]
"""(style, hidden, heads, kv_heads, ffn, layers, vocab)."""
LLAMA_3 = 128256
"""Llama 3's vocabulary."""
GPT2: Sizes = ("gpt", 768, 12, 12, 3072, 12, 50304)
GPT2_XL: Sizes = ("gpt", 1600, 25, 25, 6400, 48, 50304)
LLAMA_1B: Sizes = ("llama", 2048, 32, 8, 8192, 16, LLAMA_3)
PART_8B: Sizes = ("llama", 4096, 32, 8, 14336, 8, LLAMA_3)
LLAMA_8B: Sizes = ("llama", 4096, 32, 8, 14336, 32, LLAMA_3)
PART_70B: Sizes = ("llama", 8192, 64, 8, 28672, 4, LLAMA_3)
Training = tuple[int, Sizes, int, int, tuple[Launch, ...], str, str]
"""(level, model, batch, tokens of a sequence, launches, attention's backend, dtype)."""
TRAINING: tuple[Training, ...] = (
    (0, PART_8B, 1, 4096, ("eager", "compiled"), "flash", "main"),
    (0, GPT2, 16, 1024, ("eager", "compiled"), "flash", "main"),
    (1, PART_70B, 1, 4096, ("eager", "compiled"), "flash", "main"),
    (1, LLAMA_1B, 2, 4096, ("eager",), "flash", "main"),
    (1, PART_8B, 1, 4096, ("eager",), "flash", "mixed"),
    (2, PART_8B, 1, 4096, ("eager",), "cudnn", "main"),
    (2, LLAMA_8B, 1, 4096, ("eager",), "flash", "main"),
    (2, GPT2_XL, 8, 1024, ("eager", "compiled"), "flash", "main"),
    (3, LLAMA_1B, 2, 4096, ("compiled",), "flash", "main"),
    (3, GPT2, 1, 256, ("eager",), "flash", "main"),
)
CPU_GPT: Sizes = ("gpt", 256, 4, 4, 1024, 4, 8192)
CPU_LLAMA: Sizes = ("llama", 384, 6, 2, 1024, 4, 8192)
CPU_TRAINING: tuple[Training, ...] = (
    (0, CPU_GPT, 2, 128, ("eager",), "default", "main"),
    (0, CPU_LLAMA, 2, 128, ("eager",), "default", "main"),
    (1, CPU_LLAMA, 4, 256, ("eager",), "default", "main"),
    (2, CPU_LLAMA, 2, 128, ("compiled",), "default", "main"),
)
TINY: Sizes = ("llama", 32, 4, 2, 64, 2, 64)
Serving = tuple[int, Sizes, int, int]
"""(level, model, batch, context)."""
DECODES: tuple[Serving, ...] = (
    (0, LLAMA_8B, 1, 4096),
    (0, LLAMA_8B, 32, 1024),
    (1, LLAMA_8B, 128, 1024),
    (1, PART_70B, 16, 2048),
    (2, LLAMA_8B, 1, 512),
    (2, LLAMA_8B, 32, 8192),
    (2, GPT2, 8, 512),
    (3, LLAMA_8B, 256, 512),
    (3, LLAMA_8B, 8, 2048),
)
PREFILLS: tuple[Serving, ...] = (
    (0, LLAMA_8B, 1, 4096),
    (1, LLAMA_8B, 1, 512),
    (2, PART_70B, 1, 8192),
    (2, LLAMA_8B, 4, 4096),
)
PLAIN: tuple[Launch, ...] = ("graph", "eager")
SUSTAINED_S = {"train_step": 2.0, "prefill_step": 1.2, "decode_step": 1.2}
COST_S = {"train_step": 5.0, "prefill_step": 2.2, "decode_step": 2.2}
COMPILE_S = 20.0


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine."""
    if host.short:
        training: tuple[Training, ...] = ((0, TINY, 1, 8, ("eager",), "default", "main"),)
        decodes: tuple[Serving, ...] = ((0, TINY, 2, 8),)
        prefills: tuple[Serving, ...] = ((0, TINY, 1, 8),)
    elif host.device == "cpu":
        training, decodes = CPU_TRAINING, ((0, CPU_LLAMA, 1, 256), (1, CPU_LLAMA, 8, 512))
        prefills = ((0, CPU_LLAMA, 1, 256),)
    else:
        training, decodes, prefills = TRAINING, DECODES, PREFILLS
    launches: tuple[Launch, ...] = ("eager",) if host.device == "cpu" else PLAIN
    found = [_training(host, case, launch) for case in training for launch in case[4]]
    for family, cases in (("decode_step", decodes), ("prefill_step", prefills)):
        found += [_serving(host, family, case, launch) for case in cases for launch in launches]
    return found


def _dims(sizes: Sizes, batch: int, tokens: int) -> dict[str, int]:
    _, hidden, heads, kv, ffn, layers, vocab = sizes
    dims = {"hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "layers": layers}
    return {**dims, "vocab": vocab, "batch": batch, "tokens": tokens}


def _training(host: HostMachine, case: Training, launch: Launch) -> MeasurePoint:
    level, sizes, batch, tokens, _, backend, form = case
    dims, style = _dims(sizes, batch, tokens), sizes[0]
    mixed = form == "mixed"
    item = host.item_bytes
    states = 4.0 * (FULL if mixed else item) * (layer_weights(dims, style) + table(dims))
    scores = 14.0 * batch * tokens * dims["vocab"]
    later = 1 if launch == "compiled" and level == 0 else 0
    return MeasurePoint(
        group="steps",
        family="train_step",
        variant=f"{style}/{backend}",
        dims=dims,
        dtype="bf16-mixed" if mixed else host.main,
        passed="step",
        mode="sustained",
        launch=launch,
        level=level + later,
        memory_bytes=1.1 * (states + item * kept_numbers(dims) + scores) + 1e9,
        cost_s=COST_S["train_step"] + (COMPILE_S if launch == "compiled" else 0.0),
    )


def _serving(host: HostMachine, family: str, case: Serving, launch: Launch) -> MeasurePoint:
    level, sizes, batch, context = case
    decode = family == "decode_step"
    dims, style = _dims(sizes, batch, 1 if decode else context), sizes[0]
    item = host.item_bytes
    kept = 2.0 * batch * context * dims["hidden"] * dims["kv_heads"] / dims["heads"]
    weights = layer_weights(dims, style) + table(dims)
    busy = 10.0 * batch * dims["tokens"] * (dims["ffn"] + dims["hidden"])
    backend = "default" if decode or host.device == "cpu" else "flash"
    return MeasurePoint(
        group="steps",
        family=family,
        variant=f"{style}/{backend}",
        dims={**dims, "context": context} if decode else dims,
        dtype=host.main,
        passed="step",
        mode="sustained",
        launch=launch,
        level=level,
        memory_bytes=item * (weights + kept * dims["layers"] * decode + busy) + 1e9,
        cost_s=COST_S[family],
    )


def table(dims: Any) -> float:
    """Weights of the token table and of the head."""
    return float(2.0 * dims["vocab"] * dims["hidden"])


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """A model and its step."""
    if point.family == "train_step":
        return _train(point, bench)
    return _serve(point, bench)


def _built(point: MeasurePoint, bench: Bench, dtype: Any) -> tuple[Any, Any]:
    from foretell.lab.calibrate.measure.modules import BenchModel, angles, make_module

    shape, dims = shape_of(point), point.dims
    model = make_module(
        lambda: BenchModel(shape, dims["layers"], dims["vocab"]), bench.device, dtype
    )
    start = dims.get("context", dims["tokens"]) - dims["tokens"]
    like = model.norm.weight
    if point.dtype == "bf16-mixed":
        like = like.to(bench.torch.bfloat16)
    turns = angles(dims["tokens"], shape.hidden // shape.heads, start, like)
    return model, turns


def _train(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Forward, loss, backward, AdamW; blocks and loss are compiled where asked."""
    from foretell.lab.calibrate.measure.modules import loss_of

    torch, dims = bench.torch, point.dims
    mixed = point.dtype == "bf16-mixed"
    model, turns = _built(point, bench, torch.float32 if mixed else bench.dtype(point.dtype))
    loss: Callable[..., Any] = loss_of
    if point.launch == "compiled":
        for block in model.blocks:
            block.forward = compile_call(torch, block.forward)
        loss = compile_call(torch, loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = bench.integers(dims["vocab"], dims["batch"], dims["tokens"])
    targets = bench.integers(dims["vocab"], dims["batch"], dims["tokens"])
    context = attention_backend(point, bench)
    cast = torch.autocast(bench.device, torch.bfloat16, enabled=mixed)

    def step() -> None:
        with context(), cast:
            value = loss(model(ids, turns), model.head.weight, targets)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    tokens = dims["batch"] * dims["tokens"]
    style = shape_of(point).style
    flop = layer_flop(dims, style, dims["tokens"] / 2) + tokens * table(dims)
    return TimedWork(
        calls=[step],
        flop=3.0 * flop,
        facts={"tokens": tokens, "parameters": sum(w.numel() for w in model.parameters())},
    )


def _serve(point: MeasurePoint, bench: Bench) -> TimedWork:
    """One forward pass without gradients: of whole prompts, or of one token behind a cache."""
    torch, dims = bench.torch, point.dims
    model, turns = _built(point, bench, bench.dtype(point.dtype))
    decode = point.family == "decode_step"
    ids = bench.integers(dims["vocab"], dims["batch"], dims["tokens"])
    caches = [_cache(point, bench) for _ in range(dims["layers"])] if decode else None
    at = dims["context"] - 1 if decode else 0
    context = attention_backend(point, bench)

    def step() -> Any:
        with torch.no_grad(), context():
            x = model(ids, turns, caches, at)
            return torch.nn.functional.linear(x[:, -1], model.head.weight)

    style = shape_of(point).style
    seen = float(dims["context"]) if decode else dims["tokens"] / 2
    weights = tensor_bytes([*model.blocks.parameters(), model.head.weight])
    held = sum(tensor_bytes(pair) for pair in caches) if caches else 0.0
    return TimedWork(
        calls=[step],
        flop=layer_flop(dims, style, seen) + dims["batch"] * table(dims),
        bytes_moved=weights + held,
        rotated_bytes=weights + held,
        facts={"tokens": dims["batch"] * dims["tokens"]},
    )


def _cache(point: MeasurePoint, bench: Bench) -> tuple[Any, Any]:
    dims = point.dims
    width = dims["hidden"] // dims["heads"]
    sizes = (dims["batch"], dims["kv_heads"], dims["context"], width)
    return bench.random(*sizes, dtype=point.dtype), bench.random(*sizes, dtype=point.dtype)
