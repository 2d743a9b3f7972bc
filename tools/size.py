"""Lines of code under src by room, and what a change adds against a base revision.

    python tools/size.py [BASE]

counts the lines of every Python file under src/foretell. The base is a git revision, `origin/main` or else
`main` where none is named; where HEAD is that revision itself, the change is what is not committed. Shown by
./test; it never fails.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/foretell"
BUDGET = 141_108
"""Lines that src had when the budget was set: it may not grow beyond them."""


def room_of(path: str) -> str:
    """The room that a file of the package is in; a module at the top is one by itself."""
    return path.removeprefix(f"{PACKAGE}/").partition("/")[0]


def sizes() -> Counter[str]:
    """Lines of Python by room, as the files are now."""
    found: Counter[str] = Counter()
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found[room_of(name)] += len(path.read_bytes().splitlines())
    return found


def git(*words: str) -> str | None:
    """What git prints; None where it refuses or is not there."""
    command = ["git", "-C", str(ROOT), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def base_of(given: str | None) -> str | None:
    """The commit that a change starts from; None where there is none."""
    for name in [given] if given else ["origin/main", "main"]:
        found = git("merge-base", "HEAD", name)
        if found:
            return found.strip()
    return None


def changes(base: str) -> tuple[Counter[str], Counter[str]]:
    """Lines added and removed by room since a commit, files that git does not know yet included."""
    added: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for line in (git("diff", "--numstat", "--no-renames", base, "--", PACKAGE) or "").splitlines():
        plus, minus, path = line.split("\t")
        if path.endswith(".py"):
            added[room_of(path)] += int(plus)
            removed[room_of(path)] += int(minus)
    new = git("ls-files", "--others", "--exclude-standard", "--", PACKAGE) or ""
    for path in new.splitlines():
        if path.endswith(".py"):
            added[room_of(path)] += len((ROOT / path).read_bytes().splitlines())
    return added, removed


def text(base: str | None) -> str:
    """The table: a line for each room, largest first, and the sum beside the budget."""
    now = sizes()
    added, removed = changes(base) if base else (Counter[str](), Counter[str]())
    lines = [f"{'room':<16}{'lines':>9}{'added':>9}{'removed':>9}"]
    for room in sorted(now | added | removed, key=lambda one: (-now[one], one)):
        change = f"{added[room] or '':>9}{removed[room] or '':>9}"
        lines.append(f"{room:<16}{now[room]:>9,}{change}".rstrip())
    lines.append(f"{'src':<16}{now.total():>9,}{added.total():>9,}{removed.total():>9,}")
    left = BUDGET - now.total()
    side = "below" if left >= 0 else "above"
    lines.append(f"{abs(left):,} lines {side} the budget of {BUDGET:,}")
    lines.append(
        f"change since {base[:8]}" if base else "no base revision: changes are not counted"
    )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table."""
    sys.stdout.write(text(base_of(arguments[0] if arguments else None)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
