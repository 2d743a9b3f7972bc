"""torchtitan's own configurations and flavours of models (torchtitan_configs.toml); a flag beside one counts
first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.interop.package_tables import packaged_table

_TABLE = packaged_table(Path(__file__).with_name("torchtitan_configs.toml"))
REGISTRY: Mapping[str, Mapping[str, Any]] = _TABLE["configs"]
"""Functions and what they set."""
FLAVORS: Mapping[str, tuple[str, str]] = {
    repository: (name, flavor) for repository, (name, flavor) in _TABLE["flavors"].items()
}
"""Repository -> name and flavor that 0.2 has for it."""
