"""Systems by name, by chip and from users' files, and how they are shown."""

import copy
import json
import math
import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell import catalog
from foretell.catalog.files import LARGEST_BYTES, ROOT
from foretell.catalog.systems import named_system, system_from_file
from foretell.errors import BadInput

CHIPS = [entry.id for entry in catalog.entries("chips")]
OWN = """\
chip = "H100"
node_watts = "10 kW"

[network.node]
size = 8
bandwidth_bytes_per_s = "450 GB/s"
latency_s = "2 us"
in_network_reduction = true

[network.cluster]
size = 64
bandwidth_bytes_per_s = "400 Gbit/s"
latency_s = 5e-6
topology = "rail-clos"
taper = 0.5
"""
GOOD: dict[str, Any] = tomllib.loads(OWN)


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _problems(table: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BadInput) as caught:
        catalog.system_from_table(table)
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_has_a_reference_system_that_is_stated(chip: str) -> None:
    system = catalog.system(chip)
    assert system.id == chip
    assert system.chip == catalog.chip(chip)
    said = system.assumptions[0]
    assert said.startswith(f"{chip} is a chip; taken in its reference system")
    for tier in system.network.tiers:
        assert f"per {tier.name} at " in said
    assert math.prod(float(tier.size) for tier in system.network.tiers) >= 2048


def test_a_reference_with_another_chip_leaves_its_node_behind() -> None:
    theirs, ours = catalog.system("hgx-h100"), catalog.system("h20-sxm")
    assert theirs.node_watts > 0
    assert (ours.node_watts, ours.node_price_usd) == (0, 0)
    assert ours.network == theirs.network


def test_a_system_may_change_its_chip() -> None:
    assert catalog.system("dgx-2").chip.tdp_watts == 350
    assert catalog.chip("v100-sxm-32gb").tdp_watts == 300
    assert catalog.system("alps").chip.tdp_watts == 660
    assert catalog.system("gh200-96gb").chip.tdp_watts == 900


def test_a_users_file(tmp_path: Path) -> None:
    path = _write(tmp_path, OWN)
    system = catalog.system(str(path))
    assert system == catalog.system(path)
    assert (system.id, system.name, system.chip.id) == ("mine", "mine", "h100-sxm")
    node, cluster = system.network.tiers
    assert (node.name, node.size, node.latency_s, node.in_network_reduction) == (
        "node",
        8,
        2e-6,
        True,
    )
    assert (cluster.bandwidth_bytes_per_s, cluster.taper, cluster.topology) == (
        50e9,
        0.5,
        "rail-clos",
    )
    assert system.node_watts == 10e3


def test_a_catalogue_file_is_a_users_file_too() -> None:
    for entry in catalog.entries("systems"):
        assert (
            catalog.system(ROOT / "systems" / f"{entry.id}.toml").chip
            == catalog.system(entry.id).chip
        )


def test_a_chip_described_in_the_file(tmp_path: Path) -> None:
    own = OWN.replace('chip = "H100"\n', "") + (
        "[chip]\nvector_flop_per_s = 6e13\nmemory_bytes = '80 GiB'\n"
        "memory_bandwidth_bytes_per_s = '3 TB/s'\ntdp_watts = 600\n"
        "matrix_flop_per_s = {bf16 = '1 PFLOP/s'}\n"
    )
    chip = catalog.system(_write(tmp_path, own)).chip
    assert (chip.id, chip.memory_bytes) == ("own-chip", 80 * 2**30)
    assert chip.matrix_flop_per_s == {"bf16": 1e15}


def test_a_chip_changed_in_the_file(tmp_path: Path) -> None:
    own = OWN.replace('chip = "H100"\n', "")
    own += "[chip]\nbase = 'h100'\nmemory_bytes = '96 GiB'\nmatrix_flop_per_s = {fp8 = 1e15}\n"
    chip, base = catalog.system(_write(tmp_path, own)).chip, catalog.chip("h100")
    assert chip.memory_bytes == 96 * 2**30
    assert chip.matrix_flop_per_s == {**base.matrix_flop_per_s, "fp8": 1e15}
    assert chip.tdp_watts == base.tdp_watts


