"""Mutation check of the engine: makes one small error at a time in a copy, and sees whether a test fails.

`python -m tests.mutation` tries 40 mutants, chosen by a seed and spread over the engine, and prints each as
killed, survived or timeout; survivors come again at the end, as a diff. Tests of the module come first, then
those of its room, then the broad ones, up to the first failure; `--stages 2` stops after the room's, which is
much faster and shows what only whole answers notice. Exits 1 if any mutant survived.
"""

import argparse
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.known import KNOWN, find, is_equivalent
from tests.mutation.mutants import Mutant, choose, mutants_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src") / "foretell"
ROOMS = ("training", "serving", "network", "kernels", "schedules", "sharding")
"""Rooms of the engine, below the package."""
BROAD = ("properties", "programs", "validate", "surfaces/test_examples.py")
"""Folders and files of tests that hold whole answers, tried last."""
WITHOUT_NUMBERS = ("properties/test_bad_input.py", "fuzz", "docs", "web")
"""Slow ones that look at words rather than numbers: never tried."""
TIMES_S = (300.0, 300.0, 600.0, 900.0)
"""Longest that each stage of tests may take."""
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "results", ".hypothesis", ".*_cache", ".benchmarks", "*.pyc.*", "*.new"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutant."""

    mutant: Mutant
    """The change."""
    diff: str
    """The change as a diff."""
    result: str
    """killed, survived, timeout, equivalent, or broken where the test fails without the change too."""
    by: str
    """The test that failed, or why the mutant changes nothing."""
    seconds: float
    """How long it took to tell."""


class Copy:
    """A copy of the repository in which mutants are tried."""

    def __init__(self, folder: Path) -> None:
        """Copy everything that tests read."""
        self.root = folder / "copy"
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT)
        self.package = self.root / PACKAGE
        self.sound: dict[str, bool] = {}
        data = os.environ.get("FORETELL_DATA") or str(ROOT.parent / "shared" / "data")
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        source = str(self.root / "src")
        self.environment = {**kept, "PYTHONPATH": source, "FORETELL_DATA": data}

    def write(self, file: str, content: bytes) -> None:
        """Replace a file, and remove its compiled form: a change within one second would not be seen."""
        path = self.package / file
        path.write_bytes(content)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def first_failure(self, tests: Iterable[str], limit_s: float) -> str | None:
        """Return the id of the first test that fails, empty if none does; None where time ran out."""
        flags = "-x -q --no-header --tb=no -p no:cacheprovider -p no:xdist".split()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *flags, "--hypothesis-profile=mutation", *tests],
            cwd=self.root, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with all that tests have started
            process.wait()
            return None
        if process.returncode in (0, 5):  # 5: nothing to run
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
        return failed[1] if failed else f"pytest exits {process.returncode}"

    def is_sound(self, test: str) -> bool:
        """Return whether a test passes without any mutant; call it with none in place."""
        if test not in self.sound:
            self.sound[test] = self.first_failure([test], TIMES_S[-1]) == ""
        return self.sound[test]


def stages(package: Path, file: str) -> list[list[str]]:
    """Return the test files to try for one mutated module, stage by stage.

    First those that name the module, then the folder of its room, those that name the room, the broad ones.
    """
    tests = package.parents[1] / "tests"
    room = file.partition("/")[0].removesuffix(".py")
    module = "foretell." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package_name, _, name = module.rpartition(".")
    own = re.compile(
        rf"\b{re.escape(module)}\b|from {re.escape(package_name)} import [^\n]*\b{re.escape(name)}\b"
    )
    parts: list[list[str]] = [[], [], [], []]
    for path in sorted(tests.rglob("test_*.py")):
        below = path.relative_to(tests).as_posix()
        if below.startswith(WITHOUT_NUMBERS):
            continue
        text = path.read_text(encoding="utf-8")
        if own.search(text) or path.stem == f"test_{name}":
            parts[0].append(f"tests/{below}")
        elif below.startswith(f"{room}/"):
            parts[1].append(f"tests/{below}")
        elif re.search(rf"\bforetell\.{room}\b", text):
            parts[2].append(f"tests/{below}")
        elif below.startswith(BROAD):
            parts[3].append(f"tests/{below}")
    return parts


def try_mutant(copy: Copy, mutant: Mutant, most: int) -> Outcome:
    """Return what the tests of so many stages make of one mutant."""
    source = (copy.package / mutant.file).read_bytes()
    began = time.monotonic()

    def outcome(result: str, by: str = "") -> Outcome:
        return Outcome(
            mutant=mutant, diff=mutant.diff(source), result=result, by=by,
            seconds=round(time.monotonic() - began, 1),
        )  # fmt: skip

    if why := is_equivalent(copy.package, mutant):
        return outcome("equivalent", why)
    copy.write(mutant.file, mutant.apply(source))
    try:
        tried = zip(stages(copy.package, mutant.file), TIMES_S, strict=True)
        for tests, limit_s in list(tried)[:most]:
            failed = copy.first_failure(tests, limit_s) if tests else ""
            if failed != "":
                break
    finally:
        copy.write(mutant.file, source)
    if failed is None:
        return outcome("timeout")
    if not failed:
        return outcome("survived")
    return outcome("killed" if copy.is_sound(failed.partition("[")[0]) else "broken", failed)


def wanted(arguments: argparse.Namespace) -> list[Mutant]:
    """Return the mutants that were asked for."""
    package = ROOT / PACKAGE
    if arguments.only:
        file, _, line = arguments.only.rpartition(":")
        found = [m for m in mutants_of(package, file) if m.line == int(line)]
        found += [m for m in (find(package, c) for c in KNOWN) if m.where == arguments.only]
        return found
    known = [find(package, change) for change in KNOWN][: arguments.count]
    rooms = tuple(arguments.rooms) or ROOMS
    return known + choose(package, rooms, count=arguments.count - len(known), seed=arguments.seed)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "rooms", nargs="*", help=f"folders or modules below the package ({' '.join(ROOMS)})"
    )
    parser.add_argument("--count", type=int, default=40, help="mutants to try (40)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument(
        "--only",
        metavar="FILE:LINE",
        help="every mutant of one line, e.g. serving/disaggregation.py:25",
    )
    parser.add_argument(
        "--stages",
        type=int,
        default=len(TIMES_S),
        choices=range(1, len(TIMES_S) + 1),
        help="stages of tests to try: 1 the module's own, 2 its room's too, 4 the broad ones too (4)",
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    return parser.parse_args(words)


def main() -> int:
    """Try the mutants one after the other and print what became of them."""
    arguments = parse()
    mutants = wanted(arguments)
    if arguments.list:
        for mutant in mutants:
            print(
                f"{mutant.where}  {mutant.kind}\n{mutant.diff((ROOT / PACKAGE / mutant.file).read_bytes())}"
            )
        return 0
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutant in mutants:
            outcomes.append(try_mutant(copy, mutant, arguments.stages))
            last = outcomes[-1]
            line = f"{last.result:10} {mutant.where}  {mutant.kind}  {last.by}  ({last.seconds} s)"
            print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=1))
    else:
        summary(outcomes)
    return int(any(outcome.result not in ("killed", "equivalent") for outcome in outcomes))


def summary(outcomes: list[Outcome]) -> None:
    """Print how many of each, and every mutant that was not killed as a diff."""
    for outcome in outcomes:
        if outcome.result not in ("killed", "equivalent"):
            print(
                f"\n{outcome.result}: {outcome.mutant.where}  {outcome.mutant.kind}\n{outcome.diff}"
            )
    results = [outcome.result for outcome in outcomes]
    counts = [f"{results.count(result)} {result}" for result in dict.fromkeys(results)]
    print(f"\n{len(outcomes)} mutants: {', '.join(counts)}")


if __name__ == "__main__":
    sys.exit(main())
