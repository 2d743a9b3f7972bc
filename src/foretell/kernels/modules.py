"""Modules as transformers writes them, one operation after the other: what they run, and what they keep.

Counted in the modeling files of transformers 5 and by the kernels and the allocator of one H200 (PyTorch
2.11, tests/bench/measure_transformers.py).

norm        RMS norms are widened to 32 bits, squared, averaged, scaled, rounded, times the weights: 36 bytes
            an element forward and 84 backward. 32 bits of the input and the normalised input in 16
            are kept (4 + 2), in Gemma's the latter in 32 as well: its weights are added to one and multiplied
            before the rounding. Norms of queries and keys are the same. LayerNorm is one kernel. Families
            that write theirs otherwise keep other bytes (catalog/kernels/modules.toml).
rotary      q cos + rotate_half(q) sin: products, halves negated and joined, a sum; keeps nothing. Joined with
            a part that is not rotated, queries lie head by head, and so does attention's result: its copy for
            the output map is kept besides.
maps        Queries, keys and values are linear layers of their own, and so are gate and up, in most families.
activation  silu(gate) and up are kept for their product; gelu_new is eight operations that keep four tensors.
scores      Eager attention (no-flash) softmaxes in 32 bits and keeps that and its rounding: 6 bytes a score;
            with dropout in 16 bits, its mask and what is left: 5.
masks       Fused attention is given a mask as a tensor where a window is shorter than the sequence, and by
            compiled code always: it computes every pair, and keys and values are repeated for every head.
loss        Scores are widened to 32 bits in every mode; log-softmax and two gradients: 12 bytes a score.
autocast    With weights in 32 bits the residual stream and the norms are in 32 bits; every linear layer casts
            its input, each one by itself, and its weights, which stay until the backward pass has used them.
adapters    PEFT's are in 32 bits since 0.12 (autocast_adapter_dtype): each casts its input to them, and keeps
            that. Before, they had the dtype of the frozen weights (LoraLayer.update_layer).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.kernels.call_records import FrameworkForm
from foretell.records import dataclass
from foretell.specs._base import Num, with_fields
from foretell.specs.model import Model
from foretell.specs.plan import WIDE_PRECISIONS, Plan, activation_bytes
from foretell.specs.software import Software
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.ops import AttentionCore, Gemm, Op, Pointwise
from foretell.workload.roles import ENDS, OpRole, Region, SavedRole

FILE = read_table(ROOT / "kernels" / "modules.toml")
FAMILIES: Mapping[str, Sequence[str]] = FILE["families"]
"""Word -> families of which it holds."""
COMPOSED: Mapping[str, float] = FILE["composed"]
"""Activations that are written as operations of their own, and the bytes that they keep of an element."""
ENTERING = (OpRole.QKV, OpRole.QUERY, OpRole.KEY_VALUE, OpRole.UP)
"""Maps that read the entry of a mixer or a feed-forward part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleForm:
    """How the modules of one model run."""

    rms: bool
    """Norms are RMS norms."""
    norm_bytes: float | None
    """Bytes that they keep of an element of their input, where they are not as most."""
    copied: bool
    """What fused attention makes is copied for the output map."""
    viewed: bool
    """Queries and keys stay as they were before their rotation."""
    joint: bool
    """Queries, keys and values are one linear layer."""
    composed: float
    """Bytes kept of an element where the activation is written as operations of its own, else 0."""
    scaled: bool
    """Results of the parts are multiplied by learnt scales."""
    wide_router: bool
    """A router reads its input in 32 bits."""
    wide_queries: bool
    """Queries and keys are multiplied in 32 bits."""
    capped: bool
    """Scores are capped in front of the loss."""
    dropout: bool
    """Results of the parts, and attention's scores, are dropped at random."""
    wide: bool
    """Weights, residual stream and norms are in 32 bits, and products in 16."""
    fused: bool
    """A compiler makes the kernels."""
    frozen: bool
    """Adapters are trained, and nothing else."""
    narrow: bool
    """Products of adapters run in 16 bits."""
    plain: bool = False
    """Adapters have the dtype of the frozen weights."""
    halves: bool = False
    """Gate and up projections are one linear layer."""


def form_of(model: Model, plan: Plan, software: Software) -> ModuleForm | None:
    """How a model's modules run under a plan; None where the software is not transformers' code."""
    if not software.modules:
        return None
    layer = model.stack.layers[0]
    activation = getattr(layer.ffn, "activation", "") if layer.ffn else ""
    wide = is_wide(plan, software)
    plain = not (wide or "adapters=widened" in software.passes)
    return ModuleForm(
        rms=layer.norm_kind == "rms",
        norm_bytes=FILE["norm_bytes"].get(model.family),
        copied=model.family in FAMILIES["copied"] and plan.flash,
        viewed=model.family in FAMILIES["viewed"],
        joint=model.family in FAMILIES["joint"] or not software.maps_apart,
        composed=FILE["composed_here"].get(model.family, COMPOSED.get(activation, 0.0)),
        scaled=model.family in FAMILIES["scaled"],
        wide_router=model.family in FAMILIES["wide_router"],
        wide_queries=model.family in FAMILIES["wide_queries"] and not plan.flash,
        capped=model.family in FAMILIES["capped"],
        dropout=model.family in FAMILIES["dropout"],
        wide=wide,
        fused=plan.fused,
        frozen=plan.lora > 0,
        narrow=wide or plain or plan.autocast != "auto" or plan.fused,
        plain=plain,
        halves=model.family in FAMILIES["joint_halves"],
    )


