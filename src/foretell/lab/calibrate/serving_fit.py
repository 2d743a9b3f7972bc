"""Engine profiles and measured serving results: fits to rows, and profiles that owe nothing to a row.

What a fit moves are a few overheads of an engine: gaps, factor and floor of steps with prompts, fixed
latencies. Kernels, collectives and memory rules are not touched. The loss is Cauchy's on
ln(predicted / measured), each metric in its own unit of error, with a weak pull to where a fit begins, so
that what rows do not tell stays as it is.

A group is a model on a chip under an engine. Where a group or a model is left out, its rows under load are
predicted by a profile fitted to all others, each group counting as one however many rows it has, those of the
same engine a little more; its static batches and offline maxima by the same profile fitted to its others.
`catalog/engines_left_out.toml` has what prompts take by profiles that were fitted without one model (2026);
what decode steps take is one number for all engines, which no single group moves by more than 6 %.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.engines import profiles, usual
from foretell.catalog.files import ROOT, read_table, toml_value
from foretell.errors import BadInput
from foretell.lab.calibrate.serving_arguments import LOADED, UnsupportedRow
from foretell.lab.calibrate.serving_cases import (
    ServingCase,
    case_of,
    in_their_unit,
    measured_figures,
    predicted_all,
)
from foretell.lab.calibrate.serving_rows import ServingRow
from foretell.records import dataclass
from foretell.serving.engine_options import with_options
from foretell.specs.arrays import Array
from foretell.specs.engine import EngineProfile

ProfileOf = Callable[[ServingCase], EngineProfile]
"""The profile that a row is predicted by."""
MOVED: Mapping[str, tuple[float, float, float]] = {
    "host_step_s": (0.0, 4e-3, 4e-4),
    "host_sequence_s": (0.0, 4e-5, 3e-6),
    "layer_s": (0.0, 6e-5, 4e-6),
    "gap_s": (0.0, 3e-6, 2e-7),
    "exchange_s": (0.0, 4e-5, 2e-6),
    "eager_layer_s": (0.0, 2e-3, 1e-4),
    "eager_sequence_s": (0.0, 2e-3, 1e-4),
    "prefill_factor": (1.0, 2.5, 0.1),
    "launch_s": (0.0, 1.5e-4, 1e-5),
    "prefill_step_s": (0.0, 2e-2, 3e-3),
    "latency_s": (0.0, 0.1, 8e-3),
    "latency_s_per_token": (0.0, 2e-5, 2e-6),
}
"""Field -> least, most, and how far it lightly leaves its start."""
LOOP = (
    "gap_s", "prefill_factor", "launch_s", "prefill_step_s", "latency_s", "latency_s_per_token",
)  # fmt: skip
"""What is moved for engines under load."""
STATIC: Mapping[str, tuple[str, ...]] = {
    "trtllm-0.17": ("host_step_s", "host_sequence_s", "prefill_factor"),
    "trtllm-0.5": ("host_step_s", "prefill_factor", "launch_s"),
    "vllm-2023": ("eager_layer_s", "eager_sequence_s", "prefill_factor", "exchange_s"),
    "nemo-2023": ("layer_s", "exchange_s"),
    "torch-2.11": ("prefill_factor",),
}
"""Profile of static batches and offline maxima -> what is moved."""
UNIT: Mapping[str, float] = {
    "tpot": 0.04, "ttft": 0.06, "ttft_mean": 0.12, "e2e": 0.05, "throughput": 0.06,
}  # fmt: skip
"""Error of a metric that counts as one."""
PULL = 1.0
"""Weight of the pull to the start."""
FIRM = 4.0
"""Weight of the pull in a fit to other groups: versions and chips differ more than their rows tell."""
OWN, OTHER = 3.0, 2.0
"""Weight of all rows of a group together where another group is predicted by them: of the same engine, and
of another one. Rows of a group tell one thing about other groups, however many they are."""
EVALS = 10
"""Most steps of a fit."""
LEAST = 1e-3
"""Values below this share of their scale are none."""
FITTED_SOURCES = (
    "ai-dynamo/aiconfigurator", "NVIDIA/TensorRT-LLM", "Mutinifni/splitwise-sim", "single H200",
)  # fmt: skip
"""Sources that the catalogue's profiles were fitted to, as tables begin to name them."""
Overheads = Mapping[tuple[str, str], Mapping[str, float]]
"""(model, profile) -> overheads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitErrors:
    """ln(predicted / measured) of rows, and what they are of."""

    metric: tuple[str, ...]
    """Metric of each."""
    error: Array
    """The logarithms."""
    case: NDArray[np.intp]
    """Place of each one's row among the rows asked for."""

    def median(self, metric: str) -> float | None:
        """Median of |predicted / measured - 1|; None of no rows."""
        mine = np.array([name == metric for name in self.metric], bool)
        return float(np.median(np.abs(np.expm1(self.error[mine])))) if mine.any() else None


