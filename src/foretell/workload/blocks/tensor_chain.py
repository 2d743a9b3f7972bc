"""Tensor chains: a linear map as a product of small cores (Anthe, arXiv 2305.10991).

With inputs d_in = i0 i1 and outputs d_out = o0 o1 (larger factor first), and bonds b, c:

    length 2   W[(i0 i1), (o0 o1)] = sum_b A[i0, b, o0] B[i1, b, o1]
    length 3   W[(i0 i1 i2), (o0 o1 o2)] = sum_bc A[i0, b, o0] C[i1, b, c, o1] D[i2, c, o2]

The bond spends a share r of the dense weights: floor(r d_in d_out / (i0 o0 + i1 o1)), and for length 3
the root of i1 o1 b^2 + (i0 o0 + i2 o2) b = r d_in d_out, each at least 2. Two forms of one map:

    build      W is made once a pass, then x W: b d_in d_out + rows d_in d_out multiply-adds
    contract   x meets one core after the other, in the order of fewest multiply-adds

`auto` contracts where that takes fewer multiply-adds per row than the dense map.
"""

from functools import lru_cache
from itertools import permutations
from math import prod, sqrt
from typing import Any, ClassVar, Literal

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.block import MapBlock, MapShape
from foretell.workload.graph import LayerGraph
from foretell.workload.ops import Lookup, Op, Split
from foretell.workload.part import COPY, Fields, PartOps
from foretell.workload.roles import OpRole, SavedRole

