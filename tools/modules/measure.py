"""Steps of the modules beside this file, timed on the GPU of this machine, and rates of kernels.

`python tools/modules/measure.py OUT cases|library|later|newer|latest|kernels|updates|starts [SECONDS]` writes OUT/*.jsonl;
`cases:compiled` is a part, `cases:profiled` has the kernels of each step instead of its time, and `cases:warm`
compiles what is compiled in several processes, so that the timed one finds it done. It needs PyTorch, and
`library` transformers.
"""

import gc
import importlib
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bench_modules

BENCH = [bench_modules]
"""The file whose modules are measured."""


def optimizer_of(module, update):
    weights = [p for p in module.parameters() if p.requires_grad]
    if update == "sgd":
        return torch.optim.SGD(weights, lr=1e-4, momentum=0.9)
    kind = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}[
        update
    ]
    return torch.optim.AdamW(weights, lr=1e-4, **kind)


def make(case):
    name, precision, compiled, micro, update = case
    torch.manual_seed(0)
    found = getattr(BENCH[0], name)()
    module, inputs = found[0], found[1]
    loss = found[2] if len(found) > 2 else None
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    pure = precision == "bf16"

    def put(t):
        return t.to("cuda", torch.bfloat16 if pure and t.is_floating_point() else None)

    module = module.cuda().train()
    module = module.bfloat16() if pure else module
    inputs = (
        {k: put(v) if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
        if isinstance(inputs, dict)
        else tuple(map(put, inputs))
    )
    run = torch.compile(module) if compiled else module
    optimizer = optimizer_of(module, update)

    def value():
        named = isinstance(inputs, dict)
        args, kw = ((), inputs) if named else (inputs, {})
        if loss is not None:
            return loss(run, *args, **kw)
        return run(*args, **kw).sum()

    def step():
        for _ in range(micro):
            narrow = torch.float16 if precision == "fp16" else torch.bfloat16
            with torch.autocast("cuda", narrow, enabled=precision in ("autocast", "fp16")):
                result = value()
            result.backward()
        del result
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(step, warm, most_s=0.8):
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times, hosts, start = [], [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - start < most_s and len(times) < 30):
        torch.cuda.synchronize()
        a = time.perf_counter()
        step()
        b = time.perf_counter()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - a)
        hosts.append(b - a)
    # Back to back, as a training loop runs.
    torch.cuda.synchronize()
    a = time.perf_counter()
    many = max(3, min(20, int(0.8 / times[-1])))
    for _ in range(many):
        step()
    torch.cuda.synchronize()
    loop = (time.perf_counter() - a) / many
    middle = sorted(times)[len(times) // 2]
    return {"synced_s": middle, "loop_s": loop, "host_s": sorted(hosts)[len(hosts) // 2]}


def profiled(step):
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True
    ) as prof:
        step()
        torch.cuda.synchronize()
    rows = []
    for e in prof.key_averages(group_by_input_shape=True):
        if e.self_device_time_total > 0 or e.key.startswith("aten::"):
            if str(getattr(e, "device_type", "")).endswith("CUDA"):
                continue
            rows.append(
                [
                    e.key,
                    str(e.input_shapes)[:160],
                    e.count,
                    e.self_device_time_total,
                    e.self_cpu_time_total,
                ]
            )
    busy = sum(
        e.self_device_time_total for e in prof.key_averages() if str(e.device_type).endswith("CUDA")
    )
    kernels = sorted(
        (
            [e.key[:120], e.count, e.self_device_time_total]
            for e in prof.key_averages()
            if str(e.device_type).endswith("CUDA")
        ),
        key=lambda r: -r[2],
    )[:25]
    rows.sort(key=lambda r: -r[3])
    return {"busy_us": busy, "ops": rows[:150], "kernels": kernels}


def warm(what, limit_s, processes=8):
    """Compile every compiled case twice over several processes, into the cache on disk."""
    if "warm:" in what:
        part = int(what.split(":")[2])
        for case in [c for c in BENCH[0].CASES if c[2]][part::processes]:
            try:
                step = make(case)
                step()
                step()
                torch.cuda.synchronize()
            except Exception as error:
                print(case, f"{type(error).__name__}: {error}"[:300], flush=True)
            step = None
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()
        return
    own = [sys.executable, __file__, os.devnull]
    running = [subprocess.Popen([*own, f"{what}:{n}"]) for n in range(processes)]
    start = time.perf_counter()
    for one in running:
        try:
            one.wait(max(limit_s - (time.perf_counter() - start), 1.0))
        except subprocess.TimeoutExpired:
            one.kill()
    print("compiled in", time.perf_counter() - start, flush=True)


def cases(out, limit_s, only=None, profile=False):
    """Steps, timed or profiled: once a process has profiled one, all later ones start their kernels slower."""
    start = time.perf_counter()
    chosen = [c for c in BENCH[0].CASES if only is None or c[2] == only]
    # Compiled ones last: they take their time.
    for case in sorted(chosen, key=lambda c: c[2]):
        if time.perf_counter() - start > limit_s:
            print("out of time before", case)
            break
        row = {"case": case}
        try:
            gc.collect()
            torch.cuda.empty_cache()
            begin = time.perf_counter()
            row["base_bytes"] = torch.cuda.memory_allocated()
            step = make(case)
            row |= timed(step, 4 if case[2] else 3)
            row["allocated_bytes"] = torch.cuda.max_memory_allocated()
            row["reserved_bytes"] = torch.cuda.max_memory_reserved()
            row["after_bytes"] = torch.cuda.memory_allocated()
            if profile:
                row = {"case": case, "profile": profiled(step)}
            row["took_s"] = time.perf_counter() - begin
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        step = None
        with (Path(out) / ("profiles.jsonl" if profile else "cases.jsonl")).open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            case,
            {k: round(v, 5) for k, v in row.items() if isinstance(v, float)},
            row.get("allocated_bytes", 0) / 1e9,
            row.get("error", ""),
            flush=True,
        )
        if case[2]:
            torch._dynamo.reset()


def kernel_time(make_call, repeats=20):
    """GPU and host seconds of one call, queued behind a sleep so that neither waits for the other."""
    call = make_call()
    call()
    call()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(3e7))
    begin.record()
    a = time.perf_counter()
    for _ in range(repeats):
        call()
    host = (time.perf_counter() - a) / repeats
    end.record()
    torch.cuda.synchronize()
    gpu = begin.elapsed_time(end) / 1e3 / repeats
    if host * repeats > 0.014:  # the sleep may have ended first
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(3e8))
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        gpu = begin.elapsed_time(end) / 1e3 / repeats
    return gpu, host


