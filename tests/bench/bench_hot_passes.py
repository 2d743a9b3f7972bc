"""Do passes over memory slow down where a card is at its power limit? Passes alone, and between products.

`python tests/bench/bench_hot_passes.py` needs a GPU and torch, a minute. In training, passes come between
products that hold the card at its limit, where the cores run slower than in a burst of passes. Prints the
bandwidth of each pass after a rest, for seconds alone, and between products, with the clock of each. Never
passes or fails.
"""

import subprocess
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn import functional

LONG_S, REST_S = 2.0, 1.0
ROWS, WIDTH = 8192, 8192
SIDE = 8192


def clock_mhz() -> str:
    """Clock and watts as the driver tells them."""
    words = ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw", "--format=csv,noheader"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def passes() -> dict[str, tuple[Callable[[], object], float]]:
    """Calls, and the bytes that each moves at least."""
    x, y = (torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.randn(WIDTH, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    wide = torch.empty(ROWS, WIDTH, device="cuda")
    size = float(x.nbytes)
    return {
        "copy": (lambda: out.copy_(x), 2.0 * size),
        "add": (lambda: torch.add(x, y, out=out), 3.0 * size),
        "gelu": (lambda: functional.gelu(x), 2.0 * size),
        "rms_norm": (lambda: functional.rms_norm(x, (WIDTH,), weight), 2.0 * size),
        "widen": (lambda: wide.copy_(x), 3.0 * size),
    }


def timed(calls: list[Callable[[], object]], at: int, seconds: float) -> tuple[float, float, str]:
    """Median seconds of call `at` of a loop and of the whole loop, with the clock near its end."""
    marks: list[tuple[torch.cuda.Event, ...]] = []
    begin, told = time.perf_counter(), ""
    while time.perf_counter() - begin < seconds:
        for _ in range(8):
            events = tuple(torch.cuda.Event(enable_timing=True) for _ in range(4))
            events[0].record()
            for i, call in enumerate(calls):
                if i == at:
                    events[1].record()
                call()
                if i == at:
                    events[2].record()
            events[3].record()
            marks.append(events)
        if len(marks) > 32:
            marks[-32][3].synchronize()
        if not told and time.perf_counter() - begin > 0.7 * seconds:
            told = clock_mhz()
    torch.cuda.synchronize()
    late = marks[len(marks) // 2 :]
    one = median(e[1].elapsed_time(e[2]) for e in late) * 1e-3
    whole = median(e[0].elapsed_time(e[3]) for e in late) * 1e-3
    return one, whole, told


def main() -> None:
    """Print a line for each pass and each share of products."""
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)

    def product() -> None:
        torch.mm(a, b, out=c)

    timed([product], 0, 0.5)
    for name, (call, moved) in passes().items():
        time.sleep(REST_S)
        burst, _, _ = timed([call], 0, 0.05)
        alone, _, cool = timed([call], 0, LONG_S)
        print(
            f"{name}: burst {moved / burst / 1e12:.3f} TB/s, alone {moved / alone / 1e12:.3f} ({cool})"
        )
        for many in (1, 4):
            hot, whole, told = timed([product] * many + [call], many, LONG_S)
            each_ms = 1e3 * (whole - hot) / many
            print(
                f"  after {many} products of {each_ms:.3f} ms {moved / hot / 1e12:.3f} TB/s ({told})"
            )
    time.sleep(REST_S)
    short, long = (1e3 * timed([product], 0, seconds)[0] for seconds in (0.03, LONG_S))
    print(f"product: burst {short:.3f} ms, long {long:.3f} ms")


if __name__ == "__main__":
    main()
