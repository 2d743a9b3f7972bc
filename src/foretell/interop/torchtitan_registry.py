"""torchtitan's own configurations and flavours of models (torchtitan_configs.toml); a flag beside one counts
first."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

_TABLE = tomllib.loads(
    resources.files("foretell.interop").joinpath("torchtitan_configs.toml").read_text("utf-8")
)
REGISTRY: Mapping[str, Mapping[str, Any]] = _TABLE["configs"]
"""Functions and what they set."""
FLAVORS: Mapping[str, tuple[str, str]] = {
    repository: (name, flavor) for repository, (name, flavor) in _TABLE["flavors"].items()
}
"""Repository -> name and flavor that 0.2 has for it."""