def is_wide(plan: Plan, software: Software) -> bool:
    """Whether products in 16 bits are cast from weights in 32 (autocast), and not gathered in 16 by FSDP."""
    wide = plan.weights == "fp32" and plan.precision not in WIDE_PRECISIONS
    return software.modules and wide and plan.autocast != "off"


def stream_bytes(plan: Plan, form: ModuleForm | None) -> float:
    """Bytes of an element of the residual stream."""
    return 4.0 if form is not None and form.wide else activation_bytes(plan)


def written_of(form: ModuleForm | None, software: Software) -> FrameworkForm:
    """How the kernels of a plan are called."""
    if form is None:
        return FrameworkForm(
            apart=software.maps_apart,
            repeated="repeat" in software.passes,
            in_turn=software.experts_in_turn,
        )
    return FrameworkForm(
        apart=software.maps_apart,
        repeated="repeat" in software.passes,
        in_turn=software.experts_in_turn,
        joint=form.joint,
        modules=not form.fused,
        rms=form.rms,
        composed=form.composed > 0.0,
        dropout=form.dropout,
        capped=form.capped,
        padded=form.fused,
        casts_weights=form.wide,
        casts_inputs=form.wide and not form.fused,
        adapters=_adapters(form),
    )


def _adapters(form: ModuleForm) -> Literal["", "plain", "narrow", "wide"]:
    """How adapters are written, where weights are frozen."""
    if not form.frozen:
        return ""
    if form.plain:
        return "plain"
    return "narrow" if form.narrow else "wide"


def as_run(part: LayerGraph, form: ModuleForm, software: Software) -> LayerGraph:
    """A part with attention as it is masked, and the tensors that its modules keep."""
    ops = tuple(_masked(op, software, form) for op in part.ops)
    part = with_fields(part, ops=ops)
    saved = tuple(_kept(tensor, part, form) for tensor in part.saved)
    return with_fields(part, saved=(*saved, *_besides(part, form)))


def _masked(op: Op, software: Software, form: ModuleForm) -> Op:
    """Attention over every pair where it has its mask as a tensor."""
    if not isinstance(op, AttentionCore) or not op.flash:
        return op
    causal = 0.5 * op.q_len * (op.q_len + 1.0)
    windowed = np.asarray(op.pairs) < 0.999 * causal
    masked = windowed | software.compiled
    return with_fields(
        op,
        pairs=np.where(masked, op.q_len * op.kv_len, op.pairs),
        kv_heads=np.where(masked, op.heads, op.kv_heads),
        masked=np.where(masked, 1.0, 0.0),
    )


def _maps(part: LayerGraph, form: ModuleForm) -> tuple[float, float]:
    """Linear layers that read the entry of the mixer, and that of the feed-forward part."""
    mixer = 1.0 if form.joint else 3.0
    gated = any(isinstance(op, Gemm) and op.role is OpRole.UP and op.gated for op in part.ops)
    experts = any(op.region is Region.EXPERTS for op in part.ops)
    return mixer, 1.0 if experts else (2.0 if gated else 1.0)


def _kept(tensor: Saved, part: LayerGraph, form: ModuleForm) -> Saved:
    """A kept tensor at the bytes per element that its module keeps."""
    if tensor.role is SavedRole.ENTRY and form.frozen and not form.fused:
        # Frozen maps need their input no more: what adapters read is kept, each its own.
        each = 2.0 if form.narrow else 4.0
        return with_fields(tensor, elements=_read(part, ENTERING), bytes_per_element=each)
    width = _width(tensor, part, form)
    if tensor.role is SavedRole.EXPANDED and not form.fused:
        return with_fields(tensor, elements=_joined(part))
    if tensor.role is SavedRole.KEY_VALUE:
        core = next((op for op in part.ops if isinstance(op, AttentionCore)), None)
        own = tensor.elements if core is None else _keys(core)
        return with_fields(
            tensor,
            elements=np.maximum(tensor.elements, own),
            bytes_per_element=tensor.bytes_per_element if width is None else width,
        )
    return tensor if width is None else with_fields(tensor, bytes_per_element=width)


def _keys(core: AttentionCore) -> Num:
    """Keys and values as attention reads them."""
    heads = core.kv_heads if core.flash else core.heads
    return core.batch * heads * core.kv_len * (core.qk_dim + core.v_dim)


