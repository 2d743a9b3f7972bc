"""Reading a trace piece by piece: the same as at once, and a clear word for what is broken."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.characterize.traces import columns
from foretell.lab.characterize.traces.breakdown import PARTS
from foretell.lab.characterize.traces.columns import events_of
from foretell.lab.characterize.traces.run import characterize_trace
from tests.lab.characterize.kineto import GEMM, kernel, trace, written

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), max_size=6)
quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)


def split(path: Path) -> tuple[list[Any], dict[str, Any]]:
    parts = [*events_of(path)]
    return [value for key, value in parts if key == "event"], {
        k: v for k, v in parts if k != "event"
    }


@quiet
@given(
    events=EVENTS,
    head=st.dictionaries(st.sampled_from(["a", "b"]), VALUES),
    chunk=st.integers(1, 40),
    packed=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_pieces_are_the_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    events: list[Any],
    head: dict[str, Any],
    chunk: int,
    packed: bool,
    indent: int | None,
) -> None:
    monkeypatch.setattr(columns, "CHUNK", chunk)
    text = json.dumps(
        {**head, "traceEvents": events, "z": 3}, indent=indent, ensure_ascii=False
    ).encode()
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert split(path) == (events, {**head, "z": 3})
    path.write_bytes(json.dumps(events, indent=indent).encode())
    assert split(path) == (events, {})


@quiet
@given(share=st.floats(0.0, 0.999))
def test_a_truncated_object_is_an_error(tmp_path: Path, share: float) -> None:
    text = json.dumps(trace([kernel(GEMM, 1.0 * i, 0.5) for i in range(4)]))
    path = tmp_path / "t.json"
    path.write_text(text[: int(share * len(text))])
    with pytest.raises(BadInput, match=r"t\.json"):
        split(path)


@quiet
@given(share=st.floats(0.0, 0.999))
def test_a_truncated_gzip_is_an_error(tmp_path: Path, share: float) -> None:
    packed = gzip.compress(
        json.dumps(trace([kernel(GEMM, 1.0 * i, 0.5) for i in range(40)])).encode()
    )
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[: int(share * len(packed))])
    with pytest.raises(BadInput):
        split(path)


def test_a_bare_list_may_lack_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"a": 1},\n{"b": 2},\n')
    assert split(path)[0] == [{"a": 1}, {"b": 2}]
    path.write_text('[{"a": 1},\n{"b": ')
    with pytest.raises(BadInput, match="truncated"):
        split(path)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"hello", "no trace"),
        (b"{}", "no traceEvents"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"traceEvents": 3}', "no list"),
        (b'{"traceEvents": [1, 2]}', "no object"),
        (b'{"traceEvents": [{}}', "no JSON"),
        (b'{"traceEvents": [{} {}]}', "no JSON"),
        (b'{"traceEvents": []} more', "behind its end"),
        (b"\x1f\x8bnothing", "gzip"),
        (b"\xff\xfe\x00\x01", "no text"),
        (b'{"traceEvents": [' + b"[" * 100_000, "nested|truncated|object"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=word):
        split(path)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes much less than the file: events are forgotten as they pass."""
    import tracemalloc

    monkeypatch.setattr(columns, "CHUNK", 1 << 14)
    path = written(tmp_path / "t.json", trace([kernel(GEMM, 3.0 * i, 2.5) for i in range(1500)]))
    tracemalloc.start()
    many = sum(key == "event" for key, _ in events_of(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert many == 1506
    assert peak < 0.5 * path.stat().st_size


def test_groups_without_a_name(tmp_path: Path) -> None:
    """Releases of PyTorch wrote nothing where a group's description was empty."""
    text = json.dumps(trace([kernel(GEMM, 0.0, 1.0, **{"Process Group Description": "!"})]))
    path = tmp_path / "t.json"
    path.write_text(
        text.replace('"Process Group Description": "!"', '"Process Group Description": ')
    )
    events, _ = split(path)
    assert events[-1]["args"]["Process Group Description"] == ""


KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id")
CATEGORIES = (
    "kernel",
    "gpu_memcpy",
    "cpu_op",
    "user_annotation",
    "cuda_runtime",
    "compute",
    "dp-comm",
    "host",
)
ARGS = (
    "correlation",
    "External id",
    "Collective name",
    "In msg nelems",
    "dtype",
    "Group size",
    "Input Dims",
)
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=True)
ODD = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(KEYS, VALUES | NUMBERS),
        "ph": st.just("X"),
        "cat": st.sampled_from(CATEGORIES),
        "name": st.sampled_from(["ProfilerStep#1", "aten::mm", "gloo:all_reduce", "ncclKernel"])
        | VALUES,
        "ts": st.floats(0, 1e6) | NUMBERS,
        "dur": st.floats(0, 1e3) | NUMBERS,
        "args": st.fixed_dictionaries({}, optional=dict.fromkeys(ARGS, VALUES | NUMBERS)) | VALUES,
    },
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=50,
)
@given(st.lists(ODD, max_size=5))
def test_odd_events_are_read_or_refused(tmp_path: Path, events: list[Any]) -> None:
    """Whatever stands in a trace: a breakdown that adds up, or an error in words."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"world_size": "two"}}))
    try:
        found = characterize_trace(path)
    except BadInput:
        return
    for step in found.steps:
        parts = sum(getattr(step, part) for part in PARTS)
        assert parts == pytest.approx(step.step_s, rel=1e-9, abs=1e-12)
        json.dumps(step.to_dict(), allow_nan=False)
