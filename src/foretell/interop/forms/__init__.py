"""Forms that launch files have: shell scripts, container files, manifests, tasks, notebooks, configurations.

`launched` (door.py) returns the processes that a text starts, with the launchers around each, and the
settings of a text that is a configuration. What the words mean is the business of the tools' tables.
"""

from foretell.interop.forms.door import launched
from foretell.interop.forms.facts import GpuCount, gpu_count
from foretell.interop.forms.records import Fact, Launched, Layer, Process, Setting, Word

__all__ = [
    "Fact",
    "GpuCount",
    "Launched",
    "Layer",
    "Process",
    "Setting",
    "Word",
    "gpu_count",
    "launched",
]
