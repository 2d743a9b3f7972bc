"""The prior of measured runs, learnt from published tables.

    python -m foretell.lab.calibrate.prior_fit FILE ...

Every row is predicted with its source left out of the software's values, with its slopes to every mechanism.
From each source some runs are drawn, and others of it to predict them from: none, one and three, as a user
would have them. The prior is the one under which what was measured is most probable, with the distance of
the prediction counted besides, each source counting alike; a pull to round numbers keeps what few sources
speak of where it was. Then the same without one source after the other (a few at a time), and the
scale at which nine tenths of the sources left out lie in their intervals. Needs torch, for gradients.

Writes catalog/measured_priors.toml. To be run again whenever a change moves predictions.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from foretell.catalog.measured_priors import MeasuredPrior
from foretell.lab.calibrate.prior_file import text_of, write_table
from foretell.lab.validate.held_out import LeftOut
from foretell.lab.validate.training import RunPrediction, prediction_of, source_label
from foretell.lab.validate.training_rows import read_rows
from foretell.records import dataclass
from foretell.specs.corrections import SERVING, TRAINING
from foretell.training.corrections import step_slopes
from foretell.uncertainty.likeness import (
    DEGREES,
    NAMES,
    SIZES,
    SWITCHES,
    TRAITS,
    WIDTH,
    features_of,
    traits_of,
)
from foretell.uncertainty.posterior import MeasuredRun, condition

Sources = dict[str, list[MeasuredRun]]
"""Source -> its runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitShape:
    """What a prior is made of."""

    kind: str
    """training or serving: the order of slopes."""
    groups: Mapping[str, tuple[str, ...]]
    """Mechanisms that have a spread in common."""
    own: tuple[int, ...]
    """Of each group, which of three shares of its spread is a run's own."""
    steps: tuple[tuple[str, ...], ...]
    """Features that are numbers; those of a tuple count alike."""
    names: tuple[str, ...]
    """Features that are names."""
    traits: tuple[str, ...]
    """What makes a run doubtful."""
    spread: tuple[float, ...]
    """Where the fit sets out: the spread of each group."""
    part: tuple[str, ...]
    """Mechanisms that are far off together in a few places."""
    doubt_power: float
    """Whether doubt is of a run's mechanisms too (1) or only of what is beside them (0)."""
    start: Mapping[str, Any]
    """Where else the fit sets out, in the place of START and of what is usual."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(name for group in self.groups.values() for name in group)

    @property
    def numbers(self) -> tuple[str, ...]:
        """All features that are numbers."""
        return tuple(name for group in self.steps for name in group)


SLOPES = {"training": TRAINING, "serving": SERVING}
"""Order of the slopes of each kind."""
TRAINING_FIT = FitShape(
    kind="training",
    groups={
        "kernels": ("gemm", "attention", "memory_bound"),
        "experts": ("experts",),
        "communication": (
            "tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel",
            "data_parallel", "inside_nodes", "between_nodes",
        ),
        "host": ("host",),
        "fixed": ("fixed",),
    },
    own=(0, 0, 1, 2, 2),
    steps=(SIZES, WIDTH, DEGREES, SWITCHES),
    names=NAMES,
    traits=TRAITS,
    spread=(0.06, 0.13, 0.17, 0.13, 0.15),
    part=("inside_nodes", "between_nodes"),
    doubt_power=1.0,
    start={
        "steps": [math.log(0.3), math.log(0.7), math.log(0.3), math.log(0.35)],
        "names": [math.log(0.45), math.log(0.55), math.log(1.2)],
        "doubt": [0.2, 0.5],
    },
)  # fmt: skip
"""Of training steps."""
START = {
    "row_share": [math.log(0.33), math.log(1.7), math.log(0.9)],
    "shared": math.log(0.02),
    "shared_wide": math.log(0.25),
    "wide": -1.0,
    "part_wide": math.log(0.33),
    "part": -0.2,
    "noise": math.log(0.02),
    "likeness": math.log(0.035),
    "carry": -1.7,
    "mean": 0.012,
    "near": math.log(0.15),
    "near_share": -0.2,
    "far": 1.3,
    "far_share": 0.1,
    "tidy": 0.75,
    "tidy_share": 0.85,
    "rough": 0.8,
    "rough_share": 0.0,
}
"""Round numbers from which the fit sets out, as logarithms, or logits of shares: near the middle of what fits
to different sources gave, which differ from each other by far more than their predictions do."""
MOST = {
    "wide": 0.15, "part": 0.15, "near_share": 0.25, "far_share": 0.08, "tidy_share": 0.8,
    "rough_share": 0.4,
}  # fmt: skip
"""Largest shares: an outlier in more than one case of ten would be no outlier, and would make the end of
every 90 % interval its own."""


def start_of(shape: FitShape) -> dict[str, Any]:
    """All numbers from which a fit sets out."""
    return {
        **START,
        "spread": [math.log(value) for value in shape.spread],
        "steps": [math.log(0.2)] * len(shape.steps),
        "names": [math.log(0.5)] * len(shape.names),
        "doubt": [0.0] * len(shape.traits),
        **shape.start,
    }


PULL, PULL_MEAN = 60.0, 1e6
"""How strongly the fit is held to them: thirty sources cannot tell thirty numbers, and a free fit to some of
them covers others badly. The mean is nearly given: a prediction stays what it is."""
ANCHORS = {0: 0.5, 1: 1.0, 3: 1.0}
"""Numbers of runs to predict from, and what each counts."""
DRAWS, FULL, FOLDS, CLOSE = 36, 10, 9, 0.05
"""Draws of a source, rows from which it counts in full, parts that are left out in turn, and the error that
counts as much as one unit of probability."""
WORSE = 3.0
"""What it counts besides that a source is further off with runs of it than without: a run must not hurt."""


def runs_of(paths: Sequence[Path]) -> Sources:
    """Every graded row of some tables, predicted without its source, with its slopes."""
    found: Sources = defaultdict(list)
    for path in paths:
        for row in read_rows(path):
            told = (
                prediction_of(row, LeftOut(sources=(row.source,))) if row.step_s or row.rate else ""
            )
            if not isinstance(told, str) and source_label(row) == row.source:
                found[row.source].append(run_of(told))
    return {source: runs for source, runs in found.items() if len(runs) > 1}


def run_of(told: RunPrediction) -> MeasuredRun:
    """A published run as the posterior sees it."""
    step_s, slopes = step_slopes(told.scenario, told.plan, TRAINING, np.zeros(len(TRAINING)))
    measured = told.measured_s
    return MeasuredRun(
        slopes=slopes,
        log_ratio=math.log(measured / step_s) if measured else 0.0,
        features=features_of(told.scenario, told.plan),
        traits=traits_of(told.plan),
    )


def anchors_of(
    runs: Sequence[MeasuredRun], target: int, many: int, random: np.random.Generator
) -> list[int]:
    """Other runs of a source: of the same model and chip where there are enough, else of the same chip, else
    any; fewer where the source has no more."""
    others = [i for i in range(len(runs)) if i != target]
    own = runs[target].features
    alike = [i for i in others if runs[i].features["chip"] == own["chip"]]
    same = [i for i in alike if runs[i].features["model"] == own["model"]]
    pool = next((p for p in (same, alike) if len(p) >= many), others)
    chosen = random.choice(len(pool), min(many, len(pool)), replace=False)
    return [pool[int(i)] for i in chosen]


def draws_of(sources: Sources, many: int, seed: int = 0) -> Iterator[tuple[list[int], str, float]]:
    """Rows of a source, what is predicted last, with the source and the weight of the draw."""
    random = np.random.default_rng(seed)
    for source, runs in sources.items():
        if len(runs) <= many:
            continue
        targets = random.permutation(len(runs))[:DRAWS].tolist()
        targets *= max(1, math.ceil(0.5 * DRAWS / len(targets)))
        weight = math.sqrt(min(len(runs), FULL) / FULL) / len(targets)
        for target in targets:
            yield [*anchors_of(runs, target, many, random), target], source, weight


def fit(draws: Sequence["Draws"], shape: FitShape) -> dict[str, Any]:
    """The numbers of a prior, as `start_of` has them, by gradient."""
    import torch

    torch.set_default_dtype(torch.float64)
    data = [(one.many, *_tensors(one, shape), one.share) for one in draws if one.runs]
    start = {name: torch.tensor(value) for name, value in start_of(shape).items()}
    told = {name: value.clone().requires_grad_(True) for name, value in start.items()}
    search = torch.optim.LBFGS(list(told.values()), max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Any:
        search.zero_grad()
        total: Any = 0.0
        for many, batch, weights, share in data:
            found, off = _scores(batch, told, shape, many)
            if many:
                found = found - torch.sqrt(off**2 + 1e-4) / CLOSE
            total = total - 10.0 * share * (weights * found).sum()
            if many:
                worse = off.abs() - (batch["ratio"][:, -1] - told["mean"]).abs()
                each = batch["source"] @ (weights * worse)
                total = total + 10.0 * share * WORSE * torch.relu(each).sum() / CLOSE
        for name, value in told.items():
            pull = PULL_MEAN if name == "mean" else PULL
            total = total + 0.5 * pull * ((value - start[name]) ** 2).sum()
        total.backward()
        return total

    search.step(loss)
    return {name: value.detach().numpy() for name, value in told.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Draws of runs, the last of each to be predicted from the others."""

    many: int
    """Runs to predict from."""
    share: float
    """What they count."""
    runs: tuple[tuple[MeasuredRun, ...], ...]
    """The runs of each draw."""
    weights: tuple[float, ...]
    """Its weight."""
    sources: tuple[str, ...]
    """Its source."""