def test_all_problems_come_at_once_with_their_paths() -> None:
    table = copy.deepcopy(GOOD)
    table["chip"] = "h1000"
    table["node_wats"] = 3
    table["node_price_usd"] = -1
    table["network"]["node"]["bandwidth_bytes_per_s"] = "450 W"
    table["network"]["node"]["taper"] = 2.0
    table["network"]["cluster"]["size"] = 2.5
    del table["network"]["cluster"]["latency_s"]
    assert set(_problems(table)) == {
        "chip",
        "system.node_wats",
        "system.node_price_usd",
        "network.node.bandwidth_bytes_per_s",
        "network.node.taper",
        "network.cluster.size",
        "network.cluster.latency_s",
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("network.node.size", 0),
        ("network.node.size", float("nan")),
        ("network.node.size", 10**400),
        ("network.node.size", True),
        ("network.node.latency_s", -1e-6),
        ("network.node.latency_s", "5 GB"),
        ("network.node.latency_s", ""),
        ("network.node.bandwidth_bytes_per_s", 0.0),
        ("network.node.bandwidth_bytes_per_s", float("inf")),
        ("network.node.bandwidth_bytes_per_s", "4e400 GB/s"),
        ("network.node.bandwidth_bytes_per_s", []),
        ("network.node.topology", 3),
        ("network.node.shape", [2, 3]),
        ("network.node.in_network_reduction", "yes"),
        ("network.node.name", "other"),
        ("network.node", 8),
        ("network", []),
        ("network", {}),
        ("chip", 7),
        ("chip", {"base": 7}),
        ("system.id", 7),
        ("system.assumptions", "text"),
        ("system.node_watts", {"value": -5}),
        ("system.node_watts", {"value": 5, "status": "guess"}),
        ("system.node_watts", {"value": 5, "sauce": "x"}),
        ("system.node_watts", {}),
    ],
)
def test_bad_values_are_named_by_their_path(path: str, value: object) -> None:
    table = copy.deepcopy(GOOD)
    *parents, last = path.removeprefix("system.").split(".")
    place = table
    for parent in parents:
        place = place[parent]
    place[last] = value
    (found,) = _problems(table)
    assert found == path or found.startswith(f"{path}.")


def test_bad_chips_are_named_by_their_path() -> None:
    table = {**GOOD, "chip": {"matrix_flop_per_s": {"bf17": 1}, "memory_bytes": "80 GB/s"}}
    assert set(_problems(table)) == {
        "chip.matrix_flop_per_s.bf17",
        "chip.memory_bytes",
        "chip.vector_flop_per_s",
        "chip.memory_bandwidth_bytes_per_s",
        "chip.tdp_watts",
    }


LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.lists(st.integers(), max_size=3)
    | st.dictionaries(st.sampled_from(["value", "status", "source", "x"]), st.floats() | st.text())
)


@given(
    st.sampled_from(["chip", "id", "network", "node_watts", "nics_per_node", "sources", "xyz"]),
    st.recursive(LEAF, lambda inner: st.dictionaries(st.sampled_from(["node", "size"]), inner)),
)
def test_any_table_makes_a_system_or_bad_input(key: str, value: object) -> None:
    try:
        system = catalog.system_from_table({**GOOD, key: value})
    except BadInput as error:
        assert error.problems
        assert all(problem.path for problem in error.problems)
    else:
        assert system.network.tiers


