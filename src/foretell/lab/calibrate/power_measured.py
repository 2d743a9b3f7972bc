"""Loops of one second and more on one H200 (700 W, driver 580): watts and clocks on random data.

Measured 2026-11-15 with PyTorch 2.11: each kernel replayed from a CUDA graph for 0.7 s to settle, then 1 s
(3 s where it says long) with the instantaneous power and the SM clock read every 20 ms. Idle: 80 W at rest
(345 MHz), 126 W clocked up (1,980 MHz), with or without a spinning kernel. Beside these rows: on zeros
the 8192-cubed product drew 408 W at 1,735 MHz and ran at 783 TFLOP/s, as fast as in short bursts on random
data, so that full matrix load alone caps the clock at 1,735 MHz whatever the watts.
"""

MAX_CLOCK_MHZ = 1980.0
"""Clock of a lightly loaded card."""
MATRIX_CLOCK_MHZ = 1735.0
"""Clock at full matrix load with watts to spare."""
MATRIX_FULL_TFLOP_PER_S = 783.0
"""Rate of large bf16 products at that clock."""

LOOPS: tuple[tuple[str, float, int, float, float, float, int], ...] = (
    ("spin", 0.0, 16, 0.0, 0.0, 126.3, 1980),
    ("gemm 1x8192x8192", 4.0, 16, 4.0, 0.0, 617.4, 1980),
    ("gemm 16x8192x8192", 64.3, 16, 4.036, 0.0, 669.0, 1980),
    ("gemm 64x8192x8192", 233.9, 16, 3.711, 0.0, 697.7, 1646),
    ("gemm 128x8192x8192", 422.0, 16, 3.4, 0.0, 693.0, 1314),
    ("gemm 160x8192x8192", 494.0, 16, 3.208, 0.0, 689.4, 1198),
    ("gemm 256x8192x8192", 568.2, 16, 2.358, 0.0, 687.1, 1316),
    ("gemm 512x8192x8192", 644.9, 16, 1.417, 0.0, 689.3, 1443),
    ("gemm 1024x8192x8192", 662.2, 16, 0.808, 0.0, 691.1, 1450),
    ("gemm 2048x8192x8192", 667.6, 16, 0.489, 0.0, 691.5, 1456),
    ("gemm 8192x8192x8192", 657.2, 16, 0.241, 0.0, 675.1, 1449),
    ("gemm 1x65536x16384", 4.1, 16, 4.131, 0.0, 642.1, 1980),
    ("gemm 64x65536x16384", 242.2, 16, 3.803, 0.0, 704.7, 1683),
    ("gemm 128x65536x16384", 470.8, 16, 3.714, 0.0, 705.6, 1170),
    ("gemm 4096x65536x16384", 675.1, 16, 0.216, 0.0, 699.2, 1409),
    ("gemm 1024x1024x1024", 401.2, 16, 0.0, 1.176, 655.5, 1980),
    ("gemm 2048x2048x2048", 672.4, 16, 0.0, 0.985, 695.5, 1739),
    ("gemm 4096x4096x4096", 656.1, 16, 0.481, 0.0, 682.1, 1486),
    ("gemm 16384x16384x16384", 672.4, 16, 0.123, 0.0, 700.4, 1436),
    ("gemm 64x4096x4096", 263.8, 16, 0.0, 4.251, 613.6, 1980),
    ("gemm 256x4096x4096", 505.8, 16, 0.0, 2.223, 688.9, 1482),
    ("gemm-fp8 16x8192x8192", 112.9, 8, 3.548, 0.0, 637.6, 1980),
    ("gemm-fp8 64x8192x8192", 393.3, 8, 3.145, 0.0, 692.6, 1779),
    ("gemm-fp8 256x8192x8192", 1006.5, 8, 2.15, 0.0, 684.4, 1325),
    ("gemm-fp8 1024x8192x8192", 1158.4, 8, 0.778, 0.0, 693.5, 1390),
    ("gemm-fp8 8192x8192x8192", 1215.1, 8, 0.297, 0.0, 694.3, 1336),
    ("copy", 0.0, 16, 2.775, 0.0, 524.1, 1980),
    ("add", 0.0, 16, 4.396, 0.0, 663.0, 1980),
    ("copy-l2", 0.0, 16, 0.0, 5.043, 383.3, 1980),
    ("add-l2", 0.0, 16, 0.0, 6.873, 489.3, 1980),
    ("duty-gap5.0ms", 171.6, 16, 0.063, 0.0, 306.7, 1980),
    ("duty-gap2.0ms", 322.4, 16, 0.118, 0.0, 466.6, 1980),
    ("duty-gap1.0ms", 450.3, 16, 0.165, 0.0, 548.7, 1931),
    ("duty-gap0.7ms", 506.5, 16, 0.185, 0.0, 653.4, 1871),
    ("duty-gap0.5ms", 550.0, 16, 0.201, 0.0, 691.4, 1752),
    ("duty-gap0.3ms", 592.4, 16, 0.217, 0.0, 704.3, 1641),
    ("duty-gap0.15ms", 619.0, 16, 0.227, 0.0, 695.6, 1555),
    ("mix-1gemm+copy", 367.5, 16, 1.57, 0.0, 691.3, 1819),
    ("mix-3gemm+copy", 521.2, 16, 0.869, 0.0, 682.7, 1571),
    ("sdpa s8192 causalTrue", 524.0, 16, 0.256, 0.0, 686.0, 1679),
    ("sdpa s2048 causalTrue", 448.8, 16, 0.876, 0.0, 683.9, 1664),
    ("sdpa s16384 causalFalse", 594.0, 16, 0.073, 0.0, 685.9, 1610),
    ("gemm-long 8192x28672x8192", 675.1, 16, 0.188, 0.0, 690.9, 1428),
    ("gemm-long 8192x8192x28672", 660.4, 16, 0.184, 0.0, 690.8, 1440),
)
"""Name, TFLOP/s, bits of the operands, TB/s of the device memory, TB/s of the cache, watts, clock in MHz."""
