"""What the 2024 study concludes, checked the same way in its own model and in ours."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foretell.lab.reference.tables import GPT, VIT, BestPlans
from foretell.lab.reproduce.records import Finding, verdict

Row = Mapping[str, Any]
OurDays = Mapping[tuple[str, str, int, int], Row]
"""Model, chip, domain and GPUs -> our row."""


def by_key(rows: Iterable[Row]) -> dict[tuple[str, str, int, int], Row]:
    """Our rows by what they answer."""
    return {(r["model"], r["chip"], r["nvs"], r["gpus"]): r for r in rows}


def our_days(ours: OurDays, model: str, chip: str, domain: int, gpus: int) -> float:
    """Days, infinite where nothing fits."""
    row = ours.get((model, chip, domain, gpus))
    found = row["days"] if row else None
    return float("inf") if found is None else float(found)


def _spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def days_findings(best: BestPlans, ours: OurDays) -> tuple[Finding, ...]:
    """Generations of chips and strong scaling."""
    counts = (1024, 4096, 16384)

    def generation(days: Any, model: str, first: str, second: str) -> list[float]:
        return [days(model, first, 8, n) / days(model, second, 8, n) for n in counts]

    def mine(model: str, chip: str, domain: int, gpus: int) -> float:
        return our_days(ours, model, chip, domain, gpus)

    theirs_b = generation(best.best, GPT, "A100", "B200")
    ours_b = generation(mine, GPT, "A100", "B200")

    def efficiency(days: Any, model: str) -> float:
        return float(days(model, "B200", 8, 1024) / days(model, "B200", 8, 16384) / 16)

    return (
        Finding(
            statement="A100 to B200 is 6.5 to 7.6 times faster for the GPT (domains of eight)",
            published=f"{_spread(theirs_b)} times",
            ours=f"{_spread(ours_b)} times",
            verdict=verdict(min(theirs_b) > 6.4, min(ours_b) > 6.4),
            why="B200 multiplies reach a smaller share of their peak than the flat 0.8 of the published "
            "model: kernels fitted to measurements, and the power limit, hold them back.",
        ),
        Finding(
            statement="strong scaling from 1,024 to 16,384 B200 is far from perfect for the GPT and nearly "
            "perfect for the ViT",
            published=f"efficiency {efficiency(best.best, GPT):.2f} and {efficiency(best.best, VIT):.2f}",
            ours=f"efficiency {efficiency(mine, GPT):.2f} and {efficiency(mine, VIT):.2f}",
            verdict="survives in part",
            why="The order survives. The published loss of the GPT is the bubble of plain 1F1B; ours "
            "interleaves stages and shards with ZeRO, so the GPT loses less.",
        ),
    )


def domain_findings(best: BestPlans, ours: OurDays) -> tuple[Finding, ...]:
    """What a larger fast domain is worth."""
    early, late = (1024,), 16384

    def gain(days: Any, model: str, gpus: int) -> float:
        return float(days(model, "B200", 4, gpus) / days(model, "B200", 64, gpus))

    def mine(model: str, chip: str, domain: int, gpus: int) -> float:
        return our_days(ours, model, chip, domain, gpus)

    gpt = [gain(best.best, GPT, n) for n in early]
    vit = [gain(best.best, VIT, n) for n in (1024, 4096, late)]
    our_gpt = [gain(mine, GPT, n) for n in early]
    our_vit = [gain(mine, VIT, n) for n in (1024, 4096, late)]
    return (
        Finding(
            statement="for the GPT the size of the fast domain matters at pre-training scale only",
            published=f"4 to 64 GPUs on B200: x{gpt[0]:.2f} at 1,024, "
            f"x{gain(best.best, GPT, late):.2f} at 16,384",
            ours=f"x{our_gpt[0]:.2f} at 1,024, x{gain(mine, GPT, late):.2f} at 16,384",
            verdict=verdict(gpt[0] < 1.05, our_gpt[0] < 1.05),
            why="In our model a domain of 64 lets ZeRO-3 and wide tensor parallelism replace the pipeline "
            "already at 1,024 GPUs, and a domain of four pays for tensor parallelism across nodes.",
        ),
        Finding(
            statement="for the long-sequence ViT it matters at every size",
            published=f"x{_spread(vit)} from 1,024 to 16,384",
            ours=f"x{_spread(our_vit)}",
            verdict=verdict(min(vit) > 1.2, min(our_vit) > 1.2),
            why="Ours shards states with ZeRO-3 and needs tensor and context groups of eight GPUs, where the "
            "published model needs 16 or more; and its kernels are slower, so that communication is a "
            "smaller share.",
        ),
    )


SAME_DAYS = 0.005
"""Days that differ by a smaller share are the same."""


def strategy_findings(best: BestPlans, ours: OurDays) -> tuple[Finding, ...]:
    """What two dimensions of tensor parallelism are worth."""
    counts = (1024, 4096, 16384)
    theirs = []
    for n in counts:
        one = best.days(GPT, "1d", "B200", 8, n)
        theirs.append((one or float("inf")) / best.best(GPT, "B200", 8, n) - 1)
    rows = [ours[VIT, "B200", 8, n] for n in counts if (VIT, "B200", 8, n) in ours]
    flat = [r["days_1d"] / r["days"] - 1 for r in rows if r["days_1d"] and r["days"]]
    gpt_rows = [ours[GPT, "B200", 8, n] for n in counts if (GPT, "B200", 8, n) in ours]
    gpt = [r["days_1d"] / r["days"] - 1 for r in gpt_rows if r["days_1d"] and r["days"]]
    return (
        Finding(
            statement="1-D tensor parallelism costs the GPT little",
            published=f"{100 * min(theirs):.0f} to {100 * max(theirs):.0f} % on B200",
            ours=f"{100 * min(gpt):.0f} to {100 * max(gpt):.0f} % against plans with a split sequence",
            verdict=verdict(max(theirs) < 0.12, max(gpt) < 0.12),
            why="Much of the published gap is overlap that only its SUMMA has (the best SUMMA plans mostly "
            "have one dimension), not a second dimension.",
        ),
        Finding(
            statement="the ViT cannot be trained with 1-D tensor parallelism at all",
            published="no 1-D plan fits on any of the nine systems",
            ours=f"1-D plans fit and cost {100 * min(flat):.1f} to {100 * max(flat):.1f} % more days on B200",
            verdict="does not survive",
            why="The published model stores gathered inputs and knows neither recomputation nor ZeRO-3. "
            + (
                "With them 1-D fits; that two dimensions are faster survives."
                if max(flat) > SAME_DAYS
                else "With them 1-D fits inside a domain of eight and is as fast as two dimensions."
            ),
        ),
    )


def map_findings(rows: Sequence[Row]) -> tuple[Finding, ...]:
    """Whether more memory, or faster memory, helps."""

    def ratio(model: str, side: str, low: tuple[float, float], high: tuple[float, float]) -> float:
        own = [r for r in rows if r["model"] == model and r["side"] == side and r["days"]]

        def near(point: tuple[float, float]) -> float:
            nearest = min(
                own,
                key=lambda r: (
                    abs(r["capacity_gb"] / point[0] - 1)
                    + abs(r["bandwidth_tb_per_s"] / point[1] - 1)
                ),
            )
            return float(nearest["days"])

        return near(high) / near(low)

    found = {
        (model, side, what): ratio(model, side, (192.0, 8.0), point)
        for model in (GPT, VIT)
        for side in ("published", "ours")
        for what, point in (("capacity", (384.0, 8.0)), ("bandwidth", (192.0, 16.0)))
    }

    def said(model: str, side: str) -> str:
        return (
            f"twice the capacity {found[model, side, 'capacity']:.2f}, "
            f"twice the bandwidth {found[model, side, 'bandwidth']:.2f} of the days"
        )

    def little(model: str, side: str) -> bool:
        return min(found[model, side, what] for what in ("capacity", "bandwidth")) > 0.93

    return (
        Finding(
            statement="memory capacity and bandwidth matter little for the GPT beyond the B200's",
            published=said(GPT, "published"),
            ours=said(GPT, "ours"),
            verdict=verdict(little(GPT, "published"), little(GPT, "ours")),
            why="Ours adds fp32 sums of gradients after every micro-batch, which move memory.",
        ),
        Finding(
            statement="the ViT gains from capacity",
            published=said(VIT, "published"),
            ours=said(VIT, "ours"),
            verdict=verdict(
                found[VIT, "published", "capacity"] < 0.9, found[VIT, "ours", "capacity"] < 0.9
            ),
            why="The published model needs capacity to use less tensor parallelism; ours can also shard "
            "states (ZeRO-3), and recompute, so that capacity buys less.",
        ),
    )


def measured_findings(rows: Sequence[Row]) -> tuple[Finding, ...]:
    """Both models against real runs."""
    theirs = [100 * (r["published_s"] / r["measured_s"] - 1) for r in rows]
    mine = [100 * (r["ours_s"] / r["measured_s"] - 1) for r in rows]
    inside = sum(r["ours_low_s"] <= r["measured_s"] <= r["ours_high_s"] for r in rows)
    return (
        Finding(
            statement="the model predicts real iterations at a fixed plan",
            published=f"{min(theirs):+.0f} to {max(theirs):+.0f} % of the measured time",
            ours=f"{min(mine):+.0f} to {max(mine):+.0f} %; {inside} of {len(rows)} inside our 90 % interval",
            verdict="not comparable",
            why="The published model is optimistic at every size and has no recomputation or interleaving; "
            "the runs are ones that our coefficients were fitted with (docs/accuracy.md has "
            "held-out scores).",
        ),
    )
