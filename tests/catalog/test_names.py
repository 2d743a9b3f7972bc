"""Names: every spelling of the published data resolves, and what does not is helped."""

import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell import catalog
from foretell.catalog import names
from foretell.catalog.index import WORDS_FILE, build, render, stated
from foretell.catalog.names import INDEX_FILE
from foretell.errors import BadInput
from tests.catalog.tables import CHIP_IDS, rows

AMBIGUOUS = {
    "v100sxm": {"v100-sxm-16gb", "v100-sxm-32gb"},
    "jeanzay": {"jean-zay-v100", "jean-zay-a100", "jean-zay-h100"},
    "meta24k": {"meta-24k-roce", "meta-24k-ib"},
    "h100sxm80gbh200gb200": {"h100-sxm", "h200-sxm", "gb200"},
}
IDS = [entry.id for kind in ("chips", "systems") for entry in catalog.entries(kind)]


def test_the_index_is_what_the_files_say() -> None:
    assert INDEX_FILE.read_text(encoding="utf-8") == render(build())


def test_the_list_of_software_that_states_fields_is_what_the_files_say() -> None:
    """The text of a plan has these fields, else it would not parse back."""
    assert json.loads(WORDS_FILE.read_text(encoding="utf-8")) == stated()


def test_the_stored_index_reads_back() -> None:
    assert names.load() == build()


def test_no_name_is_shared_by_accident() -> None:
    index = names.load()
    shared = {
        name: set(ids) for kind in names.KINDS for name, ids in index.names(kind).items() if ids[1:]
    }
    assert shared | AMBIGUOUS == shared
    written = {"v100sxm2", "v100sxm216gb32gb", "a100sxm40gb80gb", "metallama3cluster"}
    written |= {"a100sxm40gb1536nodes80gb256nodes", "a100sxm40gb22nodes80gb2nodes"}
    assert set(shared) == written | set(AMBIGUOUS)


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_name_names_its_candidates(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        catalog.system(name)
    (problem,) = caught.value.problems
    assert problem.allowed is not None
    assert set(problem.allowed.split(" or ")) == AMBIGUOUS[name]


def test_ids_are_those_of_the_conventions() -> None:
    for name in (
        "h100-sxm", "h200-sxm", "b200-sxm", "b300-sxm", "v100-sxm-32gb", "v100-sxm-16gb",
        "h100-sxm-96gb", "gh200-96gb", "gb200", "mi300x", "tpu-v5p", "a100-sxm-40gb",
        "a100-sxm-80gb",
    ):  # fmt: skip
        assert catalog.chip(name).id == name
    for name, system in {
        "polaris": "polaris-ss11",
        "thetagpu": "thetagpu-sophia",
        "sophia": "thetagpu-sophia",
        "dgx-h100": "hgx-h100",
        "dgx-h200": "dgx-h200",
        "dgx-b200": "dgx-b200",
        "gb200-nvl72": "gb200-nvl72",
        "perlmutter": "perlmutter",
        "sirius": "sirius",
        "p5.48xlarge": "aws-p5",
        "a3-highgpu-8g": "gcp-a3-high",
    }.items():
        assert catalog.system(name).id == system


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("a100", "a100-sxm-80gb"),
        ("H100", "h100-sxm"),
        ("h100-sxm-96gb-500w", "h100-sxm-96gb"),
        ("h200_sxm", "h200-sxm"),
        ("GH200 480GB", "gh200-96gb"),
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm-32gb"),
        ("tpu-v5litepod-8", "tpu-v5e"),
        ("Google TPU v4", "tpu-v4"),
        ("AMD Instinct MI355X", "mi355x"),
        ("NVIDIA H100 SXM", "h100-sxm"),
    ],
)
def test_known_spellings(name: str, chip: str) -> None:
    assert catalog.chip(name).id == chip


def test_what_a_name_leaves_open_is_said() -> None:
    assert catalog.system("a100").assumptions[0] == (
        "a100: A100 without a memory size is taken as the 80 GB part."
    )
    assert "480 GB are the CPU's" in catalog.system("GH200 480GB").assumptions[0]
    assert "Slingshot-11" in catalog.system("Polaris").assumptions[0]
    assert catalog.show("A100")["resolved"].startswith("A100: ")


