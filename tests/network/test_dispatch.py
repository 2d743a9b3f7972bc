"""Dispatch and combine by families of kernels: what they must satisfy, and measured exchanges."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.lab.calibrate.dispatch_fit import (
    FIRST,
    FittedPass,
    left_out,
    library_fits,
    predicted_s,
)
from foretell.lab.calibrate.dispatch_fit import NAMES as NAMES_FITTED
from foretell.lab.calibrate.dispatch_rows import dispatch_row, read_dispatches
from foretell.lab.validate.hardware import score_dispatches
from foretell.network.dispatch import (
    ROW_BYTES,
    DispatchLoad,
    copies_of,
    dispatch_kernels,
    exchange_seconds,
    pass_seconds,
    posted_by_host,
)
from foretell.specs.deployment_text import DISPATCHES

LOAD = DispatchLoad(
    tokens=128.0, hidden=7168.0, row_bytes=ROW_BYTES["fp8"], top_k=8.0, experts=256.0, ranks=32.0,
    domain=8.0, near_bytes_per_s=450e9, far_bytes_per_s=50e9,
)  # fmt: skip
NAMES = tuple(dispatch_kernels())


def test_every_family_is_a_word_of_a_plan():
    assert set(DISPATCHES) == {"auto", "gather", *NAMES}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(
    tokens=st.floats(1.0, 65536.0),
    more=st.floats(1.05, 4.0),
    top_k=st.integers(1, 22),
    ranks=st.sampled_from([2.0, 8.0, 16.0, 64.0, 144.0]),
)
def test_more_takes_longer_and_nothing_takes_nothing(name, tokens, more, top_k, ranks):
    kernels = dispatch_kernels()[name]
    load = replace(LOAD, tokens=tokens, top_k=float(top_k), ranks=ranks)
    first = float(exchange_seconds(kernels, load))
    assert float(exchange_seconds(kernels, replace(load, tokens=tokens * more))) >= first
    assert float(exchange_seconds(kernels, replace(load, hidden=more * 7168.0))) >= first
    assert float(exchange_seconds(kernels, replace(load, far_bytes_per_s=50e9 * more))) <= first
    assert float(exchange_seconds(kernels, replace(load, tokens=0.0))) == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_its_parts(name):
    kernels = dispatch_kernels()[name]
    tokens, ranks = np.array([1.0, 64.0, 4096.0]), np.array([8.0, 32.0, 72.0])
    many = pass_seconds(kernels, kernels.dispatch, replace(LOAD, tokens=tokens, ranks=ranks))
    each = [
        pass_seconds(kernels, kernels.dispatch, replace(LOAD, tokens=t, ranks=r))
        for t, r in zip(tokens, ranks, strict=True)
    ]
    assert many == pytest.approx(np.array(each, float), rel=1e-12)


def test_copies_by_hand():
    """32 ranks in nodes of 8, 8 experts a token: k, distinct ranks, or distinct nodes."""
    known = dispatch_kernels()
    near, far = copies_of(known["deepep-low-latency"], LOAD)
    assert (float(near), float(far)) == pytest.approx((8 * 7 / 32, 8 * 24 / 32))
    ranks = 32 * (1 - (31 / 32) ** 8)
    nodes = 4 * (1 - (3 / 4) ** 8)
    near, far = copies_of(known["deepep"], LOAD)
    assert (float(near), float(far)) == pytest.approx((ranks * 7 / 8, nodes * 3 / 4))
    near, far = copies_of(known["nvlink-one-sided"], replace(LOAD, domain=72.0, dealt=1.0))
    assert (float(near), float(far)) == pytest.approx((8 * 31 / 32, 0.0))
    wide = replace(LOAD, ranks=128.0, limit=4.0)
    assert float(copies_of(known["deepep"], wide)[1]) == pytest.approx(nodes * 15 / 16)


def test_measured_exchanges_are_met(data_dir):
    found = score_dispatches(data_dir / "network" / "alltoall.csv.gz")
    assert found.median_ape <= 0.12
    assert found.rows == 19_524
    assert found.scored >= 18_900
    assert 0.85 <= found.inside_p90 <= 0.95
    for name, score in found.groups["by_library"].items():
        assert score.median_ape <= 0.15, name


def test_a_library_left_out_is_met_by_the_others(data_dir):
    """Median over libraries of their median errors: links, launches and cores are the chip's."""
    rows, _ = read_dispatches(data_dir / "network" / "alltoall.csv.gz")
    fits = library_fits(thinned(rows))
    errors = {}
    for library in {row.library for row in rows}:
        found = []
        for family in {row.family for row in rows if row.library == library}:
            mine = [row for row in rows if (row.library, row.family) == (library, family)][::3]
            ours = predicted_s(mine, left_out(fits, library, family))
            found += [abs(a / row.seconds - 1.0) for a, row in zip(ours, mine, strict=True)]
        errors[library] = float(np.median(found))
    assert len(errors) == 7
    assert float(np.median(list(errors.values()))) <= 0.2


