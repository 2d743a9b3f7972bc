"""What the published study says of vit_era5, and what ours gives (V1 to V4)."""

from foretell.lab.reference.claims import Claim, gains, smallest_claim
from foretell.lab.reference.study import STUDY_CHIPS, STUDY_GPUS
from foretell.lab.reference.tables import SYSTEMS, VIT, BestPlans, real, span, whole


def ratio(best: BestPlans, chip: str, domain: int, gpus: int) -> float | None:
    """SUMMA's days over seqp's for the ViT; None where one of them has no plan."""
    summa = best.days(VIT, "2d", chip, domain, gpus)
    seqp = best.days(VIT, "2d-seqp", chip, domain, gpus)
    return None if summa is None or seqp is None else summa / seqp


def claim_v1(best: BestPlans) -> list[Claim]:
    """SUMMA against seqp for the ViT."""
    small = [
        r
        for chip in ("A100", "B200")
        for n in STUDY_GPUS
        if n >= 64 and (r := ratio(best, chip, 4, n)) is not None
    ]
    h200 = max(r for n in STUDY_GPUS if (r := ratio(best, "H200", 4, n)) is not None)
    a100_wide = [r for n in STUDY_GPUS if (r := ratio(best, "A100", 64, n)) is not None]
    parity = {chip: ratio(best, chip, 8, 16384) or 0.0 for chip in STUDY_CHIPS}
    won = {chip: summa_wins(best, chip, 64) for chip in ("H200", "B200")}
    told = ", ".join(f"{chip} {value:.3f}" for chip, value in parity.items())
    return [
        Claim(
            name="V1a",
            statement="SUMMA/seqp days at NVS4: 1.21–1.47 on A100 and B200 from 64 GPUs, "
            "up to 1.98 on H200; 0.87–0.97 on A100-NVS64",
            ours=f"{span(small)}, {h200:.2f}; {span(a100_wide)}",
            holds=(span(small), f"{h200:.2f}", span(a100_wide))
            == ("1.21–1.47", "1.98", "0.87–0.97"),
        ),
        Claim(
            name="V1b",
            statement="parity of SUMMA and seqp at NVS8 on 16384 GPUs",
            ours=f"SUMMA/seqp {told}",
            holds=all(abs(value - 1) < 0.02 for value in parity.values()),
        ),
        Claim(
            name="V1c",
            statement="at NVS64 SUMMA also wins on B200 from 8192 GPUs on, and never on H200",
            ours="; ".join(f"{chip} at {counts_of(counts)}" for chip, counts in won.items()),
            holds=won == {"B200": [8192, 16384], "H200": []},
        ),
    ]


def counts_of(counts: list[int]) -> str:
    """GPU counts as a list."""
    return ", ".join(str(count) for count in counts)


def summa_wins(best: BestPlans, chip: str, domain: int) -> list[int]:
    """GPU counts at which both strategies fit the ViT and SUMMA is faster."""
    return [n for n in STUDY_GPUS if (ratio(best, chip, domain, n) or 2.0) < 1]


def claim_v2(best: BestPlans) -> Claim:
    """What a larger domain gains the ViT."""
    counts = [n for n in STUDY_GPUS if n >= 256]
    wide = [g for chip in STUDY_CHIPS for g in gains(best, VIT, chip, (4, 64), counts)]
    near = [g for chip in STUDY_CHIPS for g in gains(best, VIT, chip, (4, 8), counts)]
    return Claim(
        name="V2",
        statement="NVS 4 to 64 for the ViT from 256 GPUs: 1.31–1.56; NVS 4 to 8: 1.13–1.21",
        ours=f"{span(wide)}; {span(near)}",
        holds=(span(wide), span(near)) == ("1.31–1.56", "1.13–1.21"),
    )


def claim_v3(best: BestPlans) -> Claim:
    """How well the ViT scales."""
    scaling = [best.best(VIT, *s, 1024) / best.best(VIT, *s, 16384) / 16 for s in SYSTEMS]
    rows = [(key, row) for key, row in best.rows.items() if key[0] == VIT]
    shares = [100 * real(row["tp_comm_frac"]) for _, row in rows]
    large = [100 * real(row["tp_comm_frac"]) for key, row in rows if key[4] >= 1024]
    usual = {
        chip: mode([whole(row["tp"]) for key, row in rows if key[2] == chip])
        for chip in STUDY_CHIPS
    }
    return Claim(
        name="V3",
        statement="ViT efficiency 0.83–1.00 from 1024 to 16384; TP mostly 16 on B200 and 32 "
        "on A100; TP communication 4–56 % of the time",
        ours=f"{span(scaling)}; TP mostly {usual['B200']} on B200, {usual['A100']} on A100, "
        f"{usual['H200']} on H200; {span(large, '{:.0f}'.format)} % from 1024 GPUs, "
        f"{span(shares, '{:.0f}'.format)} % over all",
        holds=span(scaling) == "0.83–1.00"
        and (usual["B200"], usual["A100"]) == (16, 32)
        and span(large, "{:.0f}".format) == "4–56",
    )


def mode(values: list[int]) -> int:
    """The commonest value, the smallest where several are."""
    return max(sorted(set(values)), key=values.count)


def claim_v4(best: BestPlans) -> Claim:
    """Smallest ViT jobs."""
    return smallest_claim(
        best,
        "V4",
        VIT,
        {
            "2d": {"A100": 64, "H200": 32, "B200": 32},
            "2d-seqp": {"A100": 256, "H200": 64, "B200": 32},
        },
        "smallest ViT job: SUMMA 64 / 32 / 32, seqp 256 / 64 / 32",
    )


def vit_claims(best: BestPlans) -> list[Claim]:
    """V1 to V4."""
    return [*claim_v1(best), claim_v2(best), claim_v3(best), claim_v4(best)]
