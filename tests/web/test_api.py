"""The JSON API: the answers are the command line's, strangers reach no file, and limits are said."""

import json
import sys
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from foretell.specs.questions import question_type
from foretell.specs.questions.flags import offered
from foretell.web.limits import Limits
from tests.surfaces.command import TOY, foretell
from tests.surfaces.test_contract import FLAGS
from tests.web.client import client
from tests.web.test_content import STUDY

PLAN = "tp8 pp2 mbs1 zero1"
WHERE = {"model": "llama-3.1-70b", "system": "h100-sxm", "gpus": 64}
WORDS = ("llama-3.1-70b", "--system", "h100-sxm", "--gpus", "64")
SERVED = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 1}
SERVED_WORDS = ("llama-3.1-8b", "--system", "h100-sxm", "--gpus", "1")
SIZED = {"model": "llama-3.1-8b", "system": "h100-sxm", "rate": 20, "simulate": False, "top": 3}
SIZED_WORDS = (
    "llama-3.1-8b",
    "--system",
    "h100-sxm",
    "--rate",
    "20",
    "--no-simulate",
    "--top",
    "3",
)

SAME: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("estimate", {**WHERE, "plan": PLAN}, ("estimate", *WORDS, "--plan", PLAN)),
    ("estimate?hint=true", {**WHERE, "plan": "tp7"}, ("estimate", *WORDS, "--plan", "tp7")),
    (
        "estimate",
        {**WHERE, "plan": PLAN, "tokens": "1T", "set": {"chip.memory_bytes": "90 GB"}},
        ("estimate", *WORDS, "--plan", PLAN, "--tokens", "1T", "--set", "chip.memory_bytes=90 GB"),
    ),
    ("search", {**WHERE, "plan": "tp8 pp2", "top": 3}, ("search", *WORDS, "--plan", "tp8 pp2", "--top", "3")),
    ("search", {**WHERE, "gpus": 1, "plan": "tp1"}, ("search", *WORDS[:4], "1", "--plan", "tp1")),
    (
        "estimate",
        {**WHERE, "plan": PLAN, "export": "megatron"},
        ("estimate", *WORDS, "--plan", PLAN, "--export", "megatron"),
    ),
    ("serve", {**SERVED, "export": "vllm"}, ("serve", *SERVED_WORDS, "--export", "vllm")),
    ("explain", {**WHERE, "plan": PLAN}, ("explain", *WORDS, "--plan", PLAN)),
    (
        "memory",
        {**WHERE, "plan": PLAN, "global_batch": 64},
        ("memory", *WORDS, "--plan", PLAN, "--global-batch", "64"),
    ),
    ("simulate", {**WHERE, "plan": PLAN}, ("simulate", *WORDS, "--plan", PLAN)),
    (
        "compare-plans",
        {**WHERE, "a": PLAN, "b": "tp4 pp4 mbs1 zero1"},
        ("compare-plans", PLAN, "tp4 pp4 mbs1 zero1", *WORDS),
    ),
    (
        "sensitivity",
        {**WHERE, "plan": PLAN, "factor": 1.5},
        ("sensitivity", *WORDS, "--plan", PLAN, "--factor", "1.5"),
    ),
    ("serve", SERVED, ("serve", *SERVED_WORDS)),
    (
        "serve",
        {**SERVED, "rate": 5, "simulate": True, "requests": 200, "ttft": 500},
        ("serve", *SERVED_WORDS, "--rate", "5", "--simulate", "--requests", "200", "--ttft", "500"),
    ),
    ("size", {**SIZED, "export": "vllm"}, ("size", *SIZED_WORDS, "--export", "vllm")),
    (
        "network",
        {"system": "h100-sxm", "collective": "all-reduce", "bytes": "64MiB", "group": 16},
        ("network", "h100-sxm", "--collective", "all-reduce", "--bytes", "64MiB", "--group", "16"),
    ),
    (
        "network",
        {"system": "h100-sxm", "collective": "all-reduce", "bytes": "64MiB", "group": 16,
         "set": {"network.cluster.bandwidth_bytes_per_s": "100 GB/s"}},
        ("network", "h100-sxm", "--collective", "all-reduce", "--bytes", "64MiB", "--group", "16",
         "--set", "network.cluster.bandwidth_bytes_per_s=100 GB/s"),
    ),
    (
        "compare",
        {"systems": ["h100-sxm", "mi300x"], "model": "gpt2", "gpus": 64, "plan": "zero1", "by": "usd"},
        (
            *("compare", "h100-sxm", "mi300x", "--model", "gpt2", "--gpus", "64"),
            *("--plan", "zero1", "--by", "usd"),
        ),
    ),
    (
        "compare",
        {"systems": ["h100-sxm"], "model": "gpt2", "budget": "1M", "isl": 900, "osl": 100, "price": 2.5},
        (
            *("compare", "h100-sxm", "--model", "gpt2", "--budget", "1M"),
            *("--isl", "900", "--osl", "100", "--price", "2.5"),
        ),
    ),
    (
        "scaling",
        {"models": ["gpt2", "llama-3.1-8b"], "system": "h100-sxm", "gpus": "8..64", "plan": "tp2"},
        (
            *("scaling", "gpt2", "llama-3.1-8b", "--system", "h100-sxm"),
            *("--gpus", "8..64", "--plan", "tp2"),
        ),
    ),
    (
        "scaling",
        {"models": ["llama-3.1-70b"], "system": "h100-sxm", "gpus": 8, "global_batch": 64, "floor": 0.5},
        (
            *("scaling", "llama-3.1-70b", "--system", "h100-sxm", "--gpus", "8"),
            *("--global-batch", "64", "--floor", "0.5"),
        ),
    ),
    ("cost/chip", {"name": "h100-sxm"}, ("cost", "chip", "h100-sxm")),
    ("cost/package", {"node": "N5", "area": 600}, ("cost", "package", "--node", "N5", "--area", "600")),
    ("cost/system", {"system": "dgx-h200"}, ("cost", "system", "dgx-h200")),
    ("cost/run", {**WHERE, "plan": PLAN}, ("cost", "run", *WORDS, "--plan", PLAN)),
    ("cost/token", SERVED, ("cost", "token", *SERVED_WORDS)),
    (
        "cost",
        {"what": "chip", "node": "N5", "area": 1, "sweep": ["area=100,400"]},
        ("cost", "chip", "--node", "N5", "--area", "1", "--sweep", "area=100,400"),
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client() as made:
        yield made


def ask(api: TestClient, verb: str, body: Any) -> Any:
    """The JSON of an answered question."""
    answer = api.post(f"/api/{verb}", json=body)
    assert answer.status_code == 200, answer.text[:300]
    return answer.json()


def wrong(api: TestClient, verb: str, body: Any, status: int = 422) -> dict[str, dict[str, Any]]:
    """What is wrong with a question, by path."""
    text = json.dumps(body)  # in ASCII, so that a text may hold what no encoding has
    answer = api.post(f"/api/{verb}", content=text, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text[:300]
    errors = answer.json()["errors"]
    assert errors
    for error in errors:
        assert set(error) == {"path", "value", "message", "allowed", "nearest"}
    return {error["path"]: error for error in errors}


@pytest.mark.parametrize(
    ("verb", "body", "paths"),
    [
        ("search", {"model": "bogus", "system": "h100-sxm", "gpus": 0}, {"model", "gpus"}),
        ("estimate", {"model": "x.json", "system": "nil", "gpus": 0}, {"model", "system", "gpus"}),
        ("serve", {"model": "bogus", "system": "h100-sxm", "gpus": 0, "isl": 0}, {"model", "gpus", "isl"}),
        ("size", {"model": "gpt2", "system": "nil", "gpus": 0, "rate": 1}, {"system", "gpus"}),
        ("cost/run", {"model": "bogus", "system": "h100-sxm", "gpus": 0, "region": "nowhere"},
         {"model", "gpus", "region"}),
        ("compare", {"systems": ["h100-sxm", "nil"], "model": "gpt2", "gpus": 0}, {"systems.1", "gpus"}),
        ("estimate", {"model": "bogus", "system": "h100-sxm", "gpus": 8, "set": ["chip.x=1"]},
         {"model", "--set chip.x"}),
    ],
)  # fmt: skip
def test_a_wrong_name_does_not_hide_what_else_is_wrong(
    api: TestClient, verb: str, body: dict[str, Any], paths: set[str]
) -> None:
    told = wrong(api, verb, body)
    assert set(told) == paths
    assert all("(not known)" not in str(error["value"]) for error in told.values())


def test_a_text_where_a_number_belongs_is_told_in_our_words(api: TestClient) -> None:
    told = wrong(api, "serve", {**SERVED, "isl": "4k", "concurrency": "many"})
    assert (told["isl"]["message"], told["isl"]["nearest"]) == ("not a number", "4096 or 4000")
    assert (told["concurrency"]["message"], told["concurrency"]["nearest"]) == (
        "not a number",
        None,
    )
    assert (
        wrong(api, "estimate", {**WHERE, "seq_len": 1.5})["seq_len"]["message"]
        == "not a whole number"
    )


@pytest.mark.parametrize(
    ("verb", "body", "words"), SAME, ids=lambda v: v if isinstance(v, str) else ""
)
def test_the_answer_is_the_command_lines(
    api: TestClient, verb: str, body: dict[str, Any], words: tuple[str, ...]
) -> None:
    told, printed = ask(api, verb, body), foretell(*words, "--json").json
    for one in (told, printed):
        one.pop("evaluation_seconds", None)
    assert told == printed


def test_lists_are_the_command_lines(api: TestClient) -> None:
    for kind in ("chips", "systems", "models"):
        assert api.get(f"/api/catalog/{kind}").json() == foretell("catalog", kind, "--json").json
    for name in ("h100-sxm", "Qwen/Qwen3-8B", "dgx-h200"):
        assert (
            api.get(f"/api/catalog/show/{name}").json()
            == foretell("catalog", "show", name, "--json").json
        )
    assert api.get("/api/catalog/show/no-such-thing").status_code == 422


def test_published_runs_are_the_accuracy_pages(api: TestClient) -> None:
    from foretell.lab.validate.published import runs

    rows = api.get("/api/validate/published").json()
    for row, run in zip(rows, runs(), strict=True):
        assert row["error"] == pytest.approx(run.error, abs=1e-4)
        assert row["source"] == run.source
        assert row["measured_s"] > 0


def test_first_contacts_are_the_ledgers(api: TestClient) -> None:
    from foretell.lab.first_contact.ledger import waves

    found = api.get("/api/validate/first-contact").json()
    (wave,) = [w for w in found["waves"] if (w["kind"], w["name"]) == ("training", "wave-a")]
    assert wave["scores"] == [score.to_dict() for score in waves("training")[0].scores]
    assert set(found) == {"waves", "sealed"}


MORE = {
    "compare-plans": {"a", "b"},
    "compare": {"systems"},
    "scaling": {"models"},
    "diagnose": {"runs"},
}
"""Fields that the command line takes without a name."""


def test_every_flag_is_a_field_and_every_field_a_flag(api: TestClient) -> None:
    schema = api.get("/openapi.json").json()
    for verb, flags in FLAGS.items():
        path = f"/api/{verb.replace(' ', '/')}"
        if path not in schema["paths"] or "post" not in schema["paths"][path]:
            continue
        body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        fields = set(schema["components"]["schemas"][body["$ref"].rpartition("/")[2]]["properties"])
        names = {flag.removeprefix("--").replace("-", "_") for flag in flags} - {
            "no_simulate",
            "no_share",
        }
        apart = {
            name
            for field in offered(question_type(verb), "command")
            if not field.on("web")
            for name in (field.called, *field.flag.names)
        }
        assert fields == (names - apart) | MORE.get(verb, set()), verb


def test_an_inline_model_and_system(api: TestClient) -> None:
    system = {
        "id": "mine",
        "chip": "h100-sxm",
        "network": {
            "node": {"size": 4, "bandwidth_bytes_per_s": "300 GB/s", "latency_s": "3 us"},
            "cluster": {"size": 8, "bandwidth_bytes_per_s": "200 Gbit/s", "latency_s": "6 us"},
        },
    }
    told = ask(api, "estimate", {"model": TOY, "system": system, "gpus": 16, "global_batch": 32})
    assert (told["model"], told["system"]) == ("inline", "mine")
    assert told["step_s"] > 0
    assert wrong(api, "estimate", {"model": TOY, "system": {"chip": "h100-sxm", "network": {}}})
    assert wrong(api, "estimate", {"model": TOY, "system": {"network": system["network"]}})


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd", "./x", "/etc/passwd", "~/x", "x.json", "X.TOML", ".", "..", "",
        "file:///etc/passwd", "no-such-org/no-such-model", "src", "pyproject.toml", "h100-sxm.toml",
        "..\\..\\x", "llama-3.1-70b/../../config.json", "/llama-3.1-70b", "a\u0000b", "\ud800",
    ],
)  # fmt: skip
def test_no_file_and_no_host_is_reached_by_a_name(
    api: TestClient, name: str, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: pytest.fail("a host was looked up"))
    bodies = [
        ("estimate", {**WHERE, "model": name}, "model"),
        ("estimate", {**WHERE, "system": name}, "system"),
        ("estimate", {"model": "gpt2", "gpus": f"8x{name or '.'}"}, "gpus"),
        ("serve", {**SERVED, "model": name}, "model"),
        ("network", {"system": name, "collective": "all-reduce", "bytes": 1, "group": 2}, "system"),
        ("cost/system", {"system": name}, "system"),
        ("cost/run", {**WHERE, "sweep": [f"system={name or '.'}"]}, "sweep.system"),
        ("cost/run", {**WHERE, "sweep": [f"--model={name or '.'}"]}, "sweep.model"),
        ("compare", {"systems": ["h100-sxm", name], "model": "gpt2", "gpus": 8}, "systems.1"),
        ("scaling", {"models": [name], "system": "h100-sxm"}, "models.0"),
        ("codesign", {"study": {**STUDY, "base": {"system": name}}}, "base.system"),
        ("codesign", {"study": {**STUDY, "vary": {"model": [name]}}}, "vary.model"),
        ("optimise", {"study": {**STUDY, "workload": [{"model": name}]}}, "workload.0.model"),
    ]
    if name:  # a chip of no name is described by its flags
        bodies.append(("cost/chip", {"name": name}, "name"))
        bodies.append(
            ("cost/package", {"node": "N5", "area": 1, "sweep": [f"name={name}"]}, "sweep.name")
        )
    for verb, body, path in bodies:
        found = wrong(api, verb, body)
        assert {path, path.partition(".")[0], "system"} & set(found), (verb, found)
    shown = api.get("/api/catalog/show/" + name.encode("utf-8", "surrogatepass").hex())
    assert shown.status_code == 422
    package = str(resources.files("foretell"))  # whose tables are read when they are first needed
    assert not [path for path in opened if not Path(path).is_relative_to(package)]


