"""What chips without tables of watts are taken to spend, and why.

Joules of bytes and the fall with the clock are the H200's: one byte costs about as much in every stacked
memory. Joules of flops come from how published matrix rates sit under power limits.
"""

from dataclasses import replace

from foretell.kernels.power import Generation, PowerCoefficients

DATE = "2026-11-15"
"""When they were set."""

LIKE_HOPPER = PowerCoefficients(
    base_share=0.18,
    joules_per_flop=1.0e-12,
    bit_power=0.7,
    vector_joules_per_flop=5e-12,
    core_joules_per_byte=50e-12,
    memory_joules_per_byte=66e-12,
    clock_power=1.4,
    voltage_floor=0.5,
    clock_floor=0.3,
    held_share=0.985,
)
"""The H200's numbers, rounded."""
ULTRA_FLOP = 0.68e-12
"""A flop of Blackwell Ultra: what lets its steps of dense models be 1.21 to 1.24 times as fast as GB200's,
layout by layout, in published runs (Megatron-Bridge 26.04 and 26.06), which the watts alone would not."""
PER_PEAK = replace(
    LIKE_HOPPER,
    joules_per_flop=0.75,
    vector_joules_per_flop=0.5,
    core_joules_per_byte=0.2,
    memory_joules_per_byte=0.25,
)
"""Shares of the limit at the peaks of a chip that was given the watts it needs."""


def _transferred(
    name: str,
    kin: tuple[tuple[str, ...], tuple[str, ...]],
    joules_per_flop: float,
    source: str,
    base_share: float = 0.18,
) -> Generation:
    chips, architectures = kin
    return Generation(
        name=name,
        chips=chips,
        architectures=architectures,
        evidence="transferred",
        per_peak=False,
        coefficients=replace(LIKE_HOPPER, joules_per_flop=joules_per_flop, base_share=base_share),
        points=0,
        median_ape=0.0,
        p90_ape=0.0,
        residuals=(),
        source=source,
        date=DATE,
    )


def _ultra(chip: str, kin: tuple[str, ...], base_share: float, limit: str) -> Generation:
    """Blackwell Ultra: Blackwell's products under a limit of its own, and what it draws before it works."""
    known = _transferred(
        chip,
        ((chip,), kin),
        ULTRA_FLOP,
        f"Blackwell's compute dies and memory links under {limit}: what it draws before it works stays that"
        " of Blackwell, its FP4 units do half as much again a clock; the joules of a flop are what lets"
        " steps of dense models on GB300 be 1.21 to 1.24 times as fast as on GB200, layout by layout, in"
        " published runs (Megatron-Bridge 26.04 and 26.06)",
        base_share=base_share,
    )
    return replace(
        known,
        coefficients=replace(
            known.coefficients,
            bit_power=0.7442,
            core_joules_per_byte=46.94e-12,
            memory_joules_per_byte=58.11e-12,
            clock_power=1.496,
        ),
    )


TRANSFERRED: tuple[Generation, ...] = (
    _transferred(
        "hopper-500w",
        (("h100-sxm-96gb",), ()),
        1.05e-12,
        "The die of the H100 SXM under a limit of 500 W: what it draws before it works stays that of 700 W",
        base_share=0.252,
    ),
    _transferred(
        "grace-hopper",
        (("gh200-96gb",), ()),
        1.05e-12,
        "The die of the H100 SXM; of a module's 660 W its GPU draws 126 before it works, as of 700, and the"
        " Grace CPU and its memory some 40",
        base_share=0.25,
    ),
    _ultra("gb300", ("blackwell-ultra",), 0.162, "a module's 1,400 W"),
    _ultra("b300-sxm", (), 0.237, "1,100 W"),
    _transferred(
        "ampere",
        ((), ("ampere",)),
        1.05e-12,
        "Best bf16 products of A100 SXM (400 W) and PCIe (300 W), 271.2 and 252.9 TFLOP/s: at 1.05 pJ the"
        " first just stays within its limit and the second is slowed by 9 percent",
    ),
    _transferred(
        "ampere-graphics",
        (("a10g",), ()),
        2.0e-12,
        "Supposed: twice the A100's, for Samsung 8N at 1.7 GHz",
    ),
    _transferred(
        "volta",
        ((), ("volta",)),
        2.3e-12,
        "Supposed: V100 products of about 100 TFLOP/s draw close to 300 W",
    ),
    _transferred(
        "ada",
        ((), ("ada",)),
        1.3e-12,
        "Supposed: the H200's node at a third more clock, hence voltage",
    ),
    _transferred(
        "blackwell-graphics",
        (("rtx-pro-6000-bw",), ()),
        1.2e-12,
        "Supposed: as ada, on the same node",
    ),
    _transferred(
        "cdna2",
        ((), ("cdna2",)),
        1.9e-12,
        "Best bf16 product of one GCD of MI250X, 127 TFLOP/s, at half of the card's 500 W, as for cdna3",
    ),
    _transferred(
        "cdna3",
        ((), ("cdna3",)),
        1.4e-12,
        "Best bf16 products of MI300X (750 W) and MI325X (1000 W), the same compute dies: 668.4 and 784.9"
        " TFLOP/s, where 0.75 of the peak is taken for what they would reach without a limit",
    ),
    _transferred(
        "cdna4",
        ((), ("cdna4",)),
        0.88e-12,
        "Best bf16 product of MI355X, 1565 TFLOP/s at 1400 W, as for cdna3",
    ),
    replace(
        _transferred(
            "any",
            ((), ()),
            0.0,
            "Supposed: a chip that was given the watts its units need together at usual loads",
        ),
        per_peak=True,
        coefficients=PER_PEAK,
    ),
)
"""Generations without tables; the last holds for any chip, in shares of its limit at its peaks."""
