"""A parallel plan, and its text form.

`Plan` is one plan with plain values; `Plans` is a batch of them as arrays, which every formula takes.
The text form has words in any order: `tp8 pp4 dp16 zero1 mbs1 recompute=selective`; what is printed
parses back to the same plan.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.records import dataclass
from foretell.specs._base import with_fields
from foretell.specs.arrays import Array
from foretell.specs.plan_forms import EVEN, FORM_ALLOWED, FORM_WORDS, FORMS, GENERIC, NUMBERS
from foretell.specs.plan_words import (
    AXES,
    CHOICES,
    DEGREES,
    FACTORS,
    LARGEST_DEGREE,
    AttentionLibrary,
    Autocast,
    ContextCut,
    ContextMode,
    Dispatch,
    EpOverlap,
    Graphs,
    Loss,
    Optimizer,
    Option,
    PrecisionName,
    Reduce,
    Routing,
    Scaling,
    TensorMode,
    TuningMethod,
    no_choice,
    outside,
    read_words,
)
from foretell.specs.schedule_words import BY_CHUNKS

Adapters = str
"""Linear maps that have adapters, in the spelling of plan_forms.adapters_form."""
RECOMPUTE = ("none", "selective", "full")
"""Recomputations that a batch mixes; any other is the batch's own, under the next code."""
WIDE_PRECISIONS = ("fp32", "tf32")
"""Precisions in which nothing is kept, moved or sent in 16 bits."""
QUANTISED = {
    "nf4": 0.5 + 4.0 / 64.0,
    "nf4-dq": 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0),
    "int4": 0.5 + 2.5 / 128.0,
}
"""Formats of a frozen base -> bytes of one stored weight with its share of the scales: nf4 has one in 32 bits
for 64 weights, which double quantisation (-dq) keeps in 8 bits (Dettmers et al. 2023); int4 a scale in 16
bits and a zero in 4 for 128 (GPTQ)."""
DTYPE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0} | dict.fromkeys(QUANTISED, 2.0)
"""Bytes of one stored element; of a quantised base, of what is not quantised and of what products read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one training step is laid over the chips."""

    dp: int = 1
    """Data-parallel replicas."""
    tp: int = 1
    """Tensor-parallel ranks."""
    tp_mode: TensorMode = "1d"
    """How they share the GEMMs: by columns and rows, or as a grid (sharding/tensor2d.py)."""
    tp2: int = 0
    """Of a grid, the ranks along its second dimension, which cuts tokens; 0: one."""
    panels: int = 0
    """Panels in which a grid's GEMMs run; 0: as many as leave each a fair width."""
    tp_overlap: Option = "auto"
    """Whether communication at the ends of a region runs in pieces behind its GEMMs; auto: as the framework
    does."""
    pp: int = 1
    """Pipeline stages."""
    vpp: int = 1
    """Virtual stages (model chunks) on each pipeline rank."""
    cp: int = 1
    """Context-parallel ranks."""
    ep: int = 1
    """Expert-parallel ranks."""
    etp: int = 1
    """Tensor-parallel ranks inside an expert, where ep spreads the experts; without ep, tp cuts them."""
    cp_mode: ContextMode = "ring"
    """How context-parallel ranks meet the keys of the others: passed on, gathered, or heads for tokens."""
    cp_cut: ContextCut = "zigzag"
    """Which tokens a context-parallel rank has: one block from either end, one run, or every cp-th."""
    documents: int = 0
    """Tokens of the documents that a sequence is packed of, which attend within themselves alone; 0: it is
    one document. Of uneven ones the mean square over the mean, which has as many pairs."""
    dispatch: Dispatch = "alltoall"
    """How tokens reach their experts: a copy for each expert, or once to each node and rank that has some."""
    ep_overlap: EpOverlap = "off"
    """Whether dispatch and combination run behind the other pass of another micro-batch, or beside the shared
    experts of their own."""
    capacity: float = 0.0
    """Rows that each expert has over its even share, filled up or dropped; 0: none is dropped."""
    routing: Routing = "random"
    """How the router is balanced, and so how uneven the ranks of experts are: all alike (even), drawn at
    random, by biases, or by a loss over batches or over each sequence."""
    imbalance: float = 1.0
    """Tokens of the busiest expert-parallel rank over the mean, where none is dropped and `routing` gives no
    more."""
    zero: int = 0
    """What data-parallel ranks share: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too."""
    micro_batch: int = 1
    """Sequences per micro-batch and replica."""
    sp: bool = False
    """Sequence parallelism: activations outside tensor-parallel regions are cut by tokens."""
    flash: bool = True
    """Fused attention that stores no scores."""
    fused: bool = True
    """Element-wise work fused by a compiler or by hand; else one plain kernel after the other."""
    attention: AttentionLibrary = "auto"
    """Generation of the attention kernels; auto: the best that there is for the chip."""
    recompute: str = "none"
    """Activations computed again in the backward pass: none, the attention core (selective), whole layers
    (full), N layers of each stage (full:N), or modules joined by + (specs/plan_forms.py)."""
    schedule: str = "1f1b"
    """Pipeline schedule; interleaved where vpp > 1."""
    layout: str = EVEN
    """Layers of each pipeline chunk, first to last, as in 7,8*14,7; even: as even as they can be dealt, the
    outer chunks with the fewer (sharding/pipeline.py)."""
    precision: PrecisionName = "bf16"
    """Dtype of the matrix multiplications."""
    scaling: Scaling = "tensor"
    """What shares one scale in fp8: a tensor, a row, a block of 128; mxfp8 and nvfp4 have their own."""
    wide_layers: int = 0
    """Layers whose GEMMs stay in 16 bits beside a precision of 8 bits or fewer, as the first and the last
    ones do in recipes of NVFP4 (Megatron's first_last_layers_bf16); 0: none."""
    lora: int = 0
    """Rank of the adapters that are trained in place of the frozen weights; 0: all weights are trained."""
    adapters: Adapters = "all"
    """Linear maps that have an adapter: all, attention (those of the token mixers), qkv, qv, mlp, or some of
    q+k+v+o+up+down; +ends trains table and head whole besides."""
    method: TuningMethod = "lora"
    """What is trained beside a frozen base (sharding/tuning_methods.py): low-rank adapters, dora (of
    directions, beside a trained length of every column), or another of PEFT's methods; `lora` is its size."""
    loss: Loss = "auto"
    """Cross-entropy: plain operations in 32 bits, one kernel behind scores that are shifted by a copy, one
    that writes the gradient over the scores (inplace), or head and loss together over chunks of tokens
    (Liger's fused linear, torchtune); auto: as the framework has it."""
    shard: int = 0
    """Data-parallel ranks that ZeRO shares over, replicas beside them; 0: all of them."""
    secondary: int = 0
    """Ranks of a second, nearer sharing of the weights that backward gathers use (ZeRO++); 0: none."""
    reshard: bool = True
    """ZeRO 3 frees gathered weights after the forward pass and gathers them again; else keeps them."""
    reduce: Reduce = "auto"
    """How often gradients are reduced; auto: each micro-batch with ZeRO 2 and 3 where
    there is no pipeline, else each step."""
    bucket: int = 0
    """Millions of weights that data-parallel messages are joined to; 0: layers, or Megatron's buckets."""
    prefetch: int = 0
    """Millions of weights that ZeRO 3 gathers in one message, ahead of their use; 0: as the framework has it,
    else a layer."""
    grad_overlap: Option = "auto"
    """Whether gradients are reduced behind the backward pass; auto: as the framework has it."""
    param_overlap: Option = "auto"
    """Whether weights are gathered behind the passes; auto: as the framework has it."""
    graphs: Graphs = "auto"
    """Whether passes are launched as CUDA graphs, which leave the host little to do; partial: mixers, norms
    and routers, not what experts and their dispatch run; auto: as the framework has it."""
    wire: str = "auto"
    """Dtype in which gradients are sent; auto: as they are kept."""
    gather: str = "auto"
    """Dtype in which weights are gathered; auto: as they are kept."""
    offload: str = "none"
    """What lives in the host's memory: optimizer, activations, weights, joined by +."""
    optimizer: Optimizer = "adam"
    """Optimizer (catalog/optimizers.toml): adam keeps two states per weight, adam8bit two of 8 bits,
    adafactor rows and columns, muon one for matrices, sgd (with momentum) one."""
    weights: str = "bf16"
    """Dtype of the working weights; nf4, nf4-dq and int4: of a frozen base beside adapters."""
    gradients: str = "fp32"
    """Dtype in which gradients are kept and reduced."""
    master: str = "fp32"
    """Dtype of the master copy of the weights; none: no copy."""
    states: str = "fp32"
    """Dtype of the optimizer's states."""
    order: tuple[str, ...] = AXES
    """Placement of the groups on the network, innermost first."""
    autocast: Autocast = "auto"
    """Whether PyTorch's autocast runs over weights in 16 bits too; auto: where weights are in 32 bits and
    GEMMs in 16."""
    compile: Option = "auto"
    """Whether torch.compile makes the kernels: selects the compiled form of the framework, or the other;
    auto: as the framework's word says."""
    framework: str = GENERIC
    """Word for the training software, whose record a scenario carries: host, overlap, what it holds."""

    @property
    def gpus(self) -> int:
        """Chips the plan takes."""
        return self.dp * self.tp * self.pp * self.cp

    def __str__(self) -> str:
        """The plan as text that parses back to it."""
        return plan_text(self)


