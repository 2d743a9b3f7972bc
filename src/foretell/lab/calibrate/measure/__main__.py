"""`python -m foretell.lab.calibrate.measure`: as `foretell calibrate measure`, with numpy and torch alone."""

import argparse
import json
import sys

from foretell.errors import BadInput
from foretell.lab.calibrate.measure.plan import GROUPS
from foretell.lab.calibrate.measure.run import first_rank, measure
from foretell.lab.calibrate.measure.worker import main as worker


def main(arguments: list[str]) -> int:
    """Exit code: 0 measured, 2 bad input."""
    if arguments[:1] == ["--worker"]:
        return worker(arguments[1])
    parser = argparse.ArgumentParser(prog="foretell.lab.calibrate.measure")
    parser.add_argument("--out", required=True, metavar="FILE", help="JSON lines, appended to")
    parser.add_argument("--minutes", type=float, default=8.0, help="time to take")
    parser.add_argument("--only", default="", metavar="GROUPS", help=f"of {','.join(GROUPS)}")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    parser.add_argument("--memory-share", type=float, default=0.85, help="of the free memory")
    parser.add_argument("--short", action="store_true", help="a few small points of each group")
    parser.add_argument("--retry-failed", action="store_true", help="try failed points again")
    parser.add_argument("--processes", type=int, default=0, help="for collectives; 1: none")
    given = parser.parse_args(arguments)
    try:
        found = measure(
            given.out,
            minutes=given.minutes,
            only=tuple(word for word in given.only.split(",") if word),
            device=given.device,
            short=given.short,
            memory_share=given.memory_share,
            retry_failed=given.retry_failed,
            processes=given.processes,
        )
    except BadInput as error:
        sys.stderr.write("".join(f"error: {problem}\n" for problem in error.problems))
        return 2
    if first_rank():
        sys.stdout.write(json.dumps(found.to_dict(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
