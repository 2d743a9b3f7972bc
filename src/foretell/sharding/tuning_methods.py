"""What methods of fine-tuning compute beside a frozen map y = x W of k inputs and n outputs over m tokens.

lora           x A B, two thin products and the addition of their result (Hu et al. 2021)
dora           besides, W + A B is written out in every forward pass and read for its columns' lengths
adalora        A and B with a diagonal between them, and both products of their orthogonality
loha, lokr     a matrix as large as W is made of small ones and x multiplied by it: a product as W's, its two
               gradients, and passes over k n
oft            x is rotated by blocks before W; a rotation is a few terms of a series of small products
boft           rotations as whole k x k matrices, multiplied together and into W, in 32 bits
vera           frozen random A and B, and trained scales behind each
ia3            the map's result is scaled
norms, prefix, prompt   nothing beside the maps: weights of norms, keys and values of further tokens, or
               further tokens are trained (these pass the model as any token)
llama-adapter  attention's result is scaled and shifted
"""

from collections.abc import Callable, Mapping

from foretell.specs._base import Num, with_fields
from foretell.specs.plan_words import TuningMethod
from foretell.workload.ops import Gemm, Op, Pointwise, Split
from foretell.workload.roles import OpRole

WITHOUT_MAPS = ("norms", "prefix", "prompt")
"""Methods with nothing beside the linear maps."""
MEASURES = 3.0
"""Passes of DoRA over a matrix: A B written, and read with W for its columns' lengths."""
SERIES = 5.0
"""Terms of the series by which a rotation is made of its skew matrix (Cayley and Neumann)."""
WIDE = 4.0
"""Time of a product in 32 bits over that in 16."""


def method_ops(method: TuningMethod, op: Gemm, size: float) -> tuple[Op, ...]:
    """What a method of one size (a rank, a block) computes beside a map."""
    return OPS[method](op, size)


def kept_elements(method: TuningMethod, op: Gemm, size: float) -> Num:
    """Elements that a method keeps of a map for the backward pass."""
    inputs, outputs, matrix = op.m * op.k, op.m * op.n, op.k * op.n / op.weight_parts
    kept: Mapping[str, Num] = {
        "loha": 3.0 * matrix,
        "lokr": matrix,
        "oft": inputs,
        "boft": matrix + op.k * op.k,
        "vera": op.m * size + outputs,
        "ia3": outputs,
        "llama-adapter": outputs,
    }
    return op.groups * kept.get(method, op.m * size)


def pass_beside(op: Gemm, name: str, elements: Num, split: Split, **work: float) -> Pointwise:
    """A pass of what is beside a map; `work` are further fields."""
    return Pointwise(
        name=f"{op.name}.{name}", elements=op.groups * elements, split=split, role=OpRole.ADAPTER_SUM,
        region=op.region, beside=op.role, **work,  # type: ignore[arg-type]  # numbers alone
    )  # fmt: skip


def scaled(op: Gemm, name: str, elements: Num) -> Pointwise:
    """A pass that scales, and its gradients."""
    cut: dict[Split, Split] = {"col": "width", "heads": "width", "tokens": "tokens"}
    return pass_beside(op, name, elements, cut.get(op.split, "none"))


def over_matrix(op: Gemm, name: str, *, reads: float, writes: float, back: float) -> Pointwise:
    """A pass over a matrix as large as the map's: how often it reads and writes it, and moves it backward."""
    work = {"reads": reads, "writes": writes, "back_moves": back, "back_flop": 0.0}
    return pass_beside(op, name, op.k * op.n / op.weight_parts, "none", **work)


def plain(op: Gemm, name: str, **changes: Num) -> Gemm:
    """A product of an adapter's that is on every rank."""
    one = with_fields(op, name=f"{op.name}.{name}", bias=False, gated=False, role=OpRole.ADAPTER)
    return with_fields(one, **{"split": "none", "n_kv": 0.0, "n_kv_min": 0.0, **changes})


def adapter(op: Gemm, rank: float) -> tuple[Op, ...]:
    """Two thin products, the addition of their result, and that of their data gradient."""
    down: Split = op.split if op.split in ("row", "heads", "tokens") else "none"
    up: Split = op.split if op.split in ("col", "heads", "tokens") else "none"
    outside: dict[Split, tuple[Split, Split]] = {
        "col": ("none", "width"),
        "row": ("width", "none"),
        "heads": ("width", "width"),
        "tokens": ("tokens", "tokens"),
    }
    inputs, outputs = outside.get(op.split, ("none", "none"))
    one = with_fields(op, bias=False, role=OpRole.ADAPTER, gated=False)
    return (
        with_fields(one, name=f"{op.name}.lora_a", n=rank, split=down, n_kv=0.0, n_kv_min=0.0),
        with_fields(one, name=f"{op.name}.lora_b", k=rank, split=up),
        pass_beside(op, "lora.residual", op.m * op.n, outputs, **FORWARD),
        pass_beside(op, "lora_back.residual", op.m * op.k, inputs, **BACKWARD),
    )


