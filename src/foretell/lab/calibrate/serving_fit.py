"""Fit engine profiles to measured serving results; judge them with whole groups left out; write them down.

What a fit moves are a few overheads of an engine: host time, factor and floor of steps with prompts, fixed
latencies. Kernels, collectives and memory rules are not touched. The loss is Cauchy's on
ln(predicted / measured), each metric in its own unit of error, with a weak pull to where a fit begins, so
that what rows do not tell stays as it is.

A group is a model on a chip under an engine. Left out, its rows are predicted by a profile fitted to all
other groups, each counting as one however many rows it has, those of the same engine a little more.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.engines import profiles, usual
from foretell.catalog.files import toml_value
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
from foretell.serving.evidence import layout_of
from foretell.specs.engine import EngineProfile, Fit

Array = NDArray[np.float64]

MOVED: Mapping[str, tuple[float, float, float]] = {
    "host_step_s": (0.0, 4e-3, 4e-4),
    "host_sequence_s": (0.0, 4e-5, 3e-6),
    "layer_s": (0.0, 6e-5, 4e-6),
    "gap_s": (-1e-6, 3e-6, 2e-7),
    "latent_layer_s": (0.0, 6e-5, 1e-5),
    "exchange_s": (0.0, 4e-5, 2e-6),
    "eager_layer_s": (0.0, 2e-3, 1e-4),
    "eager_sequence_s": (0.0, 2e-3, 1e-4),
    "prefill_factor": (1.0, 2.5, 0.1),
    "launch_s": (0.0, 1.5e-4, 1e-5),
    "prefill_step_s": (0.0, 2e-2, 3e-3),
    "latency_s": (0.0, 0.1, 8e-3),
    "latency_s_per_token": (0.0, 2e-5, 2e-6),
    "expert_layer_s": (0.0, 6e-5, 1e-5),
    "first_use_s": (0.0, 8.0, 0.5),
}
"""Field -> least, most, and how far it lightly leaves its start."""
LOOP = (
    "host_step_s", "host_sequence_s", "gap_s", "exchange_s", "prefill_factor", "launch_s",
    "prefill_step_s",
    "latency_s", "latency_s_per_token", "expert_layer_s",
)  # fmt: skip
"""What is moved for engines under load: times of the host and of launching. A factor on the experts' kernels
would stand for the one model that a profile has seen, and its formats."""
FITTED: Mapping[str, tuple[str, ...]] = {
    "trtllm-1-blackwell": LOOP,
    "vllm-0.11-blackwell": LOOP,
    "vllm-0.18-hopper": LOOP,
    "vllm-0.18-blackwell": LOOP,
    "vllm-0.18-cdna4": ("launch_s", "latency_s", "latency_s_per_token", "prefill_factor"),
    "trtllm-1.2-blackwell": (*LOOP, "latent_layer_s"),
    "sglang-0.5-blackwell": (*LOOP, "first_use_s"),
    "sglang-0.5-cdna4": (*LOOP, "first_use_s"),
    "trtllm-1-hopper": (*LOOP, "first_use_s"),
    "sglang-0.5-hopper": (*LOOP, "first_use_s"),
    "trtllm-0.17": ("host_step_s", "host_sequence_s", "prefill_factor"),
    "trtllm-0.5": ("host_step_s", "prefill_factor", "launch_s"),
    "vllm-2023": ("eager_layer_s", "eager_sequence_s", "prefill_factor", "exchange_s"),
    "nemo-2023": ("layer_s", "exchange_s"),
    "torch-2.11": ("prefill_factor",),
}
"""Profile -> what is moved."""
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
EVALS, FINAL_EVALS = 10, 25
"""Most steps of a fit that is left out, and of one that is kept."""
LEAST = 1e-3
"""Values below this share of their scale are none."""
RATES = ("prefill_tokens_per_gpu_s", "decode_tokens_per_gpu_s")
"""Kinds of instances that do one of both alone, mostly wide ones."""


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
    return errors_under(cases, lambda case: with_options(profile, case.deployment))


def errors_under(
    cases: Sequence[ServingCase], profile: Callable[[ServingCase], EngineProfile]
) -> FitErrors:
    """Errors of all rows, each under a profile of its own."""
    names: list[str] = []
    errors: list[float] = []
    places: list[int] = []
    found = predicted_all(cases, profile)
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
    evals: int | None = None,
) -> EngineProfile:
    """The profile that meets the rows best, each with its weight."""
    from scipy.optimize import least_squares

    low, high, scale = (np.array([MOVED[name][i] for name in names]) for i in range(3))
    first = np.clip([getattr(start, name) for name in names], low, high)

    def at(x: Array) -> EngineProfile:
        return replace(start, **dict(zip(names, (x * scale).tolist(), strict=True)))

    def residuals(x: Array) -> Array:
        found = errors_of(cases, at(x))
        loss = loss_of(found) if weights is None else loss_of(found) * weights[found.case]
        return np.concatenate([loss, pull * (x - first / scale)])

    found = least_squares(
        residuals,
        first / scale,
        bounds=(low / scale, high / scale),
        diff_step=1e-3,
        max_nfev=evals or EVALS,
    )
    # What ends at its bound of nothing is nothing.
    return at(np.where(np.abs(found.x) < LEAST, 0.0, found.x))


def loss_of(found: FitErrors) -> Array:
    """Errors in their units; beyond one by the logarithm: a few strange rows do not turn a fit."""
    loss = found.error / np.array([UNIT[name] for name in found.metric])
    return np.asarray(np.sign(loss) * np.sqrt(np.log1p(loss**2)))


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


def fits_profile(case: ServingCase) -> bool:
    """Whether a row is one that profiles are fitted to: the profile as the catalogue has it, no drafts, one
    pool; rates of instances that do prefill or decode alone are predicted, not fitted."""
    own = is_own(case)
    plain = case.prefill is None and not case.deployment.draft_tokens
    return own and plain and case.row.kind not in RATES


def fit_all(
    cases: Sequence[ServingCase], left_out: Callable[[ServingCase], EngineProfile]
) -> dict[str, EngineProfile]:
    """Every profile fitted to its rows, with its errors and those of `left_out` profiles on the same rows.

    Under load all begin at what is usual, so that what rows do not tell is that.
    """
    found: dict[str, EngineProfile] = {}
    for name, start in profiles().items():
        mine = [c for c in cases if c.profile.id == name and fits_profile(c)]
        if not mine or name not in FITTED:
            found[name] = start
            continue
        loaded = any(case.row.kind in LOADED for case in mine)
        begin = usual(start) if loaded else start
        fitted = fit_profile(begin, mine, FITTED[name], evals=FINAL_EVALS)
        told, out = errors_of(mine, fitted), errors_under(mine, left_out)
        found[name] = replace(
            fitted,
            layouts=tuple(sorted({layout_of(c.deployment, c.system) for c in mine})),
            fit=Fit(
                rows=len(mine),
                tpot_ape=round_error(told.median("tpot")),
                ttft_ape=round_error(told.median("ttft")),
                throughput_ape=round_error(told.median("throughput") or told.median("e2e")),
                left_out_tpot_ape=round_error(out.median("tpot")) if loaded else None,
                left_out_ttft_ape=round_error(out.median("ttft")) if loaded else None,
            ),
        )
    return found


def left_out_profile(case: ServingCase, group: str, loaded: Sequence[ServingCase]) -> EngineProfile:
    """A row's profile fitted without its group, to all other groups, each as one."""
    rest = [one for one in loaded if one.group != group]
    many = Counter(one.group for one in rest)
    engine = case.profile.engine
    weights = [
        (OWN if one.profile.engine == engine else OTHER) / np.sqrt(many[one.group]) for one in rest
    ]
    return fit_profile(usual(case.profile), rest, LOOP, FIRM, np.array(weights))


def round_error(value: float | None) -> float | None:
    """Four digits are enough of an error."""
    return None if value is None else round(value, 4)


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
