"""What all tests share."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

ROOT = Path(__file__).resolve().parent.parent

# Examples are the same in every run, so that a failure is everybody's; no deadline, since a loaded
# machine is no defect. `--hypothesis-profile=search` looks for new ones.
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", derandomize=False, deadline=None, max_examples=2000)
# For tests.mutation: a failure is enough, the smallest example that fails is not looked for.
settings.register_profile(
    "mutation", settings.get_profile("fixed"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("fixed")

# Tests that run side by side inherit a width from the tool that starts them.
os.environ.pop("COLUMNS", None)

MOST_WORKERS = 8
"""Each worker collects all tests first: beyond this many, another one shortens the run by little."""

# Models of tests are too small for several threads, and workers share the cores: threads would wait for each
# other. This file is imported before the libraries, which read their number of threads once.
for library in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "POLARS_MAX"):
    os.environ.setdefault(f"{library}_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers `-n auto` starts: one per core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


@pytest.hookimpl(trylast=True)  # once the profile that was asked for is loaded
def pytest_configure() -> None:
    """Let fixed examples depend on their test alone.

    Hypothesis draws some from the numbers and words of modules that happen to be loaded by then, so that the
    order of tests, and any number changed anywhere in the source, would bring about other examples.
    """
    if settings.default is None or not settings.default.derandomize:
        return
    try:
        from hypothesis.internal.conjecture import providers
    except ImportError:  # an older one, which draws none
        return
    if hasattr(providers, "_get_local_constants"):
        none = providers._local_constants  # before the first example
        providers._get_local_constants = lambda: none


def pytest_collection_finish() -> None:
    """Keep modules and tests out of each later search for garbage: they stay until the end."""
    gc.collect()
    gc.freeze()
    # What the catalogue keeps grows during the run, so that each search takes longer than the last: fewer.
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of published data that tests compare with, or a skip that says it is missing."""
    path = Path(os.environ.get("FORETELL_DATA") or ROOT.parent / "shared" / "data")
    if not path.is_dir():
        pytest.skip(f"no published data at {path}: set FORETELL_DATA to its folder")
    return path
