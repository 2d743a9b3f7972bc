"""Predictions of two versions: what moved is found, and by which change."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.lab.versions.changes import (
    STANDARD,
    Snapshot,
    StoredPrediction,
    changes_of,
    fingerprints,
    take_snapshot,
)
from tests.surfaces.command import foretell as command

QUESTIONS = tuple(
    one for one in STANDARD if one[1]["model"] == "llama-3.1-8b" and one[1]["gpus"] < 16
)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return take_snapshot(QUESTIONS)


def altered(snapshot: Snapshot, number: int, **answer: Any) -> Snapshot:
    """A snapshot in which one answer was another."""
    one = snapshot.predictions[number]
    told = {**copy.deepcopy(dict(one.answer)), **answer}
    changed = StoredPrediction(verb=one.verb, question=one.question, answer=told, inputs=one.inputs)
    rest = list(snapshot.predictions)
    rest[number] = changed
    return Snapshot(version="0.1", fingerprints=snapshot.fingerprints, predictions=tuple(rest))


def test_nothing_moved_in_one_version(snapshot: Snapshot, tmp_path: Path) -> None:
    found = changes_of(snapshot, over=0.0)
    assert (found.moved, found.files_changed) == ((), ())
    assert found.predictions == 3 * len(snapshot.predictions)
    file = tmp_path / "old.json"
    file.write_text(json.dumps(snapshot.to_dict()))
    told = command("changed", str(file))
    assert told.code == 0, told.err
    assert f"0 of {found.predictions} predictions moved" in told.out


def test_what_moved_is_found_with_the_part_that_moved(snapshot: Snapshot) -> None:
    answer = copy.deepcopy(dict(snapshot.predictions[0].answer))
    first = answer["breakdown"]["children"][0]
    leaf = first["children"][0] if first["children"] else first
    before = answer["step_s"]
    leaf["value"] *= 0.9
    step = before - leaf["value"] / 9.0
    old = altered(snapshot, 0, breakdown=answer["breakdown"], step_s=step)
    (moved,) = changes_of(old).moved
    assert moved.metric == "step_s"
    assert moved.change == pytest.approx(before / step - 1.0)
    (name, seconds), *_ = moved.parts.items()
    assert name.endswith(leaf["name"])
    assert seconds == pytest.approx(before - step)
    assert name in moved.cause


def test_a_number_of_the_system_that_changed_is_named_with_what_it_is_worth(
    snapshot: Snapshot,
) -> None:
    """A version with slower memory: its prediction, and the number that explains it."""
    path = "chip.memory_bandwidth_bytes_per_s"
    verb, question = QUESTIONS[0]
    value = snapshot.predictions[0].inputs[path]
    slow = foretell.estimate(**question, set=[f"{path}={0.5 * value}"])
    old = StoredPrediction(
        verb=verb, question=question, answer=slow.to_dict(),
        inputs={**snapshot.predictions[0].inputs, path: 0.5 * value},
    )  # fmt: skip
    given = Snapshot(version="0.1", fingerprints={}, predictions=(old,))
    moved = {one.metric: one for one in changes_of(given).moved}
    step = moved["step_s"]
    assert list(step.inputs) == [path]
    assert step.inputs[path] == pytest.approx(step.change)
    assert path in step.cause


def test_files_that_differ_and_stand_behind_the_number_are_named(snapshot: Snapshot) -> None:
    told = snapshot.predictions[0].answer["step_s"]
    old = altered(snapshot, 0, step_s=0.9 * told)
    marks = {**fingerprints(), "catalog/software": "other", "serving": "other"}
    old = Snapshot(version="0.1", fingerprints=marks, predictions=old.predictions)
    found = changes_of(old)
    assert set(found.files_changed) == {"catalog/software", "serving"}
    assert any("catalog/software" in line for line in found.conclusions)


def test_answers_saved_with_json_are_asked_again(tmp_path: Path) -> None:
    words = ("llama-3.1-8b", "--system", "h100-sxm", "--gpus", "8", "--plan", "zero3 mbs1")
    one = tmp_path / "estimate.json"
    one.write_text(command("estimate", *words, "--set", "chip.tdp_watts=600", "--json").out)
    two = tmp_path / "serve.json"
    two.write_text(command("serve", *words[:4], "1", "--json").out)
    told = command("changed", str(one), str(two), "--json")
    assert told.code == 0, told.err
    assert (told.json["predictions"], told.json["moved"]) == (6, [])
    answer = json.loads(one.read_text())
    answer["peak_memory_bytes"] *= 1.25
    one.write_text(json.dumps(answer))
    told = command("changed", str(one), "--json")
    assert [row["metric"] for row in told.json["moved"]] == ["peak_memory_bytes"]
    assert told.json["moved"][0]["change"] == pytest.approx(-0.2)
    again = tmp_path / "new.json"
    assert command("changed", str(one), "--save", str(again)).code == 0
    assert command("changed", str(again), "--json").json["moved"] == []


def test_files_that_are_none(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    for text in ("nothing", "[1]", "{}", '{"predictions": [3]}'):
        bad.write_text(text)
        told = command("changed", str(bad))
        assert (told.code, told.out) == (2, "")
        assert "--json" in told.err
    assert command("changed", str(tmp_path / "none.json")).code == 2
    assert command("changed").code == 2
