"""The published plans: every stored row, every stored list in its order, every candidate count."""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretell.lab.reference import CHIPS, MODELS, Quirks, evaluate, search
from foretell.lab.reference.rows import COLUMNS, Row, plans_of
from foretell.lab.reference.study import COUNT_COLUMNS, StudyResult, run_study, study
from tests.lab.reference.golden_plans import GOLDEN
from tests.lab.reference.worlds import oracle_of

TEXT = ("strategy", "model", "system")
EXACT = 1e-9
"""Relative difference allowed against a stored figure; the worst seen is 5.1e-15."""
Key = tuple[str, str, str, int, int]


def parsed(row: dict[str, str]) -> Row:
    return {k: v if k in TEXT else None if v == "" else float(v) for k, v in row.items()}


def key_of(row: Row) -> Key:
    strategy, model, system = (str(row[name]) for name in TEXT)
    return strategy, model, system, int(str(row["nvs"]).split(".")[0]), number(row["n_gpus"])


def number(cell: Any) -> int:
    return int(float(cell))


@pytest.fixture(scope="module")
def stored(data_dir: Path) -> dict[Key, list[Row]]:
    """The stored rows by search, best first."""
    lists: dict[Key, list[Row]] = defaultdict(list)
    with gzip.open(data_dir / "reference_search" / "best_plans.csv.gz", "rt") as file:
        reader = csv.DictReader(file)
        for row in map(parsed, reader):
            lists[key_of(row)].append(row)
        assert tuple(reader.fieldnames or ()) == COLUMNS
    assert sum(map(len, lists.values())) == 1198
    assert len(lists) == 120
    return lists


@pytest.fixture(scope="module")
def whole_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyResult, Path]:
    """All 54 searches, written to files; two seconds on one core."""
    folder = tmp_path_factory.mktemp("study")
    return study(folder, workers=1), folder


def differences(got: Row, want: Row) -> Iterator[tuple[float, str]]:
    """Relative difference of each cell; cells that are text or empty must be equal."""
    for name, value in want.items():
        ours = got[name]
        if isinstance(value, str) or value is None or ours is None:
            assert ours == value, name
            continue
        assert not isinstance(ours, str)
        yield abs(ours - value) / abs(value) if value else abs(ours), name


def assert_same(got: list[Row], want: list[Row]) -> None:
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        worst, name = max(differences(ours, theirs))
        assert worst <= EXACT, (name, ours[name], theirs[name])


def job_of(key: Key) -> dict[str, Any]:
    strategy, model, system, nvs, _ = key
    return {"strategy": strategy, "model": model, "chip": system, "fast_domain": nvs}


def test_golden_plans_evaluated() -> None:
    for row in GOLDEN:
        [got] = evaluate([row], **job_of(key_of(row)))
        assert_same([{**got, "rank": row["rank"]}], [row])


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['strategy']}-{row['model']}")
def test_golden_plans_found(row: Row) -> None:
    result = search(**job_of(key_of(row)), gpus=number(row["n_gpus"]))
    assert_same([result.plans[number(row["rank"]) - 1]], [row])


def test_every_stored_row_evaluated(stored: dict[Key, list[Row]]) -> None:
    for key, rows in stored.items():
        assert_same(evaluate(rows, **job_of(key)), rows)


def test_the_oracle_agrees_with_every_stored_row(stored: dict[Key, list[Row]]) -> None:
    for (strategy, model, system, nvs, _), rows in stored.items():
        oracle = oracle_of(MODELS[model], CHIPS[system], strategy, nvs, 4096, Quirks())
        plans = plans_of(rows, strategy)  # type: ignore[arg-type]
        for i, row in enumerate(rows):
            plan = {name: int(getattr(plans, name)[i]) for name in plans.__dataclass_fields__}
            got: Row = {**row, **oracle.plan(plan)}
            assert_same([got], [row])


def test_every_stored_list_found_in_its_order(
    stored: dict[Key, list[Row]], whole_study: tuple[StudyResult, Path]
) -> None:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in whole_study[0].plans:
        found[key_of(row)].append(row)
    for key, rows in stored.items():
        assert_same(found[key], rows)
    systems = {key[2:4] for key in stored}
    assert {key for key in found if key[2:4] in systems} == set(stored)


def test_every_candidate_count(data_dir: Path, whole_study: tuple[StudyResult, Path]) -> None:
    with (data_dir / "reference_search" / "candidate_counts.csv").open() as file:
        theirs = list(csv.DictReader(file))
    with (whole_study[1] / "candidate_counts.csv").open() as file:
        ours = list(csv.DictReader(file))
    assert tuple(ours[0]) == tuple(theirs[0]) == COUNT_COLUMNS
    names = COUNT_COLUMNS[:6]
    assert [[row[n] for n in names] for row in ours] == [[row[n] for n in names] for row in theirs]
    assert len(ours) == 78
    assert all(float(row[n]) >= 0 for row in ours for n in COUNT_COLUMNS[6:])


def test_the_whole_study_has_the_published_size(whole_study: tuple[StudyResult, Path]) -> None:
    result, folder = whole_study
    assert result.evaluations == 9_183_444  # "9.18 million evaluations"
    assert len(result.plans) == 3575  # plans that the published code stored for its nine systems
    assert result.files == (folder / "best_plans.csv", folder / "candidate_counts.csv")
    assert result.to_dict()["plans"] == 3575


def test_files_hold_what_was_found(whole_study: tuple[StudyResult, Path]) -> None:
    result, folder = whole_study
    with (folder / "best_plans.csv").open() as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert tuple(reader.fieldnames or ()) == COLUMNS
    assert [parsed(row) for row in rows] == result.plans  # exact: floats are written in full


def test_a_pool_finds_the_same(whole_study: tuple[StudyResult, Path]) -> None:
    seen: list[tuple[int, int]] = []
    pooled = run_study(workers=2, progress=lambda done, total: seen.append((done, total)))
    assert pooled.plans == whole_study[0].plans
    assert [row["cand_2d"] for row in pooled.counts] == [
        row["cand_2d"] for row in whole_study[0].counts
    ]
    assert seen[-1] == (54, 54)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
