"""Foretell: how long a transformer takes to train or serve on a system, and what it costs.

    import foretell
    best = foretell.search("llama-3.1-70b", system="h100-sxm", gpus=512).best

Importing this loads NumPy and nothing else; each name below loads its part on first use.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.11.0"

_WHERE = {
    "estimate": "foretell.api",
    "search": "foretell.api",
    "memory": "foretell.api",
    "explain": "foretell.api",
    "sensitivity": "foretell.api",
    "compare_plans": "foretell.api",
    "simulate": "foretell.api",
    "serve": "foretell.serve",
    "size": "foretell.size",
    "sweep": "foretell.sweep.run",
    "scaling": "foretell.scaling.run",
    "sensitivities": "foretell.sensitivities",
    "characterize_trace": "foretell.characterize.traces.run",
    "model": "foretell.catalog",
    "system": "foretell.catalog",
    "chip": "foretell.catalog",
    "parse_plan": "foretell.specs.plan",
    "Plan": "foretell.specs.plan",
    "Model": "foretell.specs.model",
    "System": "foretell.specs.system",
    "Chip": "foretell.specs.chip",
    "read_launch": "foretell.launches",
    "BadInput": "foretell.errors",
    "Infeasible": "foretell.errors",
    "codesign": "foretell.sweep.codesign",
    "optimise": "foretell.sweep.optimise",
    "compare": "foretell.procure.compare",
}
__all__ = ["__version__", *_WHERE]  # noqa: PLE0604 - names are loaded on use

if TYPE_CHECKING:
    from foretell.api import compare_plans as compare_plans
    from foretell.api import estimate as estimate
    from foretell.api import explain as explain
    from foretell.api import memory as memory
    from foretell.api import search as search
    from foretell.api import sensitivity as sensitivity
    from foretell.api import simulate as simulate
    from foretell.catalog import chip as chip
    from foretell.catalog import model as model
    from foretell.catalog import system as system
    from foretell.characterize.traces.run import characterize_trace as characterize_trace
    from foretell.errors import BadInput as BadInput
    from foretell.errors import Infeasible as Infeasible
    from foretell.launches import read_launch as read_launch
    from foretell.procure.compare import compare as compare
    from foretell.scaling.run import scaling as scaling
    from foretell.sensitivities import sensitivities as sensitivities
    from foretell.serve import serve as serve
    from foretell.size import size as size
    from foretell.specs.chip import Chip as Chip
    from foretell.specs.model import Model as Model
    from foretell.specs.plan import Plan as Plan
    from foretell.specs.plan import parse_plan as parse_plan
    from foretell.specs.system import System as System
    from foretell.sweep.codesign import codesign as codesign
    from foretell.sweep.optimise import optimise as optimise
    from foretell.sweep.run import sweep as sweep


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'foretell' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


class _Package(ModuleType):
    """The package, in which `estimate` and the like stay functions although modules bear their names."""

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a submodule binds it to its package; these names belong to the functions.
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
