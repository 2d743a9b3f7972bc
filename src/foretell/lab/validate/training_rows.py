"""Published training runs: the rows of a table as records, and the words of a plan that their cells say.

What a row states is read, and nothing else. What is blank is left to whoever fills a user's blanks: degrees
1, dp what is left of the chips, mbs1, zero0, and the choices and rules of the software that the row names
(inputs/plan_defaults.py). Read out of several cells: the micro-batch (global batch over dp x accumulation),
the batch (what step time and rate imply, or dp x micro-batch x accumulation), a share of layers computed
again (model and hardware utilisation in print). `selective` is what the software calls so.
training_words.toml has the words of notes that a run states by.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from foretell.catalog.files import csv_rows, read_table
from foretell.catalog.software import software as catalogued
from foretell.catalog.software_printed import recognise_framework
from foretell.errors import bad_input
from foretell.lab.calibrate.cells import LARGEST
from foretell.lab.validate.scores import UnsupportedRun, table_text
from foretell.records import dataclass
from foretell.specs.software import Software
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


PRECISIONS = ("bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4")
"""What precision_id may be beside bf16-pure."""
WORDS = {
    group: {word: re.compile(pattern, re.IGNORECASE) for word, pattern in table.items()}
    for group, table in read_table(Path(__file__).parent / "training_words.toml").items()
}
"""Words of a plan by group, with the patterns by which runs say them."""
LORA_RANK = 16
"""Rank of adapters that is not printed: a plan must name one."""


def option_words(group: str, text: str) -> list[str]:
    """Words of a group that a text says, in their order."""
    return [word for word, pattern in WORDS[group].items() if pattern.search(text)]


def says(fact: str, text: str) -> bool:
    """Whether a text says a fact."""
    return WORDS["facts"][fact].search(text) is not None


def framework_word(row: TrainingRow, architecture: str = "") -> str:
    """The word for a row's framework, with the release or the date that the row states."""
    return recognise_framework(row.framework, row.framework_id, row.source, row.notes, architecture)


def degrees_of(row: TrainingRow) -> tuple[int, int, int, int]:
    """tp, pp, cp and what is left for dp; UnsupportedRun where they do not divide the chips."""
    if not row.gpus:
        raise UnsupportedRun("the number of chips is blank")
    tp, pp, cp = row.tp or 1, row.pp or 1, row.cp or 1
    if row.gpus % (tp * pp * cp):
        raise UnsupportedRun(f"tp x pp x cp = {tp * pp * cp} does not divide {row.gpus} chips")
    return tp, pp, cp, row.gpus // (tp * pp * cp)


