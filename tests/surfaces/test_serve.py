"""`foretell serve`: the contract of its JSON, its exit codes, its text."""

import pytest

import foretell as package
from foretell.specs.deployment_text import deployment_text
from tests.surfaces.command import foretell

ASK = (
    "serve",
    "llama-3.1-70b",
    "--system",
    "h200-sxm",
    "--gpus",
    "8",
    "--isl",
    "4000",
    "--osl",
    "500",
)
LATENCIES = ("ttft_ms", "tpot_ms", "tpot_with_first_ms", "e2e_ms")
KEYS = (
    *LATENCIES, "output_tokens_per_s", "output_tokens_per_s_per_gpu", "output_tokens_per_s_per_user",
    "max_batch", "kv_bytes", "usd_per_million_input_tokens", "usd_per_million_output_tokens",
    "joules_per_token", "profile", "limited_by", "model", "system", "gpus", "plan", "plan_chosen", "fits",
    "assumptions", "overrides", "simulated", "interval",
)  # fmt: skip


def test_json_has_every_key_of_the_contract():
    found = foretell(*ASK, "--concurrency", "64", "--json")
    assert found.code == 0
    told = found.json
    assert set(KEYS) <= set(told)
    for name in LATENCIES:
        assert list(told[name]) == ["mean", "p50", "p90", "p95", "p99"]
        assert 0 < told[name]["p50"] <= told[name]["p90"] <= told[name]["p95"] <= told[name]["p99"]
    assert told["simulated"] is False
    assert told["plan_chosen"] is True
    assert told["tpot_with_first_ms"]["mean"] > told["tpot_ms"]["mean"]
    for name in ("ttft_ms", "tpot_ms"):
        low, high = told["interval"][name]["p90"]
        assert low < told[name]["mean"] < high


def test_the_record_is_the_json():
    asked = {"system": "h200-sxm", "gpus": 8, "isl": 4000, "osl": 500, "concurrency": 64}
    record = package.serve("llama-3.1-70b", plan="tp4 weights=fp8 kv=fp8", **asked)
    told = foretell(*ASK, "--concurrency", "64", "--plan", "tp4 weights=fp8 kv=fp8", "--json").json
    assert record.to_dict().keys() == told.keys()
    assert record.ttft_ms.mean == told["ttft_ms"]["mean"]
    assert record.plan == told["plan"]
    assert record.replicas == 2


def test_rent_is_paid_once():
    """Input and output tokens together pay what all chips cost."""
    found = package.serve("llama-3.1-8b", system="h100-sxm", gpus=1, isl=1000, osl=500, concurrency=32,
                          plan="tp1", price=3.6)  # fmt: skip
    paid = found.requests_per_s * (
        1000 * found.usd_per_million_input_tokens + 500 * found.usd_per_million_output_tokens
    )
    assert paid / 1e6 == pytest.approx(3.6 / 3600)


@pytest.mark.parametrize("simulate", [False, True])
def test_size_divides_rent_as_serve_does(simulate):
    """One meaning of a price per million: whatever the layout, both together pay all chips."""
    load = {"system": "h100-sxm", "rate": 20.0, "isl": 2000, "osl": 300, "price": 3.6}
    found = package.size("llama-3.1-8b", ttft=1000, tpot=40, simulate=simulate, **load)
    assert {choice.option.kind for choice in found.choices} == {"aggregated", "disaggregated"}
    for choice in found.choices:
        read, written = choice.usd_per_million_input_tokens, choice.usd_per_million_output_tokens
        paid = 20.0 * (2000 * read + 300 * written) / 1e6
        assert paid == pytest.approx(choice.option.gpus * 3.6 / 3600), choice.option.name()
    one = next(c for c in found.choices if c.option.kind == "aggregated")
    plan = deployment_text(one.option.instance.deployment)
    served = package.serve("llama-3.1-8b", gpus=one.option.gpus, plan=plan, **load)
    for name in ("usd_per_million_input_tokens", "usd_per_million_output_tokens"):
        assert getattr(one, name) == pytest.approx(getattr(served, name), rel=0.1), name


