"""Lines of `foretell calibrate measure` as rows of kernel families.

Products: forward is (m, n, k), dgrad (m, k, n), wgrad (n, k, m), rows x columns x contraction; a site is the
(n, k) of the layer, all passes and rows of it. fp8 operands come quantised already, so that these products
are fitted without the quantisation pass of the form (`Group.bare`). Attention is one software a backend:
flash is FlashAttention 2 (torch-fa2, on a CPU torch-cpu), cudnn torch-cudnn, efficient torch-efficient;
`math` stores its scores and is no kernel of this family. Passes over memory count what their kernels move
(`MOVES`), not the least that would do. Kernels that a host launched one by one, where others came as a
graph, tell of the host and are left out. On a CPU the least seconds of a point count, not the median, but
for processes that measured side by side: there the neighbours' work is what is asked for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.errors import BadInput, bad_input
from foretell.kernels.families.base import DTYPES
from foretell.lab.calibrate.measure import file
from foretell.lab.calibrate.measure.file import key_of
from foretell.lab.calibrate.surfaces import KernelRows
from foretell.records import dataclass

Line = Mapping[str, Any]

ATTENTION: Mapping[str, str] = {
    "flash": "torch-fa2",
    "flash-folded": "torch-fa2",  # the same kernel, its queries packed by hand: the same time
    "cudnn": "torch-cudnn",
    "efficient": "torch-efficient",
}
"""Backend -> software."""
MOVES: Mapping[tuple[str, str], tuple[float, float]] = {
    ("add", "forward"): (1.0, 1.0),
    ("gelu", "forward"): (1.0, 1.0),
    ("gelu", "backward"): (1.0, 1.0),
    ("rms_norm", "forward"): (1.0, 1.0),
    ("rms_norm", "backward"): (5.0 / 3.0, 2.0),
    ("layer_norm", "forward"): (1.0, 1.0),
    ("layer_norm", "backward"): (5.0 / 3.0, 2.0),
    ("softmax", "forward"): (1.0, 1.0),
    ("softmax", "backward"): (1.0, 1.0),
    ("swiglu", "forward"): (5.0 / 3.0, 2.0),
    ("swiglu", "backward"): (9.0 / 5.0, 3.0),
    ("cast_up", "forward"): (1.0, 1.0),
}
"""Operation and pass -> what its kernels move over the least, and how many there are. Norms read their
inputs again for the gradients of their weights; a gated activation is two kernels, and three backward."""
GATHERS = (("embedding", "forward"), ("permute", "forward"))
"""Operations that fetch rows by index."""
ROWWISE = ("rms_norm", "layer_norm", "softmax", "read")
"""What sums over rows (or all there is): slower to begin than plain passes, and software of its own."""
COPIES = ("copy", "read", "write")
"""Forms of copies within the device that leave the cache."""
MOST_PLAIN_COPY = 5e8
"""Bytes above which torch's copy is another kernel, at two thirds of the bandwidth on an H200."""