def both(make_output):
    """Forward with a graph, and its backward pass."""

    def forward():
        fn = make_output()
        return lambda: fn()

    def backward():
        fn = make_output()
        y = fn()
        leaves = y if isinstance(y, torch.Tensor) else y[0]
        g = torch.randn_like(leaves)
        wants = [t for t in fn.leaves]
        return lambda: torch.autograd.grad(leaves, wants, g, retain_graph=True)

    return forward, backward


def call_of(fn, *leaves):
    def run():
        return fn(*leaves)

    run.leaves = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    return run


def r(*shape, dtype=torch.float32, grad=True):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_(grad)


def kernels(out, limit_s):
    start = time.perf_counter()
    bf, f4 = torch.bfloat16, torch.float32
    rows = []

    def add(name, sizes, fn, *leaves):
        rows.append(
            (
                name,
                sizes,
                lambda: call_of(fn, *[make() if callable(make) else make for make in leaves]),
            )
        )

    for d in (f4, bf):
        for n in (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26):
            leaf = lambda n=n, d=d: r(n // 64, 64, dtype=d)
            s = {"n": n, "d": str(d)}
            add("add", s, torch.add, leaf, leaf)
            add("mul", s, torch.mul, leaf, leaf)
            add("gelu", s, F.gelu, leaf)
            add("silu", s, F.silu, leaf)
            add("exp", s, torch.exp, leaf)
            add("relu", s, F.relu, leaf)
            add("dropout", s, lambda x: F.dropout(x, 0.1), leaf)
            add("cast", s, lambda x: x.to(bf if x.dtype == f4 else f4), leaf)
            add("transpose_copy", s, lambda x: x.t().contiguous(), leaf)
            add("cat", s, lambda x, y: torch.cat([x, y], -1), leaf, leaf)
            add(
                "sum_last",
                s,
                lambda x: x.view(-1, 1024).sum(-1) if x.numel() >= 1024 else x.sum(),
                leaf,
            )
            add(
                "sum_first",
                s,
                lambda x: x.view(-1, 1024).sum(0) if x.numel() >= 1024 else x.sum(),
                leaf,
            )
            add("bias_add", s, lambda x, b: x + b, leaf, lambda d=d: r(64, dtype=d))
            if n >= 1 << 16:
                wide = lambda n=n, d=d: r(n // 1024, 1024, dtype=d)
                add("softmax", s, lambda x: x.softmax(-1), wide)
                add("log_softmax", s, lambda x: x.log_softmax(-1), wide)
                add(
                    "layer_norm",
                    s,
                    lambda x, w, b: F.layer_norm(x, (1024,), w, b),
                    wide,
                    lambda d=d: r(1024, dtype=d),
                    lambda d=d: r(1024, dtype=d),
                )
                add(
                    "rms_norm",
                    s,
                    lambda x, w: F.rms_norm(x, (1024,), w),
                    wide,
                    lambda d=d: r(1024, dtype=d),
                )
                add("cumsum_first", s, lambda x: x.cumsum(0), wide)
                add("cumsum_last", s, lambda x: x.cumsum(-1), wide)
                add("softmax_short", s, lambda x: x.view(-1, 64).softmax(-1), wide)
        for n, c, h in ((16, 64, 56), (64, 256, 56), (16, 128, 64), (64, 2048, 7), (16, 512, 16)):
            x = lambda n=n, c=c, h=h, d=d: r(n, c, h, h, dtype=d)
            w = lambda c=c, d=d: r(c, dtype=d)
            s = {"b": n, "c": c, "h": h, "d": str(d)}
            add("group_norm", s, lambda x, w, b: F.group_norm(x, 32, w, b), x, w, w)
            add("batch_norm", s, lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w, w)
            add("max_pool", s, lambda x: F.max_pool2d(x, 3, 2, 1), x)
            add("avg_pool", s, lambda x: F.adaptive_avg_pool2d(x, 1), x)
            add("upsample", s, lambda x: F.interpolate(x, scale_factor=2.0), x)
            add("bilinear", s, lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), x)
        for n, ci, co, k, h, st, g in (
            (64, 3, 64, 7, 224, 2, 1),
            (64, 64, 64, 1, 56, 1, 1),
            (64, 64, 64, 3, 56, 1, 1),
            (64, 64, 256, 1, 56, 1, 1),
            (64, 256, 128, 1, 56, 1, 1),
            (64, 128, 128, 3, 56, 2, 1),
            (64, 128, 512, 1, 28, 1, 1),
            (64, 256, 256, 3, 14, 1, 1),
            (64, 512, 512, 3, 7, 1, 1),
            (64, 1024, 2048, 1, 14, 2, 1),
            (64, 512, 2048, 1, 7, 1, 1),
            (16, 128, 128, 3, 64, 1, 1),
            (16, 256, 256, 3, 32, 1, 1),
            (16, 512, 512, 3, 16, 1, 1),
            (16, 4, 128, 3, 64, 1, 1),
            (16, 1024, 512, 3, 16, 1, 1),
            (16, 384, 128, 3, 64, 1, 1),
            (32, 3, 96, 4, 224, 4, 1),
            (32, 96, 96, 7, 56, 1, 96),
            (32, 384, 384, 7, 14, 1, 384),
            (32, 768, 768, 7, 7, 1, 768),
            (32, 192, 384, 2, 28, 2, 1),
            (64, 3, 768, 16, 224, 16, 1),
            (8, 64, 64, 3, 128, 1, 1),
            (16, 64, 64, 1, 128, 1, 1),
            (32, 256, 256, 3, 28, 1, 32),
            (2, 256, 256, 3, 64, 1, 1),
            (64, 32, 32, 3, 112, 1, 32),
            (64, 960, 160, 1, 7, 1, 1),
            (8, 320, 320, 3, 64, 1, 1),
        ):
            s = {"b": n, "ci": ci, "co": co, "k": k, "h": h, "st": st, "g": g, "d": str(d)}
            pad = k // 2 if k in (3, 7) else 0
            x = lambda n=n, ci=ci, h=h, d=d: r(n, ci, h, h, dtype=d)
            w = lambda co=co, ci=ci, g=g, k=k, d=d: r(co, ci // g, k, k, dtype=d)
            add(
                "conv",
                s,
                lambda x, w, st=st, pad=pad, g=g: F.conv2d(x, w, None, st, pad, 1, g),
                x,
                w,
            )
            if k in (1, 3, 7):
                last = torch.channels_last
                add(
                    "conv_last",
                    s,
                    lambda x, w, st=st, pad=pad, g=g: F.conv2d(x, w, None, st, pad, 1, g),
                    lambda x=x: x().detach().to(memory_format=last).requires_grad_(),
                    lambda w=w: w().detach().to(memory_format=last).requires_grad_(),
                )
        for n, ci, co, k, t in (
            (16, 80, 512, 3, 1500),
            (16, 512, 512, 3, 1500),
            (8, 512, 512, 4, 128),
        ):
            g = ci if k == 4 else 1
            s = {"b": n, "ci": ci, "co": co, "k": k, "t": t, "g": g, "d": str(d)}
            add(
                "conv1d",
                s,
                lambda x, w, g=g: F.conv1d(x, w, None, 1, 1, 1, g),
                lambda n=n, ci=ci, t=t, d=d: r(n, ci, t, dtype=d),
                lambda co=co, ci=ci, k=k, g=g, d=d: r(co, ci // g, k, dtype=d),
            )
        for n, ci, co in ((4, 3, 48), (4, 48, 96), (2, 64, 64)):
            add(
                "conv3d",
                {"b": n, "ci": ci, "co": co, "d": str(d)},
                lambda x, w: F.conv3d(x, w, None, 1, 1),
                lambda n=n, ci=ci, d=d: r(n, ci, 16, 56, 56, dtype=d),
                lambda co=co, ci=ci, d=d: r(co, ci, 3, 3, 3, dtype=d),
            )
        for b, m, n, k in (
            (1, 128, 256, 256),
            (1, 4096, 4096, 4096),
            (1, 8192, 1024, 1024),
            (1, 1024, 3072, 768),
            (1, 12608, 384, 384),
            (1, 12608, 1536, 384),
            (96, 1024, 1024, 64),
            (96, 1024, 64, 1024),
            (2048, 49, 49, 32),
            (2048, 49, 32, 49),
            (512, 64, 64, 64),
            (2048, 64, 64, 64),
            (16, 512, 1536, 768),
            (1, 100352, 96, 96),
            (1, 100352, 384, 96),
            (1, 32, 512, 512),
            (1, 400000, 128, 256),
            (1, 64, 2048, 1024),
            (8, 4096, 16, 512),
            (64, 256, 1, 64),
            (1, 2048, 32000, 1024),
            (1, 1000, 1000, 1000),
            (1, 2, 576, 192),
        ):
            s = {"b": b, "m": m, "n": n, "k": k, "d": str(d)}
            if b == 1:
                add(
                    "mm",
                    s,
                    torch.mm,
                    lambda m=m, k=k, d=d: r(m, k, dtype=d),
                    lambda k=k, n=n, d=d: r(k, n, dtype=d),
                )
                add(
                    "linear",
                    s,
                    F.linear,
                    lambda m=m, k=k, d=d: r(m, k, dtype=d),
                    lambda k=k, n=n, d=d: r(n, k, dtype=d),
                    lambda n=n, d=d: r(n, dtype=d),
                )
            else:
                add(
                    "bmm",
                    s,
                    torch.bmm,
                    lambda b=b, m=m, k=k, d=d: r(b, m, k, dtype=d),
                    lambda b=b, k=k, n=n, d=d: r(b, k, n, dtype=d),
                )
        for n, c, e in (
            (50000, 128, 400000),
            (4096, 1024, 1024),
            (4096, 1024, 8192),
            (32000, 1024, 8192),
            (32000, 1024, 512),
        ):
            s = {"n": n, "c": c, "e": e, "d": str(d)}
            x = lambda n=n, c=c, d=d: r(n, c, dtype=d)
            i = lambda n=n, e=e: torch.randint(0, n, (e,), device="cuda")
            add("index", s, lambda x, i: x[i], x, i)
            add("index_select", s, lambda x, i: x.index_select(0, i), x, i)
            add("embedding", s, lambda x, i: F.embedding(i, x), x, i)
            add(
                "index_add",
                s,
                lambda x, i, y: x.index_add(0, i, y),
                x,
                i,
                lambda e=e, c=c, d=d: r(e, c, dtype=d),
            )
            add(
                "scatter_add",
                s,
                lambda x, i, y: x.scatter_add(0, i[:, None].expand_as(y), y),
                x,
                i,
                lambda e=e, c=c, d=d: r(e, c, dtype=d),
            )
            add("gather", s, lambda x, i: x.gather(0, i[:, None].expand(-1, x.shape[1])), x, i)
        for n, c in ((4096, 8), (8192, 128), (1, 1 << 20), (1, 1 << 24), (1024, 32000)):
            s = {"n": n, "c": c, "d": str(d)}
            x = lambda n=n, c=c, d=d: r(n, c, dtype=d)
            add("sort", s, lambda x: x.sort(-1)[0], x)
            add("topk", s, lambda x: x.topk(2, -1)[0], x)
        for b, h, q, dim, mode in (
            (64, 12, 197, 64, ""),
            (64, 6, 197, 64, ""),
            (4, 16, 2048, 64, "causal"),
            (16, 8, 512, 64, "mask"),
            (32, 16, 256, 72, ""),
            (16, 12, 256, 64, "mask"),
            (8, 16, 709, 64, "causal"),
            (16, 8, 1024, 64, ""),
            (1, 32, 8192, 128, "causal"),
            (2048, 3, 49, 32, ""),
            (16, 8, 128, 64, "causal"),
            (2, 3, 197, 64, ""),
        ):
            s = {"b": b, "h": h, "q": q, "dim": dim, "mode": mode, "d": str(d)}
            x = lambda b=b, h=h, q=q, dim=dim, d=d: r(b, h, q, dim, dtype=d)
            if mode == "mask":
                add(
                    "sdpa",
                    s,
                    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
                    x,
                    x,
                    x,
                    lambda h=h, q=q, d=d: r(1, h, q, q, dtype=d, grad=False),
                )
            else:
                add(
                    "sdpa",
                    s,
                    lambda q, k, v, c=mode == "causal": F.scaled_dot_product_attention(
                        q, k, v, is_causal=c
                    ),
                    x,
                    x,
                    x,
                )
        for kind, b, t, c, layers in (
            ("LSTM", 64, 128, 1024, 1),
            ("LSTM", 64, 128, 1024, 2),
            ("LSTM", 8, 100, 256, 1),
            ("GRU", 32, 200, 512, 3),
            ("LSTM", 256, 64, 512, 1),
            ("GRU", 64, 128, 1024, 1),
            ("RNN", 64, 128, 512, 1),
        ):
            s = {"kind": kind, "b": b, "t": t, "c": c, "layers": layers, "d": str(d)}
            net = getattr(torch.nn, kind)(c, c, layers, batch_first=True).cuda().to(d)
            rows.append(
                (
                    kind.lower(),
                    s,
                    lambda net=net, b=b, t=t, c=c, d=d: call_of(
                        lambda x, *_: net(x)[0], r(b, t, c, dtype=d), *net.parameters()
                    ),
                )
            )
    for b, c, h in ((16, 64, 128), (8, 32, 256), (64, 512, 64)):
        add(
            "rfft2",
            {"b": b, "c": c, "h": h},
            lambda x: torch.view_as_real(torch.fft.rfft2(x)),
            lambda b=b, c=c, h=h: r(b, c, h, h),
        )
    for n, c in ((512, 1024), (4096, 4096)):
        add(
            "rfft",
            {"n": n, "c": c},
            lambda x: torch.view_as_real(torch.fft.rfft(x)),
            lambda n=n, c=c: r(n, c),
        )
    with (Path(out) / "kernels.jsonl").open("a") as file:
        for name, sizes, maker in rows:
            if time.perf_counter() - start > limit_s:
                print("out of time before", name, sizes)
                break
            row = {"name": name, "sizes": sizes}
            forward, backward = both(maker)
            for key, one in (("forward", forward), ("backward", backward)):
                try:
                    row[key] = kernel_time(one)
                except Exception as error:
                    row[key] = f"{type(error).__name__}: {error}"[:200]
            file.write(json.dumps(row) + "\n")
            torch.cuda.empty_cache() if torch.cuda.memory_reserved() > 4e10 else None


def updates(out, _):
    """Updates of an optimizer by form, number of tensors and size."""
    shapes = ((20, 1 << 22), (200, 1 << 20), (400, 1 << 14), (1000, 1 << 10), (8, 1 << 27))
    dtypes = (torch.float32, torch.bfloat16)
    forms = ("foreach", "fused", "loop", "sgd")
    with (Path(out) / "updates.jsonl").open("a") as file:
        for (many, size), dtype, update in itertools.product(shapes, dtypes, forms):
            weights = [
                torch.nn.Parameter(torch.randn(size, device="cuda", dtype=dtype))
                for _ in range(many)
            ]
            for w in weights:
                w.grad = torch.randn_like(w)
            optimizer = optimizer_of(torch.nn.ParameterList(weights), update)
            for _ in range(3):
                optimizer.step()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            a = time.perf_counter()
            for _ in range(5):
                optimizer.step()
            host = (time.perf_counter() - a) / 5
            torch.cuda.synchronize()
            whole = (time.perf_counter() - a) / 5
            peak = torch.cuda.max_memory_allocated() - before
            row = {"update": update, "dtype": str(dtype), "tensors": many, "size": size}
            row |= {"whole_s": whole, "host_s": host, "extra_bytes": peak}
            file.write(json.dumps(row) + "\n")


def starts(out, _):
    """What the host takes to start operations of a module, forward and backward, in us."""
    rows = {}
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    chains = {
        "two views": lambda t: t.view(-1).view(64, 64),
        "two transposes": lambda t: t.t().t(),
        "add": lambda t: t + t,
        "mul_scalar": lambda t: t * 1.0,
        "gelu": F.gelu,
        "mm": lambda t: t @ t,
        "softmax": lambda t: t.softmax(-1),
        "layer_norm": lambda t: F.layer_norm(t, (64,)),
        "sum and add": lambda t: t + t.sum(),
        "two casts": lambda t: t.bfloat16().float(),
        "module": torch.nn.Identity(),
        "linear": torch.nn.Linear(64, 64).cuda(),
        "two slices": lambda t: t[:, :64][:64],
    }
    for name, fn in chains.items():
        for _ in range(2):
            torch.cuda.synchronize()
            y, a = x, time.perf_counter()
            for _ in range(200):
                y = fn(y)
            b = time.perf_counter()
            y.sum().backward()
            c = time.perf_counter()
            torch.cuda.synchronize()
        rows[name] = [(b - a) / 200 * 1e6, (c - b) / 200 * 1e6]
    (Path(out) / "starts.json").write_text(json.dumps(rows))
    print(rows)


if __name__ == "__main__":
    folder, what = sys.argv[1], sys.argv[2]
    limit = float(sys.argv[3]) if len(sys.argv) > 3 else 1e9
    print(
        torch.__version__,
        torch.cuda.get_device_name(),
        torch.backends.cudnn.version(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_tf32,
    )
    kind = what.split(":")[0]
    if kind in ("library", "later", "newer", "latest"):
        BENCH[0] = importlib.import_module(f"{kind}_modules")
    if "warm" in what:
        warm(what, limit)
    elif kind in ("cases", "library", "later", "newer", "latest"):
        cases(folder, limit, 1 if "compiled" in what else None, profile="profiled" in what)
    else:
        {"kernels": kernels, "updates": updates, "starts": starts}[what](folder, limit)
