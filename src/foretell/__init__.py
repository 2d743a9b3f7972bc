"""Foretell: how long a transformer takes to train or serve on a system, and what it costs.

    import foretell
    best = foretell.search("llama-3.1-70b", system="h100-sxm", gpus=512).best

Importing this loads NumPy and nothing else; each name below loads its part on first use.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.12.0"

_WHERE = {
    "estimate": "foretell.api.training",
    "search": "foretell.api.training",
    "memory": "foretell.api.training",
    "explain": "foretell.api.training",
    "sensitivity": "foretell.studies.sensitivity",
    "compare_plans": "foretell.api.training",
    "simulate": "foretell.api.training",
    "diagnose": "foretell.api.diagnose",
    "serve": "foretell.api.serving",
    "size": "foretell.api.size",
    "fleet": "foretell.api.fleet",
    "post_train": "foretell.api.post_training",
    "sweep": "foretell.studies.sweep.run",
    "scaling": "foretell.studies.scaling.run",
    "characterize_trace": "foretell.lab.characterize.traces.run",
    "model": "foretell.catalog",
    "system": "foretell.catalog",
    "chip": "foretell.catalog",
    "parse_plan": "foretell.specs.plan",
    "Plan": "foretell.specs.plan",
    "Model": "foretell.specs.model",
    "System": "foretell.specs.system",
    "Chip": "foretell.specs.chip",
    "read_launch": "foretell.api.launches",
    "improve": "foretell.api.improve",
    "BadInput": "foretell.errors",
    "Infeasible": "foretell.errors",
    "codesign": "foretell.studies.sweep.codesign",
    "optimise": "foretell.studies.sweep.optimise",
    "buy": "foretell.studies.procurement.buy",
    "compare": "foretell.studies.procurement.compare",
    "cost": "foretell.api.cost_questions",
    "network": "foretell.api.network",
    "version_changes": "foretell.lab.versions.changes",
    "RunMonitor": "foretell.lab.monitor",
    "trace": "foretell.api.traced_models",
}
"""Public name -> the module that has it; docs/stability.md says what may change about them."""
_VIEWS = "foretell.report.notebook"
"""What shows answers."""
_DEPRECATED = {"sensitivities": ("sensitivity", "foretell.studies.sensitivity", "0.12", "0.14")}
"""Old name -> the new one, the module that has the old one, since when, and when it is removed."""
__all__ = ["__version__", *_WHERE]  # noqa: PLE0604 - names are loaded on use

if TYPE_CHECKING:
    from foretell.api.cost_questions import cost as cost
    from foretell.api.diagnose import diagnose as diagnose
    from foretell.api.fleet import fleet as fleet
    from foretell.api.improve import improve as improve
    from foretell.api.launches import read_launch as read_launch
    from foretell.api.network import network as network
    from foretell.api.post_training import post_train as post_train
    from foretell.api.serving import serve as serve
    from foretell.api.size import size as size
    from foretell.api.traced_models import trace as trace
    from foretell.api.training import compare_plans as compare_plans
    from foretell.api.training import estimate as estimate
    from foretell.api.training import explain as explain
    from foretell.api.training import memory as memory
    from foretell.api.training import search as search
    from foretell.api.training import simulate as simulate
    from foretell.catalog import chip as chip
    from foretell.catalog import model as model
    from foretell.catalog import system as system
    from foretell.errors import BadInput as BadInput
    from foretell.errors import Infeasible as Infeasible
    from foretell.lab.characterize.traces.run import characterize_trace as characterize_trace
    from foretell.lab.monitor import RunMonitor as RunMonitor
    from foretell.lab.versions.changes import version_changes as version_changes
    from foretell.specs.chip import Chip as Chip
    from foretell.specs.model import Model as Model
    from foretell.specs.plan import Plan as Plan
    from foretell.specs.plan import parse_plan as parse_plan
    from foretell.specs.system import System as System
    from foretell.studies.procurement.buy import buy as buy
    from foretell.studies.procurement.compare import compare as compare
    from foretell.studies.scaling.run import scaling as scaling
    from foretell.studies.sensitivity import sensitivity as sensitivity
    from foretell.studies.sweep.codesign import codesign as codesign
    from foretell.studies.sweep.optimise import optimise as optimise
    from foretell.studies.sweep.run import sweep as sweep


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    from importlib import import_module

    if name in _DEPRECATED:
        from foretell.errors import warn_deprecated

        new, module, since, removed_in = _DEPRECATED[name]
        warn_deprecated(f"foretell.{name}", f"foretell.{new}", since=since, removed_in=removed_in)
        return getattr(import_module(module), name)
    if name not in _WHERE:
        raise AttributeError(f"module 'foretell' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def answer_views() -> Any:
    """The module that shows answers as text, HTML and data frames (foretell.records.Answer asks for it)."""
    from importlib import import_module

    return import_module(_VIEWS)


class _Package(ModuleType):
    """The package, in which `estimate` and the like stay functions although modules bear their names."""

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a submodule binds it to its package; these names belong to the functions.
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
