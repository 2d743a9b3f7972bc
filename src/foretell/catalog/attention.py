"""Which attention library a chip and a head size get: attention.toml says what each has kernels for."""

from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Model

FILE = ROOT / "attention.toml"
"""Libraries, their head sizes and what takes their place."""
NONE = "none"
"""In the place of a library: attention stores its scores."""
LATENT = (192, 128)
"""Widths of keys and values in latent attention that some libraries have kernels for."""

Heads = tuple[int, int]
"""Widths of a key and of a value."""


@lru_cache(maxsize=1)
def attention_libraries() -> dict[str, Table]:
    """Every library by its word in a plan."""
    return {one["id"]: one for one in read_table(FILE)["library"]}


@lru_cache(maxsize=256)
def library_for(wanted: str, architecture: str, heads: Heads) -> str:
    """The library in the place of the one that is wanted, on chips of an architecture; none: no fused one.

    `auto` chooses by itself.
    """
    known = attention_libraries()
    while wanted in known and not _has(known[wanted], architecture, heads):
        instead = str(known[wanted]["instead"])
        if architecture in known[instead if instead in known else wanted].get("without", ()):
            return NONE
        if instead == wanted:
            break
        wanted = instead
    return wanted


def _has(library: dict[str, Any], architecture: str, heads: Heads) -> bool:
    """Whether it has kernels for such heads there."""
    on = library.get("architectures", (architecture,))
    if architecture not in on or architecture in library.get("without", ()):
        return False
    widest = library.get("wider", {}).get(architecture, library["head_dim"])
    latent = heads == LATENT and architecture in library.get("latent", ())
    return max(heads) <= widest or latent


def widest_heads(model: Model) -> Heads:
    """Widths of keys and values of a model's widest attention; 0: it has none."""
    found: list[Heads] = [(0, 0)]
    for layer in dict.fromkeys(model.stack.layers):
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                found.append((mixer.head_dim, mixer.value_dim or mixer.head_dim))
            elif isinstance(mixer, LatentAttention):
                found.append((mixer.nope_dim + mixer.rope_dim, mixer.value_dim))
    return max(found)