FORWARD = {"reads": 2.0, "back_moves": 0.0, "back_flop": 0.0}
"""The addition of an adapter's result."""
BACKWARD = {"reads": 0.0, "writes": 0.0, "flop": 0.0, "back_moves": 3.0, "back_flop": 1.0}
"""That of its data gradient."""


def directions(op: Gemm, rank: float) -> tuple[Op, ...]:
    """DoRA: low-rank adapters, and the lengths of the columns of a matrix and its adapter's product."""
    return (*adapter(op, rank), over_matrix(op, "dora", reads=MEASURES - 1.0, writes=1.0, back=0.0))


def orthogonal(op: Gemm, rank: float) -> tuple[Op, ...]:
    """AdaLoRA: a diagonal between A and B, and how far both are from orthogonal."""
    return (
        *adapter(op, rank),
        scaled(op, "diagonal", op.m * rank),
        plain(op, "ortho_a", m=rank, k=op.k, n=rank, tied=True),
        plain(op, "ortho_b", m=rank, k=op.n, n=rank, tied=True),
    )


def made_matrix(op: Gemm, rank: float) -> tuple[Op, ...]:
    """LoKr: a matrix made of two small ones, and x multiplied by it."""
    return (
        plain(op, "factors", m=1.0, k=rank, n=op.n),
        over_matrix(op, "kron", reads=0.0, writes=1.0, back=2.0),
        with_fields(
            op, name=f"{op.name}.delta", bias=False, role=OpRole.ADAPTER, gated=False, tied=True
        ),
        scaled(op, "sum", op.m * op.n),
    )


def hadamard(op: Gemm, rank: float) -> tuple[Op, ...]:
    """LoHa: a matrix that is the product, element by element, of two of low rank."""
    return (
        plain(op, "first", m=op.k, k=rank, n=op.n),
        plain(op, "second", m=op.k, k=rank, n=op.n),
        *made_matrix(op, rank),
    )


def rotate_inputs(op: Gemm, block: float) -> tuple[Op, ...]:
    """OFT: x rotated by blocks; the rotation is a series of products of its own size."""
    groups = op.groups * op.k / block
    return (
        plain(op, "series", groups=groups * SERIES, m=block, k=block, n=block, tied=True),
        plain(op, "rotate", groups=groups, k=block, n=block),
    )


def butterfly(op: Gemm, block: float) -> tuple[Op, ...]:
    """BOFT: block rotations, multiplied out to whole ones between permutations, and W multiplied by them."""
    return (
        plain(op, "permute", m=2.0 * WIDE * op.k, n=op.k, tied=True),
        plain(op, "rotate", m=WIDE * op.n, n=op.k, tied=True),
        over_matrix(op, "copy", reads=1.0, writes=1.0, back=2.0),
    )


def random_maps(op: Gemm, rank: float) -> tuple[Op, ...]:
    """VeRA: frozen maps that all layers share, and trained scales."""
    thin = (
        with_fields(one, tied=True) if isinstance(one, Gemm) else one for one in adapter(op, rank)
    )
    return (*thin, scaled(op, "inner", op.m * rank), scaled(op, "outer", op.m * op.n))


def scaled_result(op: Gemm, rank: float) -> tuple[Op, ...]:
    """IA3 and LLaMA-Adapter: one pass over the map's result."""
    return (scaled(op, "scale", op.m * op.n),)


def nothing(op: Gemm, rank: float) -> tuple[Op, ...]:
    """Methods with nothing beside the maps."""
    return ()


OPS: Mapping[str, Callable[[Gemm, float], tuple[Op, ...]]] = {
    "lora": adapter, "dora": directions, "adalora": orthogonal, "lokr": made_matrix, "loha": hadamard,
    "oft": rotate_inputs, "boft": butterfly, "vera": random_maps, "ia3": scaled_result,
    "llama-adapter": scaled_result, **dict.fromkeys(WITHOUT_MAPS, nothing),
}  # fmt: skip
"""By word of `method`."""
