"""Training software as one record: a release of a framework, with all that a step takes from it.

A record has three parts: the choices of a plan that the framework makes where the plan leaves them open, the
time that it adds to the kernels, and the memory that it holds beside the tensors of the arithmetic.

loss        Unfused, cross-entropy in 32 bits holds 12 bytes a score: the scores, a copy in 32 bits, the
            gradient, rounded again. Fused into one kernel, or compiled, it holds the scores and their
            gradient in 16 bits: 4. The loss of torchtitan is not compiled where the vocabulary is cut (16
            bytes: DTensors in 32 bits, operation by operation), and until early 2025 nowhere.
            Where nothing is in 32 bits, plain kernels hold scores, their log-softmax and the gradients of
            both in 16 bits: 8 (steps of five translation models on one H200, peaks of the allocator).
gradients   Transformer Engine adds the gradients of weights to their sums inside the products and hands
            PyTorch an empty tensor in their place: one for every shape of a matrix, kept (get_dummy_wgrad),
            and Megatron's head has one of its own in its backward pass. DistributedDataParallel keeps
            buckets of all gradients in the weights' dtype beside sums in 32 bits (nanotron logs 20 bytes a
            weight at the end of a step, and 18 without replicas).
            Plain PyTorch makes a gradient when the backward pass comes to its weight and gives it up after
            the update: with one micro-batch and no replicas it never meets all activations
            (training/late_gradients.py). Elsewhere a buffer holds it through the step: sums over
            micro-batches, buckets of replicas, Megatron's main_grad. FSDP's shards are made late too
            (`late_shards`), but on a stream of their own, and the allocator gives a stream nothing of what
            another's tensors left: so much more is reserved.
weights     FSDP holds one copy, that of the master weights, and rounds what it gathers. After an update
            nanotron's ZeRO 1 holds the gathered weights and its own part of them beside the working ones (it
            logs 10 + 14 / z bytes a weight at the end of a step, z ranks), and gives them up before the next
            passes (what it had reserved by then is often no more than that).
narrow      Transformer Engine keeps inputs of linear maps and copies of the weights in the narrow format;
            torchao keeps both in 16 bits and rounds them again where they are used.
"""

from typing import Annotated, Literal

from foretell.records import dataclass
from foretell.specs.plan import (
    AttentionLibrary,
    ContextCut,
    ContextMode,
    Dispatch,
    EpOverlap,
    Reduce,
)
from foretell.specs.plan_forms import GENERIC
from foretell.specs.ranges import Ge, Le

Seconds = Annotated[float, Ge(0), Le(1e6)]
"""A time not below zero."""
Share = Annotated[float, Ge(0), Le(1)]
"""A part of a whole."""
Multiple = Annotated[float, Ge(0), Le(1e3)]
"""Traffic or bytes over a least."""