def test_chips_of_the_tables(data_dir: Path) -> None:
    for row in rows(data_dir / "hardware" / "chips.csv"):
        assert catalog.chip(row["id"]).id == CHIP_IDS.get(row["id"], row["id"])
    for row in rows(data_dir / "hardware" / "prices.csv"):
        if row["chip"]:
            catalog.chip(row["chip"])
    for row in rows(data_dir / "reference_search" / "best_plans.csv.gz"):
        catalog.chip(row["system"])


def test_chips_of_the_measured_runs(data_dir: Path) -> None:
    for row in rows(data_dir / "training" / "measured_runs.csv.gz"):
        assert catalog.chip(row["gpu"]).id == catalog.chip(row["chip_id"]).id
    for row in rows(data_dir / "inference" / "measured_serving.csv.gz"):
        catalog.chip(row["gpu"])
    for row in rows(data_dir / "inference" / "llama2_latency_a100.csv"):
        catalog.chip(row["device"])


def test_chips_of_the_kernel_tables(data_dir: Path) -> None:
    software = re.compile(r"^(.+?)_(?:nccl|trtllm|vllm|sglang)_")
    found = set()
    for path in (data_dir / "kernels").glob("*.csv.gz"):
        if match := software.match(path.name):
            found.add(catalog.chip(match[1]).id)
    assert found == {"a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "gb200"}
    for file, column in (
        ("apex_collectives_H100_H200_V100", "gpu"),
        ("llmcompass_measured_ops", "device"),
    ):
        for row in rows(data_dir / "kernels" / f"{file}.csv.gz"):
            catalog.chip(row[column])


def test_systems_of_the_tables(data_dir: Path) -> None:
    for row in rows(data_dir / "hardware" / "systems.csv"):
        catalog.system(row["id"])
        try:
            catalog.chip(row["chip_id"])
        except BadInput as error:  # a text that names two or three chips says which
            assert "/" in row["chip_id"]
            assert error.problems[0].message == "means more than one"
    for row in rows(data_dir / "network" / "nccl_multinode.csv.gz"):
        catalog.system(row["system"])


@given(st.sampled_from(IDS), st.data())
def test_case_and_punctuation_are_forgiven(name: str, data: st.DataObject) -> None:
    marks = st.sampled_from(["-", "_", " ", ".", "", "/"])
    spelt = "".join(
        data.draw(marks) if ch == "-" else data.draw(st.sampled_from([ch, ch.upper()]))
        for ch in name
    )
    found = names.find(spelt)
    assert (found.id, catalog.normalise(spelt)) == (name, catalog.normalise(name))


@given(st.text())
def test_normalising_twice_is_normalising_once(text: str) -> None:
    plain = catalog.normalise(text)
    assert catalog.normalise(plain) == plain
    assert set(plain) <= set(string.ascii_lowercase + string.digits)


@given(st.text(max_size=40))
def test_any_text_is_found_or_refused(text: str) -> None:
    try:
        assert names.find(text).id in IDS
    except BadInput as error:
        assert len(error.problems) == 1


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("h100-sxmm", "h100-sxm"),
        ("perlmuter", "perlmutter"),
        ("mi3000x", "mi300x"),
        ("b20", "b200-sxm"),
    ],
)
def test_a_near_name_is_offered(typed: str, meant: str) -> None:
    with pytest.raises(BadInput) as caught:
        catalog.system(typed)
    (problem,) = caught.value.problems
    assert problem.nearest is not None
    assert meant in problem.nearest.split(" or ")
    assert problem.path == "system"


def test_a_chip_is_not_a_system_of_another_kind() -> None:
    with pytest.raises(BadInput, match="is not a chip's name"):
        catalog.chip("perlmutter")


@pytest.mark.parametrize(
    "name", ["../chips/h100-sxm", "/etc/passwd", "..", "h100-sxm/", "\0", "x" * 10_000]
)
def test_names_do_not_leave_the_catalogue(name: str) -> None:
    try:
        assert catalog.system(name, files=False).id in IDS
    except BadInput as error:
        assert error.problems[0].path == "system"
