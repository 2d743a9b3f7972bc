"""How fast the collective library's model is. Prints; never passes or fails."""

import time
from pathlib import Path

import numpy as np

from foretell.catalog.systems import named_system
from foretell.network.library import prepare, seconds
from foretell.network.library_catalog import library_for
from foretell.network.library_records import KINDS


def groups_per_second(rows: int = 16384) -> None:
    """Placing groups and asking for messages, a chunk of the search at a time."""
    system = named_system("hgx-h100")
    library = library_for(system)
    assert library is not None
    random = np.random.default_rng(0)
    counts = np.stack([2.0 ** random.integers(0, 4, rows), 2.0 ** random.integers(0, 8, rows)])
    size = 2.0 ** random.uniform(10, 32, rows)
    for kind in KINDS:
        best_place, best_ask = np.inf, np.inf
        for _ in range(5):
            start = time.process_time()
            prepared = prepare(library, system.network, counts, (kind,))
            best_place = min(best_place, time.process_time() - start)
            start = time.process_time()
            for _ in range(5):
                seconds(kind, size, prepared)
            best_ask = min(best_ask, (time.process_time() - start) / 5)
        print(
            f"{kind:16s} {1e9 * best_place / rows:6.0f} ns to place, "
            f"{1e9 * best_ask / rows:6.0f} ns to ask, per group"
        )


def one_group() -> None:
    """Microseconds for a single group: what one estimate pays."""
    system = named_system("hgx-h100")
    library = library_for(system)
    assert library is not None
    counts = np.array([[8.0], [4.0]])
    start = time.process_time()
    for _ in range(200):
        prepared = prepare(library, system.network, counts, ("all-reduce",))
    placed = (time.process_time() - start) / 200
    start = time.process_time()
    for _ in range(1000):
        seconds("all-reduce", 1e6, prepared)
    print(
        f"one group: {1e6 * placed:.0f} us to place, {1e3 * (time.process_time() - start):.0f} us to ask"
    )


if __name__ == "__main__":
    print(Path(__file__).name)
    groups_per_second()
    one_group()
