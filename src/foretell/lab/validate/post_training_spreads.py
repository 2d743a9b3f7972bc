"""How far post-training numbers were from ours, by kind and source: catalog/posttraining_spreads.toml.

python -m foretell.lab.validate.post_training_spreads TABLE
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from foretell.catalog.spreads import LEVELS, POST_TRAINING_FILE
from foretell.lab.validate.post_training import (
    PostTrainingPrediction,
    score_post_training,
    spread_kind,
)

HEAD = """# How far post-training steps, phases, peaks and synchronisations were from ours: quantiles of
# ln(measured / predicted) at 5, 25, 50, 75 and 95 %. Written by lab/validate/post_training_spreads.py from a
# table that is not part of the repository; docs/model/post-training.md says what for.
"""


def spread_text(predictions: list[PostTrainingPrediction]) -> str:
    """The residuals of all predictions as a TOML text."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in predictions:
        residual = float(np.log(one.measured / one.predicted))
        found[spread_kind(one.kind, one.metric), one.source].append(residual)
    text = HEAD
    for (kind, source), values in sorted(found.items()):
        quantiles = [round(float(q), 3) for q in np.quantile(values, LEVELS)]
        text += f'\n[[spread]]\nkind = "{kind}"\nsource = "{source}"\n'
        text += f"rows = {len(values)}\nquantiles = {quantiles}\n"
    return text


def main(path: str) -> None:
    """Write the file."""
    scores = score_post_training(Path(path))
    POST_TRAINING_FILE.write_text(spread_text(list(scores.predictions)), encoding="utf-8")  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1])
