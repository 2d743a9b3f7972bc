"""The verbs as tools: schemas of the questions, short answers, the protocol by its own client."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("pydantic")

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from foretell.specs.questions import question_type
from foretell.specs.questions.flags import offered
from foretell.web import answers
from foretell.web.assistant import MOST_TEXT, call, make_server, short, tool_name, tools


def run_apart(ask: Callable[[], Awaitable[None]]) -> None:
    """Run it in a thread of its own: the browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as apart:
        apart.submit(anyio.run, ask).result()


QUESTION = {"model": "llama-3.1-8b", "gpus": "8xH100"}


def test_every_verb_is_a_tool_with_its_own_fields() -> None:
    found = {one["name"]: one for one in tools()}
    assert set(found) == {tool_name(verb) for verb in answers.VERBS} | {
        "catalog", "catalog_show", "read",
    }  # fmt: skip
    for verb in answers.VERBS:
        one = found[tool_name(verb)]
        assert re.fullmatch(r"[a-z_]+", one["name"])
        fields = {field.called for field in offered(question_type(verb), "web")}
        shown = {*one["input_schema"]["properties"]} - {"full", "more"}
        assert shown <= fields
        more = one["input_schema"]["properties"].get("more")
        assert (more is None) == (shown == fields)
        assert "What `foretell" not in one["description"]
        for about in one["input_schema"]["properties"].values():
            assert about["description"]
    assert len(json.dumps([*found.values()])) <= 20_000


def test_fields_that_a_schema_leaves_out_go_into_more() -> None:
    rest = {"model": "llama-3.1-8b", "gpus": "8xH100", "full": True}
    more = call("estimate", {**rest, "more": {"zero": 3, "mbs": 1}})
    plain = call("estimate", {**rest, "zero": 3, "mbs": 1})
    assert more.record["plan"] == plain.record["plan"]
    assert call("estimate", {**rest, "more": {"zeros": 3}}).failed


@pytest.mark.parametrize("name", ["estimate", "serve", "post_train"])
def test_short_answers_have_their_intervals(name: str) -> None:
    given = {"model": "llama-3.1-8b", "gpus": "8xH100"}
    found = call(name, given | ({"algorithm": "sft"} if name == "post_train" else {}))
    assert not found.failed
    assert any(key in found.record for key in ("interval", "intervals"))


def test_tools_without_what_they_need_say_so() -> None:
    for name in ("catalog", "catalog_show", "read"):
        found = call(name, {})
        assert found.failed
        assert "is missing" in found.text


def test_a_launch_is_read_back_whole() -> None:
    text = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --bf16"
    found = call(
        "read", {"text": f"{text} --num-layers 2 --hidden-size 64 --num-attention-heads 2"}
    )
    rows = {row["name"]: row for row in found.record["read_back"]}
    assert (rows["tp"]["value"], rows["tp"]["line"], rows["pp"]["origin"]) == (
        "2",
        1,
        "tool default",
    )
    assert found.record["asks"]
    assert call("read", {}).failed


def test_answers_are_short_enough_to_read() -> None:
    for name in ("estimate", "search", "memory", "explain"):
        found = call(name, QUESTION)
        assert not found.failed
        assert len(found.text) <= MOST_TEXT
        whole = call(name, {**QUESTION, "full": True})
        assert len(whole.text) > len(found.text)
    told = call("estimate", QUESTION).record
    whole = call("estimate", {**QUESTION, "full": True}).record
    assert told["step_s"] == pytest.approx(whole["step_s"], rel=1e-3)
    assert told["interval"]["p90"][0] < told["step_s"] < told["interval"]["p90"][1]


def test_what_is_left_out_is_said() -> None:
    told = short({"rows": list(range(100)), "deep": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}})
    assert told["rows"][:8] == list(range(8))
    assert "92 more omitted" in told["rows"][-1]
    assert "omitted" in json.dumps(told["deep"])
    wide = short({f"field{i}": ["x" * 200] * 50 for i in range(100)} | {"step_s": 1.23456})
    assert wide["step_s"] == 1.235
    assert len(json.dumps(wide)) <= MOST_TEXT


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("estimate", {"model": "llama-3.1-8x", "gpus": "8xH100"}, "llama-3.1-8b"),
        ("estimate", {**QUESTION, "sequence": 8}, "sequence"),
        ("estimate", {**QUESTION, "seq_len": "long"}, "not a whole number"),
        ("estimate", {"model": "/etc/passwd", "gpus": "8xH100"}, "model"),
        ("estimates", QUESTION, "is no tool"),
    ],
)
def test_wrong_calls_say_what_is_wrong(name: str, given: dict[str, Any], words: str) -> None:
    found = call(name, given)
    assert found.failed
    assert words in found.text
    assert "root:" not in found.text


def test_a_plan_that_does_not_fit_is_an_answer() -> None:
    found = call("estimate", {"model": "llama-3.1-70b", "gpus": "1xH100", "plan": "mbs1"})
    assert not found.failed
    assert "no" in found.text


def test_the_client_of_the_sdk_reads_it_all() -> None:
    async def ask() -> None:
        async with Client(make_server()) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert "estimate" in names
            reply = await client.call_tool("estimate", QUESTION)
            assert not reply.is_error
            assert json.loads(reply.content[0].text)["model"] == "llama-3.1-8b"
            assert reply.structured_content["gpus"] == 8
            wrong = await client.call_tool("estimate", {"model": "no-such-model"})
            assert wrong.is_error
            uris = [str(one.uri) for one in (await client.list_resources()).resources]
            assert "foretell://catalog/models" in uris
            chips = await client.read_resource("foretell://catalog/chips")
            assert "h100-sxm" in chips.contents[0].text
            entry = await client.read_resource("foretell://catalog/show/h100-sxm")
            assert "source" in entry.contents[0].text
            published = json.loads(
                (await client.read_resource("foretell://accuracy")).contents[0].text
            )
            assert published["rows"] > 100

    run_apart(ask)


def test_over_standard_input_and_output() -> None:
    words = ["-m", "foretell", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))

    async def ask() -> None:
        async with Client(stdio_client(server)) as client:
            reply = await client.call_tool("catalog", {"kind": "chips"})
            assert "h100-sxm" in reply.content[0].text

    run_apart(ask)


def test_schemas_are_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "foretell", "mcp", "--schemas"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [one["name"] for one in json.loads(done.stdout)] == [one["name"] for one in tools()]


def test_over_http() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "foretell", "mcp", "--http", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        told = ""
        while "}" not in told:
            told += process.stdout.readline()
        url = json.loads(told)["url"]

        asked = {"system": "dgx-h100", "bytes": "64MiB", "collective": "all-reduce", "group": 16}

        async def ask() -> None:
            async with Client(url) as client:
                reply = await client.call_tool("network", asked)
                assert not reply.is_error, reply.content[0].text

        run_apart(ask)
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