MOST_S = 1e6
"""Seconds of a kernel above which a number is none."""
_HEADS = ("batch", "heads", "kv_heads", "queries", "keys", "head_dim")
NEEDS: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "batched_gemm": ("batch", "m", "n", "k"),
    "prefill": _HEADS,
    "decode": _HEADS,
    "copy": ("bytes",),
    "all_reduce": ("ranks", "bytes"),
    "all_gather": ("ranks", "bytes"),
    "reduce_scatter": ("ranks", "bytes"),
    "all_to_all": ("ranks", "bytes"),
}
"""Sizes that points of a family must tell."""
TEXTS = ("family", "variant", "dtype", "pass", "mode", "group")
"""What of a point is a text."""
PASSES = ("forward", "dgrad", "wgrad")
"""Passes of a product."""
LARGEST_SIZE = 1e18
"""No size or count of bytes of a kernel is above this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows of one family, dtype and software, with the lines they come from."""

    rows: KernelRows
    """The rows; an id is the place of its line in the file."""
    lines: tuple[Line, ...]
    """The line of each row."""
    bare: bool = False
    """Whether the operands came quantised: the form's quantisation pass is not in the times."""

    def where(self, name: str, value: str) -> NDArray[np.bool_]:
        """Which rows have this value of a line's key."""
        return np.array([line.get(name) == value for line in self.lines])

    def take(self, keep: NDArray[np.bool_]) -> "Group":
        """Some of the rows."""
        lines = tuple(line for line, kept in zip(self.lines, keep, strict=True) if kept)
        return replace(self, rows=self.rows.take(keep), lines=lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """A file of measurements."""

    name: str
    """The file's name."""
    environment: Line
    """What was measured on, and with what: the last environment of the file."""
    points: tuple[Line, ...]
    """Points that were measured."""
    failed: int
    """Points that could not be."""

    @property
    def version(self) -> str:
        """Version of torch without its build: 2.11.0 of `torch 2.11.0+cu130`."""
        return str(self.environment.get("software", "")).split(" ")[-1].split("+")[0]

    @property
    def on_cpu(self) -> bool:
        """Whether the device was the host itself."""
        return self.environment.get("device") == "cpu"

    def burst(self, family: str = "", group: str = "") -> list[Line]:
        """Points in short bursts, of a family or a group."""
        return [
            line
            for line in self.points
            if line["mode"] == "burst"
            and (not family or line["family"] == family)
            and (not group or line["group"] == group)
        ]


def read(path: Path) -> Measurements:
    """The file; BadInput where it is not there, or tells of no point."""
    if not path.is_file():
        raise _no(path, "there is no such file", f"foretell calibrate measure --out {path}")
    try:
        lines = [{**line, "place": i} for i, line in enumerate(file.lines(path), 1)]
    except OSError as error:
        raise _no(path, f"cannot be read: {error.strerror or error}", "a file of ours") from None
    heads = [line for line in lines if line.get("kind") == "environment"]
    if not heads:
        what = "is no file of measurements: it has no line of the environment"
        raise _no(path, what, f"foretell calibrate measure --out {path}.jsonl")
    points = [line for line in lines if file.is_point(line) and _sound(line)]
    if not points:
        what = "holds no measured point"
        raise _no(path, what, f"foretell calibrate measure --out {path}")
    chips = sorted({str(line.get("chip")) for line in points})
    if len(chips) > 1:
        what = f"holds points of several chips: {', '.join(chips)}"
        raise _no(path, what, "a file of one chip")
    # A point that was measured again, with newer software say, counts as it was measured last.
    latest = {key_of(line): line for line in points}
    if heads[-1].get("device") == "cpu" and heads[0].get("world", 1) == 1:
        latest = {key: _least(line) for key, line in latest.items()}
    failed = sum(file.is_point(line) and line.get("status") == "failed" for line in lines)
    return Measurements(
        name=path.name, environment=heads[-1], points=tuple(latest.values()), failed=failed
    )


def _least(line: Line) -> dict[str, Any]:
    """A host has other users, who can only make a point slower: there the least counts."""
    least = line.get("least_seconds")
    good = isinstance(least, float) and 0.0 < least <= float(line["seconds"])
    return {**line, "seconds": least if good else line["seconds"]}


def _sound(line: Line) -> bool:
    """Whether a point was measured and tells its sizes."""
    seconds, dims = line.get("seconds"), line.get("dims")
    plain = isinstance(seconds, float | int) and 0.0 < seconds <= MOST_S
    if line.get("status") != "done" or not plain or not isinstance(dims, dict):
        return False
    if not all(isinstance(line.get(name), str) for name in TEXTS):
        return False
    product = line["family"] in ("gemm", "batched_gemm")
    needs = NEEDS.get(line["family"], ())
    return (
        (not product or line["pass"] in PASSES)
        and (line["family"] != "copy" or "bytes" in line)
        and _is_number(line.get("bytes", 0.0))
        and all(_is_number(dims.get(name)) for name in needs)
        and _is_number(dims.get("batch", 1))
    )


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and abs(value) <= LARGEST_SIZE


def _no(path: Path, message: str, allowed: str) -> BadInput:
    return bad_input(str(path), None, message, allowed)


def groups_of(measured: Measurements, chip: str, mode: str = "burst") -> list[Group]:
    """Every group of rows that a family's form can be held against."""
    lines = [line for line in measured.points if line["mode"] == mode and _launched(line, measured)]
    made: list[Group] = []
    made += _products(lines, chip, measured.version)
    made += _attention(lines, chip, measured)
    made += _passes(lines, chip, measured.version)
    return [group for group in made if group.lines]


def _launched(line: Line, measured: Measurements) -> bool:
    """Whether the host's part does not show: replayed from a graph, or there is no other way."""
    return measured.on_cpu or line.get("launch_used") == "graph"


def _group(
    lines: Sequence[Line],
    names: tuple[str, str, str],
    where: tuple[str, str],
    dims: Sequence[Mapping[str, float]],
    sites: Iterable[object],
    bare: bool = False,
) -> Group:
    """Rows from their lines; `names` are family, dtype and software, `where` chip and version."""
    keys = [repr(site) for site in sites]
    rows = KernelRows(
        family=names[0],
        dtype=names[1],
        chip=where[0],
        software=names[2],
        version=where[1],
        ids=tuple(str(line["place"]) for line in lines),
        dims={
            name: np.array([one[name] for one in dims], dtype=np.float64)
            for name in (dims[0] if dims else {})
        },
        measured_s=np.array([line["seconds"] for line in lines], dtype=np.float64),
        site=np.unique(keys, return_inverse=True)[1].astype(np.intp) if keys else np.zeros(0, int),
    )
    return Group(rows=rows, lines=tuple(lines), bare=bare)


def _products(lines: Sequence[Line], chip: str, version: str) -> list[Group]:
    """Products alone and batched, one group a format and way of scaling."""
    mine = [
        line
        for line in lines
        if line["family"] in ("gemm", "batched_gemm") and line["dtype"] in DTYPES
    ]
    found = []
    kinds = {(line["dtype"], line["variant"]) for line in mine}
    for dtype, variant in sorted(kinds, key=lambda kind: (kind[0], kind[1] == "row")):
        some = [line for line in mine if (line["dtype"], line["variant"]) == (dtype, variant)]
        software = "torch-rowwise" if variant == "row" else "torch"
        found.append(
            _group(
                some,
                ("gemm", dtype, software),
                (chip, version),
                [kernel_sizes(line) for line in some],
                [(line["dims"]["n"], line["dims"]["k"]) for line in some],
                bare=DTYPES[dtype].quantised,
            )
        )
    return found


def kernel_sizes(line: Line) -> dict[str, float]:
    """Rows, columns and contraction of the product that a pass runs."""
    m, n, k = (float(line["dims"][name]) for name in ("m", "n", "k"))
    sizes = {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[line["pass"]]
    return {**dict(zip("mnk", sizes, strict=True)), "batch": float(line["dims"].get("batch", 1))}


def _attention(lines: Sequence[Line], chip: str, measured: Measurements) -> list[Group]:
    """Fused attention forward, backward and of decode steps, by backend."""
    mine = [
        line
        for line in lines
        if line["family"] in ("prefill", "decode") and line["variant"] in ATTENTION
    ]
    found = []
    for family in ("prefill", "prefill-backward", "decode"):
        of = [line for line in mine if _attention_family(line) == family]
        for dtype in sorted({line["dtype"] for line in of}):
            for software in dict.fromkeys(ATTENTION.values()):
                some = [
                    line
                    for line in of
                    if line["dtype"] == dtype and ATTENTION[line["variant"]] == software
                ]
                name = "torch-cpu" if measured.on_cpu and software == "torch-fa2" else software
                sizes = [attention_sizes(line) for line in some]
                sites = [(d["heads"], d["kv_heads"], d["qk_dim"]) for d in sizes]
                where = (chip, measured.version)
                found.append(_group(some, (family, dtype, name), where, sizes, sites))
    return found


def _attention_family(line: Line) -> str:
    return "prefill-backward" if line["pass"] == "backward" else str(line["family"])


def attention_sizes(line: Line) -> dict[str, float]:
    """Sizes of attention as its families name them; a causal mask begins at the first key."""
    dims = line["dims"]
    q, kv = float(dims["queries"]), float(dims["keys"])
    seen = min(q, kv)
    pairs = seen * (seen + 1.0) / 2.0 + (q - seen) * kv if dims.get("causal") else q * kv
    return {
        "batch": float(dims["batch"]),
        "heads": float(dims["heads"]),
        "kv_heads": float(dims["kv_heads"]),
        "q_len": q,
        "kv_len": kv,
        "pairs": pairs,
        "qk_dim": float(dims["head_dim"]),
        "v_dim": float(dims["head_dim"]),
        "kv_bytes": DTYPES[line["dtype"]].activation_bytes if line["dtype"] in DTYPES else 2.0,
    }


def _passes(lines: Sequence[Line], chip: str, version: str) -> list[Group]:
    """Passes over memory; bytes are counted as they are, so that their format is but a name."""
    mine = [line for line in lines if _move(line) is not None]
    found = []
    for software, rowwise in (("torch", False), ("torch-rows", True)):
        some = [line for line in mine if rowwise == bool({*ROWWISE} & {_op(line)})]
        dims = [_moved(line) for line in some]
        names = ("pointwise", "bf16", software)
        found.append(_group(some, names, (chip, version), dims, [_op(line) for line in some]))
    return found


def _op(line: Line) -> str:
    return str(line["variant"] if line["family"] == "copy" else line["family"])


def _moved(line: Line) -> dict[str, float]:
    factor, kernels, gathered = _move(line) or (1.0, 1.0, False)
    moved = float(line["bytes"]) * factor
    return {
        "bytes_read": 0.0 if gathered else moved / 2.0,
        "bytes_written": 0.0 if gathered else moved / 2.0,
        "bytes_gathered": moved if gathered else 0.0,
        "flop": 0.0,
        "kernels": kernels,
    }


def _move(line: Line) -> tuple[float, float, bool] | None:
    """What a pass moves over the least, its kernels, and whether by index; None where it is not fitted."""
    if line["family"] == "copy":
        small = float(line["dims"]["bytes"]) < MOST_PLAIN_COPY or line["variant"] != "copy"
        return (1.0, 1.0, False) if line["variant"] in COPIES and small else None
    key = (str(line["family"]), str(line["pass"]))
    if line["group"] != "pointwise" or not float(line.get("bytes", 0.0)) > 0.0:
        return None
    if key[0] == "cast_up" and line["dtype"] == "fp32":  # nothing is cast
        return None
    if key in GATHERS:
        return 1.0, 1.0, True
    found = MOVES.get(key)
    return None if found is None else (*found, False)
