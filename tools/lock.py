"""Writes requirements.lock and requirements-dev.lock: every package of `foretell[all]`, and of
`foretell[all,dev]`, at one version, with the hashes of its files.

`python tools/lock.py` asks pip what it would install, for each Python and platform below, and writes nothing
but names, versions and hashes: where the files come from is the installer's business. Versions stay as they
are in the files; `--upgrade` takes the newest.
`pip install --require-hashes -r requirements.lock` then installs those very files or nothing.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {"requirements.lock": False, "requirements-dev.lock": True}
"""File -> whether what checks the repository is in it too."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_14_0_arm64")
FALLBACKS = {
    "manylinux_2_28_x86_64": ("manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "manylinux_2_28_aarch64": ("manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "macosx_14_0_arm64": ("macosx_12_0_arm64", "macosx_11_0_arm64", "macosx_10_12_universal2"),
}
"""Older platforms whose files serve too."""
HEADER = """\
# Every package of foretell[{extras}], with the hashes of its files for CPython {pythons} on
# {platforms}.
# Made by `python tools/lock.py`; torch, which a user chooses, is not among them.
"""


def requirements(dev: bool) -> list[str]:
    """What foretell[all] asks for, or foretell[all,dev]."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(r for name in extras if name != "docs" and (dev or name != "dev") for r in extras[name]),
    ]
    return sorted({line for line in lines if not line.startswith("foretell[")})


def resolved(python: str, platform: str, pins: list[str], dev: bool) -> list[tuple[str, str, str]]:
    """Name, version and hash of everything that pip would install there."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        tags = [word for tag in (platform, *FALLBACKS[platform]) for word in ("--platform", tag)]
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed",
            "--disable-pip-version-check", "--only-binary=:all:", "--python-version", python, *tags,
            "--target", place, "--report", str(report), *pins, *requirements(dev),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise RuntimeError("; ".join(errors) or f"pip exits {done.returncode}")
        found = json.loads(report.read_text())["install"]
    return [
        (
            entry["metadata"]["name"].lower().replace("_", "-").replace(".", "-"),
            entry["metadata"]["version"],
            entry["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for entry in found
    ]


def pinned(lock: Path) -> dict[str, str]:
    """Versions that a lock has already."""
    text = lock.read_text(encoding="utf-8") if lock.exists() else ""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def main() -> int:
    """Write both files; what the first has at a version, the second has at the same."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument(
        "--upgrade", action="store_true", help="the newest versions, not those that are there"
    )
    upgrade = asked.parse_args().upgrade
    versions: dict[str, str] = {}
    for name, dev in LOCKS.items():
        held = {} if upgrade else pinned(ROOT / name)
        versions = write(ROOT / name, dev, held | versions)
    return 0 if versions else 1


def write(lock: Path, dev: bool, versions: dict[str, str]) -> dict[str, str]:
    """Resolve for each Python and platform, one version for all of them, and write the file."""
    found_at: dict[str, str] = {}
    hashes: dict[str, set[str]] = {}
    pythons, platforms = [], []
    for platform in PLATFORMS:
        for python in PYTHONS:
            pins = [f"{name}=={version}" for name, version in (versions | found_at).items()]
            try:
                found = resolved(python, platform, pins, dev)
            except RuntimeError as error:
                print(f"left out: Python {python} on {platform}: {error}", file=sys.stderr)
                continue
            pythons.append(python)
            platforms.append(platform)
            for name, version, digest in found:
                found_at.setdefault(name, version)
                hashes.setdefault(name, set()).add(digest)
    lines = [
        HEADER.format(
            extras="all,dev" if dev else "all",
            pythons=", ".join(dict.fromkeys(pythons)),
            platforms=", ".join(dict.fromkeys(platforms)),
        )
    ]
    for name, version in sorted(found_at.items()):
        marks = [f"--hash=sha256:{digest}" for digest in sorted(hashes[name])]
        lines.append(f"{name}=={version} \\\n    " + " \\\n    ".join(marks) + "\n")
    lock.write_text("".join(lines), encoding="utf-8")
    print(f"{len(found_at)} packages, {sum(map(len, hashes.values()))} files: {lock.name}")
    return found_at


if __name__ == "__main__":
    sys.exit(main())