def test_prompts_with_chips_of_their_own_pay_for_these():
    play = {"requests": 100, "arrivals": "poisson", "prefill_plan": "tp1", "prefill_gpus": 3}
    found = package.serve("llama-3.1-8b", system="h100-sxm", gpus=4, plan="tp1", rate=4.0, isl=2000, osl=300,
                          price=3.6, simulate=play)  # fmt: skip
    read, written = found.usd_per_million_input_tokens, found.usd_per_million_output_tokens
    assert 4.0 * 2000 * read / 1e6 == pytest.approx(3 * 3.6 / 3600)
    assert 4.0 * 300 * written / 1e6 == pytest.approx(3.6 / 3600)


def test_text_shows_both_definitions_and_the_profile():
    found = foretell(*ASK, "--concurrency", "64", "--engine", "trtllm", "--price", "2.5")
    assert found.code == 0
    for word in (
        "TTFT",
        "TPOT with the first",
        "trtllm-1-hopper",
        "per user",
        "largest part",
        "$2.50",
    ):
        assert word in found.out


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (("--plan", "tp3"), "not whole instances"),
        (("--plan", "weights=fp9"), "no such value"),
        (("--engine", "vlm"), "no engine or profile"),
        (("--concurrency", "many"), "not a usable number"),
        (("--concurrency", "4", "--rate", "2"), "beside a concurrency"),
        (("--set", "plan.tp=2"), "use --plan"),
        (("--spread", "0"), "not a usable number"),
    ],
)
def test_bad_input_is_told_and_prints_nothing(more, word):
    found = foretell(*ASK, *more)
    assert found.code == 2
    assert found.out == ""
    assert word in found.err


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (("--gpus", "1", "--plan", "tp1", "--system", "h100-sxm"), "nothing is left for the cache"),
        (("--isl", "9000000", "--plan", "tp8"), "the cache holds"),
        (("--rate", "100000", "--plan", "tp8"), "the queue has no end"),
    ],
)
def test_no_is_an_answer_with_its_reason(more, word):
    words = dict(zip(ASK[2::2], ASK[3::2], strict=True)) | dict(
        zip(more[::2], more[1::2], strict=True)
    )
    found = foretell(
        "serve", "llama-3.1-70b", *(w for pair in words.items() for w in pair), "--json"
    )
    assert found.code == 1
    assert word in found.err
    assert found.json["fits"] == "no"


def test_numbers_set_by_hand_matter():
    fast = foretell(
        *ASK, "--plan", "tp8", "--set", "chip.memory_bandwidth_bytes_per_s=9.6e12", "--json"
    ).json
    slow = foretell(*ASK, "--plan", "tp8", "--json").json
    assert fast["tpot_ms"]["mean"] < slow["tpot_ms"]["mean"]
    assert fast["overrides"]


def test_a_price_set_by_hand_is_paid():
    asked = {"system": "h100-sxm", "gpus": 1, "plan": "tp1", "concurrency": 8}
    by_flag = package.serve("llama-3.1-8b", price=2.0, **asked)
    by_path = package.serve("llama-3.1-8b", set=("prices.usd_per_chip_hour=2.0",), **asked)
    assert by_flag.usd_per_million_output_tokens == by_path.usd_per_million_output_tokens


@pytest.mark.parametrize("verb", ["serve", "size"])
def test_words_and_engine_are_looked_at_beside_names(verb):
    """One go: a wrong model does not hide a wrong engine or a wrong word."""
    wrong = ("llama-3.1-70", "--system", "h100-sx", "--rate", "1", "--engine", "vlm", "--plan", "q")
    outcome = foretell(verb, *wrong)
    assert (outcome.code, outcome.out) == (2, "")
    paths = [line.split(":")[1].strip() for line in outcome.err.splitlines()]
    assert paths == ["model", "system", "engine", "plan"]
