"""Training frameworks by generation: what of a step is theirs, each value with a sentence and a source."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.errors import BadInput, Problem, nearest_name
from foretell.records import dataclass

FILE = ROOT / "frameworks.toml"
"""Every generation that is known."""
LEFT_OUT = "~"
"""Between a generation and the source that is left out."""
HOPPER_ON = ("hopper", "blackwell", "blackwell-ultra", "rubin")
"""Architectures that libraries of since 2024 have their own attention kernels for."""
READ = ("own", "slopes")
"""Sources of values that were read from runs or measured."""
VALUE_KEYS = frozenset({"value", "source", "why", "fitted_to", "without", "before_hopper"})
"""What a value's table may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One generation of a training framework."""

    id: str
    """Its name in a plan: `framework=NAME`."""
    name: str
    """What people call it."""
    fused: bool
    """Element-wise work fused by a compiler or by hand; else one plain kernel after the other."""
    flash: bool
    """Fused attention that stores no scores, where a run does not say."""
    recompute: str
    """Activations computed again, where a run does not say."""
    attention: str
    """Generation of the attention kernels on Hopper and later; auto: the best for the chip."""
    attention_before: str
    """The same on earlier chips and on those of other makers."""
    gradients: str
    """Dtype in which gradients are kept and reduced."""
    sequence_parallel: bool
    """Whether tensor parallelism comes with sequence parallelism, where a run does not say."""
    host_forward_s: float
    """Least time that the host takes to launch one layer of one micro-batch, forward."""
    host_backward_s: float
    """The same backward."""
    tensor_exposed: float
    """Share of tensor-parallel communication that is waited for."""
    data_exposed: float
    """Share of data-parallel communication that is waited for though a pass could hide it."""
    fixed_s: float
    """What each step takes beside its work."""
    loss_fused: bool = False
    """Whether the loss is one kernel over the scores even where other element-wise work is plain."""
    loss_plain: bool = False
    """Whether the loss is plain kernels even where other element-wise work is fused."""
    stage_rank_s: float = 0.0
    """What the host takes besides for each tensor-parallel rank of a layer and micro-batch, both passes
    together, where pipeline stages stand on several nodes."""
    gather_waits: bool = False
    """Whether weights are gathered after the update with nothing to hide it, though gradients are hidden."""
    gather_copies: bool = False
    """Whether ZeRO 3 copies gathered weights out of the message, and gradients into it (FSDP2: each
    parameter is shared by itself)."""
    host_routed_s: float = 0.0
    """What a layer of routed experts takes the host besides, each way, where no token is dropped: how many
    tokens each expert gets is read back before their products start."""
    host_dropped_s: float = 0.0
    """The same where tokens are dropped, so that every expert has as many."""
    plain_experts: bool = False
    """Whether tokens are sorted by plain kernels before a plain all-to-all, and experts' biases added so."""
    maps_apart: bool = False
    """Whether queries, keys and values, and both halves of a gated part, are products of their own, whose
    gradients for the common input are added."""
    joins_heads: float = 0.0
    """Traffic of joining, in plain kernels, the gradients of queries, keys and values that are slices of one
    product, over one read and one write; 0: they are products of their own, or attention joins them."""
    joins_halves: float = 0.0
    """The same of both halves of a gated part."""
    sequence_copies: bool = False
    """Whether tokens that a tensor-parallel region gathers or scatters are copied once more: collectives
    join ranks along the first dim, and sequences stand behind the batch."""
    casts_anew: bool = False
    """Whether low-precision recipes find scales and cast weights anew for every use, not once a step with
    scales of steps before."""
    repeats_keys: bool = False
    """Whether keys and values that heads share are written out for every head before fused attention."""
    complex_rotary: bool = False
    """Whether rotary positions are products of complex numbers in 32 bits, which compilers leave alone."""
    norms_composed: bool = False
    """Whether plain RMS norms are made of several operations in 32 bits: PyTorch has one kernel since 2.9."""
    regathered: float = 0.0
    """Share that shows of gathering a region's input again for the gradients of its weights (Korthikanti et
    al. 2022: with sequence parallelism each rank keeps its part alone)."""

    host_grade: str = "supposed"
    """What the host's times stand on: read (from runs, or measured), supposed (its runs hide the host), or
    left_out."""

    @property
    def sums_fused(self) -> bool:
        """Whether the weight gradients' products add to the sum themselves, as Megatron's do."""
        return self.id.startswith("megatron") and self.id != "megatron-deepspeed"

    @property
    def casts_apart(self) -> bool:
        """Whether gradients are widened for their sum and the update, and working weights rounded after it,
        by passes of their own: PyTorch's optimizers take tensors of one dtype."""
        return self.id in ("pytorch-eager", "pytorch-compiled")

    @property
    def compiled(self) -> bool:
        """Whether PyTorch's compiler makes the kernels, without any of the framework's own."""
        return self.id in ("fsdp-compiled", "pytorch-compiled")

    @property
    def stages_by_cost(self) -> bool:
        """Whether layers are dealt to pipeline stages by their cost beside the head's, as nanotron does."""
        return self.id == "nanotron"

    def exchanges_in_pieces(self, architecture: str) -> bool:
        """Whether tensor-parallel gathers and scatters run in pieces behind the products, unless told.

        XLA decomposes them by itself on TPUs (Wang et al., ASPLOS 2023), not on GPUs.
        """
        decomposed = self.id == "jax" and architecture.startswith("tpu")
        return decomposed or self.id in ("megatron-core", "megatron-graphs")

    def attention_on(self, architecture: str) -> str:
        """The attention library on chips of an architecture."""
        return self.attention if architecture in HOPPER_ON else self.attention_before