def training_draws(sources: Sources) -> list[Draws]:
    """Draws of every number of runs to predict from."""
    found = []
    for many, share in ANCHORS.items():
        told = list(draws_of(sources, many))
        found.append(
            Draws(
                many=many,
                share=share,
                runs=tuple(tuple(sources[s][i] for i in chosen) for chosen, s, _ in told),
                weights=tuple(weight for _, _, weight in told),
                sources=tuple(source for _, source, _ in told),
            )
        )
    return found


def _tensors(draws: Draws, shape: FitShape) -> tuple[dict[str, Any], Any]:
    """Draws as arrays."""
    import torch

    rows, names = draws.runs, shape.names
    values = np.array(
        [[[r.features[n] for n in shape.numbers] for r in row] for row in rows], float
    )
    words = np.array([[[r.features[n] for n in names] for r in row] for row in rows], object)
    batch = {
        "ratio": np.array([[r.log_ratio for r in row] for row in rows]),
        "slopes": np.array([[r.slopes for r in row] for row in rows]),
        "traits": np.array([[[r.traits[t] for t in shape.traits] for r in row] for row in rows]),
        "steps": np.abs(values[:, :, None] - values[:, None]),
        "names": (words[:, :, None] != words[:, None]).astype(float),
        "source": (np.unique(draws.sources)[:, None] == np.array(draws.sources)).astype(float),
    }
    return {k: torch.tensor(v) for k, v in batch.items()}, torch.tensor(draws.weights)


