"""Which release of NCCL a framework came with: `[[shipped]]` of fabrics/nccl.toml."""

from functools import lru_cache

from foretell.catalog.files import ROOT, read_table


@lru_cache(maxsize=128)
def shipped_release(released: str) -> str:
    """The release of NCCL that frameworks of a date (2024-01) came with; empty: today's."""
    table = read_table(ROOT / "fabrics" / "nccl.toml")
    shipped = [str(one["version"]) for one in table["shipped"] if one["since"] <= released]
    return shipped[-1] if shipped else ""
