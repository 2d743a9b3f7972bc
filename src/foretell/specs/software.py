"""Training software as one record: a release of a framework, with what its own code does in a step.

A record has what the framework's code decides: the choices of a plan that it makes where the plan leaves them
open, which passes over memory it does not fuse, how it launches kernels, what waits for what, and what it
holds beside the tensors of the arithmetic. What a machine takes for
a launch is its host's, what memory management loses the allocator's, what an update costs the optimizer's:
the three other records here.

gradients   Transformer Engine adds the gradients of weights to their sums inside the products and hands
            PyTorch an empty tensor in their place: one for every shape of a matrix, kept (get_dummy_wgrad),
            and Megatron's head has one of its own in its backward pass. DistributedDataParallel keeps
            buckets of all gradients in the weights' dtype beside sums in 32 bits (nanotron logs 20 bytes a
            weight at the end of a step, and 18 without replicas).
            Plain PyTorch makes a gradient when the backward pass comes to its weight and gives it up after
            the update: with one micro-batch and no replicas it never meets all activations
            (training/late_gradients.py). Elsewhere a buffer holds it through the step.
weights     FSDP holds one copy, that of the master weights, and rounds what it gathers. After an update
            nanotron's ZeRO 1 holds the gathered weights and its own part of them beside the working ones (it
            logs 10 + 14 / z bytes a weight at the end of a step, z ranks).
narrow      Transformer Engine keeps inputs of linear maps and copies of the weights in the narrow format;
            torchao keeps both in 16 bits and rounds them again where they are used.
"""

from typing import Annotated, Literal

from foretell.records import dataclass
from foretell.specs._base import Amount, Factor, Ge, Le, Share
from foretell.specs.plan_forms import GENERIC
from foretell.specs.plan_words import AttentionLibrary, ContextMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host of a chip: seconds of the machine it was measured on, over `chip.host_speed` elsewhere."""

    operation_s: Amount
    """One operation of PyTorch forward beside its launches: modules, dispatch, the graph of gradients."""
    kernel_s: Amount
    """One launch of a kernel."""
    backward: Factor
    """Time of an eager operation backward over that forward."""
    collective_s: Amount
    """One collective through torch.distributed: checks, events, a launch."""
    step_s: Amount
    """What each step takes beside its work: the next batch, logging, waiting for the loss."""
    spread: Factor = 1.0
    """Range of these over machines: the slow end over the fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAllocator:
    """One allocator of a chip's memory."""

    fused_share: Share
    """Reserved beyond what tensors take, as a share of that, where modules are fused."""
    plain_share: Share
    """That share where modules are plain: every operation takes a tensor, gives it back and leaves holes."""
    workspace_bytes: Amount
    """Workspaces that matrix and attention libraries keep allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One optimizer, as a plan names it (`optimizer=`); `matrix_`: for a weight of a matrix."""

    id: str
    """Word of a plan."""
    states: Amount
    """States of a weight that is in no matrix."""
    matrix_states: Amount
    """States of a weight in a matrix."""
    edge_states: Amount = 0.0
    """States of a row and of a column of a matrix."""
    state_bytes: Amount = 0.0
    """Bytes of a state with its share of a scale; 0: by the plan's dtype of states."""
    flop: Amount
    """Plain operations of one weight's update, conversions and addresses included."""
    reads: Amount = 0.0
    """Reads of the gradient beyond the first."""
    matrix_bytes: Amount = 0.0
    """Bytes of further passes over a weight of a matrix."""
    products: Literal["", "newton-schulz", "kronecker"] = ""
    """Matrix products of an update: Newton-Schulz steps that make a momentum orthogonal, or factors of blocks
    that are summed and applied."""
    passes: Factor = 1.0
    """Time of the update over that of one fused kernel: foreach kernels run operation after operation."""

    @property
    def uniform(self) -> bool:
        """Whether matrices are treated like everything else."""
        return self.states == self.matrix_states and not (self.products or self.edge_states)


