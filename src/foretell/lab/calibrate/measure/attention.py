"""Attention by every backend that torch's scaled_dot_product_attention offers.

prefill: as many queries as keys (or fewer, at the end of the keys); decode: one query of each sequence.
Operations: 4 x batch x heads x queries x keys x head_dim forward, half of it where causal, 2.5 times it
backward.
"""

from collections.abc import Callable, Iterator
from typing import Any

from foretell.lab.calibrate.measure.bench import Bench
from foretell.lab.calibrate.measure.clock import TimedWork
from foretell.lab.calibrate.measure.file import HostMachine, MeasurePoint, Mode, Pass, planned

PLANNED = planned("attention")

BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
"""Our names of torch's backends; flash is FlashAttention 2 on CUDA, and torch's own kernel on a CPU."""
TOKENS = 16384
"""Tokens of a batch, where one sequence is not longer."""


def points(host: HostMachine) -> list[MeasurePoint]:
    """Coarse to fine."""
    if host.short:
        sizes = {"batch": 1, "heads": 4, "kv_heads": 2, "queries": 16, "keys": 16, "head_dim": 16}
        small = {**sizes, "causal": 1}
        both: tuple[Pass, ...] = ("forward", "backward")
        short = [_prefill(host, small, "math", passed, 0) for passed in both]
        return [*short, _decode(host, {**sizes, "queries": 1, "causal": 0}, "math", 0)]
    if host.device == "cpu":
        return list(_on_cpu(host))
    return [*_prefills(host), *_long_runs(host), *_decodes(host)]


def _on_cpu(host: HostMachine) -> Iterator[MeasurePoint]:
    for heads, kv, width in ((12, 12, 64), (16, 4, 64)):
        for level, keys in ((0, 128), (0, 512), (1, 1024), (2, 256)):
            for passed in ("forward", "backward"):
                sizes = _sizes(2, heads, kv, keys, keys, width)
                yield _prefill(host, sizes, "flash", passed, level)
        for batch, keys in ((1, 512), (8, 1024), (1, 4096)):
            yield _decode(host, _sizes(batch, heads, kv, 1, keys, width, causal=0), "flash", 1)


def _sizes(
    batch: int, heads: int, kv: int, queries: int, keys: int, width: int, causal: int = 1
) -> dict[str, int]:
    return {
        "batch": batch,
        "heads": heads,
        "kv_heads": kv,
        "queries": queries,
        "keys": keys,
        "head_dim": width,
        "causal": causal,
    }


