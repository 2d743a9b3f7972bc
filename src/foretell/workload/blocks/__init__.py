"""Blocks with formulas of their own, one file each; their roles are the records of `specs/block.py`."""

from functools import lru_cache

from foretell.specs.block import Block


@lru_cache(maxsize=1)
def block_kinds() -> dict[str, type[Block]]:
    """Kind -> record: every file of this folder, then every installed entry point."""
    from importlib import import_module
    from importlib.metadata import entry_points
    from pkgutil import iter_modules

    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    modules += [point.load() for point in entry_points(group="foretell.blocks")]
    return {
        record.kind: record
        for module in modules
        for record in vars(module).values()
        if isinstance(record, type) and issubclass(record, Block) and "kind" in vars(record)
    }