BY_SOFTWARE: tuple[str, ...] = ("flash", "fused", "attention", "gradients")
"""Fields that software of the catalogue states, beside sp and recompute, which every text has: the text of a
plan that names software has them all. A test holds the list to the catalogue."""
OF_EXPERTS = ("dispatch", "ep_overlap", "graphs")
"""Fields that its rules set where experts are spread."""
_STATED = json.loads(
    (Path(__file__).parents[1] / "catalog" / "software_words.json").read_text(encoding="utf-8")
)
"""Words of software that state fields of a plan: generated by `python -m foretell.catalog.index`."""
DROPS: tuple[str, ...] = tuple(_STATED["capacity"])
"""Software whose rules set a capacity whether experts are spread or not."""
OWN_CUTS: tuple[str, ...] = tuple(_STATED["cp_cut"])
"""Software whose rules set how context parallelism cuts tokens, in some release."""
OWN_DTYPES: tuple[str, ...] = tuple(_STATED["dtypes"])
"""Software that states dtypes of master copy and states, and of gradients sent where ZeRO 3 shares all."""
OWN_OPTIMIZERS: tuple[str, ...] = (*OWN_DTYPES, *_STATED["optimizer"])
"""Software that states an optimizer, or is listed with those that do."""
ALL_SHARED = 3
"""Stage of ZeRO that shares weights too."""