EVERYWHERE = "all"
"""Value of `pieces_on` that any architecture has."""
HOLDS = (
    "late-gradients",
    "one-copy",
    "weighed-inside",
    "weighed-wide",
    "summed-copies",
    "stored-inputs",
    "placeholders",
    "buckets",
    "gathered",
)
"""What `holds` may name; the properties of the record say what each is."""
COPIES = ("gathers", "tokens")
"""What `copies` may name: what ZeRO 3 gathers and scatters, where each parameter is shared by itself; tokens
that a tensor-parallel region gathers or scatters, where sequences are behind the batch."""
ALWAYS, NEVER = 0, 4
"""Values of `overlap_stage`: data-parallel messages are hidden with any stage of ZeRO, and with none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """One release of a training framework."""

    id: str
    """Family, or variant of it, and release: fsdp-compiled@2023."""
    family: str
    """Family that the release belongs to: its file in catalog/software."""
    release: str
    """Release, as its makers number it, or its year."""
    released: str
    """When it came out: year and month."""
    name: str
    """What people call it."""
    left_out: tuple[str, ...] = ()
    """Sources of runs whose values are replaced by what is known without them."""

    fused: bool
    """Plan: element-wise work fused by a compiler or by hand; else one plain kernel after the other."""
    flash: bool = True
    """Plan: fused attention that stores no scores."""
    recompute: str = "none"
    """Plan: activations computed again."""
    selective: str = "selective"
    """Plan: what the framework's own selective recomputation computes again; layers: some of the layers;
    modules: what the plan names, attention if nothing; empty: as usual, and nothing is filled in."""
    attention: AttentionLibrary
    """Plan: attention library, on chips and for heads that it has kernels for (catalog/attention.toml); auto:
    the best for the chip."""
    gradients: Literal["fp32", "bf16"]
    """Plan: dtype in which gradients are kept and reduced; bf16 is fp16 beside fp16 weights."""
    sequence_parallel: bool
    """Plan: whether tensor parallelism comes with sequence parallelism."""
    master: Literal["", "fp32", "bf16", "none"] = ""
    """Plan: dtype of the master copy of the weights; empty: not stated, as in all that follow."""
    states: Literal["", "fp32", "bf16", "fp8"] = ""
    """Plan: dtype of the optimizer's states."""
    optimizer: str = ""
    """Plan: the optimizer that it runs by default (catalog/optimizers.toml)."""
    context: Literal["", ContextMode] = ""
    """Plan: how keys and values reach the other ranks of context parallelism."""
    pieces_on: str = ""
    """Architectures, by how their names begin, with spaces between them, on which tensor-parallel gathers and
    scatters run in pieces behind the products unless the plan says otherwise; all: every one; empty: none."""
    host_activations: bool = False
    """Whether recipes hand kept activations to the host where they do not fit (training/room.py)."""
    micro_tokens: Annotated[int, Ge(0), Le(10**9)] = 0
    """Tokens that recipes without a pipeline fill a micro-batch with where neither plan nor table says how
    many sequences it has; 0: one sequence."""

    launch: Literal["eager", "compiled", "program"]
    """How kernels are started: one operation of Python after the other, by code that a compiler made, or as
    one program for the whole step."""
    routed_operations: Annotated[float, Ge(0), Le(1e4)] = 0.0
    """Operations that a layer of routed experts launches besides, each way: router, permutation, exchange."""
    step_operations: Annotated[float, Ge(0), Le(1e6)] = 0.0
    """Operations that a step launches beside its work: loading data, norms, logging, barriers of timers."""
    shared_operations: Annotated[float, Ge(0), Le(1e4)] = 0.0
    """Operations besides for a layer and micro-batch with ZeRO 3, both passes together: hooks that fetch its
    modules and free them."""
    adapter_operations: Annotated[float, Ge(0), Le(1e4)] = 0.0
    """The same for each matrix of an adapter, where each is shared by itself (PEFT's fsdp_auto_wrap_policy);
    0: with its layer."""
    overlap_stage: Annotated[int, Ge(0), Le(NEVER)] = ALWAYS
    """ZeRO stage from which data-parallel messages are hidden behind a pass; 4: in none."""
    gather_waits: bool = False
    """Whether weights are gathered after the update with nothing to hide it, though gradients are hidden."""
    zero_sums: Literal["scatter", "reduce", "all-reduce"] = "scatter"
    """How ZeRO 1 and 2 sum gradients: scatter, one reduce-scatter of a bucket; reduce, one reduce to every
    rank for its part; all-reduce, whole buckets, of which each rank keeps its part."""
    copies: str = ""
    """What is copied once more beside a collective: names of COPIES, with spaces between."""
    sums_fused: bool = False
    """Whether the weight gradients' products add to the sum themselves."""
    casts_anew: bool = False
    """Whether low-precision recipes find scales and cast weights anew for every use, not once a step with
    scales of steps before."""
    passes: str = ""
    """Passes over memory that it makes in another way than `fused` says: kind=name, with spaces between
    (catalog/kernels/passes.toml: `apart`, or plain or fused)."""
    maps_apart: bool = False
    """Whether queries, keys and values, and both halves of a gated part, are products of their own, whose
    gradients for the common input are added."""
    experts_in_turn: bool = False
    """Whether the experts of a layer are a loop over them, each with kernels of its own."""
    modules: bool = False
    """Whether layers are the modules of Hugging Face transformers: composed norms and rotary positions, a
    residual stream in the dtype of the weights, casts by autocast, scores in 32 bits for the loss
    (kernels/modules.py)."""
    stops_early: bool = False
    """Whether a layer that is computed again stops where nothing behind is kept: in front of the last product
    of a dense feed-forward part."""
    loss: Literal["plain", "compiled", "kernel", "chunked", "pieces"] = "plain"
    """Cross-entropy: plain kernels; compiled where other element-wise work is fused; one kernel in any case;
    one with the head, over chunks of tokens; or of scores in pieces (kernels/stack_passes.py)."""
    narrow: Literal["none", "inputs", "all"] = "none"
    """What low-precision recipes keep in the narrow format: inputs of linear maps, and copies of their
    weights; all: what activations read too, and results of attention in 12 bits."""
    holds: str = ""
    """What it holds, or spares, beside the tensors of the arithmetic: names of HOLDS, with spaces between."""
    stages_by_cost: bool = False
    """Whether layers are dealt to pipeline stages by their cost beside the head's."""
    allocator: MemoryAllocator
    """What takes and keeps the chip's memory for it."""

    def __hash__(self) -> int:
        """Of a few fields: records are the keys of what is remembered, and this is asked for often."""
        return hash((self.id, self.launch, self.left_out))

    @property
    def file(self) -> str:
        """Where the catalogue has it."""
        return f"software/{self.family}.toml"

    @property
    def unnamed(self) -> bool:
        """Whether no framework is named, so that it stands for any of today."""
        return self.family == GENERIC

    @property
    def compiled(self) -> bool:
        """Whether a compiler makes the kernels."""
        return self.launch == "compiled"

    @property
    def gather_copies(self) -> bool:
        """Whether ZeRO 3 copies gathered weights out of the message, and gradients into it."""
        return "gathers" in self.copies.split()

    @property
    def sequence_copies(self) -> bool:
        """Whether tokens that a tensor-parallel region gathers or scatters are copied once more."""
        return "tokens" in self.copies.split()

    @property
    def late_gradients(self) -> bool:
        """Whether gradients are made while activations are given back, where nothing sums them."""
        return "late-gradients" in self.holds.split()

    @property
    def one_copy(self) -> bool:
        """Whether with ZeRO 3 the shared weights are the master copy."""
        return "one-copy" in self.holds.split()

    @property
    def weighs_inside(self) -> bool:
        """Whether results of experts are not kept: tokens are weighed in front of their last product."""
        return "weighed-inside" in self.holds.split()

    @property
    def weighs_wide(self) -> bool:
        """Whether results of experts are weighed in 32 bits, by copies of them."""
        return "weighed-wide" in self.holds.split()

    @property
    def sums_copies(self) -> bool:
        """Whether ZeRO 3 copies a part's gradients into the format of their sum before it sends them."""
        return "summed-copies" in self.holds.split()

    @property
    def keeps_stored(self) -> bool:
        """Whether frozen maps that are stored in 4 bits keep their inputs."""
        return "stored-inputs" in self.holds.split()

    @property
    def placeholders(self) -> bool:
        """Whether there is an empty gradient for every shape of a matrix, and for the head."""
        return "placeholders" in self.holds.split()

    @property
    def buckets(self) -> bool:
        """Whether all gradients are there once more in the weights' dtype, where there are replicas."""
        return "buckets" in self.holds.split()

    @property
    def gathered_stay(self) -> bool:
        """Whether with ZeRO 1 gathered weights stay beside the working ones after an update."""
        return "gathered" in self.holds.split()

    def in_pieces(self, architecture: str) -> bool:
        """Whether tensor-parallel gathers and scatters run in pieces behind the products, unless stated."""
        on = self.pieces_on
        return on == EVERYWHERE or (on != "" and architecture.startswith(tuple(on.split())))

    @property
    def default_recompute(self) -> str:
        """What is computed again where a run does not say, in a plan's words."""
        if self.recompute != "selective" or self.selective == "modules":
            return self.recompute
        return self.selective or "selective"
