"""Loads of today: shared prefixes, sessions, traces, fleets that grow, images; engines of one machine."""

import json
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.errors import BadInput

LOAD = {"system": "h100-sxm", "gpus": 8, "plan": "tp8", "isl": 4000, "osl": 200, "rate": 1.0}


@pytest.mark.parametrize("hit", [0.0, 0.5, 0.9])
def test_prefix_caching_in_closed_form_meets_the_simulation(hit: float) -> None:
    closed = foretell.serve("llama-3.1-70b", **LOAD, prefix_hit=hit)
    played = foretell.serve("llama-3.1-70b", **LOAD, prefix_hit=hit, simulate={"requests": 500})
    assert closed.ttft_ms.mean == pytest.approx(played.ttft_ms.mean, rel=0.15)
    assert closed.tpot_ms.mean == pytest.approx(played.tpot_ms.mean, rel=0.06)


def test_prefix_hits_never_need_more_chips() -> None:
    asked = {"system": "h100-sxm", "rate": 20.0, "isl": 4000, "osl": 200, "tpot": 40, "gpus": 8}
    sizes = [
        foretell.size("llama-3.1-70b", **asked, prefix_hit=hit, simulate=False).best.option.gpus
        for hit in (0.0, 0.5, 0.9)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


def test_sessions_find_their_context_where_they_stay() -> None:
    asked = {"system": "h100-sxm", "gpus": 4, "plan": "tp1", "isl": 1000, "osl": 100, "rate": 3.0}
    options = {"requests": 240, "sessions": "turns=6 pause=2 new=400"}
    hits = []
    for routing in ("round-robin", "sticky"):
        found = foretell.serve("llama-3.1-8b", **asked, simulate={**options, "routing": routing})
        assert found.simulation is not None
        hits.append(found.simulation["prefix_hit_share"])
    assert hits[1] > 0.6
    assert hits[1] > hits[0]


def test_a_day_of_requests_on_a_fleet_that_grows(tmp_path: Path) -> None:
    """Quiet, a rush, quiet: fewer replica-hours than the peak all the time, and what they cost."""
    at, rows = 0.0, []
    for gap, many in ((2.0, 60), (0.02, 2400), (2.0, 60)):
        for _ in range(many):
            at += gap
            rows.append({"at_s": at, "isl": 1500, "osl": 150})
    file = tmp_path / "day.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    asked = {
        "system": "h100-sxm",
        "gpus": 6,
        "plan": "tp1",
        "simulate": True,
        "arrivals": str(file),
    }
    grown = foretell.serve("llama-3.1-8b", **asked, autoscale="min=1 start=10 period=10")
    fixed = foretell.serve("llama-3.1-8b", **asked)
    assert grown.simulation is not None
    scaled = grown.simulation["autoscaling"]
    assert 1 < scaled["replicas_max"] <= 6
    assert scaled["replica_hours"] < 0.8 * scaled["replica_hours_fixed"]
    assert scaled["usd"] == pytest.approx(
        scaled["replica_hours"] * (grown.usd_per_chip_hour or 0.0), rel=1e-6
    )
    assert grown.ttft_ms.p99 > fixed.ttft_ms.p99
    # A token costs what is paid for the replicas that ran, and the trace says its own load.
    for found, paid in ((grown, scaled["usd"]), (fixed, None)):
        usd = found.usd_per_million_output_tokens, found.usd_per_million_input_tokens
        seconds = found.simulation["duration_s"]
        whole = 6.0 * (found.usd_per_chip_hour or 0.0) * seconds / 3600.0
        told = sum(
            1e-6 * (price or 0.0) * tokens * len(rows)
            for price, tokens in zip(usd, (150, 1500), strict=True)
        )
        assert told == pytest.approx(paid or whole, rel=0.1)
        assert not any("neither a concurrency" in line for line in found.assumptions)


def test_prefill_and_decode_are_scaled_apart() -> None:
    asked: dict[str, Any] = {
        "gpus": "8xH100", "plan": "tp1", "prefill_gpus": 4, "rate": 12.0, "isl": 2000, "osl": 200,
        "simulate": True, "requests": 1500,
    }  # fmt: skip
    grown = foretell.serve("llama-3.1-8b", **asked, autoscale="min=1 start=5 period=5")
    fixed = foretell.serve("llama-3.1-8b", **asked)
    assert grown.simulation is not None
    decode = grown.simulation["autoscaling"]
    prefill = decode["prefill"]
    for pool in (decode, prefill):
        assert 1 <= pool["replicas_mean"] <= pool["replicas_max"] <= 4
        assert pool["usd"] == pytest.approx(
            pool["replica_hours"] * (grown.usd_per_chip_hour or 0.0)
        )
    paid = prefill["replica_hours"] + decode["replica_hours"]
    assert paid < 8.0 * grown.simulation["duration_s"] / 3600.0
    assert grown.ttft_ms.p99 >= fixed.ttft_ms.p99


