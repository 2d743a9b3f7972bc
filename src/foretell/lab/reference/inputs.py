"""Any model and any chip for the published solver: the study's own records from files, or our catalogue's.

A TOML file with the solver's own fields (seq_len, embed, heads, layers; matrix_flop_per_s, hbm_bytes, ...) is
read as it is. Every other model or system that Foretell knows is reduced to what the solver has: equal
layers with a feed-forward of four widths, one peak for matrices and one for vectors, two flat tiers. Notes
say what that leaves out.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from foretell.catalog.files import read_table
from foretell.catalog.models import model as catalogue_model
from foretell.catalog.systems import named_system, own_file, system_from_file
from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.lab.reference.records import StudyChip, StudyModel
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Model
from foretell.specs.system import System

VECTOR_FP16 = 2.0
"""Vector rate in fp16 over that in fp32: what packed instructions give on chips since 2022."""
FULL_RATIO = 4
"""Widths of the residual stream that the solver's feed-forward is wide."""


def model_from_name(name: str, seq_len: int | None = None) -> tuple[StudyModel, tuple[str, ...]]:
    """A model's file or catalogue id as the solver's record, and what that leaves out."""
    path = own_file(name) if name.lower().endswith(".toml") else None
    if path is not None:
        table = read_table(path)
        if "embed" in table:
            return _record(
                StudyModel, table, path.stem, "model", {"causal": True, "samples": 0.0}
            ), ()
    return model_from_catalogue(catalogue_model(name), seq_len)


def model_from_catalogue(model: Model, seq_len: int | None) -> tuple[StudyModel, tuple[str, ...]]:
    """Width, heads and layers of a model; everything else is the solver's."""
    stack = model.stack
    heads = [m for layer in stack.layers for m in layer.mixers if isinstance(m, Attention)]
    if not heads:
        message = "has no softmax attention, and the published solver knows nothing else"
        raise bad_input("model", model.id, message)
    taken = f"equal layers of attention and a feed-forward of {FULL_RATIO} widths"
    notes = [f"{model.id}: {taken}, as the solver has them"]
    own = {layer.ffn.width for layer in stack.layers if isinstance(layer.ffn, Dense)}
    if own != {FULL_RATIO * stack.hidden}:
        notes.append(f"its own feed-forward ({sorted(own) or 'experts'}) is not what is timed")
    if heads[0].kv_heads != heads[0].heads:
        notes.append(f"its {heads[0].kv_heads} key and value heads are taken as {heads[0].heads}")
    found = StudyModel(
        name=model.id,
        seq_len=seq_len or min(model.max_positions, 4096),
        embed=stack.hidden,
        heads=heads[0].heads,
        layers=len(stack.layers),
        causal=heads[0].causal,
        samples=0.0,
    )
    return found, tuple(notes)


def chip_from_name(name: str) -> tuple[StudyChip, tuple[str, ...]]:
    """A chip's or system's file or catalogue id as the solver's record, and what was assumed."""
    path = own_file(name)
    if path is not None:
        table = read_table(path)
        if "hbm_bytes" in table:
            return _record(StudyChip, table, path.stem, "chip", {}), ()
        return chip_of_system(system_from_file(path))
    return chip_of_system(named_system(name))


def chip_of_system(system: System) -> tuple[StudyChip, tuple[str, ...]]:
    """Peaks and memory of the chip, the innermost tier as the fast one and the outermost as the slow one."""
    chip, tiers = system.chip, system.network.tiers
    matrix = chip.matrix_flop_per_s.get("bf16") or chip.matrix_flop_per_s.get("fp16")
    if not matrix:
        raise bad_input("chip", system.id, "has no matrix rate in bf16 or fp16")
    notes = (
        f"{system.id}: {tiers[0].name} links as the fast tier, {tiers[-1].name} as the slow one",
        f"vector rate in fp16: {VECTOR_FP16:g} times that in fp32",
    )
    found = StudyChip(
        name=system.id,
        matrix_flop_per_s=float(matrix),
        vector_flop_per_s=VECTOR_FP16 * float(chip.vector_flop_per_s),
        hbm_bytes_per_s=float(chip.memory_bandwidth_bytes_per_s),
        hbm_bytes=float(chip.memory_bytes),
        fast_bytes_per_s=float(tiers[0].bandwidth_bytes_per_s),
        slow_bytes_per_s=float(tiers[-1].bandwidth_bytes_per_s),
    )
    return found, notes


def _record(
    kind: Any, table: Mapping[str, Any], name: str, path: str, defaults: Mapping[str, Any]
) -> Any:
    """A record of the solver from a file's table; every wrong or missing field at once."""
    known = {field.name: field for field in fields(kind)}
    given = {"name": name, **defaults, **table}
    problems = [
        wrong(f"{path}.{key}", table[key], "is no field of the published solver", ", ".join(known))
        for key in table
        if key not in known
    ]
    problems += [
        Problem(path=f"{path}.{key}", value=None, message="missing", allowed=", ".join(known))
        for key, field in known.items()
        if key not in given and field.default is MISSING
    ]
    if problems:
        raise BadInput(problems)
    return kind(**given)
