"""Every key of an answer's JSON is an attribute of its record in Python."""

import copy
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.api.cost import RunQuestion, TokenQuestion, run_cost, token_cost
from foretell.api.network import collective
from foretell.economics.ask_system import SystemQuestion, system_cost

SMALL: dict[str, Any] = {"system": "h100-sxm", "gpus": 8, "global_batch": 32, "seq_len": 2048}
PLAN: dict[str, Any] = {**SMALL, "plan": "zero3 mbs1"}
MODEL, SYSTEM = "llama-3.1-8b", "h100-sxm"
STUDY = Path(__file__).parents[2] / "examples" / "codesign_small.toml"
FLEET = {"model": [{"model": MODEL, "rate": 1.0}, {"model": "qwen3-4b", "rate": 1.0, "osl": 32}]}
BY_NAME = ("compare.beats",)
"""Rows and columns of a matrix, which JSON has by the names of systems."""
ANSWERS: dict[str, Callable[[], Any]] = {
    "estimate": lambda: foretell.estimate(MODEL, **PLAN, tokens="1T"),
    "search": lambda: foretell.search(MODEL, **SMALL),
    "explain": lambda: foretell.explain(MODEL, **PLAN),
    "memory": lambda: foretell.memory(MODEL, **PLAN),
    "simulate": lambda: foretell.simulate(MODEL, **PLAN),
    "compare_plans": lambda: foretell.compare_plans("zero3", "tp2 zero2", MODEL, **SMALL),
    "sensitivities": lambda: foretell.sensitivity(MODEL, **PLAN),
    "scaling": lambda: foretell.scaling(MODEL, system=SYSTEM, gpus="8,16", strategies="zero3"),
    "compare": lambda: foretell.compare([SYSTEM, "h200-sxm"], model=MODEL, gpus=8, plan="zero3"),
    "serve": lambda: foretell.serve(MODEL, system=SYSTEM, gpus=1),
    "size": lambda: foretell.size(MODEL, system=SYSTEM, rate=1.0, simulate=False),
    "fleet": lambda: foretell.fleet(FLEET, system=SYSTEM, simulate=False),
    "choice": lambda: foretell.size(MODEL, system=SYSTEM, rate=1.0, simulate=False).best,
    "codesign": lambda: foretell.codesign(STUDY),
    "cost run": lambda: run_cost(RunQuestion(model=MODEL, system=SYSTEM, gpus=8, plan="zero3")),
    "cost token": lambda: token_cost(TokenQuestion(model=MODEL, system=SYSTEM, gpus=1)),
    "cost system": lambda: system_cost(SystemQuestion(system=SYSTEM, gpus=8)),
    "network": lambda: collective(SYSTEM, collective="all-reduce", size="1MiB", group=16),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_key_is_an_attribute(name: str) -> None:
    answer = ANSWERS[name]()
    told = answer.to_dict()
    assert [key for key in told if not hasattr(answer, key)] == []
    for key, value in told.items():
        if isinstance(value, bool | int | float) and key != "best":
            assert getattr(answer, key) == value, key


@pytest.mark.parametrize("name", ANSWERS)
def test_every_key_of_a_part_is_an_attribute_of_it(name: str) -> None:
    answer = ANSWERS[name]()
    assert list(dict.fromkeys(_lacking(answer, answer.to_dict(), name))) == []


def _lacking(record: Any, told: Any, where: str) -> Iterator[str]:
    """Keys of JSON, at any depth, that the record which they tell of has no attribute for."""
    if isinstance(told, list) and isinstance(record, list | tuple):
        for part, one in zip(record, told, strict=False):
            yield from _lacking(part, one, f"{where}[]")
    elif isinstance(told, dict) and not isinstance(record, Mapping) and where not in BY_NAME:
        for key, value in told.items():
            if hasattr(record, key):
                yield from _lacking(getattr(record, key), value, f"{where}.{key}")
            else:
                yield f"{where}.{key}"


def test_a_name_that_is_none_is_no_attribute() -> None:
    answer = ANSWERS["memory"]()
    with pytest.raises(AttributeError, match="MemoryAnswer has no peak_bites"):
        _ = answer.peak_bites
    assert not hasattr(answer, "__rich__")
    again = pickle.loads(pickle.dumps(answer))
    assert (
        again.peak_memory_bytes == copy.copy(answer).peak_memory_bytes == answer.peak_memory_bytes
    )
    assert json.dumps(again.to_dict()) == json.dumps(answer.to_dict())
