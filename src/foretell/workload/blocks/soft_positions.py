"""H-SoftPOS: an embedding that shows each token at several levels (Anthe, arXiv 2305.10991).

With L levels over a hidden width d: a = d / (2 L), e = d - a (2 L - 1), and

    x_1 = sqrt(e) E[token] + sines of the position            E is vocab x e
    x_{l+1} = causal convolution of x_l, 3 taps, dilation 2^(l-1), to width a, with bias
    SoftPOS(x) = [x ; softmax(x[..., :a]) S]                  S is a x a, one for each level
    output = the L SoftPOS(x_l) side by side, d wide, no projection

so that L = 2, d = 512 has e = a = 128. A convolution is one product over its taps side by side.
"""

from typing import Any, ClassVar

from foretell.errors import bad_input
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.block import EmbeddingBlock, MapBlock, MapShape
from foretell.workload.ends import SINES
from foretell.workload.graph import Edge, LayerGraph, Tokens
from foretell.workload.ops import Lookup, Op
from foretell.workload.part import COPY, PartOps


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftPositions(EmbeddingBlock):
    """Token table, convolutions of widening reach, and a soft choice of vectors at each level."""

    kind: ClassVar[str] = "h-softpos"
    levels: int = 2
    """Levels, of which the first is the token itself."""
    taps: int = 3
    """Positions that a convolution reads."""
    factor: MapBlock | None = None
    """What replaces the token table where it is factorised."""

    def widths(self, hidden: int) -> tuple[int, int]:
        """(e, a): of the table, and of everything else."""
        if hidden % (2 * self.levels):
            what = f"{self.levels} levels cannot share a hidden width of {hidden} evenly"
            allowed = f"a hidden width that {2 * self.levels} divides"
            raise bad_input("embedding.block", self.levels, what, allowed)
        other = hidden // (2 * self.levels)
        return hidden - other * (2 * self.levels - 1), other

    def graph(self, vocab: int, hidden: int, tokens: Tokens) -> LayerGraph:
        """Lookup, sines, then at each level softmax and choice, and the convolution to the next."""
        table, other = self.widths(hidden)
        part = PartOps(name="embedding", rows=tokens.count)
        count = tokens.count
        graph = self._table(vocab, table, count)
        ops: list[Op] = [part.pointwise("sines", count * table, **SINES)]
        width, kept = table, 0
        for level in range(self.levels):
            if level:
                taps, inputs = count * self.taps * width, self.taps * width
                ops.append(part.pointwise(f"taps{level}", taps, **COPY))
                ops.append(part.gemm(f"convolution{level}", other, inputs, "tokens", bias=True))
                kept += self.taps * width
                width = other
            ops.append(part.pointwise(f"soft{level}", count * other, flop=5.0, back_flop=4.0))
            ops.append(part.gemm(f"choice{level}", other, other, "tokens"))
            kept += other
        ops.append(part.pointwise("join", count * hidden, **COPY))
        saved = (part.kept("levels", count * kept, split="tokens"),)
        return graph + LayerGraph(name="embedding", ops=tuple(ops), saved=saved)

    def _table(self, vocab: int, width: int, count: Num) -> LayerGraph:
        name = "embedding.tokens"
        edges = (Edge(name="embedding", elements=count * width, leave=True),)
        if self.factor is not None:
            shape = MapShape(name=name, inputs=vocab, outputs=width)
            made: LayerGraph = self.factor.table_graph(shape, count)
            return made
        look = Lookup(name=name, tokens=count, rows=float(vocab), width=float(width))
        return LayerGraph(name="embedding", ops=(look,), edges=edges)

    def module(self, vocab: int, hidden: int) -> Any:
        """The same; `forward(ids)`."""
        import torch
        from torch.nn import functional

        from foretell.zoo.layers import map_module, sines, table_module
        from foretell.zoo.part import Part

        width, other = self.widths(hidden)
        parts = {
            "table": table_module(MapShape(name="table", inputs=vocab, outputs=width), self.factor)
        }
        weights: dict[str, tuple[tuple[int, ...], float | str]] = {}
        for level in range(self.levels):
            weights[f"choice{level}"] = ((other, other), "orthogonal")
            if level:
                reads = self.taps * (width if level == 1 else other)
                shape = MapShape(name="convolution", inputs=reads, outputs=other, bias=True)
                parts[f"convolution{level}"] = map_module(shape)

        def run(part: Any, ids: Any) -> Any:
            x = width**0.5 * part["table"](ids)
            x = x + sines(x)
            shown = []
            for level in range(self.levels):
                if level:
                    reach = 2 ** (level - 1)
                    x = part[f"convolution{level}"](behind(x, self.taps, reach))
                soft = x[..., :other].softmax(dim=-1) @ part[f"choice{level}"]
                shown += [x, soft]
            return torch.cat(shown, dim=-1)

        def behind(x: Any, taps: int, reach: int) -> Any:
            """Each position with those `reach`, 2 `reach`, ... before it, zeros before the first."""
            padded = functional.pad(x, (0, 0, (taps - 1) * reach, 0))
            length = x.shape[1]
            return torch.cat([padded[:, i * reach : i * reach + length] for i in range(taps)], -1)

        return Part(weights, run, parts)