LEAST_BOND = 2
"""Bonds that the share would make smaller are raised to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChain(MapBlock):
    """A linear map or a table as a chain of cores."""

    kind: ClassVar[str] = "tensor-chain"
    ratio: float = 0.1
    """Share of the dense weights that the cores may have."""
    length: Literal[2, 3] = 2
    """Cores."""
    bond: int | None = None
    """Width of the sums between cores; none: from `ratio`."""
    form: Literal["auto", "build", "contract"] = "auto"
    """Whether W is built, or the input meets one core after the other."""

    def chain(self, shape: MapShape) -> "Chain":
        """Its cores for one map."""
        return Chain(
            inputs=factors(shape.inputs, self.length),
            outputs=factors(shape.outputs, self.length),
            bond=self.bond or bond(shape.inputs, shape.outputs, self.length, self.ratio),
        )

    def contracts(self, shape: MapShape) -> bool:
        """Whether it takes the contracted form for a map of this shape."""
        cheaper = best_steps(self.chain(shape)).macs < shape.inputs * shape.outputs
        return self.form == "contract" or (self.form == "auto" and cheaper)

    def graph(self, shape: MapShape, rows: Num, split: Split = "none") -> LayerGraph:
        """Products and copies of the form that it takes."""
        chain = self.chain(shape)
        if self.contracts(shape):
            return _contract_graph(shape, chain, rows, "none" if split == "col" else split)
        part = PartOps(name=shape.name, rows=rows)
        # The product's weights are the cores'.
        product = part.gemm("map", shape.outputs, shape.inputs, split, bias=shape.bias, tied=True)
        return _build_graph(shape, chain) + LayerGraph(name=shape.name, ops=(product,))

    def table_graph(self, shape: MapShape, rows: Num) -> LayerGraph:
        """Rows of every core by their digits, and their products; or the built table, looked up."""
        chain, part = self.chain(shape), PartOps(name=shape.name, rows=rows)
        if self.form == "build":
            work: Fields = {"flop": 0.0, "family": "embedding"}
            look = part.pointwise("rows", rows * shape.outputs, **work)
            return _build_graph(shape, chain) + LayerGraph(name=shape.name, ops=(look,))
        ops: list[Op] = [
            Lookup(
                name=f"{shape.name}.core{j}",
                tokens=rows,
                rows=float(i),
                width=float(size / i),
                split="none",
            )
            for j, (i, size) in enumerate(zip(chain.inputs, chain.sizes, strict=True))
        ]
        for j, (m, k, n) in enumerate(_fold(chain, (1,) * chain.length)):
            ops.append(part.gemm(f"product{j}", n, k, m=float(m), groups=rows, tied=True))
        kept = sum(size / i for i, size in zip(chain.inputs, chain.sizes, strict=True))
        saved = (part.kept("rows", rows * kept, split="none"),)
        return LayerGraph(name=shape.name, ops=tuple(ops), saved=saved)

    def module(self, shape: MapShape) -> Any:
        """Cores and a bias, started so that W is as spread as a dense map's."""
        from foretell.zoo.part import Part

        chain = self.chain(shape)
        weights = _core_weights(chain, 1.0 / (3.0 * shape.inputs))
        if shape.bias:
            weights["bias"] = ((shape.outputs,), 0.0)
        contracts = self.contracts(shape)

        def run(part: Any, x: Any) -> Any:
            cores = [part[f"core{j}"] for j in range(chain.length)]
            bias = part["bias"] if shape.bias else None
            if contracts:
                out = _contract(x, cores, chain)
                return out if bias is None else out + bias
            from torch.nn import functional

            return functional.linear(x, _built(cores, chain, transposed=True), bias)

        return Part(weights, run)

    def table_module(self, shape: MapShape) -> Any:
        """Cores whose products are rows of standard deviation width^-1/2."""
        from torch.nn import functional

        from foretell.zoo.part import Part

        chain = self.chain(shape)
        build = self.form == "build"

        def run(part: Any, ids: Any) -> Any:
            cores = [part[f"core{j}"] for j in range(chain.length)]
            if build:
                return functional.embedding(ids, _built(cores, chain))
            return _looked_up(ids, cores, chain)

        return Part(_core_weights(chain, 1.0 / shape.outputs), run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The cores of one map; core j is [inputs_j, bond before, bond behind, outputs_j]."""

    inputs: tuple[int, ...]
    """Factors of the inputs."""
    outputs: tuple[int, ...]
    """Factors of the outputs."""
    bond: int
    """Width of every sum between two cores."""

    @property
    def length(self) -> int:
        """Cores."""
        return len(self.inputs)

    def bonds(self, core: int) -> tuple[int, ...]:
        """Bonds of a core: bond j joins cores j and j + 1."""
        return tuple(j for j in (core - 1, core) if 0 <= j < self.length - 1)

    def shape(self, core: int) -> tuple[int, ...]:
        """[inputs, bonds ..., outputs] of a core."""
        width = (self.bond,) * len(self.bonds(core))
        return (self.inputs[core], *width, self.outputs[core])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Weights of each core."""
        return tuple(prod(self.shape(j)) for j in range(self.length))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStep:
    """One core that the input meets: (rest, k) by (k, n), per row of the input."""

    core: int
    """Which."""
    rest: int
    """Rows of the product per row of the input."""
    k: int
    """Numbers that are summed over."""
    n: int
    """Numbers that come in their place."""
    order: tuple[int, ...] | None
    """Dims of the tensor in the order that the product reads, where that takes a copy; else none."""
    core_order: tuple[int, ...]
    """Dims of the core in the order that the product reads: summed ones, then new ones."""
    dims: tuple[int, ...]
    """Dims of the result, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """One order of contraction."""

    steps: tuple[ChainStep, ...]
    """Its steps."""
    last: tuple[int, ...] | None
    """How the result's dims are put in order at the end, where that takes a copy; else none."""

    @property
    def macs(self) -> int:
        """Multiply-adds per row."""
        return sum(s.rest * s.k * s.n for s in self.steps)

    @property
    def copied(self) -> int:
        """Elements copied per row."""
        before = sum(s.rest * s.k for s in self.steps if s.order is not None)
        return before + (prod(self.steps[-1].dims) if self.last is not None else 0)


@lru_cache(maxsize=1024)
def factors(number: int, length: int) -> tuple[int, ...]:
    """The factors of least sum, larger first: 512 = 32 x 16, 1365 = 39 x 35, 32000 = 200 x 160."""
    if length == 1:
        return (number,)
    found = [
        tuple(sorted((small, *factors(number // small, length - 1)), reverse=True))
        for small in range(1, round(number ** (1.0 / length)) + 2)
        if number % small == 0
    ]
    return min(found, key=lambda parts: (sum(parts), parts))


@lru_cache(maxsize=1024)
def bond(inputs: int, outputs: int, length: int, ratio: float) -> int:
    """The bond that spends `ratio` of the dense weights, at least `LEAST_BOND`."""
    sides = [i * o for i, o in zip(factors(inputs, length), factors(outputs, length), strict=True)]
    target, ends = ratio * inputs * outputs, sides[0] + sides[-1]
    if length == 2:
        return max(LEAST_BOND, int(target / ends))
    inner = sides[1]
    return max(LEAST_BOND, int((sqrt(ends**2 + 4.0 * inner * target) - ends) / (2.0 * inner)))


@lru_cache(maxsize=1024)
def best_steps(chain: Chain) -> Steps:
    """The order of fewest multiply-adds, and of those the one that copies least."""
    orders = [_steps(chain, order) for order in permutations(range(chain.length))]
    return min(orders, key=lambda steps: (steps.macs, steps.copied))


def _steps(chain: Chain, order: tuple[int, ...]) -> Steps:
    """The products that an order makes, and the copies between them."""
    size = {("b", j): chain.bond for j in range(chain.length - 1)}
    size |= {("i", j): n for j, n in enumerate(chain.inputs)}
    size |= {("o", j): n for j, n in enumerate(chain.outputs)}
    held = [("i", j) for j in range(chain.length)]
    steps: list[ChainStep] = []
    for core in order:
        names = [("i", core), *(("b", j) for j in chain.bonds(core)), ("o", core)]
        summed = [name for name in held if name in names]
        new = [name for name in names if name not in held]
        rest = [name for name in held if name not in summed]
        wanted = rest + summed
        turn = None if wanted == held else tuple(held.index(name) for name in wanted)
        held = rest + new
        steps.append(
            ChainStep(
                core=core,
                rest=prod(size[name] for name in rest),
                k=prod(size[name] for name in summed),
                n=prod(size[name] for name in new),
                order=turn,
                core_order=tuple(names.index(name) for name in summed + new),
                dims=tuple(size[name] for name in held),
            )
        )
    final = [("o", j) for j in range(chain.length)]
    last = None if held == final else tuple(held.index(name) for name in final)
    return Steps(steps=tuple(steps), last=last)


def _fold(chain: Chain, inputs: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(m, k, n) of the products that join the cores from the last to the first.

    Larger factors are first, so that this order takes the fewest multiply-adds. `inputs` are the
    cores' input dims, or ones where a row of each has been looked up.
    """
    right = inputs[-1] * chain.outputs[-1]
    products = []
    for j in range(chain.length - 2, -1, -1):
        own = inputs[j] * chain.outputs[j]
        left = own * chain.bond ** (len(chain.bonds(j)) - 1)
        products.append((left, chain.bond, right))
        right *= own
    return products


def _build_graph(shape: MapShape, chain: Chain) -> LayerGraph:
    """W out of its cores, once a pass: the first product holds the last core, a copy the others."""
    part, role = PartOps(name=shape.name, rows=1.0), OpRole.BUILD
    ops: list[Op] = [
        part.gemm(f"build{j}.once", n, k, role=role, m=float(m), tied=j > 0)
        for j, (m, k, n) in enumerate(_fold(chain, chain.inputs))
    ]
    size = float(shape.inputs * shape.outputs)
    held = float(sum(chain.sizes[:-1]) + (shape.outputs if shape.bias else 0))
    ops.append(part.pointwise("turn.once", size, "none", role, weights=held, **COPY))
    built = part.kept("built.once", size, SavedRole.BUILT, "none")
    return LayerGraph(name=shape.name, ops=tuple(ops), saved=(built,))


def _contract_graph(shape: MapShape, chain: Chain, rows: Num, split: Split) -> LayerGraph:
    """A product for each core, and copies where dims must change places."""
    part = PartOps(name=shape.name, rows=rows)
    ops: list[Op] = []
    steps = best_steps(chain)
    kept = 0
    for place, step in enumerate(steps.steps):
        if step.order is not None:
            ops.append(part.pointwise(f"turn{place}", rows * step.rest * step.k, split, **COPY))
        if place or (step.order is not None and not shape.alone):
            kept += step.rest * step.k
        ops.append(part.gemm(f"core{step.core}", step.n, step.k, split, m=rows * step.rest))
    if steps.last is not None:
        ops.append(part.pointwise("turn", rows * shape.outputs, split, **COPY))
    if shape.bias:
        work: Fields = {"back_moves": 1.0, "weights": float(shape.outputs)}
        ops.append(part.pointwise("bias", rows * shape.outputs, split, **work))
    cut: Literal["tokens", "none"] = "tokens" if split == "tokens" else "none"
    saved = (part.kept("inner", rows * kept, split=cut),)
    return LayerGraph(name=shape.name, ops=tuple(ops), saved=saved)


# ---- the module: torch's tensors go in and come out, their operators do the work ------------------


def _core_weights(chain: Chain, variance: float) -> dict[str, tuple[tuple[int, ...], float]]:
    """Shapes and standard deviations: a product of cores has `variance`."""
    each = (variance / chain.bond ** (chain.length - 1)) ** (0.5 / chain.length)
    return {f"core{j}": (chain.shape(j), each) for j in range(chain.length)}


def _contract(x: Any, cores: list[Any], chain: Chain) -> Any:
    """x through one core after the other."""
    outer = x.shape[:-1]
    steps = best_steps(chain)
    held = x.reshape(-1, *chain.inputs)
    for step in steps.steps:
        if step.order is not None:
            held = held.permute(0, *(d + 1 for d in step.order))
        core = cores[step.core].permute(step.core_order).reshape(step.k, step.n)
        held = (held.reshape(-1, step.k) @ core).view(-1, *step.dims)
    if steps.last is not None:
        held = held.permute(0, *(d + 1 for d in steps.last))
    return held.reshape(*outer, -1)


def _built(cores: list[Any], chain: Chain, transposed: bool = False) -> Any:
    """W as (inputs, outputs), or the other way round as torch's linear takes it."""
    length, b = chain.length, chain.bond
    right = cores[-1].transpose(0, 1).reshape(b, -1)
    for j in range(length - 2, 0, -1):
        # [i, before, behind, o] -> (before i o, behind): the bond behind is summed over.
        left = cores[j].permute(1, 0, 3, 2).reshape(-1, b)
        right = (left @ right).view(b, -1)
    left = cores[0].transpose(1, 2).reshape(-1, b)
    sides = [n for pair in zip(chain.inputs, chain.outputs, strict=True) for n in pair]
    whole = (left @ right).view(*sides)
    ins, outs = range(0, 2 * length, 2), range(1, 2 * length, 2)
    rows, columns = prod(chain.inputs), prod(chain.outputs)
    if transposed:
        return whole.permute(*outs, *ins).reshape(columns, rows)
    return whole.permute(*ins, *outs).reshape(rows, columns)


def _looked_up(ids: Any, cores: list[Any], chain: Chain) -> Any:
    """Rows of the table: a row of every core by a digit of the id, and their products."""
    from torch.nn import functional

    flat = ids.reshape(-1)
    looked: list[Any] = []
    for core in reversed(cores):
        # As a table: its gradient is added up row by row, which indexing would do one by one.
        rows = functional.embedding(flat % core.shape[0], core.flatten(1))
        looked.insert(0, rows.unflatten(1, core.shape[1:]))
        flat = flat // core.shape[0]
    b, many = chain.bond, ids.numel()
    right = looked[-1].reshape(many, b, -1)
    for j in range(chain.length - 2, 0, -1):
        # (before, behind, o) -> (before o, behind)
        left = looked[j].transpose(2, 3).reshape(many, -1, b)
        right = (left @ right).view(many, b, -1)
    left = looked[0].transpose(1, 2)
    return (left @ right).reshape(*ids.shape, -1)