def plan_text(plan: Plan) -> str:
    """Words for everything that is not the default a reader would fill in.

    Software fills in choices of its own: where a plan names any, what it may fill is written out.
    """
    told: tuple[str, ...] = BY_SOFTWARE if plan.framework != GENERIC else ()
    # Attention that stores its scores has no library that software could fill in.
    told = told if plan.flash else tuple(name for name in told if name != "attention")
    word = plan.framework.partition("@")[0]
    drops = word in DROPS
    told += ("master", "states") if word in OWN_DTYPES else ()
    told += ("optimizer",) if word in OWN_OPTIMIZERS else ()
    told += ("cp_cut",) if word in OWN_CUTS and plan.cp > 1 else ()
    told += ("wire",) if word in OWN_DTYPES and plan.zero >= ALL_SHARED else ()
    spread = plan.ep > 1 and bool(told)
    told += OF_EXPERTS if spread else ()
    told += ("capacity",) if spread or drops else ()
    told += ("adapters",) if told and plan.lora else ()
    words = [f"tp{plan.tp}", f"pp{plan.pp}"]
    said = plan.vpp != 1 or plan.schedule == "zb-v" or (told and plan.pp > 1)
    words += [f"vpp{plan.vpp}"] if said else []
    words += [f"dp{plan.dp}"]
    words += [f"{n}{getattr(plan, n)}" for n in ("cp", "ep") if getattr(plan, n) != 1]
    words += [f"etp{plan.etp}"] if plan.etp != 1 or spread else []
    words += [f"zero{plan.zero}", f"mbs{plan.micro_batch}"]
    words += ["sp" if plan.sp else "no-sp"] if plan.tp > 1 or plan.sp else []
    for name in ("flash", "fused"):
        on = getattr(plan, name)
        words += [name if on else f"no-{name}"] if not on or name in told else []
    words += [] if plan.reshard else ["no-reshard"]
    base = default_plan(vpp=plan.vpp, precision=plan.precision)
    words += [f"recompute={plan.recompute}"]
    # The default precision is the chip's, so any other than the usual one is always said.
    words += [f"precision={plan.precision}"] if plan.precision != "bf16" else []
    for key in CHOICES:
        if key != "precision" and (key in told or getattr(plan, key) != getattr(base, key)):
            words.append(f"{key}={getattr(plan, key)}")
    words += [f"framework={plan.framework}"] if plan.framework != GENERIC else []
    words += [f"{key}={getattr(plan, key)}" for key in NUMBERS if getattr(plan, key) or key in told]
    words += [f"offload={plan.offload}"] if plan.offload != "none" else []
    words += [f"layout={plan.layout}"] if plan.layout != EVEN else []
    named = plan.adapters != base.adapters or "adapters" in told
    words += [f"adapters={plan.adapters}"] if named else []
    for key in FACTORS:
        value = getattr(plan, key)
        usual = value == getattr(base, key) and key not in told
        words += [] if usual else [f"{key}={value!r}".removesuffix(".0")]
    words += [f"order={','.join(plan.order)}"] if plan.order != AXES else []
    return " ".join(words)