def test_blocks_of_other_tiers_come_back_sooner_than_computed(tmp_path: Path) -> None:
    rows = [
        {
            "timestamp": 800 * i, "input_length": 24 * 512, "output_length": 20,
            "hash_ids": [1000 * (i % 40) + j for j in range(24)],
        }
        for i in range(160)
    ]  # fmt: skip
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    asked = {
        "system": "h100-sxm", "gpus": 1, "plan": "tp1 memory_fraction=0.4", "simulate": True,
        "arrivals": str(file),
    }  # fmt: skip
    plain = foretell.serve("llama-3.1-8b", **asked)
    tiered = foretell.serve("llama-3.1-8b", **asked, kv_tiers="host:1TB@50GB/s")
    assert plain.simulation is not None
    assert tiered.simulation is not None
    assert tiered.simulation["tier_hit_tokens"]["host"] > 0.0
    assert tiered.simulation["prefix_hit_share"] > plain.simulation["prefix_hit_share"]
    assert tiered.ttft_ms.mean < plain.ttft_ms.mean


def test_goodput_counts_requests_within_both_targets() -> None:
    asked = {**LOAD, "isl": 1000, "rate": 4.0}
    free = foretell.serve("llama-3.1-70b", **asked)
    assert free.goodput_requests_per_s is None
    found = [
        foretell.serve("llama-3.1-70b", **asked, ttft=ttft, tpot=1e9).goodput_requests_per_s
        for ttft in (1.0, free.ttft_ms.p50, 1e9)
    ]
    assert found[0] == 0.0
    assert found[1] == pytest.approx(0.5 * free.requests_per_s, rel=0.05)
    assert found[2] == pytest.approx(free.requests_per_s)


def test_images_are_tokens_and_time() -> None:
    """Qwen2.5-VL: patches of 14 pixels, four to a token: 1024 x 1024 pixels are 37 x 37 tokens."""
    asked = {
        "system": "h100-sxm",
        "gpus": 1,
        "plan": "tp1",
        "isl": 100,
        "osl": 50,
        "concurrency": 1,
    }
    plain = foretell.serve("qwen2.5-vl-7b", **asked)
    seen = foretell.serve("qwen2.5-vl-7b", **asked, images="1024x1024")
    assert seen.isl - plain.isl == 37 * 37
    longer = foretell.serve("qwen2.5-vl-7b", **{**asked, "isl": 100 + 37 * 37})
    # The encoder alone: 8 x 676 million weights' FLOP of 5,476 patches take tens of milliseconds.
    assert 5.0 < seen.ttft_ms.mean - longer.ttft_ms.mean < 100.0
    with pytest.raises(BadInput, match="vision encoder"):
        foretell.serve("llama-3.1-8b", **asked, images="64x64")


@pytest.mark.parametrize(
    ("engine", "profile"),
    [("transformers", "transformers-4"), ("tgi", "tgi-3"), ("llama.cpp", "llamacpp-2025"),
     ("ollama", "llamacpp-2025"), ("mlx", "mlx")],
)  # fmt: skip
def test_engines_of_one_machine(engine: str, profile: str) -> None:
    """None is faster than its weights can be read; none claims runs that were not seen."""
    for chip, bandwidth in (("h100-sxm", 3.35e12), ("apple-m4-max", 546e9)):
        found = foretell.serve(
            "llama-3.1-8b", system=chip, gpus=1, plan="tp1 weights=int4", engine=engine,
            isl=200, osl=50, concurrency=1,
        )  # fmt: skip
        assert found.profile == profile
        seen = "datasheet" if chip.startswith("apple") else "transferred"
        assert found.evidence == ("fitted" if profile == "llamacpp-2025" else seen)
        least = 1e3 * (found.weight_bytes - 1.05e9) / bandwidth  # the table is not read
        assert least < found.tpot_ms.mean < 12 * least + 15.0


def test_generate_without_graphs_is_bound_by_its_host() -> None:
    asked = {
        "system": "h100-sxm",
        "gpus": 1,
        "plan": "tp1",
        "isl": 200,
        "osl": 50,
        "concurrency": 1,
    }
    eager = foretell.serve("llama-3.1-8b", **asked, engine="transformers").tpot_ms.mean
    graphs = foretell.serve("llama-3.1-8b", **asked, engine="vllm").tpot_ms.mean
    assert eager > 1.5 * graphs
