"""Does the wheel carry everything, and does it run on every Python at hand? `python tools/check_wheels.py`

Builds the wheel twice, which must give the same bytes, looks into it, installs it with its dependencies into
a fresh environment of every interpreter python3.11 to python3.14 on the PATH, and runs a few commands there.
What pip installs from is pip's own business. Exits 1 where anything fails.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = [f"python3.{minor}" for minor in range(11, 16)]
CARRIED = {
    "foretell/py.typed": 1,
    "foretell/interop/parsed.jsonl": 1,
    "foretell/catalog/chips/*.toml": 40,
    "foretell/catalog/systems/*.toml": 40,
    "foretell/catalog/models/*.json": 150,
    "foretell/catalog/kernels/*.toml": 4,
    "foretell/catalog/fabrics/*.toml": 10,
    "foretell/catalog/prices/*.toml": 5,
    "foretell/web/static/index.html": 1,
    "foretell/web/static/vendor/plotly*.js": 1,
    "foretell-*.dist-info/licenses/LICENSE": 1,
    "foretell-*.dist-info/entry_points.txt": 1,
}
"""What must be in the wheel, and at least how many."""
QUESTION = "estimate llama-3.1-8b --system h100-sxm --gpus 64 --json".split()


def build(folder: Path, *, isolated: bool = True, source: Path = ROOT) -> Path:
    """The wheel of a source, made by pip as anyone would."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = [] if isolated else ["--no-build-isolation"]
    _run(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet",
        "--disable-pip-version-check", *flags, "--wheel-dir", str(folder), str(source),
    )  # fmt: skip
    (wheel,) = folder.glob("foretell-*.whl")
    return wheel


def missing(wheel: Path) -> list[str]:
    """What the wheel should hold and does not, and what it holds and should not."""
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name) for name in archive.namelist()]
    found = [
        f"{pattern}: {have} where {least} or more are expected"
        for pattern, least in CARRIED.items()
        if (have := sum(name.match(pattern) for name in names)) < least
    ]
    strange = [str(n) for n in names if n.parts[0] != "foretell" and ".dist-info" not in n.parts[0]]
    compiled = [str(n) for n in names if "__pycache__" in n.parts]
    return [*found, *(f"does not belong there: {name}" for name in [*strange, *compiled])]


def digest(wheel: Path) -> str:
    """The hash of a wheel: of two builds of one source it is the same."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def interpreters() -> dict[str, str]:
    """Version -> path of every interpreter on the PATH that runs."""
    found: dict[str, str] = {}
    for name in PYTHONS:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            path = shutil.which(name, path=folder)
            if path is None:
                continue
            asked = [path, "-c", "import platform, venv; print(platform.python_version())"]
            said = subprocess.run(asked, capture_output=True, text=True, check=False)
            if said.returncode == 0:
                found.setdefault(said.stdout.strip(), path)
    return found


def try_on(python: str, wheel: Path, folder: Path) -> float:
    """Install the wheel for an interpreter, run it, and give the step time that it foretells."""
    _run(python, "-m", "venv", str(folder))
    own = folder / "bin" / "python"
    _run(
        str(own), "-m", "pip", "install", "--quiet", "--no-input",
        "--disable-pip-version-check", str(wheel),
    )  # fmt: skip
    program = str(folder / "bin" / "foretell")
    for words in (["--help"], ["--version"], ["catalog", "chips"], ["doctor", "--json"]):
        _run(program, *words)
    return float(json.loads(_run(program, *QUESTION))["step_s"])


def _run(*command: str) -> str:
    """Run, away from the repository, and give what it printed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command, cwd=tempfile.gettempdir(), env=kept, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def main() -> int:
    """Check the wheel, and every interpreter."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.parse_args()
    with tempfile.TemporaryDirectory() as place:
        wheel = build(Path(place) / "first")
        wrong = missing(wheel)
        again = build(Path(place) / "second")
        if digest(wheel) != digest(again):
            wrong.append("a second build gives another file")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {'; '.join(wrong) or 'whole'}")
        answers = set()
        for version, python in interpreters().items():
            try:
                step_s = try_on(python, wheel, Path(place) / version)
                answers.add(step_s)
                print(f"Python {version}: runs, an estimate gives {step_s!r} s")
            except RuntimeError as error:
                wrong.append(version)
                print(f"Python {version}: {error}")
    if len(answers) > 1:
        wrong.append("answers differ")
        print(f"answers differ: {sorted(answers)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