def batches_of(row: TrainingRow, dp: int) -> tuple[int | None, int | None]:
    """Sequences per micro-batch and per step, as far as the cells tell."""
    batch, micro = row.global_batch, row.micro_batch
    if batch is None and row.step_s and row.rate and row.seq_len:
        batch = max(round(row.step_s * row.rate * (row.gpus or 1) / row.seq_len), 1)
    if micro is None and batch and row.grad_accum and batch % (dp * row.grad_accum) == 0:
        micro = batch // (dp * row.grad_accum)
    if batch is None and micro is not None:
        batch = dp * micro * (row.grad_accum or 1)
    if batch is not None and micro is not None and batch < dp * micro:
        micro = max(batch // dp, 1)
    return micro, batch


def plan_words(row: TrainingRow, layers: int, architecture: str = "") -> tuple[str, ...]:
    """The words of a row's plan; `layers` are the model's, `architecture` is the chip's."""
    tp, pp, cp, dp = degrees_of(row)
    word = framework_word(row, architecture)
    micro, _ = batches_of(row, dp)
    degrees = {"tp": row.tp, "pp": row.pp, "vpp": row.vpp if pp > 1 else None, "cp": row.cp}
    words = [f"{name}{value}" for name, value in degrees.items() if value]
    words += [f"ep{_expert_ranks(row.ep, tp * cp * dp)}"] if row.ep else []
    words += [f"zero{row.zero_stage}"] if row.zero_stage is not None else []
    words += [f"mbs{micro}"] if micro else []
    shared = row.zero_group if row.zero_stage and row.zero_group else 0
    words += [f"shard={shared}"] if 0 < shared < dp else []
    words += ["sp" if row.sp == "yes" else "no-sp"] if row.sp and tp > 1 else []
    # Asynchronous tensor parallelism is an option of torchtitan.
    words += ["tp_overlap=on"] if tp > 1 and row.sp != "no" and says("async", row.notes) else []
    words += _no_overlap(row, tp)
    words += [
        *_attention(row),
        *_fused(row),
        *_loss(row),
        *_dtypes(row),
        *_experts(row),
        *_lora(row),
    ]
    words += option_words("options", row.notes)
    words += _recompute(row, catalogued(word), -(-layers // pp))
    return (*words, f"framework={word}")


def _expert_ranks(asked: int, ranks: int) -> int:
    """ep, which the ranks of a stage bound."""
    return asked if asked <= ranks else max(n for n in range(1, ranks + 1) if ranks % n == 0)


def _no_overlap(row: TrainingRow, tp: int) -> list[str]:
    """Exchanges that nothing hides, where a run says so."""
    if not says("no-overlap", row.notes):
        return []
    return ["grad_overlap=off", "param_overlap=off", *(["tp_overlap=off"] if tp > 1 else [])]


def _attention(row: TrainingRow) -> list[str]:
    flash = row.flash.lower()
    if not flash:
        return []
    if (named := WORDS["numbers"]["flash"].search(row.framework)) and flash == "yes":
        return ["flash", f"attention=fa{named[1]}"]
    if flash.startswith("no"):
        return ["no-flash"]
    return ["flash", *([f"attention={flash[:3]}"] if flash[:3] in ("fa1", "fa2", "fa3") else [])]


def _loss(row: TrainingRow) -> list[str]:
    """A loss that a run names: with the head over chunks of tokens, or one kernel."""
    return [f"loss={word}" for word in option_words("loss", row.framework)[:1]]


def _fused(row: TrainingRow) -> list[str]:
    text = f"{row.framework} {row.notes}"
    if "eager" in text.lower():
        return ["no-fused"]
    return ["fused"] if says("fused-kernels", text) else []


def _dtypes(row: TrainingRow) -> list[str]:
    """Precision, and what weights, gradients and states are kept in."""
    if row.precision_id == "bf16-pure":
        words = ("precision", "weights", "gradients", "states")
        return [*(f"{word}=bf16" for word in words), "master=none"]
    if row.precision_id not in PRECISIONS:
        return []
    row_wise = row.precision_id == "fp8" and "row" in row.precision.lower()
    some = WORDS["numbers"]["narrow-layers"].search(row.precision)
    wide = int(some[2]) - int(some[1]) if some else 0
    found = [f"precision={row.precision_id}", *(["scaling=row"] if row_wise else [])]
    return found + ([f"wide_layers={wide}"] if wide > 0 else [])


def _experts(row: TrainingRow) -> list[str]:
    """What is stated of a mixture's exchanges."""
    if not row.experts and row.family != "moe":
        return []
    # A table's header says of all its rows that none is dropped; the model's own name knows better.
    text = f"{row.model} {row.framework} {row.notes}"
    words = ["capacity=1"] if says("drops-tokens", text) else []
    if (row.ep or 1) <= 1:
        return words
    for word in ("dispatch", "ep_overlap"):
        words += [
            f"{word}={name}" for name in option_words(word, f"{row.framework}; {row.notes}")[:1]
        ]
    return words + (["etp1"] if says("folded", row.framework) else [])


def _lora(row: TrainingRow) -> list[str]:
    """Adapters: where the model's name or the run's task says so."""
    if not row.lora:
        return []
    rank = WORDS["numbers"]["rank"].search(row.notes)
    maps = option_words("adapters", row.notes)
    stored = option_words("stored", f"{row.model}; {row.precision}")
    found = [f"lora={rank[1] if rank else LORA_RANK}", *(f"adapters={name}" for name in maps[:1])]
    return found + [f"weights={name}" for name in stored[:1]]


def _recompute(row: TrainingRow, software: Software, stage_layers: int) -> list[str]:
    """What is computed again, where it is printed; selective by what the software calls so."""
    if not row.recompute:
        return []
    if row.recompute != "selective" or software.selective in ("selective", "modules"):
        return [f"recompute={row.recompute}"]
    if software.selective == "layers":
        many = round(_repeated(row) * stage_layers)
        return ["recompute=none" if many == 0 else f"recompute=full:{many}"]
    keeps = software.selective != "products" and says("keeps-products", row.notes)
    return [f"recompute={'selective' if keeps else software.selective or 'selective'}"]


def _repeated(row: TrainingRow) -> float:
    """Share of the layers' forward work that is done again: where hardware and model utilisation are both
    printed their ratio tells, 4/3 for all of it; else half."""
    printed = WORDS["numbers"]["hfu"].search(row.notes)
    if printed is None or not row.mfu:
        return 0.5
    return min(max(3.0 * (float(printed.group(1)) / row.mfu - 1.0), 0.0), 1.0)
