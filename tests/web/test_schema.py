"""Requests made up from the OpenAPI description: whatever comes, the answer is one of those described."""

import json
import random
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests.surfaces.command import TOY
from tests.web.client import app

OFTEN, MANY = 5, 500
"""Requests to each of the operations, in the short run and in the long one (10,000 in all)."""
DESCRIBED = {200, 400, 413, 422, 429, 503}

PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "model": ("llama-3.1-8b", "gpt2", "mixtral-8x7b", "t5-base", "bert-base-uncased", "vit-base", TOY, {}),
    "system": ("h100-sxm", "dgx-a100", "tpu-v5p", "mi300x", "gb200-nvl72", {"chip": "h100-sxm"}),
    "gpus": (1, 8, 12, 64, "8xH100", "0", -1),
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
    "of": ("step_s", "energy_joules"),
    "detail": ("tasks", "auto"),
    "sweep": (["gpus=8,16"], ["area=1:9:3"], ["x"]),
    "tokens": ("1B", 1e9, "chinchilla"),
    "arrivals": ("poisson", "closed"),
    "simulate": (False, True),
    "export": ("vllm", "x"),
    "what": ("chip", "package", "system", "run", "token"),
}  # fmt: skip
"""Values that get a question further than its door."""

schema = schemathesis.openapi.from_asgi("/openapi.json", app())


def likely(body: Any) -> Any:
    """The body with some of its fields made plausible, the same for the same body."""
    if not isinstance(body, dict):
        return body
    chance = random.Random(json.dumps(body, sort_keys=True, default=str))
    for name in sorted({*body, *(n for n in PLAUSIBLE if chance.random() < 0.1)}, key=str):
        if name in PLAUSIBLE and chance.random() < 0.8 and (name in body or chance.random() < 0.3):
            body[name] = chance.choice(PLAUSIBLE[name])
    return body


def check(case: Any) -> None:
    """Ask, and look whether the answer is described."""
    case.body = likely(case.body)
    response = case.call()
    assert response.status_code in DESCRIBED | {404, 405}, (case.body, response.text[:300])
    if response.status_code >= 400:
        assert response.json()["errors"]
    elif "json" in response.headers["content-type"][0]:
        json.loads(response.text, parse_constant=pytest.fail)


QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@schema.parametrize()
@settings(max_examples=OFTEN, suppress_health_check=QUIET, deadline=None, derandomize=True)
def test_every_answer_is_described(case: Any) -> None:
    check(case)


@pytest.mark.full
@schema.parametrize()
@settings(max_examples=MANY, suppress_health_check=QUIET, deadline=None, derandomize=True)
def test_ten_thousand_answers_are_described(case: Any) -> None:
    check(case)
