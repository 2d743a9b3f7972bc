"""Blocks that bring their own formulas: a record, its operations and its module in one file.

A part of a model that the common records lack is one new file in `workload/blocks/`, or in a package
of one's own that names it under the entry point `foretell.blocks`. The file has a frozen record that
inherits from one of the four below; nothing else changes. `workload/blocks/README.md` shows it.

These four are all that the core knows: `workload.blocks.block_kinds` finds the blocks by their `kind`.
"""

from typing import Any, ClassVar

from foretell.records import dataclass


class Block:
    """What every block has."""

    __slots__ = ()
    kind: ClassVar[str]
    """Its name: `kind` in a model's TOML."""


class MixerBlock(Block):
    """A token mixer in the place of attention."""

    __slots__ = ()

    @property
    def head_counts(self) -> tuple[int, ...]:
        """Heads that tensor parallelism must divide."""
        return ()

    def cache_elements(self, hidden: int, context: Any, cross: Any) -> Any:
        """Elements kept per sequence in decode, over `context` own or `cross` source positions."""
        raise NotImplementedError

    def graph(self, hidden: int, tokens: Any) -> Any:
        """Its operations on `tokens` (a `workload.graph.Tokens`) as a `LayerGraph`."""
        raise NotImplementedError

    def module(self, hidden: int, options: Any) -> Any:
        """Its torch module; `forward(x, carry)`."""
        raise NotImplementedError


class FeedForwardBlock(Block):
    """A part that acts on each token alone."""

    __slots__ = ()

    def graph(self, hidden: int, tokens: Any) -> Any:
        """Its operations as a `LayerGraph`."""
        raise NotImplementedError

    def module(self, hidden: int) -> Any:
        """Its torch module; `forward(x)`."""
        raise NotImplementedError


class EmbeddingBlock(Block):
    """Hidden states from token ids, in the place of a table."""

    __slots__ = ()

    def graph(self, vocab: int, hidden: int, tokens: Any) -> Any:
        """Its operations as a `LayerGraph`."""
        raise NotImplementedError

    def module(self, vocab: int, hidden: int) -> Any:
        """Its torch module; `forward(ids)`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class MapShape:
    """One linear map or table that a factorisation stands for."""

    name: str
    """Its place in the layer."""
    inputs: int
    """Inputs, or rows of a table."""
    outputs: int
    """Outputs, or the width of a row."""
    bias: bool = False
    """Whether a bias of `outputs` weights is added."""
    alone: bool = False
    """Whether nothing else keeps its input for the backward pass, so that a copy of it replaces it."""


class MapBlock(Block):
    """A linear map (and a table) by fewer weights."""

    __slots__ = ()

    def graph(self, shape: MapShape, rows: Any, split: Any = "none") -> Any:
        """Its operations on `rows` inputs as a `LayerGraph`; `split` as in `workload.ops`."""
        raise NotImplementedError

    def module(self, shape: MapShape) -> Any:
        """Its torch module; `forward(x)`."""
        raise NotImplementedError

    def table_graph(self, shape: MapShape, rows: Any) -> Any:
        """The same as a table of which `rows` rows are looked up."""
        raise NotImplementedError

    def table_module(self, shape: MapShape) -> Any:
        """Its torch module; `forward(ids)`."""
        raise NotImplementedError
