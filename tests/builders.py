"""Small scenarios for tests: a few models of different families, a system of two tiers."""

from foretell.catalog.software import software
from foretell.specs.chip import Chip
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention, Mamba2
from foretell.specs.model import Embedding, Head, Layer, Model, Stack
from foretell.specs.scenario import Job, Scenario
from foretell.specs.system import Network, System, Tier

DENSE = Layer(mixers=(Attention(heads=16, kv_heads=4, head_dim=64),), ffn=Dense(width=2816))
WINDOW = Layer(
    mixers=(Attention(heads=16, kv_heads=4, head_dim=64, window=256),), ffn=Dense(width=2816)
)
MOE = Layer(
    mixers=(
        LatentAttention(heads=16, q_rank=256, kv_rank=128, nope_dim=64, rope_dim=32, value_dim=64),
    ),
    ffn=Experts(experts=16, top_k=2, width=512, shared_width=512, router_bias=True),
)
GENERIC = software("generic")
"""The software of a plan that names none."""
STATE = Layer(mixers=(Mamba2(heads=32, head_dim=64, state=64, groups=8, conv_kernel=4),), norms=1)

STACKS = {
    "dense": (DENSE,) * 24,
    "uneven": (DENSE,) * 13,
    "mixed": (DENSE, WINDOW) * 8,
    "moe": (DENSE,) * 2 + (MOE,) * 10,
    "hybrid": (STATE, STATE, DENSE) * 6,
}


def make_model(name: str = "dense", hidden: int = 1024, vocab: int = 32000) -> Model:
    """One of the stacks above between a table and an untied head."""
    return Model(
        id=name,
        family="test",
        kind="decoder",
        stack=Stack(hidden=hidden, layers=STACKS[name]),
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab),
        max_positions=4096,
    )


def make_chip(**changes: object) -> Chip:
    """A chip with the H100's peaks."""
    values: dict[str, object] = {
        "id": "test-chip",
        "name": "test chip",
        "vendor": "test",
        "architecture": "hopper",
        "matrix_flop_per_s": {"bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12},
        "vector_flop_per_s": 66.9e12,
        "memory_bytes": 80 * 2.0**30,
        "memory_bandwidth_bytes_per_s": 3.35e12,
        "tdp_watts": 700.0,
        "cores": 132.0,
        "l2_bytes": 50 * 2.0**20,
        "sram_bytes_per_core": 256 * 2.0**10,
    }
    return Chip(**(values | changes))  # type: ignore[arg-type]


def make_network(
    node: float = 8, nodes: float = 512, inner: float = 450e9, outer: float = 50e9
) -> Network:
    """Nodes of `node` chips, `nodes` of them."""
    return Network(
        tiers=(
            Tier(name="node", size=node, bandwidth_bytes_per_s=inner, latency_s=2.5e-6),
            Tier(name="cluster", size=nodes, bandwidth_bytes_per_s=outer, latency_s=5e-6),
        )
    )


def make_scenario(
    model: str = "dense",
    gpus: int = 16,
    batch: int = 64,
    seq_len: int = 2048,
    chip: Chip | None = None,
    network: Network | None = None,
) -> Scenario:
    """A model on a system with a job."""
    system = System(
        id="test-system",
        name="test",
        chip=chip or make_chip(),
        network=network or make_network(),
    )
    job = Job(gpus=gpus, global_batch=batch, seq_len=seq_len)
    return Scenario(model=make_model(model), system=system, job=job, software=GENERIC)
