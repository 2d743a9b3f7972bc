"""Requests made up from the OpenAPI description: whatever comes, the answer is one of those described."""

import json
import random
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from tests.surfaces.command import TOY
from tests.web.client import app

OFTEN, MANY = 5, 280
"""Requests to each of the operations, in the short run and in the long one (10,000 in all)."""
DESCRIBED = {200, 400, 413, 422, 429}

STUDY = {
    "study": {"kind": "training", "plan": "tp2"},
    "base": {"model": "gpt2", "system": "h100-sxm", "gpus": 8, "rent": "own"},
    "vary": {"chip.memory_bandwidth_bytes_per_s": ["2 TB/s", 4e12]},
}
SERVED = {
    "study": {"kind": "serving"},
    "base": {"model": TOY, "system": {"chip": "h100-sxm"}, "concurrency": 4, "rent": "spot"},
    "vary": {"gpus": [1, 2], "isl": {"low": 8, "high": 80, "steps": 2, "scale": "log"}},
    "limits": {"ttft_ms_p50": 100},
    "objectives": {"output_tokens_per_s": "max"},
}
MIX = {
    "base": {"model": "gpt2"},
    "workload": [
        {"name": "a", "gpus": 8, "global_batch": 64},
        {"kind": "serving", "isl": 9, "weight": 2},
    ],
}

PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "model": ("gpt2", "llama-3.2-1b", "t5-base", "bert-base-uncased", "deepseek-v2-lite", TOY, {}),
    "system": ("h100-sxm", "dgx-a100", "tpu-v5p", "mi300x", "gb200-nvl72", {"chip": "h100-sxm"}),
    "gpus": (1, 2, 8, 12, "8xH100", "0", -1),
    "name": ("h100-sxm", "tpu-v5e", ""),
    "global_batch": (1, 32, 96),
    "seq_len": (1, 512, 4096),
    "target_len": (1, 512),
    "plan": ("tp8", "tp2 pp2 zero1", "tp2", "", "tp0", "pp4 vpp2 mbs1", "weights=fp8", "cp2 ep4"),
    "a": ("tp8", "tp4 pp2"),
    "b": ("tp8", "tp2"),
    "set": (["chip.memory_bytes=90GB"], {"network.node.latency_s": 0}, ["plan.tp=4"], ["model.x=1"]),
    "top": (1, 3),
    "over": ("schedule", "cp_mode", "x"),
    "isl": (1, 128, 1000.5),
    "osl": (1, 64),
    "concurrency": (1, 8),
    "rate": (0.1, 5),
    "requests": (1, 50),
    "repeats": (1, 3),
    "seed": (0, 7),
    "bytes": ("64MiB", 0, 1e6),
    "group": (1, 8, 16),
    "collective": ("all-reduce", "all-to-all", "broadcast", "barrier", "send"),
    "percentile": ("p50", "p99", "mean"),
    "ttft": (100, 5000),
    "tpot": (20, 500),
    "engine": ("vllm", "trtllm", "sglang"),
    "node": ("N5", "N7"),
    "area": (100, "800"),
    "dies": (1, 2, "x"),
    "package": ("organic", "interposer"),
    "factor": (2, 1.5, 0),
    "detail": ("tasks", "auto"),
    "sweep": (["gpus=8,16"], ["area=1:9:3"], ["x"]),
    "tokens": ("1B", 1e9, "chinchilla"),
    "arrivals": ("poisson", "closed"),
    "simulate": (False, True),
    "export": ("vllm", "x"),
    "what": ("chip", "package", "system", "run", "token"),
    "models": (["gpt2"], ["gpt2", TOY], [], ["gpt2", "gpt2"], ["./x"]),
    "systems": (["h100-sxm"], ["h100-sxm", "tpu-v5p"], ["mi300x", {"chip": "h100-sxm"}], ["x"], []),
    "study": (STUDY, SERVED, {**STUDY, **MIX}, {**STUDY, "vary": {"plan.tp": [1, 2, 3]}}, {"study": 1}, {}),
    "workload": (MIX, {"base": {}}, {"workload": [{}]}, {"workload": 3}, {}),
    "budget": ("1M", 2e6, "0", "x"),
    "by": ("tokens", "usd"),
    "strategies": ("zero1", "zero1,tp2 zero3", "x", ","),
    "mode": ("weak", "strong"),
    "floor": (0.8, 0, 1),
    "micro_batch": (1, 2),
    "batch_per_gpu": (1, 4),
    "trials": (1, 9, 10),
    "rent": ("own", "spot", "on-demand", "3-year"),
    "years": (3, "x"),
    "utilisation": (0.5, 2),
}  # fmt: skip
"""Values that get a question further than its door."""