def thinned(rows):
    """Every row of small libraries, and every fifth of large ones."""
    many = Counter(row.library for row in rows)
    return [row for i, row in enumerate(rows) if many[row.library] < 2000 or i % 5 == 0]


def test_what_a_library_tells_firmly_counts_and_what_it_does_not_tell_does_not():
    one = np.log([2e-5, *np.exp(FIRST)[1:]])
    firm = np.zeros((len(NAMES_FITTED), len(NAMES_FITTED)))
    fits = {("a", "deepep", "dispatch"): FittedPass(logs=one, information=firm)}
    assert left_out(fits, "b", "deepep")["dispatch"].launch_s == pytest.approx(1.2e-5, rel=1e-3)
    firm[0, 0] = 1e8
    fits = {("a", "deepep", "dispatch"): FittedPass(logs=one, information=firm)}
    assert 1.7e-5 < left_out(fits, "b", "deepep")["dispatch"].launch_s < 2e-5
    assert left_out(fits, "b", "pplx")["dispatch"].launch_s < 1.5e-5
    assert left_out(fits, "a", "deepep")["dispatch"].launch_s == pytest.approx(1.2e-5)


@pytest.mark.parametrize(
    ("cells", "family", "known"),
    [
        ({"library": "UCCL-EP", "mode": "low_latency"}, "deepep-low-latency", False),
        ({"library": "UCCL-EP", "mode": "normal"}, "deepep", False),
        ({"library": "new", "mode": "normal", "chip": "MI300X"}, "mori", False),
        ({"library": "new", "mode": "", "chip": "GB200", "fast_domain_gpus": "72"},
         "nvlink-one-sided", False),
        ({"library": "MORI-EP", "mode": "normal", "chip": "MI300X"}, "mori", True),
        ({"library": "Torch AtA", "op": "all_to_all"}, "nccl", True),
    ],
)  # fmt: skip
def test_libraries_without_a_name_here_are_taken_for_the_usual_one_of_their_kind(
    cells, family, known
):
    shape = {"ep": "16", "tokens_per_rank": "128", "hidden": "7168", "topk": "8", "experts": "256"}
    base = {"op": "dispatch", "chip": "H100 SXM", "time_us": "100", "network": "EFA 200 Gb/s"}
    row = dispatch_row("1", {**base, **shape, **cells})
    assert (row.family, row.known) == (family, known)
    assert float(row.load.far_bytes_per_s) == 25e9


def test_a_proxy_on_the_host_posts_rows_whatever_their_width_and_gains_nothing_from_faster_ports():
    kernels = dispatch_kernels()["deepep"]
    port, wide = 50e9, ROW_BYTES["bf16"]

    def seconds(rate: float, row_bytes: float = LOAD.row_bytes, *, by_host: bool) -> float:
        used = posted_by_host(kernels) if by_host else kernels
        load = replace(LOAD, tokens=8192.0, far_bytes_per_s=rate, row_bytes=row_bytes)
        return float(pass_seconds(used, used.dispatch, load))

    assert seconds(port, by_host=True) > 2.0 * seconds(port, by_host=False)
    assert seconds(2.0 * port, by_host=False) < 0.9 * seconds(port, by_host=False)
    assert seconds(2.0 * port, by_host=True) == pytest.approx(seconds(port, by_host=True), rel=0.01)
    assert seconds(port, wide, by_host=False) > 1.5 * seconds(port, by_host=False)
    assert seconds(port, wide, by_host=True) < 1.1 * seconds(port, by_host=True)