def plan_problems(plan: Plan) -> list[Problem]:
    """Degrees, dtypes and order that no text could have given."""
    found = []
    for field in DEGREES.values():
        low, high = (0, 3) if field == "zero" else (1, LARGEST_DEGREE)
        value = getattr(plan, field)
        if not low <= value <= high:
            message, allowed = "out of range", f"{low} to {high}"
            found.append(wrong(f"plan.{field}", value, message, allowed))
    for field, choices in CHOICES.items():
        value = getattr(plan, field)
        if value not in choices:
            near = nearest_name(str(value), choices)
            found.append(no_choice(f"plan.{field}", value, ", ".join(choices), near))
    found += form_problems(plan)
    found += [
        outside(f"plan.{key}", getattr(plan, key), *ends)
        for key, ends in FACTORS.items()
        if not ends[0] <= getattr(plan, key) <= ends[1]
    ]
    if sorted(plan.order) != sorted(AXES):
        message, allowed = "not an order of the groups", "tp,cp,dp,pp in any order"
        value = ",".join(plan.order)
        found.append(wrong("plan.order", value, message, allowed))
    return found


def form_problems(plan: Plan) -> list[Problem]:
    """Values of keys with a form of their own that no text could have given."""
    found = [
        wrong(f"plan.{key}", getattr(plan, key), "out of range", f"0 to {LARGEST_DEGREE}")
        for key in NUMBERS
        if not 0 <= getattr(plan, key) <= LARGEST_DEGREE
    ]
    for key, form in FORMS.items():
        value = getattr(plan, key)
        if form(value) != value:
            near = form(value) or nearest_name(value, FORM_WORDS[key])
            found.append(no_choice(f"plan.{key}", value, FORM_ALLOWED[key], near))
    return found


def activation_bytes(plan: Plan) -> float:
    """Bytes of an activation as it is kept, moved and sent: 16 bits in every narrower recipe too."""
    return 4.0 if plan.precision in WIDE_PRECISIONS else 2.0


def spared_share(plan: Plan) -> float:
    """Of the bytes of a working weight what storing it in 4 bits spares; 0 where nothing is stored so."""
    stored = QUANTISED.get(plan.weights)
    return 0.0 if stored is None else 1.0 - stored / DTYPE_BYTES[plan.weights]


BLANK = Plan()
"""A plan that says nothing."""


@lru_cache(maxsize=256)
def default_plan(*, vpp: int = 1, precision: PrecisionName = "bf16") -> Plan:
    """The plan whose fields a text leaves out: working weights follow the precision, and need no master copy
    where they are wide themselves."""
    wide = precision in WIDE_PRECISIONS
    return Plan(
        vpp=vpp,
        schedule="interleaved" if vpp > 1 else "1f1b",
        precision=precision,
        weights="fp32" if wide else "fp16" if precision == "fp16" else "bf16",
        master="none" if wide else "fp32",
    )


def parse_plan(text: str, gpus: int | None = None, precision: PrecisionName = "bf16") -> Plan:
    """A plan from its text; words that are absent take their defaults, dp from the chips."""
    if not isinstance(text, str):
        raise bad_input("plan", text, "not a text")
    return _parsed(text, gpus, precision)


