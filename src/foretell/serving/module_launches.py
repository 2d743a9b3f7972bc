"""Kernels of a layer as Hugging Face transformers writes its modules: what `generate` launches one by one.

Counted in the modeling files of transformers 5, as kernels/modules.py has them for training: 37 kernels of a
Llama layer, and two more that join the new keys and values to the cache.
"""

from foretell.kernels.modules import COMPOSED, JOINT, JOINT_HALVES
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model

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
    maps = 1.0 if model.family in JOINT else 3.0
    rotary = ROTARY if model.embedding.rotary else 0.0
    found = norm * layer.norms
    for mixer in layer.mixers:
        found += maps + rotary + CACHE + CORE + OUTPUT + RESIDUAL
        if isinstance(mixer, Attention) and mixer.qk_norm != "none":
            found += 2.0 * RMS_NORM
    match layer.ffn:
        case Dense(gated=gated, activation=name):
            act = COMPOSED_GELU if name in COMPOSED else 1.0
            gates = 2.0 if gated and model.family not in JOINT_HALVES else 1.0
            found += gates + act + (1.0 if gated else 0.0) + 1.0 + RESIDUAL
        case Experts():
            found += EXPERTS + RESIDUAL
        case _:
            pass
    return found
