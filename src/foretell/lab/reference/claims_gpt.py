"""What the published study says of gpt3_1T, and what ours gives (G1 to G7)."""

from statistics import median

from foretell.lab.reference.claims import (
    Claim,
    gains,
    names,
    one_d_costs,
    percent,
    smallest_claim,
    systems_led,
)
from foretell.lab.reference.study import STUDY_GPUS
from foretell.lab.reference.tables import GPT, BestPlans, real, span, system_name, whole


def claim_g1(best: BestPlans) -> Claim:
    """Which strategy is first for GPT."""
    small = [(c, d, n) for c, d, n in best.places(GPT) if n <= 4096]
    first = [p for p in small if (w := best.winner(GPT, *p)) and w[1] == "2d"]
    at_8k, at_16k = systems_led(best, GPT, "2d", 8192), systems_led(best, GPT, "2d", 16384)
    expected = [("A100", 4), ("A100", 8), ("H200", 4), ("H200", 8), ("B200", 4)]
    return Claim(
        name="G1",
        statement="SUMMA first up to 4096 GPUs everywhere, to 8192 on A100-NVS4/8, H200-NVS4, "
        "B200-NVS4 and everywhere on H200-NVS8; seqp first otherwise",
        ours=f"SUMMA first in {len(first)} of {len(small)} jobs up to 4096; "
        f"at 8192 on {names(at_8k)}; at 16384 on {names(at_16k)}",
        holds=first == small and at_8k == expected and at_16k == [("H200", 8)],
    )


def claim_g2(best: BestPlans) -> Claim:
    """What 1d costs GPT."""
    costs = one_d_costs(best)
    b200 = [100 * v for (chip, _, n), v in costs.items() if chip == "B200" and n >= 256]
    worst = sorted(costs.items(), key=lambda item: -item[1])[:3]
    told = ", ".join(f"{percent(v)} ({system_name(c, d)}, {n})" for (c, d, n), v in worst)
    middle = median(costs.values())
    return Claim(
        name="G2",
        statement="1d costs 8–9 % at the median, 2.5–9.5 % on B200 from 256 GPUs, at worst 43 % "
        "(B200-NVS4, 128), 34 % (H200-NVS4, 256), 31 % (A100-NVS4, 512)",
        ours=f"median {100 * middle:.1f} %; B200 {span(b200, '{:.1f}'.format)} %; worst {told}",
        holds=0.08 <= middle <= 0.09
        and span(b200, "{:.1f}".format) == "2.5–9.5"
        and [percent(v) for _, v in worst] == ["43 %", "34 %", "31 %"],
    )


def claim_g3(best: BestPlans) -> Claim:
    """Smallest GPT jobs."""
    others = {"A100": 512, "H200": 256, "B200": 128}
    return smallest_claim(
        best,
        "G3",
        GPT,
        {"1d": others, "2d": {"A100": 256, "H200": 128, "B200": 128}, "2d-seqp": others},
        "smallest GPT job: 1d and seqp 512 / 256 / 128, SUMMA 256 / 128 / 128",
    )


def claim_g4(best: BestPlans) -> Claim:
    """What a larger domain gains GPT."""
    b200 = gains(best, GPT, "B200", (4, 64), [n for n in STUDY_GPUS if 128 <= n <= 2048])
    b200_late = gains(best, GPT, "B200", (4, 64), [4096, 8192, 16384])
    a100 = gains(best, GPT, "A100", (4, 64), [512, 1024, 2048, 4096])
    a100_late = gains(best, GPT, "A100", (4, 64), [8192, 16384])
    told = [
        span(b200),
        *(f"{g:.2f}" for g in b200_late),
        span(a100),
        *(f"{g:.2f}" for g in a100_late),
    ]
    return Claim(
        name="G4",
        statement="NVS 4 to 64 for GPT: B200 1.00–1.01 up to 2048, then 1.04, 1.11, 1.30; "
        "A100 1.06–1.12 for 512–4096, then 1.19, 1.31",
        ours=f"B200 {told[0]}, then {', '.join(told[1:4])}; A100 {told[4]}, then "
        f"{', '.join(told[5:])}",
        holds=told == ["1.00–1.01", "1.04", "1.11", "1.30", "1.06–1.12", "1.19", "1.31"],
    )


def claim_g5(best: BestPlans) -> Claim:
    """How well GPT scales, and what it loses."""
    told = []
    for chip in ("B200", "A100"):
        pairs = [
            best.best(GPT, chip, d, 1024) / best.best(GPT, chip, d, 16384) / 16 for d in (4, 8, 64)
        ]
        told.append("/".join(f"{p:.2f}" for p in pairs))
    row = best.rows[GPT, "1d", "B200", 8, 16384]
    parts = ("comp", "bubble", "tp_comm", "dp_comm", "pp_comm")
    shares = [100 * real(row[f"{part}_frac"]) for part in parts]
    return Claim(
        name="G5",
        statement="efficiency 1024 to 16384, NVS 4/8/64: B200 0.52/0.61/0.67, A100 0.70/0.69/0.82; "
        "1d on 16384 B200-NVS8: compute 53 %, bubble 32, TP 10, DP 3, PP 1.5",
        ours=f"B200 {told[0]}, A100 {told[1]}; {' / '.join(f'{share:.1f}' for share in shares)} %",
        holds=told == ["0.52/0.61/0.67", "0.70/0.69/0.82"]
        and [round(share) for share in shares[:4]] == [53, 32, 10, 3]
        and round(shares[4], 1) == 1.5,
    )


def claim_g6(best: BestPlans) -> Claim:
    """What a generation gains."""
    counts = [n for n in STUDY_GPUS if n >= 512]

    def faster(old: str, new: str) -> str:
        pairs = [best.best(GPT, old, 8, n) / best.best(GPT, new, 8, n) for n in counts]
        return span(pairs)

    told = [faster("A100", "H200"), faster("H200", "B200"), faster("A100", "B200")]
    return Claim(
        name="G6",
        statement="generations at NVS8, 512 to 16384 GPUs: A100 to H200 2.85–3.1, "
        "H200 to B200 2.3–2.4, A100 to B200 6.5–7.6",
        ours=", ".join(told),
        holds=told == ["2.85–3.11", "2.29–2.44", "6.53–7.61"],
    )


def claim_g7(best: BestPlans) -> Claim:
    """Which degrees win."""
    other = [key for key, row in best.rows.items() if row["mbs"] != 1]
    tps = [whole(row["tp"]) for key, row in best.rows.items() if key[:2] == (GPT, "1d")]
    stages = median(whole(row["pp"]) for key, row in best.rows.items() if key[0] == GPT)
    total = len(best.rows)
    kinds = {key[:2] for key in other}
    return Claim(
        name="G7",
        statement="microbatch 1 is best in 357 of 360 searches, the others GPT SUMMA; "
        "GPT 1d TP 2–16, median 8; PP median 64",
        ours=f"{total - len(other)} of {total}; TP {span(tps, '{:.0f}'.format)}, "
        f"median {median(tps):.0f}; PP median {stages:.0f}",
        holds=(total, len(other), kinds) == (360, 3, {(GPT, "2d")})
        and (min(tps), max(tps), median(tps), stages) == (2, 16, 8, 64),
    )


def gpt_claims(best: BestPlans) -> list[Claim]:
    """G1 to G7."""
    return [
        claim_g1(best),
        claim_g2(best),
        claim_g3(best),
        claim_g4(best),
        claim_g5(best),
        claim_g6(best),
        claim_g7(best),
    ]
