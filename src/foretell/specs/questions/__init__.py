"""One question for each verb: the record that its flags, web fields, study keys and arguments are made from.

flags.py     what a field is on every surface
common.py    fields that several questions share
training.py, improve.py, serving.py, sizing.py, post_training.py, cost.py, network.py, compare.py,
studies.py, sweep.py, reproduce.py, versions.py, tracing.py   the questions
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from foretell.specs.questions.flags import QuestionField, edges_of, fields_of

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "estimate": "training.TrainingQuestion",
        "search": "training.SearchQuestion",
        "memory": "training.MemoryQuestion",
        "simulate": "training.SimulateQuestion",
        "explain": "training.StepQuestion",
        "compare-plans": "training.PlansQuestion",
        "characterize trace": "training.TraceQuestion",
        "improve": "improve.ImproveQuestion",
        "diagnose": "diagnose.DiagnoseQuestion",
        "serve": "serving.ServingQuestion",
        "size": "sizing.SizeQuestion",
        "fleet": "sizing.FleetQuestion",
        "post-train": "post_training.PostTrainingQuestion",
        "network": "network.NetworkQuestion",
        "cost chip": "cost.PackageQuestion",
        "cost package": "cost.PackageQuestion",
        "cost system": "cost.SystemQuestion",
        "cost run": "cost.RunQuestion",
        "cost token": "cost.TokenQuestion",
        "sensitivity": "studies.SensitivityQuestion",
        "scaling": "studies.ScalingQuestion",
        "buy": "buy.BuyQuestion",
        "compare": "compare.CompareQuestion",
        "sweep": "sweep.SweepQuestion",
        "codesign": "sweep.CodesignQuestion",
        "optimise": "sweep.OptimiseQuestion",
        "reproduce": "reproduce.ReproduceQuestion",
        "changed": "versions.VersionsQuestion",
    }
)
"""Verb -> its question, by module and name: one question alone is loaded for a command."""


def question_type(verb: str) -> Any:
    """The record of a verb's question."""
    module, _, name = QUESTIONS[verb].partition(".")
    return getattr(import_module(f"{__name__}.{module}"), name)


def every_field() -> Iterator[QuestionField]:
    """Every field of every question, and what goes beside them."""
    for verb in QUESTIONS:
        record = question_type(verb)
        yield from (*fields_of(record), *edges_of(record))


def arguments(verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given under the names of other surfaces, by the names of Python."""
    if verb not in QUESTIONS:
        return dict(given)
    names = {field.called: field.name for field in fields_of(question_type(verb))}
    return {names.get(name, name): value for name, value in given.items()}
