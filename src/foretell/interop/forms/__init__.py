"""Forms that launch files have: shell scripts, container files, manifests, tasks, notebooks, configurations.

`read_form` (door.py) returns the processes that a text starts, with the launchers around each, and the
settings of a text that is a configuration. What the words mean is the business of the tools' tables.
"""

from foretell.interop.forms.door import read_form
from foretell.interop.forms.facts import GpuCount, gpu_count
from foretell.interop.forms.records import (
    ConfigSetting,
    LaunchContents,
    LaunchedProcess,
    LauncherLayer,
    StatedFact,
    Word,
)

__all__ = [
    "ConfigSetting",
    "GpuCount",
    "LaunchContents",
    "LaunchedProcess",
    "LauncherLayer",
    "StatedFact",
    "Word",
    "gpu_count",
    "read_form",
]
