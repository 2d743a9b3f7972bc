"""Published serving results: the rows of a table as records, blank where nothing is known.

Two shapes are read: the columns of ../shared/data/README.md (one row a result, of any kind), and a table of
end-to-end latencies of single batches (device, model, tp, batch, in, out, measured_e2e_s).
"""

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.catalog.files import read_bytes
from foretell.errors import bad_input
from foretell.lab.calibrate.cells import LARGEST
from foretell.records import dataclass
from foretell.units import SMALLEST, as_number

LATENCIES = "static_batch_latency"
"""The kind of the rows of a table of latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCells:
    """Prefill or decode workers of a disaggregated row; None is a blank cell."""

    gpus: int | None = None
    """Chips of all of them."""
    workers: int | None = None
    """How many."""
    tp: int | None = None
    """Tensor-parallel ranks of one, as printed."""
    ep: int | None = None
    """Expert-parallel ranks of one."""
    dp: int | None = None
    """Ranks with attention of their own, or a flag (0 and 1) in rows that record a benchmark's run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRow:
    """One result as a table has it; None or an empty text is a blank cell, or one that is no number."""

    id: str
    """The row's id, or its number in the file."""
    kind: str
    """One of the kinds."""
    model: str
    """Mostly a Hugging Face id."""
    gpu: str
    """What the source calls the chip."""
    n_gpus: int | None = None
    """Chips of all instances."""
    precision: str
    """Of the weights: fp16, bf16, fp8, fp4, int4, ..."""
    kv_precision: str
    """Of the cache."""
    framework: str
    """The engine."""
    version: str
    """Its version."""
    tp: int | None = None
    """Tensor-parallel ranks."""
    pp: int | None = None
    """Stages."""
    dp: int | None = None
    """Ranks with attention of their own."""
    ep: int | None = None
    """Expert-parallel ranks."""
    batch: float | None = None
    """Sequences of a batch, or requests in flight."""
    rate: float | None = None
    """Requests a second; infinite where all are sent at once."""
    isl: float | None = None
    """Tokens of a prompt."""
    osl: float | None = None
    """Tokens of an answer."""
    tokens_per_s: float | None = None
    """Output tokens a second, all chips."""
    tokens_per_s_per_gpu: float | None = None
    """The same of one chip."""
    ttft_ms: float | None = None
    """Time to the first token."""
    tpot_ms: float | None = None
    """Time per output token, or between them."""
    e2e_ms: float | None = None
    """Time of a whole request."""
    notes: str
    """What else the source tells."""
    source: str
    """Where it is."""
    disaggregated: bool = False
    """Whether prefill and decode have workers of their own."""
    prefill: WorkerCells = WorkerCells()
    """Prefill workers."""
    decode: WorkerCells = WorkerCells()
    """Decode workers."""
    speculative: str = ""
    """Whether drafts were on: no, mtp, yes, ...; blank where a table does not tell."""
    draft_tokens: int | None = None
    """Tokens drafted a step."""
    ttft_median_ms: float | None = None
    """Median time to the first token."""
    ttft_p99_ms: float | None = None
    """What ninety-nine in a hundred first tokens stay below."""
    joules_per_output_token: float | None = None
    """Joules of all chips for each output token."""
    watts_per_gpu: float | None = None
    """Mean power of one chip."""
    prefix_hit: float | None = None
    """Share of a prompt's tokens that were found in the prefix cache."""
    input_tokens_per_s_per_gpu: float | None = None
    """Prompt tokens a second of one chip."""
    run: str = ""
    """The benchmark's run that recorded it; blank: read from elsewhere."""


TEXTS = ("precision", "kv_precision", "framework", "notes", "source", "run")
"""Fields that are the text of the column of their name."""
WHOLE = {
    "n_gpus": "n_gpus", "tp": "tp", "pp": "pp", "dp": "dp_attn", "ep": "ep", "draft_tokens": "draft_tokens",
}  # fmt: skip
"""Fields that are whole numbers, and their columns."""
NUMBERS = {
    "batch": "batch_or_concurrency", "rate": "request_rate_qps", "isl": "isl", "osl": "osl",
    "tokens_per_s": "out_tok_s_total", "tokens_per_s_per_gpu": "out_tok_s_per_gpu", "ttft_ms": "ttft_ms",
    "tpot_ms": "tpot_or_itl_ms", "e2e_ms": "e2e_ms", "ttft_median_ms": "ttft_median_ms",
    "ttft_p99_ms": "ttft_p99_ms", "joules_per_output_token": "joules_per_output_token",
    "watts_per_gpu": "power_avg_w_per_gpu", "prefix_hit": "prefix_hit",
    "input_tokens_per_s_per_gpu": "input_tok_s_per_gpu",
}  # fmt: skip
"""Other numbers, and their columns."""


