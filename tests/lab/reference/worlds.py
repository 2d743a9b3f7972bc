"""Random jobs for the property tests, far beyond the published ones."""

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from foretell.lab.reference import STRATEGIES, Quirks, StudyChip, StudyModel
from foretell.lab.reference.check import MAX_FAST_DOMAIN
from foretell.lab.reference.rows import Row
from tests.lab.reference.scalar_oracle import Oracle, divisors


@dataclass(frozen=True)
class World:
    """One plan of one job."""

    model: StudyModel
    chip: StudyChip
    strategy: str
    nvs: int
    gbs: int
    quirks: Quirks
    plan: dict[str, int]

    def oracle(self) -> Oracle:
        return oracle_of(
            self.model, self.chip, self.strategy, self.nvs, self.gbs, quirks=self.quirks
        )

    def question(self) -> dict[str, Any]:
        """Keyword arguments of `evaluate`."""
        return {
            "model": self.model,
            "strategy": self.strategy,
            "chip": self.chip,
            "fast_domain": self.nvs,
            "global_batch": self.gbs,
            "quirks": self.quirks,
        }


def oracle_of(
    model: StudyModel, chip: StudyChip, strategy: str, nvs: int, gbs: int, quirks: Quirks
) -> Oracle:
    """The scalar oracle for records of the package."""
    sizes = {"l": model.seq_len, "e": model.embed, "h": model.heads, "L": model.layers}
    figures = {
        "matrix": chip.matrix_flop_per_s,
        "vector": chip.vector_flop_per_s,
        "hbm_bw": chip.hbm_bytes_per_s,
        "nvlink": chip.fast_bytes_per_s,
        "ib": chip.slow_bytes_per_s,
        "eff": chip.compute_efficiency,
        "launch": chip.launch_s,
        "link_eff": chip.link_efficiency,
        "lat_fast": chip.fast_latency_s,
        "lat_slow": chip.slow_latency_s,
        "nics": chip.nics_per_gpu,
    }
    switches = {name: getattr(quirks, name) for name in Quirks.names()}
    causal: dict[str, Any] = {**sizes, "causal": model.causal}
    return Oracle(causal, figures, strategy, nvs, gbs, switches)


def row_of(plan: dict[str, int], strategy: str) -> Row:
    """An oracle's plan as the columns that `evaluate` reads."""
    row: Row = {name: plan[name] for name in ("dp", "pp", "nv_dp", "nv_pp")}
    row["mbs"] = plan["b"]
    if strategy == "1d":
        return row | {"tp": plan["m1"], "nv_tp": plan["t1"]}
    row |= {"tp1": plan["m1"], "tp2": plan["m2"], "nv_tp1": plan["t1"], "nv_tp2": plan["t2"]}
    return row | ({"nb": plan["nb"]} if strategy == "2d" else {})


def decades(low: float, high: float) -> st.SearchStrategy[float]:
    """A float spread evenly over its powers of ten."""
    return st.floats(low, high).map(lambda power: 10.0**power)


def chips() -> st.SearchStrategy[StudyChip]:
    return st.builds(
        StudyChip,
        name=st.just("random"),
        matrix_flop_per_s=decades(13, 16),
        vector_flop_per_s=decades(12, 15),
        hbm_bytes_per_s=decades(10.5, 13),
        hbm_bytes=decades(10, 12),
        fast_bytes_per_s=decades(9.5, 12.5),
        slow_bytes_per_s=decades(9.5, 12),
        compute_efficiency=st.floats(0.1, 1),
        launch_s=st.sampled_from([0.0, 20e-6]),
        link_efficiency=st.floats(0.1, 1),
        fast_latency_s=st.sampled_from([0.0, 2.5e-6]),
        slow_latency_s=st.sampled_from([0.0, 5e-6]),
        nics_per_gpu=st.sampled_from([1.0, 0.5, 2.0]),
    )


def quirk_sets() -> st.SearchStrategy[Quirks]:
    """As published as often as any mixture."""
    mixed = st.builds(Quirks, **{name: st.booleans() for name in Quirks.names()})
    return st.one_of(st.just(Quirks()), mixed)


CHIPS, QUIRK_SETS = chips(), quirk_sets()
"""Made once: to make a strategy takes longer than to draw from it."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A plan, legal in the published search or not: odd sizes, few microbatches, inexact shares."""
    strategy = draw(st.sampled_from(STRATEGIES))
    heads = draw(st.sampled_from([4, 12, 16, 60, 64]))
    model = StudyModel(
        name="random",
        seq_len=draw(st.one_of(st.integers(64, 70000), st.sampled_from([2048, 64800]))),
        embed=heads * draw(st.sampled_from([16, 64, 96, 160])),
        heads=heads,
        layers=draw(st.sampled_from([1, 6, 12, 48, 128])),
        causal=draw(st.booleans()),
        samples=1e6,
    )
    m1 = draw(st.sampled_from(divisors(heads)))
    m2 = 1 if strategy == "1d" else draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    pp = draw(st.sampled_from(divisors(model.layers)))
    dp = draw(st.integers(1, 24))
    b = draw(st.sampled_from([1, 2, 3, 8]))
    groups = {"t1": m1, "t2": m2, "nv_dp": dp, "nv_pp": pp}
    if draw(st.booleans()):
        inside = {name: draw(st.sampled_from(divisors(group))) for name, group in groups.items()}
        nvs = inside["t1"] * inside["t2"] * inside["nv_dp"] * inside["nv_pp"]
    else:
        inside, nvs = groups, m1 * m2 * dp * pp + draw(st.integers(0, 3))
    assume(nvs <= MAX_FAST_DOMAIN)
    nb = draw(st.sampled_from([1, 2, 5, 16])) if strategy == "2d" else 1
    spare = draw(st.integers(0, dp * b - 1))
    return World(
        model=model,
        chip=draw(CHIPS),
        strategy=strategy,
        nvs=nvs,
        gbs=dp * b * draw(st.sampled_from([1, 2, 7, 64, 512])) + spare,
        quirks=draw(QUIRK_SETS),
        plan={"m1": m1, "m2": m2, "pp": pp, "dp": dp, "b": b, "nb": nb, **inside},
    )