@lru_cache(maxsize=4096)
def _parsed(text: str, gpus: int | None, precision: PrecisionName) -> Plan:
    """Remembered: estimates of one plan on many systems parse it once."""
    given, problems = read_words(text)
    # Both ways of a V are chunks.
    vpp = given.setdefault("vpp", 2) if given.get("schedule") == "zb-v" else given.get("vpp", 1)
    base = default_plan(
        vpp=vpp if isinstance(vpp, int) else 1,
        precision=given.get("precision", precision),
    )
    if problems:
        raise BadInput(problems)
    plan = with_fields(base, **given)
    if "sp" not in given:
        plan = with_fields(plan, sp=plan.tp > 1)
    if "dp" not in given and gpus is not None:
        plan = with_fields(plan, dp=max(gpus // (plan.tp * plan.pp * plan.cp), 1))
    return plan


@lru_cache(maxsize=4096)
def named_fields(text: str) -> tuple[str, ...]:
    """Fields that a plan's text names, wrong words left out."""
    return tuple(read_words(text)[0])


USUAL_SCHEDULES = BY_CHUNKS
"""Schedules that go by vpp alone, and that a search chooses between."""


def recompute_code(text: str) -> int:
    """Code of a recomputation in a batch: 0 none, 1 selective, 2 full, 3 as the batch's base has it."""
    return RECOMPUTE.index(text) if text in RECOMPUTE else len(RECOMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """A batch of plans: one float64 array of equal length per numeric choice."""

    dp: Array
    """Data-parallel replicas."""
    tp: Array
    """Tensor-parallel ranks."""
    tp2: Array
    """Of a grid of these, the ranks along its second dimension; 0 or 1: one."""
    pp: Array
    """Pipeline stages."""
    cp: Array
    """Context-parallel ranks."""
    ep: Array
    """Expert-parallel ranks."""
    etp: Array
    """Tensor-parallel ranks inside an expert."""
    vpp: Array
    """Virtual stages per rank."""
    zero: Array
    """ZeRO stage, 0 to 3."""
    micro_batch: Array
    """Sequences per micro-batch."""
    sp: Array
    """1 with sequence parallelism, else 0."""
    recompute: Array
    """0 none, 1 selective, 2 full, 3 as `base` has it."""
    order: Array
    """Index into `orders`."""
    orders: tuple[tuple[str, ...], ...]
    """Placements that occur in the batch."""
    base: Plan
    """The choices that all plans of the batch share."""

    def __len__(self) -> int:
        return len(self.dp)

    def take(self, rows: NDArray[np.intp] | slice) -> "Plans":
        """Some of the plans."""
        arrays = {n: getattr(self, n)[rows] for n in BATCH_FIELDS}
        return Plans(**arrays, orders=self.orders, base=self.base)

    def plan(self, row: int) -> Plan:
        """One of the plans as a plain record."""
        whole = {n: int(getattr(self, n)[row]) for n in BATCH_FIELDS if n not in _CODED}
        values = {f.name: getattr(self.base, f.name) for f in fields(Plan)} | whole
        values["sp"] = bool(self.sp[row])
        code = int(self.recompute[row])
        values["recompute"] = RECOMPUTE[code] if code < len(RECOMPUTE) else self.base.recompute
        values["order"] = self.orders[int(self.order[row])]
        if values["schedule"] in USUAL_SCHEDULES:
            values["schedule"] = "interleaved" if values["vpp"] > 1 else "1f1b"
        return Plan(**values)


_CODED = ("sp", "recompute", "order")
BATCH_FIELDS = (
    "dp", "tp", "tp2", "pp", "cp", "ep", "etp", "vpp", "zero", "micro_batch", "sp", "recompute", "order",
)  # fmt: skip


structure_of = attrgetter(*(f.name for f in fields(Plan) if f.name not in BATCH_FIELDS))
"""The choices of a plan that are no numbers of a batch, as one tuple."""


def join_plans(batches: Sequence[Plans]) -> Plans:
    """Batches of one base and the same orders, one after the other."""
    columns = {n: np.concatenate([getattr(b, n) for b in batches]) for n in BATCH_FIELDS}
    return Plans(**columns, orders=batches[0].orders, base=batches[0].base)


def batch_of(plans: Sequence[Plan]) -> Plans:
    """Plans that share their structural choices, as one batch."""
    if len(plans) == 1:
        return _batch_of_one(plans[0])
    return _batch_of(plans)


@lru_cache(maxsize=1024)
def _batch_of_one(plan: Plan) -> Plans:
    return _batch_of([plan])


def _batch_of(plans: Sequence[Plan]) -> Plans:
    orders = tuple(dict.fromkeys(p.order for p in plans))
    coded = {
        "recompute": [recompute_code(p.recompute) for p in plans],
        "order": [orders.index(p.order) for p in plans],
    }
    table = np.array([coded.get(n) or [getattr(p, n) for p in plans] for n in BATCH_FIELDS], float)
    return Plans(**dict(zip(BATCH_FIELDS, table, strict=True)), orders=orders, base=plans[0])
