"""What a served number rests on, and where it may lie.

`fitted`: the engine's profile was read from rows of this kind of model, this generation of chips and this
kind of layout. `transferred`: anything of that is new to it. Either way intervals are as wide as the errors
of rows whose own model was left out of the fit (catalog/serving_spreads.py), since a model that is asked
about is mostly new.
"""

from typing import Literal

import numpy as np

from foretell.catalog.engines import knows_kind
from foretell.catalog.serving_spreads import APART, FOREIGN, spread_for
from foretell.kernels.families.choose import choose
from foretell.serving.formats import mixture_of
from foretell.specs.chip import Chip
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.service import Interval
from foretell.specs.system import System

ServedEvidence = Literal["fitted", "transferred"]
"""What a served number rests on."""


def layout_of(d: Deployment, system: System) -> str:
    """The kind of a layout: tensor, experts (spread over tensor-parallel ranks), attention-dp, wide (over
    more than one domain of fast links, or by dispatch), stages."""
    if d.pp > 1:
        return "stages"
    if d.stage > float(system.network.tiers[0].size):
        return "wide"
    if d.dp > 1 or d.cp > 1:
        return "attention-dp"
    return "experts" if d.ep > 1 else "tensor"


def evidence_for(
    profile: EngineProfile, model: Model, system: System, deployment: Deployment
) -> ServedEvidence:
    """fitted where the profile has seen the kind of model, the generation of chips and the kind of layout."""
    chip = not profile.architectures or system.chip.architecture in profile.architectures
    kind = knows_kind(profile, mixture=mixture_of(model))
    layout = not profile.layouts or layout_of(deployment, system) in profile.layouts
    return "fitted" if chip and kind and layout and profile.fit.rows else "transferred"


def residual_class(
    profile: EngineProfile,
    model: Model,
    system: System,
    deployment: Deployment,
    *,
    apart: bool = False,
) -> str:
    """Whose residuals an interval is made of: `fitted`; `near`, where the generation of chips was seen and
    the kind of model or layout was not; `far`; `foreign`, on chips without tables; `disaggregated`, prefill
    and decode apart."""
    if is_foreign(profile, system.chip):
        return FOREIGN
    if apart:
        return APART
    if evidence_for(profile, model, system, deployment) == "fitted":
        return "fitted"
    seen = not profile.architectures or system.chip.architecture in profile.architectures
    return "near" if seen else "far"


def is_foreign(profile: EngineProfile, chip: Chip) -> bool:
    """Whether no product was measured on the chip, and the profile has seen none like it: its generation,
    with stacked memory as the chips of services have."""
    like = chip.architecture in profile.architectures and bool(
        np.all(np.asarray(chip.memory_stacks) > 0)
    )
    return not like and choose(chip, "gemm", "bf16").foreign


def kind_of_model(model: Model) -> str:
    """dense or mixture."""
    return "mixture" if mixture_of(model) else "dense"


def interval_of(value: float, model: Model, residuals: str, metric: str) -> Interval:
    """p50 and p90 of a figure, by rows of models that were left out, of one class of residuals."""
    found = spread_for(kind_of_model(model), residuals, metric)
    return {
        name: (float(value * np.exp(-half)), float(value * np.exp(half)))
        for name, half in (("p50", found.p50), ("p90", found.p90))
    }