def cases_of(rows: Sequence[ServingRow]) -> list[ServingCase]:
    """Rows that can be understood and have something to be held against."""
    found = []
    for row in rows:
        try:
            case = case_of(row)
        except (UnsupportedRow, BadInput):
            continue
        if measured_figures(row):
            found.append(case)
    return found


def targets(row: ServingRow) -> dict[str, float]:
    """What a row is fitted to: first and further tokens; the whole, and rates under load, follow."""
    told = {name: value for name, value in measured_figures(row).items() if name in UNIT}
    if "ttft" in told and "tpot" in told:
        told.pop("e2e", None)
    if row.kind in LOADED and len(told) > 1:
        told.pop("throughput", None)
    return told


def errors_of(cases: Sequence[ServingCase], profile: EngineProfile) -> FitErrors:
    """Errors of all rows under one profile."""
    names: list[str] = []
    errors: list[float] = []
    places: list[int] = []
    found = predicted_all(cases, lambda case: with_options(profile, case.deployment))
    for place, (case, figures) in enumerate(zip(cases, found, strict=True)):
        ours = in_their_unit(case, figures)
        for name, value in targets(case.row).items():
            if name in ours:
                names.append(name)
                errors.append(float(np.log(ours[name] / value)))
                places.append(place)
    return FitErrors(
        metric=tuple(names), error=np.array(errors), case=np.array(places, dtype=np.intp)
    )


def fit_profile(
    start: EngineProfile,
    cases: Sequence[ServingCase],
    names: Sequence[str],
    pull: float = PULL,
    weights: Array | None = None,
) -> EngineProfile:
    """The profile that meets the rows best, each with its weight."""
    from scipy.optimize import least_squares

    low, high, scale = (np.array([MOVED[name][i] for name in names]) for i in range(3))
    first = np.clip([getattr(start, name) for name in names], low, high)

    def at(x: Array) -> EngineProfile:
        return replace(start, **dict(zip(names, (x * scale).tolist(), strict=True)))

    def residuals(x: Array) -> Array:
        found = errors_of(cases, at(x))
        loss = found.error / np.array([UNIT[name] for name in found.metric])
        # Beyond one by the logarithm: a few strange rows do not turn a fit.
        loss = np.sign(loss) * np.sqrt(np.log1p(loss**2))
        loss = loss if weights is None else loss * weights[found.case]
        return np.concatenate([loss, pull * (x - first / scale)])

    found = least_squares(
        residuals,
        first / scale,
        bounds=(low / scale, high / scale),
        diff_step=1e-3,
        max_nfev=EVALS,
    )
    # What ends at its bound of nothing is nothing.
    return at(np.where(np.abs(found.x) < LEAST, 0.0, found.x))


