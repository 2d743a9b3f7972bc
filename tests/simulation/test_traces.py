"""Public traces: units, blocks of prompts, failures, conversations; caches over several tiers of memory."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.serving.requests.prefixes import BlockCache, read_tiers
from foretell.serving.requests.records import AutoscaleRule, KvTier, Requests
from foretell.serving.requests.routing import Autoscaler, read_autoscale
from foretell.serving.requests.sessions import Sessions, read_sessions, session_requests
from foretell.serving.requests.traces import read_trace


def lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def mooncake(gap: float, many: int = 20, block: int = 512) -> list[dict[str, object]]:
    return [
        {
            "timestamp": gap * i, "input_length": block * 3 - 100, "output_length": 50,
            "hash_ids": [0, 1, 10 + i],
        }
        for i in range(many)
    ]  # fmt: skip


def test_mooncake_counts_milliseconds_and_blocks_of_512(tmp_path: Path) -> None:
    found = read_trace(lines(tmp_path / "trace.jsonl", mooncake(1000)))
    assert found.at_s is not None
    assert found.at_s[-1] == pytest.approx(19.0)
    assert found.block_tokens == 512
    assert found.blocks is not None
    assert found.blocks[3] == (0, 1, 13)


def test_qwen_bailian_counts_seconds_and_blocks_of_16(tmp_path: Path) -> None:
    rows = [
        {**row, "chat_id": i, "parent_chat_id": i - 1 if i % 2 else -1}
        for i, row in enumerate(mooncake(1.0, block=16))
    ]
    for row in rows:
        row["input_length"] = 40
    found = read_trace(lines(tmp_path / "trace.jsonl", rows))
    assert (found.block_tokens, found.at_s and found.at_s[-1]) == (16, 19.0)
    assert found.session is not None
    assert found.session[0] == found.session[1] != found.session[2]


def test_a_trace_in_another_unit_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A trace that comes at 0.00 requests/s is in milliseconds, or microseconds."""
    rows = [{"at_s": 2000 * i, "isl": 10, "osl": 5} for i in range(20)]
    path = lines(tmp_path / "trace.jsonl", rows)
    with pytest.raises(BadInput, match="likely in ms") as caught:
        read_trace(path)
    assert "--trace-unit ms" in str(caught.value.problems[0].allowed)
    assert read_trace(path, "ms").at_s == pytest.approx([2.0 * i for i in range(20)])


def test_hash_ids_that_fit_no_block_ask_for_its_size(tmp_path: Path) -> None:
    rows = [{**row, "input_length": 384} for row in mooncake(1000)]
    path = lines(tmp_path / "trace.jsonl", rows)
    with pytest.raises(BadInput, match="tokens to an id"):
        read_trace(path)
    assert read_trace(path, block_tokens=128).block_tokens == 128


def test_azure_has_dates_of_seven_digits(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,3180,8\n"
    )
    found = read_trace(file)
    assert found.at_s == pytest.approx([0.0, 0.5])
    assert found.isl == [4808, 3180]


def test_burstgpt_drops_requests_that_failed(tmp_path: Path) -> None:
    file = tmp_path / "burst.csv"
    file.write_text(
        "Timestamp,Session ID,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,a,ChatGPT,472,18,490,Conversation log\n45,b,ChatGPT,100,0,100,API log\n"
        "118,a,GPT-4,1087,230,1317,Conversation log\n"
    )
    found = read_trace(file)
    assert found.isl == [472, 1087]
    assert found.at_s == pytest.approx([0.0, 113.0])
    assert found.session == [0, 0]


def test_conversations_ask_with_all_before_them(tmp_path: Path) -> None:
    file = tmp_path / "sharegpt.json"
    turns = [("human", 400), ("gpt", 800), ("human", 400), ("gpt", 400)]
    talk = [{"from": who, "value": "x" * size} for who, size in turns]
    file.write_text(json.dumps([{"id": "a", "conversations": talk}]))
    found = read_trace(file)
    assert (found.isl, found.osl, found.at_s) == ([100, 400], [200, 100], None)
    assert found.blocks is not None
    assert found.blocks[1][: len(found.blocks[0])] == found.blocks[0]


