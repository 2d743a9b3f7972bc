"""What is released: the wheel, the version in its three places, the lock, licences, lowest versions."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from foretell import __version__

ROOT = Path(__file__).resolve().parent.parent


def tool(name: str) -> ModuleType:
    """A script of tools/ as a module."""
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: pip install hatchling")
    # Of a copy: a build writes beside what it reads, and a checkout need not be writable.
    source = tmp_path_factory.mktemp("source")
    for name in (".gitignore", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source / name)
    # The store is made by the build; files of others come and go.
    left_out = shutil.ignore_patterns("parsed.jsonl", "*.pyc.*", "*.new")
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=left_out)
    build = tool("check_wheels").build
    return build(tmp_path_factory.mktemp("wheel"), isolated=False, source=source)


def test_the_wheel_is_whole(wheel: Path) -> None:
    assert tool("check_wheels").missing(wheel) == []
    assert wheel.name == f"foretell-{__version__}-py3-none-any.whl"


@pytest.mark.full
def test_the_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment that borrows the dependencies of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    (place,) = tmp_path.glob("lib/python*/site-packages")
    flags = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(place)]
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, str(wheel)], check=True)
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env = {**kept, "PYTHONPATH": os.pathsep.join(borrowed)}
    python = str(tmp_path / "bin" / "python")
    for words in (["--help"], "estimate llama-3.1-8b --gpus 64xH100".split()):
        program = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); from foretell.cli import main; main()"
        )
        done = subprocess.run(
            [python, "-c", program, str(place), *words],
            env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    assert "step time" in done.stdout


@pytest.mark.full
def test_the_wheel_runs_on_every_python_at_hand() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "check_wheels.py")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if re.search("No matching distribution|Could not find a version", done.stdout + done.stderr):
        pytest.skip("pip reaches no index here")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = re.search(r"^version: (\S+)\ndate-released: (\S+)$", citation, re.MULTILINE)
    assert said is not None
    assert said[1] == __version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((\S+)\)$", changes, re.MULTILINE)
    assert newest is not None
    assert newest.groups() == said.groups()


def test_the_citation_names_the_four_lines_of_work() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for doi in ("2410.00273", "10.1145/3673660.3655087", "2305.10991", "2507.02456"):
        assert doi in citation


def test_every_dependency_has_a_minimum() -> None:
    minimums = tool("check_minimums")
    pins = [minimums.lowest(line) for line in minimums.requirements()]
    assert len(pins) >= 10
    assert all(re.fullmatch(r"[A-Za-z_-]+==[0-9.]+", pin) for pin in pins)


def test_the_lock_is_of_these_dependencies() -> None:
    locked = tool("licences").locked()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    run = [e for e in extras if e not in ("dev", "docs")]  # what is needed to run Foretell
    asked = [*project["dependencies"], *(r for e in run for r in extras[e])]
    for line in asked:
        name, _, rest = line.replace("_", "-").partition(">=")
        if name.startswith("foretell["):
            continue
        least, _, below = rest.partition(",<")
        version = [int(part) for part in re.findall(r"\d+", locked[name])]
        assert version >= [int(part) for part in least.split(".")], name
        assert not below or version < [int(below)], name
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    for entry in re.split(r"\n(?=[a-z0-9-]+==)", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_every_licence_is_said() -> None:
    table = (ROOT / "docs" / "supply-chain" / "licences.csv").read_text(encoding="utf-8")
    said = dict(csv.reader(table.splitlines()))
    assert set(said) - {"package"} == set(tool("licences").locked())
    assert all(
        re.search(r"MIT|BSD|Apache|PSF|MPL|0BSD", licence)
        for licence in said.values()
        if licence != "licence"
    )


def test_everything_vendored_has_its_licence() -> None:
    vendor = ROOT / "src" / "foretell" / "web" / "static" / "vendor"
    page = (ROOT / "docs" / "supply-chain.md").read_text(encoding="utf-8")
    told = (vendor / "README.md").read_text(encoding="utf-8")
    for path in vendor.iterdir():
        if path.name != "README.md" and "LICENSE" not in path.name:
            assert path.name in told
            assert path.name in page
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").count("Apache License") >= 1


def test_the_bill_of_materials_is_that_of_the_lock() -> None:
    import json

    written = json.loads((ROOT / "sbom.cdx.json").read_text(encoding="utf-8"))
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert written == tool("sbom").document(lock), "python tools/sbom.py writes it anew"
    found = {part["name"]: part["version"] for part in written["components"]}
    assert found == tool("licences").locked()
    assert all(part["hashes"] for part in written["components"])
    assert "pkg:pypi/numpy@" in str(written["dependencies"])


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_the_locks_are_of_every_python_and_platform(name: str) -> None:
    """Each lock has files of all of them, and none of its packages is named without one."""
    lock, text = tool("lock"), (ROOT / name).read_text(encoding="utf-8")
    head = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    for word in (*lock.PYTHONS, *lock.PLATFORMS):
        assert word in head, word
    assert "alone" not in head
    assert lock.pinned(ROOT / name).keys() == {*re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE)}


def test_the_lock_for_developers_holds_the_other() -> None:
    own = tool("licences").locked()
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    dev = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    assert own.items() <= dev.items()
    assert {"ruff", "mypy", "pytest", "hypothesis", "schemathesis", "pip-audit"} <= dev.keys()


def test_an_audit_that_cannot_ask_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = tool("audit")
    monkeypatch.setattr(audit.importlib.util, "find_spec", lambda name: None)
    assert audit.main() == 0
    assert "skipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([{"name": "a", "skip_reason": "not found"}], 0, "skipped"),
        ([{"name": "a", "version": "1", "vulns": []}], 0, "1 of 1 packages known, 0 known faults"),
        (
            [
                {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]},
                {"name": "b", "skip_reason": "not found"},
            ],
            1,
            "1 of 2 packages known, 1 known faults\na 1: CVE-1, mended in 2",
        ),
    ],
)
def test_an_audit_says_how_many_packages_it_could_ask_about(
    monkeypatch: pytest.MonkeyPatch, packages: list[dict[str, Any]], code: int, said: str
) -> None:
    """Without its database pip-audit finds no package, and so no fault: that is said to be no answer."""
    audit = tool("audit")
    answer = SimpleNamespace(stdout=json.dumps({"dependencies": packages}))
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: answer)
    found = audit.audit("requirements.lock")
    assert found[0] == code
    assert said in found[1]
