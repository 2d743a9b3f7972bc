"""Are there known faults in what comes along? `python tools/audit.py` asks pip-audit about both locks.

Exits 1 where a package of a lock has a known vulnerability. Where pip-audit is not installed, or its database
cannot be reached, it says so and exits 0: what could not be asked is no fault of the code.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
PATIENCE_S = 300


def audit(lock: str) -> tuple[int, str]:
    """Exit code, and a line about one lock."""
    command = [
        sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / lock), "--require-hashes",
        "--disable-pip", "--format", "json", "--progress-spinner", "off",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return 0, f"{lock}: skipped: the database of vulnerabilities cannot be reached"
    # Without the database every package is "not found", which is not the same as without faults.
    asked = [one for one in found if "skip_reason" not in one]
    if found and not asked:
        return (
            0,
            f"{lock}: skipped: the database knows none of its {len(found)} packages: not reached?",
        )
    faults = [
        f"{one['name']} {one['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions'])}"
        for one in asked
        for fault in one.get("vulns", [])
    ]
    return int(bool(faults)), "\n".join(
        [
            f"{lock}: {len(asked)} of {len(found)} packages known, {len(faults)} known faults",
            *faults,
        ]
    )


def main() -> int:
    """Both locks."""
    if importlib.util.find_spec("pip_audit") is None:
        print("skipped: pip-audit is not installed (it is in foretell[dev])")
        return 0
    codes = []
    for lock in LOCKS:
        code, text = audit(lock)
        codes.append(code)
        print(text)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
