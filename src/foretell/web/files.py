"""Answers that are files to keep: the trace of a simulated step."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretell.web.limits import Limits

Reply = tuple[int, str, bytes]
MOST_TRACE_BYTES = 32 * 2**20
"""Larger traces are left to the command line."""


def trace(given: dict[str, Any], limits: Limits) -> Reply:
    """The Chrome trace of `foretell simulate`, gzipped: ui.perfetto.dev opens it."""
    from foretell.api import training as api
    from foretell.web.limits import TooMuch, too_much

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json.gz"
        api.simulate(**given, trace=file)
        if file.stat().st_size > MOST_TRACE_BYTES:
            raise TooMuch([too_much("trace", file.stat().st_size, f"{MOST_TRACE_BYTES} bytes")])
        return 200, "application/gzip", file.read_bytes()


FILES: Mapping[str, Callable[[dict[str, Any], Limits], Reply]] = {"simulate trace": trace}
"""Questions whose answer is a file."""
