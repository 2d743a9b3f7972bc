"""Writes sbom.cdx.json: what comes along with `foretell[all]`, as a CycloneDX bill of materials.

`python tools/sbom.py` reads requirements.lock and pyproject.toml alone, so that the same lock gives the same
file: names, versions, hashes and package URLs, and which of them Foretell itself asks for.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK, SBOM = ROOT / "requirements.lock", ROOT / "sbom.cdx.json"
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+) \\$", re.M)


def components(lock: str) -> list[dict[str, Any]]:
    """A component for each package of a lock."""
    pins = list(_PIN.finditer(lock))
    ends = [pin.start() for pin in pins[1:]] + [len(lock)]
    found = []
    for pin, end in zip(pins, ends, strict=True):
        url = f"pkg:pypi/{pin[1]}@{pin[2]}"
        files = re.findall(r"sha256:([0-9a-f]{64})", lock[pin.start() : end])
        found.append(
            {
                "type": "library",
                "bom-ref": url,
                "name": pin[1],
                "version": pin[2],
                "purl": url,
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in files],
            }
        )
    return found


def document(lock: str) -> dict[str, Any]:
    """The bill of materials of a lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "src/foretell/__init__.py").read_text(encoding="utf-8")
    version = re.search(r'__version__ = "([^"]+)"', text)
    own = f"pkg:pypi/foretell@{version[1] if version else '0'}"
    parts = components(lock)
    asked = {
        re.split(r"[<>=!\[ ;]", line)[0].lower().replace("_", "-")
        for lines in (project["dependencies"], *project["optional-dependencies"].values())
        for line in lines
    }
    direct = [part["bom-ref"] for part in parts if part["name"] in asked]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "foretell",
                "version": own.rpartition("@")[2],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": direct}],
    }


def main() -> int:
    """Write the file."""
    found = document(LOCK.read_text(encoding="utf-8"))
    SBOM.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found['components'])} components: {SBOM.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
