"""`python -m foretell.lab.first_contact`: render the pages of the ledger.

With `add` it first keeps what a scorer of a sealed wave prints, from standard input (lines.py).
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from foretell.errors import BadInput
from foretell.lab.first_contact.entry import append_lines
from foretell.lab.first_contact.page import with_ledger


def main(arguments: Sequence[str]) -> int:
    """Keep lines where that is asked for, and write the pages of the repository that this file is in."""
    if arguments not in ([], ["add"]):
        sys.stderr.write("usage: python -m foretell.lab.first_contact [add < LINES]\n")
        return 2
    if arguments:
        try:
            append_lines(sys.stdin.read())
        except BadInput as error:
            sys.stderr.write(f"{error}\n")
            return 2
    for path, text in with_ledger(Path(__file__).parents[4]).items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
