"""Replicas that are started and stopped as requests come: start-up times, and what is paid for."""

import math

from foretell.errors import BadInput, wrong
from foretell.records import dataclass
from foretell.serving.requests.words import read_words


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleRule:
    """When replicas are started and stopped."""

    least: int = 1
    """Replicas that always run."""
    most: int = 0
    """Replicas at most; 0: as many as the chips allow."""
    start_s: float = 120.0
    """From the decision to the first request: a node, the image, the weights, graphs."""
    period_s: float = 60.0
    """Seconds over which arrivals are counted, and after which the number is looked at again."""
    target: float = 0.7
    """Share of what a replica can answer that it is meant to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPool:
    """What became of replicas that were started and stopped."""

    replica_seconds: float
    """Replica-seconds paid for."""
    running: tuple[tuple[float, int], ...]
    """(when, replicas that run or start)."""


def read_autoscale(text: str) -> AutoscaleRule:
    """A rule of words such as `min=1 max=16 start=120 period=60 target=0.7`; seconds and shares."""
    usual = AutoscaleRule()
    values, problems = read_words(
        "autoscale",
        text,
        {
            "min": usual.least, "max": usual.most, "start": usual.start_s,
            "period": usual.period_s, "target": usual.target,
        },
    )  # fmt: skip
    if not 0.0 < values["target"] <= 1.0:
        problems.append(wrong("autoscale", text, "target is out of range", "above 0, at most 1"))
    if 0.0 < values["max"] < values["min"]:
        problems.append(wrong("autoscale", text, "min is above max", "min up to max"))
    if problems:
        raise BadInput(problems)
    return AutoscaleRule(
        least=max(int(values["min"]), 1),
        most=int(values["max"]),
        start_s=values["start"],
        period_s=max(values["period"], 1e-3),
        target=values["target"],
    )


class Autoscaler:
    """Which replicas run, by the arrivals of the last period."""

    def __init__(self, rule: AutoscaleRule, replicas: int, able_per_s: float) -> None:
        self.rule, self.able_per_s = rule, able_per_s
        self.most = min(rule.most or replicas, replicas)
        least = min(rule.least, self.most)
        self.ready = [0.0] * least + [math.inf] * (replicas - least)
        """When each replica takes requests; infinite: it does not run."""
        self.since = [0.0] * least + [math.nan] * (replicas - least)
        """From when on each is paid for."""
        self.paid_s = 0.0
        """Replica-seconds of those that were stopped."""
        self.came, self.checked = 0, 0.0
        self.series: list[tuple[float, int]] = [(0.0, least)]
        """(when, replicas that run or start)."""

    def observe(self, at: float, waiting: int) -> None:
        """A request comes while others wait: the number is looked at again where the time has come."""
        self.came += 1
        if at < self.checked + self.rule.period_s:
            return
        span = max(at - self.checked, 1e-9)
        # What waits is to be answered within the next period.
        wanted_per_s = self.came / span + waiting / self.rule.period_s
        wanted = math.ceil(wanted_per_s / (self.rule.target * self.able_per_s) - 1e-9)
        self._set(at, min(max(wanted, min(self.rule.least, self.most), 1), self.most))
        self.came, self.checked = 0, at

    def _set(self, at: float, wanted: int) -> None:
        running = [i for i, ready in enumerate(self.ready) if ready < math.inf]
        for i in range(len(self.ready)):
            if len(running) < wanted and i not in running:
                self.ready[i], self.since[i] = at + self.rule.start_s, at
                running.append(i)
        while len(running) > wanted:
            i = running.pop()
            self.paid_s += at - self.since[i]
            self.ready[i], self.since[i] = math.inf, math.nan
        if self.series[-1][1] != wanted:
            self.series.append((at, wanted))

    def active(self, at: float) -> list[int]:
        """Places of the replicas that take requests."""
        found = [i for i, ready in enumerate(self.ready) if ready <= at]
        return found or [0]

    def pool(self, end_s: float) -> ScaledPool:
        """What ran, and is paid for, up to the end."""
        running = sum(
            max(end_s - since, 0.0)
            for since, ready in zip(self.since, self.ready, strict=True)
            if ready < math.inf
        )
        return ScaledPool(replica_seconds=self.paid_s + running, running=tuple(self.series))
