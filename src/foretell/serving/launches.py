"""Kernels that the host launches one by one: what it needs for them is the least time of a step.

Decode steps are replayed from graphs; steps with prompts are mostly too large for any captured one, so that
Python calls one operation after the other. A layer has as many as its operations say, one more for each cast
of activations to a narrow format, and one for each exchange. Hugging Face transformers launches those of its
modules, counted in the modeling files of transformers 5 (kernels/modules.py has them for training): 37 of a
Llama layer, and two more that join the new keys and values to the cache.
"""

from functools import lru_cache

from foretell.kernels.families.base import DTYPES
from foretell.kernels.modules import COMPOSED, FAMILIES
from foretell.serving.formats import is_narrow, kernel_format, narrow_dense
from foretell.specs.chip import Chip
from foretell.specs.deployment import Deployment
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, Stack
from foretell.workload.graph import Tokens
from foretell.workload.layer import layer_graph, layer_kinds
from foretell.workload.ops import Gemm, Op
from foretell.workload.roles import OpRole, Region

EAGER_LAYER_S = 1.5e-4
"""Host time of one layer without a graph, where an engine has none of its own: some ten kernels of fused
code at 13 us each, as on the host of one H200 (kernels/fusion.py)."""
ROLES: dict[OpRole, float] = {
    OpRole.RESIDUAL: 0.0, OpRole.LATENT_DOWN: 0.0, OpRole.EXPERT_BIAS: 0.0,
    OpRole.CHOICE: 2.0, OpRole.PERMUTE: 2.0, OpRole.LATENT_UP: 3.0,
}  # fmt: skip
"""Launches of an operation that is not one: residuals ride on norms, both low ranks are one product, biases
of experts are in its epilogue; a router has scores and a choice, tokens are sorted and copied, and unfolded
latents are joined with their rotated part."""
SCAN = 6.0
"""Launches of a recurrence in chunked form: sums, products within and between chunks, states, outputs
(flash-linear-attention, ops/gated_delta_rule/chunk.py; mamba_ssm, ops/triton/ssd_combined.py)."""
GATHERED = 2.0
"""Exchanges of a layer of experts whose ranks have tokens of their own: there, and back."""


def op_launches(op: Op, layer: Layer, weights: str, experts: str) -> float:
    """Launches of one operation; `weights` and `experts` are the formats that its kernels multiply."""
    if op.role is OpRole.ENTRY_NORM:
        return float(max(layer.norms, 1))
    if op.family == "scan":
        return SCAN
    routed = op.region is Region.EXPERTS
    products = op.role in (OpRole.UP, OpRole.DOWN) if routed else isinstance(op, Gemm)
    products = products and op.role is not OpRole.ROUTER
    cast = products and DTYPES[experts if routed else weights].quantised
    own = ROLES.get(op.role, 1.0)
    return own + (1.0 if cast and own else 0.0)


def layer_launches(
    layer: Layer, stack: Stack, model: Model, d: Deployment, formats: tuple[str, str]
) -> float:
    """Launches of one layer of a step with prompts; `formats` are those that kernels multiply, of dense
    matrices and of experts."""
    tokens = Tokens(
        batch=1.0, q_len=1024.0, kv_len=1024.0, cross_len=1024.0, phase="prefill",
        rotary=model.embedding.rotary,
    )  # fmt: skip
    graph = layer_graph(layer, stack.hidden, tokens)
    weights, experts = formats
    later = experts if narrow_dense(model, d) else weights
    found = sum(
        op_launches(op, layer, later if is_narrow(op) else weights, experts) for op in graph.ops
    )
    for edge in graph.edges:
        if edge.leave and edge.region is Region.EXPERTS and d.stage > d.tp:
            found += GATHERED
        elif edge.leave and d.tp > 1:
            found += 1.0
    return found


def launches_of(model: Model, chip: Chip, d: Deployment) -> float:
    """Launches of all layers of a step with prompts, an encoder's included; the chip says the formats."""
    formats = kernel_format(d.weights, chip), kernel_format(d.experts, chip, experts=True)
    return _launches(model, d, formats)


def casts_of(model: Model, chip: Chip, d: Deployment) -> float:
    """Those of the launches that cast activations to a narrow format."""
    return launches_of(model, chip, d) - _launches(model, d, ("bf16", "bf16"))


@lru_cache(maxsize=512)
def _launches(model: Model, d: Deployment, formats: tuple[str, str]) -> float:
    found = 0.0
    for stack in (model.stack, model.encoder):
        if stack is None:
            continue
        layers, order = layer_kinds(stack)
        for i, layer in enumerate(layers):
            found += order.count(i) * layer_launches(layer, stack, model, d, formats)
    return found


RMS_NORM, LAYER_NORM = 7.0, 1.0
"""An RMS norm is widened, squared, averaged, its root taken, scaled, rounded and weighted; LayerNorm is
one kernel."""
ROTARY = 10.0
"""Of queries and of keys: two products, a half negated, halves joined, a sum."""
CACHE, CORE, OUTPUT, RESIDUAL = 2.0, 2.0, 1.0, 1.0
"""Keys and values joined to the cache; attention and a copy of its result; its output; each sum."""
COMPOSED_GELU = 8.0
"""gelu_new, operation by operation."""
EXPERTS = 16.0
"""Router, choice, sort, three grouped products, activation, weighting and sum of a layer of experts."""


def module_launches(model: Model) -> float:
    """Kernels of all layers of the decoder in one step."""
    return sum(layer_kernels(layer, model) for layer in model.stack.layers)


def layer_kernels(layer: Layer, model: Model) -> float:
    """Kernels of one layer."""
    norm = RMS_NORM if layer.norm_kind == "rms" else LAYER_NORM
    maps = 1.0 if model.family in FAMILIES["joint"] else 3.0
    rotary = ROTARY if model.embedding.rotary else 0.0
    found = norm * layer.norms
    for mixer in layer.mixers:
        found += maps + rotary + CACHE + CORE + OUTPUT + RESIDUAL
        if isinstance(mixer, Attention) and mixer.qk_norm != "none":
            found += 2.0 * RMS_NORM
    match layer.ffn:
        case Dense(gated=gated, activation=name):
            act = COMPOSED_GELU if name in COMPOSED else 1.0
            gates = 2.0 if gated and model.family not in FAMILIES["joint_halves"] else 1.0
            found += gates + act + (1.0 if gated else 0.0) + 1.0 + RESIDUAL
        case Experts():
            found += EXPERTS + RESIDUAL
        case _:
            pass
    return found
