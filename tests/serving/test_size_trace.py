"""`size` on a trace or on sessions: what it recommends meets the targets where `serve` simulates it."""

import random
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.errors import BadInput
from foretell.serving.requests.prefixes import reusable_share
from foretell.serving.requests.records import Requests

SERVICE: dict[str, Any] = {"system": "h100-sxm", "gpus": 4, "percentile": "p99", "tpot": 40.0}


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,200 requests, five times as many a second in the middle as before and after."""
    rng, at = random.Random(3), 0.0
    lines = ["timestamp,prompt_tokens,output_tokens"]
    for _ in range(1200):
        at += rng.expovariate(60.0 if 20.0 < at < 30.0 else 12.0)
        lines.append(f"{at:.3f},{rng.randint(200, 4000)},{rng.randint(20, 400)}")
    file = tmp_path_factory.mktemp("traces") / "bursts.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_trace_is_sized_by_its_own_percentile(bursts: Path) -> None:
    found = foretell.size("llama-3.1-8b", **SERVICE, ttft=1500.0, arrivals=str(bursts))
    best = next(one for one in found.choices if one.option.prefill is None and one.simulated)
    o = best.option
    again = foretell.serve(
        "llama-3.1-8b", system="h100-sxm", gpus=o.gpus, plan=best.to_dict()["plan"], simulate=True,
        arrivals=str(bursts),
    )  # fmt: skip
    assert again.ttft_ms.p99 == pytest.approx(best.ttft_ms)
    assert again.tpot_ms.p99 == pytest.approx(best.tpot_ms)
    assert best.meets
    assert any("1,200 requests" in line for line in found.assumptions)
    # Requests that come evenly by chance at the same rate and lengths take fewer chips.
    even = foretell.size(
        "llama-3.1-8b", **SERVICE, ttft=1500.0, rate=found.wanted.rate, isl=found.wanted.isl,
        osl=found.wanted.osl,
    )  # fmt: skip
    assert even.best.option.gpus <= found.best.option.gpus


def test_a_trace_scaled_to_a_higher_rate_never_takes_fewer_chips(bursts: Path) -> None:
    few, many = (
        foretell.size("llama-3.1-8b", **SERVICE, arrivals=str(bursts), rate=rate)
        for rate in (10.0, 40.0)
    )
    assert many.wanted.rate == 40.0
    assert many.best.option.gpus >= few.best.option.gpus


def test_turns_of_sessions_find_their_past_in_the_cache() -> None:
    asked = {**SERVICE, "rate": 6.0, "isl": 3000, "osl": 150, "requests": 600}
    found = foretell.size(
        "llama-3.1-8b", **asked, sessions="turns=6 pause=2 new=300", routing="sticky"
    )
    assert 0.5 < found.wanted.cached < 1.0
    assert found.wanted.isl > 3000
    assert found.best.meets


def test_what_a_cache_without_limit_would_have() -> None:
    alike = Requests(isl=[33] * 4, osl=[1] * 4, blocks=[(1, 2, 3)] * 4, block_tokens=16)
    assert reusable_share(alike) == pytest.approx(3 * 32 / (4 * 33))
    assert reusable_share(Requests(isl=[10], osl=[1])) == 0.0


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"arrivals": "none.csv"}, "no such file"),
        ({"sessions": "turns=3"}, "rate"),
        ({"sessions": "turns=3", "rate": 3.0, "simulate": False}, "which requests are simulated"),
        ({"arrivals": "burst"}, "rate"),
    ],
)
def test_what_cannot_be_sized_is_an_error(more: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        foretell.size("llama-3.1-8b", **{**SERVICE, **more})