def _prefills(host: HostMachine) -> Iterator[MeasurePoint]:
    both: tuple[Pass, ...] = ("forward", "backward")
    for rank, (heads, kv, width) in enumerate(PLANNED["models"]):
        for length_level, lengths in enumerate(PLANNED["lengths"]):
            for keys in lengths:
                batch = max(1, TOKENS // keys)
                level = max(length_level, (0, 1, 1, 2, 2)[rank])
                for causal in (1, 0):
                    sizes = _sizes(batch, heads, kv, keys, keys, width, causal)
                    for passed in both:
                        for name, later in (("flash", 0), ("cudnn", 0), ("efficient", 2)):
                            later += 0 if causal else 1
                            if name == "efficient" and heads != kv:
                                continue  # it knows no shared keys
                            yield _prefill(host, sizes, name, passed, level + later)
    # One sequence alone does not fill the chip; windows of new tokens behind a long past are causal too.
    for name in ("flash", "cudnn"):
        for keys in (128, 512, 2048):
            for passed in both:
                yield _prefill(host, _sizes(1, 32, 8, keys, keys, 128), name, passed, 2)
        yield _prefill(host, _sizes(1, 32, 8, 2048, 16384, 128, causal=0), name, "forward", 2)
    for passed in both:
        yield _prefill(host, _sizes(4, 16, 16, 1024, 1024, 64), "math", passed, 1)


def _long_runs(host: HostMachine) -> Iterator[MeasurePoint]:
    for level, name in ((0, "flash"), (0, "cudnn")):
        for passed in ("forward", "backward"):
            sizes = _sizes(2, 32, 8, 8192, 8192, 128)
            yield _prefill(host, sizes, name, passed, level, mode="sustained")


def _decodes(host: HostMachine) -> Iterator[MeasurePoint]:
    for level, pairs in enumerate(PLANNED["decodes"]):
        for batch, keys in pairs:
            for rank, (heads, kv, width) in enumerate(((32, 8, 128), (64, 8, 128), (32, 32, 128))):
                sizes = _sizes(batch, heads, kv, 1, keys, width, causal=0)
                for name, later in (
                    ("flash", 0),
                    ("flash-folded", 0),
                    ("cudnn", 1),
                    ("efficient", 2),
                ):
                    shared = heads > kv
                    if shared if name == "flash-folded" else name != "efficient" or not shared:
                        yield _decode(host, sizes, name, level + later + min(rank, 1))


def _prefill(
    host: HostMachine,
    sizes: dict[str, int],
    variant: str,
    passed: Pass,
    level: int,
    mode: Mode = "burst",
) -> MeasurePoint:
    width = host.item_bytes
    rows = sizes["batch"] * sizes["heads"]
    tokens = sizes["batch"] * (sizes["heads"] + sizes["kv_heads"]) * sizes["keys"]
    scores = rows * sizes["queries"] * sizes["keys"] if variant == "math" else 0
    return MeasurePoint(
        group="attention",
        family="prefill",
        variant=variant,
        dims=sizes,
        dtype=host.main,
        passed=passed,
        mode=mode,
        launch=host.bare,
        level=level,
        memory_bytes=8.0 * tokens * sizes["head_dim"] * width + 16.0 * scores + 6e8,
        cost_s=2.6 if mode == "sustained" else 0.2,
    )


def _decode(host: HostMachine, sizes: dict[str, int], variant: str, level: int) -> MeasurePoint:
    width = host.item_bytes
    held = 2.0 * sizes["batch"] * sizes["kv_heads"] * sizes["keys"] * sizes["head_dim"] * width
    return MeasurePoint(
        group="attention",
        family="decode",
        variant=variant,
        dims=sizes,
        dtype=host.main,
        launch=host.bare,
        level=level,
        memory_bytes=2.2 * held + 6e8,
        cost_s=0.2,
    )


def work(point: MeasurePoint, bench: Bench) -> TimedWork:
    """Buffers and calls of a point."""
    names = ("batch", "heads", "kv_heads", "queries", "keys", "head_dim")
    batch, heads, kv, queries, keys, width = (point.dims[name] for name in names)
    item = bench.host.item_bytes
    one = item * batch * width * (2 * heads * queries + 2 * kv * keys)
    backward = point.passed == "backward"
    calls = bench.rotate(one, lambda: _call(point, bench))
    share = 0.5 if point.dims["causal"] else 1.0
    flop = 4.0 * batch * heads * queries * keys * width * share
    return TimedWork(
        calls=calls,
        flop=flop * (2.5 if backward else 1.0),
        bytes_moved=one * (2.0 if backward else 1.0),
        rotated_bytes=one * len(calls),
        facts={"causal_halved": bool(point.dims["causal"])},
    )


def _call(point: MeasurePoint, bench: Bench) -> Callable[[], object]:
    torch, dims = bench.torch, point.dims
    batch, heads, kv, width = (dims[name] for name in ("batch", "heads", "kv_heads", "head_dim"))
    queries, folded = dims["queries"], point.variant == "flash-folded"
    # Sequence before heads in memory, as projections leave them.
    q = bench.random(batch, queries, heads, width, dtype=point.dtype).transpose(1, 2)
    k = bench.random(batch, dims["keys"], kv, width, dtype=point.dtype).transpose(1, 2)
    v = bench.random(batch, dims["keys"], kv, width, dtype=point.dtype).transpose(1, 2)
    if folded:  # the heads that share keys and values become queries of one head
        q = q.reshape(batch, kv, heads // kv * queries, width)
    backend = getattr(torch.nn.attention.SDPBackend, BACKENDS[point.variant.partition("-")[0]])
    grouped = {"enable_gqa": True} if heads != kv and not folded else {}

    def forward() -> Any:
        with torch.nn.attention.sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=bool(dims["causal"]), **grouped
            )

    if point.passed == "forward":
        return lambda: _without_gradients(torch, forward)
    inputs = (q.requires_grad_(), k.requires_grad_(), v.requires_grad_())
    out = forward()
    slope = bench.random(*out.shape, dtype=point.dtype)
    return lambda: torch.autograd.grad(out, inputs, slope, retain_graph=True)


def _without_gradients(torch: Any, forward: Callable[[], Any]) -> Any:
    with torch.no_grad():
        return forward()
