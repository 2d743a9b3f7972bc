"""`python -m foretell.lab.characterize CONFIG.toml`: the runner where little but numpy and torch is there."""

import argparse
import json
import sys

from foretell.errors import BadInput


def main() -> int:
    """Run, and print JSON."""
    if sys.argv[1:2] == ["--worker"]:
        from foretell.lab.characterize.worker import main as work

        return work(sys.argv[2])
    parser = argparse.ArgumentParser(prog="foretell.lab.characterize")
    parser.add_argument("config")
    parser.add_argument("--out", default=None)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--timeout", type=float, default=None)
    parser.add_argument("--system", default=None)
    given = vars(parser.parse_args())
    from foretell.lab.characterize.run import characterize

    def tell(done: int, many: int, text: str) -> None:
        sys.stderr.write(f"{done} of {many}: {text}\n")
        sys.stderr.flush()

    try:
        found = characterize(given.pop("config"), tell=tell, **given)
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(found.to_dict(), indent=1) + "\n")
    return int(any(row.status == "failed" for row in found.rows))


if __name__ == "__main__":
    raise SystemExit(main())