schema = schemathesis.openapi.from_asgi("/openapi.json", app())
schema.config.request_timeout = 600  # a loaded machine is no defect


NEEDED = (
    "model",
    "system",
    "rate",
    "collective",
    "bytes",
    "group",
    "a",
    "b",
    "models",
    "systems",
    "study",
)
"""Fields that some question must have."""
PLACE = {"model": "gpt2", "system": "h100-sxm", "gpus": 8}
ENOUGH: dict[str, dict[str, Any]] = {
    "compare-plans": {**PLACE, "a": "tp2", "b": "tp4"},
    "size": {"model": "gpt2", "system": "h100-sxm", "rate": 5, "simulate": False},
    "compare": {"model": "gpt2", "systems": ["h100-sxm", "tpu-v5p"], "gpus": 8},
    "scaling": {"models": ["gpt2", TOY], "system": "h100-sxm", "gpus": "4,8"},
    "codesign": {"study": STUDY},
    "optimise": {"study": SERVED},
    "network": {"system": "h100-sxm", "collective": "all-reduce", "bytes": "1MiB", "group": 8},
    "chip": {"name": "h100-sxm"},
    "package": {"node": "N5", "area": 100},
    "cost": {"node": "N5", "area": 100},
}
"""What makes a question of an operation complete; PLACE for all others."""
OF = {
    "clusters": "compare", "clusters-cost": "compare", "scaling-efficiency": "scaling", "pareto": "size",
    "bandwidths": "network",
}  # fmt: skip
"""Figures of such operations."""
CONTRADICT = {"target_len", "export", "budget", "sweep", "study", "detail", "workload"}
"""Fields that many a question has no use for."""


def likely(body: Any, operation: str) -> Any:
    """A third of the bodies as they are, a third with values that are known, a third that can be answered."""
    if not isinstance(body, dict):
        return body
    chance = random.Random(json.dumps(body, sort_keys=True, default=str))
    if isinstance(body.get("questions"), list):
        return {
            **body,
            "questions": [likely(question, operation) for question in body["questions"]],
        }
    kind = chance.randrange(3)
    if kind == 0:
        return body
    names = [
        name
        for name in body
        if name in PLAUSIBLE
        and (name in NEEDED or chance.random() < 0.6)
        and not (name == "study" and isinstance(body[name], bool))  # a switch of scaling
    ]
    made = {name: chance.choice(PLAUSIBLE[name]) for name in names}
    if kind == 2:
        right = {n: chance.choice(PLAUSIBLE[n][:2]) for n in names if n not in CONTRADICT}
        made = {**right, **ENOUGH.get(OF.get(operation, operation), PLACE)}
    if "what" in body:
        made["what"] = body["what"]
    return made


PLAYED = {"memory", "simulate", "trace", "timeline", "memory-over-step"}
"""Operations whose time grows with the micro-batches of a step."""


def quick(body: Any) -> Any:
    """The body with a small batch."""
    if not isinstance(body, dict):
        return body
    if isinstance(body.get("questions"), list):
        return {**body, "questions": [quick(question) for question in body["questions"]]}
    return {"global_batch": 12, **body} if "model" in body else body


def check(case: Any) -> None:
    """Ask, and look whether the answer is described."""
    words = case.path.split("/")
    body = likely(case.body, words[-1])
    case.body = quick(body) if PLAYED & set(words) else body
    response = case.call()
    assert response.status_code in DESCRIBED | {404, 405}, (case.body, response.text[:300])
    if response.status_code >= 400:
        assert response.json()["errors"]
    elif "json" in response.headers["content-type"][0]:
        json.loads(response.text, parse_constant=pytest.fail)


QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
OPERATIONS = [found.ok() for found in schema.get_all_operations()]


def asked(operation: Any, many: int) -> None:
    """So many requests to an operation: those that its description allows, and some that it forbids."""
    cases = operation.as_strategy()
    if operation.method == "post":
        cases = st.one_of(cases, operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    run = given(cases)(check)
    settings(
        max_examples=many,
        suppress_health_check=QUIET,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
    )(run)()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_every_answer_is_described(operation: Any) -> None:
    asked(operation, OFTEN)


@pytest.mark.full
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_ten_thousand_answers_are_described(operation: Any) -> None:
    asked(operation, MANY)
