"""Real transformer layers with random weights: forward as in training, and forward with backward.

The forward pass keeps what the backward pass needs. Gradients are made, not added to older ones, as with
`zero_grad(set_to_none=True)`. seconds are those of all `layers` together; there are several where one
layer's weights would stay in the cache.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from foretell.lab.calibrate.measure.attention import BACKENDS
from foretell.lab.calibrate.measure.bench import Bench
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.point import HostMachine, Launch, MeasurePoint, Pass

if TYPE_CHECKING:
    from foretell.lab.calibrate.measure.modules import BenchShape

Sizes = tuple[str, int, int, int, int, int]
"""(style, hidden, heads, kv_heads, ffn, layers)."""
SMALL_LLAMA: Sizes = ("llama", 2048, 32, 8, 8192, 4)
LLAMA_8B: Sizes = ("llama", 4096, 32, 8, 14336, 2)
LLAMA_70B: Sizes = ("llama", 8192, 64, 8, 28672, 1)
GPT2: Sizes = ("gpt", 768, 12, 12, 3072, 8)
GPT2_XL: Sizes = ("gpt", 1600, 25, 25, 6400, 4)
GPT3: Sizes = ("gpt", 12288, 96, 96, 49152, 1)
EAGER: tuple[Launch, ...] = ("eager",)
ALL: tuple[Launch, ...] = ("eager", "graph", "compiled")
PLAIN: tuple[Launch, ...] = ("eager", "graph")
CASES: tuple[tuple[int, Sizes, int, int, tuple[Launch, ...], str], ...] = (
    (0, LLAMA_8B, 1, 4096, ALL, "flash"),
    (0, GPT2, 8, 1024, ALL, "flash"),
    (1, LLAMA_70B, 1, 4096, ALL, "flash"),
    (1, LLAMA_8B, 1, 4096, PLAIN, "cudnn"),
    (1, SMALL_LLAMA, 4, 2048, PLAIN, "flash"),
    (1, LLAMA_8B, 1, 1024, PLAIN, "flash"),
    (2, GPT2_XL, 8, 1024, ALL, "flash"),
    (2, LLAMA_8B, 4, 4096, PLAIN, "flash"),
    (2, LLAMA_8B, 1, 256, PLAIN, "flash"),
    (2, GPT3, 1, 2048, PLAIN, "flash"),
    (2, LLAMA_8B, 1, 32768, EAGER, "flash"),
    (2, LLAMA_8B, 1, 32768, EAGER, "cudnn"),
    (3, SMALL_LLAMA, 4, 2048, ("compiled",), "flash"),
    (3, LLAMA_70B, 1, 4096, PLAIN, "cudnn"),
)
"""(level, layer, batch, tokens of a sequence, launches, attention's backend)."""
CPU_CASES: tuple[tuple[int, Sizes, int, int, tuple[Launch, ...], str], ...] = (
    (0, ("gpt", 512, 8, 8, 2048, 2), 2, 128, EAGER, "default"),
    (0, ("llama", 512, 8, 4, 1536, 2), 2, 128, EAGER, "default"),
    (1, ("llama", 768, 12, 12, 2048, 2), 2, 256, EAGER, "default"),
    (2, ("llama", 512, 8, 4, 1536, 2), 2, 128, ("compiled",), "default"),
)
SHORT_CASES: tuple[tuple[int, Sizes, int, int, tuple[Launch, ...], str], ...] = (
    (0, ("llama", 32, 4, 2, 64, 2), 1, 8, EAGER, "default"),
    (0, ("gpt", 32, 4, 4, 64, 2), 1, 8, EAGER, "default"),
)
BOTH: tuple[Pass, ...] = ("forward", "forward+backward")
SUSTAINED_S, COMPILE_S = 1.4, 15.0
"""How long a layer runs without pause; what a first compilation takes."""


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine."""
    cases = SHORT_CASES if host.short else CPU_CASES if host.device == "cpu" else CASES
    return [
        _point(host, case, launch, passed)
        for case in cases
        for launch in case[4]
        for passed in BOTH
    ]


def _point(
    host: HostMachine,
    case: tuple[int, Sizes, int, int, tuple[Launch, ...], str],
    launch: Launch,
    passed: Pass,
) -> MeasurePoint:
    level, (style, hidden, heads, kv, ffn, layers), batch, tokens, _, backend = case
    sizes = {"hidden": hidden, "heads": heads, "kv_heads": kv, "ffn": ffn, "layers": layers}
    dims = {**sizes, "batch": batch, "tokens": tokens}
    first = launch == "compiled" and passed == "forward"
    kept = layer_weights(dims, style) * 2.0 + kept_numbers(dims)
    return MeasurePoint(
        group="layers",
        family="layer",
        variant=f"{style}/{backend}",
        dims=dims,
        dtype=host.main,
        passed=passed,
        mode="sustained",
        launch=launch,
        # Compiling takes long: what is compiled comes behind its eager and replayed fellows.
        level=level + (1 if launch == "compiled" and level == 0 else 0),
        memory_bytes=kept * host.item_bytes * 1.2 + 1e9,
        cost_s=SUSTAINED_S + (COMPILE_S if first else 0.8),
    )


def layer_weights(dims: Any, style: str) -> float:
    """Weights of all layers, norms and biases left out."""
    hidden, ffn = dims["hidden"], dims["ffn"]
    keys = hidden * dims["kv_heads"] / dims["heads"]
    parts = 2.0 * hidden * hidden + 2.0 * hidden * keys
    return float(dims["layers"] * (parts + (3 if style == "llama" else 2) * hidden * ffn))


def kept_numbers(dims: Any) -> float:
    """Numbers kept for the backward pass, roughly and rather too many."""
    tokens = dims["batch"] * dims["tokens"]
    return float(dims["layers"] * tokens * (10.0 * dims["hidden"] + 5.0 * dims["ffn"]))


def layer_flop(dims: Any, style: str, keys_seen: float) -> float:
    """Forward operations of all layers; `keys_seen` is the mean number of keys a token looks at."""
    tokens = dims["batch"] * dims["tokens"]
    scores = 4.0 * tokens * keys_seen * dims["hidden"] * dims["layers"]
    return float(2.0 * tokens * layer_weights(dims, style) + scores)


def shape_of(point: MeasurePoint) -> "BenchShape":
    """The sizes as the modules want them."""
    from foretell.lab.calibrate.measure.modules import BenchShape

    dims, style = point.dims, point.variant.partition("/")[0]
    return BenchShape(
        style="llama" if style == "llama" else "gpt",
        hidden=dims["hidden"],
        heads=dims["heads"],
        kv_heads=dims["kv_heads"],
        ffn=dims["ffn"],
    )


def attention_backend(
    point: MeasurePoint, bench: Bench
) -> Callable[[], AbstractContextManager[Any]]:
    """The context in which attention takes the backend asked for."""
    backend = point.variant.partition("/")[2]
    if backend == "default":
        return nullcontext
    torch = bench.torch
    chosen = getattr(torch.nn.attention.SDPBackend, BACKENDS[backend])
    return lambda: torch.nn.attention.sdpa_kernel(chosen)


def compile_call(torch: Any, call: Any) -> Any:
    """A function or module compiled for its sizes alone, without falling back for having had many."""
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 64)
    return torch.compile(call, dynamic=False)


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Layers, an input and the calls."""
    from foretell.lab.calibrate.measure.modules import BenchLayer, angles, make_module

    torch, dims = bench.torch, point.dims
    shape, dtype = shape_of(point), bench.dtype(point.dtype)
    blocks = [
        make_module(lambda: BenchLayer(shape), bench.device, dtype) for _ in range(dims["layers"])
    ]
    weights = [weight for block in blocks for weight in block.parameters()]
    x = bench.random(dims["batch"], dims["tokens"], dims["hidden"], dtype=point.dtype)
    x.requires_grad_()
    slope = bench.random(*x.shape, dtype=point.dtype)
    turns = angles(dims["tokens"], shape.hidden // shape.heads, 0, x)
    runs = [compile_call(torch, b.forward) if point.launch == "compiled" else b for b in blocks]
    context = attention_backend(point, bench)

    def forward() -> Any:
        y = x
        with context():
            for run in runs:
                y = run(y, turns)
        return y

    def both() -> None:
        torch.autograd.grad(forward(), (x, *weights), slope)

    style = shape.style
    flop = layer_flop(dims, style, dims["tokens"] / 2)
    one_way = point.passed == "forward"
    item = x.element_size()
    return TimedWork(
        calls=[forward if one_way else both],
        flop=flop if one_way else 3.0 * flop,
        bytes_moved=item * layer_weights(dims, style) * (1.0 if one_way else 3.0),
        rotated_bytes=item * (layer_weights(dims, style) + kept_numbers(dims)),
        facts={"tokens": dims["batch"] * dims["tokens"]},
    )
