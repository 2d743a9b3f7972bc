"""Which rooms of the package one command enters: `python -m tests.rooms estimate llama-3.1-70b ...`.

A room is entered when one of its functions is called; importing it is not enough. Without arguments it asks
for one estimate of a given plan.
"""

import contextlib
import io
import sys
from pathlib import Path
from types import FrameType

import foretell
from foretell.cli.dispatch import run

PACKAGE = Path(foretell.__file__).parent
ESTIMATE = (
    "estimate llama-3.1-70b --system h100-sxm --gpus 512 --global-batch 1024 --seq-len 8192".split()
)
PLAN = ("--plan", "tp8 pp4 zero1 mbs1")


def rooms_entered(words: list[str]) -> dict[str, int]:
    """Room -> how many of its functions were called."""
    called: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or code.co_name == "<module>" or not path.is_relative_to(PACKAGE):
            return
        called.add((path.relative_to(PACKAGE).parts[0], code.co_qualname, code.co_firstlineno))

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        sys.setprofile(note)
        try:
            run(words)
        finally:
            sys.setprofile(None)
    rooms = [room.removesuffix(".py") for room, _, _ in called]
    return {room: rooms.count(room) for room in sorted(set(rooms) - {"__init__", "__main__"})}


if __name__ == "__main__":
    found = rooms_entered(sys.argv[1:] or [*ESTIMATE, *PLAN])
    for room, functions in found.items():
        print(f"{room:12s} {functions} functions")
    print(len(found), "rooms")