def _scores(batch: dict[str, Any], told: dict[str, Any], shape: FitShape, many: int) -> Any:
    """Logarithm of the probability of what was measured, and its distance from the mean."""
    import torch

    shares = {name: most * torch.sigmoid(told[name]) for name, most in MOST.items()}
    share, far = shares["near_share"], shares["far_share"]
    none = torch.tensor(0.0)
    near_off = torch.exp(2.0 * told["near"])
    far_off = near_off * torch.exp(2.0 * told["far"].abs())
    kinds = [(none, 1 - share - far), (near_off, share), (far_off, far)]
    chosen = kinds if many <= 2 else [(none, 1 - far), (far_off, far)]
    doubt = torch.exp(2.0 * batch["traits"] @ told["doubt"])
    mean = told["mean"] * batch["slopes"].sum(2)
    rest, logs, centres, variances = batch["ratio"] - mean, [], [], []
    for whole, partly, scale, of_place in _places(told, shares, shape):
        common, own = (scale * v for v in _covariances(batch, told, shape, whole, partly))
        for case in product(chosen, repeat=many):
            log, centre, left = torch.log(of_place), 0.0 * rest[:, -1], common[:, -1, -1]
            if many:
                more = torch.stack([off for off, _ in case]) * scale * doubt[:, :-1]
                total = common[:, :-1, :-1] + torch.diag_embed(own[:, :-1] + more)
                root = torch.linalg.cholesky(total)
                seen = torch.stack([rest[:, :-1], common[:, :-1, -1]], 2)
                z = torch.linalg.solve_triangular(root, seen, upper=False)
                diagonal = torch.diagonal(root, dim1=1, dim2=2)
                log = log + sum(torch.log(p) for _, p in case)
                log = log - 0.5 * (z[..., 0] ** 2).sum(1) - torch.log(diagonal).sum(1)
                centre, left = (z[..., 0] * z[..., 1]).sum(1), left - (z[..., 1] ** 2).sum(1)
            for off, p in kinds:
                logs.append(log + torch.log(p) + 0.0 * centre)
                centres.append(centre)
                variances.append(left + own[:, -1] + off * scale * doubt[:, -1])
    weights = torch.log_softmax(torch.stack(logs, 1), 1)
    centres_, spread = torch.stack(centres, 1), torch.stack(variances, 1)
    gap = rest[:, -1:] - centres_
    found = torch.logsumexp(weights - 0.5 * gap**2 / spread - 0.5 * torch.log(spread), 1)
    off = (torch.exp(weights) * gap).sum(1)
    return found, off