def test_arrivals_are_no_file(api: TestClient) -> None:
    body = {**SERVED, "rate": 5, "simulate": True, "arrivals": "/etc/hosts.csv"}
    assert "arrivals" in wrong(api, "serve", body)


def test_the_nearest_plan_that_works_comes_on_request(
    api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A "no" searches for no other plan before it is asked to."""
    from foretell.search import instead

    searched: list[object] = []
    real = instead.nearest_plan

    def counted(*asked: Any) -> Any:
        searched.append(asked)
        return real(*asked)

    monkeypatch.setattr(instead, "nearest_plan", counted)
    body = {**WHERE, "model": "llama-3.1-70b", "gpus": 64, "plan": "tp8 zero0 mbs1"}
    for verb, more in (
        ("estimate", body),
        ("explain", body),
        ("estimate", {**body, "plan": "tp3"}),
    ):
        quick = ask(api, verb, more)
        assert (quick["fits"], quick["hint_on_request"]) == ("no", True)
        assert {problem["nearest"] for problem in quick["problems"]} == {None}
        assert searched == []
        told = ask(api, f"{verb}?hint=true", more)
        assert "hint_on_request" not in told
        assert len(searched) == 1  # however many problems there are
        found = ask(api, "estimate", {**more, "plan": told["problems"][0]["nearest"]})
        assert found["fits"] != "no"
        searched.clear()
    fine = ask(api, "estimate?hint=true", {**WHERE, "plan": PLAN})
    assert fine == ask(api, "estimate", {**WHERE, "plan": PLAN})
    assert wrong(api, "estimate?hint=5", {**WHERE})["hint"]


def test_all_problems_at_once_and_the_nearest(api: TestClient) -> None:
    found = wrong(api, "estimate", {**WHERE, "gpuss": 8, "seq_len": "x", "plan": 3})
    assert {"gpuss", "seq_len", "plan"} <= set(found)
    assert found["gpuss"]["nearest"] == "gpus"
    found = wrong(api, "estimate", {"model": "lama-3.1-70b", "system": "h10O", "gpus": 8})
    assert found["model"]["nearest"].startswith("llama-3.1-70b")
    assert set(wrong(api, "cost", {"what": "x"})) == {"what"}
    assert set(wrong(api, "cost", {"what": "run"})) == {"model"}
    assert wrong(api, "cost", {"what": "run", "modell": "x"})["modell"]["nearest"] == "model"
    assert wrong(api, "estimate", {})["model"]["message"] == "missing"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1", b'{"model": NaN}', b"[" * 100_000, b"null", b"\xff", b"1e999"]
)
def test_what_is_no_question_is_said_to_be_none(api: TestClient, text: bytes) -> None:
    answer = api.post("/api/estimate", content=text, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["errors"]


def test_limits_have_answers_of_their_own(api: TestClient) -> None:
    large = api.post("/api/estimate", content=b" " * 300_000)
    assert (large.status_code, large.headers["content-type"]) == (413, "application/json")
    assert "gpus" in wrong(api, "estimate", {**WHERE, "gpus": 2**21}, 422)
    assert "gpus" in wrong(api, "estimate", {"model": "gpt2", "gpus": f"{2**21}xH100"}, 422)
    assert "requests" in wrong(api, "serve", {**SERVED, "simulate": True, "requests": 10**6}, 422)
    assert "sweep" in wrong(
        api, "cost/chip", {"node": "N5", "area": 1, "sweep": ["area=1:999:999"]}, 422
    )
    for body in ({"gpus": f"8,{2**21}"}, {"gpus": 2**21}):
        assert "gpus" in wrong(
            api, "scaling", {"models": ["gpt2"], "system": "h100-sxm", **body}, 422
        )
    many = {
        "models": ["gpt2"] * 16,
        "system": "h100-sxm",
        "gpus": "1..524288",
        "strategies": "tp1,tp2,tp4,tp8",
    }
    assert "models" in wrong(api, "scaling", many, 422)
    large = {"chip.memory_bytes": {"low": "1 GB", "high": "9 GB", "steps": 99_999}}
    place = {**STUDY["base"], "system": "h100-sxm"}
    study = {**STUDY, "base": place, "vary": large}
    assert "study.vary" in wrong(api, "codesign", {"study": study}, 422)
    assert "vary.gpus" in wrong(
        api, "codesign", {"study": {**STUDY, "vary": {"gpus": [8, 2**21]}}}, 422
    )
    assert "trials" in wrong(api, "optimise", {"study": study, "trials": 10**4}, 422)
    with client(Limits(plans=10)) as small:
        assert "over" in wrong(small, "search", WHERE, 422)


def test_a_page_elsewhere_cannot_ask(api: TestClient) -> None:
    assert api.get("/", headers={"host": "elsewhere.example"}).status_code == 400
    plain = api.post(
        "/api/estimate", content=json.dumps(WHERE), headers={"content-type": "text/plain"}
    )
    assert plain.status_code == 422
    headers = api.get("/").headers
    assert "unsafe" not in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


def test_files_of_the_server_are_not_served(api: TestClient) -> None:
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/../pyproject.toml",
    ):
        assert api.get(path).status_code == 404


def test_a_trace_is_a_file_that_perfetto_opens(api: TestClient) -> None:
    import gzip

    from foretell.testing.trace import trace_problems

    answer = api.post("/api/simulate/trace", json={**WHERE, "plan": PLAN, "detail": "tasks"})
    assert answer.headers["content-disposition"].endswith('.json.gz"')
    events = json.loads(gzip.decompress(answer.content))["traceEvents"]
    assert len(events) > 100
    assert trace_problems(events) == []


def test_a_deadline_ends_the_question_alone() -> None:
    """The worker of a question that takes too long is replaced; the next question is answered."""
    with client(Limits(workers=1, deadline_s=5.0), processes=True) as api:
        api.get("/api/catalog/chips")  # until it is ready
        began = time.monotonic()
        slow = {
            **WHERE,
            "plan": f"{PLAN} schedule=gpipe",
            "global_batch": 2**18,
        }  # all of them played
        assert wrong(api, "memory", slow, 422)[""]["message"].startswith("takes longer")
        assert time.monotonic() - began < 120
        assert ask(api, "estimate", {**WHERE, "plan": PLAN})["step_s"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux alone")
def test_memory_is_limited() -> None:
    """What needs more memory than a question may take is refused; the worker goes on."""
    with client(Limits(workers=1, memory_bytes=24 * 2**20), processes=True) as api:
        found = wrong(api, "search", {**WHERE, "gpus": 512, "over": "all"}, 422)
        assert "memory" in found[""]["message"]
        assert ask(api, "estimate", {**WHERE, "plan": PLAN})["step_s"] > 0
