"""Real PyTorch modules made from the same records that the op graph is made from.

They are small and plain: tests hold the op graph against them (weights, FLOPs), and measurements
run them. torch is imported when a module is built, never before.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from foretell.specs.model import Model

if TYPE_CHECKING:
    from foretell.zoo.model import Transformer

INSTALL = "foretell.zoo needs PyTorch: pip install torch"


def build(model: Model, *, fused: bool = False, dropout: float = 0.0) -> "Transformer":
    """The module of a model, on torch's default device and dtype, with random weights.

    `fused` takes torch's scaled_dot_product_attention instead of separate products; `dropout`
    is behind the embeddings and each part of a layer, in training alone. Towers are not
    built. Weights that no operation reads (`extra_parameters`) are as flat, unused parameters, so
    that the module's count is the model's.
    """
    if find_spec("torch") is None:
        raise ImportError(INSTALL)
    from foretell.zoo.model import Transformer

    return Transformer(model, fused=fused, dropout=dropout)
