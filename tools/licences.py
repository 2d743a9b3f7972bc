"""Prints the licences of everything in requirements.lock, as installed here, as CSV:
`python tools/licences.py > docs/supply-chain/licences.csv`."""

import csv
import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 60
"""A longer text in the field is the licence itself, not its name."""


def locked() -> dict[str, str]:
    """Name -> version of requirements.lock."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def licence(name: str) -> str:
    """What a package says of itself: the expression, else the classifiers, else the field."""
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return "not installed here"
    if expression := told.get("License-Expression"):
        return expression
    classes = [c.rpartition(" :: ")[2] for c in told.get_all("Classifier") or [] if "License" in c]
    field = (told.get("License") or "").strip()
    if classes and classes != ["OSI Approved"]:
        return ", ".join(classes)
    return field if 0 < len(field) <= LONGEST and "\n" not in field else "see its files"


if __name__ == "__main__":
    rows = [(package, licence(package)) for package in sorted(locked())]
    csv.writer(sys.stdout, lineterminator="\n").writerows([("package", "licence"), *rows])