def _joined(part: LayerGraph) -> Num:
    """Elements that a latent is expanded to, of which values are a view, and of keys joined anew."""
    ups = [op for op in part.ops if isinstance(op, Gemm) and op.role is OpRole.LATENT_UP]
    cores = [op for op in part.ops if isinstance(op, AttentionCore)]
    keys: Num = sum(op.batch * op.kv_len * op.heads * op.qk_dim for op in cores)
    return sum(op.m * op.n for op in ups) + keys


def _width(tensor: Saved, part: LayerGraph, form: ModuleForm) -> float | None:
    """Bytes per element of a kept tensor; None: as everywhere."""
    role, region = tensor.role, tensor.region
    if form.fused:
        return 4.0 if role is SavedRole.NORM_INPUT and form.wide else None
    norm = _norm_bytes(form, wide=form.wide)
    if role is SavedRole.NORM_INPUT:
        return norm
    if role is SavedRole.UNNORMED:
        return _norm_bytes(form, wide=False)
    if role is SavedRole.LATENTS:
        return 0.5 * (_norm_bytes(form, wide=False) + 2.0)
    if role is SavedRole.ENTRY:
        return _entry_bytes(part, form)
    if role is SavedRole.HEAD_INPUT:
        # The norm's input, and what the scores are made of: two tensors.
        return 0.5 * (norm + (0.0 if form.frozen else 2.0))
    if role is SavedRole.LOSS and form.capped:
        return 12.0
    if tensor.core:
        return 5.0 if form.dropout else 6.0
    if role is SavedRole.UP and form.composed:
        return form.composed + (6.0 if form.wide else 0.0)
    if form.wide_queries and role in (SavedRole.QUERY, SavedRole.KEY_VALUE):
        return 4.0 if role is SavedRole.QUERY else 3.0
    if region is Region.EXPERTS and form.wide:
        return 4.0
    if role is SavedRole.ACTIVATED and form.frozen:
        return 2.0 if form.narrow else 4.0
    return None


def _norm_bytes(form: ModuleForm, *, wide: bool) -> float:
    """Bytes that a norm keeps of an element of its input; `wide`: the input is in 32 bits."""
    if form.rms and form.frozen:
        return 4.0
    if form.norm_bytes is not None:
        return form.norm_bytes
    if not form.rms:
        return 4.0 if wide else 2.0
    return 8.0 if wide else 6.0


def _entry_bytes(part: LayerGraph, form: ModuleForm) -> float:
    """Bytes that linear layers keep of an element of their input, the mean of both parts of a layer."""
    if not form.wide:
        return 2.0
    mixer, feed = _maps(part, form)
    return 2.0 * 0.5 * (mixer + feed)


def _read(part: LayerGraph, roles: tuple[OpRole, ...]) -> Num:
    """Elements that adapters beside maps of some roles read."""
    return sum(
        op.elements
        for op in part.ops
        if isinstance(op, Pointwise)
        and op.role is OpRole.ADAPTER_SUM
        and op.beside in roles
        and op.reads == 0.0
    )


def _besides(part: LayerGraph, form: ModuleForm) -> tuple[Saved, ...]:
    """Tensors that modules keep beside those of the arithmetic: casts of weights, masks of dropout."""
    found = []
    products = [op for op in part.ops if isinstance(op, Gemm) and op.family != "grouped-gemm"]
    if form.wide:
        weights: Num = sum(op.k * op.n * op.groups for op in products)
        found.append(Saved(name="casts", elements=weights, split="none", bytes_per_element=2.0))
    if form.dropout and products:
        outputs = sum(op.role in (OpRole.OUTPUT, OpRole.DOWN) for op in products)
        masks = 0.0 if any(op.region in ENDS for op in products) else float(outputs)
        found.append(
            Saved(
                name="dropout",
                elements=masks * part.input_elements,
                split="none",
                bytes_per_element=1.0,
            )
        )
    cores = [op for op in part.ops if isinstance(op, AttentionCore)]
    if form.copied and not form.fused:
        results: Num = sum(op.batch * op.q_len * op.heads * op.v_dim for op in cores)
        found.append(Saved(name="attention.copy", elements=results, split="width"))
    if form.viewed and not form.fused:
        rotated: Num = sum(
            op.batch * op.qk_dim * (op.q_len * op.heads + op.kv_len * op.kv_heads) for op in cores
        )
        found.append(Saved(name="attention.plain", elements=rotated, split="width"))
    if form.scaled and products and not any(op.region in ENDS for op in products):
        found.append(Saved(name="scaled", elements=2.0 * part.input_elements, split="tokens"))
    if form.wide_router and any(op.region is Region.EXPERTS for op in part.ops):
        own = part.input_elements
        found.append(Saved(name="router.in", elements=own, split="none", bytes_per_element=4.0))
    if form.frozen and not form.fused:
        each = 2.0 if form.narrow else 4.0
        read = _read(part, (OpRole.OUTPUT,))
        found.append(Saved(name="adapters", elements=read, split="none", bytes_per_element=each))
    return tuple(found)