def _places(
    told: dict[str, Any], shares: dict[str, Any], shape: FitShape
) -> list[tuple[float, float, Any, Any]]:
    """Kinds of places: far off as a whole, in part, factor on all variances, and share."""
    import torch

    wide, part = shares["wide"], shares["part"] if shape.part else torch.tensor(0.0)
    tidy, rough = shares["tidy_share"], shares["rough_share"]
    usual, one = 1.0 - wide - part, torch.tensor(1.0)
    found = [
        (0.0, 0.0, torch.exp(-2.0 * told["tidy"].abs()), usual * tidy),
        (0.0, 0.0, one, usual * (1.0 - tidy) * (1.0 - rough)),
        (0.0, 0.0, torch.exp(2.0 * told["rough"].abs()), usual * (1.0 - tidy) * rough),
        (1.0, 0.0, one, wide),
    ]
    return [*found, (0.0, 1.0, one, part)] if shape.part else found


def _covariances(
    batch: dict[str, Any], told: dict[str, Any], shape: FitShape, off: float, partly: float
) -> tuple[Any, Any]:
    """What the runs of a draw have in common, and what is each one's own; in a place that is `off` as a whole
    or in part."""
    import torch

    order = mechanism_order(shape)
    group = [i for i, held in enumerate(shape.groups.values()) for _ in held]
    spread = told["spread"][group][order]
    own_spread = spread + told["row_share"][[shape.own[g] for g in group]][order]
    slopes, whole = batch["slopes"], batch["slopes"].sum(2)
    many = [len(group) for group in shape.steps]
    weights = torch.repeat_interleave(torch.exp(told["steps"]), torch.tensor(many))
    near = torch.exp(-(batch["steps"] @ weights + batch["names"] @ torch.exp(told["names"])))
    carry = torch.sigmoid(told["carry"])
    common = (slopes * torch.exp(2.0 * spread)) @ slopes.transpose(1, 2)
    common = common * (carry + (1.0 - carry) * near)
    if partly:
        one = [SLOPES[shape.kind].index(name) for name in shape.part]
        some = torch.exp(2.0 * told["part_wide"]) * slopes[:, :, one]
        common = common + some @ slopes[:, :, one].transpose(1, 2)
    shared = torch.exp(2.0 * told["shared"]) + off * torch.exp(2.0 * told["shared_wide"])
    common = common + shared * whole[:, :, None] * whole[:, None, :]
    doubt = torch.exp(batch["traits"] @ told["doubt"])
    pairs = doubt[:, :, None] * doubt[:, None, :]
    common = common * pairs**shape.doubt_power + torch.exp(2.0 * told["likeness"]) * near * pairs
    own = torch.exp(2.0 * told["noise"]) + (slopes**2) @ torch.exp(2.0 * own_spread)
    return common, own * doubt**2


def mechanism_order(shape: FitShape) -> list[int]:
    """Place of each mechanism, in the order of slopes, among those of the groups."""
    return [shape.mechanisms.index(name) for name in SLOPES[shape.kind]]


