"""What `serve` answers: the numbers of a service with what can be asked of them next (see answers.py)."""

from dataclasses import fields
from typing import Any

from foretell.records import Answer, values_as_held
from foretell.specs.service import Interval, Percentiles, ServiceEstimate
from foretell.uncertainty.intervals import of_served


class ServeAnswer(ServiceEstimate, Answer):
    """One deployment under one load."""

    __slots__ = ()
    verb = "serve"

    @property
    def intervals(self) -> dict[str, Interval]:
        """p50 and p90 of every predicted number, of the mean of a latency (uncertainty/intervals.py)."""
        return of_served(self)

    def to_flat(self) -> dict[str, float]:
        """Numbers under slash-separated keys such as latency/ttft_ms/p90, for experiment trackers."""
        from foretell.interop.trackers import served_metrics

        return served_metrics(self.to_dict())

    def to_config(self) -> dict[str, Any]:
        """What was asked, as the nested table that trackers keep as a run's config."""
        from foretell.interop.trackers import served_config

        return served_config(self.to_dict())

    def to_json_line(self) -> str:
        """Config and metrics as one line of JSON."""
        from foretell.interop.trackers import json_lines

        return json_lines([(self.to_config(), self.to_flat())])

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in told.items():
            if isinstance(value, Percentiles):
                told[name] = value.to_dict()
        told["benchmark"] = None if self.benchmark is None else self.benchmark.to_dict()
        told["fit"] = None if self.fit is None else [one.to_dict() for one in self.fit]
        told["intervals"] = self.intervals
        told["assumptions"] = list(self.assumptions)
        told["warnings"] = list(self.warnings)
        if self.posterior_factors is None:
            del told["prior"], told["posterior_factors"]
        return told


def serve_answer(found: ServiceEstimate) -> ServeAnswer:
    """The answer with a service's numbers."""
    return ServeAnswer(**values_as_held(found))
