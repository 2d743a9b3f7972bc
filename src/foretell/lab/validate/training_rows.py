"""Published training runs: the rows of a table as records, cell by cell, blank where nothing is known.

What the cells say in a user's words is known by training_question; what is blank is filled as a user's blanks
are.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from foretell.catalog.files import csv_rows, read_bytes
from foretell.errors import bad_input
from foretell.lab.calibrate.cells import LARGEST
from foretell.records import dataclass
from foretell.units import as_number

LORA_TASK = re.compile(r"(?:^|;\s*)Q?LoRA (?:rank|performance|finetun)", re.IGNORECASE)
"""How notes say that a run trains adapters: a clause of its own. A word on the way, of another run or of what
was not done, says nothing."""
NEEDED = ("chip_id", "n_gpus", "framework_id")
"""Columns without which a file is no table of training runs."""
NAMES = {
    "params_b": "n_params_b",
    "ffn": "ffn_hidden",
    "experts": "n_experts",
    "memory_gb": "gpu_mem_gb",
    "gpus": "n_gpus",
    "domain": "fast_domain_gpus",
    "port_gbytes_per_s": "inter_node_gbytes_per_s_per_gpu",
    "flash": "flash_attn",
    "step_s": "score_step_time_s",
    "rate": "score_tokens_per_s_per_gpu",
    "tera_flop_per_s": "tflops_per_gpu",
}
"""Field -> column where they are not called the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One run as a table has it; None or an empty text is a blank cell."""

    id: str
    """The row's id, or its number in the file."""
    source: str = ""
    """Where the run is published."""
    model: str = ""
    """What the source calls the model."""
    family: str = ""
    """dense, moe or hybrid."""
    params_b: float | None = None
    """Weights in billions."""
    layers: int | None = None
    """Layers."""
    hidden: int | None = None
    """Width of the residual stream."""
    heads: int | None = None
    """Query heads."""
    kv_heads: int | None = None
    """Key and value heads."""
    ffn: int | None = None
    """Inner width of the feed-forward part, or of one expert."""
    experts: int | None = None
    """Routed experts."""
    top_k: int | None = None
    """Routed experts per token."""
    vocab: int | None = None
    """Rows of the token table."""
    seq_len: int | None = None
    """Tokens per sequence."""
    chip_id: str = ""
    """The chip."""
    memory_gb: float | None = None
    """Its memory in print."""
    gpus: int | None = None
    """How many of them."""
    domain: int | None = None
    """Chips in one domain of fast links."""
    port_gbytes_per_s: float | None = None
    """What one chip can send out of it, GB/s, one direction, nominal."""
    interconnect: str = ""
    """The network in words."""
    precision_id: str = ""
    """bf16, bf16-pure, fp16, fp8, mxfp8 or nvfp4."""
    precision: str = ""
    """The precision in words."""
    framework: str = ""
    """The framework in words."""
    framework_id: str = ""
    """The framework."""
    dp: int | None = None
    """Data-parallel replicas."""
    zero_stage: int | None = None
    """What they share."""
    zero_group: int | None = None
    """Ranks that it is shared over; blank: all."""
    tp: int | None = None
    """Tensor-parallel ranks."""
    sp: str = ""
    """Sequence parallelism: yes or no."""
    cp: int | None = None
    """Context-parallel ranks."""
    pp: int | None = None
    """Pipeline stages."""
    vpp: int | None = None
    """Virtual stages per rank."""
    ep: int | None = None
    """Expert-parallel ranks."""
    micro_batch: int | None = None
    """Sequences per micro-batch."""
    global_batch: int | None = None
    """Sequences per step."""
    grad_accum: int | None = None
    """Micro-batches per step."""
    recompute: str = ""
    """none, selective or full."""
    flash: str = ""
    """Fused attention: yes, no, or which."""
    tera_flop_per_s: float | None = None
    """TFLOP/s of one chip in print, as its source counts them."""
    mfu: float | None = None
    """Utilisation in print, percent."""
    peak_mem_gb: float | None = None
    """Peak memory in print; GiB, as the frameworks that print it count."""
    step_s: float | None = None
    """Step time to score against."""
    rate: float | None = None
    """Tokens per second and chip to score against."""
    quality: str = ""
    """A, B or C."""
    notes: str = ""
    """What else the table says."""
    outcome: str = ""
    """Whether the run ran or ran out of memory (ran, oom); blank: not stated."""

    @property
    def lora(self) -> bool:
        """Whether adapters are trained in place of the weights: the model's name or the task says so."""
        return "lora" in self.model.lower() or LORA_TASK.search(self.notes) is not None


def read_rows(path: Path) -> list[TrainingRow]:
    """Every row of a table, plain or gzipped; BadInput where it is none."""
    have, rows = csv_rows(table_text(path), str(path))
    missing = [name for name in NEEDED if name not in have]
    if missing:
        message = f"is no table of training runs: it has no column {', '.join(missing)}"
        raise bad_input(str(path), None, message)
    return [row_of(cells, str(number)) for number, cells in enumerate(rows, start=1)]


def table_text(path: Path) -> str:
    """The text of a CSV file, gzipped or not."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        message = "there is no such file"
    except (OSError, EOFError) as error:
        message = f"cannot be read: {error}"
    except UnicodeDecodeError:
        message = "is not text in UTF-8"
    raise bad_input(str(path), None, message)


def row_of(cells: Mapping[str, str | None], number: str = "1") -> TrainingRow:
    """A record of one row's cells; what cannot be read as a number, or is below 0, is blank."""
    given: dict[str, Any] = {}
    for field in fields(TrainingRow):
        text = (cells.get(NAMES.get(field.name, field.name)) or "").strip()
        if field.type in (int | None, "int | None"):
            given[field.name] = _whole(text)
        elif field.type in (float | None, "float | None"):
            given[field.name] = as_number(text, 0.0, LARGEST)
        else:
            given[field.name] = text
    given["id"] = given["id"] or number
    return TrainingRow(**given)


def _whole(text: str) -> int | None:
    value = as_number(text, 0.0, LARGEST)
    return None if value is None else round(value)
