"""The 2024 study's validation of its collectives: NCCL on Perlmutter, by both models.

Measurements are those of the study's public code (transformer-perf-estimates, comm_validation): four A100 in
a node, 1 to 128 nodes, from 1 MiB on, as `validate collectives` reads them.
"""

from pathlib import Path
from typing import Any, get_args

import numpy as np

from foretell.lab.calibrate.collectives_rows import read_rows
from foretell.lab.reference.comm import Kind, collective_s, links_of
from foretell.lab.reference.records import CHIPS, Quirks
from foretell.lab.validate.collectives import score_collectives

FILE = Path(__file__).with_suffix(".csv")
"""The measurements."""
NODE = 4
"""GPUs of a node of Perlmutter, each with a network card."""


def collective_rows() -> list[dict[str, Any]]:
    """Measured seconds and those of both models, ours with a 90 % interval."""
    measured, links = read_rows(FILE), links_of(CHIPS["A100"], NODE, Quirks())
    kinds: dict[str, Kind] = {kind.replace("_", "-"): kind for kind in get_args(Kind)}
    found = []
    for row, ours in zip(measured, score_collectives(FILE).predictions, strict=True):
        gpus = np.array([row.nodes * row.per_node])
        size = np.array([row.size_bytes])
        published = collective_s(links, kinds[str(row.kind)], size, gpus, np.minimum(gpus, NODE))
        found.append(
            {
                "collective": row.kind,
                "nodes": row.nodes,
                "gpus": int(gpus[0]),
                "bytes": round(row.size_bytes),
                "measured_s": row.measured_s,
                "published_s": float(published[0]),
                "ours_s": ours.predicted,
                "ours_low_s": ours.low,
                "ours_high_s": ours.high,
            }
        )
    return found