def profiles_without(cases: Sequence[ServingCase], key: Callable[[ServingCase], str]) -> ProfileOf:
    """Profiles of rows, each fitted to the rows that do not share its key: its group, or its model."""
    known: dict[tuple[str, str, bool], EngineProfile | None] = {}

    def place(case: ServingCase) -> tuple[str, str, bool]:
        return key(case), case.profile.id, case.row.kind in LOADED

    for case in cases:
        if place(case) not in known and case.prefill is None:
            rest = [one for one in cases if key(one) != key(case)]
            known[place(case)] = fitted_to_others(case, rest)
    return lambda case: known.get(place(case)) or case.profile


def fitted_to_others(case: ServingCase, rest: Sequence[ServingCase]) -> EngineProfile | None:
    """A row's profile fitted to other rows of its kind; None where nothing is left to fit it to."""
    name, loaded = case.profile.id, case.row.kind in LOADED
    rest = [one for one in rest if (one.row.kind in LOADED) == loaded]
    if not loaded:
        rest = [one for one in rest if one.profile.id == name]
        return fit_profile(case.profile, rest, STATIC[name]) if rest and name in STATIC else None
    if not rest:
        return None
    many = Counter(one.group for one in rest)
    engine = case.profile.engine
    weights = [
        (OWN if one.profile.engine == engine else OTHER) / np.sqrt(many[one.group]) for one in rest
    ]
    return fit_profile(usual(case.profile), rest, LOOP, FIRM, np.array(weights))


@lru_cache(maxsize=1)
def left_out_overheads() -> Overheads:
    """(model, profile) -> overheads of that profile, fitted without the model."""
    return {
        (entry["model"], entry["profile"]): entry["overheads"]
        for entry in read_table(ROOT / "engines_left_out.toml")["left_out"]
    }


def left_out_profile_of() -> ProfileOf:
    """A row's profile without its model, as the catalogue has it; else its own."""
    known = left_out_overheads()

    def found(case: ServingCase) -> EngineProfile:
        values: Mapping[str, Any] | None = known.get((case.model.id, case.profile.id))
        return replace(case.profile, **values) if values and is_own(case) else case.profile

    return found


def without_source() -> ProfileOf:
    """A row's profile without its source: without its model where the catalogue was fitted to that source,
    and the catalogue's own elsewhere, which owes nothing to it."""
    apart = left_out_profile_of()
    return lambda case: apart(case) if case.row.source.startswith(FITTED_SOURCES) else case.profile


def is_own(case: ServingCase) -> bool:
    """Whether a row has its profile as it was fitted, not carried over to other chips or kinds of models."""
    known = profiles().get(case.profile.id)
    if known is None:
        return False
    # Limits are those of the card.
    plain = replace(
        case.profile, release="", max_batch=known.max_batch, max_tokens=known.max_tokens
    )
    return with_options(known, case.deployment) == plain


def is_held_out(case: ServingCase) -> bool:
    """Whether a row's prediction owes nothing to its own model: left out, or never part of a fit.

    A profile that was fitted, and has no fit without any of its models, has seen the one that it has rows of.
    """
    seen = any(profile == case.profile.id for _, profile in left_out_overheads())
    return seen or not is_own(case) or case.profile.fit.rows == 0


def profiles_text(found: Mapping[str, EngineProfile]) -> str:
    """The profiles as the catalogue's file has them: what is not at its default."""
    lines = [
        "# Engine profiles: what of a step, of the memory and of the waiting belongs to a serving engine.",
        "# Seconds and bytes. Fitted values are written by foretell.lab.calibrate.serving_fit.",
    ]
    default = {f.name: f.default for f in fields(EngineProfile)}
    for profile in found.values():
        lines += ["", "[[profile]]"]
        for name, value in asdict(profile).items():
            if name == "fit" or value == default[name]:
                continue
            shown = float(f"{value:.4g}") if isinstance(value, float) else value
            lines.append(f"{name} = {toml_value(shown)}")
        lines.append("[profile.fit]")
        told = {k: v for k, v in asdict(profile.fit).items() if v is not None}
        lines += [f"{name} = {toml_value(value)}" for name, value in told.items()]
    return "\n".join(lines) + "\n"