HOPPER_ON = ("hopper", "blackwell", "blackwell-ultra", "rubin")
"""Architectures that libraries of since 2024 have their own attention kernels for."""
BLACKWELL_ON = ("blackwell", "blackwell-ultra", "rubin")
"""Of these, the architectures after Hopper, whose matrix instructions are others."""
PLAIN_LOSS_BYTES, NARROW_LOSS_BYTES = 12.0, 8.0
"""Bytes that plain kernels hold for each score, the score itself included: in 32 bits, and in 16."""
EVERYWHERE = "all"
"""Value of `pieces_on` that any architecture has."""


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
    aliases: tuple[str, ...] = ()
    """Words of a plan (`framework=WORD`) that mean this release alone."""
    based_on: str = ""
    """Family whose values stand where its own file has none; empty: none."""
    left_out: tuple[str, ...] = ()
    """Sources of runs whose values are replaced by what is known without them."""

    fused: bool
    """Plan: element-wise work fused by a compiler or by hand; else one plain kernel after the other."""
    flash: bool
    """Plan: fused attention that stores no scores."""
    recompute: str
    """Plan: activations computed again."""
    selective: str = "selective"
    """Plan: what the framework's own selective recomputation computes again; layers: some of the layers."""
    attention: AttentionLibrary
    """Plan: attention library on Hopper and later; auto: the best for the chip."""
    attention_before: AttentionLibrary
    """Plan: attention library on earlier chips and on those of other makers."""
    attention_blackwell: Literal["", AttentionLibrary] = ""
    """Plan: attention library on Blackwell and later; empty: as on Hopper."""
    gradients: Literal["fp32", "bf16"]
    """Plan: dtype in which gradients are kept and reduced; bf16 is fp16 beside fp16 weights."""
    sequence_parallel: bool
    """Plan: whether tensor parallelism comes with sequence parallelism."""
    master: Literal["", "fp32", "bf16", "none"] = ""
    """Plan: dtype of the master copy of the weights; empty: not stated, as in all that follow."""
    states: Literal["", "fp32", "bf16", "fp8"] = ""
    """Plan: dtype of the optimizer's states."""
    reduce: Literal["", Reduce] = ""
    """Plan: how often gradients are reduced."""
    bucket: Annotated[int, Ge(0), Le(10**9)] | None = None
    """Plan: millions of weights that data-parallel messages are joined to."""
    dispatch: Literal["", Dispatch] = ""
    """Plan: how tokens reach their experts."""
    ep_overlap: Literal["", EpOverlap] = ""
    """Plan: whether dispatch and combination run behind the other pass of another micro-batch, or beside the
    shared experts."""
    context: Literal["", ContextMode] = ""
    """Plan: how keys and values reach the other ranks of context parallelism."""
    context_cut: Literal["", ContextCut] = ""
    """Plan: which tokens of a sequence a rank of context parallelism has."""
    pieces_on: str = ""
    """Architectures, by how their names begin, with spaces between them, on which tensor-parallel gathers and
    scatters run in pieces behind the products unless the plan says otherwise; all: every one; empty: none."""
    interleaves: bool = False
    """Whether published dense recipes with a pipeline interleave their stages where they do not say."""

    module_recompute: bool = False
    """Whether modules of a layer can be computed again by name (specs/plan_forms.py)."""
    host_activations: bool = False
    """Whether recipes hand kept activations to the host where they do not fit (training/room.py)."""
    micro_tokens: Annotated[int, Ge(0), Le(10**9)] = 0
    """Tokens that recipes without a pipeline fill a micro-batch with where neither plan nor table says how
    many sequences it has; 0: one sequence."""

    host_forward_s: Seconds
    """Least time that the host takes to launch one layer of one micro-batch, forward."""
    host_backward_s: Seconds
    """Least time that the host takes to launch one layer of one micro-batch, backward."""
    host_routed_s: Seconds = 0.0
    """What a layer of routed experts takes the host besides, each way, where no token is dropped: how many
    tokens each expert gets is read back before their products start."""
    host_dropped_s: Seconds = 0.0
    """What a layer of routed experts takes the host besides, each way, where tokens are dropped, so that
    every expert has as many."""
    stage_rank_s: Seconds = 0.0
    """What the host takes besides for each tensor-parallel rank of a layer and micro-batch, both passes
    together, where pipeline stages stand on several nodes."""
    tensor_node_s: Seconds = 0.0
    """What a layer and micro-batch take besides, both passes together, for each further node that their
    tensor-parallel group stands on."""
    waits_each_pass: bool = False
    """Whether the host waits for the chip in every pass, so that it never launches ahead."""
    fixed_s: Seconds
    """What each step takes beside its work."""
    tensor_exposed: Share
    """Share of tensor-parallel communication that is waited for."""
    data_exposed: Share
    """Share of data-parallel communication that is waited for though a pass could hide it."""
    overlap_stage: Annotated[int, Ge(0), Le(3)] = 0
    """ZeRO stage from which data-parallel messages are hidden whatever `data_exposed` says; 0: none."""
    gather_waits: bool = False
    """Whether weights are gathered after the update with nothing to hide it, though gradients are hidden."""
    slice_copy_s: Seconds = 0.0
    """What one copy of a parameter's slice takes the host, where ZeRO 1 and 2 reduce and gather lists of
    slices, one for each rank; 0: messages are whole buffers."""
    prefetch: Annotated[int, Ge(0), Le(10**9)] = 0
    """Millions of weights that ZeRO 3 gathers in one message where a layer has more, module by module;
    0: layers."""
    host_shared_s: Seconds = 0.0
    """What ZeRO 3 takes the host besides for a layer and micro-batch, both passes together: hooks that fetch
    its modules and free them."""
    inputs_stay: bool = False
    """Whether ZeRO 3 over frozen weights holds the inputs of layers that are computed again, and their
    gradients, until the backward pass ends (FSDP's hook that frees a frozen layer's weights is held by them:
    register_multi_grad_hook)."""
    gather_copies: bool = False
    """Whether ZeRO 3 copies gathered weights out of the message, and gradients into it (FSDP2: each
    parameter is shared by itself)."""
    regathered: Share = 0.0
    """Share that shows of gathering a region's input again for the gradients of its weights (Korthikanti et
    al. 2022: with sequence parallelism each rank keeps its part alone)."""
    sequence_copies: bool = False
    """Whether tokens that a tensor-parallel region gathers or scatters are copied once more: collectives
    join ranks along the first dim, and sequences stand behind the batch."""
    stages_by_cost: bool = False
    """Whether layers are dealt to pipeline stages by their cost beside the head's."""
    sums_fused: bool = False
    """Whether the weight gradients' products add to the sum themselves."""
    casts_apart: bool = False
    """Whether gradients are widened for their sum and the update, and working weights rounded after it,
    by passes of their own: PyTorch's optimizers take tensors of one dtype."""
    casts_anew: bool = False
    """Whether low-precision recipes find scales and cast weights anew for every use, not once a step with
    scales of steps before."""
    graphs: bool = False
    """Whether whole steps are captured as CUDA graphs."""
    compiled: bool = False
    """Whether PyTorch's compiler makes the kernels, without any of the framework's own."""
    plain_experts: bool = False
    """Whether experts' biases are added and gates clamped by plain kernels."""
    sorts: Literal["once", "twice", "plain"] = "once"
    """How tokens are sorted around a plain all-to-all: once by fused kernels, by rank and then by expert, or
    so by plain kernels."""
    casts_experts: bool = True
    """Whether operands of grouped products are cast to narrow formats by passes of their own; else the
    products' kernels read and write them."""
    plain_latent: bool = False
    """Whether queries, keys and values of latent attention are rotated and joined by plain kernels."""
    weighs_inside: bool = False
    """Whether tokens are weighed inside their experts, in front of the last product, so that what that gives
    is not kept."""
    plain_scaled_rotary: bool = False
    """Whether rotary positions with a scale (YaRN's) run by plain kernels though others are fused."""
    maps_apart: bool = False
    """Whether queries, keys and values, and both halves of a gated part, are products of their own, whose
    gradients for the common input are added."""
    joins_heads: Multiple = 0.0
    """Traffic of joining, in plain kernels, the gradients of queries, keys and values that are slices of one
    product, over one read and one write; 0: they are products of their own, or attention joins them."""
    joins_halves: Multiple = 0.0
    """Traffic of joining, in plain kernels, the gradients of both halves of a gated part that are slices of
    one product, over one read and one write."""
    repeats_keys: bool = False
    """Whether keys and values that heads share are written out for every head before fused attention."""
    complex_rotary: bool = False
    """Whether rotary positions are products of complex numbers in 32 bits, which compilers leave alone."""
    norms_composed: bool = False
    """Whether plain RMS norms are made of several operations in 32 bits: PyTorch has one kernel since 2.9."""
    modules: bool = False
    """Whether layers are the modules of Hugging Face transformers: composed norms and rotary positions, a
    residual stream in the dtype of the weights, casts by autocast (kernels/modules.py)."""
    triton_norms: bool = False
    """Of these modules: whether norms are kernels of their own, the rest plain."""
    masks: Literal["windows", "always"] = "windows"
    """Of these modules: when fused attention is given its mask as a tensor, and so computes every pair."""
    loss_wide: bool = False
    """Whether scores are widened to 32 bits for the loss though all weights are in 16."""
    pads_vocabulary: bool = True
    """Whether the vocabulary is filled up, so that products over it read whole loads."""
    clips: bool = False
    """Whether the norm of the gradients is taken and the gradients are scaled by it before every update."""
    dequantise_nf4_bytes: Multiple = 2.6
    """Traffic of widening a stored weight of nf4 to 16 bits, in bytes a weight: one kernel reads half a byte
    and a scale and writes two; more where it is bound by its look-ups, or by several kernels."""
    dequantise_int4_bytes: Multiple = 2.6
    """The same of int4."""
    stored_inputs: bool = False
    """Whether frozen products of nf4 keep their input, adapter or not (bitsandbytes up to 0.42)."""
    widening_int4_bytes: Multiple = 2.0
    """Bytes that a weight of int4 takes while it is widened: the wide copy, or what plain operations leave
    for each other."""
    update_passes: Multiple = 1.0
    """Time of the update over that of one fused kernel: PyTorch's foreach optimizers run one operation after
    the other over all tensors."""
    host_kernel_s: Seconds = 0.0
    """What the host takes for each plain kernel of the forward pass; 0: as kernels/fusion.py has it."""
    experts_in_turn: bool = False
    """Of these modules: whether experts run one after the other, each a plain product, and not as one."""
    adapters_wide: bool = True
    """Of these modules: whether adapters are PEFT's, in 32 bits, each with casts of its own."""
    adapter_host: Share = 1.0
    """What the host takes for a kernel of an adapter, over that for one of a module."""
    host_kernel_backward_s: Seconds = 0.0
    """What the host takes for each plain kernel of the backward pass, where `host_kernel_s` is given."""
    host_ahead: bool = False
    """Whether the host runs ahead while the chip is busy with the head, so that less of its time shows in the
    layers' backward pass: nothing reads a result in between."""
    stops_early: bool = False
    """Whether a layer that is computed again stops where nothing behind is kept: in front of the last product
    of a dense feed-forward part."""
    host_update_s: Seconds = 0.0
    """What the host takes to clip gradients however many tensors there are, and as much to update."""
    host_tensor_s: Seconds = 0.0
    """What the host takes for each trained tensor to clip its gradient, and as much to update it."""
    loss: Literal["fused", "kernel", "plain"] = "fused"
    """Cross-entropy: fused where other element-wise work is, one kernel in any case, or plain in any case."""

    loss_bytes: Multiple = PLAIN_LOSS_BYTES
    """Bytes held for each score, itself included, where the loss is fused."""
    loss_cut_bytes: Multiple = PLAIN_LOSS_BYTES
    """Bytes held for each score where tensor parallelism cuts the vocabulary and element-wise work is fused;
    more than `loss_bytes`: the loss is plain kernels there."""
    loss_cut_plain_bytes: Multiple = PLAIN_LOSS_BYTES
    """Bytes held for each score where tensor parallelism cuts the vocabulary and kernels are plain."""
    placeholders: bool = False
    """An empty gradient in the weights' dtype for every shape of a matrix, and for the head."""
    buckets: bool = False
    """All gradients once more in the weights' dtype, where there are replicas."""
    late_gradients: bool = False
    """With one micro-batch and no replicas, gradients are made while activations are given back."""
    late_shards: bool = False
    """The same of the shards of ZeRO 3, where gradients have the dtype of the weights that are shared."""
    gathered_stay: bool = False
    """With ZeRO 1, gathered weights and this rank's part of them beside the working ones after an update."""
    one_copy: bool = False
    """With ZeRO 3 the shared weights are the master copy."""
    result_bytes: Multiple = 0.0
    """Bytes of an element of attention's result as it is kept in low-precision recipes; 0: in 16 bits for
    attention, and in the narrow format for the product behind it."""
    narrow_up: bool = False
    """What the activation of a feed-forward part or an expert reads is kept in the narrow format."""
    narrow: bool = False
    """Inputs of linear maps are kept in the narrow format, and so are copies of their weights."""
    tied_copies: Multiple = 0.0
    """Gradients of a tied table beside the one that is kept, when the backward pass comes to its end."""
    update_copies: Multiple = 0.0
    """Copies of all gradients that the update makes on its way, where no buffer holds them."""
    workspace_bytes: Annotated[float, Ge(0), Le(1e12)] = 0.25 * 2**30
    """Workspaces that matrix and attention libraries keep allocated: 32 MiB for each of cuBLAS's streams and
    as much again of cuDNN and Transformer Engine; what 30 runs on B200 hold beyond tensors is 0.24 GiB."""
    plain_share: Share = 0.1
    """What the allocator reserves beyond what tensors take, as a share of that, where modules are plain."""

    def __hash__(self) -> int:
        """Of a few fields: records are the keys of what is remembered, and this is asked for often."""
        return hash((self.id, self.fixed_s, self.host_forward_s, self.left_out))

    @property
    def file(self) -> str:
        """Where the catalogue has it."""
        return f"software/{self.family}.toml"

    @property
    def unnamed(self) -> bool:
        """Whether no framework is named, so that it stands for any of today."""
        return self.family == GENERIC

    @property
    def plain_where_cut(self) -> bool:
        """Whether the loss is plain kernels over a cut vocabulary though one kernel over a whole one."""
        return self.loss == "fused" and self.loss_bytes < self.loss_cut_bytes

    def in_pieces(self, architecture: str) -> bool:
        """Whether tensor-parallel gathers and scatters run in pieces behind the products, unless told."""
        on = self.pieces_on
        return on == EVERYWHERE or (on != "" and architecture.startswith(tuple(on.split())))

    def attention_on(self, architecture: str) -> AttentionLibrary:
        """The attention library on chips of an architecture."""
        if architecture in BLACKWELL_ON and self.attention_blackwell:
            return self.attention_blackwell
        return self.attention if architecture in HOPPER_ON else self.attention_before

    @property
    def default_recompute(self) -> str:
        """What is computed again where a run does not say, in a plan's words."""
        return self.selective if self.recompute == "selective" else self.recompute