@pytest.mark.parametrize(
    "content",
    [b"", b"chip = ", b"\xff\xfe", b"x = 1\n" * 3, b"a=" + b"[" * 5000, b"n = " + b"9" * 5000],
)
def test_a_malformed_file_is_bad_input(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        catalog.system(path)
    with pytest.raises(BadInput):
        catalog.show(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none.toml", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(BadInput, match=said):
            catalog.system(path)
    huge = _write(tmp_path, "#" * (LARGEST_BYTES + 1))
    with pytest.raises(BadInput, match="longer than"):
        catalog.system(huge)


def test_records_cross_process_borders() -> None:
    for name in ("h100-sxm", "tpu-v5p-pod"):
        system = catalog.system(name)
        assert pickle.loads(pickle.dumps(system)) == system


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("hgx-h100", ["chips/h100-sxm.toml", "systems/hgx-h100.toml"]),
        ("h100-sxm", ["chips/h100-sxm.toml", "systems/hgx-h100.toml"]),
        ("DGX H100", ["chips/h100-sxm.toml", "index.toml", "systems/hgx-h100.toml"]),
    ],
)
def test_only_the_files_that_a_question_names_are_read(name: str, files: list[str]) -> None:
    code = f"""
import json, sys
opened = set()
watch = lambda event, args: event == "open" and opened.add(str(args[0]))
from foretell import catalog
sys.addaudithook(watch)
catalog.system({name!r})
heavy = [m for m in ("pydantic", "rich", "cyclopts", "difflib") if m in sys.modules]
print(json.dumps([sorted(p for p in opened if p.endswith(".toml")), heavy]))
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT.parents[1])}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=env)
    opened, heavy = json.loads(done.stdout)
    assert [str(Path(path).relative_to(ROOT)) for path in opened] == files
    assert heavy == []


def test_a_name_is_read_once() -> None:
    assert catalog.system("perlmutter") is catalog.system("perlmutter")


def test_show_is_the_json_of_the_contract(tmp_path: Path) -> None:
    statuses = {"datasheet", "measured", "published", "inferred", "recalled"}
    for kind in ("chips", "systems"):
        for entry in catalog.entries(kind):
            shown = json.loads(json.dumps(catalog.show(entry.id), allow_nan=False))
            assert (shown["kind"], shown["id"]) == (kind[:-1], entry.id)
            assert isinstance(shown["aliases"], list)
            for fact in shown["values"].values():
                assert fact["value"] is not None
                assert len(fact["source"]) > 8
                assert fact["status"] in statuses
    own = catalog.show(str(_write(tmp_path, OWN)))
    assert (own["kind"], own["id"], own["chip"]) == ("system", "mine", "H100")
    assert own["values"]["network.cluster.bandwidth_bytes_per_s"]["value"] == 50e9


def test_show_reads_a_users_chip(tmp_path: Path) -> None:
    text = (ROOT / "chips" / "l4.toml").read_text(encoding="utf-8")
    assert catalog.show(str(_write(tmp_path, text)))["values"] == catalog.show("l4")["values"]


def test_a_table_is_what_its_file_is(tmp_path: Path) -> None:
    assert catalog.system({**GOOD, "id": "mine"}) == catalog.system(_write(tmp_path, OWN))
    with pytest.raises(BadInput, match="no design"):
        catalog.system(GOOD, design={"memory_stacks": "4"})
    file = Path(__file__).parents[2] / "examples" / "codesign_chip.toml"
    table = {"id": "codesign_chip", **tomllib.loads(file.read_text())}
    for design in ({}, {"memory_stacks": "4", "matrix_flop_per_clock.bf16": "4096"}):
        assert catalog.system(table, design=design) == catalog.system(file, design=design)


def test_entries_of_an_unknown_kind() -> None:
    with pytest.raises(BadInput, match="is not a kind"):
        catalog.entries("planets")


def test_a_chips_file_alone_is_a_system(tmp_path: Path) -> None:
    """Its fields at the top or in [chip]; the network is that of the chip it is based on, which is stated."""
    changed = 'memory_bytes = "200 GB"\n'
    forms = {
        "top": 'id = "mine"\nbase = "h200-sxm"\n' + changed,
        "table": 'id = "mine"\n[chip]\nbase = "h200-sxm"\n' + changed,
    }
    known = named_system("h200-sxm")
    for name, text in forms.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        found = system_from_file(path)
        assert (found.id, found.network) == ("mine", known.network)
        assert found.chip.memory_bytes == 200e9
        assert any("that of h200-sxm" in line for line in found.assumptions)
    path.write_text('base = "h200-sxm"\nmemory_bites = 3\n')
    with pytest.raises(BadInput) as caught:
        system_from_file(path)
    assert [(one.path, one.nearest) for one in caught.value.problems] == [
        ("chip.memory_bites", "memory_bytes")
    ]
