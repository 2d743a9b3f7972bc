"""Files that other machines read: the site's configuration, the action, workflows, the image."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPT = r"(?:^|\s)(\./[\w/-]+|\.ci/run|tools/\w+\.py)"
"""A file of the repository that a workflow runs."""
HOST = r"[\w.-]*(?:pypi\.org|docker\.io|ghcr\.io|mcr\.microsoft)[\w./-]*"


def read_yaml(path: Path) -> Any:
    """A YAML file; a tag for Python of mkdocs' would be refused."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def pages_of(nav: Any) -> list[str]:
    """Every page that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    return [page for one in nav for value in (one.values() if isinstance(one, dict) else [one])
            for page in pages_of(value)]  # fmt: skip


def test_the_site_has_every_page_once() -> None:
    named = pages_of(read_yaml(ROOT / "mkdocs.yml")["nav"])
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    made = {"python-reference.md", "contributing.md", "changelog.md"}
    assert len(named) == len(set(named))
    assert set(named) == there | made


def test_the_site_asks_no_other_server_and_knows_versions() -> None:
    site = read_yaml(ROOT / "mkdocs.yml")
    assert site["theme"]["font"] is False
    assert site["strict"] is True
    assert site["extra"]["version"]["provider"] == "mike"
    assert [one if isinstance(one, str) else next(iter(one)) for one in site["plugins"]] == [
        "search", "mike", "mkdocstrings",
    ]  # fmt: skip


def test_links_of_pages_are_led_anew() -> None:
    from tests.test_release import tool

    moved = tool("site_hooks").moved
    text = "[a](../CONTRIBUTING.md#x) [b](../src/foretell/units.py) ![c](pictures/scale.svg) [d](https://e.f)"
    assert moved(text, "docs/index.md", "index.md") == (
        "[a](contributing.md#x) b ![c](pictures/scale.svg) [d](https://e.f)"
    )
    assert moved("[a](docs/ui.md)", "CONTRIBUTING.md", "contributing.md") == "[a](ui.md)"
    assert moved("[a](../../README.md)", "docs/model/x.md", "model/x.md") == "[a](../index.md)"
    assert (
        moved("```text\n[a](../x.py)\n```\n", "docs/x.md", "x.md") == "```text\n[a](../x.py)\n```\n"
    )


def test_the_api_page_names_what_can_be_imported() -> None:
    from importlib import import_module

    from tests.test_release import tool

    found = re.findall(r"^::: (\S+)$", tool("site_hooks").api_page(), re.MULTILINE)
    assert len(found) > 25
    for name in found:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last), name


@pytest.mark.skipif(shutil.which("mkdocs") is None, reason="mkdocs is not installed: ./docs-site")
@pytest.mark.full
def test_the_site_builds(tmp_path: Path) -> None:
    command = ["mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert "Pick a plan" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_action_passes_its_inputs_by_the_environment() -> None:
    """An expression within a script would let the text of an input run as code."""
    action = read_yaml(ROOT / "action.yml")
    assert action["runs"]["using"] == "composite"
    used = set()
    for step in action["runs"]["steps"]:
        assert "uses" in step or step["shell"] == "bash"
        assert "${{" not in step.get("run", "")
        used |= set(re.findall(r"inputs\.([\w-]+)", json.dumps(step.get("env", {}))))
    assert used == set(action["inputs"])
    for output in action["outputs"].values():
        assert re.fullmatch(r"\$\{\{ steps\.check\.outputs\.\w+ \}\}", output["value"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.name for path in WORKFLOWS])
def test_workflows_have_few_rights(path: Path) -> None:
    flow = read_yaml(path)
    assert "permissions" in flow
    for name, job in flow["jobs"].items():
        assert job["runs-on"] == "ubuntu-latest"
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), name
            assert "secrets." not in json.dumps(step), name
            for script in re.findall(SCRIPT, step.get("run", "")):
                assert (ROOT / script).exists(), script
    if path.name == "release.yml":
        rights = {name: job.get("permissions", {}) for name, job in flow["jobs"].items()}
        assert [name for name, own in rights.items() if "id-token" in own] == ["publish"]
        assert flow["jobs"]["publish"]["environment"] == "package-index"


def test_the_image_is_slim_and_runs_without_rights() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    joined = text.replace("\\\n", " ")
    stages = re.findall(r"^FROM (\S+) AS (\w+)$", joined, re.MULTILINE)
    assert [name for _, name in stages] == ["build", "dev", "run"]
    assert all(re.fullmatch(r"python:3\.\d+-slim", image) for image, _ in stages)
    last = joined.rpartition("FROM ")[2]
    assert re.search(r"^USER 10001$", last, re.MULTILINE)
    assert json.loads(re.findall(r"^CMD (\[.*\])$", last, re.MULTILINE)[-1])[0] == "ui"
    assert json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", last, re.MULTILINE)[1]) == ["foretell"]  # type: ignore[index]
    assert "--require-hashes" in joined
    assert "sudo" not in joined
    assert not re.search(r"^(ADD|MAINTAINER)\b", joined, re.MULTILINE)
    for line in re.findall(r"apt-get install [^\n]*", joined):
        assert "--no-install-recommends" in line
        assert "rm -rf /var/lib/apt/lists/*" in line
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", joined, re.MULTILINE):
        for name in names.split():
            assert (ROOT / name).exists(), name
            assert f"!{name}" in kept, name


def test_the_dev_container_builds_a_stage_that_is_there() -> None:
    held = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert held["build"]["target"] == "dev"
    assert (ROOT / ".devcontainer" / held["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"
    for script in re.findall(r"\./([\w-]+)", held["postCreateCommand"]):
        assert os.access(ROOT / script, os.X_OK)


def test_no_file_names_a_registry() -> None:
    names = ("Dockerfile", "action.yml", "mkdocs.yml", ".devcontainer/devcontainer.json")
    for path in (*(ROOT / name for name in names), ROOT / "docs" / "release.md", *WORKFLOWS):
        assert re.findall(HOST, path.read_text(encoding="utf-8")) == [], path.name


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_site_script_says_its_usage() -> None:
    done = subprocess.run(
        [ROOT / "docs-site", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "build" in done.stdout
    wrong = subprocess.run(
        [ROOT / "docs-site", "bild"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2


def launch_check(*words: str, folder: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """tools/check_launch.py with what an action gives it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}
    command = [sys.executable, str(ROOT / "tools" / "check_launch.py"), *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_slower_launch_fails_and_says_by_how_much(tmp_path: Path) -> None:
    out = tmp_path / "out"
    slow, fast = "examples/launch_slow.sh", "examples/launch_megatron.sh"
    flags = ("--base-file", fast, "--system", "h100-sxm")
    done = launch_check(slow, *flags, GITHUB_OUTPUT=str(out))
    told = dict(line.split("=", 1) for line in out.read_text().splitlines())
    report = json.loads(told["report"])
    rates = [report[name]["tokens_per_s"] for name in ("before", "now")]
    assert float(told["slowdown"]) == pytest.approx(rates[0] / rates[1] - 1.0, rel=1e-4)
    assert done.returncode == int(float(told["slowdown"]) > 0.05)
    again = launch_check(slow, *flags, "--max-slowdown", "1000")
    assert again.returncode == 0


def test_a_launch_is_compared_with_its_base_in_git(tmp_path: Path) -> None:
    """The second version needs more memory than there is."""
    words = (ROOT / "examples" / "launch_megatron.sh").read_text()
    file = tmp_path / "train.sh"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    file.write_text(words)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    file.write_text(
        words.replace("--tensor-model-parallel-size 8", "--tensor-model-parallel-size 1")
    )
    summary = tmp_path / "summary"
    flags = ("--base", "HEAD", "--system", "h100-sxm", "--accept-unknown")
    done = launch_check("train.sh", *flags, folder=tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1
    assert "| Fits | yes | no |" in summary.read_text()
    file.write_text("hello")
    assert launch_check("train.sh", folder=tmp_path).returncode == 2