def read_rows(path: Path) -> list[ServingRow]:
    """Every row of a table, of either shape."""
    table = read_table(path)
    names = set(table[0]) if table else set()
    if not table:
        raise bad_input("file", str(path), "has no rows")
    if {"kind", "model", "gpu"} <= names:
        return [_row(number, cells) for number, cells in enumerate(table)]
    if {"device", "model", "measured_e2e_s"} <= names:
        return [_latency(number, cells) for number, cells in enumerate(table)]
    message = "is no table of serving results: columns kind, model and gpu are missing"
    raise bad_input("file", str(path), message)


def read_table(path: Path) -> list[dict[str, str]]:
    """The cells of a CSV file, zipped or not."""
    try:
        text = read_bytes(Path(path)).decode("utf-8-sig")
        found = list(csv.DictReader(io.StringIO(text)))
    except FileNotFoundError:
        message = "there is no such file"
    except (OSError, EOFError, csv.Error) as error:
        message = f"cannot be read: {error}"
    except UnicodeDecodeError:
        message = "is not text in UTF-8"
    else:
        return [
            # A short row lacks its last cells, a long one has a list of cells under no name.
            {name: (value or "").strip() for name, value in row.items() if name}
            for row in found
        ]
    raise bad_input(str(path), None, message)


def version_then(cells: Mapping[str, str]) -> str:
    """The year of a row without a version, where its benchmark had the model for one year alone; else empty.

    InferenceX measured Llama-3.1-70B from October 2025 (InferenceMAX v1) to the end of that year.
    """
    dump = "InferenceX dump" in cells.get("source", "") and cells["model"].endswith("Llama-3.1-70B")
    return "2025" if dump and cells.get("framework") == "vllm" else ""


def _row(number: int, cells: Mapping[str, str]) -> ServingRow:
    def value(name: str) -> float | None:
        return _number(cells.get(name, ""))

    def whole(name: str) -> int | None:
        found = value(name)
        return None if found is None or found < 1 or found != int(found) else int(found)

    found: dict[str, Any] = {field: cells.get(field, "") for field in TEXTS}
    found |= {field: whole(column) for field, column in WHOLE.items()}
    found |= {field: value(column) for field, column in NUMBERS.items()}
    if cells.get(NUMBERS["rate"], "") == "inf":
        found["rate"] = math.inf
    return ServingRow(
        id=cells.get("id") or str(number + 1),
        kind=cells["kind"],
        model=cells["model"],
        gpu=cells["gpu"],
        version=cells.get("fw_version", "") or version_then(cells),
        disaggregated=cells.get("disagg", "") in ("1", "true", "True", "yes"),
        prefill=_workers(cells, "prefill"),
        decode=_workers(cells, "decode"),
        speculative=cells.get("speculative", "").lower(),
        **found,
    )


def _workers(cells: Mapping[str, str], side: str) -> WorkerCells:
    """The cells of one side of a disaggregated row; a rank count of 0 is a flag that says no."""

    def whole(name: str) -> int | None:
        text = cells.get(name, "")
        found = 0.0 if text in ("0", "0.0") else _number(text)
        return None if found is None or found != int(found) else int(found)

    return WorkerCells(
        gpus=whole(f"n_{side}_gpus"),
        workers=whole(f"{side}_workers"),
        tp=whole(f"{side}_tp"),
        ep=whole(f"{side}_ep"),
        dp=whole(f"{side}_dp_attn"),
    )


def _latency(number: int, cells: Mapping[str, str]) -> ServingRow:
    """A row of a table of latencies; ids are model, degree and place."""
    seconds = _number(cells["measured_e2e_s"])
    tp = _number(cells.get("tp", "")) or 1.0
    return ServingRow(
        id=cells.get("id") or f"{cells['model']} tp{tp:g} #{number + 1}",
        kind=LATENCIES,
        model=cells["model"],
        gpu=cells["device"],
        n_gpus=int(tp),
        precision=cells.get("precision", "") or "fp16",
        kv_precision="",
        framework=cells.get("framework", "") or "NeMo",
        version=cells.get("fw_version", "") or "2023",
        tp=int(tp),
        pp=1,
        dp=1,
        ep=1,
        batch=_number(cells.get("batch", "")) or 1.0,
        isl=_number(cells.get("in", "")),
        osl=_number(cells.get("out", "")),
        e2e_ms=None if seconds is None else 1e3 * seconds,
        notes=cells.get("status", ""),
        source=cells.get("source", ""),
    )


def _number(text: str) -> float | None:
    """A number above zero that a table can have, or None."""
    return as_number(text, SMALLEST, LARGEST)
