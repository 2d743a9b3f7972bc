"""The command `foretell`: thin verbs over the Python functions, in text or JSON.

`run` turns arguments into an exit code: 0 answered; 1 answered, and the answer is no; 2 bad input,
with nothing on standard output; 70 a fault of ours; 74 the answer cannot be written; 130
interrupted; 141 the reader went away.
"""

from collections.abc import Sequence


def main() -> None:
    """Run the arguments of this process and leave with the exit code."""
    import gc
    import sys

    gc.set_threshold(
        100_000, 50, 50
    )  # loading makes no garbage: looking for it takes a tenth longer

    from foretell.cli.dispatch import run

    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run arguments, as a shell would pass them, and give the exit code."""
    from foretell.cli.dispatch import run

    return run(arguments)
