"""What communication libraries choose from: the candidates of an automatic choice.

NCCL: rings and double binary trees, NVLS where switches add up, PAT for gathers over one rank a node, sends
in one batch for all-to-all. MPI: the classic forms of MPICH (Thakur, Rabenseifner, Gropp 2005). XLA: buckets
over the axes of a torus. A library that is not known here chooses from everything at home on the topology.
"""

from collections.abc import Mapping

from foretell.errors import bad_input, nearest_name
from foretell.network.algorithms.base import Collective

_NCCL_GATHERS = ("ring", "multi-ring", "pat", "in-network")
_MPI_GATHERS = ("ring", "halving-doubling", "bruck")
_XLA_GATHERS = ("bucket", "bucket-rotated", "ring-both", "ring")
LIBRARIES: Mapping[str, Mapping[Collective, tuple[str, ...]]] = {
    "nccl": {
        "all-reduce": ("ring", "multi-ring", "double-binary-tree", "in-network"),
        "all-gather": _NCCL_GATHERS,
        "reduce-scatter": _NCCL_GATHERS,
        "all-to-all": ("direct",),
        "broadcast": ("pipelined-chain", "in-network"),
        "reduce": ("pipelined-chain", "in-network"),
        "send": ("neighbour",),
        "barrier": ("dissemination",),
    },
    "mpi": {
        "all-reduce": ("recursive-doubling", "halving-doubling", "ring"),
        "all-gather": _MPI_GATHERS,
        "reduce-scatter": _MPI_GATHERS,
        "all-to-all": ("bruck", "pairwise"),
        "broadcast": ("binomial-tree", "pipelined-chain"),
        "reduce": ("binomial-tree", "pipelined-chain"),
        "send": ("neighbour",),
        "barrier": ("dissemination",),
    },
    "xla": {
        "all-reduce": _XLA_GATHERS,
        "all-gather": _XLA_GATHERS,
        "reduce-scatter": _XLA_GATHERS,
        "all-to-all": ("direct",),
        "broadcast": ("pipelined-chain",),
        "reduce": ("pipelined-chain",),
        "send": ("neighbour",),
        "barrier": ("direct",),
    },
}


def candidates(library: str, collective: Collective) -> tuple[str, ...]:
    """Names of the algorithms the library has for a collective."""
    if library not in LIBRARIES:
        raise bad_input(
            "library",
            library,
            "no such communication library",
            ", ".join(sorted(LIBRARIES)),
            nearest_name(library, LIBRARIES),
        )
    return LIBRARIES[library][collective]
