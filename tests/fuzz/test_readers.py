"""Mutated inputs of every reader: a clear error or a result, never anything else."""

import gzip
from pathlib import Path
from time import process_time

import pytest

from foretell.catalog import files
from foretell.catalog.names import find as find_name
from foretell.errors import BadInput
from foretell.interop.documents import read_documents
from foretell.interop.forms.outputs import parsed
from foretell.interop.forms.trees import yaml_trees
from foretell.interop.log_reader import log_measurements
from foretell.interop.tools import read_arguments
from foretell.lab.validate.post_training import read_cells
from foretell.lab.validate.training import score_training
from tests.fuzz.harness import fuzz
from tests.fuzz.later_readers import calibration_readers, later_readers
from tests.fuzz.mutate import mutated
from tests.fuzz.readers import own_readers, table_readers

FEW, MANY = 200, 10_000
"""Inputs of a reader in the quick form and in the full one."""
FEW_LATER, MANY_LATER = 8, 500
"""The same of one launch file or table of many: some 50,000 in all."""
TABLES = {"collectives", "kernels", "training", "memory", "serving", "cost"}
"""Kinds of tables that `validate` reads."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def test_every_reader_a_few_times(folder: Path) -> None:
    for reader in own_readers(folder):
        # A shard is written and exported each time: some twenty times what the others take.
        many = FEW // 5 if reader.name == "sweep shard" else FEW
        told = fuzz(reader.name, reader.read, reader.seeds, many)
        assert told["answers"] > 0, f"{reader.name}: nothing was read"
        assert told["refused"] > 0, f"{reader.name}: nothing was refused"


def test_tables_a_few_times(folder: Path, data_dir: Path) -> None:
    readers = table_readers(folder, data_dir)
    assert {reader.name.partition(" table")[0] for reader in readers} == TABLES
    for reader in readers:
        fuzz(reader.name, reader.read, reader.seeds, FEW // 5)


def test_launch_files_and_others_a_few_times(folder: Path) -> None:
    readers = later_readers(folder)
    assert len(readers) > 90
    for reader in readers:
        fuzz(reader.name, reader.read, reader.seeds, FEW_LATER)


def test_tables_of_calibrate_a_few_times(folder: Path, data_dir: Path) -> None:
    readers = calibration_readers(folder, data_dir)
    kinds = {reader.name.partition(" rows")[0] for reader in readers}
    assert {"kernel", "collective", "serving", "post-training"} <= kinds
    for reader in readers:
        fuzz(reader.name, reader.read, reader.seeds, FEW_LATER)


@pytest.mark.full
def test_launch_files_and_tables_many_times(folder: Path, data_dir: Path) -> None:
    for reader in (*later_readers(folder), *calibration_readers(folder, data_dir)):
        fuzz(reader.name, reader.read, reader.seeds, MANY_LATER)


@pytest.mark.full
def test_every_reader_many_times(folder: Path) -> None:
    for reader in own_readers(folder):
        fuzz(reader.name, reader.read, reader.seeds, MANY)


@pytest.mark.full
def test_tables_many_times(folder: Path, data_dir: Path) -> None:
    for reader in table_readers(folder, data_dir):
        fuzz(reader.name, reader.read, reader.seeds, MANY)


def test_mutations_are_the_same_for_a_seed() -> None:
    content = b'{"a": 1, "b": [2, 3]}\n' * 5
    assert [mutated(seed, content) for seed in range(50)] == [
        mutated(s, content) for s in range(50)
    ]
    assert len({mutated(seed, content) for seed in range(200)}) > 150


def test_a_fault_is_found() -> None:
    def careless(content: bytes) -> object:
        if b"NaN" in content:
            raise KeyError("oops")
        return content

    with pytest.raises(AssertionError, match="KeyError"):
        fuzz("careless", careless, (b"x = 1\n" * 9,), 500)


def test_what_unpacks_to_more_than_a_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "measured_runs.csv.gz"
    path.write_bytes(gzip.compress(b"a" * 3_000_000))
    assert path.stat().st_size < 4000
    monkeypatch.setattr(files, "LARGEST_TABLE", 1_000_000)
    with pytest.raises(BadInput, match="more than 1000000 bytes"):
        score_training(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(BadInput, match="cannot be read"):
        score_training(path)


def test_faults_that_were_found(tmp_path: Path) -> None:
    """Inputs that mutations found: a column's name without end, a batch of 1e400, thousands of servers."""
    path = tmp_path / "runs.csv"
    path.write_text("id," + "(" * 200_000 + "\n")
    with pytest.raises(BadInput, match="field larger"):
        read_cells(path)
    line = " iteration 1/ 10 | elapsed time per iteration (ms): 5000.0 | global batch size: 1e400 |"
    found = log_measurements("\n".join([line] * 4), "run.log")
    assert found is not None
    assert "global_batch" not in found[0].asked
    with pytest.raises(BadInput, match="too many servers"):
        read_arguments("vllm serve meta-llama/Llama-3.1-8B --port 8000\n" * 3000)


def test_a_shell_that_repeats_itself_is_parsed_in_moments() -> None:
    """The grammar of shells takes the square of such runs: these took minutes."""
    before = process_time()
    for text in ("sgl" + "(" * 100_000, "cat > e.yml << EOF\na: 1\nEOF" + "-" * 100_000 + "\nx\n"):
        parsed(text)
    assert process_time() - before < 2.0


@pytest.mark.parametrize(
    "text", ["a: " + "{" * 100_000 + "}" * 100_000, "- " * 100_000 + "a\n", "[" * 5000]
)
def test_yaml_that_is_nested_too_deeply_is_refused(text: str) -> None:
    """The loader in C ended the process."""
    with pytest.raises(BadInput, match=r"nested too deeply|is not YAML"):
        read_documents(text)


def test_braces_without_end_are_no_template() -> None:
    before = process_time()
    with pytest.raises(BadInput):
        yaml_trees("a: " + "{" * 100_000)
    assert process_time() - before < 2.0


def test_a_name_of_a_hundred_thousand_blanks_is_none() -> None:
    before = process_time()
    with pytest.raises(BadInput, match="is not"):
        find_name("h" + " " * 100_000 + "100")
    assert process_time() - before < 2.0
