"""Models, systems and studies by content: what a file has stands in the body, and no name reaches a file."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.surfaces.command import foretell
from tests.web.client import client

CHIP = """id = "mine"
chips_per_node = 8
[chip.design]
id = "own"
architecture = "blackwell"
node = "N3"
compute_dies = 2
die_area_mm2 = 700
memory_type = "HBM4"
memory_stacks = 8
scale_up_bytes_per_s = "1.2 TB/s"
scale_up_link = "serdes-200g"
[network]
node = {size = 8, latency_s = "2 us"}
cluster = {size = 64, bandwidth_bytes_per_s = "800 Gbit/s", latency_s = "5 us", topology = "fat-tree"}
"""
STUDY: dict[str, Any] = {
    "study": {"kind": "training", "plan": "tp8 zero1"},
    "base": {"model": "llama-3.1-8b", "gpus": 16, "global_batch": 64, "rent": "own"},
    "vary": {"chip.design.die_area_mm2": [600, 800], "chip.design.memory_stacks": [4, 8, 99]},
    "objectives": {"usd_per_million_work_tokens": "min", "work_tokens_per_s_per_gpu": "max"},
}


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client() as made:
        yield made


def ask(api: TestClient, verb: str, body: Any) -> Any:
    """The JSON of an answered question."""
    answer = api.post(f"/api/{verb}", json=body)
    assert answer.status_code == 200, answer.text[:300]
    return answer.json()


def wrong(api: TestClient, verb: str, body: Any) -> set[str]:
    """Paths of what is wrong with a question."""
    answer = api.post(f"/api/{verb}", json=body)
    assert answer.status_code == 422, answer.text[:300]
    return {error["path"] for error in answer.json()["errors"]}


def files_of(study: dict[str, Any], folder: Path) -> Path:
    """A study with an inline system as a user has it: two files."""
    (folder / "mine.toml").write_text(CHIP)
    base = {**study["base"], "system": "mine.toml"}
    lines = []
    for name, table in {**study, "base": base}.items():
        lines.append(f"[{name}]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]
    (folder / "study.toml").write_text("\n".join(lines))
    return folder / "study.toml"


def test_what_stands_in_a_file_may_stand_in_the_body(api: TestClient, tmp_path: Path) -> None:
    """A system's tiers keep their order; a chip that does not exist is priced and changed as from a file."""
    file = files_of(STUDY, tmp_path)
    own = tomllib.loads(CHIP)
    study = {**STUDY, "base": {**STUDY["base"], "system": own}}
    told = ask(api, "codesign", {"study": study})
    assert told == foretell("codesign", str(file), "--json").json
    assert len(told["front"]) > 1
    told = ask(api, "optimise", {"study": study, "trials": 6})
    assert told == foretell("optimise", str(file), "--trials", "6", "--json").json
    place = (str(tmp_path / "mine.toml"), "--gpus", "16")
    body = {"model": "llama-3.1-8b", "system": own, "gpus": 16, "plan": "tp8"}
    changed = ["chip.design.memory_stacks=4"]
    words = ("estimate", "llama-3.1-8b", "--system", *place, "--plan", "tp8", "--set", *changed)
    assert ask(api, "estimate", {**body, "set": changed}) == foretell(*words, "--json").json
    told = ask(api, "cost/system", {"system": own, "gpus": 16})
    assert told == foretell("cost", "system", *place, "--json").json
    body["systems"] = [body.pop("system"), "h200-sxm"]
    told = ask(api, "compare", body)
    by_name = {row["system"]: row for row in told["systems"]}
    assert set(by_name) == {"mine", "h200-sxm"}
    words = ("compare", str(tmp_path / "mine.toml"), "h200-sxm", "--model", "llama-3.1-8b")
    printed = foretell(*words, "--gpus", "16", "--plan", "tp8", "--json").json
    for name in ("usd", "tokens_per_s", "usd_per_million_tokens"):
        assert [row[name] for row in told["systems"]] == [row[name] for row in printed["systems"]]


@pytest.mark.parametrize(
    "name", ["../systems/perlmutter", "../../pyproject", "x" * 5000, "a\0b", ""]
)
def test_what_an_object_calls_itself_reaches_no_file(
    api: TestClient, name: str, opened: list[str]
) -> None:
    """A chip that nobody has measured is called as its user likes."""
    own = tomllib.loads(CHIP)
    own = {**own, "id": name, "chip": {"design": {**own["chip"]["design"], "id": name}}}
    body = {"model": "gpt2", "system": own, "gpus": 8, "plan": "zero1"}
    for verb in ("estimate", "sensitivity", "cost/run"):
        assert ask(api, verb, body)
    assert ask(api, "cost/system", {"system": own})
    body["systems"] = [body.pop("system")]
    assert ask(api, "compare", body)["systems"][0]["usd"] > 0
    rented = ask(api, "compare", {**body, "rent": "spot"})["systems"][0]
    assert rented["usd"] is None
    assert "no such offer" in rented["no_price"]
    assert not [path for path in opened if ".." in path or "xxx" in path]


def test_what_is_wrong_with_a_study_is_said_where_it_stands(api: TestClient) -> None:
    named = {"model": "../x.json", "system": {"chip": "/etc/passwd"}, "gpus": 8}
    study = {**STUDY, "base": named, "vary": {"system": ["h100-sxm", "./x.toml"]}}
    study["workload"] = [{"name": "a.toml", "model": "/x"}, {"name": "b", "gpus": "8x./y"}]
    for verb in ("codesign", "optimise"):
        found = wrong(api, verb, {"study": study})
        assert {"base.model", "base.system.chip", "vary.system", "workload.0.model"} <= found
        assert "workload.1.gpus" in found
    found = wrong(api, "compare", {"workload": study, "systems": ["h100-sxm"], "gpus": 8})
    assert {"base.model", "workload.0.model"} <= found
    found = wrong(
        api, "compare", {"systems": ["h100-sxm", "no.toml", {}], "model": "gpt2", "gpus": 8}
    )
    assert found == {"systems.1", "systems.2.chip", "systems.2.network"}
    assert "study.kind" in wrong(api, "codesign", {"study": {}})
    assert {"budget", "systems"} <= wrong(api, "compare", {})
    assert "models" in wrong(api, "scaling", {})
    assert "study" in wrong(api, "scaling", {"study": True, "models": ["gpt2"]})
