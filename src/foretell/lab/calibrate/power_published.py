"""Products that a B200 sustains on random data, from the published efficiencies of SimuMax 1.2.

github.com/MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json: shares of 2,250 TFLOP/s that products
of Transformer Engine reach in loops (simu_tools/efficency_test/test_gemm_efficiency.py; operands drawn from a
normal distribution). The large ones alone: their loops are long enough for the regulator to have settled, and
all of them end at 0.45 to 0.51, where shapes of a tenth of the work reach 0.60 to 0.65. Weight gradients that
are added to sums in 32 bits (0.45) are left out: the sums' traffic is counted by itself.
"""

PEAK_FLOP_PER_S = 2.25e15
"""What the shares are of."""
BURST_SHARE = 0.65
"""The largest share that the same loops show of shapes of a tenth of the work, too short to be held: what
this machine reaches in short bursts, where others reach 0.72 to 0.78."""

SUSTAINED: tuple[tuple[str, int, int, int, float], ...] = (
    ("forward", 4096, 16384, 106496, 0.4961),
    ("forward", 4096, 53248, 16384, 0.5109),
    ("forward", 4096, 16384, 53248, 0.4887),
    ("forward", 4096, 16384, 128256, 0.4906),
    ("forward", 4096, 8192, 57344, 0.4867),
    ("forward", 4096, 28672, 8192, 0.4847),
    ("forward", 4096, 8192, 128256, 0.4874),
    ("data gradient", 4096, 106496, 16384, 0.5116),
    ("data gradient", 4096, 16384, 53248, 0.5007),
    ("data gradient", 4096, 128256, 16384, 0.5109),
    ("data gradient", 4096, 57344, 8192, 0.4829),
    ("data gradient", 4096, 128256, 8192, 0.4710),
    ("weight gradient", 106496, 4096, 16384, 0.4795),
    ("weight gradient", 16384, 4096, 53248, 0.4775),
    ("weight gradient", 128256, 4096, 16384, 0.4784),
    ("weight gradient", 57344, 4096, 8192, 0.4825),
    ("weight gradient", 128256, 4096, 8192, 0.4775),
)
"""What it is of, rows, depth, columns, share of the peak."""
