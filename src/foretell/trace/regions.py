"""Maps of a traced module that ranks can share, found by what reads their results.

A map is cut by its outputs (columns) where all that reads them, up to the next maps with weights, works on
every head or channel by itself and nothing leaves the layer; those next maps are cut by their inputs (rows).
The largest maps are looked at first; a map that takes one in is not cut by its outputs as well.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from foretell.records import dataclass
from foretell.trace.graph import PHASES, TracedGraph, TracedModel, layer_of_rows

BACKWARD = PHASES.index("backward")
WORDS = 4096
"""Rows of a table, or outputs of the last map, from which on they are a vocabulary and cut by words."""
BY_CHANNEL = frozenset(
    "pointwise view copy fill attention gather scatter scan sync unknown".split()
)
"""Families that work on every channel, or every head, by themselves."""
SCORES = frozenset("aten._softmax aten._safe_softmax aten._softmax_backward_data".split())
"""Operations over the keys of one head, behind a product without weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearMap:
    """One product with a parameter, forward."""

    row: int
    """Its row."""
    weight: int
    """Its parameter, as a place in the model's tensors."""
    inputs: int
    """Width that it reads."""
    outputs: int
    """Width that it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRegion:
    """What lies behind a map, up to the next ones."""

    storages: frozenset[int]
    """What it makes."""
    rows: tuple[int, ...]
    """Rows in between."""
    ends: tuple[int, ...]
    """Rows of the maps that take it in."""
    outside: int | None
    """A row of another part of the model that reads it; none: it stays inside."""


class Flow:
    """A graph with what the search for regions asks: readers of storages, maps, layers."""

    def __init__(self, model: TracedModel, graph: TracedGraph) -> None:
        self.model, self.graph = model, graph
        self.layer = layer_of_rows(graph, model.layers)
        self.ops = [graph.ops[n] for n in graph.op]
        self.backward = (graph.phase == BACKWARD).tolist()
        self.weights = _weights_of_rows(model, graph)
        self.readers: dict[int, list[int]] = {}
        self.source: dict[int, int] = {}
        for row, reads in enumerate(graph.reads):
            if self.backward[row]:
                continue
            for number in reads:
                self.readers.setdefault(number, []).append(row)
            if self.ops[row].kind == "copy" and len(reads) == 1 and len(graph.writes[row]) == 1:
                self.source.setdefault(graph.writes[row][0], reads[0])
        self.maps = {one.row: one for one in self._maps()}

    def _maps(self) -> Iterator[LinearMap]:
        for row, op in enumerate(self.ops):
            if op.kind != "gemm" or self.backward[row] or not op.sizes:
                continue
            for weight in self.weights[row]:
                tensor, s = self.model.tensors[weight], op.sizes
                one = s["k"] * s["n"]  # a matrix, or one of several, or all of them
                fits = tensor.elements in (one, one * s["batch"]) or (
                    len(tensor.shape) > 2 and tensor.shape[-1] * tensor.shape[-2] == one
                )
                if len(tensor.shape) > 1 and fits and self.graph.reads[row]:
                    yield LinearMap(row=row, weight=weight, inputs=int(s["k"]), outputs=int(s["n"]))
                    break

    def root(self, number: int) -> int:
        """The storage of which one is a copy in another format."""
        while number in self.source:
            number = self.source[number]
        return number

    def behind(self, start: int) -> MapRegion:
        """The region of a map."""
        graph, layer = self.graph, self.layer[start]
        made, rows, ends = set(graph.writes[start]), list[int](), list[int]()
        waiting: list[int] = []
        pushed: set[int] = set()

        def push(number: int) -> None:
            for row in self.readers.get(number, ()):
                if row > start and row not in pushed:
                    pushed.add(row)
                    heappush(waiting, row)

        for number in made:
            push(number)
        outside = None
        while waiting and outside is None:
            row = heappop(waiting)
            if self.layer[row] != layer:
                outside = row
            elif row in self.maps:
                ends.append(row)
            else:
                rows.append(row)
                for number in graph.writes[row]:
                    if number not in made:
                        made.add(number)
                        push(number)
        return MapRegion(
            storages=frozenset(made), rows=tuple(rows), ends=tuple(ends), outside=outside
        )


def _weights_of_rows(model: TracedModel, graph: TracedGraph) -> list[tuple[int, ...]]:
    """Parameters that each row reads, by themselves or as copies in another format."""
    copies: dict[int, int] = {}
    found: list[tuple[int, ...]] = []
    for row, own in enumerate(graph.weights):
        more = {copies[number] for number in graph.reads[row] if number in copies}
        op = graph.ops[graph.op[row]]
        if len(own) == 1 and not graph.reads[row] and op.kind == "copy":
            copies.update((number, own[0]) for number in graph.writes[row])
        found.append(tuple({*own, *more}))
    return found


class MapCuts:
    """Which maps are cut and how; what lies between them."""

    def __init__(self, flow: Flow, tp: int) -> None:
        self.flow, self.tp = flow, tp
        self.columns: dict[int, int] = {}
        self.rows: dict[int, int] = {}
        self.tables: dict[int, int] = {}
        self.inside: dict[int, int] = {}
        self.heads: set[int] = set()
        self.heads_left = 0
        self.why: dict[int, str] = {}
        for one in sorted(
            flow.maps.values(), key=lambda m: (-flow.model.tensors[m.weight].elements, m.row)
        ):
            if flow.layer[one.row] >= 0:
                self._pair(one)
        self._words()

    def _pair(self, one: LinearMap) -> None:
        """Cut a map by columns where what is behind it can be."""
        flow = self.flow
        if one.row in self.rows:
            return
        region = flow.behind(one.row)
        parts, why = self._parts(one, region)
        if not why and region.outside is not None:
            why = "its result leaves the layer"
        if not why and not region.ends:
            why = "no map takes its result in"
        for row in region.ends:
            if row in self.columns:
                why = why or "the next map is cut by its outputs"
            elif flow.maps[row].inputs % self.tp:
                why = why or f"{flow.maps[row].inputs} inputs of the next map"
        if why:
            self.why[one.row] = why
            return
        self.columns[one.row] = parts
        for number in region.storages:
            self.inside[number] = max(parts, self.inside.get(number, 1))
        for row in region.ends:
            self.rows[row] = self.tp
            self.why.pop(row, None)

    def _parts(self, one: LinearMap, region: MapRegion) -> tuple[int, str]:
        """Into how many parts a map is cut, by the heads behind it; or why it is not."""
        parts, scores = self.tp, False
        for row in region.rows:
            op = self.flow.ops[row]
            s = op.sizes or {}
            width = 0.0
            if op.kind == "attention":
                if s["heads"] % self.tp:
                    self.heads_left = int(s["heads"])
                    return 0, f"{s['heads']:g} heads"
                width = s["qk_dim"]
            elif op.kind == "gemm" and not self.flow.weights[row]:
                scores, width = True, 0.0
            elif op.kind == "norm":
                width = s.get("elements", 0.0) / max(s.get("rows", 1.0), 1.0)
            elif op.kind == "reduce":
                if op.name in SCORES and scores:
                    continue
                width = op.read_bytes / max(op.write_bytes, 1.0)
                if width <= 1.0:
                    return 0, f"{op.name} over its outputs"
            elif op.kind == "conv" and s["groups"] < s["inputs"]:
                return 0, "a convolution over its channels"
            elif op.kind not in BY_CHANNEL and op.kind not in ("gemm", "conv"):
                return 0, f"{op.name} behind it"
            many = one.outputs / width if width else 0.0
            if (
                op.kind == "attention"
                and many == int(many)
                and many % self.tp
                and not self.tp % many
            ):
                parts = int(many)
            elif op.kind in ("norm", "reduce") and (many != int(many) or many % parts):
                return 0, f"{op.name} over its outputs"
        if one.outputs % parts:
            return 0, f"{one.outputs} outputs"
        return parts, ""

    def _words(self) -> None:
        """Cut tables of words, and the map to scores with the loss behind it."""
        flow = self.flow
        for row, op in enumerate(flow.ops):
            if op.name == "aten.embedding" and not flow.backward[row] and flow.layer[row] < 0:
                for weight in flow.weights[row]:
                    if flow.model.tensors[weight].shape[0] >= WORDS:
                        self.tables[row] = weight
        for one in flow.maps.values():
            if flow.layer[one.row] >= 0 or one.outputs < WORDS:
                continue
            region = flow.behind(one.row)
            if region.outside is None and not region.ends:
                self.columns[one.row] = self.tp
                self.heads.add(one.row)
                self.inside.update(dict.fromkeys(region.storages, self.tp))

    def parameters(self) -> dict[int, int]:
        """Parts of each parameter that is cut."""
        found: dict[int, int] = dict.fromkeys(self.tables.values(), self.tp)
        for rows, by_column in ((self.columns, True), (self.rows, False)):
            for row, parts in rows.items():
                one = self.flow.maps[row]
                found[one.weight] = parts
                for other in self.flow.weights[row] if by_column else ():
                    found[other] = parts
        return found


def left_whole(flow: Flow, cuts: MapCuts) -> tuple[float, tuple[str, ...]]:
    """Share of the operations of maps that stay whole, and the largest of these with their reasons."""
    total, left = 0.0, dict[str, tuple[float, str]]()
    for row in flow.maps:
        flops = flow.ops[row].flops
        total += flops
        if row not in cuts.columns and row not in cuts.rows:
            path = flow.graph.paths[flow.graph.path[row]]
            name = ".".join("*" if part.isdigit() else part for part in path.split("."))
            before = left.get(name, (0.0, ""))[0]
            left[name] = before + flops, cuts.why.get(row, "it is outside of the layers")
    order = sorted(left, key=lambda name: -left[name][0])
    notes = tuple(f"{name}: {left[name][1]}" for name in order)
    share = sum(flops for flops, _ in left.values()) / total if total else 1.0
    return share, notes