@lru_cache(maxsize=128)
def frameworks(left_out: str = "") -> Mapping[str, Framework]:
    """Every generation by its name; values read from the runs of the source `left_out` at their start."""
    table = read_table(FILE)
    sources = table["sources"]
    problems: list[Problem] = []
    found = {
        name: _framework(name, values, sources, left_out, problems)
        for name, values in table["framework"].items()
    }
    if problems:
        raise BadInput(problems)
    return {name: record for name, record in found.items() if record is not None}


def framework(name: str) -> Framework:
    """One generation; BadInput with the nearest name where there is none.

    `NAME~SOURCE` is the generation without what was read from the runs of that source, as plans that are
    scored by leaving their source out name it.
    """
    name, _, left_out = name.partition(LEFT_OUT)
    known = frameworks(left_out)
    if name not in known:
        raise BadInput(
            [
                Problem(
                    path="plan.framework",
                    value=name,
                    message="is no framework of the catalogue",
                    allowed=", ".join(known),
                    nearest=nearest_name(name, known),
                )
            ]
        )
    return known[name]


def fitted_values() -> int:
    """How many values were read from end-to-end runs rather than from code, kernels or physics."""
    table = read_table(FILE)["framework"].values()
    return sum("fitted_to" in v for one in table for v in one.values() if isinstance(v, dict))


def _framework(
    name: str, values: Table, sources: Mapping[str, str], left_out: str, problems: list[Problem]
) -> Framework | None:
    """A record from its table, with a problem for each value that lacks a sentence or a source."""
    given: dict[str, Any] = {"id": name}
    before = len(problems)
    for field in fields(Framework):
        if field.name in ("id", "attention_before", "host_grade"):
            continue
        path, raw = f"framework.{name}.{field.name}", values.get(field.name)
        if raw is None and field.default is not MISSING:
            continue
        if field.name == "name":
            given["name"] = raw
            continue
        if not isinstance(raw, dict) or not {"value", "source", "why"} <= set(raw) <= VALUE_KEYS:
            message = "is not a value with a sentence and a source"
            problems.append(Problem(path=path, value=raw, message=message))
            continue
        if raw["source"] not in sources:
            problems.append(Problem(path=path, value=raw["source"], message="is no source"))
        out = left_out and left_out in raw.get("fitted_to", ())
        given[field.name] = raw["without"] if out else raw["value"]
        if field.name == "host_forward_s":
            read = "read" if raw["source"] in READ else "supposed"
            given["host_grade"] = "left_out" if out else read
        if field.name == "attention":
            given["attention_before"] = raw.get("before_hopper", raw["value"])
    return Framework(**given) if len(problems) == before else None
