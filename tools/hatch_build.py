"""What a build makes besides the files of the repository: its tables as JSON (package_tables.py)."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Runs before a wheel is made, an editable one too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the store; a folder that cannot be written has none, and is a little slower."""
        del version, build_data
        script = Path(self.root) / "src" / "foretell" / "interop" / "package_tables.py"
        try:
            runpy.run_path(str(script), run_name="__main__")
        except OSError as error:
            self.app.display_warning(f"no parsed tables: {error}")