def prior_of(told: dict[str, Any], shape: FitShape, interval_scale: float = 1.0) -> MeasuredPrior:
    """The fitted numbers as a prior."""

    def logistic(name: str) -> float:
        return _short(MOST.get(name, 1.0) * float(1.0 / (1.0 + np.exp(-told[name]))))

    spread: dict[str, float] = {}
    own: dict[str, float] = {}
    for i, names in enumerate(shape.groups.values()):
        wide = math.exp(told["spread"][i])
        spread |= dict.fromkeys(names, _short(wide))
        own |= dict.fromkeys(names, _short(wide * math.exp(told["row_share"][shape.own[i]])))
    steps = {n: told["steps"][i] for i, group in enumerate(shape.steps) for n in group}
    distance = {**steps, **dict(zip(shape.names, told["names"], strict=True))}
    near, tidy, rough = math.exp(told["near"]), logistic("tidy_share"), logistic("rough_share")
    return MeasuredPrior(
        spread=spread,
        row_spread=own,
        shared=_short(math.exp(told["shared"])),
        shared_wide=_short(math.exp(told["shared_wide"])),
        wide_share=logistic("wide"),
        part_wide=dict.fromkeys(shape.part, _short(math.exp(told["part_wide"]))),
        part_share=logistic("part") if shape.part else 0.0,
        noise=_short(math.exp(told["noise"])),
        likeness=_short(math.exp(told["likeness"])),
        carry=logistic("carry"),
        distance={name: _short(math.exp(value)) for name, value in distance.items()},
        mean=_short(float(told["mean"])),
        outliers=(
            (_short(near), logistic("near_share")),
            (_short(near * math.exp(abs(told["far"]))), logistic("far_share")),
        ),
        doubt={name: _short(float(told["doubt"][i])) for i, name in enumerate(shape.traits)},
        interval_scale=interval_scale,
        doubt_power=shape.doubt_power,
        place_scales=(
            (_short(math.exp(-abs(told["tidy"]))), _short(tidy)),
            (1.0, _short((1.0 - tidy) * (1.0 - rough))),
            (_short(math.exp(abs(told["rough"]))), _short((1.0 - tidy) * rough)),
        ),
    )


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def fold_priors(sources: Sources) -> dict[str, MeasuredPrior]:
    """Source -> the prior of the sources outside its part."""
    names = sorted(sources)
    found: dict[str, MeasuredPrior] = {}
    for part in range(FOLDS):
        left = names[part::FOLDS]
        rest = {source: runs for source, runs in sources.items() if source not in left}
        told = prior_of(fit(training_draws(rest), TRAINING_FIT), TRAINING_FIT)
        found |= dict.fromkeys(left, told)
    return found


def interval_scale(
    sources: Sources, priors: dict[str, MeasuredPrior], share: float = 0.9, seed: int = 1
) -> float:
    """The factor on deviations at which so many runs of sources left out lie in their intervals, over one and
    three runs to predict from; half by rows, half by sources, so that neither one table of thousands nor many
    of few rows decide alone."""
    ratios, by_source, by_row = [], [], []
    for many in (1, 3):
        for chosen, source, weight in draws_of(sources, many, seed):
            runs = sources[source]
            *known, target = (runs[i] for i in chosen)
            said = condition(priors[source], TRAINING, known).of(target)
            low, high = said.interval["p90"]
            gap = target.log_ratio - said.median
            ratios.append(gap / (high - said.median) if gap > 0 else gap / (low - said.median))
            by_source.append(weight)
            by_row.append(weight * len(runs))
    weights = np.array(by_source) / sum(by_source) + np.array(by_row) / sum(by_row)
    order = np.argsort(ratios)
    held = np.cumsum(weights[order]) / weights.sum()
    return _short(float(np.array(ratios)[order][int(np.searchsorted(held, share))]))


def main(paths: Sequence[str]) -> None:
    """Fit the prior of training to some tables and write it; other tables of the file stay."""
    from dataclasses import replace

    sources = runs_of([Path(path) for path in paths])
    without = fold_priors(sources)
    scale = interval_scale(sources, without)
    whole = prior_of(fit(training_draws(sources), TRAINING_FIT), TRAINING_FIT, scale)
    apart = {source: replace(prior, interval_scale=scale) for source, prior in without.items()}
    write_table("training", text_of("training", whole, apart))


if __name__ == "__main__":
    main(sys.argv[1:])
