"""Workers of a sweep: what they do to memory, and who works while they begin."""

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.studies.study_file import read_study
from foretell.studies.sweep import executors
from foretell.studies.sweep.executors import ShardRunner, run_shards, shard_runner

STUDY = {
    "study": {"kind": "cost"},
    "base": {"node": "N5"},
    "vary": {"area": [100, 200, 300, 400, 500, 600], "dies": [1, 2]},
}
FAULTS = """
import resource
import numpy as np
from foretell.studies.sweep.executors import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(1 << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
keep_freed_memory()
faults()
print(first, faults())
"""
"""Page faults of twenty arrays of 2 MiB, as Dask begins a worker and as a worker goes on."""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of two points, so that a small study has several."""
    from foretell.studies.sweep import frames

    monkeypatch.setattr(frames, "SHARD_POINTS", dict.fromkeys(frames.SHARD_POINTS, 2))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults of glibc")
def test_workers_keep_memory_whatever_began_them() -> None:
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(Path(foretell.__file__).parents[1])
    words = [sys.executable, "-c", FAULTS]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    first, kept = map(int, told.stdout.split())
    assert first > 20 * 256  # a page of 4 KiB each
    assert kept < first / 20


def test_a_sweep_goes_on_in_its_own_process_until_workers_answer() -> None:
    class Slow(ThreadPoolExecutor):
        """Answers nothing before it has begun, and then at once."""

        held: list[tuple[Future[Any], Any]] = []
        begun = False

        def submit(self, *asked: Any, **_: Any) -> Any:
            self.held.append((Future(), asked))
            if self.begun:
                self.begin()
            return self.held[-1][0]

        def begin(self) -> None:
            self.begun = True
            for future, (work, *given) in self.held:
                if not future.done():
                    future.set_result(work(*given))

    study = read_study(STUDY)
    alone = dict(run_shards(study, range(6), None))
    with Slow(1) as slow:
        place = ShardRunner(open=lambda: executors._as_it_is(slow), ahead=2, workers=2)
        shards = run_shards(study, range(6), place)
        found = dict([next(shards), next(shards)])
        slow.begin()
        found |= dict(shards)
    assert found == alone


@pytest.mark.parametrize("executor", ["process", "dask"])
def test_this_process_is_one_of_few_workers(executor: str) -> None:
    assert shard_runner(executor, 1) is None
    for workers, begun in ((2, 1), (4, 3), (8, 8)):
        place = shard_runner(executor, workers)
        assert place is not None
        assert (place.workers, place.ahead) == (workers, executors.AHEAD * begun)
        assert place.shared == (begun < workers)


@pytest.mark.parametrize("shared", [False, True])
def test_every_shard_is_computed_once_whoever_does_it(shared: bool) -> None:
    study = read_study(STUDY)
    with ThreadPoolExecutor(2) as pool:
        place = ShardRunner(
            open=lambda: executors._as_it_is(pool), ahead=2, workers=2, shared=shared
        )
        found = list(run_shards(study, range(6), place))
    assert sorted(number for number, _ in found) == list(range(6))
    assert dict(found) == dict(run_shards(study, range(6), None))
