"""Measure kernels, copies and collectives on the machine at hand, with PyTorch.

`run.measure` is the whole of it; `python -m foretell.lab.calibrate.measure` and `foretell calibrate measure`
are two doors to it. Nothing here imports torch until a worker process does.
"""
