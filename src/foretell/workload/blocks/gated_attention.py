"""KgV attention: the unprojected key gates the value (Anthe, arXiv 2305.10991, order `kqv`).

    Q' = W_k q + b      V' = W_v (v * sigmoid(W_q k + b)) + b      O = W_o softmax(Q' k^T / sqrt(d_h)) V'

The key goes into the scores as it is, so that the three matrices before the scores are as many as in
plain attention. In self-attention q = k = v is the hidden state; across, k = v is the encoder's. The
names of the matrices are the paper's code's: W_k makes the queries and W_q the gate.
"""

from typing import Any, ClassVar

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.block import MapBlock, MapShape, MixerBlock
from foretell.workload.attention import attention_region, core_saved, states_edge
from foretell.workload.graph import Edge, LayerGraph, Tokens, with_region
from foretell.workload.masks import visible_pairs
from foretell.workload.ops import AttentionCore, Op, Split
from foretell.workload.part import Fields, PartOps
from foretell.workload.roles import OpRole, SavedRole


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedAttention(MixerBlock):
    """Softmax attention whose key is unprojected and gates the value."""

    kind: ClassVar[str] = "gated-attention"
    heads: int
    """Heads; each has hidden / heads of the width."""
    causal: bool = True
    """Whether a position sees only those up to itself."""
    cross: bool = False
    """Whether keys and values are the encoder's states."""
    bias: bool = True
    """Biases on all four maps."""
    factor: MapBlock | None = None
    """What stands for the three maps before the scores where they are factorised."""

    @property
    def head_counts(self) -> tuple[int, ...]:
        """All of them."""
        return (self.heads,)

    def cache_elements(self, hidden: int, context: Num, cross: Num) -> Num:
        """The unprojected key and the gated value of every position."""
        return 2.0 * hidden * (cross if self.cross else context)

    def graph(self, hidden: int, tokens: Tokens) -> LayerGraph:
        """Query map, gate map, gate, value map, core, output map."""
        part = PartOps(
            name="cross" if self.cross else "attention",
            region=attention_region(cross=self.cross),
            rows=tokens.count,
        )
        count, source = (
            tokens.count,
            tokens.batch * tokens.cross_len if self.cross else tokens.count,
        )
        core = self._core(hidden, tokens, part)
        queries = self._map("q", hidden, part, count, "col", role=OpRole.QUERY)
        # The gate meets the value before W_v, which reads all of it: every rank makes all of it.
        gate = self._map("gate_map", hidden, part, source, "none")
        values = self._map("v", hidden, part, source, "col", alone=True)
        out = part.gemm("o", hidden, hidden, "row", OpRole.OUTPUT, bias=self.bias)
        work: Fields = {"reads": 2.0, "flop": 5.0, "back_moves": 5.0, "back_flop": 6.0}
        times = part.pointwise("gate", source * float(hidden), "none", **work)
        made: tuple[Op, ...] = (*gate.ops, times, *values.ops)
        if self.cross and tokens.phase == "decode":
            # The encoder's values lie in the cache: weights are held, nothing is done.
            held = sum(float(op.parameters) for op in made)
            made = (part.pointwise("held", 0.0, "none", weights=held),)
        graph = LayerGraph(
            name=part.name,
            ops=(*queries.ops, *made, core, out),
            saved=(
                *queries.saved,
                *gate.saved,
                *values.saved,
                part.kept("gate", 2.0 * source * float(hidden), SavedRole.GATE, "none"),
                part.kept("q", count * float(hidden), SavedRole.QUERY),
                part.kept("v", source * float(hidden)),
                part.kept("out", count * float(hidden), SavedRole.RESULT),
                *core_saved(core, part.name),
            ),
            edges=self._edges(hidden, tokens, part),
        )
        return with_region(graph, part.region)

    def _map(
        self,
        what: str,
        hidden: int,
        part: PartOps,
        rows: Num,
        split: Split,
        *,
        alone: bool = False,
        role: OpRole = OpRole.OTHER,
    ) -> LayerGraph:
        """One of the three maps before the scores; factorised ones are whole on every rank."""
        name = f"{part.name}.{what}"
        if self.factor is not None:
            shape = MapShape(name=name, inputs=hidden, outputs=hidden, bias=self.bias, alone=alone)
            made: LayerGraph = self.factor.graph(shape, rows, "none")
            return made
        op = part.gemm(what, hidden, hidden, split, role, bias=self.bias, m=rows)
        return LayerGraph(name=name, ops=(op,))

    def _core(self, hidden: int, tokens: Tokens, part: PartOps) -> AttentionCore:
        keys = tokens.cross_len if self.cross else tokens.kv_len
        pairs = tokens.q_len * keys
        if not self.cross:
            pairs = visible_pairs(tokens, causal=self.causal, window=None, chunked=False)
        return AttentionCore(
            name=f"{part.name}.core",
            batch=tokens.batch,
            heads=float(self.heads),
            kv_heads=float(self.heads),
            q_len=tokens.q_len,
            kv_len=keys,
            pairs=pairs,
            qk_dim=hidden / self.heads,
            v_dim=hidden / self.heads,
            flash=tokens.flash,
            region=part.region,
        )

    def _edges(self, hidden: int, tokens: Tokens, part: PartOps) -> tuple[Edge, ...]:
        """The hidden state enters and leaves; the encoder's states enter."""
        edges = part.ends(tokens.count * hidden, tokens.count * hidden)
        if not self.cross or tokens.phase == "decode":
            return edges
        return (*edges, states_edge(part.name, tokens.batch * tokens.cross_len * hidden))

    def module(self, hidden: int, options: Any) -> Any:
        """Four maps and their order; `forward(x, carry)`."""
        from foretell.zoo.layers import attend, attention_mask, join_heads, map_module, split_heads
        from foretell.zoo.part import Part

        shape = MapShape(name="map", inputs=hidden, outputs=hidden, bias=self.bias)
        parts = {name: map_module(shape, self.factor) for name in ("q", "gate", "v")}
        parts["o"] = map_module(shape)

        def run(part: Any, x: Any, carry: Any) -> Any:
            source = carry.states if self.cross else x
            queries, keys = split_heads(part["q"](x), self.heads), split_heads(source, self.heads)
            gated = source * part["gate"](source).sigmoid()
            values = split_heads(part["v"](gated), self.heads)
            mask, causal = attention_mask(x, carry, causal=self.causal, cross=self.cross)
            out = attend(queries, keys, values, mask, options.fused, causal)
            return part["o"](join_heads(out))

        return Part({}, run, parts)
