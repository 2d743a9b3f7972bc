"""Do the lowest versions that pyproject.toml declares still work? `python tools/check_minimums.py [FOLDER]`

Makes an environment in FOLDER (a temporary one if none is given) with every dependency of the package and
of its extras at its declared minimum, and runs a short suite there that touches each. Exits 1 where
that fails. It needs a Python of the oldest version that is declared.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITE = [
    "tests/test_units.py",
    "tests/test_errors.py",
    "tests/test_records.py",
    "tests/specs",
    "tests/surfaces/test_contract.py",
    "tests/surfaces/test_text.py",
    "tests/studies",
    "tests/lab/calibrate/test_fit.py",
]
"""A little of everything: records, the command line and its text, tables of sweeps, fits."""
TOOLS = ("pytest", "hypothesis", "syrupy", "networkx", "httpx")
"""What the suite itself needs, at whatever version."""


def requirements() -> list[str]:
    """Every dependency that a user may get, as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [
        *project["dependencies"],
        *(r for name in extras if name not in ("dev", "docs") for r in extras[name]),
    ]
    return sorted({line for line in asked if not line.startswith("foretell[")})


def lowest(requirement: str) -> str:
    """`name>=1.2,<2` as `name==1.2`; a version of fewer numbers means its first release."""
    found = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)(,.*)?", requirement.replace(" ", ""))
    if found is None:
        raise SystemExit(f"{requirement}: a dependency without a minimum")
    return f"{found[1]}=={found[2]}"


def main() -> int:
    """Make the environment and run the suite in it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="kept for another look")
    parser.add_argument("tests", nargs="*", help="in the place of the short suite")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(given.folder or place) / "minimums"
        pins = [lowest(line) for line in requirements()]
        print(f"Python {sys.version.split()[0]}: {', '.join(pins)}", flush=True)
        python = str(folder / "bin" / "python")
        steps = [
            [sys.executable, "-m", "venv", str(folder)],
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *pins,
                *TOOLS,
            ],
            [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(given.tests or SUITE)],
        ]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        for step in steps:
            if subprocess.run(step, cwd=ROOT, env=kept, check=False).returncode != 0:
                print(f"failed: {' '.join(step)}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
