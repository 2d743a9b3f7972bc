"""Whether the packages in a pip report can be installed without CUDA: exit 0 if so, 1 if not."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

CUDA = re.compile(r"(nvidia|cuda|triton|pytorch-triton)\b", re.IGNORECASE)


def names(report: dict[str, Any]) -> list[str]:
    """The packages to be installed and what they require on this machine outside their extras."""
    found = []
    for item in report["install"]:
        metadata = item["metadata"]
        found.append(str(metadata["name"]))
        for text in metadata.get("requires_dist", []):
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                found.append(needed.name)
    return found


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(any(CUDA.match(name) for name in names(report)))
