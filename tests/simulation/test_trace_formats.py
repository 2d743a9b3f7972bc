"""Public traces in their published columns: each is known, its unit is right, and what was taken is said."""

import json
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.errors import BadInput
from foretell.serving.requests.records import EngineRules, Fleet, Requests
from foretell.serving.requests.run import play
from foretell.serving.requests.sessions import conversations
from foretell.serving.requests.traces import read_trace

MANY = 40
TALK = [
    {"id": f"c{i}", "conversations": [
        {"from": "human", "value": "x" * 2000}, {"from": "gpt", "value": "y" * 800},
        {"from": "human", "value": "x" * 400}, {"from": "gpt", "value": "y" * 400},
    ]}
    for i in range(MANY)
]  # fmt: skip


def table(head: str, row: str) -> str:
    return head + "\n" + "".join(row.format(i=i, s=i % 60, m=i // 60) + "\n" for i in range(MANY))


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


MOONCAKE = [{"timestamp": 500 * i, "input_length": 1200, "output_length": 20, "hash_ids": [0, 1, 9 + i]}
            for i in range(MANY)]  # fmt: skip
QWEN = [{"chat_id": i, "parent_chat_id": -1, "timestamp": 0.5 * i, "input_length": 40, "output_length": 20,
         "type": "text", "turn": 1, "hash_ids": [0, 1, 9 + i]} for i in range(MANY)]  # fmt: skip
PUBLIC: dict[str, tuple[str, str, str]] = {
    # name: (file, content, what is said of it); the columns as published
    "Azure 2023": ("a.csv", table("TIMESTAMP,ContextTokens,GeneratedTokens",
                                  "2023-11-16 18:{m:02d}:{s:02d}.6805900,{i}1,44"), "Azure columns, dates"),
    "Azure 2024": ("a.csv", table("TIMESTAMP,ContextTokens,GeneratedTokens",
                                  "2024-05-10 00:{m:02d}:{s:02d}.009930+00:00,{i}1,44"), "Azure columns"),
    "BurstGPT 1": ("b.csv", table("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
                                  "{i},ChatGPT,47,18,65,Conversation log"), "BurstGPT columns"),
    "BurstGPT 2": ("b.csv", table("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
                                  "Total tokens,Log Type", "{i}.5,7,3.2,GPT-4,47,18,65,API log"),
                   "BurstGPT columns, timestamps in s"),
    "Mooncake": ("m.jsonl", jsonl(MOONCAKE), "timestamps in ms, hash ids of 512 tokens"),
    "Qwen-Bailian": ("q.jsonl", jsonl(QWEN), "timestamps in s, hash ids of 16 tokens"),
    "ShareGPT": ("s.json", json.dumps(TALK), "80 requests of 40 conversations"),
    "LMSYS": ("l.jsonl", jsonl([{"conversation": [{"role": "user", "content": "x" * 99},
                                                  {"role": "assistant", "content": "y" * 99}]}]),
              "1 requests of 1 conversations"),
    "messages": ("m.jsonl", jsonl([{"messages": [{"role": "user", "content": "x" * 99},
                                                 {"role": "assistant", "content": "y" * 99}]}]),
                 "1 requests of 1 conversations"),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_trace_is_known_by_its_columns(name: str, tmp_path: Path) -> None:
    file, content, said = PUBLIC[name]
    path = tmp_path / file
    path.write_text(content)
    found = read_trace(path)
    assert any(said in line for line in found.said), found.said
    if found.at_s is not None:
        assert 0.5 <= len(found) / found.at_s[-1] <= 3.0


def test_azure_rows_without_an_answer_failed(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00+00:00,100,0\n"
        "2024-05-10 00:00:01+00:00,100,5\n2024-05-10 00:00:02+00:00,100,7\n"
    )
    found = read_trace(path)
    assert found.osl == [5, 7]
    assert any("1 row without" in line for line in found.said)


def test_a_slow_trace_of_unknown_columns_is_likely_in_milliseconds(tmp_path: Path) -> None:
    """Mooncake's requests without their hash ids: seven in a thousand seconds would be no service."""
    path = tmp_path / "trace.jsonl"
    rows = [{k: v for k, v in {**row, "timestamp": 150 * i}.items() if k != "hash_ids"}
            for i, row in enumerate(MOONCAKE)]  # fmt: skip
    path.write_text(jsonl(rows))
    with pytest.raises(BadInput, match="likely in ms"):
        read_trace(path)


ASKED: dict[str, Any] = {"system": "h100-sxm", "gpus": 1, "plan": "tp1", "simulate": True}


def test_a_trace_is_cut_and_brought_to_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(jsonl(MOONCAKE))
    asked = {**ASKED, "arrivals": str(path)}
    own, faster = (foretell.serve("llama-3.1-8b", **asked, rate=rate) for rate in (None, 8.0))
    assert own.simulation is not None
    assert faster.requests_per_s > 3.0 * own.requests_per_s
    cut = foretell.serve("llama-3.1-8b", **asked, requests=10)
    assert cut.simulation is not None
    assert cut.simulation["requests"] == 10
    assert any("hash ids of 512" in line for line in own.assumptions)


@pytest.mark.parametrize(
    ("name", "value"),
    [("lengths", "uniform"), ("prefix_hit", 0.5), ("sessions", "turns=2"), ("concurrency", 4)],
)
def test_what_a_trace_says_is_not_said_again(name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(jsonl(MOONCAKE))
    with pytest.raises(BadInput, match=name):
        foretell.serve("llama-3.1-8b", **ASKED, arrivals=str(path), **{name: value})


@pytest.mark.parametrize(("name", "value"), [("trace_unit", "ms"), ("block_tokens", 16)])
def test_what_is_of_a_trace_needs_one(name: str, value: object) -> None:
    with pytest.raises(BadInput, match="of a trace"):
        foretell.serve("llama-3.1-8b", **ASKED, concurrency=4, **{name: value})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kv_tiers": "host:1TB@50GB/s"}, "every prompt is new"),
        ({"routing": "sticky"}, "sessions together"),
        ({"autoscale": "min=3 max=2"}, "min is above max"),
    ],
)
def test_an_option_that_would_do_nothing_is_an_error(options: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        foretell.serve("llama-3.1-8b", **ASKED, concurrency=4, **options)


def test_a_later_turn_finds_the_answers_before_it() -> None:
    """Sessions of answers only: what a later turn asks with was generated, and is in the cache."""
    load: dict[str, Any] = {**ASKED, "rate": 0.5, "isl": 64, "osl": 800, "requests": 40}
    found = foretell.serve("llama-3.1-8b", **load, sessions="turns=4 pause=1 new=16")
    assert found.simulation is not None
    # Turns of 64, 880, 1,696 and 2,512 tokens: all but the new ones are there.
    assert found.simulation["prefix_hit_share"] > 0.9


class OneSecond:
    """A clock of equal steps."""

    def line(self, decoding: int, context_tokens: float) -> tuple[float, float, float]:
        return 1.0, 0.0, float("inf")

    def mixed(
        self, decoding: int, context_tokens: float, new: float, past: float, prompts: int
    ) -> float:
        return 1.0


def test_turns_of_a_conversation_follow_each_other_and_share_what_was_said() -> None:
    """The second turn asks with 500 + 200 + 100 tokens, of which 700 are in the cache: 43 blocks of 16."""
    found = conversations(TALK[:3])
    loop = Requests(
        isl=found.isl, osl=found.osl, after=found.after, blocks=found.blocks, kept=found.kept,
        block_tokens=found.block_tokens, concurrency=2,
    )  # fmt: skip
    rules = EngineRules(max_batch=8, max_tokens=8192, kv_tokens=1e6, prefix_caching=True)
    played = play(loop, Fleet(rules=rules), OneSecond())
    for second, first in enumerate(found.after or ()):
        if first >= 0:
            assert played.arrival_s[second] == pytest.approx(played.done_s[first])
    # Two conversations begin at once, the third when one of them is over.
    assert (played.arrival_s[[0, 2]] == 0.0).all()
    assert played.arrival_s[4] == pytest.approx(min(played.done_s[1], played.done_s[3]))
    assert played.prefix_hits == 3 * 16 * 43