CHAIN = Requests(
    isl=[48, 48, 48, 48], osl=[1] * 4, block_tokens=16,
    blocks=[(0, 1, 2), (0, 1, 3), (5, 1, 3), (0, 1, 2)],
)  # fmt: skip


def test_hits_end_at_the_first_miss() -> None:
    cache = BlockCache()
    assert cache.use(0, CHAIN) == 0.0
    cache.keep(0, CHAIN)
    assert cache.use(1, CHAIN) == 32.0
    cache.keep(1, CHAIN)
    assert cache.use(2, CHAIN) == 0.0  # block 1 is there, but what is before it is not
    cache.keep(2, CHAIN)
    for request in range(3):
        cache.leave(request)
    assert cache.use(3, CHAIN) == 32.0  # the last token of a prompt is always computed
    assert cache.has(3, CHAIN)


def test_what_the_cache_loses_a_tier_keeps() -> None:
    slow = KvTier(name="host", tokens=1e6, s_per_token=1e-3)
    cache = BlockCache((slow,))
    cache.use(0, CHAIN)
    cache.keep(0, CHAIN)
    cache.leave(0)
    assert cache.evict(1e9) == 48.0
    assert not cache.known
    assert cache.use(3, CHAIN) == 32.0
    assert cache.from_tier == {"host": 48.0}
    assert cache.loading_s[3] == pytest.approx(48e-3)
    assert cache.room(3) == 48.0


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(0, 60))
def test_no_tier_holds_more_than_it_can(prompts: list[int], room: int) -> None:
    size = 16
    many = Requests(
        isl=[n * size for n in prompts], osl=[1] * len(prompts), block_tokens=size,
        blocks=[tuple(range(100 * i, 100 * i + n)) for i, n in enumerate(prompts)],
    )  # fmt: skip
    tiers = tuple(KvTier(name=n, tokens=room * size, s_per_token=1.0) for n in ("host", "ssd"))
    cache = BlockCache(tiers)
    for request in range(len(prompts)):
        cache.use(request, many)
        cache.keep(request, many)
        cache.leave(request)
        cache.evict(math.inf)
    assert not cache.known
    assert all(len(blocks) <= room for _, blocks in cache.tiers)


def test_turns_of_a_session_follow_each_other() -> None:
    drawn = Requests(isl=[100] * 12, osl=[10] * 12, at_s=[float(i) for i in range(12)])
    found = session_requests(drawn, Sessions(turns=4, pause_s=1.0, new_tokens=50), 0)
    assert found.after is not None
    assert list(found.after) == [-1, 0, 1, 2, -1, 4, 5, 6, -1, 8, 9, 10]
    for i, before in enumerate(found.after):
        if before >= 0:
            assert found.isl[i] > found.isl[before] + found.osl[before]
    assert found.blocks is not None
    assert found.blocks[1][: len(found.blocks[0])] == found.blocks[0]
    assert not set(found.blocks[0]) & set(found.blocks[4])


def test_replicas_are_started_late_and_paid_for_from_the_decision_on() -> None:
    scaler = Autoscaler(AutoscaleRule(least=1, start_s=30.0, period_s=10.0), 8, 1.0)
    for i in range(101):
        scaler.observe(0.1 * i, 0)
    assert scaler.active(10.0) == [0]
    wanted = math.ceil(10.1 / 0.7)
    assert len(scaler.active(40.1)) == min(wanted, 8)
    assert scaler.pool(20.0).replica_seconds == pytest.approx(20.0 + 7 * 10.0)
    scaler.observe(60.0, 0)
    assert scaler.active(60.0) == [0]


@pytest.mark.parametrize(
    ("read", "text"),
    [(read_sessions, "turns=0"), (read_sessions, "rounds=3"), (read_tiers, "host:1TB"),
     (read_tiers, "host:0GB@1GB/s"), (read_autoscale, "target=2"), (read_autoscale, "most=3")],
)  # fmt: skip
def test_words_that_say_nothing_are_refused(read: object, text: str) -> None:
    with pytest.raises(BadInput):
        read(text)  # type: ignore[operator]
