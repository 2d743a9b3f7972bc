"""What ranks wait for each other: uneven work, and collectives that some reach late.

Clocks of ranks need not agree, so moments are never compared between them, only lengths. A collective ends
for all at about the same time: what it lasted longer on a rank than on the last to come is waiting.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.lab.characterize.traces.breakdown import StepBreakdown
from foretell.lab.characterize.traces.rank_trace import RankTrace
from foretell.records import as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """Ranks of one step beside each other."""

    step: str
    """Which step."""
    compute_s: dict[int, float]
    """Rank -> compute."""
    imbalance: float
    """Compute of the busiest rank over the mean, less one."""
    busiest: int
    """The rank with most of it."""
    waits_s: dict[int, float] | None
    """Rank -> waiting in collectives for others; None where ranks did not run the same ones."""

    to_dict = as_json()


def imbalances(
    traces: Sequence[RankTrace], told: Sequence[Sequence[StepBreakdown]]
) -> tuple[Imbalance, ...]:
    """Every step that all ranks have; none of a single rank."""
    if len(traces) < 2:
        return ()
    common = [s.step for s in told[0] if all(any(o.step == s.step for o in r) for r in told)]
    found = []
    for step in common:
        compute = {r[0].rank: next(s.compute_s for s in r if s.step == step) for r in told}
        mean = sum(compute.values()) / len(compute)
        busiest = max(compute, key=lambda rank: compute[rank])
        found.append(
            Imbalance(
                step=step,
                compute_s=compute,
                imbalance=compute[busiest] / mean - 1.0 if mean else 0.0,
                busiest=busiest,
                waits_s=_waits(traces, step),
            )
        )
    return tuple(found)


def _waits(traces: Sequence[RankTrace], step: str) -> dict[int, float] | None:
    """What each rank's collectives lasted beyond those of the last to come, added up."""
    lengths, labels = [], []
    for trace in traces:
        if trace.device == "simulated":
            return None
        window = next(s for s in trace.steps if s.name == step)
        sent = trace.sent
        here = (sent.starts >= window.start_ns) & (sent.starts < window.end_ns)
        order = np.flatnonzero(here)
        order = order[np.argsort(sent.starts[order], kind="stable")]
        seen: Counter[tuple[str, int]] = Counter()
        label = []
        for place in order.tolist():
            key = sent.kinds[sent.kind[place]], int(sent.size_bytes[place])
            label.append((*key, seen[key]))
            seen[key] += 1
        labels.append(dict(zip(label, order.tolist(), strict=True)))
        lengths.append(sent.ends - sent.starts)
    names = set(labels[0])
    if not names or any(set(one) != names for one in labels):
        return None
    table = np.array(
        [[int(lengths[i][labels[i][name]]) for name in sorted(names)] for i in range(len(traces))]
    )
    waited = (table - table.min(axis=0)).sum(axis=1) * 1e-9
    return {trace.rank: float(seconds) for trace, seconds in zip(traces, waited, strict=True)}
